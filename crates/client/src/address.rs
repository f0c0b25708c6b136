//! Where a queue manager listens: a Unix socket in its data folder, or a URL.

use std::fmt;
use std::path::PathBuf;

use towline_amqp::Url;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Local(PathBuf),
    /// A host.
    Remote(Url),
}

impl Address {
    /// Reads `amqp[s]://[user@]host[:port]`.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(url: &str) -> Result<Address, String> {
        Url::parse(url).map(Address::Remote)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Local(path) => write!(out, "{}", path.display()),
            Address::Remote(url) => write!(out, "{url}"),
        }
    }
}
