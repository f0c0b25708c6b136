//! Listeners and the threads that serve what they accept. Each I/O thread runs a current-thread
//! runtime of its own; accepted sockets go to them in turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use towline_admin::catalogue::{ACCEPT_FAILED, TLS_FAILED, TOO_MANY_CONNECTIONS};
use towline_node::Front;

use super::admission::{Admission, Place};
use super::connection::{ConnectionTask, Entrance};
use super::tls::TlsSettings;
use crate::door::Door;
use crate::identity::{Doorman, Peer};
use crate::logging::log;

/// Connections served before the sockets are asked again which of them have something: a busy
/// producer must not keep a consumer's credit waiting.
const EVENT_INTERVAL: u32 = 31;
/// Sockets that may wait for an I/O thread.
const ACCEPTED_MAX: usize = 1_024;

/// Where clients come in.
#[derive(Clone)]
pub(crate) struct ListenerKind {
    /// TLS, when the listener has it.
    pub tls: Option<TlsSettings>,
    /// Who may come in here, and how.
    pub doorman: Arc<Doorman>,
}

/// A socket that listens, not yet served.
pub(crate) enum Listening {
    /// TCP, perhaps with TLS.
    Tcp(std::net::TcpListener, ListenerKind),
    /// The local socket in the data folder.
    Local(std::os::unix::net::UnixListener, ListenerKind),
}

/// Binds a TCP listener; the address that it got is returned too.
pub(crate) fn bind(address: SocketAddr, kind: ListenerKind) -> io::Result<(Listening, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((Listening::Tcp(listener, kind), bound))
}

impl Listening {
    /// Binds the local socket; only this user may open it.
    pub(crate) fn local(path: &Path, kind: ListenerKind) -> io::Result<Listening> {
        // The lock on the data folder is ours, so a socket that is there is a dead one.
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Listening::Local(listener, kind))
    }
}

enum Accepted {
    Tcp(TcpAccepted),
    Local(std::os::unix::net::UnixStream, ListenerKind, Place),
}

struct TcpAccepted {
    socket: std::net::TcpStream,
    address: IpAddr,
    kind: ListenerKind,
    place: Place,
}

/// The threads that serve connections; they end with the process.
pub(crate) struct IoThreads {
    senders: Vec<mpsc::Sender<Accepted>>,
}

impl IoThreads {
    /// Starts `count` threads.
    pub(crate) fn start(count: usize, door: &Arc<Door>) -> io::Result<IoThreads> {
        let mut senders = Vec::new();
        for index in 0..count.max(1) {
            let (sender, receiver) = mpsc::channel(ACCEPTED_MAX);
            let door = Arc::clone(door);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .event_interval(EVENT_INTERVAL)
                .max_blocking_threads(4)
                .thread_keep_alive(Duration::from_secs(10))
                .build()?;
            std::thread::Builder::new().name(format!("io-{index}")).spawn(move || {
                runtime.block_on(LocalSet::new().run_until(serve(receiver, door)))
            })?;
            senders.push(sender);
        }
        Ok(IoThreads { senders })
    }

    /// Accepts on `listening` until the returned future is dropped.
    pub(crate) async fn accept(&self, listening: Listening, admission: Arc<Admission>) {
        let mut turn = 0_usize;
        let (tcp, local, kind) = match listening {
            Listening::Tcp(listener, kind) => (TcpListener::from_std(listener).ok(), None, kind),
            Listening::Local(listener, kind) => (None, UnixListener::from_std(listener).ok(), kind),
        };
        loop {
            let accepted = match (&tcp, &local) {
                (Some(listener), _) => accept_tcp(listener, &kind, &admission).await,
                (_, Some(listener)) => accept_local(listener, &kind, &admission).await,
                (None, None) => return,
            };
            match accepted {
                Ok(Some(accepted)) => {
                    turn = (turn + 1) % self.senders.len();
                    if let Some(sender) = self.senders.get(turn)
                        && sender.send(accepted).await.is_err()
                    {
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    // Most often no descriptor is left: accepting again at once would only spin.
                    log(&ACCEPT_FAILED, &[&error.to_string()]);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn accept_tcp(
    listener: &TcpListener,
    kind: &ListenerKind,
    admission: &Arc<Admission>,
) -> io::Result<Option<Accepted>> {
    let (socket, address) = listener.accept().await?;
    let Some(place) = admit(admission, Some(address.ip())) else { return Ok(None) };
    let socket = socket.into_std()?;
    let (kind, address) = (kind.clone(), address.ip());
    Ok(Some(Accepted::Tcp(TcpAccepted { socket, address, kind, place })))
}

async fn accept_local(
    listener: &UnixListener,
    kind: &ListenerKind,
    admission: &Arc<Admission>,
) -> io::Result<Option<Accepted>> {
    let (socket, _) = listener.accept().await?;
    let Some(place) = admit(admission, None) else { return Ok(None) };
    Ok(Some(Accepted::Local(socket.into_std()?, kind.clone(), place)))
}

fn admit(admission: &Arc<Admission>, address: Option<IpAddr>) -> Option<Place> {
    match admission.admit(address) {
        Ok(place) => Some(place),
        Err(limit) => {
            let from = address.map_or_else(|| "this machine".to_owned(), |from| from.to_string());
            log(&TOO_MANY_CONNECTIONS, &[&from, limit]);
            None
        }
    }
}

async fn serve(mut accepted: mpsc::Receiver<Accepted>, door: Arc<Door>) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            next = accepted.recv() => match next {
                Some(next) => { tasks.spawn_local(serve_one(next, Arc::clone(&door))); }
                None => break,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve_one(accepted: Accepted, door: Arc<Door>) {
    match accepted {
        Accepted::Tcp(accepted) => {
            if let Err(error) = serve_tcp(accepted, door).await {
                log(&ACCEPT_FAILED, &[&error.to_string()]);
            }
        }
        Accepted::Local(socket, kind, place) => match UnixStream::from_std(socket) {
            Ok(socket) => run(socket, Peer::Local, &kind, place, door).await,
            Err(error) => log(&ACCEPT_FAILED, &[&error.to_string()]),
        },
    }
}

async fn serve_tcp(accepted: TcpAccepted, door: Arc<Door>) -> io::Result<()> {
    let TcpAccepted { socket, address, kind, place } = accepted;
    let socket = TcpStream::from_std(socket)?;
    socket.set_nodelay(true)?;
    let Some(settings) = &kind.tls else {
        run(
            socket,
            Peer::Tcp { address, tls_identity: None, encrypted: false },
            &kind,
            place,
            door,
        )
        .await;
        return Ok(());
    };
    let handshake = TlsAcceptor::from(Arc::clone(settings)).accept(socket);
    let shaken = tokio::time::timeout(kind.doorman.login_timeout(), handshake).await;
    let socket = match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(socket) => socket,
        Err(error) => {
            log(&TLS_FAILED, &[&address.to_string(), &error.to_string()]);
            return Ok(());
        }
    };
    let tls_identity = crate::identity::certificate_name(socket.get_ref().1.peer_certificates());
    run(socket, Peer::Tcp { address, tls_identity, encrypted: true }, &kind, place, door).await;
    Ok(())
}

async fn run<S>(socket: S, peer: Peer, kind: &ListenerKind, place: Place, door: Arc<Door>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (id, outbox) = door.connect();
    let gate = kind.doorman.gate(&peer, door.clock());
    let front = Front::new(kind.doorman.front_options(&peer, &gate), door.clock().now());
    ConnectionTask::new(socket, front, id, Entrance { place, gate }, door, outbox).run().await;
}
