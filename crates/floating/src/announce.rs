//! Announces to the neighbours where an address is now: one frame to all of them.
//!
//! IPv4: an ARP announcement (RFC 5227, section 3): a request for the address, from the address.
//! IPv6: an unsolicited neighbour advertisement with the override flag (RFC 4861, section 7.2.6).
//! Both replace what neighbours have in their caches; a neighbour without an entry asks, as ever.
//!
//! ```text
//! frame   0  6 to   6  6 from   12  2 type, then:
//! ARP     0  8 fixed (Ethernet, IPv4, request)  8  6 from   14  4 address   18  6 zero   24  4 address
//! IPv6    0  4 version   4  2 length 32   6  1 next 58   7  1 hops 255   8  16 from   24  16 to
//!         40  1 type 136   41  1 code 0   42  2 checksum   44  4 flags   48  16 address
//!         64  2 option: link address   66  6 the link address
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};

use super::interface::Interface;

/// Bytes of a link address (Ethernet).
type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
/// The frame address of ff02::1, all nodes of the link (RFC 2464, section 7).
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet, IPv4, lengths of their addresses, request.
const ARP_REQUEST: [u8; 8] = [0, 1, 0x08, 0, 6, 4, 0, 1];
const ICMPV6: u8 = 58;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// What is in the cache is to be replaced.
const OVERRIDE: u8 = 0x20;
const OPTION_TARGET_LINK: [u8; 2] = [2, 1];
/// Bytes of an advertisement with its option.
const ADVERTISEMENT_BYTES: u8 = 32;

/// Sends announcements on one interface.
pub(super) struct Announcer {
    /// `None`: there are no neighbours behind this interface that keep link addresses.
    wire: Option<(OwnedFd, LinkAddr, Mac)>,
}

impl Announcer {
    /// Ready to announce on `interface`.
    ///
    /// # Errors
    /// When the system refuses a socket for frames (CAP_NET_RAW).
    pub(super) fn on(interface: &Interface) -> io::Result<Announcer> {
        let Some((link, mac)) = interface.link() else { return Ok(Announcer { wire: None }) };
        // Of no protocol: nothing is received.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        Ok(Announcer { wire: Some((socket, link, mac)) })
    }

    /// Announces that `ip` is here.
    ///
    /// # Errors
    /// When the frame cannot be sent, for example because the interface is down.
    pub(super) fn announce(&self, ip: IpAddr) -> io::Result<()> {
        let Some((socket, link, mac)) = &self.wire else { return Ok(()) };
        let frame = match ip {
            IpAddr::V4(ip) => arp(*mac, ip),
            IpAddr::V6(ip) => advertisement(*mac, ip),
        };
        sendto(socket.as_raw_fd(), &frame, link, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

fn arp(mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    let ip = ip.octets();
    [&BROADCAST[..], &mac, &TYPE_ARP, &ARP_REQUEST, &mac, &ip, &[0; 6], &ip].concat()
}

fn advertisement(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    let (ip, to) = (ip.octets(), ALL_NODES.octets());
    let flags = [OVERRIDE, 0, 0, 0];
    let icmp = |sum: [u8; 2]| {
        let head = [NEIGHBOUR_ADVERTISEMENT, 0];
        [&head[..], &sum, &flags, &ip, &OPTION_TARGET_LINK, &mac].concat()
    };
    // RFC 8200, section 8.1: the checksum is also over addresses, length and protocol.
    let pseudo = [&ip[..], &to, &[0, 0, 0, ADVERTISEMENT_BYTES, 0, 0, 0, ICMPV6]].concat();
    let sum = checksum(&[pseudo, icmp([0, 0])].concat());
    let head = [0x60, 0, 0, 0, 0, ADVERTISEMENT_BYTES, ICMPV6, 255];
    let body = icmp(sum.to_be_bytes());
    assert_eq!(body.len(), usize::from(ADVERTISEMENT_BYTES), "as drawn above");
    [&ALL_NODES_MAC[..], &mac, &TYPE_IPV6, &head, &ip, &to, &body].concat()
}

/// The internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded & 0xffff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = [2, 0, 0, 0xa, 0xb, 0xc];

    #[test]
    fn an_arp_announcement_asks_for_its_own_address() {
        let frame = arp(MAC, Ipv4Addr::new(10, 0, 0, 50));
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0xa, 0xb, 0xc, 8, 6, // frame
            0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0xa, 0xb, 0xc, 10, 0, 0, 50, // from
            0, 0, 0, 0, 0, 0, 10, 0, 0, 50, // for
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn an_advertisement_overrides_and_its_checksum_is_right() {
        let ip: Ipv6Addr = "fd00::50".parse().unwrap();
        let frame = advertisement(MAC, ip);
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(frame[..14], [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0xa, 0xb, 0xc, 0x86, 0xdd]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!(frame[54..56], [136, 0]);
        assert_eq!(frame[58..62], [0x20, 0, 0, 0]);
        assert_eq!(frame[62..78], ip.octets());
        assert_eq!(frame[78..], [2, 1, 2, 0, 0, 0xa, 0xb, 0xc]);
        // Over all that it covers, itself included, the sum has all bits set.
        let pseudo = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]].concat();
        assert_eq!(checksum(&pseudo), 0);
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn where_no_neighbour_keeps_link_addresses_nothing_is_sent() {
        let loopback = Interface::find("lo").unwrap();
        Announcer::on(&loopback).unwrap().announce(Ipv4Addr::LOCALHOST.into()).unwrap();
    }
}
