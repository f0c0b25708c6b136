//! The network of a cluster: connections between processes, made and kept as the product's links
//! do, without sockets and TLS.
//!
//! Each process has a coroutine for each peer that dials it, one that accepts, and one for each
//! connection that came in. What is sent arrives in order, later; in a direction that is cut
//! nothing arrives, until it heals; a connection ends when a process of it ends, when it is reset,
//! or when one of its directions has been cut for HeartbeatTimeout.
//!
//! Not here: what is sent. Invariant: both ends call their `Inbox` in the order of the product:
//! `greets`, `declared`, `opened`, frames, `closed`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex as Plain;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use towline_group::{Message, Start};
use towline_link::{
    Connections, FrameBody, Greeting, Inbox, LinkState, LinkStream, OpeningStream, Peer,
    StreamPurpose,
};
use towline_os::sync::{Condvar, Mutex};
use towline_os::task::{Handle, sleep, timeout};
use towline_os::thread::{self, Builder};
use towline_os::time::{Instant, since_boot};
use towline_replication::frames::KIND_CONSENSUS;
use towline_types::{FORMAT_LEVEL, FormatLevels, SeededRandom};

/// The version of the links' protocol in which starts are declared.
const VERSION: u16 = 3;
/// Bytes of a stream that are on their way.
const STREAM_BYTES: usize = 256 * 1024;
/// How long a dial may take.
const DIAL_MAX: Duration = Duration::from_secs(1);
const INSTANCES: usize = 3;

/// What the network is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatencyPlan {
    /// The shortest delay, and how much longer one may be.
    pub(crate) delay_us: u64,
    pub(crate) delay_more_us: u64,
    /// So many of a thousand frames take ten times as long.
    pub(crate) slow_per_mille: u64,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) heartbeat_timeout: Duration,
    /// Before a peer is dialled again.
    pub(crate) retry: Duration,
    /// Instances of the group, [`INSTANCES`] at most.
    pub(crate) instances: usize,
}

/// See the module. Shared by all processes and the run itself.
pub(crate) struct Wires {
    plan: LatencyPlan,
    /// The format level that the newest process of each instance reads.
    reads: [AtomicU8; INSTANCES],
    /// Sees each message between members when it leaves: its sender, and its head.
    watch: OnceLock<Box<Watch>>,
    inner: Plain<Inner>,
}

type Watch = dyn Fn(Peer, &[u8]) + Send + Sync;

struct Inner {
    dice: SeededRandom,
    accepting: [Option<UnboundedSender<Incoming>>; INSTANCES],
    /// Since when nothing arrives, from whom, at whom.
    cut_since_us: [[Option<u64>; INSTANCES]; INSTANCES],
    /// Connections that stand, or are about to.
    wires: Vec<Arc<Wire>>,
}

/// Something that a peer dialled.
enum Incoming {
    Frames {
        from: Peer,
        greeting: Greeting,
        wire: Arc<Wire>,
        answer: oneshot::Sender<Answered>,
    },
    Stream {
        from: Peer,
        purpose: StreamPurpose,
        stream: LinkStream,
        answer: oneshot::Sender<Taken>,
    },
}

type Answered = Result<Greeting, String>;
type Taken = Result<(), String>;

/// A connection in one direction.
struct Wire {
    from: Peer,
    to: Peer,
    state: Mutex<WireState>,
    /// For the receiver: frames, the declaration, the end.
    changed: Condvar,
    /// For the sender: the end.
    closed: Condvar,
}

struct WireState {
    open: bool,
    declared: Option<Start>,
    urgent: WireLane,
    ordinary: WireLane,
}

#[derive(Default)]
struct WireLane {
    frames: VecDeque<(u64, u8, Bytes)>,
    /// When the newest one arrives: nothing overtakes.
    last_us: u64,
}

fn now_us() -> u64 {
    u64::try_from(since_boot().as_micros()).unwrap_or(u64::MAX)
}

impl Wires {
    pub(crate) fn new(plan: LatencyPlan, dice: SeededRandom) -> Arc<Wires> {
        let inner = Inner {
            dice,
            accepting: [const { None }; INSTANCES],
            cut_since_us: [[None; INSTANCES]; INSTANCES],
            wires: Vec::new(),
        };
        let reads = std::array::from_fn(|_| AtomicU8::new(FORMAT_LEVEL));
        Arc::new(Wires { plan, reads, watch: OnceLock::new(), inner: Plain::new(inner) })
    }

    /// A process of an instance starts, of which the program reads this format level.
    pub(crate) fn starts(&self, node: Peer, reads: u8) {
        self.reads[node].store(reads, Ordering::Relaxed);
    }

    fn reads(&self, node: Peer) -> u8 {
        self.reads[node].load(Ordering::Relaxed)
    }

    /// What an instance says, or hears, of format levels: an earlier program knows of none.
    fn levels(&self, node: Peer, levels: FormatLevels) -> FormatLevels {
        if self.reads(node) < FORMAT_LEVEL { FormatLevels::default() } else { levels }
    }

    pub(crate) fn watch(&self, watch: impl Fn(Peer, &[u8]) + Send + Sync + 'static) {
        assert!(self.watch.set(Box::new(watch)).is_ok(), "one watches");
    }

    /// The process of an instance has ended. Without notice (a power cut), its peers learn it by
    /// their time-outs.
    pub(crate) fn ended(&self, node: Peer, notice: bool) {
        let wires = {
            let mut inner = self.inner.lock();
            inner.accepting[node] = None;
            inner.wires.iter().filter(|wire| wire.is_of(node)).cloned().collect::<Vec<_>>()
        };
        if notice {
            wires.iter().for_each(|wire| wire.close());
        }
    }

    /// Cuts a direction, or heals it.
    pub(crate) fn cut(&self, from: Peer, to: Peer, cut: bool) {
        let mut inner = self.inner.lock();
        let since = &mut inner.cut_since_us[from][to];
        *since = cut.then(|| since.unwrap_or_else(now_us));
    }

    /// Ends the connections between two instances.
    pub(crate) fn reset(&self, one: Peer, other: Peer) {
        let both = |wire: &&Arc<Wire>| wire.is_of(one) && wire.is_of(other);
        let wires: Vec<_> = self.inner.lock().wires.iter().filter(both).cloned().collect();
        wires.iter().for_each(|wire| wire.close());
    }

    fn is_cut(&self, from: Peer, to: Peer) -> bool {
        self.inner.lock().cut_since_us[from][to].is_some()
    }

    /// Whether a direction has been cut for so long that a connection over it is dead.
    fn is_dead(&self, one: Peer, other: Peer) -> bool {
        let inner = self.inner.lock();
        let cut = [inner.cut_since_us[one][other], inner.cut_since_us[other][one]];
        let longest = u64::try_from(self.plan.heartbeat_timeout.as_micros()).unwrap_or(u64::MAX);
        let now = now_us();
        let late = |since: &u64| now.saturating_sub(*since) >= longest;
        let gone = inner.accepting[one].is_none() || inner.accepting[other].is_none();
        // Of a process that ended without notice the others hear after the time-out; dialled again
        // it is then.
        cut.iter().flatten().any(late) || gone
    }

    fn delay(&self) -> Duration {
        let LatencyPlan { delay_us, delay_more_us, slow_per_mille, .. } = self.plan;
        let mut inner = self.inner.lock();
        let delay_us = delay_us + inner.dice.below(delay_more_us + 1);
        let slow = inner.dice.chance(slow_per_mille);
        Duration::from_micros(if slow { delay_us * 10 } else { delay_us })
    }

    fn forget(&self, wire: &Arc<Wire>) {
        self.inner.lock().wires.retain(|other| !Arc::ptr_eq(other, wire));
    }
}

impl Wire {
    fn is_of(&self, node: Peer) -> bool {
        self.from == node || self.to == node
    }

    fn close(&self) {
        self.state.lock().open = false;
        self.changed.notify_all();
        self.closed.notify_all();
    }
}

/// A connection that stands, and the format level that its other end reads.
type OutgoingWire = (Arc<Wire>, u8);

/// The connections of one process.
pub(crate) struct Ports {
    this: Peer,
    network: Arc<Wires>,
    out: [Mutex<Option<OutgoingWire>>; INSTANCES],
    incoming: [AtomicU64; INSTANCES],
}

impl Ports {
    /// Connects the process that runs to the network.
    pub(crate) fn start(
        network: &Arc<Wires>,
        this: Peer,
        inbox: &Arc<dyn Inbox>,
    ) -> std::io::Result<Arc<Ports>> {
        let ports = Arc::new(Ports {
            this,
            network: Arc::clone(network),
            out: Default::default(),
            incoming: Default::default(),
        });
        let (accepting, accepted) = unbounded_channel();
        network.inner.lock().accepting[this] = Some(accepting);
        let (of_accept, inbox_of_accept) = (Arc::clone(&ports), Arc::clone(inbox));
        spawn("accept", move || accept(&of_accept, &inbox_of_accept, accepted))?;
        for peer in (0..network.plan.instances).filter(|peer| *peer != this) {
            let (ports, inbox) = (Arc::clone(&ports), Arc::clone(inbox));
            spawn("dial", move || dial(&ports, &inbox, peer))?;
        }
        Ok(ports)
    }

    fn send_on(&self, wire: &Wire, kind: u8, urgent: bool, body: Bytes) -> bool {
        let at_us = now_us() + u64::try_from(self.network.delay().as_micros()).unwrap_or(0);
        let mut state = wire.state.lock();
        if !state.open {
            return false;
        }
        let lane = if urgent { &mut state.urgent } else { &mut state.ordinary };
        lane.last_us = lane.last_us.max(at_us);
        lane.frames.push_back((lane.last_us, kind, body));
        // Otherwise the receiver waits for the frame before it.
        let now = now_us();
        let is_next =
            lane.frames.front().is_some_and(|(at_us, ..)| *at_us <= now) || lane.frames.len() == 1;
        let arrival = Instant::now() + Duration::from_micros(lane.last_us.saturating_sub(now));
        drop(state);
        if is_next {
            wire.changed.notify_all_at(arrival);
        }
        true
    }
}

/// The format level of the batches in a message.
fn level_of(message: &Bytes) -> u8 {
    let message = Message::decode(message);
    let batches = message.iter().flat_map(Message::batches);
    batches.map(|batch| towline_replica::level_of(&batch.payload)).max().unwrap_or_default()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

impl Connections for Ports {
    fn send(&self, peer: Peer, kind: u8, urgent: bool, body: FrameBody) -> bool {
        let wire = self.out.get(peer).and_then(|wire| wire.lock().clone());
        let Some((wire, reads)) = wire else { return false };
        if let Some(watch) = self.network.watch.get().filter(|_| kind == KIND_CONSENSUS) {
            watch(self.this, &body.head);
        }
        let mut bytes = body.head;
        body.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let bytes = Bytes::from(bytes);
        if kind == KIND_CONSENSUS && reads < FORMAT_LEVEL {
            assert!(level_of(&bytes) <= reads, "instance {peer} does not read what it is sent");
        }
        self.send_on(&wire, kind, urgent, bytes)
    }

    fn open_stream(&self, peer: Peer, purpose: StreamPurpose) -> OpeningStream {
        let (this, network) = (self.this, Arc::clone(&self.network));
        Box::pin(async move {
            let refused = |why: String| std::io::Error::other(why);
            sleep(network.delay() * 2).await;
            if network.is_cut(this, peer) || network.is_cut(peer, this) {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
            let accepting = network.inner.lock().accepting[peer].clone();
            let accepting = accepting.ok_or_else(|| refused("connection refused".into()))?;
            let (near, far) = tokio::io::duplex(STREAM_BYTES);
            let (answer, answered) = oneshot::channel();
            let stream = LinkStream::piped(far);
            let incoming = Incoming::Stream { from: this, purpose, stream, answer };
            accepting.send(incoming).map_err(|_| refused("it is gone".into()))?;
            let taken = answered.await.map_err(|_| refused("it is gone".into()))?;
            taken.map_err(refused).map(|()| LinkStream::piped(near))
        })
    }

    fn state(&self, peer: Peer) -> LinkState {
        let connected_out = self.out.get(peer).is_some_and(|wire| wire.lock().is_some());
        let incoming = self.incoming.get(peer).map(|count| count.load(Ordering::Relaxed));
        let connected_in = incoming.is_some_and(|count| count > 0);
        LinkState { connected_out, connected_in, ..LinkState::default() }
    }

    fn trouble(&self, _peer: Peer) -> String {
        String::new()
    }

    fn streams(&self) -> Handle {
        Handle::current()
    }

    fn stop(&self) {
        self.network.ended(self.this, true);
    }
}

/// Dials a peer, keeps the connection, and dials again when it has ended.
fn dial(ports: &Arc<Ports>, inbox: &Arc<dyn Inbox>, peer: Peer) {
    let network = &ports.network;
    loop {
        thread::sleep(network.plan.retry + network.delay());
        let Some((wire, greeting)) = greet(ports, inbox, peer) else { continue };
        *ports.out[peer].lock() = Some((Arc::clone(&wire), greeting.levels.read));
        inbox.opened(peer, false, &greeting);
        wire.state.lock().declared = Some(inbox.known(peer).start);
        wire.changed.notify_all();
        let mut state = wire.state.lock();
        while state.open {
            wire.closed.wait_for(&mut state, network.plan.heartbeat_interval);
            if network.is_dead(ports.this, peer) {
                state.open = false;
            }
        }
        drop(state);
        wire.changed.notify_all();
        *ports.out[peer].lock() = None;
        network.forget(&wire);
        inbox.closed(peer, false);
    }
}

/// Both say which instance they are, and what they know.
fn greet(ports: &Ports, inbox: &Arc<dyn Inbox>, peer: Peer) -> Option<(Arc<Wire>, Greeting)> {
    let (network, this) = (&ports.network, ports.this);
    let accepting = network.inner.lock().accepting[peer].clone()?;
    if network.is_cut(this, peer) || network.is_cut(peer, this) {
        return None;
    }
    let state = WireState {
        open: true,
        declared: None,
        urgent: WireLane::default(),
        ordinary: WireLane::default(),
    };
    let (state, changed, closed) = (Mutex::new(state), Condvar::new(), Condvar::new());
    let wire = Arc::new(Wire { from: this, to: peer, state, changed, closed });
    // From now on, so that the peer hears of the end of this process also in the middle of this.
    network.inner.lock().wires.push(Arc::clone(&wire));
    let greeting = greet_over(ports, inbox, (peer, &accepting), &wire);
    if greeting.is_none() {
        wire.close();
        network.forget(&wire);
    }
    greeting.map(|greeting| (wire, greeting))
}

fn greet_over(
    ports: &Ports,
    inbox: &Arc<dyn Inbox>,
    (peer, accepting): (Peer, &UnboundedSender<Incoming>),
    wire: &Arc<Wire>,
) -> Option<Greeting> {
    let (network, this) = (&ports.network, ports.this);
    let (answer, answered) = oneshot::channel();
    let greeting = greeting_of(ports, inbox.as_ref(), peer);
    thread::sleep(network.delay());
    let of_peer = Arc::clone(wire);
    accepting.send(Incoming::Frames { from: this, greeting, wire: of_peer, answer }).ok()?;
    let greeting = Handle::current().block_on(timeout(DIAL_MAX, answered)).ok()?.ok()?.ok()?;
    thread::sleep(network.delay());
    let greeting = Greeting { levels: network.levels(this, greeting.levels), ..greeting };
    inbox.greets(peer, &greeting).ok().map(|()| greeting)
}

fn greeting_of(ports: &Ports, inbox: &dyn Inbox, peer: Peer) -> Greeting {
    Greeting {
        version: VERSION,
        build: "simulated".into(),
        standing: inbox.standing(),
        levels: ports.network.levels(ports.this, inbox.levels()),
        differs: "".into(),
        known: inbox.known(peer),
    }
}

fn accept(ports: &Arc<Ports>, inbox: &Arc<dyn Inbox>, mut accepted: UnboundedReceiver<Incoming>) {
    let handle = Handle::current();
    while let Some(incoming) = handle.block_on(accepted.recv()) {
        let (ports, inbox) = (Arc::clone(ports), Arc::clone(inbox));
        let served = spawn("incoming", move || match incoming {
            Incoming::Frames { from, greeting, wire, answer } => {
                let levels = ports.network.levels(ports.this, greeting.levels);
                let greeting = Greeting { levels, ..greeting };
                serve_frames(&ports, inbox.as_ref(), (from, &greeting), &wire, answer);
            }
            Incoming::Stream { from, purpose, stream, answer } => {
                let admitted = may_have(&ports, inbox.as_ref(), from, &purpose);
                let admitted = admitted.and_then(|()| inbox.admits(from, &purpose));
                let is_admitted = admitted.is_ok();
                if answer.send(admitted).is_ok() && is_admitted {
                    inbox.stream(from, purpose, stream);
                }
            }
        });
        assert!(served.is_ok(), "a coroutine costs nothing");
    }
}

/// What the links compare of format levels before a stream: of a log that one does not read it gets
/// no copy.
fn may_have(
    ports: &Ports,
    inbox: &dyn Inbox,
    from: Peer,
    purpose: &StreamPurpose,
) -> Result<(), String> {
    let FormatLevels { in_force, .. } = ports.network.levels(ports.this, inbox.levels());
    if *purpose == StreamPurpose::Copy && in_force > ports.network.reads(from) {
        return Err("it does not read the format level of the log".into());
    }
    Ok(())
}

fn serve_frames(
    ports: &Ports,
    inbox: &dyn Inbox,
    (from, greeting): (Peer, &Greeting),
    wire: &Arc<Wire>,
    answer: oneshot::Sender<Answered>,
) {
    let judged = inbox.greets(from, greeting);
    let stands = judged.is_ok();
    let answered = answer.send(judged.map(|()| greeting_of(ports, inbox, from)));
    if !stands || answered.is_err() {
        return wire.close();
    }
    inbox.opened(from, true, greeting);
    ports.incoming[from].fetch_add(1, Ordering::Relaxed);
    hear(ports, inbox, from, wire);
    ports.incoming[from].fetch_sub(1, Ordering::Relaxed);
    wire.close();
    inbox.closed(from, true);
}

/// Passes on what arrives, until the connection ends.
fn hear(ports: &Ports, inbox: &dyn Inbox, from: Peer, wire: &Wire) {
    let network = &ports.network;
    let mut is_declared = false;
    let mut state = wire.state.lock();
    while state.open && !network.is_dead(from, ports.this) {
        if !is_declared {
            let Some(start) = state.declared else {
                wire.changed.wait_for(&mut state, network.plan.heartbeat_interval);
                continue;
            };
            drop(state);
            thread::sleep(network.delay());
            if inbox.declared(from, start).is_err() {
                return;
            }
            is_declared = true;
            state = wire.state.lock();
            continue;
        }
        let now = now_us();
        let due = |lane: &WireLane| lane.frames.front().map(|(at, ..)| *at);
        let (urgent, ordinary) = (due(&state.urgent), due(&state.ordinary));
        let is_cut = network.is_cut(from, ports.this);
        let lane = match (urgent, ordinary) {
            _ if is_cut => None,
            (Some(at), _) if at <= now => Some(&mut state.urgent),
            (_, Some(at)) if at <= now => Some(&mut state.ordinary),
            _ => None,
        };
        if let Some((_, kind, body)) = lane.and_then(|lane| lane.frames.pop_front()) {
            drop(state);
            if inbox.frame(from, kind, body).is_err() {
                return;
            }
            state = wire.state.lock();
            continue;
        }
        let next = [urgent, ordinary].into_iter().flatten().min().filter(|_| !is_cut);
        let wait = next.map_or(Duration::MAX, |at| Duration::from_micros(at.saturating_sub(now)));
        let wait = wait.min(network.plan.heartbeat_interval).max(Duration::from_micros(1));
        wire.changed.wait_for(&mut state, wait);
    }
}
