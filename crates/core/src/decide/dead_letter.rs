//! Backouts, and what the queue manager moves by itself: poison messages to BOQNAME, others to the
//! dead-letter queue. IBM MQ leaves this to applications; AMQP clients have no code for it.
//!
//! A message is only moved where it fits: the target must exist, be PUT(ENABLED), have free space,
//! and keep what is persistent. Else it stays where it is and is delivered again: nothing is ever
//! lost here.

use towline_types::{Time, limits};

use super::LazyFacts;
use crate::fact::Fact;
use crate::message::{DeadLetter, DeadLetterReason, Message};
use crate::object::QueueKind;
use crate::queue::{EntryState, Spot};
use crate::record::fields::LEVEL_OF_FIELDS;
use crate::returns::ReturningMessage;
use crate::{MessageSequence, QueueId, QueueManager};

impl QueueManager {
    /// A delivery failed: the message becomes available again with one more backout, or, when the
    /// count reaches BOTHRESH, to BOQNAME or the dead-letter queue.
    pub(crate) fn back_out(
        &mut self,
        now: Time,
        id: QueueId,
        spot: Spot,
        facts: &mut dyn LazyFacts,
    ) {
        let queue = self.queue_mut(id);
        if queue.deleting {
            self.give_back(id, spot);
            return;
        }
        if self.backout_waits(id, spot) {
            return self.return_later(vec![ReturningMessage::Held {
                queue: id,
                spot,
                failed: true,
            }]);
        }
        let queue = self.queue_mut(id);
        let threshold = queue.definition.attributes.backout_threshold;
        let Some(entry) = queue.entry(spot) else {
            unreachable!("a message that is held is in its queue")
        };
        let count = entry.backout_count.saturating_add(1);
        let persistent = entry.persistent;
        queue.set_backouts(spot, count);
        if persistent {
            // Counted in the totals when applied. It goes first: a move carries no count.
            facts.push_lazy(Fact::BackedOut { queue: id, sequence: Self::sequence(spot), count });
        } else {
            queue.totals.backouts += 1;
        }
        let poison = threshold > 0 && count >= threshold;
        let reason = DeadLetterReason::BackoutThreshold;
        if !(poison && self.dead_letter(now, id, spot, reason, facts)) {
            self.give_back(id, spot);
        }
    }

    /// Whether a backout would be one more run that waits for the log. Its message would be
    /// delivered again at once, to a client that may do that again and again.
    fn backout_waits(&self, id: QueueId, spot: Spot) -> bool {
        let persistent = || self.queue(id).entry(spot).is_some_and(|entry| entry.persistent);
        self.logs_nothing() && persistent()
    }

    /// Moves a message to the queue that this reason leads to. False: there is no usable one, and
    /// nothing changed.
    pub(crate) fn dead_letter(
        &mut self,
        now: Time,
        from: QueueId,
        spot: Spot,
        reason: DeadLetterReason,
        facts: &mut dyn LazyFacts,
    ) -> bool {
        if !self.serves() {
            return false;
        }
        let Some(to) = self.dead_letter_target(from, spot, reason) else { return false };
        self.move_to(now, from, spot, to, reason, facts);
        true
    }

    /// Moves a message to a queue that is usable for it.
    pub(crate) fn move_to(
        &mut self,
        now: Time,
        from: QueueId,
        spot: Spot,
        to: QueueId,
        reason: DeadLetterReason,
        facts: &mut dyn LazyFacts,
    ) {
        let new_sequence = self.next_sequence();
        let queue = self.queue_mut(from);
        let dead_letter = Box::new(DeadLetter {
            reason,
            origin: queue.definition.name.clone(),
            origin_id: from,
            moved_at: now,
        });
        if queue.entry(spot).is_some_and(|entry| entry.persistent) {
            queue.set_state(spot, EntryState::Leaving);
            let priority = queue.entry(spot).map_or(0, |entry| entry.priority);
            let has_order = self.level >= LEVEL_OF_FIELDS;
            let target = self.queue_mut(to);
            target.reserved += 1;
            target.in_flight += 1;
            let order = has_order.then(|| target.lane_for(priority));
            let sequence = Self::sequence(spot);
            facts.push_lazy(Fact::Moved { from, sequence, to, new_sequence, order, dead_letter });
        } else {
            queue.totals.moved += 1;
            self.move_over(from, spot, (to, new_sequence, None), *dead_letter);
            self.queue_mut(to).totals.puts += 1;
            self.reap(from);
        }
    }

    /// Takes a message from one queue and puts it on another.
    pub(crate) fn move_over(
        &mut self,
        from: QueueId,
        spot: Spot,
        to: (QueueId, MessageSequence, Option<u8>),
        dead_letter: DeadLetter,
    ) {
        let message = self.queue_mut(from).remove(spot).into_message(0);
        self.arrive_moved(message, to, dead_letter);
    }

    /// Puts a message that was taken from elsewhere on its new queue, with this sequence and in
    /// this lane; `None`: in that which the queue has for it now.
    pub(crate) fn arrive_moved(
        &mut self,
        message: Message,
        (to, new_sequence, order): (QueueId, MessageSequence, Option<u8>),
        dead_letter: DeadLetter,
    ) {
        let moved_at = dead_letter.moved_at;
        let mut message = message.moved(dead_letter);
        let target = self.queue_mut(to);
        let priority = message.header.priority;
        message.header.order = order.unwrap_or_else(|| target.lane_for(priority));
        let full = target.insert(new_sequence.0, message);
        target.last_put_at = Some(moved_at);
        self.blocks_may_leave(full);
        self.mark_changed(to);
    }

    fn dead_letter_target(
        &self,
        from: QueueId,
        spot: Spot,
        reason: DeadLetterReason,
    ) -> Option<QueueId> {
        let source = self.queues.get(&from)?;
        let backout_queue = match reason {
            DeadLetterReason::BackoutThreshold => {
                source.definition.attributes.backout_queue.as_str()
            }
            DeadLetterReason::Rejected
            | DeadLetterReason::Expired
            | DeadLetterReason::Undeliverable
            | DeadLetterReason::Damaged
            | DeadLetterReason::Moved => "",
        };
        [backout_queue, self.limits.dead_letter_queue.as_str()]
            .into_iter()
            .filter(|name| !name.is_empty())
            .find_map(|name| self.usable_target(from, spot, reason, name))
    }

    pub(crate) fn usable_target(
        &self,
        from: QueueId,
        spot: Spot,
        reason: DeadLetterReason,
        name: &str,
    ) -> Option<QueueId> {
        let source = self.queues.get(&from)?;
        let message = source.entry(spot)?;
        let resolved = self.catalogue.resolve(name).ok()?;
        let target = self.queues.get(&resolved.queue.id)?;
        let attributes = &target.definition.attributes;
        let bytes = source.body_bytes(spot);
        // How much of it is around the body is not known any more: what its own queue took, a queue
        // of the same MAXMSGL takes.
        let as_long =
            source.definition.attributes.message_bytes_max <= attributes.message_bytes_max;
        let around = if as_long { limits::ENVELOPE_BYTES_MAX } else { 0 };
        let bytes_max = attributes.message_bytes_max.saturating_add(around);
        // A dead letter that is found damaged stays in its queue, as one that says so.
        let is_damaged = reason == DeadLetterReason::Damaged;
        let usable = (target.id() != from || is_damaged)
            && !target.deleting
            && attributes.put_enabled
            && resolved.alias.is_none_or(|alias| alias.put_enabled)
            && target.depth() < attributes.depth_max
            && bytes <= bytes_max
            && !(message.persistent && target.definition.kind == QueueKind::TemporaryDynamic);
        usable.then(|| target.id())
    }
}
