use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::codec::Symbols;
use crate::types::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse, Symbol,
};

const NONCE_SERVER: &str = "3rfcNHYJY1ZVvWVs7j-server";
const NONCE_CLIENT: &str = "fyko+d2lbbFgONRv9qkxdawL";
const SALT: &[u8] = b"0123456789abcdef";

fn server(mechanisms: &[Mechanism]) -> SaslServer {
    SaslServer::new(mechanisms, None, Arc::from(NONCE_SERVER), Arc::from(&b"secret"[..]))
}

fn scram_client(user: &str, password: &str) -> SaslClient {
    SaslClient::new(
        ClientLogin::Scram {
            user: Arc::from(user),
            password: Arc::from(password),
            nonce: Arc::from(NONCE_CLIENT),
        },
        None,
    )
}

fn sent(step: ClientStep) -> SaslFrame {
    match step {
        ClientStep::Send(frame) => frame,
        other => panic!("{other:?}"),
    }
}

fn init(mechanism: &'static str, initial: &'static [u8]) -> SaslFrame {
    SaslFrame::Init(SaslInit {
        mechanism: Symbol::constant(mechanism),
        initial_response: Some(Bytes::from_static(initial)),
        hostname: None,
    })
}

fn finished(step: ServerStep) -> (SaslOutcome, Option<Arc<str>>) {
    match step {
        ServerStep::Finished { outcome, user } => (outcome, user),
        other => panic!("{other:?}"),
    }
}

/// Runs SCRAM between both machines; what the client makes of it, and the challenge on the way.
fn scram(
    stored: Option<ScramCredentials>,
    user: &str,
    password: &str,
) -> (Result<ClientStep, SaslError>, Bytes) {
    let mut server = server(&[Mechanism::ScramSha256]);
    let mut client = scram_client(user, password);
    let offer = SaslFrame::Mechanisms(server.mechanisms());
    let first = sent(client.receive(&offer).unwrap());
    let claim = server.receive(&first).unwrap();
    assert_eq!(claim, ServerStep::Ask(Claim::ScramUser { user: Arc::from(user) }));
    let ServerStep::Send(challenge) = server.credentials(stored).unwrap() else { panic!() };
    let SaslFrame::Challenge(SaslChallenge { challenge: text }) = &challenge else { panic!() };
    let text = text.clone();
    let proof = sent(client.receive(&challenge).unwrap());
    let (outcome, _) = finished(server.receive(&proof).unwrap());
    assert!(server.is_finished());
    (client.receive(&SaslFrame::Outcome(outcome)), text)
}

#[test]
fn scram_logs_in_with_the_right_password() {
    let stored = ScramCredentials::derive("pencil", SALT, 4_096);
    let (step, _) = scram(stored, "us=er,1", "pencil");
    assert_eq!(step, Ok(ClientStep::Finished));
}

#[test]
fn scram_agrees_with_the_example_of_rfc_7677() {
    let mut client = SaslClient::new(
        ClientLogin::Scram {
            user: Arc::from("user"),
            password: Arc::from("pencil"),
            nonce: Arc::from("rOprNGfwEbeRWgbNEkqO"),
        },
        None,
    );
    let mechanisms = ["SCRAM-SHA-256"].into_iter().collect::<Symbols>();
    let SaslFrame::Init(init) =
        sent(client.receive(&SaslFrame::Mechanisms(SaslMechanisms { mechanisms })).unwrap())
    else {
        panic!()
    };
    assert_eq!(init.initial_response.unwrap(), &b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"[..]);
    let challenge = Bytes::from_static(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    );
    let answer = sent(client.receive(&SaslFrame::Challenge(SaslChallenge { challenge })).unwrap());
    let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    assert_eq!(answer, SaslFrame::Response(SaslResponse { response: Bytes::from(expected) }));
    let additional = Some(Bytes::from_static(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
    let outcome = SaslFrame::Outcome(SaslOutcome { code: SaslCode::Ok, additional });
    assert_eq!(client.receive(&outcome), Ok(ClientStep::Finished));
}

#[test]
fn an_unknown_user_is_answered_like_a_wrong_password() {
    let (wrong, _) = scram(ScramCredentials::derive("pencil", SALT, 10_000), "user", "pen");
    let (unknown, first) = scram(None, "user", "pen");
    assert_eq!(wrong, Ok(ClientStep::Refused(SaslCode::Auth)));
    assert_eq!(unknown, wrong);
    let (_, again) = scram(None, "user", "pen");
    assert_eq!(first, again, "the salt of a user that does not exist stays the same");
    let (_, other) = scram(None, "other", "pen");
    assert_ne!(first, other);
}

#[test]
fn iterations_out_of_bounds_are_refused_by_both_sides() {
    assert_eq!(ScramCredentials::derive("pencil", SALT, 4_095), None);
    assert_eq!(ScramCredentials::new(SALT, 10_000_001, [0; 32], [0; 32]), None);
    for iterations in ["0", "4095", "10000001", "2147483648"] {
        let mut client = scram_client("user", "pencil");
        let mechanisms = ["SCRAM-SHA-256"].into_iter().collect::<Symbols>();
        client.receive(&SaslFrame::Mechanisms(SaslMechanisms { mechanisms })).unwrap();
        let text = format!("r={NONCE_CLIENT}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={iterations}");
        let challenge = SaslFrame::Challenge(SaslChallenge { challenge: Bytes::from(text) });
        let count = iterations.parse().unwrap();
        assert_eq!(client.receive(&challenge), Err(SaslError::Iterations(count)));
    }
}

#[test]
fn a_server_nonce_that_adds_nothing_is_refused() {
    for nonce in [NONCE_CLIENT, "another"] {
        let mut client = scram_client("user", "pencil");
        let mechanisms = ["SCRAM-SHA-256"].into_iter().collect::<Symbols>();
        client.receive(&SaslFrame::Mechanisms(SaslMechanisms { mechanisms })).unwrap();
        let text = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let challenge = SaslFrame::Challenge(SaslChallenge { challenge: Bytes::from(text) });
        assert_eq!(client.receive(&challenge), Err(SaslError::Malformed("nonce")));
    }
}

#[test]
fn a_server_that_does_not_prove_itself_is_not_trusted() {
    let mut client = scram_client("user", "pencil");
    let mechanisms = ["SCRAM-SHA-256"].into_iter().collect::<Symbols>();
    client.receive(&SaslFrame::Mechanisms(SaslMechanisms { mechanisms })).unwrap();
    let outcome = SaslFrame::Outcome(SaslOutcome { code: SaslCode::Ok, additional: None });
    assert_eq!(client.receive(&outcome), Err(SaslError::ServerNotAuthentic));
}

#[test]
fn channel_binding_extensions_and_bad_names_are_refused() {
    for first in [
        &b"p=tls-unique,,n=user,r=abc"[..],
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us\x01er,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"\xff",
        b"",
    ] {
        let mut server = server(&[Mechanism::ScramSha256]);
        let (outcome, user) = finished(server.receive(&init("SCRAM-SHA-256", first)).unwrap());
        assert_eq!((outcome.code, user), (SaslCode::Auth, None), "{}", first.escape_ascii());
    }
}

#[test]
fn a_proof_for_another_nonce_or_header_is_refused() {
    let stored = ScramCredentials::derive("pencil", SALT, 4_096);
    let first = b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL";
    for last in ["c=eSws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j-server", "c=biws,r=replay"] {
        let mut server = server(&[Mechanism::ScramSha256]);
        server.receive(&init("SCRAM-SHA-256", first)).unwrap();
        let ServerStep::Send(SaslFrame::Challenge(challenge)) =
            server.credentials(stored.clone()).unwrap()
        else {
            panic!()
        };
        let server_first = std::str::from_utf8(&challenge.challenge).unwrap();
        let messages = format!("n=user,r=fyko+d2lbbFgONRv9qkxdawL,{server_first},{last}");
        let keys = scram::ClientKeys::derive("pencil", SALT, 4_096, messages.as_bytes());
        let text = format!("{last},p={}", scram::encode_64(&keys.proof));
        let response = SaslFrame::Response(SaslResponse { response: Bytes::from(text) });
        assert_eq!(finished(server.receive(&response).unwrap()).0.code, SaslCode::Auth);
    }
}

#[test]
fn plain_asks_the_driver_with_user_and_password() {
    let mut server = server(&[Mechanism::Plain]);
    let step = server.receive(&init("PLAIN", b"\0user\0pencil")).unwrap();
    let ServerStep::Ask(Claim::Plain { authorization, user, password }) = &step else { panic!() };
    assert_eq!((&**authorization, &**user, &**password), ("", "user", "pencil"));
    assert!(!format!("{step:?}").contains("pencil"), "a password in a log");
    let (outcome, user) = finished(server.answer(SaslCode::Ok).unwrap());
    assert_eq!((outcome.code, user.as_deref()), (SaslCode::Ok, Some("user")));
    assert!(ScramCredentials::derive("pencil", SALT, 4_096).unwrap().fits("pencil"));
    assert!(!ScramCredentials::derive("pencil", SALT, 4_096).unwrap().fits("pencil "));
}

#[test]
fn malformed_plain_is_refused() {
    for initial in [&b""[..], b"user", b"\0user", b"\0\0pencil", b"\0user\0", b"\0u\0p\0x"] {
        let step = server(&[Mechanism::Plain]).receive(&init("PLAIN", initial)).unwrap();
        assert_eq!(finished(step).0.code, SaslCode::Auth);
    }
}

#[test]
fn external_is_offered_only_with_a_certificate() {
    let bare = server(&[Mechanism::External, Mechanism::Anonymous]);
    assert!(!bare.mechanisms().mechanisms.contains("EXTERNAL"));
    let mut with = SaslServer::new(
        &[Mechanism::External],
        Some(Arc::from("CN=app")),
        Arc::from(""),
        Arc::from([]),
    );
    with.receive(&init("EXTERNAL", b"")).unwrap();
    let (_, user) = finished(with.answer(SaslCode::Ok).unwrap());
    assert_eq!(user.as_deref(), Some("CN=app"));
}

#[test]
fn a_mechanism_that_is_not_offered_is_refused() {
    let (outcome, _) =
        finished(server(&[Mechanism::ScramSha256]).receive(&init("PLAIN", b"\0u\0p")).unwrap());
    assert_eq!(outcome.code, SaslCode::Auth);
    let mut client = SaslClient::new(ClientLogin::Anonymous, None);
    let offer = SaslFrame::Mechanisms(server(&[Mechanism::Plain]).mechanisms());
    let refused = client.receive(&offer).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the server does not offer the login ANONYMOUS, but PLAIN: name a user, as in \
         amqps://USER@HOST"
    );
}

#[test]
fn there_is_one_exchange_and_no_frame_out_of_turn() {
    let anonymous = init("ANONYMOUS", b"");
    let mut server = server(&[Mechanism::Anonymous]);
    assert_eq!(server.answer(SaslCode::Ok), Err(SaslError::OutOfTurn));
    server = SaslServer::new(&[Mechanism::Anonymous], None, Arc::from(""), Arc::from([]));
    server.receive(&anonymous).unwrap();
    assert_eq!(server.receive(&anonymous), Err(SaslError::OutOfTurn));
    assert_eq!(server.answer(SaslCode::Ok), Err(SaslError::OutOfTurn));
    let mut client = SaslClient::new(ClientLogin::Anonymous, None);
    let outcome = SaslFrame::Outcome(SaslOutcome { code: SaslCode::Ok, additional: None });
    assert_eq!(client.receive(&outcome), Err(SaslError::OutOfTurn));
}

#[test]
fn a_scram_login_goes_by_letters_and_not_by_how_they_are_written() {
    let stored = ScramCredentials::derive("Z\u{fc}rich", SALT, ITERATIONS_MIN);
    let (step, _) = scram(stored, "alice", "Zu\u{308}rich");
    assert_eq!(step, Ok(ClientStep::Finished));
}

#[test]
fn a_name_is_prepared_on_both_sides() {
    let mut machine = server(&[Mechanism::Plain]);
    let claim = machine.receive(&init("PLAIN", "\0\u{2168}\0\u{2168}".as_bytes())).unwrap();
    let ServerStep::Ask(Claim::Plain { user, .. }) = claim else { panic!("{claim:?}") };
    assert_eq!(&*user, "IX");
    let mut machine = server(&[Mechanism::ScramSha256]);
    let mut client = scram_client("\u{2168}", "password");
    let first = sent(client.receive(&SaslFrame::Mechanisms(machine.mechanisms())).unwrap());
    let SaslFrame::Init(SaslInit { initial_response: Some(text), .. }) = &first else { panic!() };
    assert!(text.starts_with(b"n,,n=IX,"), "{text:?}");
    let claim = machine.receive(&first).unwrap();
    assert_eq!(claim, ServerStep::Ask(Claim::ScramUser { user: Arc::from("IX") }));
}
