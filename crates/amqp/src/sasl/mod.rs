//! Login (AMQP part 5): the exchange of SASL frames as two machines, [`SaslServer`] and
//! [`SaslClient`], for ANONYMOUS, PLAIN, EXTERNAL and SCRAM-SHA-256.
//!
//! Frames in, steps out. Not here: permission to log in (the driver answers a [`Claim`]),
//! time-outs, the frames' bytes (`types`, `frame`). Nonces are arguments.
//!
//! Invariants: one exchange with one mechanism; a frame out of turn ends it. An unknown user looks
//! like a wrong password, down to the salt. Proofs are compared in constant time. Nothing here
//! shows a password in its `Debug` form.

mod client;
mod prepared;
mod scram;
mod server;

pub use client::{ClientLogin, ClientStep, SaslClient};
pub use prepared::prepared;
pub use scram::{ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredentials};
pub use server::{Claim, SaslServer, ServerStep};

use std::fmt;

/// The mechanisms that both machines know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// No identity (RFC 4505).
    Anonymous,
    /// User and password in clear (RFC 4616); only inside TLS.
    Plain,
    /// The identity of the TLS certificate (RFC 4422, appendix A).
    External,
    /// A password that never crosses the wire (RFC 5802, RFC 7677).
    ScramSha256,
}

impl Mechanism {
    /// The registered name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Mechanism::Anonymous => "ANONYMOUS",
            Mechanism::Plain => "PLAIN",
            Mechanism::External => "EXTERNAL",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    /// The mechanism of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.as_str() == name)
    }

    /// All of them.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Anonymous, Mechanism::Plain, Mechanism::External, Mechanism::ScramSha256];
}

/// The way a login could succeed stands beside what was refused.
fn not_offered(
    out: &mut fmt::Formatter<'_>,
    wanted: Mechanism,
    offered: &[Mechanism],
) -> fmt::Result {
    write!(out, "the server does not offer the login {}", wanted.as_str())?;
    let names: Vec<&str> = offered.iter().map(|each| each.as_str()).collect();
    match names.as_slice() {
        [] => write!(out, ", nor any other that is known here")?,
        names => write!(out, ", but {}", names.join(", "))?,
    }
    let has_password = [Mechanism::Plain, Mechanism::ScramSha256];
    match wanted {
        Mechanism::Anonymous if offered.iter().any(|each| has_password.contains(each)) => {
            write!(out, ": name a user, as in amqps://USER@HOST")
        }
        Mechanism::Anonymous if offered.contains(&Mechanism::External) => {
            write!(out, ": show a certificate of our own")
        }
        _ => Ok(()),
    }
}

/// Why an exchange broke off without an outcome frame. The connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslError {
    /// A frame that the exchange does not wait for.
    OutOfTurn,
    /// Client: the server does not offer the mechanism that we must use.
    MechanismNotOffered {
        /// The mechanism that we must use.
        wanted: Mechanism,
        /// What it offers, of what we know.
        offered: Vec<Mechanism>,
    },
    /// Client: a message that the mechanism does not have.
    Malformed(&'static str),
    /// Client: an iteration count that gives away the password, or keeps us busy for minutes.
    Iterations(u32),
    /// Client: the server does not know the password either.
    ServerNotAuthentic,
}

impl fmt::Display for SaslError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaslError::OutOfTurn => out.write_str("SASL frame out of turn"),
            SaslError::MechanismNotOffered { wanted, offered } => {
                not_offered(out, *wanted, offered)
            }
            SaslError::Malformed(what) => write!(out, "malformed SASL message: {what}"),
            SaslError::Iterations(count) => {
                write!(out, "the server asks for {count} SCRAM iterations")
            }
            SaslError::ServerNotAuthentic => {
                out.write_str("the server could not prove that it knows the password")
            }
        }
    }
}

impl std::error::Error for SaslError {}

#[cfg(test)]
mod tests;
