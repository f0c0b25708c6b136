//! Settlement of deliveries.

use towline_types::Time;

use super::LazyFacts;
use crate::fact::{Durability, Fact};
use crate::party::StagedGet;
use crate::queue::{Spot, State};
use crate::request::{Decision, Outcome, Settlement};
use crate::{MessageSequence, QueueId, QueueManager, Refusal};

impl QueueManager {
    /// Settles one delivery. A delivery that is settled already, or of a closed consumer, is
    /// ignored (AMQP 2.6.12: the two ends may cross).
    ///
    /// # Errors
    /// The unit of work is unknown, was rolled back, or is full. The delivery stays unsettled then.
    pub fn settle(
        &mut self,
        now: Time,
        settlement: Settlement,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        out.begin();
        let Settlement { consumer, sequence, outcome, unit, reply_wanted } = settlement;
        let Some(found) = self.consumers.get(&consumer) else { return Ok(()) };
        let Some(lane) = found.held.get(&sequence.0).copied() else { return Ok(()) };
        let (queue, connection) = (found.queue, found.connection);
        let spot = Spot { lane, sequence: sequence.0 };
        if let Some(unit) = unit {
            let unit = self.unit_for_one_more(connection, unit)?;
            unit.gets.push(StagedGet { queue, spot, outcome });
            self.queue_mut(queue).uncommitted_gets += 1;
        }
        if let Some(consumer) = self.consumers.get_mut(&consumer) {
            consumer.held.remove(&sequence.0);
        }
        if unit.is_some() {
            return Ok(());
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
                self.refuse_delivery(now, queue, spot, outcome, out);
                if out.logged > 0 {
                    out.durability = durability;
                }
            }
        }
        Ok(())
    }

    /// The end of a message is decided: it is hidden until the fact applies. True: it is
    /// persistent.
    pub(super) fn leave(&mut self, queue: QueueId, spot: Spot) -> bool {
        let queue = self.queue_mut(queue);
        queue.set_state(spot, State::Leaving);
        queue.entry(spot).is_some_and(|entry| entry.persistent)
    }

    /// A consumer settled without taking the message.
    pub(super) fn refuse_delivery(
        &mut self,
        now: Time,
        queue: QueueId,
        spot: Spot,
        outcome: Outcome,
        facts: &mut dyn LazyFacts,
    ) {
        use crate::DeadLetterReason::{Rejected, Undeliverable};
        let dead_letter = match outcome {
            Outcome::Accepted => unreachable!("an accepted message leaves by a Got"),
            Outcome::Released | Outcome::Modified { failed: false, undeliverable_here: false } => {
                self.give_back(queue, spot);
                return;
            }
            Outcome::Modified { failed: true, undeliverable_here: false } => None,
            Outcome::Modified { failed: _, undeliverable_here: true } => Some(Undeliverable),
            Outcome::Rejected => Some(Rejected),
        };
        let moved =
            dead_letter.is_some_and(|reason| self.dead_letter(now, queue, spot, reason, facts));
        if !moved {
            self.back_out(now, queue, spot, facts);
        }
    }

    /// A held message is available again, in its old place.
    pub(super) fn give_back(&mut self, id: QueueId, spot: Spot) {
        let queue = self.queue_mut(id);
        if queue.deleting {
            self.drop_message(id, spot);
            self.reap(id);
            return;
        }
        queue.set_state(spot, State::Available);
        self.mark_changed(id);
    }

    /// Ends a non-persistent message here and now.
    pub(crate) fn drop_message(&mut self, queue: QueueId, spot: Spot) {
        let removed = self.queue_mut(queue).remove(spot);
        assert!(!removed.entry.persistent, "a persistent message leaves by a fact");
        self.memory_bytes -= removed.bytes();
    }

    /// The place of a message as facts name it.
    pub(super) fn sequence(spot: Spot) -> MessageSequence {
        MessageSequence(spot.sequence)
    }
}
