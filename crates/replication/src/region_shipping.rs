//! The live group's active instance ships what is committed to the other region, on a thread of its
//! own.
//!
//! The thread sleeps until something is committed, or received by the other region; then it sends
//! what its window leaves. It gathers for a moment, so that a busy log is sent in long frames. It
//! never waits for the other region in any other way, and nothing waits for it. On a new link it
//! first compares the batch behind which it goes on with the checksum that the other region said.
//!
//! Not here: when there is a link, and to which instance (`towline_link`); what may be shipped to
//! the other group at all (histories).
//!
//! Invariants: one link at a time, the newest; what comes on an older one is not believed; memory
//! in the link's queue is bounded by [`QUEUED_BYTES_MAX`]; the log is asked for nothing under the
//! lock of this value, which is held to wake it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use towline_link::{FrameBody, LinkId, RegionLink};
use towline_os::sync::{Condvar, Mutex};
use towline_region::wire::{KIND_BATCHES, KIND_POINT, KIND_REFUSED};
use towline_region::{
    Backlog, BacklogSample, Counts, Exposure, RecoveryPoint, Refusal, Send, Shipper, SyncGate,
    SyncSight, SyncTurn, SyncView,
};
use towline_types::{BatchPlace, Lsn, Time};

use crate::region_position::{PositionSums, RegionPosition, ShippedLog, ShippingStart};

/// Bytes that wait in the link's queue, beyond which nothing is added: what is in there has been
/// read, and is kept in memory.
const QUEUED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What is committed in this time goes together.
pub const GATHER: Duration = Duration::from_millis(1);
/// How often the thread looks when there is no news.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// An instance of the other region reports within a round trip of a new link, if its group can.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// Why a link cannot be used, or is used no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShippingEnd {
    /// The other group needs a copy.
    NeedsCopy,
    /// It took no more.
    Refused(Refusal),
    /// It, or this log, is not what it should be; in words for the operator.
    Fault(String),
}

impl fmt::Display for ShippingEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShippingEnd::NeedsCopy => out.write_str(
                "the log that it lacks is not there any more: it needs a copy of this one",
            ),
            ShippingEnd::Refused(why) => write!(out, "the other region takes no more: {why}"),
            ShippingEnd::Fault(why) => out.write_str(why),
        }
    }
}

/// What the other region has, as status and metrics want it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShippingView {
    /// Whether a link stands.
    pub connected: bool,
    /// Whether the other region has reported since this instance became active, or the instance
    /// that was active before said what it had reported: before that it is not known what it has.
    pub is_known: bool,
    /// While that is not known: bytes committed since this instance became active, and how long ago
    /// that was.
    pub unknown: Option<Exposure>,
    /// Whether it has reported on the link that stands: the point before is not that of an instance
    /// which lost its log meanwhile.
    pub reports: bool,
    /// Why the last link ended, if this side ended it.
    pub ended: Option<ShippingEnd>,
    /// What would be lost now.
    pub exposure: Exposure,
    /// What the other region reported last, on this link or the one before; all zero before the
    /// first report. Its counts are those that it has, or will have, counted there.
    pub point: RecoveryPoint,
    /// For how long it has lacked something and acknowledged nothing, microseconds; 0: it lacks
    /// nothing.
    pub still_us: u64,
    /// Bytes of batches sent since this instance became active, before compression.
    pub sent_bytes: u64,
    /// Frames in which they were sent.
    pub sent_frames: u64,
    /// Replies wait for it.
    pub sync: Option<SyncView>,
    /// Whether log that the other region lacks is kept no longer: it gets a copy.
    pub log_let_go: bool,
}

/// When what is behind a position was committed, at the latest; `None`: that is not known.
pub type TimesBehind = dyn Fn(Lsn) -> Option<Time> + std::marker::Send + Sync;

/// See the module.
pub struct Shipping {
    log: Arc<dyn ShippedLog>,
    times: Box<TimesBehind>,
    window_bytes: u64,
    state: Mutex<ShippingState>,
    /// Something happened since the thread looked last.
    has_news: AtomicBool,
    news: Condvar,
    log_let_go: AtomicBool,
}

struct ShippingState {
    open: Option<OpenLink>,
    backlog: Backlog,
    point: RecoveryPoint,
    /// When the point moved last.
    moved_at: Time,
    is_known: bool,
    /// End of the log when this instance became active, and when that was.
    began: (Lsn, Time),
    ended: Option<ShippingEnd>,
    sent_bytes: u64,
    sent_frames: u64,
    /// Replies wait for the other region.
    gate: Option<SyncGate>,
    /// What the one that answers heard last.
    released: Option<Lsn>,
    ending: bool,
}

struct OpenLink {
    link: RegionLink,
    shipper: Shipper,
    /// What is to be compared before anything is sent: the batch behind which it goes on, and the
    /// checksum that the other region said of it.
    unproved: Option<(BatchPlace, Option<u32>)>,
    /// The other region has reported on it.
    reports: bool,
    /// What the instance at the other end said when the link opened, when what is behind that was
    /// committed, and when it said so; until it reports, or that was taken for what it has.
    said: Option<(RecoveryPoint, Option<Time>, Time)>,
}

impl ShippingState {
    fn is_at(&mut self, point: RecoveryPoint, now: Time) {
        if point.place != self.point.place {
            self.moved_at = now;
        }
        (self.point, self.is_known) = (point, true);
    }

    /// An instance of the other region said what that has, and did not report it on a link.
    fn takes_word(&mut self, point: RecoveryPoint, behind_at: Option<Time>, now: Time) {
        self.backlog.reported(&point, now);
        self.backlog.began_behind_point(behind_at);
        if let Some(gate) = &mut self.gate {
            gate.has_at_most(point.place.end);
        }
        self.is_at(point, now);
    }

    /// An instance with which a link stands has not reported for [`SILENT_MAX`], and had less when
    /// the link opened than was reported before: its group may have lost it. One that has no
    /// majority reports nothing.
    fn doubts_silence(&mut self, now: Time) {
        let Some(open) = self.open.as_mut().filter(|open| !open.reports) else { return };
        let is_silent = |at: Time| now.since(at) >= SILENT_MAX;
        let Some((point, behind_at, _)) = open.said.take_if(|(.., at)| is_silent(*at)) else {
            return;
        };
        if point.place.end < self.point.place.end {
            self.takes_word(point, behind_at, now);
        }
    }
}

/// What is to be done for a link now.
enum ShippingTask {
    /// Compare, and send the first frame.
    Begin(BatchPlace, Option<u32>),
    /// Send batches.
    Ship(Send),
}

impl Shipping {
    /// Of an instance that became active: nothing is known of the other region but that it has
    /// `known`.
    #[must_use]
    pub fn new(
        log: Arc<dyn ShippedLog>,
        window_bytes: u64,
        (counts, known): (Counts, BatchPlace),
        now: Time,
    ) -> Shipping {
        let end = log.committed().end;
        let backlog = Backlog::new((end, counts), (known.end, counts), now);
        let state = ShippingState {
            open: None,
            backlog,
            point: RecoveryPoint::default(),
            moved_at: now,
            is_known: false,
            began: (end, now),
            ended: None,
            sent_bytes: 0,
            sent_frames: 0,
            gate: None,
            released: None,
            ending: false,
        };
        let (has_news, news) = (AtomicBool::new(false), Condvar::new());
        let (state, log_let_go) = (Mutex::new(state), AtomicBool::new(false));
        let times: Box<TimesBehind> = Box::new(|_| None);
        Shipping { log, times, window_bytes, state, has_news, news, log_let_go }
    }

    /// Where shipping would begin to an instance at `position`.
    ///
    /// # Errors
    /// Why nothing can be shipped to it.
    pub fn start(&self, position: &RegionPosition) -> Result<BatchPlace, ShippingEnd> {
        match ShippingStart::of(self.log.as_ref(), position) {
            ShippingStart::Behind(behind) => Ok(behind),
            ShippingStart::NeedsCopy => Err(ShippingEnd::NeedsCopy),
            ShippingStart::Diverged { index } => {
                Err(ShippingEnd::Refused(Refusal::Diverged { index }))
            }
            ShippingStart::NotYet => Err(ShippingEnd::Refused(Refusal::NotYet)),
        }
    }

    /// A link stands to an instance that is at `position`, with the checksums of that.
    ///
    /// # Errors
    /// Why nothing can be shipped on it: the caller closes it.
    pub fn opened(
        &self,
        link: RegionLink,
        (position, sums, point): (&RegionPosition, PositionSums, Option<RecoveryPoint>),
        now: Time,
    ) -> Result<(), ShippingEnd> {
        let behind = self.start(position)?;
        let said = point.map(|point| (point, self.time_behind(&point), now));
        let mut shipper = Shipper::begin(self.window_bytes, behind);
        shipper.committed(self.log.committed(), now);
        let sum = if behind == position.last { sums.last } else { sums.committed };
        let unproved = Some((behind, sum));
        let open = OpenLink { link, shipper, unproved, reports: false, said };
        let mut state = self.state.lock();
        state.ended = None;
        if let Some(before) = state.open.replace(open) {
            before.link.close("there is a newer link");
        }
        drop(state);
        self.wake();
        Ok(())
    }

    /// An instance of the other group says what that one can be promoted with, and nothing can be
    /// shipped to it. What is behind that was committed at `behind_at`, as far as is known.
    pub fn knows(&self, point: RecoveryPoint, behind_at: Option<Time>, now: Time) {
        let mut state = self.state.lock();
        if state.open.is_none() {
            state.takes_word(point, behind_at, now);
        }
    }

    /// Whether the log is to be asked when what is behind a position was committed: it was so when
    /// nothing looked here. Not under the lock: the answer may come from elsewhere.
    fn wants_time(&self, position: Lsn) -> bool {
        self.state.lock().backlog.is_before_marks(position)
    }

    /// When what is behind a point of the other region was committed, if this value does not know
    /// it by itself; `None`: it does, or the log does not say. See [`Shipping::with_times`].
    pub fn time_behind(&self, point: &RecoveryPoint) -> Option<Time> {
        let end = point.place.end;
        if self.wants_time(end) { (self.times)(end) } else { None }
    }

    /// The log says when what is behind a position was committed, at the latest, by the clock of
    /// all times here.
    #[must_use]
    pub fn with_times(self, times: Box<TimesBehind>) -> Shipping {
        Shipping { times, ..self }
    }

    /// The link that stands.
    pub fn link(&self) -> Option<RegionLink> {
        self.state.lock().open.as_ref().map(|open| Arc::clone(&open.link))
    }

    /// A link ended.
    pub fn closed(&self, link: LinkId) {
        let mut state = self.state.lock();
        state.open.take_if(|open| open.link.id() == link);
    }

    /// Looks how far the log is committed, after which `counts` stand. `now`: by the clock of all
    /// times here.
    pub fn committed(&self, counts: Counts, now: Time) {
        let place = self.log.committed();
        let mut state = self.state.lock();
        state.backlog.committed(place.end, counts, now);
        state.doubts_silence(now);
        if let Some(open) = &mut state.open {
            open.shipper.committed(place, now);
        }
    }

    /// A frame came on a link.
    ///
    /// # Errors
    /// The link cannot be used any more: the caller closes it.
    pub fn frame(
        &self,
        link: LinkId,
        kind: u8,
        body: &Bytes,
        now: Time,
    ) -> Result<(), ShippingEnd> {
        let fault = |error: &dyn fmt::Display| ShippingEnd::Fault(error.to_string());
        match kind {
            KIND_POINT => {
                let point = RecoveryPoint::decode(body).map_err(|error| fault(&error))?;
                self.reported(link, point, now)
            }
            _ if self.link().is_none_or(|open| open.id() != link) => Ok(()),
            KIND_REFUSED => {
                let refusal = Refusal::decode(body).map_err(|error| fault(&error))?;
                Err(ShippingEnd::Refused(refusal))
            }
            // Of a later version: what must be understood has another version of the link.
            other => {
                tracing::debug!(other, "a frame of an unknown kind from the other region");
                Ok(())
            }
        }
    }

    /// The other group said on a link how far it is. Only a batch of this log is a point: numbers
    /// alone may be of another history, in which that group has gone on without this one.
    fn reported(&self, link: LinkId, point: RecoveryPoint, now: Time) -> Result<(), ShippingEnd> {
        let index = point.place.index;
        // Before the first batch there is nothing to compare.
        let there = (index > 0).then(|| self.log.place(index)).flatten();
        let is_of =
            |place: BatchPlace| (place.term, place.lsn) == (point.place.term, point.place.lsn);
        let behind_at = self.time_behind(&point);
        let mut state = self.state.lock();
        let ShippingState { open, backlog, gate, .. } = &mut *state;
        let Some(open) = open.as_mut().filter(|open| open.link.id() == link) else {
            return Ok(());
        };
        if there.is_some_and(|there| !is_of(there)) {
            let why =
                format!("the recovery group reports batch {index}, which is another one here");
            return Err(ShippingEnd::Fault(why));
        }
        open.shipper.point(point).map_err(|error| ShippingEnd::Fault(error.to_string()))?;
        backlog.reported(&point, now);
        backlog.began_behind_point(behind_at);
        // One that is not known here any more is far behind what replies wait for.
        match (gate, there) {
            (Some(gate), Some(there)) => gate.reported(there.end),
            (Some(gate), None) => gate.has_at_most(point.place.end),
            (None, _) => {}
        }
        open.reports = true;
        state.is_at(point, now);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Something happened: more is committed, or the link's queue has space again. Never waits
    /// for the log.
    pub fn wake(&self) {
        if !self.has_news.swap(true, Ordering::SeqCst) {
            // One that is about to wait has looked, and waits already.
            drop(self.state.lock());
            self.news.notify_all();
        }
    }

    /// Ships until [`Shipping::end`]. `gather` lets a moment pass; `look` is called before each
    /// turn, and every [`LOOK_INTERVAL`] without one.
    pub fn run(&self, gather: impl Fn(Duration), mut look: impl FnMut()) {
        while let Some(is_news) = self.awaits_news() {
            if is_news {
                gather(GATHER);
            }
            look();
            while self.ship_next() {}
        }
    }

    /// Ends [`Shipping::run`].
    pub fn end(&self) {
        self.state.lock().ending = true;
        self.wake();
    }

    /// The same, and ends its link: something else ships from here.
    pub fn retire(&self, why: &str) {
        self.end();
        let open = self.state.lock().open.take();
        open.iter().for_each(|open| open.link.close(why));
    }

    /// How far the other region is.
    pub fn view(&self, now: Time) -> ShippingView {
        let committed = self.log.committed().end;
        let state = self.state.lock();
        let exposure = state.backlog.exposure(now);
        let unmoved = u64::try_from(now.since(state.moved_at).as_micros()).unwrap_or(u64::MAX);
        let (began_end, began_at) = state.began;
        let unknown = (!state.is_known).then(|| Exposure {
            bytes: committed.0.saturating_sub(began_end.0),
            age_us: now.0.saturating_sub(began_at.0),
            ..Exposure::default()
        });
        ShippingView {
            unknown,
            connected: state.open.is_some(),
            is_known: state.is_known,
            reports: state.open.as_ref().is_some_and(|open| open.reports),
            ended: state.ended.clone(),
            exposure,
            point: RecoveryPoint { counts: state.backlog.point_counts(), ..state.point },
            still_us: unmoved.min(exposure.age_us),
            sent_bytes: state.sent_bytes,
            sent_frames: state.sent_frames,
            sync: state.gate.as_ref().map(SyncGate::view),
            log_let_go: self.log_let_go.load(Ordering::Relaxed),
        }
    }

    /// Replies wait for the other region from now on: until then they wait whatever it has.
    pub fn waits_by(&self, gate: Option<SyncGate>) {
        self.state.lock().gate = gate;
    }

    /// Says up to where replies may go, under the lock: `store` must neither wait nor call back.
    /// False: that is said already, or replies do not wait.
    pub fn releases(&self, store: impl FnOnce(Lsn)) -> bool {
        let mut state = self.state.lock();
        let Some(upto) = state.gate.as_ref().map(SyncGate::released) else { return false };
        let is_new = state.released.replace(upto) != Some(upto);
        if is_new {
            store(upto);
        }
        is_new
    }

    /// Looks whether replies wait, or wait no more: what the operator is to hear.
    pub fn look_at_gate(&self, now: Time) -> Option<SyncTurn> {
        let mut state = self.state.lock();
        let is_in_touch = state.open.as_ref().is_some_and(|open| open.reports);
        let age_us = state.backlog.exposure(now).age_us;
        state.gate.as_mut()?.look(SyncSight { is_in_touch, age_us }, now)
    }

    /// Replies wait again, and it is not known up to where something was answered before.
    pub fn wants_floor(&self) -> bool {
        self.state.lock().gate.as_ref().is_some_and(SyncGate::wants_floor)
    }

    /// It is up to here.
    pub fn answered_alone(&self, upto: Lsn) {
        if let Some(gate) = &mut self.state.lock().gate {
            gate.answered_alone(upto);
        }
    }

    /// See [`SyncGate::order_alone`].
    pub fn orders_alone(&self, now: Time) -> bool {
        self.state.lock().gate.as_mut().is_some_and(|gate| gate.order_alone(now))
    }

    /// Whether log that the other region lacks is kept no longer.
    pub(crate) fn note_log_let_go(&self, is_let_go: bool) {
        self.log_let_go.store(is_let_go, Ordering::Relaxed);
    }

    /// The backlog since the last call.
    pub fn sample(&self, now: Time) -> BacklogSample {
        self.state.lock().backlog.sample(now)
    }

    /// Whether something happened, or only time passed; `None`: it ends.
    fn awaits_news(&self) -> Option<bool> {
        let mut state = self.state.lock();
        if !self.has_news.load(Ordering::SeqCst) && !state.ending {
            self.news.wait_for(&mut state, LOOK_INTERVAL);
        }
        let is_news = self.has_news.swap(false, Ordering::SeqCst);
        (!state.ending).then_some(is_news)
    }

    /// Sends one frame; false: there is none to send now.
    fn ship_next(&self) -> bool {
        match self.due() {
            None => false,
            Some((id, ShippingTask::Begin(behind, sum))) => self.begin(id, behind, sum),
            Some((id, ShippingTask::Ship(send))) => self.ship(id, send),
        }
    }

    fn begin(&self, id: LinkId, behind: BatchPlace, sum: Option<u32>) -> bool {
        let own = sum.and_then(|_| self.log.sum(behind));
        let term = self.log.term();
        let mut state = self.state.lock();
        let Some(open) = state.open.as_mut().filter(|open| open.link.id() == id) else {
            return true;
        };
        if own.is_some() && own != sum {
            let end = ShippingEnd::Refused(Refusal::Diverged { index: behind.index });
            return self.give_up(&mut state, end);
        }
        open.unproved = None;
        let (head, parts) = open.shipper.first(term).encode();
        let taken = open.link.send(KIND_BATCHES, FrameBody { head, parts });
        taken || self.give_up(&mut state, not_taken())
    }

    fn ship(&self, id: LinkId, Send { behind, bytes_max }: Send) -> bool {
        // Not under the lock: it may come from the disk.
        let batches = self.log.behind(behind, bytes_max);
        let term = self.log.term();
        let mut state = self.state.lock();
        let Some(open) = state.open.as_mut().filter(|open| open.link.id() == id) else {
            return true;
        };
        let mut batches = match batches {
            Ok(batches) if !batches.is_empty() => batches,
            // It was forgotten meanwhile.
            Ok(_) => return self.give_up(&mut state, ShippingEnd::NeedsCopy),
            Err(why) => return self.give_up(&mut state, ShippingEnd::Fault(why)),
        };
        // More may be committed by now than the shipper knows.
        batches.retain(|batch| batch.index <= open.shipper.committed_index());
        let frame = open.shipper.send(term, batches);
        let bytes = frame.batches.iter().map(|batch| batch.payload.len() as u64).sum::<u64>();
        let (head, parts) = frame.encode();
        let taken = open.link.send(KIND_BATCHES, FrameBody { head, parts });
        state.sent_bytes += bytes;
        state.sent_frames += 1;
        // Refused, it is lost: the next link begins where the other region then is.
        taken || self.give_up(&mut state, not_taken())
    }

    fn due(&self) -> Option<(LinkId, ShippingTask)> {
        let state = self.state.lock();
        let open = state.open.as_ref()?;
        if open.link.queued_bytes() >= QUEUED_BYTES_MAX || state.ending {
            return None;
        }
        let task = match open.unproved {
            Some((behind, sum)) => ShippingTask::Begin(behind, sum),
            None => ShippingTask::Ship(open.shipper.due()?),
        };
        Some((open.link.id(), task))
    }

    fn give_up(&self, state: &mut ShippingState, why: ShippingEnd) -> bool {
        if let Some(open) = state.open.take() {
            open.link.close(&why.to_string());
        }
        state.ended = Some(why);
        false
    }
}

fn not_taken() -> ShippingEnd {
    ShippingEnd::Fault("the link does not take what is sent".to_owned())
}

#[cfg(test)]
mod tests;
