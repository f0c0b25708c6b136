//! Addresses of brokers: `amqp[s]://[user@]host[:port]`.
//!
//! No path, no query, and no password: addresses are stored in shell histories and shown in process
//! lists.

use std::fmt;

/// IANA's port for AMQP.
const PORT: u16 = 5672;
/// IANA's port for AMQP over TLS.
const PORT_TLS: u16 = 5671;

/// The address of one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether AMQP goes over TLS (`amqps`).
    pub tls: bool,
    /// The user that logs in, decoded.
    pub user: Option<String>,
    /// Name or address of the host, without brackets.
    pub host: String,
    /// Never 0; 5672 or 5671 (TLS) unless given.
    pub port: u16,
}

impl Url {
    /// Reads `amqp[s]://[user@]host[:port]`; a path of `/` alone is passed over.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(url: &str) -> Result<Url, String> {
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
        Ok(Url { tls, user, host: host.into(), port })
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

impl fmt::Display for Url {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "amqps" } else { "amqp" };
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(out, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(tls: bool, user: Option<&str>, host: &str, port: u16) -> Url {
        Url { tls, user: user.map(Into::into), host: host.into(), port }
    }

    #[test]
    fn addresses_have_defaults_and_parts() {
        assert_eq!(Url::parse("amqp://h"), Ok(url(false, None, "h", 5672)));
        assert_eq!(Url::parse("amqps://h/"), Ok(url(true, None, "h", 5671)));
        assert_eq!(Url::parse("amqp://a%40b@h:1"), Ok(url(false, Some("a@b"), "h", 1)));
        assert_eq!(Url::parse("amqp://[::1]:7"), Ok(url(false, None, "::1", 7)));
        assert_eq!(Url::parse("amqp://[::1]"), Ok(url(false, None, "::1", 5672)));
        assert_eq!(url(true, Some("u"), "::1", 7).to_string(), "amqps://[::1]:7");
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
            ("amqp://[::1]x", "not a port"),
            ("amqp://me:secret@here", "password is not allowed"),
        ];
        for (url, part) in cases {
            let reason = Url::parse(url).expect_err(url);
            assert!(reason.contains(part), "{url}: {reason}");
        }
    }
}
