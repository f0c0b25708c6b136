//! Listeners and the threads that serve what they accept. Each I/O thread runs a current-thread
//! runtime of its own; accepted sockets go to them in turn.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio_rustls::TlsAcceptor;
use towline_admin::catalogue::{
    ACCEPT_FAILED, CONNECTION_STALLED, LOCAL_REFUSED, LOGIN_GAVE_WAY, TLS_FAILED,
    TOO_MANY_CONNECTIONS,
};
use towline_amqp::codec::OwnedValue;
use towline_node::{Elsewhere, Front, FrontOptions};

use super::admission::{Admission, AdmissionAnswer, ConnectionSlot};
use super::away::Away;
use super::connection::{ConnectionTask, End, EnteringClient};
use super::local::{LocalAccess, LocalRight};
use super::pace::Paces;
use super::tls::TlsSettings;
use super::turn;
use crate::group::ListenerAddresses;
use towline_access::{LoginPolicy, Peer};
use towline_engine::Door;
use towline_engine::defaults::DEFAULT_DYNAMIC_MODEL;
use towline_link::{BACKLOG, LinkStream, listen_widely};
use towline_logging::{log, log_seldom};
use towline_process::Clock;

/// Sockets that may wait for an I/O thread.
const ACCEPTED_MAX: usize = 1_024;

/// Where clients come in.
#[derive(Clone)]
pub(crate) struct ListenerKind {
    /// TLS, when the listener has it.
    pub tls: Option<TlsSettings>,
    /// Which clients may log in here, and how.
    pub policy: Arc<LoginPolicy>,
    /// Where a client that was relayed to here finds the same listener directly, if it asks for
    /// that.
    pub elsewhere: Option<Arc<Elsewhere>>,
    /// Where else clients of this listener find the queue manager; none: that is asked nowhere.
    pub addresses: Option<ListenerAddresses>,
}

impl ListenerKind {
    /// What the open frame of a connection says of that, at this moment.
    fn servers(&self) -> Option<OwnedValue> {
        self.addresses.as_ref().and_then(ListenerAddresses::list)
    }
}

/// A socket that listens, not yet served.
pub(crate) enum Listening {
    /// TCP, perhaps with TLS.
    Tcp(std::net::TcpListener, ListenerKind),
    /// The local socket in the data folder.
    Local(std::os::unix::net::UnixListener, ListenerKind, LocalAccess),
}

/// Binds a TCP listener to an address that may come and go (IP_FREEBIND).
pub(crate) fn bind_floating(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // As the standard library does: connections of the process before this one may still be ending.
    socket.set_reuse_address(true)?;
    if address.is_ipv4() {
        socket.set_freebind_v4(true)?;
    } else {
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl Listening {
    /// Of a TCP listener; the address that it got is returned too.
    pub(crate) fn tcp(
        listener: std::net::TcpListener,
        kind: ListenerKind,
    ) -> io::Result<(Listening, SocketAddr)> {
        listener.set_nonblocking(true)?;
        listen_widely(&listener)?;
        let bound = listener.local_addr()?;
        Ok((Listening::Tcp(listener, kind), bound))
    }

    /// TLS, and which clients may log in.
    pub(crate) fn kind(&self) -> &ListenerKind {
        match self {
            Listening::Tcp(_, kind) | Listening::Local(_, kind, _) => kind,
        }
    }

    /// Where else its clients find the queue manager.
    pub(crate) fn set_addresses(&mut self, addresses: ListenerAddresses) {
        let (Listening::Tcp(_, kind) | Listening::Local(_, kind, _)) = self;
        kind.addresses = Some(addresses);
    }

    /// The address that it got; `None` for the local socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Listening::Tcp(listener, _) => listener.local_addr().ok(),
            Listening::Local(..) => None,
        }
    }

    /// Binds the local socket, open to the users in `access`.
    pub(crate) fn local(
        path: &Path,
        kind: ListenerKind,
        access: LocalAccess,
    ) -> io::Result<Listening> {
        // The lock on the data folder is ours, so a socket that is there is a dead one.
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        access.open_to(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listening::Local(listener, kind, access))
    }
}

/// A client that came in and is not served yet.
pub(crate) struct AcceptedClient {
    pub(crate) socket: ClientSocket,
    /// From where; `None` on the local socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) kind: ListenerKind,
    pub(crate) place: ConnectionSlot,
}

/// How a client's bytes come.
pub(crate) enum ClientSocket {
    /// Directly.
    Tcp(std::net::TcpStream),
    /// On the local socket.
    Local {
        /// The socket.
        socket: std::os::unix::net::UnixStream,
        /// It is the user that runs this process, or root.
        owner: bool,
    },
    /// From another instance of the group, to which the client came.
    Relayed(LinkStream),
}

/// What serves a connection.
#[derive(Clone)]
enum Host {
    /// The instance.
    Door(Arc<Door>),
    /// No instance is active; clients wait for one.
    Away(Arc<Away>),
}

impl Host {
    fn clock(&self) -> Clock {
        match self {
            Host::Door(door) => door.clock(),
            Host::Away(away) => away.clock,
        }
    }
}

/// What a connection finds in its thread.
#[derive(Clone)]
struct ServingThread {
    host: Host,
    paces: Rc<Paces>,
}

/// The threads that serve connections; they end with the process.
pub(crate) struct IoThreads {
    senders: Vec<mpsc::Sender<AcceptedClient>>,
    turn: AtomicUsize,
}

impl IoThreads {
    /// Starts `count` threads.
    pub(crate) fn start(count: usize, door: &Arc<Door>) -> io::Result<IoThreads> {
        IoThreads::of(count, "io", &Host::Door(Arc::clone(door)))
    }

    /// Starts one that turns clients away.
    pub(crate) fn turning_away(away: Away) -> io::Result<IoThreads> {
        IoThreads::of(1, "away", &Host::Away(Arc::new(away)))
    }

    fn of(count: usize, name: &str, host: &Host) -> io::Result<IoThreads> {
        let mut senders = Vec::new();
        for index in 0..count.max(1) {
            let (sender, receiver) = mpsc::channel(ACCEPTED_MAX);
            let host = host.clone();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(4)
                .thread_keep_alive(Duration::from_secs(10))
                .build()?;
            std::thread::Builder::new().name(format!("{name}-{index}")).spawn(move || {
                runtime.block_on(LocalSet::new().run_until(serve(receiver, host)))
            })?;
            senders.push(sender);
        }
        Ok(IoThreads { senders, turn: AtomicUsize::new(0) })
    }

    /// Accepts on `listening` until the returned future is dropped.
    pub(crate) async fn accept(&self, listening: Listening, admission: Arc<Admission>) {
        let Some(mut acceptor) = Acceptor::new(listening) else { return };
        loop {
            let accepted = acceptor.next(&admission).await;
            if !self.serve(accepted).await {
                return;
            }
        }
    }

    /// Serves a client on the next thread. False when the threads are gone.
    pub(crate) async fn serve(&self, accepted: AcceptedClient) -> bool {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        match self.senders.get(turn) {
            Some(sender) => sender.send(accepted).await.is_ok(),
            None => false,
        }
    }
}

/// Takes clients from one socket.
pub(crate) struct Acceptor {
    socket: AcceptingSocket,
    kind: ListenerKind,
    /// Clients that wait for a slot.
    waiting: JoinSet<Option<AcceptedClient>>,
}

enum AcceptingSocket {
    Tcp(TcpListener),
    Local(UnixListener, LocalAccess),
}

impl Acceptor {
    /// Gives the socket to the runtime in which it is called; `None` when that does not take it.
    pub(crate) fn new(listening: Listening) -> Option<Acceptor> {
        let (socket, kind) = match listening {
            Listening::Tcp(listener, kind) => {
                (TcpListener::from_std(listener).map(AcceptingSocket::Tcp), kind)
            }
            Listening::Local(listener, kind, access) => {
                let socket = UnixListener::from_std(listener);
                (socket.map(|socket| AcceptingSocket::Local(socket, access)), kind)
            }
        };
        match socket {
            Ok(socket) => Some(Acceptor { socket, kind, waiting: JoinSet::new() }),
            Err(error) => {
                log(&ACCEPT_FAILED, &[&error.to_string()]);
                None
            }
        }
    }

    /// The next client that has a slot.
    pub(crate) async fn next(&mut self, admission: &Arc<Admission>) -> AcceptedClient {
        loop {
            let came = tokio::select! {
                came = self.socket.accept() => came,
                Some(waited) = self.waiting.join_next() => match waited {
                    Ok(Some(accepted)) => return accepted,
                    Ok(None) | Err(_) => continue,
                },
            };
            match came {
                Ok(Some((socket, address))) => {
                    if let Some(accepted) = self.admit(admission, socket, address) {
                        return accepted;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    // Most often no descriptor is left: accepting again at once would only spin.
                    log_seldom(&ACCEPT_FAILED, &[&error.to_string()]);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// A client that may come in now; one that must wait does so elsewhere.
    fn admit(
        &mut self,
        admission: &Arc<Admission>,
        socket: ClientSocket,
        address: Option<IpAddr>,
    ) -> Option<AcceptedClient> {
        let kind = self.kind.clone();
        match admission.admit(address) {
            Ok(AdmissionAnswer::Now(place)) => {
                Some(AcceptedClient { socket, address, kind, place })
            }
            Ok(AdmissionAnswer::Later(waiting)) => {
                self.waiting.spawn(async move {
                    let place = waiting.place().await?;
                    Some(AcceptedClient { socket, address, kind, place })
                });
                None
            }
            Err(limit) => {
                refused(address, limit);
                None
            }
        }
    }
}

impl AcceptingSocket {
    /// A client that came; `None` when it may not.
    async fn accept(&self) -> io::Result<Option<(ClientSocket, Option<IpAddr>)>> {
        match self {
            AcceptingSocket::Tcp(listener) => {
                let (socket, address) = listener.accept().await?;
                Ok(Some((ClientSocket::Tcp(socket.into_std()?), Some(address.ip()))))
            }
            AcceptingSocket::Local(listener, access) => {
                let (socket, _) = listener.accept().await?;
                let uid = socket.peer_cred()?.uid();
                let right = access.right_of(uid);
                if right == LocalRight::None {
                    log_seldom(&LOCAL_REFUSED, &[&uid.to_string()]);
                    return Ok(None);
                }
                let (socket, owner) = (socket.into_std()?, right == LocalRight::Owner);
                Ok(Some((ClientSocket::Local { socket, owner }, None)))
            }
        }
    }
}

/// Waits for a slot for a client from `address` (`None`: the local socket); reports when there is
/// none.
pub(crate) async fn admit(
    admission: &Arc<Admission>,
    address: Option<IpAddr>,
) -> Option<ConnectionSlot> {
    match admission.admit(address) {
        Ok(AdmissionAnswer::Now(place)) => Some(place),
        Ok(AdmissionAnswer::Later(waiting)) => waiting.place().await,
        Err(limit) => {
            refused(address, limit);
            None
        }
    }
}

fn refused(address: Option<IpAddr>, limit: &str) {
    log_seldom(&TOO_MANY_CONNECTIONS, &[&called(address), limit]);
}

/// A client's address, for people.
pub(crate) fn called(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "this machine".to_owned(), |from| from.to_string())
}

async fn serve(mut accepted: mpsc::Receiver<AcceptedClient>, host: Host) {
    let thread = ServingThread { host, paces: Rc::default() };
    let paces = Rc::clone(&thread.paces);
    tokio::task::spawn_local(async move { paces.run().await });
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            next = accepted.recv() => match next {
                Some(next) => { tasks.spawn_local(serve_one(next, thread.clone())); }
                None => break,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn serve_one(accepted: AcceptedClient, thread: ServingThread) {
    let AcceptedClient { socket, address, mut kind, mut place } = accepted;
    // However many clients come, an administrator gets in, also through another instance.
    if !place.is_local() {
        place.waits_for_turn();
        thread.paces.arrivals.turn().await;
        place.has_turn();
    }
    if !matches!(socket, ClientSocket::Relayed(_)) {
        // It has come to where it would be sent.
        kind.elsewhere = None;
    }
    let served = match socket {
        ClientSocket::Tcp(socket) => match TcpStream::from_std(socket) {
            Ok(socket) => {
                let tuned = socket.set_nodelay(true);
                if tuned.is_ok() {
                    enter(socket, (address, false), kind, place, thread).await;
                }
                tuned
            }
            Err(error) => Err(error),
        },
        ClientSocket::Local { socket, owner } => match UnixStream::from_std(socket) {
            Ok(socket) => {
                enter(socket, (address, owner), kind, place, thread).await;
                Ok(())
            }
            Err(error) => Err(error),
        },
        // From the local socket of another machine: its user owns nothing here.
        ClientSocket::Relayed(mut stream) => {
            let settled = stream.settle();
            if settled.is_ok() {
                enter(stream, (address, false), kind, place, thread).await;
            }
            settled
        }
    };
    if let Err(error) = served {
        log_seldom(&ACCEPT_FAILED, &[&error.to_string()]);
    }
}

/// Shakes hands in TLS if the listener has it, then serves the client to its end.
async fn enter<S>(
    socket: S,
    (address, owner): (Option<IpAddr>, bool),
    kind: ListenerKind,
    mut place: ConnectionSlot,
    thread: ServingThread,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(address) = address else {
        return run(socket, Peer::Local { owner }, &kind, place, thread).await;
    };
    let Some(tls) = &kind.tls else {
        let peer = Peer::Tcp { address, tls_identity: None, encrypted: false };
        return run(socket, peer, &kind, place, thread).await;
    };
    let handshake = TlsAcceptor::from(tls.current()).accept(socket);
    let clock = thread.host.clock();
    let handshake = turn::in_turns(&thread.paces.line, || clock.now(), handshake);
    let handshake = tokio::time::timeout(kind.policy.login_timeout(), handshake);
    let gives_way = std::future::poll_fn(|context| match place.poll_gives_way(context) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = gives_way => return gave_way(address),
    };
    let socket = match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
        Ok(socket) => socket,
        Err(error) => return log_seldom(&TLS_FAILED, &[&address.to_string(), &error.to_string()]),
    };
    let tls_identity = towline_tls::common_name(socket.get_ref().1.peer_certificates());
    run(socket, Peer::Tcp { address, tls_identity, encrypted: true }, &kind, place, thread).await;
}

fn gave_way(address: IpAddr) {
    log_seldom(&LOGIN_GAVE_WAY, &[&address.to_string()]);
}

async fn run<S>(
    socket: S,
    peer: Peer,
    kind: &ListenerKind,
    place: ConnectionSlot,
    thread: ServingThread,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ServingThread { host, paces } = thread;
    let door = match host {
        Host::Door(door) => door,
        Host::Away(away) => {
            let gate = kind.policy.gate(&peer, away.clock);
            let options = kind.policy.front_options(&peer, &gate, DEFAULT_DYNAMIC_MODEL);
            let options = FrontOptions { servers: kind.servers(), ..options };
            // It counts until it is gone.
            let listener = kind.addresses.as_ref().map(|addresses| addresses.listener);
            let about = (listener, kind.policy.login_timeout());
            return away.tell(socket, (options, gate), about, place).await;
        }
    };
    let (id, outbox) = door.connect();
    let gate = kind.policy.gate(&peer, door.clock());
    let options = kind.policy.front_options(&peer, &gate, DEFAULT_DYNAMIC_MODEL);
    let (elsewhere, servers) = (kind.elsewhere.clone(), kind.servers());
    let options = FrontOptions { elsewhere, servers, ..options };
    let front = Front::new(options, door.clock().now());
    let entrance = EnteringClient { place, gate, paces };
    let task = ConnectionTask::new(socket, front, id, entrance, door, outbox);
    let address = match peer {
        Peer::Tcp { address, .. } => Some(address),
        Peer::Local { .. } => None,
    };
    match (task.run().await, address) {
        (End::GaveWay, Some(address)) => gave_way(address),
        (End::StoodStill, _) => log_seldom(&CONNECTION_STALLED, &[&called(address)]),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
