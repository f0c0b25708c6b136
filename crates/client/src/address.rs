//! Where a queue manager listens: a Unix socket in its data folder, or a URL.

use std::fmt;
use std::path::{Path, PathBuf};

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

/// Bytes of the path of a Unix socket at most (unix(7), `sun_path`, with its zero at the end).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Why no socket can be reached at a path, and what to do; `None`: it is short enough.
#[must_use]
pub fn path_too_long(socket: &Path) -> Option<String> {
    let bytes = socket.as_os_str().len();
    (bytes > SOCKET_PATH_BYTES_MAX).then(|| {
        format!(
            "the path of the socket has {bytes} bytes, and {SOCKET_PATH_BYTES_MAX} are allowed: name \
             the data folder by a shorter path with --data (change into the folder above it, or make \
             a symbolic link)"
        )
    })
}
