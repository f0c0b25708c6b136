//! The address at which clients find this instance directly: sent to relayed clients that ask for
//! it.
//!
//! Not here: the question and the answer (the crate `node`). Invariant: an address is given only if
//! it leads to this instance from the machine of any client; when that is not known, none is given.

use std::net::{IpAddr, SocketAddr};

use towline_config::{GroupConfig, split};

/// Where clients find an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `amqp` or `amqps`.
    pub scheme: String,
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// For clients of listener `number`, which is bound to `bound` and whose URL is `url`: what the
/// configuration says, else its own address.
pub fn of(group: &GroupConfig, number: u16, bound: SocketAddr, url: &str) -> Option<Redirect> {
    let Ok((_, this)) = group.own() else {
        unreachable!("a configuration without this instance is refused at the start")
    };
    let (scheme, _) = url.split_once(':')?;
    let named = this.clients.get(usize::from(number)).filter(|named| !named.is_empty());
    let (host, port) = match named {
        Some(named) => split(named).map(|(host, port)| (host.to_owned(), port))?,
        None => own(bound, &this.address).then(|| (bound.ip().to_string(), bound.port()))?,
    };
    Some(Redirect { scheme: scheme.to_owned(), host, port })
}

/// Whether the address of a listener leads to it from other machines too. One on loopback does when
/// the whole group is on this machine; elsewhere it would lead a client back to the instance it
/// came from.
fn own(bound: SocketAddr, links: &str) -> bool {
    let on_loopback = |(host, _): (&str, u16)| {
        host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    };
    match bound.ip() {
        ip if ip.is_unspecified() => false,
        ip if ip.is_loopback() => split(links).is_some_and(on_loopback),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_config::Config;

    fn group(links: &str, clients: &str) -> GroupConfig {
        let mut text = "[group]\nname = \"G\"\ninstance = \"b\"\ncertificate = \"a.pem\"\n\
                        private_key = \"k.pem\"\nauthorities = \"authority.pem\"\n"
            .to_owned();
        for (name, port) in [("a", 1), ("b", 2), ("c", 3)] {
            text += &format!("[[group.member]]\nname = \"{name}\"\naddress = \"{links}:{port}\"\n");
            if name == "b" {
                text += &format!("clients = {clients}\n");
            }
        }
        Config::parse(&text).unwrap().group.unwrap()
    }

    fn named(group: &GroupConfig, number: u16, bound: &str) -> Option<String> {
        let named = of(group, number, bound.parse().unwrap(), "amqps://whatever")?;
        Some(format!("{} {} {}", named.scheme, named.host, named.port))
    }

    #[test]
    fn the_configured_address_is_given_and_else_the_own_one_if_it_leads_here() {
        let far = group("links.example", "[\"\", \"[2001:db8::1]:5671\"]");
        assert_eq!(named(&far, 1, "0.0.0.0:5671").unwrap(), "amqps 2001:db8::1 5671");
        assert_eq!(named(&far, 0, "192.0.2.7:5671").unwrap(), "amqps 192.0.2.7 5671");
        for nowhere in ["0.0.0.0:5671", "[::]:5671", "127.0.0.1:5671", "[::1]:5671"] {
            assert_eq!(named(&far, 0, nowhere), None, "{nowhere}");
        }
        let near = group("127.1.2.3", "[]");
        assert_eq!(named(&near, 0, "127.1.2.3:5672").unwrap(), "amqps 127.1.2.3 5672");
        assert_eq!(named(&near, 0, "0.0.0.0:5672"), None);
    }
}
