//! Settlement of deliveries.

use towline_types::{Time, limits};

use super::LazyFacts;
use crate::fact::{Durability, Fact};
use crate::message::DeadLetterReason;
use crate::queue::{Attention, EntryState, Spot};
use crate::request::{Decision, Outcome, Settlement};
use crate::sessions::{Cursor, HeldMessage, StagedGet};
use crate::{ConnectionId, ConsumerId, MessageSequence, QueueId, QueueManager, Refusal, UnitId};

impl QueueManager {
    /// Settles one delivery. Outside a unit of work, one that is settled already, or of a closed
    /// consumer, is ignored (AMQP 2.6.12: the two ends may cross).
    ///
    /// # Errors
    /// The unit of work is unknown: the delivery stays unsettled. Or it was rolled back, or is
    /// full: a delivery that the consumer has forgotten goes back when the unit is discharged, and
    /// beyond a bound at once, so that there may be facts all the same. Or the delivery is not the
    /// consumer's to settle any more, and the unit must not commit as though the outcome were in
    /// it.
    pub fn settle(
        &mut self,
        now: Time,
        settlement: Settlement,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        let Settlement { consumer: id, sequence, outcome, unit, settled, reply_wanted } =
            settlement;
        let consumer = self.consumers.get(&id);
        let held = consumer.and_then(|found| Some((found, *found.held.get(&sequence.0)?)));
        let Some((found, HeldMessage { lane, failed })) = held else {
            return unit.map_or(Ok(()), |unit| self.settle_again(unit, &settlement));
        };
        let queue = found.queue;
        let connection = found.connection;
        let spot = Spot { lane, sequence: sequence.0 };
        if let Some(unit) = unit {
            let get = StagedGet { consumer: id, settled, queue, spot, outcome };
            return self.stage_get(now, connection, unit, get, out);
        }
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.held.remove(&sequence.0);
        }
        let durability = if reply_wanted { Durability::Forced } else { Durability::Lazy };
        match outcome {
            Outcome::Accepted => {
                if self.leave(queue, spot) {
                    out.push_logged(Fact::Got { queue, sequence }, durability);
                } else {
                    out.push_memory(Fact::Got { queue, sequence });
                }
            }
            Outcome::Released | Outcome::Rejected | Outcome::Modified { .. } => {
                let get = StagedGet { consumer: id, settled, queue, spot, outcome };
                self.refuse_delivery(now, get, failed, out);
                if out.logged > 0 {
                    out.durability = durability;
                }
            }
        }
        Ok(())
    }

    /// The queue of a message that this consumer has, and has given no outcome for; `None`: it has
    /// no such.
    #[must_use]
    pub fn queue_of_delivery(
        &self,
        consumer: ConsumerId,
        sequence: MessageSequence,
    ) -> Option<QueueId> {
        let consumer = self.consumers.get(&consumer)?;
        consumer.held.contains_key(&sequence.0).then_some(consumer.queue)
    }

    /// Adds an outcome to a unit of work. What the unit cannot take and the consumer has forgotten
    /// is kept beside it: it cannot stay with the consumer, and goes back with the rest.
    fn stage_get(
        &mut self,
        now: Time,
        connection: ConnectionId,
        id: UnitId,
        get: StagedGet,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        let staged = match self.unit_for_one_more(connection, id) {
            Ok(unit) => {
                unit.stage_get(get);
                Ok(())
            }
            Err(Refusal::UnknownUnit) => return Err(Refusal::UnknownUnit),
            Err(refusal) if !get.settled => return Err(refusal),
            Err(refusal) => Err(refusal),
        };
        if let Some(consumer) = self.consumers.get_mut(&get.consumer) {
            consumer.held.remove(&get.spot.sequence);
        }
        self.queue_mut(get.queue).uncommitted_gets += 1;
        if let Err(refusal) = &staged {
            self.keep_late_get(now, id, get, refusal, out);
        }
        staged
    }

    /// Keeps a get that its unit cannot take and no other client has, as far as there is a bound.
    fn keep_late_get(
        &mut self,
        now: Time,
        id: UnitId,
        get: StagedGet,
        why: &Refusal,
        out: &mut Decision,
    ) {
        if let Some(full) = self.units.get_mut(&id) {
            let messages_max = usize::try_from(self.limits.unit_messages_max);
            let most = messages_max.unwrap_or(usize::MAX).saturating_add(limits::LATE_GETS_MAX);
            if full.messages() < most {
                return full.stage_get(get);
            }
            self.end_unit(now, id, why.clone(), out);
        }
        match self.ended_units.get_mut(&id) {
            Some(ended) if ended.late.len() < limits::LATE_GETS_MAX => ended.stage_get(get),
            Some(_) => self.roll_back_get(now, get, out),
            None => unreachable!("a unit that refuses a get is open, or was rolled back"),
        }
    }

    /// An outcome for a delivery that its consumer does not have. In the unit it is in already, it
    /// says no more than that the consumer has forgotten it by now.
    fn settle_again(&mut self, unit: UnitId, settlement: &Settlement) -> Result<(), Refusal> {
        let Settlement { consumer, sequence, settled, .. } = *settlement;
        let (gets, places) = match (self.units.get_mut(&unit), self.ended_units.get_mut(&unit)) {
            (Some(open), _) => (&mut open.gets, &open.get_places),
            (None, Some(ended)) => (&mut ended.late, &ended.late_places),
            (None, None) => return Err(Refusal::UnknownUnit),
        };
        let Some(place) = places.get(&(consumer, sequence.0)) else {
            return Err(Refusal::UnitDoomed);
        };
        let get = &mut gets[*place];
        assert_eq!((get.consumer, get.spot.sequence), (consumer, sequence.0), "another delivery");
        get.settled |= settled;
        Ok(())
    }

    /// The end of a message is decided: it is hidden until the fact applies. True: it is
    /// persistent.
    pub(super) fn leave(&mut self, queue: QueueId, spot: Spot) -> bool {
        let queue = self.queue_mut(queue);
        queue.set_state(spot, EntryState::Leaving);
        queue.entry(spot).is_some_and(|entry| entry.persistent)
    }

    /// A consumer settled without taking the message. `failed`: a backout is due in any case.
    pub(super) fn refuse_delivery(
        &mut self,
        now: Time,
        get: StagedGet,
        failed: bool,
        facts: &mut dyn LazyFacts,
    ) {
        let StagedGet { consumer, queue, spot, outcome, settled: _ } = get;
        let (counts, not_here) = match outcome {
            Outcome::Accepted => unreachable!("an accepted message leaves by a Got"),
            Outcome::Released => (false, false),
            Outcome::Modified { failed, undeliverable_here } => (failed, undeliverable_here),
            Outcome::Rejected => {
                if self.dead_letter(now, queue, spot, DeadLetterReason::Rejected, facts) {
                    return;
                }
                // It stays: given to the same consumer again, it would go round for ever.
                (true, true)
            }
        };
        if not_here {
            self.refuse_here(consumer, spot.sequence);
        }
        if counts || failed {
            self.back_out(now, queue, spot, facts);
        } else {
            self.give_back(queue, spot);
        }
    }

    /// This consumer does not get this message again. One that took whatever is first looks at each
    /// message from now on.
    fn refuse_here(&mut self, id: ConsumerId, sequence: u64) {
        let Some(consumer) = self.consumers.get_mut(&id).filter(|found| !found.closing) else {
            return;
        };
        consumer.refused.insert(sequence);
        let connection = self.connections.get(&consumer.connection);
        let consumers = connection.map_or(1, |found| found.consumers.len().max(1));
        let share = limits::REFUSED_PER_CONNECTION_MAX / consumers;
        while consumer.refused.len() > share.clamp(1, limits::REFUSED_PER_CONSUMER_MAX) {
            consumer.refused.pop_first();
        }
        if consumer.attention != Attention::Plain {
            return;
        }
        let Some(queue) = self.queues.get_mut(&consumer.queue) else { return };
        queue.waiting.is_plain_no_more(consumer.visitor());
        consumer.attention = Attention::Scanner;
        consumer.cursor = Cursor::Lanes(Box::default());
        consumer.waiting = false;
        queue.waiting.open(consumer.visitor());
        if consumer.drain {
            queue.waiting.draining.insert(id);
        }
        if consumer.wants() {
            queue.waiting.wake(consumer.visitor());
        }
    }

    /// A held message is available again, at its old position.
    pub(crate) fn give_back(&mut self, id: QueueId, spot: Spot) {
        let queue = self.queue_mut(id);
        if queue.deleting {
            self.drop_message(id, spot);
            self.reap(id);
            return;
        }
        queue.set_state(spot, EntryState::Available);
        self.mark_changed(id);
    }

    /// Ends a non-persistent message here and now.
    pub(crate) fn drop_message(&mut self, queue: QueueId, spot: Spot) {
        let removed = self.queue_mut(queue).remove(spot);
        assert!(!removed.entry.persistent, "a persistent message leaves by a fact");
        self.memory_bytes -= removed.bytes();
    }

    /// The queue and sequence of a message as facts name it.
    pub(super) fn sequence(spot: Spot) -> MessageSequence {
        MessageSequence(spot.sequence)
    }
}
