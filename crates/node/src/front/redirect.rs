//! Sends a client that asked for it to another address, rather than serve it here (AMQP 2.8.16,
//! `amqp:connection:redirect`).
//!
//! Not here: for which connections there is another address, and which. Invariant: a client that
//! did not ask, in its open frame, is never sent away: not every client library follows.

use std::sync::Arc;

use towline_amqp::PeerOpen;
use towline_amqp::codec::Value;
use towline_amqp::types::{Error, condition};

/// Open property by which a client asks to be sent to the active instance: a boolean.
const PROPERTY: &str = "towline:redirect";

/// Where clients find the queue manager without a way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// `amqp` or `amqps`.
    pub scheme: Arc<str>,
    /// Name or address; one of version 6 without brackets.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

impl Elsewhere {
    /// The error that carries it: `hostname`, `network-host` and `port` as the standard says, and
    /// `scheme`, by which Qpid JMS distinguishes TLS from plain TCP.
    pub(super) fn error(&self) -> Error {
        let error = Error::new(condition::CONNECTION_REDIRECT, "the active instance is there");
        let fields = error
            .fields
            .clone()
            .with("hostname", Value::String(&self.host))
            .with("network-host", Value::String(&self.host))
            .with("port", Value::Uint(u32::from(self.port)))
            .with("scheme", Value::String(&self.scheme));
        Error { fields, ..error }
    }
}

/// Whether this client asks for it: by our property, or by desiring the capability of that name.
pub(super) fn is_wanted(opened: &PeerOpen) -> bool {
    matches!(opened.properties.get(PROPERTY), Some(Value::Bool(true)))
        || opened.desired_capabilities.contains(condition::CONNECTION_REDIRECT.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::BytesMut;
    use towline_amqp::codec::Map;
    use towline_amqp::sasl::{Claim, ClientLogin, Mechanism, ScramCredentials};
    use towline_amqp::types::SaslCode;
    use towline_amqp::{ClientOptions, Connection, Event, ServerOptions};
    use towline_types::Time;

    use super::*;
    use crate::front::{Front, FrontOptions, Logins};
    use crate::request::{Request, Response};

    /// Accepts every login, or none.
    struct Door(SaslCode);

    impl Logins for Door {
        fn scram(&self, _user: &str) -> Option<ScramCredentials> {
            None
        }

        fn check(&self, _claim: &Claim) -> Option<SaslCode> {
            Some(self.0)
        }

        fn may_administer(&self, _user: Option<&str>) -> bool {
            false
        }
    }

    fn flush(mut take: impl FnMut(&mut VecDeque<bytes::Bytes>)) -> BytesMut {
        let mut pieces = VecDeque::new();
        take(&mut pieces);
        pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>()[..].into()
    }

    /// A client with this open frame comes; what it hears, and what the instance is asked for.
    fn comes(
        (code, away): (SaslCode, bool),
        client: ClientOptions,
    ) -> (Vec<Event>, Vec<Request>, Front) {
        comes_to((code, away, None), client)
    }

    fn comes_to(
        (code, away, unserved): (SaslCode, bool, Option<&str>),
        client: ClientOptions,
    ) -> (Vec<Event>, Vec<Request>, Front) {
        let now = Time(1_000_000_000);
        let elsewhere =
            Elsewhere { scheme: "amqps".into(), host: "active.example".into(), port: 5_671 };
        let machine = ServerOptions {
            sasl_mechanisms: vec![Mechanism::Anonymous],
            nonce: Arc::from("123456789012345678901234"),
            ..ServerOptions::default()
        };
        let options = FrontOptions {
            machine,
            logins: Arc::new(Door(code)),
            address: "test".into(),
            default_model: Arc::from("MODEL"),
            elsewhere: away.then(|| Arc::new(elsewhere)),
            bytes_max: towline_types::limits::CONNECTION_BYTES_DEFAULT,
        };
        let mut front = match unserved {
            Some(why) => Front::turning_away(options, why, now),
            None => Front::new(options, now),
        };
        let login = Some(ClientLogin::Anonymous);
        let mut client = Connection::client(ClientOptions { login, ..client }, now);
        let (mut events, mut requests) = (Vec::new(), Vec::new());
        let mut asked = false;
        for _ in 0..10 {
            let mut bytes = flush(|out| client.take_output(out, usize::MAX));
            front.receive(now, &mut bytes, &mut requests);
            if !asked && !requests.is_empty() {
                asked = true;
                let free = Response::Connected { entered: true };
                front.respond(now, free, None, &mut requests);
            }
            let mut bytes = flush(|out| front.take_output(out, usize::MAX));
            client.receive(now, &mut bytes);
            events.extend(std::iter::from_fn(|| client.next_event()));
        }
        (events, requests, front)
    }

    fn asking() -> ClientOptions {
        let properties = Map::default().with(PROPERTY, Value::Bool(true));
        ClientOptions { properties, ..ClientOptions::default() }
    }

    #[test]
    fn a_client_that_asks_is_redirected_once_it_has_logged_in() {
        let desiring = ["amqp:connection:redirect"].into_iter().collect();
        let desiring = ClientOptions { desired_capabilities: desiring, ..ClientOptions::default() };
        for client in [asking(), desiring] {
            let (events, requests, front) = comes((SaslCode::Ok, true), client);
            assert_eq!(requests.len(), 0, "the instance hears nothing of it");
            let [Event::Opened(opened), Event::Closed { error: Some(error), by_peer: true }] =
                events.as_slice()
            else {
                panic!("{events:?}")
            };
            let denied = opened.properties.get("amqp:connection-establishment-failed");
            assert_eq!(denied, Some(Value::Bool(true)));
            assert_eq!(error.condition, condition::CONNECTION_REDIRECT);
            for (key, value) in [
                ("hostname", Value::String("active.example")),
                ("network-host", Value::String("active.example")),
                ("port", Value::Uint(5_671)),
                ("scheme", Value::String("amqps")),
            ] {
                assert_eq!(error.fields.get(key), Some(value), "{key}");
            }
            assert!(front.is_finished() && front.ended_orderly() && front.is_logged_in());
        }
    }

    #[test]
    fn a_client_that_cannot_be_served_learns_why_once_it_has_logged_in_and_only_then() {
        let why = Some("the group has no active instance");
        let client = ClientOptions::default;
        let (events, requests, front) = comes_to((SaslCode::Ok, false, why), client());
        assert!(requests.is_empty() && front.is_finished(), "the instance hears nothing of it");
        let [Event::Opened(_), Event::Closed { error: Some(error), by_peer: true }] =
            events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!(error.condition, condition::CONNECTION_FORCED);
        assert_eq!(error.description.as_deref(), why);
        let (events, _, front) = comes_to((SaslCode::Auth, false, why), client());
        assert!(!events.iter().any(|event| matches!(event, Event::Opened(_))), "{events:?}");
        assert!(!front.is_logged_in());
    }

    #[test]
    fn who_did_not_ask_or_may_not_log_in_or_is_there_already_is_not_sent_away() {
        let refusing =
            Map::default().with(PROPERTY, Value::Bool(false)).with("x", Value::Bool(true));
        let refusing = ClientOptions { properties: refusing, ..ClientOptions::default() };
        for (away, client) in
            [(true, ClientOptions::default()), (true, refusing), (false, asking())]
        {
            let (events, requests, _) = comes((SaslCode::Ok, away), client);
            assert!(matches!(events.as_slice(), [Event::Opened(_)]), "{events:?}");
            assert!(matches!(requests.as_slice(), [Request::Connected { .. }]), "{requests:?}");
        }
        let (events, requests, front) = comes((SaslCode::Auth, true), asking());
        assert!(!events.iter().any(|event| matches!(event, Event::Opened(_))), "{events:?}");
        assert!(requests.is_empty() && !front.is_logged_in());
    }
}
