//! What the system has: interfaces, their link addresses and their addresses. Nothing is changed.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{LinkAddr, SockaddrStorage};

/// An interface as it was when it was looked for.
pub(super) struct Interface {
    index: u32,
    link: Option<LinkAddr>,
    addresses: Vec<IpAddr>,
}

impl Interface {
    /// Looks for the interface `name`.
    ///
    /// # Errors
    /// When there is none, or the system does not give it.
    pub(super) fn find(name: &str) -> io::Result<Interface> {
        let index = if_nametoindex(name).map_err(|_| {
            let why = format!("there is no interface '{name}' on this machine");
            io::Error::new(io::ErrorKind::NotFound, why)
        })?;
        let (mut link, mut addresses) = (None, Vec::new());
        for row in getifaddrs()?.filter(|row| row.interface_name == name) {
            let Some(address) = &row.address else { continue };
            match address.as_link_addr() {
                Some(found) => link = Some(*found),
                None => addresses.extend(ip_of(address)),
            }
        }
        Ok(Interface { index, link, addresses })
    }

    /// Its number in the kernel.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Whether the address is on it, in whatever network.
    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }

    /// Where frames leave, and the six bytes that name it on the wire; `None` where there is no
    /// such thing, as on a tunnel.
    pub(super) fn link(&self) -> Option<(LinkAddr, [u8; 6])> {
        let link = self.link?;
        let name = link.addr().filter(|name| link.halen() == name.len() && *name != [0; 6])?;
        Some((link, name))
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_address_and_no_name_on_a_wire() {
        let loopback = Interface::find("lo").unwrap();
        assert!(loopback.has("127.0.0.1".parse().unwrap()));
        assert!(!loopback.has("192.0.2.1".parse().unwrap()));
        assert!(loopback.index() > 0 && loopback.link().is_none());
    }
}
