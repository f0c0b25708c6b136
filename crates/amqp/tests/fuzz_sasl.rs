//! Fuzz: SASL frames, and the machines of both sides under any sequence of messages.

mod mutation;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mutation::{Mutation, spoiled};
use towline_amqp::sasl::{
    Claim, ClientLogin, ClientStep, Mechanism, SaslClient, SaslServer, ServerStep,
};
use towline_amqp::types::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse, Symbol,
};

const NONCE: &str = "abcdefghijklmnopqrstuvwx";

fn init(mechanism: &'static str, initial: &'static [u8]) -> SaslFrame {
    SaslFrame::Init(SaslInit {
        mechanism: Symbol::constant(mechanism),
        initial_response: Some(Bytes::from_static(initial)),
        hostname: Some(Arc::from("host")),
    })
}

fn frames() -> Vec<SaslFrame> {
    let text = Bytes::from_static;
    vec![
        SaslFrame::Mechanisms(SaslMechanisms {
            mechanisms: ["SCRAM-SHA-256", "PLAIN"].into_iter().collect(),
        }),
        init("PLAIN", b"\0user\0password"),
        init("SCRAM-SHA-256", b"n,,n=user,r=abcdefghijklmnopqrstuvwx"),
        SaslFrame::Challenge(SaslChallenge {
            challenge: text(b"r=abcdefghijklmnopqrstuvwxyz,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        }),
        SaslFrame::Response(SaslResponse {
            response: text(
                b"c=biws,r=abcdefghijklmnopqrstuvwxabcdefghijklmnopqrstuvwx,\
                  p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            ),
        }),
        SaslFrame::Outcome(SaslOutcome {
            code: SaslCode::Ok,
            additional: Some(text(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")),
        }),
    ]
}

fn encoded(frame: &SaslFrame) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame.encode(&mut out);
    out.to_vec()
}

#[test]
fn sasl_frames_from_any_bytes_are_refused_or_round_trip() {
    let samples: Vec<_> = frames().iter().map(encoded).collect();
    bolero::check!().with_iterations(20_000).with_type::<Mutation>().for_each(|mutation| {
        let bytes = spoiled(&samples, mutation);
        if let Ok(frame) = SaslFrame::decode(&bytes) {
            assert_eq!(SaslFrame::decode(&encoded(&frame)).as_ref(), Ok(&frame));
        }
    });
}

#[test]
fn nobody_logs_in_by_any_sequence_of_spoiled_messages() {
    let samples: Vec<_> = frames().iter().map(encoded).collect();
    bolero::check!().with_iterations(2_000).with_type::<Vec<Mutation>>().for_each(|history| {
        let mut server = SaslServer::new(
            &[Mechanism::ScramSha256, Mechanism::Plain, Mechanism::External],
            None,
            Arc::from(NONCE),
            Arc::from(&b"secret"[..]),
        );
        let login = ClientLogin::Scram {
            user: Arc::from("user"),
            password: Arc::from("password"),
            nonce: Arc::from(NONCE),
        };
        let mut client = SaslClient::new(login, None);
        let mut proofs = 0;
        for mutation in history.iter().take(8) {
            let Ok(frame) = SaslFrame::decode(&spoiled(&samples, mutation)) else { continue };
            match server.receive(&frame) {
                // The driver knows no user and accepts no login.
                Ok(ServerStep::Ask(Claim::ScramUser { .. })) => {
                    assert!(matches!(server.credentials(None), Ok(ServerStep::Send(_))));
                }
                Ok(ServerStep::Ask(_)) => drop(server.answer(SaslCode::Auth)),
                Ok(ServerStep::Finished { outcome, user }) => {
                    assert!(outcome.code != SaslCode::Ok && user.is_none());
                }
                Ok(ServerStep::Send(_)) | Err(_) => {}
            }
            // A proof costs thousands of hashes: the frames cannot ask for more than 10,000,000,
            // and here not for more than one.
            if proofs == 0 || !matches!(frame, SaslFrame::Challenge(_)) {
                proofs += usize::from(matches!(frame, SaslFrame::Challenge(_)));
                assert_ne!(client.receive(&frame), Ok(ClientStep::Finished));
            }
        }
    });
}

#[test]
fn noise_in_every_message_is_refused_without_a_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        drop(SaslFrame::decode(bytes));
        for mechanism in ["PLAIN", "ANONYMOUS", "EXTERNAL", "SCRAM-SHA-256"] {
            let mut server = SaslServer::new(
                &[Mechanism::ScramSha256, Mechanism::Plain, Mechanism::Anonymous],
                None,
                Arc::from(NONCE),
                Arc::from(&b"secret"[..]),
            );
            let frame = SaslFrame::Init(SaslInit {
                mechanism: Symbol::constant(mechanism),
                initial_response: Some(Bytes::copy_from_slice(bytes)),
                hostname: None,
            });
            drop(server.receive(&frame));
            drop(server.credentials(None));
        }
    });
}
