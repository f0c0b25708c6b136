//! Where a queue manager is: a Unix socket in its data folder, or `amqp[s]://[user@]host[:port]`.
//!
//! A password never stands in an address, because addresses end in histories and process lists.

use std::fmt;
use std::path::PathBuf;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket.
    Local(PathBuf),
    /// A host.
    Remote {
        /// `amqps`.
        tls: bool,
        /// Who logs in.
        user: Option<String>,
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// IANA's port for AMQP.
const PORT: u16 = 5672;
/// IANA's port for AMQP over TLS.
const PORT_TLS: u16 = 5671;

impl Place {
    /// Reads `amqp[s]://[user@]host[:port]`; a path of `/` alone is passed over.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(url: &str) -> Result<Place, String> {
        let (tls, rest) = match (url.strip_prefix("amqp://"), url.strip_prefix("amqps://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err("an address starts with amqp:// or amqps://".into()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(found) = rest.chars().find(|each| "/?#".contains(*each)) {
            return Err(format!("'{found}' is not allowed in an address"));
        }
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err("a password is not allowed in an address; use --password-file, \
                        TOWLINE_PASSWORD or the prompt"
                .into());
        }
        let user = user.map(decoded).transpose()?.filter(|user| !user.is_empty());
        let (host, port) = host_and_port(authority)?;
        let port = port.unwrap_or(if tls { PORT_TLS } else { PORT });
        Ok(Place::Remote { tls, user, host: host.into(), port })
    }
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, behind) = rest.split_once(']').ok_or("'[' without ']'")?;
        match behind.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if behind.is_empty() => (host, None),
            None => return Err(format!("'{behind}' is not a port")),
        }
    } else {
        match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err("the address has no host".into());
    }
    match port {
        None => Ok((host, None)),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number > 0 => Ok((host, Some(number))),
            Ok(_) | Err(_) => Err(format!("'{port}' is not a port")),
        },
    }
}

/// Text without its percent encoding (RFC 3986, 2.1).
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("'%' without two hexadecimal digits".into());
        };
        bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
    }
    String::from_utf8(bytes).map_err(|_| "the user is not UTF-8".into())
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Local(path) => write!(out, "{}", path.display()),
            Place::Remote { tls, host, port, .. } => {
                let scheme = if *tls { "amqps" } else { "amqp" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(out, "{scheme}://{open}{host}{close}:{port}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(tls: bool, user: Option<&str>, host: &str, port: u16) -> Place {
        Place::Remote { tls, user: user.map(Into::into), host: host.into(), port }
    }

    #[test]
    fn addresses_have_defaults_and_parts() {
        assert_eq!(Place::parse("amqp://h"), Ok(remote(false, None, "h", 5672)));
        assert_eq!(Place::parse("amqps://h/"), Ok(remote(true, None, "h", 5671)));
        assert_eq!(Place::parse("amqp://a%40b@h:1"), Ok(remote(false, Some("a@b"), "h", 1)));
        assert_eq!(Place::parse("amqp://[::1]:7"), Ok(remote(false, None, "::1", 7)));
        assert_eq!(Place::parse("amqp://[::1]"), Ok(remote(false, None, "::1", 5672)));
        assert_eq!(remote(true, Some("u"), "::1", 7).to_string(), "amqps://[::1]:7");
    }

    #[test]
    fn bad_addresses_are_refused_with_a_reason() {
        let cases = [
            ("localhost:5672", "starts with amqp"),
            ("amqp://", "no host"),
            ("amqp://h:x", "not a port"),
            ("amqp://h:0", "not a port"),
            ("amqp://h:70000", "not a port"),
            ("amqp://u:p@h", "password is not allowed"),
            ("amqp://h/q", "'/' is not allowed"),
            ("amqp://u%4@h", "hexadecimal"),
            ("amqp://[::1", "']'"),
        ];
        for (url, part) in cases {
            let reason = Place::parse(url).expect_err(url);
            assert!(reason.contains(part), "{url}: {reason}");
        }
    }
}
