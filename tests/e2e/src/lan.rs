//! Machines on one bridge: network namespaces, each with an interface `eth0`, and the bridge in one
//! of its own, so that the network of this machine is not touched.
//!
//! Programs that a thread starts inside ([`Lan::on`]) are on that machine. Needs root and ip(8).
//! Not here: a network that loses or delays (`slow_net`).
//!
//! Invariants: names have the process id of the test in them, so that several tests do not meet;
//! all is gone when the value is dropped, and what a killed test left is gone when the next one
//! begins.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::daemon::said;
use crate::{Try, fail, require};

const PREFIX: &str = "towline-";
/// Where ip(8) keeps namespaces.
const NAMESPACES: &str = "/var/run/netns";

/// See the module.
pub struct Lan {
    prefix: String,
    hosts: Vec<&'static str>,
}

impl Lan {
    /// Machines with these names; the first has the addresses 10.77.0.1 and fd77::1, and so on.
    ///
    /// # Errors
    /// When this machine has no network namespaces, or this is not root.
    pub fn of(hosts: &[&'static str]) -> Try<Lan> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        sweep()?;
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let prefix = format!("{PREFIX}{}-{number}-", std::process::id());
        let lan = Lan { prefix, hosts: hosts.to_vec() };
        let hub = lan.name_space("hub");
        ip(&format!("netns add {hub}")).map_err(|error| {
            format!("this test needs network namespaces, ip(8) and root: {error}")
        })?;
        ip(&format!("-n {hub} link add bridge type bridge"))?;
        ip(&format!("-n {hub} link set bridge up"))?;
        for (number, host) in (1..).zip(hosts) {
            lan.plug_in(number, host)?;
        }
        Ok(lan)
    }

    fn plug_in(&self, number: u32, host: &str) -> Try {
        let (hub, space) = (self.name_space("hub"), self.name_space(host));
        ip(&format!("netns add {space}"))?;
        let pair = format!("name to-{host} type veth peer name eth0 netns {space}");
        ip(&format!("-n {hub} link add {pair}"))?;
        ip(&format!("-n {hub} link set to-{host} master bridge up"))?;
        ip(&format!("-n {space} link set lo up"))?;
        ip(&format!("-n {space} link set eth0 up"))?;
        ip(&format!("-n {space} address add 10.77.0.{number}/24 dev eth0"))?;
        ip(&format!("-n {space} address add fd77::{number}/64 dev eth0 nodad"))
    }

    /// Plugs the cable of a machine in, or out.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn cable(&self, host: &str, plugged: bool) -> Try {
        let way = if plugged { "up" } else { "down" };
        ip(&format!("-n {} link set to-{host} {way}", self.name_space("hub")))
    }

    /// Which machines have an address.
    ///
    /// # Errors
    /// When one cannot be asked.
    pub fn holders(&self, address: IpAddr) -> Try<Vec<&'static str>> {
        let mut holders = Vec::new();
        for host in &self.hosts {
            let space = self.name_space(host);
            let output = Command::new("ip")
                .args(["-n", &space, "-o", "address", "show", "dev", "eth0"])
                .output()?;
            require!(output.status.success(), "{}", said(&output));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if text.contains(&format!(" {address}/")) {
                holders.push(*host);
            }
        }
        Ok(holders)
    }

    /// Does something on a machine: sockets and programs that `work` makes are there.
    ///
    /// # Errors
    /// What `work` gives back, or that the machine cannot be entered.
    pub fn on<T: Send>(&self, host: &str, work: impl FnOnce() -> Try<T> + Send) -> Try<T> {
        let path = Path::new(NAMESPACES).join(self.name_space(host));
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let space = File::open(path)?;
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            match inside.join() {
                Ok(done) => done,
                Err(_) => fail!("what was done on {host} panicked"),
            }
        })
    }

    fn name_space(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for host in self.hosts.iter().chain(&["hub"]) {
            // Perhaps it was never made.
            drop(ip(&format!("netns delete {}", self.name_space(host))));
        }
    }
}

/// Removes what tests left that were killed.
fn sweep() -> Try {
    let Ok(names) = std::fs::read_dir(NAMESPACES) else { return Ok(()) };
    for entry in names {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let process = process.and_then(|process| process.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another test may be doing the same.
            drop(ip(&format!("netns delete {name}")));
        }
    }
    Ok(())
}

fn ip(arguments: &str) -> Try {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    require!(output.status.success(), "ip {arguments}: {}", said(&output).trim());
    Ok(())
}
