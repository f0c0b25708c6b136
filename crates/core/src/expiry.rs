//! What happens as time passes: units of work that are too old end, and so do messages that expired
//! and that no consumer tried to get.

use towline_types::{Lsn, Time, limits};

use crate::decide::LazyFacts;
use crate::effect::{Effect, Outputs};
use crate::fact::Fact;
use crate::message::{BodyName, DeadLetterReason};
use crate::queue::{Entry, EntryState, LANES, Queue, Search, Spot};
use crate::sessions::UnitOfWork;
use crate::{MessageSequence, PageKey, QueueId, QueueManager, Refusal, UnitId};

/// What may be spent when a page came that the scan waited for: all of it is looked at.
const LOOKS_PER_PAGE: u32 = 256 * limits::LOOKS_PER_EXPIRED + 256;

/// Where the scan for expired messages is.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// When the next one begins; `None` before the first tick.
    due: Option<Time>,
    /// Queues still to be scanned, the next one last.
    queues: Vec<QueueId>,
    lane: u8,
    from: u64,
    /// The page without which it cannot go on.
    waits_for: Option<PageKey>,
    /// That page came a moment ago.
    came: bool,
}

impl Scan {
    /// A page was read, or is not needed any more.
    pub(crate) fn page_came(&mut self, key: PageKey) {
        if self.waits_for == Some(key) {
            self.waits_for = None;
            self.came = true;
        }
    }

    fn can_go_on(&self) -> bool {
        !self.queues.is_empty() && self.waits_for.is_none()
    }
}

impl QueueManager {
    /// Does what is due, and begins what takes longer: [`QueueManager::work`] goes on with it.
    /// Facts are lazy, each a run of its own. While runs wait for the log, nothing is due.
    pub fn tick(&mut self, now: Time, outputs: &mut Outputs) {
        self.flush_effects(outputs);
        if self.logs_nothing() {
            return;
        }
        self.end_old_units(now, outputs);
        self.flush_effects(outputs);
        let due = *self.scan.due.get_or_insert(now + self.limits.expiry_scan_interval);
        if self.scan.queues.is_empty() && due <= now {
            self.scan.due = Some(now + self.limits.expiry_scan_interval);
            let expiring = self.queues.values().filter(|queue| queue.expiring > 0);
            self.scan.queues = expiring.map(|queue| queue.id()).collect();
            self.scan.queues.sort_unstable();
            (self.scan.lane, self.scan.from) = (0, 0);
        }
    }

    /// The clock was set: what is counted from an earlier moment goes on as if it had always been
    /// so. Stamps of messages and what expires at a time of day stay what they are.
    pub fn clock_stepped(&mut self, by_us: i64) {
        for unit in self.units.values_mut() {
            unit.opened_at = unit.opened_at.moved(by_us);
        }
        self.scan.due = self.scan.due.map(|due| due.moved(by_us));
    }

    /// After a page arrived: goes on with a scan that waited for it. At once, because a page may be
    /// gone again before the next tick.
    pub fn scan_on(&mut self, now: Time, outputs: &mut Outputs) {
        if std::mem::take(&mut self.scan.came) && self.scan_can_go_on() {
            self.scan_step(now, &mut { LOOKS_PER_PAGE }, outputs);
        }
    }

    /// When `tick` or `work` must be called, if nothing else happens before. `Time::ZERO`: at
    /// once.
    #[must_use]
    pub fn next_tick(&self) -> Time {
        if self.has_work() || !self.effects.is_empty() {
            return Time::ZERO;
        }
        if self.logs_nothing() {
            return Time::NEVER;
        }
        // One that waits for a page goes on when that arrives; the first one is due at once.
        let waits = self.scan.waits_for.is_some();
        let scan = if waits { Time::NEVER } else { self.scan.due.unwrap_or(Time::ZERO) };
        let oldest = self.units.values().next();
        let unit = oldest.map_or(Time::NEVER, |unit| unit.opened_at + self.limits.unit_age_max);
        scan.min(unit)
    }

    /// What it finds is logged: it stands still while runs wait for the log.
    pub(crate) fn scan_can_go_on(&self) -> bool {
        self.scan.can_go_on() && !self.logs_nothing()
    }

    fn end_old_units(&mut self, now: Time, outputs: &mut Outputs) {
        let age_max = self.limits.unit_age_max;
        while let Some(oldest) = self.units.first_entry() {
            if oldest.get().opened_at + age_max > now {
                return;
            }
            let id = *oldest.key();
            let reason = Refusal::UnitTooOld { seconds_max: age_max.as_secs() };
            self.end_unit(now, id, reason, outputs);
        }
    }

    /// The open unit of work with the oldest bodies in the log, and where they begin. None when no
    /// unit has any there, or the oldest ones are not durable yet.
    #[must_use]
    pub fn oldest_unit_in_log(&self) -> Option<(UnitId, Lsn)> {
        // Ids of bodies ascend with their log positions.
        let first = |unit: &UnitOfWork| unit.spilled_bodies.first().map(|(body, _)| *body);
        let in_log = self.units.iter().filter_map(|(id, unit)| Some((first(unit)?, *id)));
        let (body, id) = in_log.min()?;
        self.spilled_bodies.pieces(BodyName::Own(body)).first().map(|location| (id, location.lsn))
    }

    /// Rolls back the unit of [`QueueManager::oldest_unit_in_log`]: the log is so full, and cannot
    /// be reused from there on. False when there is none.
    pub fn end_oldest_unit_in_log(
        &mut self,
        now: Time,
        percent: u64,
        outputs: &mut Outputs,
    ) -> bool {
        if !self.serves() {
            return false;
        }
        let Some((id, _)) = self.oldest_unit_in_log() else { return false };
        self.end_unit(now, id, Refusal::UnitHeldLog { percent }, outputs);
        self.flush_effects(outputs);
        true
    }

    /// Goes on with the scan, until `looks` are used up.
    pub(crate) fn scan_step(&mut self, now: Time, looks: &mut u32, outputs: &mut Outputs) {
        while let Some(id) = self.scan.queues.last().copied() {
            if *looks == 0 {
                return;
            }
            let scan = &mut self.scan;
            // What is being deleted ends by its Deleted: a fact behind it would find no queue.
            let goes = |queue: &&mut Box<Queue>| queue.deleting || queue.clearing > 0;
            let queue = self.queues.get_mut(&id);
            let queue = queue.filter(|queue| queue.expiring > 0 && !goes(queue));
            let (Some(queue), true) = (queue, usize::from(scan.lane) < LANES) else {
                scan.queues.pop();
                *looks -= 1;
                (scan.lane, scan.from) = (0, 0);
                continue;
            };
            let spot = match queue.next_to_expire(scan.lane, scan.from, now) {
                Search::Found(spot) => spot,
                Search::OnPage(away) => {
                    scan.waits_for = Some(queue.page_of(away).key);
                    let mut asked = Vec::new();
                    queue.ask_to_expire(away, now, &mut asked);
                    let asked = asked.into_iter().map(|request| Effect::LoadPage { request });
                    outputs.effects.extend(asked);
                    return;
                }
                Search::Nothing => {
                    (scan.lane, scan.from) = (scan.lane + 1, 0);
                    continue;
                }
            };
            *looks -= 1;
            scan.from = spot.sequence + 1;
            // A held one comes back or goes; the queue sees to it then.
            let ends =
                |entry: &Entry| entry.state == EntryState::Available && entry.is_expired(now);
            if queue.entry(spot).is_some_and(ends) {
                queue.set_state(spot, EntryState::Leaving);
                *looks = looks.saturating_sub(limits::LOOKS_PER_EXPIRED - 1);
                self.expire(now, id, spot, outputs);
            }
        }
    }

    /// Ends a message that expired and is hidden already.
    pub(crate) fn expire(&mut self, now: Time, id: QueueId, spot: Spot, outputs: &mut Outputs) {
        assert!(self.serves(), "an end is decided while another group is live");
        let reason = DeadLetterReason::Expired;
        if self.limits.expired_to_dead_letter && self.dead_letter(now, id, spot, reason, outputs) {
            return;
        }
        let queue = self.queue_mut(id);
        if queue.entry(spot).is_some_and(|entry| entry.persistent) {
            let sequence = MessageSequence(spot.sequence);
            outputs.push_lazy(Fact::Expired { queue: id, sequence });
        } else {
            queue.totals.expired += 1;
            self.drop_message(id, spot);
            self.reap(id);
        }
    }
}
