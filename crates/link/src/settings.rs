//! The settings of the links of one instance: the members, which of them we are, certificates,
//! times.
//!
//! Not here: the checks of ranges (`config::group`).

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::Peer;
use super::identity::IdentityFiles;
use super::names::Names;
use super::socket::listen_widely;
use super::terms::Terms;
use towline_config::GroupConfig;

/// What [`super::Links::start`] needs.
pub struct LinkSettings {
    /// Name of the queue manager.
    pub queue_manager: Arc<str>,
    /// Name of the group.
    pub group: Arc<str>,
    /// All members, by name.
    pub members: Vec<Member>,
    /// What the others must or should have as well.
    pub terms: Terms,
    /// Which of them we are.
    pub this: Peer,
    /// Certificate, key, authorities.
    pub identity: IdentityFiles,
    /// Where links come in; `None`: only dialled ones.
    pub listener: Option<TcpListener>,
    /// Between two pings of a link.
    pub heartbeat_interval: Duration,
    /// Silence after which a connection counts as dead.
    pub heartbeat_timeout: Duration,
    /// The first pause before a peer is dialled again; doubles up to a second.
    pub retry_interval: Duration,
    /// Bytes from which on a body is compressed; 0: never.
    pub compression_threshold: usize,
}

/// One instance.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// Host and port.
    pub address: Arc<str>,
}

impl LinkSettings {
    /// The settings of the instance `this` of a checked configuration.
    pub fn of(
        queue_manager: &str,
        config: &GroupConfig,
        terms: Terms,
        this: Peer,
        listener: Option<TcpListener>,
    ) -> LinkSettings {
        assert!(this < config.member.len(), "this instance is a member");
        let members = config.member.iter().map(|member| Member {
            name: Arc::from(member.name.as_str()),
            address: Arc::from(member.address.as_str()),
        });
        LinkSettings {
            queue_manager: Arc::from(queue_manager),
            group: Arc::from(config.name.as_str()),
            members: members.collect(),
            terms,
            this,
            identity: IdentityFiles::of(config),
            listener,
            heartbeat_interval: config.heartbeat_interval(),
            heartbeat_timeout: config.heartbeat_timeout(),
            retry_interval: config.retry_interval(),
            compression_threshold: usize::try_from(config.compression_threshold)
                .unwrap_or(usize::MAX),
        }
    }

    /// What the certificate of a member may call it.
    pub(super) fn names(&self, peer: Peer) -> Names {
        Names::of(&self.queue_manager, &self.group, self.name(peer))
    }

    pub(super) fn name(&self, peer: Peer) -> &str {
        &self.member(peer).name
    }

    pub(super) fn address(&self, peer: Peer) -> &str {
        &self.member(peer).address
    }

    /// # Panics
    /// When there is no such member: one without a name would be dialled, and greeted, as none.
    fn member(&self, peer: Peer) -> &Member {
        match self.members.get(peer) {
            Some(member) => member,
            None => unreachable!("instance {peer} is none of {}", self.members.len()),
        }
    }

    /// Which other member has this name.
    pub(super) fn other(&self, name: &str) -> Option<Peer> {
        let peer = self.members.iter().position(|member| &*member.name == name)?;
        (peer != self.this).then_some(peer)
    }
}

/// Binds the socket on which links come in. `address` is host and port, and the host must be of
/// this machine. `came` yields one that listens at one of these addresses already.
///
/// # Errors
/// When the host is not known or the port is taken.
pub fn bind(
    address: &str,
    came: impl FnOnce(&[SocketAddr]) -> Option<TcpListener>,
) -> io::Result<TcpListener> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    let listener = match came(&addresses) {
        Some(listener) => listener,
        None => TcpListener::bind(addresses.as_slice())?,
    };
    listener.set_nonblocking(true)?;
    listen_widely(&listener)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::burst;

    #[test]
    fn relayed_clients_come_in_bursts_to_the_port_of_the_links() {
        let listener = bind("127.0.0.1:0", |_| None).unwrap();
        let (connected, came) = burst::connected(listener.local_addr().unwrap());
        assert_eq!(connected, came, "connected of those that came");
    }

    fn settings() -> LinkSettings {
        let mut text = "[group]\nname = \"G\"\ninstance = \"b\"\ncertificate = \"a.pem\"\nprivate_key = \"k.pem\"\n\
                        authorities = \"authority.pem\"\ncompression_threshold = 0\n\
                        heartbeat_interval_ms = 11\nheartbeat_timeout_ms = 77\nretry_interval_ms = 5\n"
            .to_owned();
        for name in ["a", "b", "c"] {
            text.push_str("[[group.member]]\n");
            text.push_str(&format!("name = \"{name}\"\naddress = \"{name}.example:5700\"\n"));
        }
        let group = towline_config::Config::parse(&text).unwrap().group.unwrap();
        LinkSettings::of("QM1", &group, Terms::default(), 1, None)
    }

    #[test]
    fn the_configuration_becomes_settings_and_only_others_are_peers() {
        let settings = settings();
        assert_eq!((settings.name(2), settings.address(2)), ("c", "c.example:5700"));
        assert_eq!((settings.other("a"), settings.other("b")), (Some(0), None));
        assert_eq!((settings.other("d"), settings.members.len()), (None, 3));
        assert_eq!(settings.compression_threshold, 0);
        let times =
            [settings.heartbeat_interval, settings.heartbeat_timeout, settings.retry_interval];
        assert_eq!(times, [11, 77, 5].map(Duration::from_millis));
    }

    #[test]
    #[should_panic(expected = "instance 3 is none of 3")]
    fn an_instance_that_is_no_member_has_no_name() {
        settings().name(3);
    }

    #[test]
    fn an_address_that_is_not_ours_cannot_be_bound() {
        let bind = |address| bind(address, |_| None);
        assert!(bind("127.0.0.1:0").is_ok());
        assert!(bind("192.0.2.1:0").is_err() && bind("nowhere").is_err());
    }
}
