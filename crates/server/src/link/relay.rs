//! Any instance takes clients: one that is not active brings them to the one that is.
//!
//! On this side ([`Reception::serve`]) a client that came in waits until there is an active instance,
//! then it is joined to a stream to it, byte for byte: TLS and AMQP are between the client and the
//! active. On the other side ([`Reception::relayed`]) the stream is served as if the client had come
//! to the same listener there. When this instance becomes active itself, clients that wait or come
//! are served here; nothing is bound anew.
//!
//! Not here: who is active; redirecting clients that ask for it (the active does, see `group::elsewhere`).
//! Any other relayed client stays where it is until it connects anew.
//!
//! Invariants: a client has its place (`Admission`) as long as it waits or is relayed; no byte of it
//! is read before it is joined, so nothing is lost when the active changes meanwhile.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use towline_admin::catalogue::{RELAY_ENDED, RELAY_REFUSED};

use super::hello::LOCAL_LISTENER;
use super::joint;
use super::{LinkStream, Links, Peer, StreamPurpose};
use crate::logging::log;
use crate::net::{
    Accepted, Acceptor, Admission, ClientSocket, IoThreads, ListenerKind, Listening, admit, called,
};

/// How long a client waits for an active instance.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Before a stream that failed is tried again, while the same instance is said to be active.
const PAUSE: Duration = Duration::from_millis(50);
/// Handshakes with the active at once: when a thousand clients wait for it, the last one's handshake
/// should not begin before there is time for it.
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
}

impl Here for IoThreads {
    async fn serve(&self, client: Accepted) {
        // They end with the process, and then nobody is served.
        IoThreads::serve(self, client).await;
    }
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
        let (failing, probe) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Reception { links, active, here, admission, handshakes, failing, probe })
    }

    /// Accepts on the listener number `listener` of the configuration (`None`: the local socket) until
    /// the returned future is dropped. Clients that were accepted before stay.
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

    /// Brings one client to the active instance, and stays with it.
    async fn bring(self: Arc<Self>, listener: u16, client: Accepted) {
        let address = client.address;
        let purpose = StreamPurpose::Relay { listener, client: address };
        let mut stream = match self.find(&purpose).await {
            Ok(Found::Here) => return self.here.serve(client).await,
            Ok(Found::There(stream)) => stream,
            Err(why) => return log(&RELAY_ENDED, &[&called(address), &why]),
        };
        let joined = match client.socket {
            ClientSocket::Tcp(socket) => match TcpStream::from_std(socket) {
                Ok(socket) => {
                    socket.set_nodelay(true).ok();
                    joined(socket, &mut stream).await
                }
                Err(error) => Err(error),
            },
            ClientSocket::Local { socket, .. } => match UnixStream::from_std(socket) {
                Ok(socket) => joined(socket, &mut stream).await,
                Err(error) => Err(error),
            },
            // A client is relayed once: an instance that is not active does not take the stream.
            ClientSocket::Relayed(socket) => joined(socket, &mut stream).await,
        };
        // Clients and instances come and go: for developers only.
        tracing::debug!(?joined, client = called(address), "a relayed client is gone");
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
                        opened.map(Found::There).map_err(|error| error.to_string())
                    }
                    Where::Nobody => std::future::pending().await,
                }
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
                () = sleep_until(deadline) => return Err(why),
            }
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
    There(LinkStream),
}

async fn joined(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    stream: &mut LinkStream,
) -> io::Result<[u64; 2]> {
    joint::join(&mut client, stream).await
}
