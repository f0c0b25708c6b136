//! Which addresses count as one client where connections or wrong passwords are counted.

use std::net::{IpAddr, Ipv6Addr};

/// What is taken for one client: an IPv4 address, or the 64 bits of IPv6 that one customer gets.
#[must_use]
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}
