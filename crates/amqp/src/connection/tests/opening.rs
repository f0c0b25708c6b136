//! Headers, login, open, silence, close.

use std::sync::Arc;
use std::time::Duration;

use towline_types::Time;

use crate::connection::{ClientOptions, Connection, ServerOptions};
use crate::event::Event;
use crate::frame::Protocol;
use crate::peer::{Peer, text};
use crate::sasl::{Claim, ClientLogin, Mechanism, ScramCredentials};
use crate::types::{Error, SaslCode, SaslFrame, SaslInit, Symbol, condition};

const NONCE: &str = "0123456789abcdefghijkl";

fn server(mechanisms: &[Mechanism]) -> Peer {
    let options = ServerOptions {
        sasl_mechanisms: mechanisms.to_vec(),
        nonce: Arc::from(NONCE),
        ..ServerOptions::default()
    };
    Peer::new(Connection::server(options, Time(5_000_000)), Time(5_000_000))
}

fn init(mechanism: &'static str, response: &'static [u8]) -> SaslFrame {
    SaslFrame::Init(SaslInit {
        mechanism: Symbol::constant(mechanism),
        initial_response: Some(response.into()),
        hostname: None,
    })
}

fn closed_with(peer: &mut Peer, condition: &Symbol) {
    match peer.event() {
        Event::Closed { error: Some(error), by_peer: false } => {
            assert_eq!(error.condition, *condition, "{error:?}");
        }
        other => panic!("expected {condition}, got {other:?}"),
    }
    assert!(peer.connection.is_finished(), "finished");
}

#[test]
fn a_peer_that_skips_a_required_login_is_shown_the_sasl_header() {
    let mut peer = server(&[Mechanism::Anonymous]);
    peer.send_header(Protocol::Amqp);
    peer.expect_header(Protocol::Sasl);
    closed_with(&mut peer, &condition::NOT_ALLOWED);
}

#[test]
fn tls_and_foreign_protocols_are_refused_with_our_header() {
    for header in [&b"AMQP\x02\x01\x00\x00"[..], b"AMQP\x00\x00\x09\x01", b"GET / HT"] {
        let mut peer = server(&[Mechanism::Anonymous]);
        peer.send_bytes(header);
        peer.expect_header(Protocol::Sasl);
        assert!(peer.connection.is_finished(), "{header:?}");
    }
}

#[test]
fn everything_may_be_pipelined_behind_the_headers() {
    let mut peer = server(&[Mechanism::Anonymous]);
    let mut bytes = Protocol::Sasl.header().to_vec();
    let mut frame = bytes::BytesMut::new();
    crate::frame::encode(&mut frame, crate::frame::FrameKind::Sasl, 0, 0, |out| {
        init("ANONYMOUS", b"").encode(out);
    });
    bytes.extend_from_slice(&frame);
    bytes.extend_from_slice(&Protocol::Amqp.header());
    for line in [
        "open container-id=eager",
        "begin",
        "attach name=a handle=0 role=receiver source=q",
        "flow handle=0 delivery-count=0 link-credit=5",
    ] {
        bytes.extend_from_slice(&text::encode(line));
    }
    // Byte by byte, so that every split is seen.
    for byte in &bytes {
        peer.send_bytes(&[*byte]);
    }
    assert_eq!(peer.event(), Event::Login(Claim::Anonymous));
    peer.no_event();
    assert!(peer.connection.awaits_login_answer());
    peer.connection.sasl_outcome(SaslCode::Ok);
    assert!(!peer.connection.awaits_login_answer());
    peer.resend();
    assert!(matches!(peer.event(), Event::Opened(opened) if &*opened.container_id == "eager"));
    assert!(matches!(peer.event(), Event::SessionBegun(_)));
    let Event::Attached(attached) = peer.event() else { panic!("attach") };
    assert!(matches!(peer.event(), Event::Flow(flow) if flow.credit == 5));
    // The driver may answer in any order: our open frame goes first.
    super::accept(&mut peer.connection, &attached, 0);
    peer.connection.send(attached.link, 7, Default::default());
    peer.expect_header(Protocol::Sasl);
    assert!(matches!(peer.expect_sasl(), SaslFrame::Mechanisms(_)));
    assert!(
        matches!(peer.expect_sasl(), SaslFrame::Outcome(outcome) if outcome.code == SaslCode::Ok)
    );
    peer.expect_header(Protocol::Amqp);
    peer.expect_nothing();
    peer.connection.accept_open();
    for line in ["open", "begin remote-channel=0", "attach name=a role=sender", "transfer"] {
        peer.expect(line);
    }
    peer.expect_nothing();
}

#[test]
fn nothing_behind_a_refused_open_is_seen() {
    let mut peer = server(&[Mechanism::Anonymous]);
    peer.send_header(Protocol::Sasl);
    peer.send_sasl(&init("ANONYMOUS", b""));
    peer.connection.sasl_outcome(SaslCode::Ok);
    peer.send_header(Protocol::Amqp);
    for line in ["open", "begin", "attach name=a handle=0 role=receiver source=q"] {
        peer.send(line);
    }
    peer.event();
    assert!(matches!(peer.event(), Event::Opened(_)));
    let error = Error::new(condition::UNAUTHORIZED_ACCESS, "not from there");
    peer.connection.close(Some(error));
    peer.no_event();
    peer.expect_header(Protocol::Sasl);
    peer.expect_sasl();
    peer.expect_sasl();
    peer.expect_header(Protocol::Amqp);
    peer.expect("open");
    peer.expect("close error=amqp:unauthorized-access");
    peer.expect_nothing();
    peer.send("close");
    assert_eq!(peer.event(), Event::Closed { error: None, by_peer: true });
    assert!(peer.connection.is_finished());
}

#[test]
fn a_frame_of_amqp_before_the_login_is_refused() {
    let mut peer = server(&[Mechanism::Plain]);
    peer.send_header(Protocol::Sasl);
    peer.send("open");
    closed_with(&mut peer, &condition::NOT_ALLOWED);
}

#[test]
fn a_sasl_frame_of_more_than_512_bytes_is_refused_from_its_first_bytes() {
    let mut peer = server(&[Mechanism::Plain]);
    peer.send_header(Protocol::Sasl);
    peer.send_bytes(&[0, 0, 2, 1]);
    closed_with(&mut peer, &condition::FRAMING_ERROR);
}

#[test]
fn a_second_init_is_refused() {
    let mut peer = server(&[Mechanism::Plain]);
    peer.send_header(Protocol::Sasl);
    peer.send_sasl(&init("PLAIN", b"\0user\0password"));
    peer.send_sasl(&init("PLAIN", b"\0other\0password"));
    assert!(matches!(peer.event(), Event::Login(Claim::Plain { user, .. }) if &*user == "user"));
    peer.no_event();
    peer.connection.sasl_outcome(SaslCode::Ok);
    peer.resend();
    peer.event();
    assert!(peer.connection.is_finished());
}

#[test]
fn a_wrong_password_gets_the_outcome_and_the_end() {
    let mut peer = server(&[Mechanism::Plain]);
    peer.send_header(Protocol::Sasl);
    peer.send_sasl(&init("PLAIN", b"\0user\0wrong"));
    peer.event();
    peer.connection.sasl_outcome(SaslCode::Auth);
    closed_with(&mut peer, &condition::UNAUTHORIZED_ACCESS);
    peer.expect_header(Protocol::Sasl);
    peer.expect_sasl();
    assert!(matches!(peer.expect_sasl(), SaslFrame::Outcome(out) if out.code == SaslCode::Auth));
}

#[test]
fn a_login_that_takes_longer_than_ten_seconds_is_cut() {
    let mut peer = server(&[Mechanism::Plain]);
    assert_eq!(peer.connection.deadline(), Some(Time(15_000_000)));
    peer.send_header(Protocol::Sasl);
    peer.wait(Duration::from_millis(9_999));
    peer.no_event();
    peer.wait(Duration::from_millis(1));
    closed_with(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(peer.connection.deadline(), None);
}

#[test]
fn a_header_without_an_open_behind_it_is_cut_too() {
    let options = ServerOptions { require_sasl: false, ..ServerOptions::default() };
    let mut peer = Peer::new(Connection::server(options, Time(0)), Time(0));
    peer.send_header(Protocol::Amqp);
    peer.wait(Duration::from_secs(10));
    closed_with(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
    peer.expect_header(Protocol::Amqp);
    peer.expect("open");
    peer.expect("close error=amqp:resource-limit-exceeded");
}

#[test]
fn a_peer_silent_for_longer_than_our_idle_time_out_is_closed() {
    let mut peer = Peer::opened();
    peer.wait(Duration::from_secs(59));
    peer.send("empty");
    peer.wait(Duration::from_secs(59));
    peer.no_event();
    peer.wait(Duration::from_secs(1));
    closed_with(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
    peer.expect("close error=amqp:resource-limit-exceeded");
}

#[test]
fn a_peer_that_the_driver_does_not_read_is_not_silent() {
    let mut peer = Peer::opened();
    peer.wait(Duration::from_secs(59));
    let now = peer.now;
    peer.connection.heard(now);
    assert_eq!(peer.connection.deadline(), Some(now + Duration::from_secs(60)));
    peer.wait(Duration::from_secs(59));
    peer.no_event();
    peer.wait(Duration::from_secs(1));
    closed_with(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn not_reading_does_not_lengthen_the_login() {
    let mut peer = server(&[Mechanism::Plain]);
    peer.connection.heard(Time(14_000_000));
    assert_eq!(peer.connection.deadline(), Some(Time(15_000_000)));
}

#[test]
fn we_are_never_silent_for_longer_than_half_of_the_peers_idle_time_out() {
    let mut peer = Peer::opened_with("open idle-time-out=8000");
    for _ in 0..5 {
        peer.wait(Duration::from_millis(3_999));
        peer.expect_nothing();
        peer.wait(Duration::from_millis(1));
        assert_eq!(peer.expect("empty"), "empty");
    }
    peer.wait(Duration::from_secs(2));
    peer.send("begin");
    peer.expect("begin");
    peer.wait(Duration::from_secs(3));
    peer.expect_nothing();
    peer.wait(Duration::from_secs(1));
    peer.expect("empty");
}

#[test]
fn an_idle_time_out_too_short_to_keep_is_refused() {
    let options = ServerOptions { require_sasl: false, ..ServerOptions::default() };
    let mut peer = Peer::new(Connection::server(options, Time(0)), Time(0));
    peer.send_header(Protocol::Amqp);
    peer.send("open idle-time-out=5");
    closed_with(&mut peer, &condition::NOT_ALLOWED);
}

#[test]
fn our_close_waits_for_the_answer_but_not_for_ever() {
    let mut peer = Peer::opened_with("open idle-time-out=1000");
    peer.send("begin");
    peer.expect("begin");
    peer.event();
    peer.connection.close(None);
    peer.expect("close");
    peer.send("attach name=late handle=0 role=receiver source=q");
    peer.wait(Duration::from_secs(4));
    peer.no_event();
    // Nothing may follow a close frame, not even an empty frame.
    peer.expect_nothing();
    assert!(!peer.connection.is_finished());
    peer.wait(Duration::from_secs(1));
    assert_eq!(peer.event(), Event::Closed { error: None, by_peer: false });
    assert!(peer.connection.is_finished());
}

#[test]
fn the_peers_close_is_answered() {
    let mut peer = Peer::begun();
    peer.send("close error=amqp:connection:forced");
    let Event::Closed { error: Some(error), by_peer: true } = peer.event() else { panic!() };
    assert_eq!(error.condition, condition::CONNECTION_FORCED);
    peer.expect("close");
    peer.expect_nothing();
    assert!(peer.connection.is_finished());
}

/// Carries bytes both ways until neither side has more, and answers logins.
fn exchange(client: &mut Connection, server: &mut Connection, passwords: &[(&str, &str)]) {
    let mut to_server = bytes::BytesMut::new();
    let mut to_client = bytes::BytesMut::new();
    let now = Time(9);
    while client.has_output() || server.has_output() {
        let mut pieces = std::collections::VecDeque::new();
        client.take_output(&mut pieces, usize::MAX);
        pieces.drain(..).for_each(|piece| to_server.extend_from_slice(&piece));
        server.receive(now, &mut to_server);
        if let Some(event) = server.next_event() {
            match event {
                Event::Login(Claim::ScramUser { user }) => {
                    let found = passwords.iter().find(|(name, _)| *name == &*user);
                    server.sasl_credentials(found.map(|(_, password)| {
                        ScramCredentials::derive(password, b"salt of sixteen.", 4_096).unwrap()
                    }));
                }
                Event::Opened(opened) => {
                    assert_eq!(opened.user.as_deref(), Some("ann"));
                    server.accept_open();
                }
                Event::Closed { .. } => {}
                other => panic!("{other:?}"),
            }
            server.receive(now, &mut to_server);
        }
        server.take_output(&mut pieces, usize::MAX);
        pieces.drain(..).for_each(|piece| to_client.extend_from_slice(&piece));
        client.receive(now, &mut to_client);
    }
}

fn scram_pair(user: &str, password: &str) -> (Connection, Connection) {
    let options = ServerOptions {
        sasl_mechanisms: vec![Mechanism::ScramSha256],
        nonce: Arc::from(NONCE),
        ..ServerOptions::default()
    };
    let login = ClientLogin::Scram {
        user: Arc::from(user),
        password: Arc::from(password),
        nonce: Arc::from("zyxwvutsrqponmlkjihgfed"),
    };
    let client = ClientOptions { login: Some(login), ..ClientOptions::default() };
    let now = Time(9);
    let (mut client, mut server) =
        (Connection::client(client, now), Connection::server(options, now));
    exchange(&mut client, &mut server, &[("ann", "secret")]);
    (client, server)
}

#[test]
fn scram_lets_in_a_client_that_knows_the_password() {
    let (mut client, _server) = scram_pair("ann", "secret");
    assert!(matches!(client.next_event(), Some(Event::Opened(_))));
}

#[test]
fn scram_keeps_out_a_wrong_password_and_an_unknown_user_alike() {
    for (user, password) in [("ann", "guess"), ("bob", "secret")] {
        let (mut client, mut server) = scram_pair(user, password);
        let Some(Event::Closed { error: Some(error), .. }) = client.next_event() else { panic!() };
        assert_eq!(error.condition, condition::UNAUTHORIZED_ACCESS);
        assert!(client.is_finished() && server.is_finished());
        assert_eq!(server.next_event(), None);
    }
}
