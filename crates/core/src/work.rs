//! Work that takes longer than one step may: queues with more to hand to consumers, the scan for
//! expired messages, what is left of cleared and deleted queues, what comes back of large units of
//! work and from clients that are gone, and large units of work that are committed. It is done in
//! slices; between them, others are served.
//!
//! Knows no time: a slice has so many units, and its caller finds out how many fit. A unit is about
//! as long as a look at one message. Kinds of work take turns, and so do queues: none waits until
//! another one is finished.

use towline_types::{Time, limits};

use crate::dispatch::Budget;
use crate::effect::Outputs;
use crate::request::Selection;
use crate::{QueueId, QueueManager};

impl QueueManager {
    /// Whether [`QueueManager::work`] has anything to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let serves = self.serves();
        serves && (!self.changed.is_empty() || !self.unserved.is_empty())
            || self.scan_can_go_on()
            || !self.garbage.is_empty()
            || self.returns_can_go_on()
            || self.parts.is_arriving()
    }

    /// Does a slice of what is left to do, and takes what it cost off `units`: it ends when they
    /// are used up, or when nothing is left. The last turn may cost more than is left.
    pub fn work(
        &mut self,
        now: Time,
        units: &mut u32,
        selection: &mut dyn Selection,
        outputs: &mut Outputs,
    ) {
        self.flush_effects(outputs);
        while *units > 0 && self.has_work() {
            let serves = self.serves();
            if serves && let Some(id) = self.changed.pop_front() {
                self.take_turn(now, id, units, selection, outputs);
            }
            if serves && let Some(id) = self.unserved.pop_front() {
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.unserved = false;
                }
                self.take_turn(now, id, units, selection, outputs);
            }
            if self.scan_can_go_on() {
                let mut looks = limits::LOOKS_PER_TURN.min(*units);
                let before = looks;
                self.scan_step(now, &mut looks, outputs);
                *units = units.saturating_sub((before - looks).max(1));
            }
            if !self.garbage.is_empty() {
                *units = units.saturating_sub(self.give_up_some(outputs).max(1));
            }
            if self.returns_can_go_on() {
                *units = units.saturating_sub(self.return_some(now, outputs).max(1));
            }
            if self.parts.is_arriving() {
                *units = units.saturating_sub(self.complete_some(now, outputs).max(1));
            }
        }
        self.flush_effects(outputs);
    }

    /// Serves a queue as far as one turn may.
    fn take_turn(
        &mut self,
        now: Time,
        id: QueueId,
        units: &mut u32,
        selection: &mut dyn Selection,
        outputs: &mut Outputs,
    ) {
        let turn = limits::LOOKS_PER_TURN.min(*units).max(1);
        let mut budget = Budget::new(turn, turn);
        self.serve(now, id, &mut budget, selection, outputs);
        let spent = 2 * i64::from(turn) - budget.looks - budget.deliveries;
        let spent = u32::try_from(spent.max(1)).unwrap_or(u32::MAX);
        *units = units.saturating_sub(spent);
    }
}
