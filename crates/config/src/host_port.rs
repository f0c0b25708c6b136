//! Names of groups and instances, and `host:port`, as `[group]` has them.
//!
//! Not here: which of them must differ (`group`, `region`).

use std::net::IpAddr;

/// Bytes of a name of a group or an instance: it becomes part of a certificate's common name, which
/// holds 64 (RFC 5280, ub-common-name).
const NAME_BYTES_MAX: usize = 48;

/// Checks the name of a group or an instance.
///
/// # Errors
/// What it must be.
pub(super) fn check_name(key: &str, value: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if value.is_empty() || value.len() > NAME_BYTES_MAX || !value.chars().all(fits) {
        return Err(format!(
            "{key} = '{value}': must be 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' or '.'"
        ));
    }
    Ok(())
}

/// Host (an address of version 6 without its brackets) and port of `host:port`.
pub fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let (host, port) = (bare.unwrap_or(host), port.parse::<u16>().ok()?);
    (!host.is_empty() && port != 0).then_some((host, port))
}

/// Whether two texts are the same `host:port`; names are not resolved, and case does not count in
/// them (RFC 4343).
#[must_use]
pub fn is_same_address(one: &str, other: &str) -> bool {
    match (split(one), split(other)) {
        (Some((one, port)), Some((other, other_port))) => {
            port == other_port && one.eq_ignore_ascii_case(other)
        }
        _ => one == other,
    }
}

/// The port, if the host of `host:port` means all addresses of its machine (`0.0.0.0`, `[::]`).
#[must_use]
pub fn wildcard_port(address: &str) -> Option<u16> {
    let (host, port) = split(address)?;
    host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_split_and_compared_as_texts() {
        assert_eq!(split("[::1]:5672"), Some(("::1", 5_672)));
        assert_eq!([split("h:0"), split(":1"), split("h"), split("h:65536")], [None; 4]);
        assert!(is_same_address("West-1.example:1", "west-1.EXAMPLE:1"));
        assert!(!is_same_address("h:1", "h:2") && !is_same_address("h:1", "g:1"));
        assert_eq!(wildcard_port("0.0.0.0:7"), Some(7));
        assert_eq!((wildcard_port("[::]:8"), wildcard_port("10.0.0.1:7")), (Some(8), None));
    }
}
