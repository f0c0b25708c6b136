//! The recovery side of one link between regions: what the live group ships is given to the member
//! of this instance, on a thread of its own, and it is answered how far this group is.
//!
//! What arrives waits here, and is bounded: beyond [`WAITING_BYTES_MAX`] the link reads no more.
//! What the member does not take yet (its group has no majority, or enters a timeline) is given to
//! it again. What it refuses for good ends the link: the live side hears why, and connects again.
//!
//! Not here: what the member does with it (`towline_group`); when it is reported (`Reports`); what
//! may be received at all (`region_meeting`).
//!
//! Invariants: the histories of what comes are on the disk before the first batch; what arrives is
//! given on in order, link by link; a recovery point is reported only once the first frame of the
//! link was compared with this log; the driver is not called under the lock of this value.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use towline_group::{Shipment, ShipmentRefusal, ShippedAnswer};
use towline_link::{FrameBody, FrameCost, Intake, LinkId, RegionLink};
use towline_os::sync::{Condvar, Mutex};
use towline_region::wire::{Batches, KIND_POINT, KIND_REFUSED};
use towline_region::{CountedLog, RecoveryPoint, Refusal, ReportPolicy, Reports};
use towline_types::{Histories, Lsn, Time};

use crate::driver::Driver;

/// Bytes of frames that wait for the member.
pub const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What the member does not take yet is given to it again after this, or when it has news.
const AGAIN: Duration = Duration::from_millis(20);
/// The longest sleep of the thread.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What the relay's thread needs of its instance.
pub struct ReceivingHost {
    /// Persistent messages ever put and removed, as applied here.
    pub counts: Box<dyn Fn() -> CountedLog + Send + Sync>,
    /// The round trip of the link, if it was measured.
    pub round_trip: Box<dyn Fn() -> Option<Duration> + Send + Sync>,
    /// The link ended because this group takes no more: why.
    pub refused: Box<dyn Fn(Refusal) + Send + Sync>,
    /// What was promotable before a copy replaced the log of this instance alone, if a majority
    /// does not have that yet: it has batches up to the index that is given.
    pub before: Box<dyn Fn(u64) -> Option<RecoveryPoint> + Send + Sync>,
    /// Copies that this instance has begun to take.
    pub rebases: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What this instance receives, as status and metrics want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivingView {
    /// Whether a link stands on which the live group ships to this instance.
    pub connected: bool,
    /// End of what the live group had committed, as it said with its log or beside it: what is
    /// here may be less.
    pub live_committed: Lsn,
    /// When it had, by its clock, as it said with its log.
    pub live_committed_at: Time,
    /// When log came on the link; `None`: none has.
    pub log_came_at: Option<Time>,
    /// What was reported last.
    pub point: RecoveryPoint,
}

/// See the module.
pub struct Receiving {
    driver: Arc<Driver>,
    policy: ReportPolicy,
    host: ReceivingHost,
    state: Mutex<ReceivingState>,
    news: Condvar,
}

#[derive(Default)]
struct ReceivingState {
    arrivals: VecDeque<Arrival>,
    waiting_bytes: usize,
    /// The link that reads no more for the time being.
    paused: Option<RegionLink>,
    newest: Option<RegionLink>,
    answer: Option<ShippedAnswer>,
    /// The member has heard of a newer history than the one that is shipped.
    is_promoted: bool,
    /// Of what was reported last, or is about to be.
    counted: CountedLog,
    has_news: bool,
    ending: bool,
    view: ReceivingView,
}

enum Arrival {
    /// Whether replies of the live group wait for what is reported.
    Opened(RegionLink, Histories, bool),
    Frame(Bytes, FrameCost),
    Closed,
}

/// What the thread knows of the link that stands.
struct Relayed {
    link: RegionLink,
    reports: Reports,
    /// What the member does not take yet.
    pending: Option<Shipment>,
    /// End of the batch behind which the link began, once the first frame was taken.
    began_behind: Option<Lsn>,
    /// The other side is to begin anew: nothing more of this link counts.
    is_over: bool,
}

/// Counts since the start of the process.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedSums {
    bytes: u64,
    wire_bytes: u64,
    decompression: Duration,
}

impl Receiving {
    /// Of an instance that nothing is shipped to yet.
    #[must_use]
    pub fn new(driver: Arc<Driver>, policy: ReportPolicy, host: ReceivingHost) -> Receiving {
        let (state, news) = (Mutex::default(), Condvar::new());
        Receiving { driver, policy, host, state, news }
    }

    /// The live group connected to this instance; its log has these histories. `is_awaited`: its
    /// replies wait for what is reported.
    pub fn opened(&self, link: RegionLink, histories: Histories, is_awaited: bool) {
        let mut state = self.state.lock();
        state.forget_frames();
        // It says it again: a group that was promoted meanwhile may have less.
        state.view.live_committed = Lsn::ZERO;
        state.view.log_came_at = None;
        state.newest = Some(Arc::clone(&link));
        state.arrivals.push_back(Arrival::Opened(link, histories, is_awaited));
        self.wake(&mut state);
    }

    /// A frame with batches came.
    pub fn frame(&self, link: LinkId, body: Bytes, cost: FrameCost) -> Intake {
        let now = self.driver.now();
        let mut state = self.state.lock();
        let Some(newest) = state.newest.clone().filter(|newest| newest.id() == link) else {
            return Intake::More;
        };
        state.view.log_came_at = Some(now);
        state.waiting_bytes += body.len();
        state.arrivals.push_back(Arrival::Frame(body, cost));
        self.wake(&mut state);
        if state.waiting_bytes < WAITING_BYTES_MAX {
            return Intake::More;
        }
        state.paused = Some(newest);
        Intake::Full
    }

    /// The link that stands.
    pub fn link(&self) -> Option<RegionLink> {
        self.state.lock().newest.clone()
    }

    /// A link ended.
    pub fn closed(&self, link: LinkId) {
        let mut state = self.state.lock();
        if state.newest.take_if(|newest| newest.id() == link).is_some() {
            state.forget_frames();
            state.arrivals.push_back(Arrival::Closed);
            self.wake(&mut state);
        }
    }

    /// The member said how far this group is. Never waits.
    pub fn answers(&self, answer: ShippedAnswer) {
        let is_last = answer.refused == Some(ShipmentRefusal::Promoted);
        let answer = ShippedAnswer { refused: None, ..answer };
        let mut state = self.state.lock();
        state.is_promoted |= is_last;
        // Each thing that is given to the member is answered: only what moved is news.
        if state.answer != Some(answer) {
            state.answer = Some(answer);
            self.wake(&mut state);
        }
    }

    /// The live group said beside its log that it has committed so much.
    pub(crate) fn hears_live(&self, committed: Lsn) {
        let known = &mut self.state.lock().view.live_committed;
        *known = committed.max(*known);
    }

    /// How far this instance is.
    pub fn view(&self) -> ReceivingView {
        self.state.lock().view
    }

    /// Ends [`Receiving::run`].
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.ending = true;
        self.wake(&mut state);
    }

    fn wake(&self, state: &mut ReceivingState) {
        state.has_news = true;
        self.news.notify_all();
    }

    /// Receives until [`Receiving::end`].
    pub fn run(&self) {
        let mut relayed: Option<Relayed> = None;
        let mut sums = ReceivedSums::default();
        loop {
            let point = self.point(&sums);
            let Some(arrival) = self.next(relayed.as_ref(), &point) else { return };
            if let Some(arrival) = arrival {
                self.takes(&mut relayed, &mut sums, arrival);
            }
            if let Some(relayed) = &mut relayed {
                self.ships_again(relayed);
                self.reports(relayed, &sums);
            }
        }
    }

    /// Waits for the next thing to do: something that arrived, or only a look. `None`: it ends.
    fn next(&self, relayed: Option<&Relayed>, point: &RecoveryPoint) -> Option<Option<Arrival>> {
        let rest = match relayed {
            None => LOOK_INTERVAL,
            Some(Relayed { pending: Some(_), .. }) => AGAIN,
            Some(relayed) if relayed.began_behind.is_some() && !relayed.is_over => {
                let due = relayed.reports.due(point);
                due.since(self.driver.now()).clamp(Duration::from_millis(1), LOOK_INTERVAL)
            }
            Some(_) => LOOK_INTERVAL,
        };
        let mut state = self.state.lock();
        if !state.has_news && !state.ending {
            self.news.wait_for(&mut state, rest);
        }
        if state.ending {
            return None;
        }
        let is_held = relayed.is_some_and(|relayed| relayed.pending.is_some());
        let is_frame = matches!(state.arrivals.front(), Some(Arrival::Frame(..)));
        let arrival = if is_held && is_frame { None } else { state.arrivals.pop_front() };
        // While the member does not take what came first, more of the same is no news.
        state.has_news = match state.arrivals.front() {
            None => false,
            Some(Arrival::Frame(..)) => !is_held || arrival.is_some(),
            Some(Arrival::Opened(..) | Arrival::Closed) => true,
        };
        if let Some(Arrival::Frame(body, _)) = &arrival {
            state.waiting_bytes -= body.len();
        }
        let has_space = state.waiting_bytes < WAITING_BYTES_MAX / 2;
        let paused = state.paused.take_if(|_| has_space);
        drop(state);
        if let Some(link) = paused {
            link.resume();
        }
        Some(arrival)
    }

    fn takes(&self, relayed: &mut Option<Relayed>, sums: &mut ReceivedSums, arrival: Arrival) {
        match arrival {
            Arrival::Opened(link, histories, is_awaited) => {
                self.ends(relayed);
                match self.driver.follow(&histories) {
                    Ok(true) => {}
                    Ok(false) => return link.close(&Refusal::Promoted.to_string()),
                    Err(error) => {
                        return link.close(&format!("its histories cannot be kept here: {error}"));
                    }
                }
                self.state.lock().view.connected = true;
                *relayed = Some(Relayed {
                    link,
                    reports: Reports::new(ReportPolicy { is_awaited, ..self.policy }),
                    pending: None,
                    began_behind: None,
                    is_over: false,
                });
            }
            Arrival::Closed => self.ends(relayed),
            Arrival::Frame(body, cost) => {
                let Some(relayed) = relayed.as_mut().filter(|relayed| !relayed.is_over) else {
                    return;
                };
                match Batches::decode(&body) {
                    Ok(batches) => {
                        sums.add(&batches, cost);
                        self.ships(relayed, batches);
                    }
                    Err(error) => relayed.fails(&error.to_string()),
                }
            }
        }
    }

    fn ends(&self, relayed: &mut Option<Relayed>) {
        if relayed.take().is_some() {
            self.driver.end_shipping();
            let mut state = self.state.lock();
            (state.answer, state.is_promoted) = (None, false);
            state.view.connected = false;
        }
    }

    fn ships(&self, relayed: &mut Relayed, batches: Batches) {
        let Batches { term, previous, committed, committed_at, batches } = batches;
        let mut state = self.state.lock();
        let view = &mut state.view;
        // What it said beside its log came earlier, and may say more.
        view.live_committed = committed.max(view.live_committed);
        view.live_committed_at = committed_at;
        drop(state);
        self.driver.heard_live(committed, None);
        relayed.pending = Some(Shipment { term, previous, batches });
    }

    /// Gives the member what it has not taken yet.
    fn ships_again(&self, relayed: &mut Relayed) {
        let Some(shipment) = relayed.pending.clone() else { return };
        let behind = shipment.previous.end;
        let refused = match self.driver.ship(shipment) {
            // It takes nothing at present.
            Ok(None) => return,
            Ok(Some(answer)) => answer.refused,
            Err(why) => return relayed.fails(&why),
        };
        let refusal = match refused {
            None => {
                relayed.began_behind.get_or_insert(behind);
                relayed.pending = None;
                return;
            }
            Some(ShipmentRefusal::NotYet) => return,
            Some(ShipmentRefusal::SendFrom { index, .. }) => Refusal::Gap { index },
            Some(ShipmentRefusal::Promoted) => Refusal::Promoted,
            Some(ShipmentRefusal::Diverged { index }) => Refusal::Diverged { index },
        };
        relayed.refuses(refusal);
        (self.host.refused)(refusal);
    }

    fn reports(&self, relayed: &mut Relayed, sums: &ReceivedSums) {
        let (now, point) = (self.driver.now(), self.point(sums));
        // Before that this side cannot know whether what it has is the log that is shipped.
        let is_compared = relayed.began_behind.is_some_and(|behind| point.received >= behind);
        if relayed.is_over || !is_compared || relayed.reports.due(&point) > now {
            return;
        }
        if let Some(round_trip) = (self.host.round_trip)() {
            relayed.reports.measured(round_trip);
        }
        let body = FrameBody { head: point.encode(), parts: Vec::new() };
        if relayed.link.send(KIND_POINT, body) {
            relayed.reports.reported(point, now);
            self.state.lock().view.point = point;
        }
    }

    fn point(&self, sums: &ReceivedSums) -> RecoveryPoint {
        let seen = (self.host.counts)();
        let mut state = self.state.lock();
        let answer = state.answer.unwrap_or_default();
        // What is applied by now may be of a history in which the live group has no part.
        if !state.is_promoted {
            state.counted = state.counted.upto(answer.recovery_point.end, seen);
        }
        let counts = state.counted.counts;
        drop(state);
        let (place, counts) = match (self.host.before)(answer.majority.index) {
            Some(before) => (before.place, before.counts),
            None => (answer.recovery_point, counts),
        };
        RecoveryPoint {
            place,
            received: answer.durable.end,
            counts,
            bytes: sums.bytes,
            wire_bytes: sums.wire_bytes,
            decompression_us: u64::try_from(sums.decompression.as_micros()).unwrap_or(u64::MAX),
            rebases: (self.host.rebases)(),
        }
    }
}

impl ReceivingState {
    /// What came on links before the newest.
    fn forget_frames(&mut self) {
        self.arrivals.retain(|arrival| !matches!(arrival, Arrival::Frame(..)));
        self.waiting_bytes = 0;
        self.paused = None;
    }
}

impl Relayed {
    fn refuses(&mut self, refusal: Refusal) {
        self.pending = None;
        self.is_over = true;
        // The live side ends the link when it hears that; one that is full ends here.
        let body = FrameBody { head: refusal.encode(), parts: Vec::new() };
        if !self.link.send(KIND_REFUSED, body) {
            self.link.close(&refusal.to_string());
        }
    }

    fn fails(&mut self, why: &str) {
        self.pending = None;
        self.is_over = true;
        self.link.close(why);
    }
}

impl ReceivedSums {
    fn add(&mut self, batches: &Batches, cost: FrameCost) {
        let payloads = batches.batches.iter().map(|batch| batch.payload.len() as u64);
        self.bytes += payloads.sum::<u64>();
        self.wire_bytes += cost.wire_bytes as u64;
        self.decompression += cost.decompression;
    }
}

#[cfg(test)]
mod tests;
