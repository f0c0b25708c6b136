//! Where clients find the instances of one group: what a group says of itself, or what another one
//! has of it in its configuration.
//!
//! A client that gets a list of addresses may forget all others that it had (Qpid JMS does). So a
//! list is complete or there is none: [`GroupClients::of_listener`].
//!
//! Not here: which group is live, in which order a client gets both, the bytes of the list.
//! Invariant: what is given out is `host:port` with a port that is not 0.

use std::fmt;

use serde::{Deserialize, Serialize};
use towline_config::{GroupConfig, ListenerConfig, RecoveryConfig, split};
use towline_types::limits;

use crate::agreement::{LISTENER_SCHEMES, listener_schemes};
use crate::region_agreement::RegionAgreement;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupClients {
    /// Names of the instances, in their order; none: not known.
    pub instances: Vec<String>,
    /// One list for each instance, in it one address for each listener; empty: not given.
    pub clients: Vec<Vec<String>>,
    /// Of each listener: `amqp` or `amqps`; none: not known, then they are taken to be as here.
    pub schemes: Vec<String>,
}

/// One address at which clients find an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAddress {
    /// `amqp` or `amqps`.
    pub scheme: String,
    /// Name or address; one of version 6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientAddress { scheme, host, port } = self;
        match host.contains(':') {
            true => write!(out, "{scheme}://[{host}]:{port}"),
            false => write!(out, "{scheme}://{host}:{port}"),
        }
    }
}

impl GroupClients {
    /// That of the group with this configuration.
    #[must_use]
    pub fn own(group: &GroupConfig, listeners: &[ListenerConfig]) -> GroupClients {
        let members = group.member.iter();
        GroupClients {
            instances: members.clone().map(|member| member.name.clone()).collect(),
            clients: members.map(|member| member.clients.clone()).collect(),
            schemes: listener_schemes(listeners),
        }
    }

    /// What a group said of itself when it connected.
    #[must_use]
    pub fn said(agreement: &RegionAgreement) -> GroupClients {
        let schemes = agreement.values.iter().find(|(key, _)| key == LISTENER_SCHEMES);
        let schemes = schemes.map(|(_, value)| value.split(' ').map(str::to_owned).collect());
        GroupClients {
            instances: agreement.instances.clone(),
            clients: agreement.own_clients.clone(),
            schemes: schemes.unwrap_or_default(),
        }
    }

    /// The same where the configuration of the other group, `recovery`, says otherwise: that
    /// counts, because how clients get to another region is known where they come from.
    #[must_use]
    pub fn as_configured(self, recovery: &RecoveryConfig) -> GroupClients {
        if recovery.clients.is_empty() {
            return self;
        }
        // Which of the lists is of which instance is not known if there are not as many.
        let known = self.instances.len() == recovery.clients.len();
        let instances = if known { self.instances } else { Vec::new() };
        GroupClients { instances, clients: recovery.clients.clone(), ..self }
    }

    /// The addresses of a listener, by its number, at all instances, the one named `first` first
    /// and each once; `None`: not all are known. `scheme`: that of the listener here.
    #[must_use]
    pub fn of_listener(
        &self,
        listener: usize,
        scheme: &str,
        first: &str,
    ) -> Option<Vec<ClientAddress>> {
        let mut found: Vec<ClientAddress> = Vec::new();
        let mut order: Vec<usize> = (0..self.clients.len()).collect();
        order.sort_by_key(|at| self.instances.get(*at).is_none_or(|name| name != first));
        for at in order {
            let address = self.address(at, listener, scheme)?;
            if !found.contains(&address) {
                found.push(address);
            }
        }
        (!found.is_empty()).then_some(found)
    }

    /// One address of a listener: that of the instance `first` if it is known, else of any.
    #[must_use]
    pub fn one_of(&self, listener: usize, scheme: &str, first: &str) -> Option<ClientAddress> {
        let at = self.instances.iter().position(|name| name == first);
        let of = |at| self.address(at, listener, scheme);
        at.and_then(of).or_else(|| (0..self.clients.len()).find_map(of))
    }

    fn address(&self, at: usize, listener: usize, scheme: &str) -> Option<ClientAddress> {
        let (host, port) = split(self.clients.get(at)?.get(listener)?)?;
        // An address that is too long was said as an empty one.
        let fits = host.len() <= limits::REGION_ADDRESS_BYTES_MAX;
        let scheme = self.schemes.get(listener).map_or(scheme, String::as_str);
        (fits && matches!(scheme, "amqp" | "amqps")).then(|| ClientAddress {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region_agreement::tests::{agreement_of, configuration};

    fn east(clients: &[&[&str]]) -> GroupClients {
        GroupClients {
            instances: ["a", "b", "c"].map(str::to_owned).to_vec(),
            clients: clients
                .iter()
                .map(|of| of.iter().map(|one| (*one).to_owned()).collect())
                .collect(),
            schemes: Vec::new(),
        }
    }

    fn shown(found: Option<Vec<ClientAddress>>) -> Option<Vec<String>> {
        let text = |one: ClientAddress| format!("{}://{}:{}", one.scheme, one.host, one.port);
        found.map(|found| found.into_iter().map(text).collect())
    }

    #[test]
    fn a_list_has_each_instance_the_active_one_first_or_there_is_none() {
        let whole = east(&[&["a:1", "a:2"], &["b:1", "b:2"], &["[2001:db8::1]:1"]]);
        let list = shown(whole.of_listener(0, "amqp", "b")).unwrap();
        assert_eq!(list, ["amqp://b:1", "amqp://a:1", "amqp://2001:db8::1:1"]);
        assert_eq!(whole.of_listener(1, "amqp", "b"), None, "c has no second listener");
        for wrong in ["", "c", "c:0", ":5672"] {
            let lacks = east(&[&["a:1"], &["b:1"], &[wrong]]);
            assert_eq!(lacks.of_listener(0, "amqp", ""), None, "{wrong}");
            let one = lacks.one_of(0, "amqp", "c").map(|one| vec![one]);
            assert_eq!(shown(one).unwrap(), ["amqp://a:1"], "a redirect needs only one");
        }
        let shared = east(&[&["vip:1"], &["vip:1"], &["vip:1"]]);
        assert_eq!(shown(shared.of_listener(0, "amqps", "")).unwrap(), ["amqps://vip:1"]);
        assert_eq!(GroupClients::default().of_listener(0, "amqp", ""), None);
        assert_eq!(GroupClients::default().one_of(0, "amqp", "a"), None);
    }

    #[test]
    fn a_group_says_which_instances_it_has_and_which_of_its_listeners_have_tls() {
        let config = configuration("east", "west", "");
        let mut said = GroupClients::said(&agreement_of(&config));
        assert_eq!(said.instances, ["a", "b", "c"]);
        assert_eq!(said.clients[1], ["b.east:5672"]);
        let own = GroupClients::own(config.group.as_ref().unwrap(), &config.listener);
        assert_eq!(own.clients, said.clients);
        said.schemes = vec!["amqps".to_owned()];
        let list = shown(said.of_listener(0, "amqp", "c")).unwrap();
        assert_eq!(list, ["amqps://c.east:5672", "amqps://a.east:5672", "amqps://b.east:5672"]);
        said.schemes = vec!["of a later version".to_owned()];
        assert_eq!(said.of_listener(0, "amqp", "c"), None);
    }

    #[test]
    fn what_is_configured_of_the_other_group_counts_more_than_what_it_says() {
        let of = |keys: &str| configuration("west", "east", keys).group.unwrap().recovery.unwrap();
        let said = || east(&[&["a:1"], &["b:1"], &["c:1"]]);
        assert_eq!(said().as_configured(&of("")), said());
        let three = of("clients = [[\"x:1\"], [\"y:1\"], [\"z:1\"]]");
        let list = shown(said().as_configured(&three).of_listener(0, "amqp", "b")).unwrap();
        assert_eq!(list, ["amqp://y:1", "amqp://x:1", "amqp://z:1"]);
        let one = of("clients = [[\"vip:1\"]]");
        let list = shown(said().as_configured(&one).of_listener(0, "amqp", "b")).unwrap();
        assert_eq!(list, ["amqp://vip:1"]);
        let never_met = GroupClients::default().as_configured(&one);
        assert_eq!(shown(never_met.of_listener(0, "amqp", "")).unwrap(), ["amqp://vip:1"]);
    }
}
