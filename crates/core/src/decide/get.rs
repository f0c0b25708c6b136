//! Consumers and browsers: opening, credit, closing.

use std::collections::BTreeSet;

use towline_types::Time;

use super::LazyFacts;
use super::open::{Access, OpenQueue};
use crate::hash::FastMap;
use crate::queue::{Attention, KeyCursor, Spot};
use crate::request::{ConsumerMode, ConsumerSpec, Decision};
use crate::returns::ReturningMessage;
use crate::sessions::{Consumer, Cursor};
use crate::{ConnectionId, ConsumerId, Effect, MessageSequence, QueueId, QueueManager, Refusal};

impl QueueManager {
    /// Opens a consumer or browser, without credit. Yields its id and the name of the local queue.
    ///
    /// # Errors
    /// A bad or unknown name, GET(DISABLED) on the way, and for a consumer: another connection's
    /// private queue, another consumer has the queue for itself, or this one wants it (or NOSHARE
    /// gives it) and others are there.
    pub fn open_get(
        &mut self,
        now: Time,
        connection: ConnectionId,
        spec: &ConsumerSpec,
        out: &mut Decision,
    ) -> Result<(ConsumerId, String), Refusal> {
        self.begin(out)?;
        let exclusive = self.check_get(connection, spec)?;
        let OpenQueue { queue: queue_id, name, alias: _ } =
            self.resolve_or_define(now, &spec.queue, Access::Get, out)?;
        let id = ConsumerId(self.next.consumer);
        self.next.consumer += 1;
        let browses = spec.mode == ConsumerMode::Browse;
        let attention = Attention::of(browses, spec.filter.as_deref());
        let consumer = Consumer {
            id,
            connection,
            queue: queue_id,
            mode: spec.mode,
            filter: spec.filter.clone(),
            attention,
            credit: 0,
            drain: false,
            waiting: false,
            closing: false,
            held: FastMap::default(),
            refused: BTreeSet::new(),
            cursor: match attention {
                Attention::Plain => Cursor::None,
                Attention::Scanner => Cursor::Lanes(Box::default()),
                Attention::Keyed(_) => Cursor::Key(KeyCursor::new()),
            },
            fetching: None,
        };
        let queue = self.queue_mut(queue_id);
        if browses {
            queue.open_browse += 1;
        } else {
            queue.open_input += 1;
            queue.exclusive = exclusive;
        }
        if let Attention::Keyed(key) = attention {
            queue.index_key(key);
        }
        queue.waiting.open(consumer.visitor());
        queue.consumers.insert(id);
        self.connections.entry(connection).or_default().consumers.insert(id);
        self.consumers.insert(id, consumer);
        Ok((id, name))
    }

    /// Whether the consumer would have the queue for itself. A queue that does not exist yet is for
    /// `resolve_or_define` to judge.
    fn check_get(&self, connection: ConnectionId, spec: &ConsumerSpec) -> Result<bool, Refusal> {
        let Ok(resolved) = self.catalogue.resolve(&spec.queue) else {
            return Ok(spec.exclusive.unwrap_or(false));
        };
        if let Some(alias) = resolved.alias.filter(|alias| !alias.get_enabled) {
            return Err(Refusal::GetInhibited(alias.name.clone()));
        }
        let attributes = &resolved.queue.attributes;
        if !attributes.get_enabled {
            return Err(Refusal::GetInhibited(resolved.queue.name.clone()));
        }
        let exclusive =
            !attributes.shareable || spec.exclusive.unwrap_or(!attributes.default_shared);
        let queue = self.queue(resolved.queue.id);
        let consumes = spec.mode == ConsumerMode::Consume;
        let owner = queue.owner.filter(|_| queue.private);
        if consumes && owner.is_some_and(|owner| owner != connection) {
            return Err(Refusal::BelongsToOther(resolved.queue.name.clone()));
        }
        if consumes && queue.open_input > 0 && (exclusive || queue.exclusive) {
            return Err(Refusal::QueueInUse(resolved.queue.name.clone()));
        }
        Ok(exclusive)
    }

    /// Sets how many more messages the consumer may be given (absolute, as after an AMQP flow).
    /// With
    /// `drain`, credit that cannot be used at the next dispatch is taken away and
    /// [`Effect::Drained`] says so. A consumer that is closed or closing gets nothing.
    pub fn set_credit(&mut self, consumer: ConsumerId, credit: u32, drain: bool) {
        let Some(consumer) = self.consumers.get_mut(&consumer) else { return };
        if consumer.closing {
            return;
        }
        consumer.credit = credit;
        let queue = consumer.queue;
        let visitor = consumer.visitor();
        let starts_drain = drain && !consumer.drain;
        let stops_drain = !drain && consumer.drain;
        let wakes = consumer.wants() && !consumer.waiting;
        let plain = visitor.attention == Attention::Plain;
        consumer.drain = drain;
        consumer.waiting |= wakes && plain;
        let Some(found) = self.queues.get_mut(&queue) else { return };
        if starts_drain {
            found.waiting.draining.insert(visitor.consumer);
        }
        if stops_drain {
            found.waiting.draining.remove(&visitor.consumer);
        }
        if wakes {
            found.waiting.wake(visitor);
        }
        if wakes || starts_drain {
            self.mark_changed(queue);
        }
    }

    /// Closes a consumer. What it did not settle becomes available again; when the connection was
    /// `lost`, with a backout counted. What it settled in an open unit of work stays there.
    pub fn close_get(&mut self, now: Time, consumer: ConsumerId, lost: bool, out: &mut Decision) {
        self.begin_unasked(out);
        self.end_consumer(now, consumer, lost, out);
    }

    pub(super) fn end_consumer(
        &mut self,
        now: Time,
        consumer: ConsumerId,
        lost: bool,
        facts: &mut dyn LazyFacts,
    ) {
        let Some(consumer) = self.consumers.remove(&consumer) else { return };
        if let Some(connection) = self.connections.get_mut(&consumer.connection) {
            connection.consumers.remove(&consumer.id);
        }
        let Some(queue) = self.queues.get_mut(&consumer.queue) else {
            assert!(consumer.held.is_empty(), "a queue went while its messages were held");
            return;
        };
        queue.waiting.close(consumer.visitor());
        queue.consumers.remove(&consumer.id);
        if consumer.browses() {
            queue.open_browse -= 1;
        } else {
            queue.open_input -= 1;
            queue.exclusive = false;
        }
        let mut held: Vec<(Spot, bool)> = consumer
            .held
            .iter()
            .map(|(sequence, held)| (Spot { lane: held.lane, sequence: *sequence }, held.failed))
            .collect();
        held.sort_unstable_by_key(|(spot, _)| spot.sequence);
        let queue = consumer.queue;
        if self.return_in_slices(held.len()) {
            let held = held.into_iter().map(|(spot, failed)| {
                let failed = lost || failed;
                ReturningMessage::Held { queue, spot, failed }
            });
            return self.return_later(held.collect());
        }
        for (spot, failed) in held {
            if lost || failed {
                self.back_out(now, queue, spot, facts);
            } else {
                self.give_back(queue, spot);
            }
        }
        self.reap(queue);
    }

    /// Starts to close all consumers and browsers of a queue. They keep what they have not settled.
    pub(super) fn dismiss_consumers(&mut self, queue: QueueId, reason: &Refusal) {
        let opened = self.queues.get(&queue).into_iter().flat_map(|queue| &queue.consumers);
        let opened: Vec<ConsumerId> = opened.copied().collect();
        for id in opened {
            self.dismiss(id, reason.clone());
        }
    }

    /// Starts to close a consumer or browser. It keeps what it has not settled.
    pub(super) fn dismiss(&mut self, id: ConsumerId, reason: Refusal) {
        let Some(consumer) = self.consumers.get_mut(&id).filter(|found| !found.closing) else {
            return;
        };
        consumer.closing = true;
        consumer.credit = 0;
        consumer.waiting = false;
        let connection = consumer.connection;
        if let Some(queue) = self.queues.get_mut(&consumer.queue) {
            queue.waiting.close(consumer.visitor());
        }
        self.effects.push(Effect::ConsumerClosed { connection, consumer: id, reason });
    }

    /// The content that an [`Effect::Fetch`] asked for can be had now (or never will be: the
    /// question is then asked again). Must follow every `Fetch`, even when the message is gone.
    pub fn content_arrived(&mut self, queue: QueueId, sequence: MessageSequence) {
        let Some(found) = self.queues.get_mut(&queue) else { return };
        for waiter in found.waiting.fetched(sequence.0) {
            if let Some(consumer) = self.consumers.get_mut(&waiter) {
                consumer.fetching = None;
                found.waiting.wake_first(consumer.visitor());
            }
        }
        self.mark_changed(queue);
    }
}
