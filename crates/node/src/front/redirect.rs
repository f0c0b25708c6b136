//! Sends a client to another address, rather than serve it here (AMQP 2.8.16,
//! `amqp:connection:redirect`), and gives it the addresses that it has beside this one.
//!
//! Not here: for which connections there is another address, and which. Invariant: a client that
//! could be served and did not ask, in its open frame, is never sent away: not every client library
//! follows.

use std::sync::Arc;

use towline_amqp::PeerOpen;
use towline_amqp::codec::{Map, OwnedValue, Value};
use towline_amqp::types::{Error, condition};

/// Open property by which a client asks to be sent to the active instance: a boolean.
const PROPERTY: &str = "towline:redirect";
/// Open property with the addresses at which a client finds us when this connection is lost. Qpid
/// JMS replaces the list that it was configured with by this one (2.10, `FailoverProvider`,
/// `failover.amqpOpenServerListAction=REPLACE`); Artemis and Qpid Dispatch send and read it too.
pub(super) const SERVERS: &str = "failover-server-list";

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
    pub(super) fn error(&self, why: &str) -> Error {
        let error = Error::new(condition::CONNECTION_REDIRECT, why);
        Error { fields: self.fields(), ..error }
    }

    fn fields(&self) -> Map {
        Map::default()
            .with("hostname", Value::String(&self.host))
            .with("network-host", Value::String(&self.host))
            .with("port", Value::Uint(u32::from(self.port)))
            .with("scheme", Value::String(&self.scheme))
    }

    /// These addresses as the open frame has them ([`FrontOptions::servers`]): a list of maps, of
    /// which each has the fields of a redirect.
    ///
    /// [`FrontOptions::servers`]: super::FrontOptions::servers
    #[must_use]
    pub fn list(servers: &[Elsewhere]) -> OwnedValue {
        let maps: Vec<Map> = servers.iter().map(Elsewhere::fields).collect();
        let values: Vec<Value<'_>> = maps.iter().map(|map| Value::Map(map.view())).collect();
        OwnedValue::list(&values)
    }
}

/// Why a client is not served here: the answer once it has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnedAway {
    /// It is served elsewhere.
    To {
        /// Where.
        elsewhere: Elsewhere,
        /// Why not here, for people.
        why: String,
    },
    /// It is served nowhere, as far as is known: libraries connect anew at the condition.
    Forced {
        /// Why, for people.
        why: String,
    },
}

impl TurnedAway {
    pub(super) fn error(&self) -> Error {
        match self {
            TurnedAway::To { elsewhere, why } => elsewhere.error(why),
            TurnedAway::Forced { why } => Error::new(condition::CONNECTION_FORCED, why),
        }
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

    fn at(scheme: &str, host: &str, port: u16) -> Elsewhere {
        Elsewhere { scheme: scheme.into(), host: host.into(), port }
    }

    fn active() -> Elsewhere {
        at("amqps", "active.example", 5_671)
    }

    /// What a client comes to.
    struct Came {
        code: SaslCode,
        /// It is sent to the active instance if it asks.
        away: bool,
        unserved: Option<TurnedAway>,
        servers: Vec<Elsewhere>,
    }

    /// A client with this open frame comes; what it hears, and what the instance is asked for.
    fn comes(
        (code, away): (SaslCode, bool),
        client: ClientOptions,
    ) -> (Vec<Event>, Vec<Request>, Front) {
        comes_to(Came { code, away, unserved: None, servers: Vec::new() }, client)
    }

    fn comes_to(
        Came { code, away, unserved, servers }: Came,
        client: ClientOptions,
    ) -> (Vec<Event>, Vec<Request>, Front) {
        let now = Time(1_000_000_000);
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
            elsewhere: away.then(|| Arc::new(active())),
            servers: (!servers.is_empty()).then(|| Elsewhere::list(&servers)),
            bytes_max: towline_types::limits::CONNECTION_BYTES_DEFAULT,
        };
        let mut front = match unserved {
            Some(why) => Front::turning_away(options, &why, now),
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
        let why = "the group has no active instance";
        let came = |code| {
            let unserved = Some(TurnedAway::Forced { why: why.to_owned() });
            let came = Came { code, away: false, unserved, servers: Vec::new() };
            comes_to(came, ClientOptions::default())
        };
        let (events, requests, front) = came(SaslCode::Ok);
        assert!(requests.is_empty() && front.is_finished(), "the instance hears nothing of it");
        let [Event::Opened(_), Event::Closed { error: Some(error), by_peer: true }] =
            events.as_slice()
        else {
            panic!("{events:?}")
        };
        assert_eq!(error.condition, condition::CONNECTION_FORCED);
        assert_eq!(error.description.as_deref(), Some(why));
        let (events, _, front) = came(SaslCode::Auth);
        assert!(!events.iter().any(|event| matches!(event, Event::Opened(_))), "{events:?}");
        assert!(!front.is_logged_in());
    }

    fn list_in(opened: &PeerOpen) -> Option<Vec<Map>> {
        let Value::List(list) = opened.properties.get(SERVERS)? else { panic!("{opened:?}") };
        let maps = list.iter().map(|item| match item {
            Ok(Value::Map(map)) => Map::from(map),
            other => panic!("{other:?}"),
        });
        Some(maps.collect())
    }

    #[test]
    fn the_open_frame_has_all_addresses_in_order_where_the_client_takes_so_long_a_frame() {
        let servers = vec![
            at("amqp", "a.west.example", 5_672),
            at("amqps", "2001:db8::1", 5_671),
            at("amqps", &"e".repeat(250), 5_671),
        ];
        let came = |frame_bytes_max, servers: &[Elsewhere], unserved| {
            let servers = servers.to_vec();
            let came = Came { code: SaslCode::Ok, away: false, unserved, servers };
            let client = ClientOptions { frame_bytes_max, ..ClientOptions::default() };
            let (events, _, _) = comes_to(came, client);
            let Some(Event::Opened(opened)) = events.first() else { panic!("{events:?}") };
            (list_in(opened), events.len())
        };
        let (list, count) = came(65_536, &servers, None);
        let list = list.unwrap();
        assert_eq!((list.len(), count), (3, 1));
        for (map, server) in list.iter().zip(&servers) {
            assert_eq!(map.get("network-host"), Some(Value::String(&server.host)));
            assert_eq!(map.get("hostname"), Some(Value::String(&server.host)));
            assert_eq!(map.get("port"), Some(Value::Uint(u32::from(server.port))));
            assert_eq!(map.get("scheme"), Some(Value::String(&server.scheme)));
            assert!(map.iter().all(|(key, _)| matches!(key, Value::Symbol(_))), "{map:?}");
        }
        assert_eq!(came(65_536, &[], None).0, None, "no address: no property");
        assert_eq!(came(512, &servers, None).0, None, "the frame would be too long");
        assert!(came(1_600, &servers, None).0.is_some());
        // Also where it is turned away: a library may read it.
        let why = TurnedAway::To { elsewhere: active(), why: "in recovery".to_owned() };
        let (list, count) = came(65_536, &servers, Some(why));
        assert_eq!((list.map(|list| list.len()), count), (Some(3), 2));
    }

    #[test]
    fn who_cannot_be_served_is_sent_to_where_it_is_without_asking_for_that() {
        let unserved = TurnedAway::To { elsewhere: active(), why: "in recovery".to_owned() };
        let came =
            Came { code: SaslCode::Ok, away: false, unserved: Some(unserved), servers: Vec::new() };
        let (events, requests, front) = comes_to(came, ClientOptions::default());
        assert!(requests.is_empty() && front.is_finished() && front.ended_orderly());
        let [Event::Opened(opened), Event::Closed { error: Some(error), by_peer: true }] =
            events.as_slice()
        else {
            panic!("{events:?}")
        };
        let denied = opened.properties.get("amqp:connection-establishment-failed");
        assert_eq!(denied, Some(Value::Bool(true)));
        assert_eq!(error.condition, condition::CONNECTION_REDIRECT);
        assert_eq!(error.description.as_deref(), Some("in recovery"));
        assert_eq!(error.fields.get("network-host"), Some(Value::String("active.example")));
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
