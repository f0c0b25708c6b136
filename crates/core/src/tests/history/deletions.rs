//! Steps that clear a queue, or delete it and define it again at once under its old name; and the
//! one that ends the oldest unit of work for the sake of the log.

use super::{At, FIRST_GONE, Later, QUEUES, World, threshold};
use crate::ConsumerId;
use crate::object::ObjectType;

impl World {
    pub(super) fn define(&mut self, queue: usize) {
        let waiting = self.rig.waiting();
        self.rig.define_with(QUEUES[queue], threshold(queue)).unwrap();
        self.record(waiting, Vec::new());
    }

    /// The log is nearly full. What a unit got goes back by many runs of one fact, which `units`
    /// tests; here only units that put.
    pub(super) fn press(&mut self) {
        let Some((oldest, _)) = self.rig.core.oldest_unit_in_log() else { return };
        let Some(at) = self.units.iter().position(|(id, _)| *id == oldest) else { return };
        if !self.units[at].1.gets.is_empty() {
            return;
        }
        let (waiting, records) = (self.rig.waiting(), self.rig.log.len());
        assert!(self.rig.press());
        self.units.remove(at);
        assert!(self.rig.waiting() > waiting, "what was ahead is given up");
        for end in records + 1..=self.rig.log.len() {
            self.later.push_back((end, Vec::new()));
        }
    }

    /// No connection has the queue open after this.
    fn close_all(&mut self, queue: usize) {
        let of_queue = |id: &ConsumerId| self.credit.get(id).is_some_and(|found| found.0 == queue);
        let consumers: Vec<ConsumerId> = self.consumers.iter().copied().filter(of_queue).collect();
        for id in consumers {
            let waiting = self.rig.waiting();
            self.rig.close(id, false);
            let mut effects = Vec::new();
            self.end_consumer(id, false, &mut effects);
            self.record(waiting, effects);
        }
        self.rig.core.close_put(&self.targets[queue]);
    }

    /// Refused, and nothing happens, while something of the queue is uncommitted.
    pub(super) fn delete(&mut self, queue: usize) {
        self.close_all(queue);
        let waiting = self.rig.waiting();
        let (now, name) = (self.rig.now, QUEUES[queue]);
        let rig = &mut self.rig;
        if rig.core.delete(now, name, ObjectType::Local, true, &mut rig.decision).is_ok() {
            rig.carry_out();
            let gone = FIRST_GONE + self.deletions;
            self.deletions += 1;
            for row in self.rows.values_mut().filter(|row| row.queue == queue) {
                row.queue = gone;
            }
            // What clears the old queue says nothing of the new one.
            let pending = self.later.iter_mut().flat_map(|(_, effects)| effects);
            for effect in pending {
                if let Later::Cleared { queue: cleared } = effect
                    && *cleared == queue
                {
                    *cleared = gone;
                }
            }
            self.clearing[queue] = 0;
            self.record(waiting, vec![Later::Deleted { queue, gone }]);
            self.define(queue);
        }
        self.targets[queue] = self.rig.open_put(name).unwrap();
    }

    /// The process died before these were durable.
    pub(super) fn undo_deletions(&mut self, effects: &[Later]) {
        for effect in effects {
            if let Later::Deleted { queue, gone } = effect {
                for row in self.rows.values_mut().filter(|row| row.queue == *gone) {
                    row.queue = *queue;
                }
            }
        }
    }

    /// As `delete`.
    pub(super) fn clear(&mut self, queue: usize) {
        self.close_all(queue);
        let waiting = self.rig.waiting();
        let rig = &mut self.rig;
        if rig.core.clear(rig.now, QUEUES[queue], &mut rig.decision).is_ok() {
            rig.carry_out();
            let ids = self.visible(queue);
            for id in &ids {
                self.rows.get_mut(id).unwrap().at = At::Leaving;
            }
            self.clearing[queue] += 1;
            let vanishes = ids.into_iter().map(Later::Vanishes);
            self.record(waiting, vanishes.chain([Later::Cleared { queue }]).collect());
        }
        self.targets[queue] = self.rig.open_put(QUEUES[queue]).unwrap();
    }
}
