//! Handshakes that hosts began at a listening socket, within bounds: from accepting a connection to
//! TLS with a trusted peer at its other end.
//!
//! Any host that reaches the port can begin a handshake, so unfinished ones are bounded in number
//! and time. Streams are shaken hands with on their own thread: a thousand clients that come over
//! at once must not keep a heartbeat waiting. For that a connection says what it is for in the
//! first message of TLS.
//!
//! Not here: what is said once TLS stands, and which peer may say it (`incoming`, `region`).
//! Invariant: at most [`UNFINISHED_MAX`] handshakes of one socket are under way at a time.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use towline_admin::catalogue::ACCEPT_FAILED;

use super::identity::{ALPN_STREAM, TlsIdentity};
use super::slots::{Slot, Slots};
use super::socket::HANDSHAKE_MAX;
use towline_logging::log;
use towline_tls::reason;

/// Handshakes under way at once. For one more, the oldest of the address that has most is given up:
/// at once, so that no number of silent connections keeps a member waiting.
const UNFINISHED_MAX: usize = 256;
/// How long a peer that was refused has to read why.
const PARTING: Duration = Duration::from_secs(1);
/// Bytes that are read from it meanwhile, and thrown away.
const PARTING_BYTES_MAX: usize = 64 * 1024;
/// What a listening socket belongs to.
pub(super) trait LinkListener: Send + Sync + Sized + 'static {
    /// What it shows and trusts now.
    fn identity(&self) -> Arc<TlsIdentity>;

    /// The thread that serves streams.
    fn streams(&self) -> &Handle;

    /// Sets what a socket that was accepted needs.
    ///
    /// # Errors
    /// When the system refuses it.
    fn tune(&self, socket: &TcpStream) -> io::Result<()>;

    /// A connection from there was refused, or did not become one.
    fn refused(&self, from: IpAddr, why: &str);

    /// TLS stands; the slot is given back when it is dropped.
    fn greeted(
        self: Arc<Self>,
        stream: TlsStream<TcpStream>,
        slot: HandshakeSlot,
    ) -> impl Future<Output = ()> + Send;
}

/// A handshake's slot; given back when dropped.
pub(super) struct HandshakeSlot {
    slot: Slot,
    address: SocketAddr,
    deadline: Instant,
}

impl HandshakeSlot {
    /// Where the connection comes from.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Accepts until the runtime ends.
pub(super) async fn accept<L: LinkListener>(owner: Arc<L>, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return log(&ACCEPT_FAILED, &[&error.to_string()]),
    };
    let mut unfinished = Slots::new(UNFINISHED_MAX);
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let Some(slot) = unfinished.take(address.ip()).await else { return };
                let deadline = Instant::now() + HANDSHAKE_MAX;
                let slot = HandshakeSlot { slot, address, deadline };
                tokio::spawn(first_message(Arc::clone(&owner), socket, slot));
            }
            Err(error) => {
                // Most often no descriptor is left: accepting again at once would only spin.
                log(&ACCEPT_FAILED, &[&error.to_string()]);
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Runs a part of a handshake within its bounds.
pub(super) async fn bounded<T>(
    slot: &HandshakeSlot,
    part: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |what: &str| io::Error::new(io::ErrorKind::TimedOut, what.to_owned());
    tokio::select! {
        biased;
        done = timeout_at(slot.deadline, part) => {
            done.unwrap_or_else(|_| Err(late("the handshake took too long")))
        }
        () = slot.slot.evicted() => Err(late("too many handshakes of its address at once")),
    }
}

/// Reads the first message of TLS, which says which thread goes on.
async fn first_message<L: LinkListener>(listener: Arc<L>, socket: TcpStream, slot: HandshakeSlot) {
    let begun = async {
        listener.tune(&socket)?;
        LazyConfigAcceptor::new(rustls::server::Acceptor::default(), socket).await
    };
    let start = match bounded(&slot, begun).await {
        Ok(start) => start,
        Err(error) => return refuse(&*listener, &slot, &reason(&error)),
    };
    let for_stream = start.client_hello().alpn().is_some_and(|mut names| {
        // A client that names both is none of ours; the hello decides what it gets.
        names.any(|name| name == ALPN_STREAM)
    });
    if !for_stream {
        return shake_hands(listener, start, slot).await;
    }
    let accepted = start.accepted;
    let socket = start.io;
    let moved = socket.into_std();
    let streams = listener.streams().clone();
    streams.spawn(async move {
        match moved.and_then(TcpStream::from_std) {
            Ok(socket) => {
                let start = StartHandshake::from_parts(accepted, socket);
                shake_hands(listener, start, slot).await;
            }
            Err(error) => refuse(&*listener, &slot, &error.to_string()),
        }
    });
}

/// The connection does not come about.
pub(super) fn refuse(listener: &impl LinkListener, slot: &HandshakeSlot, why: &str) {
    listener.refused(slot.address.ip(), why);
}

/// Shakes hands over TLS.
async fn shake_hands<L: LinkListener>(
    listener: Arc<L>,
    start: StartHandshake<TcpStream>,
    slot: HandshakeSlot,
) {
    let config = Arc::clone(&listener.identity().server);
    let shaken = async { Ok(start.into_stream(config).into_fallible().await) };
    match bounded(&slot, shaken).await {
        Ok(Ok(stream)) => listener.greeted(stream, slot).await,
        Ok(Err((error, socket))) => {
            refuse(&*listener, &slot, &reason(&error));
            part_within(&slot, socket).await;
        }
        Err(error) => refuse(&*listener, &slot, &error.to_string()),
    }
}

/// As [`part`], as long as no other connection needs the slot.
pub(super) async fn part_within(slot: &HandshakeSlot, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let parting = async {
        part(stream).await;
        Ok(())
    };
    if let Err(error) = bounded(slot, parting).await {
        tracing::trace!(%error, "a peer that was refused did not wait for the end");
    }
}

/// Ends a connection so that the peer can read why: a socket that is closed with unread bytes in it
/// is reset, which may take back what the peer has not read.
pub async fn part(stream: impl AsyncRead + AsyncWrite + Unpin) {
    part_from(stream, PARTING_BYTES_MAX).await;
}

/// As [`part`], from a peer that is trusted and may have sent up to so many bytes.
pub(super) async fn part_from(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes_max: usize) {
    let parting = async {
        stream.shutdown().await?;
        let mut left = bytes_max;
        let mut thrown_away = vec![0; 16 * 1_024];
        while left > 0 {
            match stream.read(&mut thrown_away).await? {
                0 => break,
                bytes => left = left.saturating_sub(bytes),
            }
        }
        io::Result::Ok(())
    };
    match timeout(PARTING, parting).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::trace!(%error, "a peer did not wait for the end"),
    }
}
