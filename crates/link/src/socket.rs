//! What the system is asked of sockets: listening ones, on which bursts of clients or instances
//! come, and those of links.
//!
//! Not here: the addresses, and the thread that accepts.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Until TLS and hello are done.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Bytes of frames that the system may hold and has not sent: what is in there cannot be overtaken.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;
/// The shortest time that the system takes between two probes of a silent connection.
const PROBE_EVERY: Duration = Duration::from_secs(1);

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

/// Has the system notice a dead network: silence, and with `longest` bytes without an answer for so
/// long. The latter ends a connection too if the other end takes nothing for that time, however
/// alive it is.
///
/// Buffers keep the sizes to which the system tunes them.
pub(super) fn tune(socket: &TcpStream, longest: Option<Duration>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let probes = TcpKeepalive::new().with_time(PROBE_EVERY).with_interval(PROBE_EVERY);
    socket.set_tcp_keepalive(&probes)?;
    socket.set_tcp_user_timeout(longest)
}

/// Has the system hold few bytes that it has not sent: what is urgent waits for no more of them.
pub(super) fn bound_unsent(socket: &TcpStream) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)
}
