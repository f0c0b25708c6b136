//! The network between three instances: each reaches each other one through a proxy of its own, so
//! that any way of any pair can be cut without the instances' clients noticing.
//!
//! Not here: the proxies (`slow_net`). Invariant: a cut is silent, no connection is closed.

use std::net::{IpAddr, SocketAddr};

use crate::Try;
use crate::slow_net::SlowNet;
use crate::slow_net::command::{Command, Ways};

use super::{Instance, THREE};

/// See the module.
pub struct Net {
    /// The sender and the receiver.
    proxies: Vec<(Instance, Instance, SlowNet)>,
}

impl Net {
    /// Proxies on free ports of `host` to the links of the instances.
    ///
    /// # Errors
    /// When there is no port.
    pub(super) fn between(host: IpAddr, links: &[String; 3]) -> Try<Net> {
        let mut proxies = Vec::new();
        for from in THREE {
            for to in THREE.into_iter().filter(|to| *to != from) {
                let net = SlowNet::start(SocketAddr::new(host, 0), &links[to])?;
                proxies.push((from, to, net));
            }
        }
        Ok(Net { proxies })
    }

    /// Where `from` finds `to`.
    pub(super) fn address(&self, from: Instance, to: Instance) -> Option<SocketAddr> {
        let mut proxies = self.proxies.iter();
        let found = proxies.find(|(one, other, _)| (*one, *other) == (from, to));
        found.map(|(.., net)| net.address())
    }

    /// What `from` sends does not reach `to` any more, whichever of them connected.
    pub fn cut(&self, from: Instance, to: Instance) {
        self.order(from, to, Command::Cut);
    }

    /// It reaches it again.
    pub fn heal(&self, from: Instance, to: Instance) {
        self.order(from, to, Command::Heal);
    }

    /// Nothing reaches the instance, and nothing of it reaches the others.
    pub fn isolate(&self, instance: Instance) {
        for other in THREE.into_iter().filter(|other| *other != instance) {
            self.cut(instance, other);
            self.cut(other, instance);
        }
    }

    /// Everything passes again.
    pub fn heal_all(&self) {
        for (.., net) in &self.proxies {
            carry_out(net, Command::Heal(Ways::Both));
        }
    }

    /// Connections between two instances are reset.
    pub fn reset(&self, one: Instance, other: Instance) {
        for (from, to, net) in &self.proxies {
            if [*from, *to] == [one, other] || [*from, *to] == [other, one] {
                carry_out(net, Command::Reset);
            }
        }
    }

    /// So much later, each way of each pair.
    pub fn delay_all(&self, delay: std::time::Duration) {
        for (.., net) in &self.proxies {
            carry_out(net, Command::Delay(Ways::Both, delay));
        }
    }

    fn order(&self, from: Instance, to: Instance, command: impl Fn(Ways) -> Command) {
        for (one, other, net) in &self.proxies {
            if (*one, *other) == (from, to) {
                carry_out(net, command(Ways::There));
            }
            if (*one, *other) == (to, from) {
                carry_out(net, command(Ways::Back));
            }
        }
    }
}

/// What an order answers is only of interest where something was asked.
fn carry_out(net: &SlowNet, command: Command) {
    let answer = net.order(command);
    debug_assert_eq!(answer, "ok");
}
