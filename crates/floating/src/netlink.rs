//! Adding an address to an interface and removing it: one message to the kernel, one answer
//! (rtnetlink(7)). Numbers are in the machine's order.
//!
//! ```text
//! offset 0   4  length of all    16  1  family             24  attributes: length 2, type 2,
//!        4   2  type             17  1  bits of the prefix     value, up to a multiple of 4
//!        6   2  flags            18  1  flags
//!        8   4  number           19  1  scope (0: global)
//!        12  4  0: the kernel    20  4  interface
//! ```
//! The answer: the first 16 bytes alike, type 2, then an error as a negative number, 0 for none.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use towline_config::FloatingAddress;

/// Bytes before the attributes.
const HEAD_BYTES: usize = 24;
/// Bytes of an answer's head, and of the error behind it.
const ANSWER_BYTES: usize = 20;
/// No check for duplicates: it takes a second, and the one that had the address before may be dead
/// and still have it.
const NODAD: u8 = 0x02;

/// Puts the address on the interface, or keeps it there, for the next `lease_s` seconds.
///
/// The address is deprecated from the start (preferred for 0 s), so that with IPv6 nothing that
/// this machine begins itself comes from it and breaks when it goes.
///
/// # Errors
/// What the kernel says: most often that CAP_NET_ADMIN is missing.
pub(super) fn hold(index: u32, address: FloatingAddress, lease_s: u32) -> io::Result<()> {
    assert!(lease_s > 0, "an address without a lease would outlive its process");
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut message = head(libc::RTM_NEWADDR, flags, index, address);
    attribute(&mut message, libc::IFA_LOCAL, &bytes_of(address.ip));
    attribute(&mut message, libc::IFA_ADDRESS, &bytes_of(address.ip));
    // Preferred, valid, and two times that only the kernel sets.
    let lease = [0, lease_s, 0, 0].map(u32::to_ne_bytes).concat();
    attribute(&mut message, libc::IFA_CACHEINFO, &lease);
    ask(message)
}

/// Takes the address from the interface. False: it was not there.
///
/// # Errors
/// As [`hold`].
pub(super) fn remove(index: u32, address: FloatingAddress) -> io::Result<bool> {
    let mut message = head(libc::RTM_DELADDR, 0, index, address);
    attribute(&mut message, libc::IFA_LOCAL, &bytes_of(address.ip));
    match ask(message) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => Ok(false),
        Err(error) => Err(error),
    }
}

fn head(kind: u16, flags: libc::c_int, index: u32, address: FloatingAddress) -> Vec<u8> {
    let flags = flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let (family, options) = match address.ip {
        IpAddr::V4(_) => (libc::AF_INET, 0),
        IpAddr::V6(_) => (libc::AF_INET6, NODAD),
    };
    let mut message = Vec::with_capacity(80);
    message.extend(0_u32.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    let (Ok(flags), Ok(family)) = (u16::try_from(flags), u8::try_from(family)) else {
        unreachable!("constants of the kernel's interface fit its fields: {flags}, {family}")
    };
    message.extend(flags.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([family, address.prefix, options, 0]);
    message.extend(index.to_ne_bytes());
    assert_eq!(message.len(), HEAD_BYTES, "as drawn above");
    message
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    assert!(value.len() <= 16 && value.len().is_multiple_of(4), "nothing here needs padding");
    let Ok(length) = u16::try_from(value.len() + 4) else {
        unreachable!("an address has at most 16 bytes")
    };
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Sends the message, with its length filled in, and reads the answer.
fn ask(mut message: Vec<u8>) -> io::Result<()> {
    let Ok(length) = u32::try_from(message.len()) else {
        unreachable!("a message of {} bytes", message.len())
    };
    message.splice(..4, length.to_ne_bytes());
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    // The kernel has answered when sending returns.
    let mut bytes = [0; 512];
    let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)?;
    answer(bytes.get(..length).unwrap_or_default())
}

fn answer(bytes: &[u8]) -> io::Result<()> {
    let kind = bytes.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(i16::from_ne_bytes);
    let error = bytes.get(16..ANSWER_BYTES).and_then(|bytes| bytes.try_into().ok());
    match (kind.map(i32::from), error.map(i32::from_ne_bytes)) {
        (Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(libc::NLMSG_ERROR), Some(error)) => {
            Err(io::Error::from_raw_os_error(error.saturating_neg()))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is strange")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_drawn() {
        let address: FloatingAddress = "10.0.0.50/24".parse().unwrap();
        let mut message = head(libc::RTM_NEWADDR, libc::NLM_F_CREATE, 7, address);
        attribute(&mut message, libc::IFA_LOCAL, &bytes_of(address.ip));
        assert_eq!(message.len(), HEAD_BYTES + 8);
        assert_eq!(message[4..6], 20_u16.to_ne_bytes());
        assert_eq!(message[6..8], 0x405_u16.to_ne_bytes());
        assert_eq!(message[16..20], [2, 24, 0, 0]);
        assert_eq!(message[20..24], 7_u32.to_ne_bytes());
        assert_eq!(message[24..28], [8_u16.to_ne_bytes(), 2_u16.to_ne_bytes()].concat());
        assert_eq!(message[28..], [10, 0, 0, 50]);
        let address: FloatingAddress = "fd00::50/64".parse().unwrap();
        assert_eq!(head(libc::RTM_DELADDR, 0, 7, address)[16..20], [10, 64, 2, 0]);
    }

    #[test]
    fn an_answer_is_an_error_or_none_and_anything_else_is_strange() {
        let with = |kind: u16, error: i32| {
            let head = [36_u32.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &[0; 10]].concat();
            answer(&[head, error.to_ne_bytes().to_vec()].concat())
        };
        assert!(with(2, 0).is_ok());
        assert_eq!(with(2, -1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(with(2, -99).unwrap_err().raw_os_error(), Some(libc::EADDRNOTAVAIL));
        assert_eq!(with(3, 0).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(answer(&[]).is_err() && answer(&[0; 19]).is_err());
    }

    #[test]
    fn what_is_not_on_an_interface_is_not_removed() {
        // An interface of that number is not there, so nothing can happen even to root.
        assert!(remove(u32::MAX >> 1, "198.51.100.7/32".parse().unwrap()).is_err());
    }
}
