//! Links between the instances of a group: frames in order, streams of their own, all inside mutual
//! TLS.
//!
//! Each instance dials each other one and *sends* on that connection; what it accepts it *reads*.
//! So there are two connections for frames between two instances, and one more for each relayed
//! client and each copy. Reading order: `hello` and `frame` (the bytes), `identity` and `names`
//! (the trusted peers), `queue` (what waits to be sent), `dial`, `outgoing`, `incoming`, `patience`
//! (the connections), `stream`, `tickets`, `statistics`; then `relay`, `pipe` and `boundary`, which
//! carry clients to the active instance; and `region`, the link to another region.
//!
//! Not here: what a frame means, which instance is active (`group`), what an AMQP byte means.
//!
//! Invariants: an instance that cannot show a certificate of the group with its own name gets
//! nothing past `hello`; a wrong frame ends its connection, never the process; frames of one peer
//! and one urgency arrive in order and without gaps while a connection lasts.

#![forbid(unsafe_code)]

mod ask;
mod boundary;
mod connections;
mod dial;
mod frame;
mod handshakes;
mod hello;
mod identity;
mod incoming;
mod known;
mod names;
mod outgoing;
mod patience;
mod pipe;
mod queue;
mod reading;
mod region;
mod relay;
mod rotation;
pub mod scratch;
mod settings;
mod slots;
mod socket;
mod statistics;
mod stream;
mod terms;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "only tests use it")]
pub mod testing;
#[cfg(test)]
mod tests;
mod text;
mod threads;
mod throttle;
mod tickets;
mod turn;
mod versions;
mod writing;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use towline_admin::catalogue::LINK_REFUSED;
use towline_group::Start;
use towline_types::FormatLevels;

pub use ask::{Asker, MemberAnswer, ask};
pub use connections::{Connections, OpeningStream};
pub use frame::{BODY_BYTES_MAX, FrameBody, FrameCost, OWN_KINDS};
pub use handshakes::part;
pub use hello::{Greeting, LOCAL_LISTENER, Standing, StreamPurpose};
pub use identity::{IdentityFiles, check, check_region, expires};
pub use known::StartsReport;
pub use region::{
    Intake, LinkId, OpeningCopy, RegionConnection, RegionDialler, RegionHello, RegionInbox,
    RegionLink, RegionLinkState, RegionLinks, RegionSections, RegionSettings, Retries, RetryPhase,
};
pub use relay::{Relay, Route, Where};
pub use settings::{LinkSettings, bind};
pub use slots::{Slot, Slots};
pub use socket::{BACKLOG, listen_widely};
pub use statistics::LinkState;
pub use stream::LinkStream;
pub use terms::{INTERVAL, TERMS_BYTES_MAX, TIMEOUT, Terms};
pub use throttle::Throttle;

use identity::TlsIdentity;
use queue::Queue;
use rotation::RotatingIdentity;
use statistics::LinkCounters;
use threads::LinkThreads;
use towline_logging::log;
use turn::IncomingTurn;

/// Position in the list of members, which is ordered by name.
pub type Peer = usize;

/// The receiver of what comes over the links. All but `standing` are called on a thread of the
/// links, so they must be quick and must not wait.
pub trait Inbox: Send + Sync + 'static {
    /// Where this instance is in the log; sent to a peer with each hello. Called on any thread.
    fn standing(&self) -> Standing;

    /// The format level of the log of this instance, and the newest that it reads; sent to a peer
    /// with each hello, and compared with what that says. Called on any thread.
    fn levels(&self) -> FormatLevels;

    /// What this instance knows of starts, as each hello says. Called on any thread.
    fn known(&self, peer: Peer) -> StartsReport;

    /// A connection for frames is about to stand, and this is what the peer said with it.
    ///
    /// # Errors
    /// Why it may not stand: the peer gets the reason, if it dialled.
    fn greets(&self, peer: Peer, greeting: &Greeting) -> Result<(), String>;

    /// The peer knows all that was noted of it here, and this is its start: nothing else of what
    /// comes on the connection is passed on before this returns. May wait for the disk, so it is
    /// called on a thread of its own.
    ///
    /// # Errors
    /// Why it cannot be kept: the connection ends.
    fn declared(&self, peer: Peer, start: Start) -> Result<(), String>;

    /// A connection for frames stands, and this is what the peer said of itself. `incoming`: it
    /// dialled, we read; else we dialled, and `Links::send` takes frames for it from now on.
    fn opened(&self, peer: Peer, incoming: bool, greeting: &Greeting);

    /// Such a connection ended: at once when the peer's process died. Once for each that was
    /// opened.
    fn closed(&self, peer: Peer, incoming: bool);

    /// A frame arrived, whole and checked; in order for each peer and urgency. Its body has at most
    /// [`BODY_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// Why it cannot be of that peer: the connection ends.
    fn frame(&self, peer: Peer, kind: u8, body: Bytes) -> Result<(), String>;

    /// Whether a stream is taken; the peer gets the reason if not.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, peer: Peer, purpose: &StreamPurpose) -> Result<(), String>;

    /// A stream stands. It belongs to the runtime of [`Links::streams`]; a caller that serves it
    /// elsewhere calls [`LinkStream::settle`] there.
    fn stream(&self, peer: Peer, purpose: StreamPurpose, stream: LinkStream);
}

/// Why the links cannot start.
#[derive(Debug)]
pub enum LinkError {
    /// Certificate, key or authorities cannot be used.
    Identity(String),
    /// The operating system refused a thread or a socket.
    System(io::Error),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::Identity(why) => out.write_str(why),
            LinkError::System(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// What all connections share.
struct Shared {
    settings: LinkSettings,
    inbox: Arc<dyn Inbox>,
    identity: Arc<RotatingIdentity>,
    /// One for each member; this instance's own is never used.
    lanes: Vec<Lane>,
    /// Zero of the times that pings carry.
    began: Instant,
    /// Of connections that were refused.
    refusals: Throttle,
    streams: Handle,
}

/// What there is of one peer.
struct Lane {
    queue: Queue,
    counters: LinkCounters,
    /// The peer lives: dial it now.
    kick: Notify,
    incoming: IncomingTurn,
    /// Why the last dial made no connection for frames; empty: it did.
    trouble: Mutex<String>,
}

/// The links of this instance. They end when it is dropped, or with [`Links::stop`].
pub struct Links {
    shared: Arc<Shared>,
    threads: LinkThreads,
}

impl Links {
    /// Starts to dial and to accept: one thread for frames, one for streams.
    ///
    /// # Errors
    /// When the certificates cannot be used, or there is no thread.
    pub fn start(mut settings: LinkSettings, inbox: Arc<dyn Inbox>) -> Result<Links, LinkError> {
        let names = settings.names(settings.this);
        let identity = RotatingIdentity::read(settings.identity.clone(), names);
        let identity = Arc::new(identity.map_err(LinkError::Identity)?);
        rotation::tell_expiry(&identity.in_force(), None);
        let listener = settings.listener.take();
        let runtimes = [threads::runtime()?, threads::runtime()?];
        let lanes = settings.members.iter().map(|_| Lane::default()).collect();
        let shared = Arc::new(Shared {
            settings,
            inbox,
            identity: Arc::clone(&identity),
            lanes,
            began: Instant::now(),
            refusals: Throttle::default(),
            streams: runtimes[1].handle().clone(),
        });
        let of_frames = Arc::clone(&shared);
        let threads = LinkThreads::start(["link", "link-streams"], runtimes, move || {
            outgoing::start(&of_frames);
            tokio::spawn(rotation::watch(identity));
            if let Some(listener) = listener {
                tokio::spawn(handshakes::accept(of_frames, listener));
            }
        })?;
        Ok(Links { shared, threads })
    }

    /// Gives a frame to the connection to `peer`. Never waits. False, and the frame is dropped,
    /// when it is not connected or too much waits already.
    ///
    /// Urgent frames overtake others, also across what waits here already; large frames that are
    /// being written are not interrupted.
    ///
    /// # Panics
    /// When the body is longer than [`BODY_BYTES_MAX`], or `kind` is one of [`OWN_KINDS`].
    pub fn send(&self, peer: Peer, kind: u8, urgent: bool, body: FrameBody) -> bool {
        assert!(body.len() <= BODY_BYTES_MAX, "a frame of {} bytes", body.len());
        assert!(!OWN_KINDS.contains(&kind), "kind {kind} is the links' own");
        // What is no member has no connection.
        let Some(lane) = self.shared.lanes.get(peer) else { return false };
        let taken = lane.queue.put(kind, urgent, body);
        if !taken {
            lane.counters.dropped();
        }
        taken
    }

    /// Opens a stream to `peer`: a TLS connection of its own, which belongs to the runtime that
    /// polls this future.
    ///
    /// # Errors
    /// When the peer cannot be reached, is not trusted, or does not take it.
    pub fn open_stream(
        &self,
        peer: Peer,
        purpose: StreamPurpose,
    ) -> impl Future<Output = io::Result<LinkStream>> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move { dial::stream(&shared, peer, &purpose).await }
    }

    /// Looks at the certificate files at once. Files that changed apply to the connections that
    /// come: the time until which their certificate is valid. `None`: they have not changed.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it; those in use stay in use.
    pub fn reload(&self) -> Result<Option<String>, String> {
        self.shared.identity.reload()
    }

    /// The statistics of the link to `peer`.
    pub fn state(&self, peer: Peer) -> LinkState {
        let Some(lane) = self.shared.lanes.get(peer) else { return LinkState::default() };
        lane.counters.state(lane.queue.bytes())
    }

    /// Why there is no connection to `peer` on which frames can be sent; empty: there is one, or it
    /// was not dialled yet.
    pub fn trouble(&self, peer: Peer) -> String {
        self.shared.lane(peer).trouble.lock().clone()
    }

    /// The runtime of the thread that serves streams.
    pub fn streams(&self) -> &Handle {
        &self.shared.streams
    }

    /// Name of a member.
    pub fn name(&self, peer: Peer) -> &str {
        self.shared.settings.name(peer)
    }

    /// Ends all connections and waits for the threads; the inbox gets nothing any more.
    /// Called on a thread of the links, it does not wait.
    pub fn stop(&self) {
        self.threads.stop();
    }
}

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            queue: Queue::default(),
            counters: LinkCounters::default(),
            kick: Notify::new(),
            incoming: IncomingTurn::default(),
            trouble: Mutex::default(),
        }
    }
}

impl Shared {
    fn identity(&self) -> Arc<TlsIdentity> {
        self.identity.in_force()
    }

    /// Reports that the connection of a peer was refused, or ended for what it sent.
    fn log_refused(&self, peer: &str, why: &str) {
        let what = format!("{peer}: {why}");
        match self.refusals.passes(&what, Instant::now()) {
            None => {}
            Some(0) => log(&LINK_REFUSED, &[peer, why]),
            Some(times) => {
                let why = format!("{why} ({times} times more since this was last logged)");
                log(&LINK_REFUSED, &[peer, &why]);
            }
        }
    }

    fn lane(&self, peer: Peer) -> &Lane {
        assert!(peer < self.lanes.len(), "peer {peer} is no member");
        &self.lanes[peer]
    }
}
