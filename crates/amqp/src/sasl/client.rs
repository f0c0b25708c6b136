//! The client's side of a login.
//!
//! ```text
//!   Waiting --mechanisms--> Begun --outcome--> Finished
//!   Waiting --mechanisms--> First --challenge--> Proven --outcome--> Finished      (SCRAM)
//! ```
//! Some servers send SCRAM's last message as a challenge of its own, and wait for an empty
//! response; others in the outcome. Both are taken.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use subtle::ConstantTimeEq;

use super::scram::{
    ClientKeys, ITERATIONS_MAX, ITERATIONS_MIN, Key, ServerFirst, decode_64, encode_64,
    encode_name, is_nonce,
};
use super::{Mechanism, SaslError};
use crate::types::{SaslCode, SaslFrame, SaslInit, SaslOutcome, SaslResponse, Symbol};

/// How a client logs in.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientLogin {
    /// No identity.
    Anonymous,
    /// User and password in clear.
    Plain {
        /// The user.
        user: Arc<str>,
        /// What proves it.
        password: Arc<str>,
    },
    /// The identity of the TLS certificate.
    External,
    /// SCRAM-SHA-256.
    Scram {
        /// The user.
        user: Arc<str>,
        /// What proves it.
        password: Arc<str>,
        /// Random text, never used before; 18 printable ASCII characters or more, without a comma.
        nonce: Arc<str>,
    },
}

impl ClientLogin {
    /// The mechanism that it uses.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        match self {
            ClientLogin::Anonymous => Mechanism::Anonymous,
            ClientLogin::Plain { .. } => Mechanism::Plain,
            ClientLogin::External => Mechanism::External,
            ClientLogin::Scram { .. } => Mechanism::ScramSha256,
        }
    }
}

impl fmt::Debug for ClientLogin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.mechanism().as_str())?;
        match self {
            ClientLogin::Plain { user, .. } | ClientLogin::Scram { user, .. } => {
                write!(out, "({user:?})")
            }
            ClientLogin::Anonymous | ClientLogin::External => Ok(()),
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum ClientStep {
    /// Send the frame and wait for the next one.
    Send(SaslFrame),
    /// Logged in.
    Finished,
    /// The server said no.
    Refused(SaslCode),
}

/// The client's machine.
#[derive(Debug)]
pub struct SaslClient {
    login: ClientLogin,
    hostname: Option<Arc<str>>,
    state: ClientState,
}

#[derive(Debug)]
enum ClientState {
    Waiting,
    Begun,
    /// The client's first message, without its header, is sent.
    First {
        bare: String,
    },
    /// The proof is sent; the server has to prove too.
    Proven {
        server_signature: Key,
    },
    /// The server has proven itself before the outcome.
    Trusted,
    Finished,
}

impl SaslClient {
    /// A machine that logs in so, to the host named (it goes into the init frame).
    ///
    /// # Panics
    /// When a nonce is shorter than 18 characters, or not printable ASCII without a comma.
    #[must_use]
    pub fn new(login: ClientLogin, hostname: Option<Arc<str>>) -> SaslClient {
        if let ClientLogin::Scram { nonce, .. } = &login {
            assert!(nonce.len() >= 18 && is_nonce(nonce), "a nonce of 18 printable characters");
        }
        SaslClient { login, hostname, state: ClientState::Waiting }
    }

    /// Takes a frame of the server.
    ///
    /// # Errors
    /// When the login cannot go on; the connection must be closed.
    pub fn receive(&mut self, frame: &SaslFrame) -> Result<ClientStep, SaslError> {
        let state = std::mem::replace(&mut self.state, ClientState::Finished);
        match (state, frame) {
            (ClientState::Waiting, SaslFrame::Mechanisms(offer)) => {
                let wanted = self.login.mechanism();
                let is_offered = |each: &Mechanism| offer.mechanisms.contains(each.as_str());
                if !is_offered(&wanted) {
                    let offered = Mechanism::ALL.into_iter().filter(is_offered).collect();
                    return Err(SaslError::MechanismNotOffered { wanted, offered });
                }
                Ok(ClientStep::Send(self.init()))
            }
            (ClientState::First { bare }, SaslFrame::Challenge(challenge)) => {
                self.prove(&bare, &challenge.challenge)
            }
            (ClientState::Proven { server_signature }, SaslFrame::Challenge(challenge)) => {
                trust(&server_signature, &challenge.challenge)?;
                self.state = ClientState::Trusted;
                Ok(respond(Bytes::new()))
            }
            (ClientState::Begun, SaslFrame::Challenge(challenge))
                if challenge.challenge.is_empty() =>
            {
                // A server that overlooked the initial response asks for it with an empty
                // challenge.
                self.state = ClientState::Begun;
                Ok(respond(self.initial()))
            }
            (
                state @ (ClientState::Begun
                | ClientState::First { .. }
                | ClientState::Proven { .. }
                | ClientState::Trusted),
                SaslFrame::Outcome(outcome),
            ) => finish(&state, outcome),
            (_, _) => Err(SaslError::OutOfTurn),
        }
    }

    fn init(&mut self) -> SaslFrame {
        let initial = self.initial();
        self.state = match &self.login {
            ClientLogin::Scram { user, nonce, .. } => {
                ClientState::First { bare: client_first_bare(user, nonce) }
            }
            ClientLogin::Anonymous | ClientLogin::Plain { .. } | ClientLogin::External => {
                ClientState::Begun
            }
        };
        SaslFrame::Init(SaslInit {
            mechanism: Symbol::constant(self.login.mechanism().as_str()),
            initial_response: Some(initial),
            hostname: self.hostname.clone(),
        })
    }

    fn initial(&self) -> Bytes {
        match &self.login {
            ClientLogin::Anonymous => Bytes::from_static(b"anonymous"),
            ClientLogin::External => Bytes::new(),
            ClientLogin::Plain { user, password } => Bytes::from(format!("\0{user}\0{password}")),
            ClientLogin::Scram { user, nonce, .. } => {
                Bytes::from(format!("n,,{}", client_first_bare(user, nonce)))
            }
        }
    }

    fn prove(&mut self, bare: &str, challenge: &[u8]) -> Result<ClientStep, SaslError> {
        let ClientLogin::Scram { password, nonce, .. } = &self.login else {
            return Err(SaslError::OutOfTurn);
        };
        let malformed = || SaslError::Malformed("server-first-message");
        let text = std::str::from_utf8(challenge).map_err(|_| malformed())?;
        let first = ServerFirst::parse(text).ok_or_else(malformed)?;
        match first.nonce.strip_prefix(&**nonce) {
            None | Some("") => return Err(SaslError::Malformed("nonce")),
            Some(_) => {}
        }
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&first.iterations) {
            return Err(SaslError::Iterations(first.iterations));
        }
        let without_proof = format!("c={},r={}", encode_64(b"n,,"), first.nonce);
        let authentication = format!("{bare},{text},{without_proof}");
        let keys =
            ClientKeys::derive(password, &first.salt, first.iterations, authentication.as_bytes());
        self.state = ClientState::Proven { server_signature: keys.server_signature };
        Ok(respond(Bytes::from(format!("{without_proof},p={}", encode_64(&keys.proof)))))
    }
}

fn client_first_bare(user: &str, nonce: &str) -> String {
    format!("n={},r={nonce}", encode_name(user))
}

fn respond(response: Bytes) -> ClientStep {
    ClientStep::Send(SaslFrame::Response(SaslResponse { response }))
}

fn finish(state: &ClientState, outcome: &SaslOutcome) -> Result<ClientStep, SaslError> {
    if outcome.code != SaslCode::Ok {
        return Ok(ClientStep::Refused(outcome.code));
    }
    match state {
        ClientState::Begun | ClientState::Trusted => {}
        ClientState::Proven { server_signature } => {
            trust(server_signature, outcome.additional.as_deref().unwrap_or_default())?;
        }
        // Success without a proof is the answer of a server that does not know the password.
        ClientState::First { .. } => return Err(SaslError::ServerNotAuthentic),
        ClientState::Waiting | ClientState::Finished => return Err(SaslError::OutOfTurn),
    }
    Ok(ClientStep::Finished)
}

/// Checks the server-final-message.
fn trust(server_signature: &Key, message: &[u8]) -> Result<(), SaslError> {
    let text = std::str::from_utf8(message).unwrap_or_default();
    let signature = text.strip_prefix("v=").and_then(|rest| {
        let value = rest.split(',').next()?;
        Key::try_from(decode_64(value)?).ok()
    });
    match signature {
        Some(signature) if bool::from(signature.ct_eq(server_signature)) => Ok(()),
        Some(_) | None => Err(SaslError::ServerNotAuthentic),
    }
}
