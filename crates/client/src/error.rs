//! What can go wrong for a client.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// The connection could not be made: no server listens, TLS failed, or the login was refused.
    CannotConnect {
        /// To where.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server refused something: an attach, a message, a commit.
    Refused {
        /// An AMQP error condition.
        condition: String,
        /// The server's words.
        description: String,
    },
    /// The connection ended.
    Lost(String),
    /// The server did not answer.
    NoAnswer {
        /// What was asked for.
        what: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// The server answered what it should not.
    Unexpected(String),
    /// The socket failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::CannotConnect { address, reason } => {
                write!(out, "cannot connect to {address}: {reason}")
            }
            Error::Refused { condition, description } if description.is_empty() => {
                write!(out, "refused: {condition}")
            }
            Error::Refused { condition, description } => {
                write!(out, "refused: {description} ({condition})")
            }
            Error::Lost(reason) => write!(out, "the connection was lost: {reason}"),
            Error::NoAnswer { what, after } => {
                write!(out, "no answer to {what} within {} s", after.as_secs_f64())
            }
            Error::Unexpected(what) => write!(out, "the server violated the protocol: {what}"),
            Error::Io(error) => out.write_str(&towline_tls::reason(error)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::CannotConnect { .. }
            | Error::Refused { .. }
            | Error::Lost(_)
            | Error::NoAnswer { .. }
            | Error::Unexpected(_) => None,
        }
    }
}

impl Error {
    /// What the server said, as an error.
    pub(crate) fn refused(error: Option<&towline_amqp::types::Error>) -> Error {
        let (condition, description) = match error {
            Some(error) => {
                (error.condition.as_str().to_owned(), error.description.as_deref().unwrap_or(""))
            }
            None => ("the server gave no reason".to_owned(), ""),
        };
        Error::Refused { condition, description: description.to_owned() }
    }
}
