//! The network between two regions: what the links between them do, without sockets and TLS.
//!
//! An *end* is an instance of either region. A direction from one region to the other can be cut:
//! what is sent waits until it heals. A connection ends with a process of it, when it is reset, and
//! when a direction was cut for the time-out. Which of the other region's instances is dialled
//! first is drawn each time.
//!
//! Not here: what is sent; what dials and hears (`ports`); streams for copies (`pipes`). Invariant:
//! what is sent on one connection arrives in order, or not at all.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex as Plain;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use towline_link::{FrameBody, LinkId, LinkStream, RegionConnection, RegionHello};
use towline_os::sync::{Condvar, Mutex};
use towline_os::time::since_boot;
use towline_types::SeededRandom;

/// Instances of a region, at most.
pub(super) const MEMBERS_MAX: usize = 3;
/// Ends of both.
pub(super) const ENDS: usize = 2 * MEMBERS_MAX;

/// The region of an end.
pub(super) fn region_of(end: usize) -> usize {
    end / MEMBERS_MAX
}

/// What the network is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionLatency {
    pub(super) delay_us: u64,
    pub(super) delay_more_us: u64,
    /// Silence after which a connection counts as dead.
    pub(super) timeout_us: u64,
    /// Between two tries.
    pub(super) retry: Duration,
    /// Instances of each region.
    pub(super) members: [usize; 2],
}

/// See the module. Shared by all processes and the run itself.
pub(super) struct RegionWires {
    pub(super) plan: RegionLatency,
    pub(super) inner: Plain<WiresState>,
    /// Sees each frame when it leaves: its sender, the kind, the body.
    watch: OnceLock<Box<RegionWatcher>>,
}

type RegionWatcher = dyn Fn(usize, u8, &Bytes) + Send + Sync;

pub(super) struct WiresState {
    dice: SeededRandom,
    pub(super) accepting: [Option<UnboundedSender<RegionCaller>>; ENDS],
    /// Since when nothing arrives, from each region at the other one.
    cut_since_us: [Option<u64>; 2],
    pub(super) lines: Vec<Arc<RegionLine>>,
    next_id: u64,
}

/// Something that an instance of the other region dialled.
pub(super) enum RegionCaller {
    Frames {
        hello: RegionHello,
        answer: oneshot::Sender<JudgedHello>,
        line: oneshot::Receiver<Arc<RegionLine>>,
    },
    Copy {
        hello: RegionHello,
        answer: oneshot::Sender<JudgedHello>,
        stream: LinkStream,
    },
}

pub(super) type JudgedHello = Result<RegionHello, String>;

/// A connection. Side 0 dialled.
pub(super) struct RegionLine {
    pub(super) id: LinkId,
    pub(super) ends: [usize; 2],
    pub(super) state: Mutex<LineState>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct LineState {
    /// What is on its way to each side.
    pub(super) lanes: [LineLane; 2],
    pub(super) resumed: [bool; 2],
    /// It is to hear that its queue has space.
    pub(super) writable: [bool; 2],
    /// Why it ended, for each side.
    pub(super) ended: [Option<String>; 2],
    /// Since when a process of it is gone, and the other one does not know.
    pub(super) gone_since_us: Option<u64>,
}

#[derive(Default)]
pub(super) struct LineLane {
    pub(super) pieces: VecDeque<(u64, LinePiece)>,
    last_us: u64,
    pub(super) bytes: usize,
}

pub(super) enum LinePiece {
    Frame(u8, Bytes),
    End(String),
}

pub(super) fn now_us() -> u64 {
    u64::try_from(since_boot().as_micros()).unwrap_or(u64::MAX)
}

impl RegionWires {
    pub(super) fn new(plan: RegionLatency, dice: SeededRandom) -> Arc<RegionWires> {
        let inner = WiresState {
            dice,
            accepting: [const { None }; ENDS],
            cut_since_us: [None; 2],
            lines: Vec::new(),
            next_id: 1,
        };
        Arc::new(RegionWires { plan, inner: Plain::new(inner), watch: OnceLock::new() })
    }

    pub(super) fn watch(&self, watch: impl Fn(usize, u8, &Bytes) + Send + Sync + 'static) {
        assert!(self.watch.set(Box::new(watch)).is_ok(), "one watches");
    }

    /// The process of an end is gone. Without notice the other ends learn it by their time-outs.
    pub(super) fn ended(&self, end: usize, notice: bool) {
        let lines = {
            let mut inner = self.inner.lock();
            inner.accepting[end] = None;
            inner.lines.iter().filter(|line| line.ends.contains(&end)).cloned().collect::<Vec<_>>()
        };
        for line in lines {
            match notice {
                true => line.breaks("the connection was reset"),
                false => line.state.lock().gone_since_us = Some(now_us()),
            }
        }
    }

    /// Cuts the direction from a region to the other one, or heals it.
    pub(super) fn cut(&self, from: usize, cut: bool) {
        let since = &mut self.inner.lock().cut_since_us[from];
        *since = cut.then(|| since.unwrap_or_else(now_us));
    }

    /// Ends all connections.
    pub(super) fn reset(&self) {
        let lines = self.inner.lock().lines.clone();
        lines.iter().for_each(|line| line.breaks("the connection was reset"));
    }

    /// Whether nothing arrives from a region at the other one.
    pub(super) fn is_cut(&self, from: usize) -> bool {
        self.inner.lock().cut_since_us[from].is_some()
    }

    /// Whether a direction has been cut for so long that a connection is dead.
    pub(super) fn is_dead(&self) -> bool {
        let cut = self.inner.lock().cut_since_us;
        cut.iter().flatten().any(|since| now_us().saturating_sub(*since) >= self.plan.timeout_us)
    }

    pub(super) fn delay(&self) -> Duration {
        let RegionLatency { delay_us, delay_more_us, .. } = self.plan;
        let mut inner = self.inner.lock();
        Duration::from_micros(delay_us + inner.dice.below(delay_more_us + 1))
    }

    /// The ends of the other region, in the order in which they are dialled now.
    pub(super) fn others(&self, end: usize) -> Vec<usize> {
        let other = 1 - region_of(end);
        let mut ends: Vec<usize> =
            (0..self.plan.members[other]).map(|member| other * MEMBERS_MAX + member).collect();
        let mut inner = self.inner.lock();
        for at in (1..ends.len()).rev() {
            let with = inner.dice.index(at + 1);
            ends.swap(at, with);
        }
        ends
    }

    pub(super) fn is_reached(&self, from: usize) -> bool {
        let cut = self.inner.lock().cut_since_us;
        cut[region_of(from)].is_none() && cut[1 - region_of(from)].is_none()
    }

    pub(super) fn new_line(&self, ends: [usize; 2]) -> Arc<RegionLine> {
        let mut inner = self.inner.lock();
        inner.next_id += 1;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let line = Arc::new(RegionLine { id: LinkId(inner.next_id), ends, state, changed });
        inner.lines.push(Arc::clone(&line));
        line
    }
}

impl RegionLine {
    /// Both sides hear that it ended, at once.
    pub(super) fn breaks(&self, why: &str) {
        let mut state = self.state.lock();
        for ended in &mut state.ended {
            ended.get_or_insert_with(|| why.to_owned());
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// One side of a connection.
pub(super) struct LineSide {
    pub(super) line: Arc<RegionLine>,
    pub(super) side: usize,
    pub(super) wires: Arc<RegionWires>,
}

impl LineSide {
    fn push(&self, state: &mut LineState, piece: LinePiece) {
        let at_us = now_us() + u64::try_from(self.wires.delay().as_micros()).unwrap_or(0);
        let lane = &mut state.lanes[1 - self.side];
        lane.last_us = lane.last_us.max(at_us);
        if let LinePiece::Frame(_, body) = &piece {
            lane.bytes += body.len();
        }
        lane.pieces.push_back((lane.last_us, piece));
    }

    /// Puts a frame before those that are sent after its time, instead of an earlier one of its
    /// kind among them.
    fn push_newest(&self, state: &mut LineState, kind: u8, body: Bytes) {
        let at_us = now_us() + u64::try_from(self.wires.delay().as_micros()).unwrap_or(0);
        let lane = &mut state.lanes[1 - self.side];
        lane.last_us = lane.last_us.max(at_us);
        lane.bytes += body.len();
        let first = lane.pieces.partition_point(|(piece_us, _)| *piece_us <= at_us);
        let is_same = |piece: &LinePiece| matches!(piece, LinePiece::Frame(it, _) if *it == kind);
        let before = (first..lane.pieces.len()).find(|at| is_same(&lane.pieces[*at].1));
        if let Some((_, LinePiece::Frame(_, body))) = before.and_then(|at| lane.pieces.remove(at)) {
            lane.bytes -= body.len();
        }
        lane.pieces.insert(first, (at_us, LinePiece::Frame(kind, body)));
    }

    /// The queue of this side, without what is in the system's buffers.
    pub(super) fn queued(state: &LineState, side: usize) -> usize {
        /// Of a socket, and of what is on its way.
        const BUFFERS_BYTES: usize = 256 * 1024;
        state.lanes[1 - side].bytes.saturating_sub(BUFFERS_BYTES)
    }
}

impl RegionConnection for LineSide {
    fn id(&self) -> LinkId {
        self.line.id
    }

    fn send(&self, kind: u8, body: FrameBody) -> bool {
        let mut bytes = body.head;
        body.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let bytes = Bytes::from(bytes);
        let mut state = self.line.state.lock();
        if state.ended[self.side].is_some() {
            return false;
        }
        if let Some(watch) = self.wires.watch.get() {
            watch(self.line.ends[self.side], kind, &bytes);
        }
        self.push(&mut state, LinePiece::Frame(kind, bytes));
        drop(state);
        self.line.changed.notify_all();
        true
    }

    fn send_newest(&self, kind: u8, body: FrameBody) -> bool {
        let bytes = Bytes::from([body.head, body.parts.concat()].concat());
        let mut state = self.line.state.lock();
        if state.ended[self.side].is_some() {
            return false;
        }
        if let Some(watch) = self.wires.watch.get() {
            watch(self.line.ends[self.side], kind, &bytes);
        }
        self.push_newest(&mut state, kind, bytes);
        drop(state);
        self.line.changed.notify_all();
        true
    }

    fn queued_bytes(&self) -> usize {
        LineSide::queued(&self.line.state.lock(), self.side)
    }

    fn resume(&self) {
        self.line.state.lock().resumed[self.side] = true;
        self.line.changed.notify_all();
    }

    fn close(&self, why: &str) {
        let mut state = self.line.state.lock();
        if state.ended[self.side].is_none() {
            state.ended[self.side] = Some(why.to_owned());
            self.push(&mut state, LinePiece::End(format!("it ended the connection: {why}")));
        }
        drop(state);
        self.line.changed.notify_all();
    }
}
