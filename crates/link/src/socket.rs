//! Listening sockets on which bursts of clients or instances come.
//!
//! Not here: the addresses, and the thread that accepts.

use std::io;
use std::net::TcpListener;

use socket2::SockRef;

/// Connections that may wait to be accepted, as far as the system allows (net.core.somaxconn): a
/// thousand clients that come at once, or come back while nothing accepts, must not be left to
/// their retransmissions. The standard library asks for 128.
pub const BACKLOG: i32 = 4_096;

/// Listens, so that as many connections as possible may wait.
///
/// # Errors
/// When the system refuses it.
pub fn listen_widely(socket: &TcpListener) -> io::Result<()> {
    SockRef::from(socket).listen(BACKLOG)
}
