//! Any instance takes clients: one that is not active passes their bytes to the one that is.
//!
//! A client waits until there is an active instance ([`Relay::find`]), then it is joined to a
//! stream to it, byte for byte ([`Relay::stay`]): TLS and AMQP are between the client and the
//! active instance.
//!
//! A relay follows the active: when the instance that it leads to is active no more, the client is
//! let go, for nothing of its connection can go on elsewhere, and an instance that hangs would keep
//! it for ever. One that has not spoken is joined to the new active instead. When a group has no
//! active instance, the client is not kept waiting longer than a fail-over takes.
//!
//! Not here: which instance is active; listeners and sockets of clients; what an AMQP byte means.
//!
//! Invariant: no byte of a client is read before it is joined, so nothing is lost when the active
//! changes meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::pipe::Pipe;
use super::{LinkStream, Links, Peer, StreamPurpose};

/// How long a client waits for an active instance that is known, or about to be.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a client waits, or stays with an instance that was active, while none is known: longer
/// than an election takes, and short enough for a client that has other addresses to try.
const NO_ACTIVE_MAX: Duration = Duration::from_millis(800);
/// Within this a client of a group without an active instance has its answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Login and close need the rest.
const _: () = assert!(NO_ACTIVE_MAX.as_millis() + 200 <= ANSWER_MAX.as_millis());
/// How long an instance that is active no more may be silent before its clients are let go: it
/// closes their connections itself in an orderly shutdown.
const FAREWELL: Duration = Duration::from_millis(600);
/// Before a stream that failed is tried again, while the same instance is said to be active.
const PAUSE: Duration = Duration::from_millis(50);
/// Handshakes with the active at once: when a thousand clients wait for it, the last one's
/// handshake should not begin before there is time for it.
const HANDSHAKES_MAX: usize = 16;

/// Where the active instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// This is it.
    Here,
    /// Another one.
    At(Peer),
    /// There is none, or it is not known.
    NoActive,
}

/// Takes clients to the active instance: one for all clients of this instance.
pub struct Relay {
    links: Arc<Links>,
    active: watch::Receiver<Where>,
    handshakes: Semaphore,
    /// The last attempt failed: one client at a time tries, for all.
    failing: AtomicBool,
    probe: Mutex<()>,
}

impl Relay {
    /// `active` says at any time where the active instance is.
    pub fn new(links: Arc<Links>, active: watch::Receiver<Where>) -> Relay {
        Relay {
            links,
            active,
            handshakes: Semaphore::new(HANDSHAKES_MAX),
            failing: AtomicBool::new(false),
            probe: Mutex::default(),
        }
    }

    /// The links that it uses.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Where the active instance is now.
    pub fn active(&self) -> Where {
        *self.active.borrow()
    }

    /// Joins a client to the stream until either ends, or the other end is active no more. True: it
    /// has not spoken, and can be joined anew. `close`: the frame that a client gets which is let
    /// go between two frames; `None` when its bytes cannot be looked into (TLS).
    ///
    /// # Errors
    /// When the client or the stream breaks.
    pub async fn stay(
        &self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        peer: Peer,
        mut stream: LinkStream,
        close: Option<&[u8]>,
    ) -> io::Result<bool> {
        let mut pipe = if close.is_some() { Pipe::watching_frames() } else { Pipe::default() };
        loop {
            tokio::select! {
                biased;
                joined = pipe.join(client, &mut stream) => return joined.map(|_| false),
                () = self.over(peer) => {}
            }
            if pipe.is_silent() {
                return Ok(true);
            }
            // It may be closing its clients' connections; while it speaks it is heard.
            if pipe.given_at().is_none_or(|at| at.elapsed() >= FAREWELL) {
                break;
            }
        }
        if let Some(close) = close.filter(|_| pipe.takes_a_frame()) {
            let farewell = async {
                client.write_all(close).await?;
                client.flush().await
            };
            // A client that does not read it in time goes without.
            tokio::time::timeout(FAREWELL, farewell).await.unwrap_or(Ok(()))?;
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
                Where::NoActive => Some(NO_ACTIVE_MAX),
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

    /// Waits until this instance is active, or a stream to the one that is stands. `is_hopeful`:
    /// whether the group has a leader, so that waiting makes sense although it does not serve yet.
    ///
    /// # Errors
    /// Why the client cannot be served anywhere.
    pub async fn find(
        &self,
        purpose: &StreamPurpose,
        is_hopeful: impl Fn() -> bool,
    ) -> Result<Route, String> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut active = self.active.clone();
        let mut why = "there was no active instance".to_owned();
        loop {
            let now = *active.borrow_and_update();
            let attempt = async {
                match now {
                    Where::Here => Ok(Route::Here),
                    Where::At(peer) => {
                        let opened = self.open(peer, purpose).await;
                        let found = opened.map(|stream| Route::There(peer, stream));
                        found.map_err(|error| error.to_string())
                    }
                    Where::NoActive => std::future::pending().await,
                }
            };
            let rest = match now {
                Where::NoActive => deadline.min(Instant::now() + NO_ACTIVE_MAX),
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
                    if Instant::now() >= deadline || !is_hopeful() {
                        return Err(why);
                    }
                }
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

/// Where a client is served.
pub enum Route {
    /// By this instance.
    Here,
    /// By another one, over this stream.
    There(Peer, LinkStream),
}
