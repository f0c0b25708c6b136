//! The server's side of a login.
//!
//! ```text
//!   Offered --init--> Asked --answer--> Finished
//!                     Asked --credentials (SCRAM)--> Challenged --response--> Finished
//! ```

use std::sync::Arc;

use bytes::Bytes;

use super::scram::{ClientFinal, ClientFirst, ScramCredentials, encode_64, is_nonce};
use super::{Mechanism, SaslError, prepared};
use crate::codec::Symbols;
use crate::types::{SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome};

/// What a client says of itself, for the driver to judge.
#[derive(Clone, PartialEq, Eq)]
pub enum Claim {
    /// No identity. Answer with [`SaslServer::answer`].
    Anonymous,
    /// The identity of the TLS certificate. Answer with [`SaslServer::answer`].
    External {
        /// The identity to act as; empty for the certificate's own.
        authorization: Arc<str>,
        /// The certificate's own.
        identity: Arc<str>,
    },
    /// User and password. Answer with [`SaslServer::answer`].
    Plain {
        /// The identity to act as; empty for the user itself.
        authorization: Arc<str>,
        /// The user.
        user: Arc<str>,
        /// What proves it.
        password: Arc<str>,
    },
    /// Answer with [`SaslServer::credentials`].
    ScramUser {
        /// The user that it claims to be.
        user: Arc<str>,
    },
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Claim::Anonymous => out.write_str("Anonymous"),
            Claim::External { identity, .. } => write!(out, "External({identity:?})"),
            Claim::Plain { user, .. } => write!(out, "Plain({user:?})"),
            Claim::ScramUser { user } => write!(out, "ScramUser({user:?})"),
        }
    }
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum ServerStep {
    /// The driver decides.
    Ask(Claim),
    /// Send the frame and wait for the next one.
    Send(SaslFrame),
    /// Send the outcome; the exchange is over.
    Finished {
        /// Success, or a refusal after which the connection closes.
        outcome: SaslOutcome,
        /// The user that logged in; `None` for ANONYMOUS and after a refusal.
        user: Option<Arc<str>>,
    },
}

/// The server's machine.
#[derive(Debug)]
pub struct SaslServer {
    offered: Vec<Mechanism>,
    identity: Option<Arc<str>>,
    nonce: Arc<str>,
    salt_secret: Arc<[u8]>,
    state: ServerState,
}

#[derive(Debug)]
enum ServerState {
    /// The mechanisms are known to the client.
    Offered,
    /// The driver decides; `user` is logged in if it says yes.
    Asked {
        user: Option<Arc<str>>,
    },
    /// The driver looks for credentials.
    AskedScram {
        user: Arc<str>,
        gs2_header: String,
        bare: String,
        nonce: String,
    },
    /// The client must prove.
    Challenged(Box<Challenged>),
    Finished,
}

#[derive(Debug)]
struct Challenged {
    user: Arc<str>,
    credentials: ScramCredentials,
    /// False: made up for a user that does not exist. Then no proof is good enough.
    exists: bool,
    gs2_header: String,
    nonce: String,
    /// client-first-message-bare and server-first-message, each with a comma behind it.
    messages: String,
}

impl SaslServer {
    /// A machine that offers `mechanisms`, the preferred one first; EXTERNAL only when there is an
    /// `identity` of a TLS certificate. `nonce` must never have been used before; `salt_secret`
    /// makes the salts of users that do not exist, and should stay the same for the life of the
    /// server.
    ///
    /// # Panics
    /// When SCRAM is offered and the nonce is shorter than 18 characters, or not printable ASCII
    /// without a comma.
    #[must_use]
    pub fn new(
        mechanisms: &[Mechanism],
        identity: Option<Arc<str>>,
        nonce: Arc<str>,
        salt_secret: Arc<[u8]>,
    ) -> SaslServer {
        let external = identity.is_some();
        let fits = |one: &Mechanism| *one != Mechanism::External || external;
        let offered: Vec<Mechanism> = mechanisms.iter().copied().filter(fits).collect();
        if offered.contains(&Mechanism::ScramSha256) {
            assert!(nonce.len() >= 18 && is_nonce(&nonce), "a nonce of 18 printable characters");
        }
        SaslServer { offered, identity, nonce, salt_secret, state: ServerState::Offered }
    }

    /// The frame to send first.
    #[must_use]
    pub fn mechanisms(&self) -> SaslMechanisms {
        SaslMechanisms {
            mechanisms: self.offered.iter().map(|one| one.as_str()).collect::<Symbols>(),
        }
    }

    /// Whether the outcome is known.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, ServerState::Finished)
    }

    /// Takes a frame of the client.
    ///
    /// # Errors
    /// [`SaslError::OutOfTurn`] when none was due, or another one.
    pub fn receive(&mut self, frame: &SaslFrame) -> Result<ServerStep, SaslError> {
        match (std::mem::replace(&mut self.state, ServerState::Finished), frame) {
            (ServerState::Offered, SaslFrame::Init(init)) => Ok(self.begin(init)),
            (ServerState::Challenged(challenged), SaslFrame::Response(response)) => {
                Ok(match std::str::from_utf8(&response.response) {
                    Ok(text) => challenged.prove(text),
                    Err(_) => refused(SaslCode::Auth),
                })
            }
            (_, _) => Err(SaslError::OutOfTurn),
        }
    }

    fn begin(&mut self, init: &SaslInit) -> ServerStep {
        let mechanism = Mechanism::from_name(&init.mechanism);
        let Some(mechanism) = mechanism.filter(|one| self.offered.contains(one)) else {
            return refused(SaslCode::Auth);
        };
        let initial = init.initial_response.clone().unwrap_or_default();
        let claim = match std::str::from_utf8(&initial) {
            Ok(text) => self.claim(mechanism, text),
            Err(_) => None,
        };
        claim.map_or_else(|| refused(SaslCode::Auth), ServerStep::Ask)
    }

    fn claim(&mut self, mechanism: Mechanism, initial: &str) -> Option<Claim> {
        match mechanism {
            Mechanism::Anonymous => {
                self.state = ServerState::Asked { user: None };
                Some(Claim::Anonymous)
            }
            Mechanism::External => {
                let identity = self.identity.clone()?;
                self.state = ServerState::Asked { user: Some(Arc::clone(&identity)) };
                Some(Claim::External { authorization: Arc::from(initial), identity })
            }
            Mechanism::Plain => {
                let mut parts = initial.split('\0');
                let authorization = parts.next()?;
                let user = parts.next()?;
                let password = parts.next()?;
                if parts.next().is_some() || user.is_empty() || password.is_empty() {
                    return None;
                }
                let user: Arc<str> = Arc::from(prepared(user));
                self.state = ServerState::Asked { user: Some(Arc::clone(&user)) };
                Some(Claim::Plain {
                    authorization: Arc::from(prepared(authorization)),
                    user,
                    password: Arc::from(password),
                })
            }
            Mechanism::ScramSha256 => {
                let first = ClientFirst::parse(initial)?;
                let user: Arc<str> = Arc::from(first.user);
                self.state = ServerState::AskedScram {
                    user: Arc::clone(&user),
                    gs2_header: first.gs2_header.to_owned(),
                    bare: first.bare.to_owned(),
                    nonce: format!("{}{}", first.nonce, self.nonce),
                };
                Some(Claim::ScramUser { user })
            }
        }
    }

    /// The driver's answer to a claim other than SCRAM's.
    ///
    /// # Errors
    /// [`SaslError::OutOfTurn`] when there was none.
    pub fn answer(&mut self, code: SaslCode) -> Result<ServerStep, SaslError> {
        match std::mem::replace(&mut self.state, ServerState::Finished) {
            ServerState::Asked { user } if code == SaslCode::Ok => {
                Ok(ServerStep::Finished { outcome: SaslOutcome { code, additional: None }, user })
            }
            ServerState::Asked { .. } | ServerState::AskedScram { .. } if code != SaslCode::Ok => {
                Ok(refused(code))
            }
            ServerState::Offered
            | ServerState::Asked { .. }
            | ServerState::AskedScram { .. }
            | ServerState::Challenged(_)
            | ServerState::Finished => Err(SaslError::OutOfTurn),
        }
    }

    /// The driver's answer to a claim of SCRAM; `None` for a user that does not exist.
    ///
    /// # Errors
    /// [`SaslError::OutOfTurn`] when there was none.
    pub fn credentials(
        &mut self,
        found: Option<ScramCredentials>,
    ) -> Result<ServerStep, SaslError> {
        let ServerState::AskedScram { user, gs2_header, bare, nonce } =
            std::mem::replace(&mut self.state, ServerState::Finished)
        else {
            return Err(SaslError::OutOfTurn);
        };
        let exists = found.is_some();
        let credentials = found
            .unwrap_or_else(|| ScramCredentials::of_unknown_user(&user, &self.salt_secret, &[]));
        let salt = encode_64(credentials.salt());
        let server_first = format!("r={nonce},s={salt},i={}", credentials.iterations());
        let messages = format!("{bare},{server_first},");
        self.state = ServerState::Challenged(Box::new(Challenged {
            user,
            credentials,
            exists,
            gs2_header,
            nonce,
            messages,
        }));
        let challenge = Bytes::from(server_first);
        Ok(ServerStep::Send(SaslFrame::Challenge(SaslChallenge { challenge })))
    }
}

impl Challenged {
    fn prove(&self, response: &str) -> ServerStep {
        let Some(last) = ClientFinal::parse(response) else { return refused(SaslCode::Auth) };
        let authentication = format!("{}{}", self.messages, last.without_proof);
        let bound = last.channel_binding == self.gs2_header.as_bytes() && last.nonce == self.nonce;
        // The proof is computed for a user that does not exist too: the time must not reveal that.
        let proven = self.credentials.verify(authentication.as_bytes(), &last.proof);
        if !(bound && proven && self.exists) {
            return refused(SaslCode::Auth);
        }
        let signature = self.credentials.server_signature(authentication.as_bytes());
        let additional = Some(Bytes::from(format!("v={}", encode_64(&signature))));
        ServerStep::Finished {
            outcome: SaslOutcome { code: SaslCode::Ok, additional },
            user: Some(Arc::clone(&self.user)),
        }
    }
}

fn refused(code: SaslCode) -> ServerStep {
    ServerStep::Finished { outcome: SaslOutcome { code, additional: None }, user: None }
}
