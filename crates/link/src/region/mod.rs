//! The link between two regions: one connection on which frames go both ways, and streams of their
//! own, all inside mutual TLS.
//!
//! The live group's active instance dials the other group's instances, in the order in which they
//! are configured, until one takes it; the recovery group only listens. Which of the two this side
//! is, [`RegionLinks::dial`] says. Reading order: `hello` (the bytes), `settings`, `retry` (when to
//! dial again), `connection` (both directions of one connection), `dial`, `listen`.
//!
//! Not here: what a frame means, histories, which group is live, when roles change.
//!
//! Invariants: only an instance that shows a certificate of the other group, in its own name, gets
//! past the hello; frames of one connection arrive in order and without gaps, but for those that go
//! first, of which only the newest need arrive; `closed` follows each `opened`, once; of the
//! connections that came in, one at a time carries frames, the newest.

mod connection;
mod dial;
mod dialler;
mod hello;
mod listen;
mod repeats;
mod retry;
mod settings;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use towline_admin::catalogue::REGION_LINK_REFUSED;
use towline_logging::log;

pub use dialler::{OpeningCopy, RegionDialler};
pub use hello::{RegionHello, RegionSections};
pub use retry::RetryPhase;
pub use settings::{RegionSettings, Retries};

use super::frame::{FrameBody, FrameCost};
use super::rotation::{self, RotatingIdentity};
use super::statistics::{LinkCounters, LinkState};
use super::stream::LinkStream;
use super::threads::{self, LinkThreads};
use super::throttle::Throttle;
use super::turn::IncomingTurn;
use super::{LinkError, handshakes};
use retry::Kicks;

/// One connection between two regions, among all of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Whether the receiver of frames takes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It does.
    More,
    /// Nothing more is read from this connection before [`RegionConnection::resume`]: what the
    /// other end sends waits in the system's buffers, and then there.
    Full,
}

/// The receiver of what comes over the link between regions. All are called on a thread of the
/// links, so they must be quick and must not wait.
pub trait RegionInbox: Send + Sync + 'static {
    /// What this side says of itself, at this moment; each section has a tag. All of them together
    /// have fewer than [`REGION_HELLO_BYTES_MAX`](towline_types::limits::REGION_HELLO_BYTES_MAX)
    /// bytes, and there are at most
    /// [`REGION_SECTIONS_MAX`](towline_types::limits::REGION_SECTIONS_MAX): with more there is no
    /// connection.
    fn hello(&self) -> RegionSections;

    /// A connection for frames is about to stand, and this is what the other end said with it.
    /// `incoming`: it dialled. [`RegionInbox::opened`] may stay away: the connection can still
    /// break, or the other end refuse it.
    ///
    /// # Errors
    /// Why it may not stand: the other end gets the reason, and logs it.
    fn greets(&self, incoming: bool, hello: &RegionHello) -> Result<(), String>;

    /// The other end, which this side dialled, refused the connection, and said this of itself with
    /// the reason.
    fn refused(&self, hello: &RegionHello);

    /// A connection for frames stands; `link` sends on it.
    fn opened(&self, incoming: bool, hello: &RegionHello, link: RegionLink);

    /// A frame arrived, whole and checked, in order, or before those that were sent earlier
    /// ([`RegionConnection::send_newest`]). Its body has at most
    /// [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX) bytes.
    ///
    /// # Errors
    /// Why it cannot be of the other group: the connection ends, and the other end gets the reason.
    fn frame(&self, link: LinkId, kind: u8, body: Bytes, cost: FrameCost)
    -> Result<Intake, String>;

    /// What waits to be sent has fallen below
    /// [`REGION_WRITABLE_BYTES`](towline_types::limits::REGION_WRITABLE_BYTES).
    fn writable(&self, link: LinkId);

    /// The connection ended.
    fn closed(&self, link: LinkId, why: &str);

    /// Whether a stream for a copy is taken; the other end gets the reason if not.
    ///
    /// # Errors
    /// Why not.
    fn admits(&self, hello: &RegionHello) -> Result<(), String>;

    /// A stream for a copy stands. It belongs to the runtime of [`RegionLinks::streams`]; a caller
    /// that serves it elsewhere calls [`LinkStream::settle`] there.
    fn stream(&self, hello: &RegionHello, stream: LinkStream);
}

/// One connection, for the side that uses it; after its end all of these have no effect.
pub trait RegionConnection: Send + Sync {
    /// Which one it is.
    fn id(&self) -> LinkId;

    /// Gives it a frame. Never waits. False, and the frame is dropped, when the connection has
    /// ended or too much waits already (64 MiB); then [`RegionInbox::writable`] is called once
    /// there is space again, or [`RegionInbox::closed`].
    ///
    /// # Panics
    /// When the body is longer than [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX), or `kind` is one of
    /// [`OWN_KINDS`](crate::OWN_KINDS).
    fn send(&self, kind: u8, body: FrameBody) -> bool;

    /// Gives it a frame that is written before all that waits. One that was given in this way, and
    /// has not gone yet, is replaced: memory has space for one. Never waits. False, and the frame
    /// is dropped, when the connection has ended.
    ///
    /// # Panics
    /// As [`RegionConnection::send`].
    fn send_newest(&self, kind: u8, body: FrameBody) -> bool;

    /// Bytes of frames that wait to be written.
    fn queued_bytes(&self) -> usize;

    /// Goes on reading after [`Intake::Full`]. A call that nothing waits for counts for the next
    /// time, so a receiver may get one frame more than it wanted.
    fn resume(&self);

    /// Ends it; what waits to be sent is dropped. The other end gets the reason.
    fn close(&self, why: &str);
}

/// See [`RegionConnection`].
pub type RegionLink = Arc<dyn RegionConnection>;

/// The link to the other region, as status and metrics want it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionLinkState {
    /// Counts since the start of this process, over all connections, both ways.
    pub link: LinkState,
    /// What is done to reach the other region.
    pub phase: RetryPhase,
    /// Address of the connection that we dialled; empty: none stands.
    pub address: Arc<str>,
    /// Instance of the other group to which a connection for frames stands; empty: to none.
    pub instance: Arc<str>,
    /// Why there is no connection that we dialled: each address and its reason. Empty: there is
    /// one, or none was dialled yet.
    pub trouble: String,
}

/// What all connections share.
struct RegionShared {
    settings: RegionSettings,
    inbox: Arc<dyn RegionInbox>,
    identity: Arc<RotatingIdentity>,
    counters: LinkCounters,
    /// Bytes that wait for all connections together.
    queued: connection::OpenQueues,
    incoming: IncomingTurn,
    kicks: Kicks,
    /// Whether this side dials.
    dialling: watch::Sender<bool>,
    condition: Mutex<Condition>,
    next_id: AtomicU64,
    /// Zero of the times that pings carry.
    began: Instant,
    /// Of connections that were refused.
    refusals: Throttle,
    /// Of those that stood for a moment.
    repeats: repeats::RefusedLinks,
    streams: Handle,
}

/// What changes of [`RegionLinkState`] and is no count.
#[derive(Debug, Default)]
struct Condition {
    phase: RetryPhase,
    address: Arc<str>,
    trouble: String,
}

impl RegionShared {
    fn next_id(&self) -> LinkId {
        LinkId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Reports that a connection was refused, or ended for what came on it; the same thing once a
    /// minute.
    fn log_refused(&self, from: &str, why: &str) {
        match self.refusals.passes(&format!("{from}: {why}"), Instant::now()) {
            None => {}
            Some(0) => log(&REGION_LINK_REFUSED, &[from, why]),
            Some(times) => {
                let why = format!("{why} ({times} times more since this was last logged)");
                log(&REGION_LINK_REFUSED, &[from, &why]);
            }
        }
    }
}

/// The links of this instance to the other region. They end when it is dropped, or with
/// [`RegionLinks::stop`].
pub struct RegionLinks {
    shared: Arc<RegionShared>,
    threads: LinkThreads,
}

impl RegionLinks {
    /// Starts to accept, if there is a listener; nothing is dialled before [`RegionLinks::dial`].
    /// One thread for frames, one for streams.
    ///
    /// # Errors
    /// When the certificates cannot be used, or there is no thread.
    ///
    /// # Panics
    /// When the other group has the name of this one, or a retry timer is zero: the configuration
    /// is checked before.
    pub fn start(
        mut settings: RegionSettings,
        inbox: Arc<dyn RegionInbox>,
    ) -> Result<RegionLinks, LinkError> {
        assert!(settings.other_group != settings.group, "a group is not its own other region");
        let identity = RotatingIdentity::read(settings.identity.clone(), settings.own_names());
        let identity = Arc::new(identity.map_err(LinkError::Identity)?);
        rotation::tell_expiry(&identity.in_force(), None);
        let listener = settings.listener.take();
        let runtimes = [threads::runtime()?, threads::runtime()?];
        let shared = Arc::new(RegionShared {
            settings,
            inbox,
            identity: Arc::clone(&identity),
            counters: LinkCounters::default(),
            queued: connection::OpenQueues::default(),
            incoming: IncomingTurn::default(),
            kicks: Kicks::default(),
            dialling: watch::Sender::new(false),
            condition: Mutex::default(),
            next_id: AtomicU64::new(1),
            began: Instant::now(),
            refusals: Throttle::default(),
            repeats: repeats::RefusedLinks::default(),
            streams: runtimes[1].handle().clone(),
        });
        let of_frames = Arc::clone(&shared);
        let threads = LinkThreads::start(["region-link", "region-streams"], runtimes, move || {
            tokio::spawn(dial::keep(Arc::clone(&of_frames)));
            tokio::spawn(rotation::watch(identity));
            if let Some(listener) = listener {
                tokio::spawn(handshakes::accept(of_frames, listener));
            }
        })?;
        Ok(RegionLinks { shared, threads })
    }

    /// Whether this side dials the other one. `false` ends a connection that it dialled.
    pub fn dial(&self, on: bool) {
        self.shared.dialling.send_if_modified(|dialling| std::mem::replace(dialling, on) != on);
    }

    /// Dials at once, with the short timer from now on, if no connection that was dialled stands
    /// and this side dials.
    pub fn kick(&self) {
        self.shared.kicks.now.notify_one();
    }

    /// Opens a stream for a copy: to the instance to which a connection that we dialled stands, or
    /// else to the first one that takes it. It is a TLS connection of its own, which belongs to the
    /// runtime that polls this future.
    ///
    /// # Errors
    /// When no instance can be reached, is trusted, and takes it: each address and its reason.
    pub fn open_stream(
        &self,
    ) -> impl Future<Output = io::Result<(RegionHello, LinkStream)>> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move { dial::stream(&shared).await }
    }

    /// Looks at the certificate files at once. Files that changed apply to the connections that
    /// come: the time until which their certificate is valid. `None`: they have not changed.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it; those in use stay in use.
    pub fn reload(&self) -> Result<Option<String>, String> {
        self.shared.identity.reload()
    }

    /// The condition of the link, and its statistics.
    pub fn state(&self) -> RegionLinkState {
        let link = self.shared.counters.state(self.shared.queued.bytes());
        let instance = self.shared.queued.instance();
        let condition = self.shared.condition.lock();
        RegionLinkState {
            link,
            phase: condition.phase,
            address: Arc::clone(&condition.address),
            instance,
            trouble: condition.trouble.clone(),
        }
    }

    /// When the certificate in force expires, seconds since 1970.
    pub fn certificate_expires_s(&self) -> u64 {
        self.shared.identity.in_force().expires().unix_seconds()
    }

    /// When it begins to be valid, seconds since 1970.
    pub fn certificate_begins_s(&self) -> u64 {
        self.shared.identity.in_force().begins_s()
    }

    /// The runtime of the thread that serves streams.
    pub fn streams(&self) -> &Handle {
        &self.shared.streams
    }

    /// Ends all connections and waits for the threads; the inbox gets nothing any more.
    /// Called on a thread of the links, it does not wait.
    pub fn stop(&self) {
        self.threads.stop();
    }
}
