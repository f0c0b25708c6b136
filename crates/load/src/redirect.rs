//! Clients that ask to be sent on (`amqp:connection:redirect`, AMQP 2.8.16): an instance of a group
//! that relays them answers with the address of the active one, and they connect to it directly.
//!
//! Not here: connecting (`dial`). Invariant: a redirected client that loses that connection goes on
//! with its own list.

use towline_amqp::PeerOpen;
use towline_amqp::codec::{Map, Value};
use towline_amqp::types::{Error, condition};

use towline_amqp::Url;

/// Open property by which a client asks Towline for it.
const ASKS: &str = "towline:redirect";
/// Open property of a broker that is about to say why it does not serve.
const DENIED: &str = "amqp:connection-establishment-failed";

/// Properties of the open frame of a client that asks.
pub(crate) fn asking() -> Map {
    Map::default().with(ASKS, Value::Bool(true))
}

/// Whether a close with the reason follows this open frame.
pub(crate) fn is_denied(opened: &PeerOpen) -> bool {
    opened.properties.get(DENIED) == Some(Value::Bool(true))
}

/// Where this error sends a client that came to `from`; `None` when it is another error, or names
/// no address.
pub(crate) fn place(error: &Error, from: &Url) -> Option<Url> {
    if error.condition != condition::CONNECTION_REDIRECT {
        return None;
    }
    let Some(Value::String(host)) = error.fields.get("network-host") else { return None };
    let port = match error.fields.get("port")? {
        Value::Uint(port) => u16::try_from(port).ok()?,
        Value::Int(port) => u16::try_from(port).ok()?,
        Value::Ushort(port) => port,
        _ => return None,
    };
    let tls = match error.fields.get("scheme") {
        Some(Value::String(scheme)) => scheme == "amqps",
        _ => from.tls,
    };
    // A client that came with TLS is not led away from it.
    let right = !host.is_empty() && (tls || !from.tls);
    right.then(|| Url { tls, user: from.user.clone(), host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(host: &str, port: u32, scheme: &str) -> Error {
        let error = Error::new(condition::CONNECTION_REDIRECT, "there");
        let fields = error.fields.clone();
        let fields = fields.with("network-host", Value::String(host));
        let fields = fields.with("port", Value::Uint(port)).with("scheme", Value::String(scheme));
        Error { fields, ..error }
    }

    fn from(url: &str) -> Url {
        Url::parse(url).unwrap()
    }

    #[test]
    fn a_redirect_leads_to_its_address_and_nothing_else_does() {
        let plain = from("amqp://here");
        let there = place(&error("there", 5_673, "amqp"), &plain).unwrap();
        assert_eq!((there.host.as_str(), there.port, there.tls), ("there", 5_673, false));
        assert!(place(&error("there", 5_673, "amqps"), &plain).unwrap().tls);
        assert_eq!(place(&error("", 5_673, "amqp"), &plain), None);
        assert_eq!(place(&error("there", 70_000, "amqp"), &plain), None);
        assert_eq!(place(&Error::new(condition::CONNECTION_FORCED, "no"), &plain), None);
    }

    #[test]
    fn who_came_with_tls_is_not_led_away_from_it() {
        assert_eq!(place(&error("there", 5_673, "amqp"), &from("amqps://here")), None);
    }
}
