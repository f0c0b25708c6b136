//! Broker addresses: `amqp://[user@]host[:port]` and `amqps://`.
//!
//! No path, no query, and no password: a password on a command line is seen by everybody.

use std::fmt;

/// One broker address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether TLS goes under AMQP.
    pub(crate) tls: bool,
    /// User named in the address.
    pub(crate) user: Option<String>,
    /// Name or address of the host, without brackets.
    pub(crate) host: String,
    /// Port; 5672 and 5671 unless given (AMQP 1.0, IANA).
    pub(crate) port: u16,
}

impl Url {
    /// Reads an address.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        let (tls, rest) = if let Some(rest) = text.strip_prefix("amqp://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("amqps://") {
            (true, rest)
        } else {
            return Err(format!("{text}: an address starts with amqp:// or amqps://"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return Err("a password is not allowed in an address: use --password-file".into());
            }
            Some((user, place)) => (Some(user.to_owned()), place),
            None => (None, rest),
        };
        let (host, port) = split_port(place).ok_or_else(|| format!("{text}: bad port"))?;
        if host.is_empty() || host.contains('/') {
            return Err(format!("{text}: not a host"));
        }
        let port = port.unwrap_or(if tls { 5671 } else { 5672 });
        Ok(Url { tls, user, host: host.to_owned(), port })
    }
}

/// Host and port; the outer `None` is a port that is no number.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None if after.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match place.rsplit_once(':') {
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((place, None)),
    }
}

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "amqps" } else { "amqp" };
        if self.host.contains(':') {
            write!(out, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_has_the_registered_one() {
        assert_eq!(Url::parse("amqp://here").unwrap().port, 5672);
        assert_eq!(Url::parse("amqps://here/").unwrap().port, 5671);
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        let url = Url::parse("amqp://[::1]:7000").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("::1", 7000));
        assert_eq!(url.to_string(), "amqp://[::1]:7000");
    }

    #[test]
    fn a_password_in_an_address_is_refused() {
        assert!(Url::parse("amqp://me:secret@here").is_err());
        assert_eq!(Url::parse("amqp://me@here").unwrap().user.as_deref(), Some("me"));
    }

    #[test]
    fn other_schemes_and_bad_ports_are_refused() {
        for text in ["http://here", "here", "amqp://here:port", "amqp://", "amqp://[::1]x"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
