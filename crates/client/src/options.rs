//! How to connect: trust, login and time-out.
//!
//! Not here: the address (`address`), and what is done with them (`client`, `stream`).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to connect.
#[derive(Clone)]
pub struct Options {
    /// Our container id.
    pub container: String,
    /// The password, when the address names a user.
    pub password: Option<String>,
    /// How to log in; `None`: SCRAM-SHA-256 with a user, ANONYMOUS without.
    pub sasl: Option<Sasl>,
    /// Certificates that are trusted, a PEM file; needed for `amqps`.
    pub certificate_authorities: Option<PathBuf>,
    /// Our own certificate chain and its key, PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long any answer is waited for.
    pub timeout: Duration,
}

/// SASL mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// ANONYMOUS
    Anonymous,
    /// PLAIN
    Plain,
    /// SCRAM-SHA-256
    Scram,
    /// EXTERNAL
    External,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            container: "towline-client".into(),
            password: None,
            sasl: None,
            certificate_authorities: None,
            certificate: None,
            timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        out.debug_struct("Options").field("container", &self.container).finish_non_exhaustive()
    }
}
