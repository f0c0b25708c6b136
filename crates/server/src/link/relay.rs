//! Any instance takes clients: one that is not active brings them to the one that is.
//!
//! On this side ([`Reception::serve`]) a client that came in waits until there is an active
//! instance, then it is joined to a stream to it, byte for byte: TLS and AMQP are between the
//! client and the active. On the other side ([`Reception::relayed`]) the stream is served as if the
//! client had come to the same listener there. When this instance becomes active itself, clients
//! that wait or come are served here; nothing is bound anew.
//!
//! A relay follows the active: when the instance that it leads to is active no more, the client is
//! let go, for nothing of its connection can go on elsewhere, and an instance that hangs would keep
//! it for ever. One that has not spoken is joined to the new active instead. When a group has no
//! active instance, the client is not kept waiting longer than a fail-over takes: it is informed
//! ([`Here::turn_away`]), and can try another address.
//!
//! Not here: who is active; redirecting clients that ask for it (the active does, see
//! `group::elsewhere`).
//!
//! Invariants: a client has its place (`Admission`) as long as it waits or is relayed; no byte of
//! it is read before it is joined, so nothing is lost when the active changes meanwhile.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use towline_admin::catalogue::{RELAY_ENDED, RELAY_REFUSED};

use super::hello::LOCAL_LISTENER;
use super::joint::Joint;
use super::{LinkStream, Links, Peer, StreamPurpose, Throttle, boundary, incoming};
use crate::net::{
    Accepted, Acceptor, Admission, ClientSocket, ListenerKind, Listening, admit, called,
};
use towline_logging::log;

/// How long a client waits for an active instance that is known, or about to be.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a client waits, or stays with an instance that was active, while none is known: longer
/// than an election takes, and short enough for a client that has other addresses to try.
const NOBODY_MAX: Duration = Duration::from_millis(800);
/// Within this a client of a group without an active instance has its answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Login and close need the rest.
const _: () = assert!(NOBODY_MAX.as_millis() + 200 <= ANSWER_MAX.as_millis());
/// How long an instance that is active no more may be silent before its clients are let go: it
/// tells them itself when it goes in order.
const FAREWELL: Duration = Duration::from_millis(600);
/// Before a stream that failed is tried again, while the same instance is said to be active.
const PAUSE: Duration = Duration::from_millis(50);
/// Handshakes with the active at once: when a thousand clients wait for it, the last one's
/// handshake should not begin before there is time for it.
const HANDSHAKES_MAX: usize = 16;

/// Where the active instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// This is it.
    Here,
    /// Another one.
    At(Peer),
    /// There is none, or it is not known.
    Nobody,
}

/// Who serves clients on this instance while it is active.
pub(crate) trait Here: Send + Sync + 'static {
    /// Serves a client to its end, elsewhere; returns when it has been handed over.
    fn serve(&self, client: Accepted) -> impl Future<Output = ()> + Send;

    /// Tells a client, after its login, that no instance serves it here now, and why; the same.
    fn turn_away(&self, client: Accepted) -> impl Future<Output = ()> + Send;

    /// Whether the group has a leader, so that waiting makes sense although it does not serve yet.
    fn is_hopeful(&self) -> bool;
}

/// Takes clients wherever the active instance is.
pub(crate) struct Reception<H> {
    links: Arc<Links>,
    active: watch::Receiver<Where>,
    here: Arc<H>,
    admission: Arc<Admission>,
    handshakes: Semaphore,
    /// The last attempt failed: one client at a time tries, for all.
    failing: AtomicBool,
    probe: Mutex<()>,
    /// Of clients that were let go.
    told: Throttle,
}

impl<H: Here> Reception<H> {
    /// `active` says at any time where the active instance is; `here` serves when it is this one.
    pub(crate) fn new(
        links: Arc<Links>,
        active: watch::Receiver<Where>,
        here: Arc<H>,
        admission: Arc<Admission>,
    ) -> Arc<Reception<H>> {
        let handshakes = Semaphore::new(HANDSHAKES_MAX);
        Arc::new(Reception {
            links,
            active,
            here,
            admission,
            handshakes,
            failing: AtomicBool::new(false),
            probe: Mutex::default(),
            told: Throttle::default(),
        })
    }

    /// Accepts on the listener number `listener` of the configuration (`None`: the local socket)
    /// until the returned future is dropped. Clients that were accepted before stay.
    pub(crate) async fn serve(self: Arc<Self>, listener: Option<u16>, listening: Listening) {
        let Some(mut acceptor) = Acceptor::new(listening) else { return };
        loop {
            let mut client = acceptor.next(&self.admission).await;
            let active = *self.active.borrow();
            if active == Where::Here {
                self.here.serve(client).await;
                continue;
            }
            // It does not log in here: the active watches that, and counts it there.
            client.place.passed_on();
            let bring = Arc::clone(&self).bring(listener.unwrap_or(LOCAL_LISTENER), client);
            self.links.streams().spawn(bring);
        }
    }

    /// Serves a client that another instance relayed to this one. `kinds` are the listeners of the
    /// configuration in their order, `local` the local socket. Called from `Inbox::stream`.
    pub(crate) async fn relayed(
        &self,
        kinds: &[ListenerKind],
        local: &ListenerKind,
        from: Peer,
        (listener, address): (u16, Option<IpAddr>),
        stream: LinkStream,
    ) {
        let refuse = |why: &str| {
            log(&RELAY_REFUSED, &[&called(address), self.links.name(from), why]);
        };
        let kind = match address {
            None => (listener == LOCAL_LISTENER).then_some(local),
            Some(_) => kinds.get(usize::from(listener)),
        };
        let Some(kind) = kind else {
            return refuse("there is no such listener here");
        };
        if address.is_some_and(|address| !address.is_loopback()) && kind.doorman.only_loopback() {
            // It may trust whoever comes, because only this machine can.
            return refuse("the listener here is on loopback, and the client is not");
        }
        let Some(place) = admit(&self.admission, address).await else { return };
        let socket = ClientSocket::Relayed(stream);
        self.here.serve(Accepted { socket, address, kind: kind.clone(), place }).await;
    }

    /// Brings one client to the active instance, and stays with it as long as it is active.
    async fn bring(self: Arc<Self>, listener: u16, mut client: Accepted) {
        let address = client.address;
        let purpose = StreamPurpose::Relay { listener, client: address };
        loop {
            let (peer, stream) = match self.find(&purpose).await {
                Ok(Found::Here) => return self.here.serve(client).await,
                Ok(Found::There(peer, stream)) => (peer, stream),
                Err(why) => {
                    self.tell(&called(address), &why);
                    return self.here.turn_away(client).await;
                }
            };
            let plain = client.kind.tls.is_none();
            let Accepted { socket, address, kind, place } = client;
            let left = match socket {
                ClientSocket::Tcp(socket) => self.with_tcp(socket, (peer, stream), plain).await,
                ClientSocket::Local { socket, owner } => {
                    self.with_local((socket, owner), (peer, stream)).await
                }
                // A client is relayed once: an instance that is not active does not take the
                // stream.
                ClientSocket::Relayed(_) => return,
            };
            match left {
                Ok(Some(socket)) => client = Accepted { socket, address, kind, place },
                // Clients and instances come and go: for developers only.
                left => {
                    let client = called(address);
                    return tracing::debug!(error = ?left.err(), client, "a relayed client is gone");
                }
            }
        }
    }

    async fn with_tcp(
        &self,
        socket: std::net::TcpStream,
        to: (Peer, LinkStream),
        plain: bool,
    ) -> io::Result<Option<ClientSocket>> {
        let mut socket = TcpStream::from_std(socket)?;
        socket.set_nodelay(true).ok();
        if self.stay(&mut socket, to, plain).await? {
            return Ok(Some(ClientSocket::Tcp(socket.into_std()?)));
        }
        incoming::part(socket).await;
        Ok(None)
    }

    async fn with_local(
        &self,
        (socket, owner): (std::os::unix::net::UnixStream, bool),
        to: (Peer, LinkStream),
    ) -> io::Result<Option<ClientSocket>> {
        let mut socket = UnixStream::from_std(socket)?;
        if self.stay(&mut socket, to, true).await? {
            return Ok(Some(ClientSocket::Local { socket: socket.into_std()?, owner }));
        }
        incoming::part(socket).await;
        Ok(None)
    }

    /// Joins a client to the stream until either ends, or the other end is active no more. True: it
    /// has not spoken, and can be joined anew. `plain`: its bytes are AMQP, not TLS.
    async fn stay(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        (peer, mut stream): (Peer, LinkStream),
        plain: bool,
    ) -> io::Result<bool> {
        let mut joint = if plain { Joint::watching_frames() } else { Joint::default() };
        loop {
            tokio::select! {
                biased;
                joined = joint.join(client, &mut stream) => return joined.map(|_| false),
                () = self.over(peer) => {}
            }
            if joint.is_silent() {
                return Ok(true);
            }
            // It may be telling its clients; while it speaks it is heard.
            if joint.given_at().is_none_or(|at| at.elapsed() >= FAREWELL) {
                break;
            }
        }
        if joint.takes_a_frame() {
            let why = "the instance that served this connection is active no more";
            let told = async {
                client.write_all(&boundary::close(why)).await?;
                client.flush().await
            };
            tokio::time::timeout(FAREWELL, told).await.unwrap_or(Ok(()))?;
        }
        Ok(false)
    }

    /// Comes back when this instance has not been the active one for a while, as far as is known.
    async fn over(&self, peer: Peer) {
        let mut active = self.active.clone();
        loop {
            let now = *active.borrow_and_update();
            let rest = match now {
                Where::At(at) if at == peer => None,
                Where::At(_) | Where::Here => Some(FAREWELL),
                Where::Nobody => Some(NOBODY_MAX),
            };
            let rested = async {
                match rest {
                    Some(rest) => sleep(rest).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = active.changed() => if changed.is_err() {
                    // This process ends, and its clients with it.
                    return std::future::pending().await;
                },
                () = rested => return,
            }
        }
    }

    /// Waits until this instance is active, or a stream to the one that is stands.
    async fn find(&self, purpose: &StreamPurpose) -> Result<Found, String> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut active = self.active.clone();
        let mut why = "there was no active instance".to_owned();
        loop {
            let now = *active.borrow_and_update();
            let attempt = async {
                match now {
                    Where::Here => Ok(Found::Here),
                    Where::At(peer) => {
                        let opened = self.open(peer, purpose).await;
                        let found = opened.map(|stream| Found::There(peer, stream));
                        found.map_err(|error| error.to_string())
                    }
                    Where::Nobody => std::future::pending().await,
                }
            };
            let rest = match now {
                Where::Nobody => deadline.min(Instant::now() + NOBODY_MAX),
                Where::Here | Where::At(_) => deadline,
            };
            tokio::select! {
                biased;
                changed = active.changed() => {
                    changed.map_err(|_| "this instance ends".to_owned())?;
                    continue;
                }
                found = attempt => match found {
                    Ok(found) => return Ok(found),
                    Err(error) => why = error,
                },
                () = sleep_until(rest) => {
                    if Instant::now() >= deadline || !self.here.is_hopeful() {
                        return Err(why);
                    }
                }
            }
        }
    }

    /// A client was let go: told once a minute for each reason, for all of them come again.
    fn tell(&self, client: &str, why: &str) {
        if self.told.passes(why, std::time::Instant::now()).is_some() {
            log(&RELAY_ENDED, &[client, why]);
        }
    }

    /// One attempt. After one that failed there is a pause, and only one client at a time tries: a
    /// thousand that wait must not spend the time of the instance that is about to become active.
    async fn open(&self, peer: Peer, purpose: &StreamPurpose) -> io::Result<LinkStream> {
        let turn = self.handshakes.acquire().await.map_err(io::Error::other)?;
        let mut probe = None;
        if self.failing.load(Ordering::Relaxed) {
            probe = Some(self.probe.lock().await);
            if !self.failing.load(Ordering::Relaxed) {
                probe = None;
            }
        }
        let opened = self.links.open_stream(peer, purpose.clone()).await;
        self.failing.store(opened.is_err(), Ordering::Relaxed);
        if opened.is_err() {
            sleep(PAUSE).await;
        }
        drop((turn, probe));
        opened
    }
}

enum Found {
    Here,
    There(Peer, LinkStream),
}
