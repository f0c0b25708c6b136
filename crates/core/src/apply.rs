//! Facts carried out: live, in replay, on replicas. Total: a fact that does not fit is a broken
//! promise of the code that decided or recovered it, and halts the process.

use std::sync::Arc;

use towline_types::Time;

use crate::fact::Fact;
use crate::message::{Body, BodyName, Message};
use crate::object::Definition;
use crate::queue::{Outline, Queue, Spot};
use crate::{Effect, MessageSequence, Outputs, PageKey, QueueId, QueueManager};

/// How a fact is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// `None` in replay: gets then have no time.
    pub(crate) now: Option<Time>,
    /// Whether totals count it; not when an image counted it already.
    pub(crate) counted: bool,
}

impl QueueManager {
    /// Carries out one fact. Facts of one run must follow each other without any other call
    /// between. A `Put` has its body in memory or in the log, or announced with all chunks applied
    /// before.
    ///
    /// # Panics
    /// When the fact contradicts what was applied before.
    pub fn apply(&mut self, now: Time, fact: Fact, outputs: &mut Outputs) {
        if self.parts.take_next() {
            return self.keep_aside(fact, outputs);
        }
        self.carry_out(fact, Manner { now: Some(now), counted: true }, outputs);
    }

    pub(crate) fn carry_out(&mut self, fact: Fact, manner: Manner, outputs: &mut Outputs) {
        let count = u64::from(manner.counted);
        match fact {
            Fact::Put { queue, sequence, carried, mut message } => {
                // What is carried was put, and counted, before.
                let count = if carried { 0 } else { count };
                message.body = self.stored(message.body, outputs);
                self.apply_put(queue, sequence, *message, count, outputs);
            }
            Fact::Got { queue: id, sequence } => {
                let queue = self.end_message(id, sequence, count, outputs);
                queue.totals.gets += count;
                queue.last_get_at = manner.now.or(queue.last_get_at);
                if queue.deleting {
                    self.reap(id);
                }
            }
            Fact::Expired { queue: id, sequence } => {
                self.end_message(id, sequence, count, outputs).totals.expired += count;
                self.reap(id);
            }
            Fact::BackedOut { queue, sequence, count: backouts } => {
                let queue = self.queue_mut(queue);
                queue.totals.backouts += count;
                // The active counted when it decided, and may have counted again since; it may also
                // be away by now, with the count on its page.
                if let Some(spot) = queue.spot_of(sequence.0)
                    && let Some(entry) = queue.entry(spot)
                {
                    let backouts = backouts.max(entry.backout_count);
                    queue.set_backouts(spot, backouts);
                }
            }
            Fact::Moved { from, sequence, to, new_sequence, order, dead_letter } => {
                let spot = self.spot(from, sequence);
                self.queue_mut(from).totals.moved += count;
                self.move_over(from, spot, (to, new_sequence, order), *dead_letter);
                let target = self.queue_mut(to);
                // Most of them were; of the others it is no lie to leave it open.
                target.note_acquired(new_sequence.0);
                target.totals.puts += count;
                target.arrived();
                self.saw_sequence(new_sequence);
            }
            Fact::BodyChunk { body, index, chunk } => {
                let Body::Log(location) = chunk else {
                    unreachable!("a chunk that is applied is in the log")
                };
                if let BodyName::Own(body) = body {
                    self.next.body = self.next.body.max(body.0.saturating_add(1));
                }
                let known = self.spilled_bodies.pieces(body).len();
                assert_eq!(known, index as usize, "chunks come in order");
                self.spilled_bodies.add(body, location);
                outputs.effects.push(Effect::Stored { location });
            }
            Fact::Abandoned { first, bodies } => {
                let abandoned = self.spilled_bodies.take_range(first, bodies);
                self.give_up_abandoned(abandoned, outputs);
            }
            Fact::Defined { definition } => self.apply_definition(*definition),
            Fact::Deleted { queue } => self.apply_deleted(queue, count, outputs),
            Fact::Undefined { name } => {
                self.catalogue.apply(&name, None);
            }
            Fact::Cleared { queue, upto } => self.apply_cleared(queue, upto, count, outputs),
            Fact::Level { level } => self.level = self.level.max(level),
            Fact::Committed { operations: _ } => {}
            Fact::HistoryBegun { history, first } => self.apply_history(*history, first),
            Fact::Part { commit, operations } => self.begin_part(commit, operations),
            Fact::Completed { commit, operations, first } => {
                self.complete(commit, operations, first, manner.now.is_some());
            }
        }
    }

    /// The location of the body counts as needed already.
    pub(crate) fn apply_put(
        &mut self,
        id: QueueId,
        sequence: MessageSequence,
        message: Message,
        count: u64,
        outputs: &mut Outputs,
    ) {
        self.saw_sequence(sequence);
        let queue = self.queue_mut(id);
        if let Some(spot) = queue.spot_of(sequence.0) {
            // Not a new message: it was carried forward, so that its old extent can be reused.
            let old = queue.relocate(spot, message.body);
            queue.unpin(spot);
            release(old, outputs);
            return;
        }
        let put_at = message.header.put_at;
        let counted = if message.header.persistent { count } else { 0 };
        queue.arrived();
        queue.totals.puts += count;
        queue.last_put_at = Some(put_at);
        let deleting = queue.deleting;
        let full = queue.insert(sequence.0, message);
        self.region.counts.put += counted;
        self.blocks_may_leave(full);
        if deleting {
            self.end_message(id, sequence, count, outputs);
            self.reap(id);
        } else {
            self.mark_changed(id);
        }
    }

    /// The body of a put that is applied: its location is needed from now on.
    pub(crate) fn stored(&mut self, body: Body, outputs: &mut Outputs) -> Body {
        match body {
            Body::Announced { body, chunks, bytes } => {
                let Some(pieces) = self.spilled_bodies.take(body) else {
                    unreachable!("a put refers to {body:?}, which did not go ahead")
                };
                let locations = pieces.as_slice();
                assert_eq!(locations.len(), chunks as usize, "all chunks were applied before");
                let sum: u64 = locations.iter().map(|chunk| u64::from(chunk.bytes)).sum();
                assert_eq!(sum, bytes, "the chunks are as long as announced");
                pieces.into_body()
            }
            Body::Log(location) => {
                outputs.effects.push(Effect::Stored { location });
                Body::Log(location)
            }
            other @ (Body::Memory(_) | Body::Chunks(_) | Body::Incoming(_)) => other,
        }
    }

    /// Blocks that have a successor may leave.
    pub(crate) fn blocks_may_leave(&mut self, full: [Option<PageKey>; 2]) {
        full.into_iter().flatten().for_each(|key| self.page_cache.may_leave(key));
        // Also while there is space for all blocks: a queue that is put to and got from would add
        // one for each block that it ever had.
        self.tidy_candidates();
    }

    pub(crate) fn saw_sequence(&mut self, sequence: MessageSequence) {
        self.next.sequence = self.next.sequence.max(sequence.0.saturating_add(1));
    }

    /// Where the message is that a fact speaks of.
    fn spot(&mut self, queue: QueueId, sequence: MessageSequence) -> Spot {
        match self.queue_mut(queue).spot_of(sequence.0) {
            Some(spot) => spot,
            None => unreachable!("no message {sequence:?} in {queue:?}"),
        }
    }

    fn end_message(
        &mut self,
        id: QueueId,
        sequence: MessageSequence,
        count: u64,
        outputs: &mut Outputs,
    ) -> &mut Queue {
        let Some(queue) = self.queues.get_mut(&id) else {
            unreachable!("a message ends in {id:?}, which does not exist")
        };
        let Some(removed) = queue.take(sequence.0) else {
            unreachable!("no message {sequence:?} in {id:?}")
        };
        if removed.entry.persistent {
            self.region.counts.removed += count;
            release(Some(removed.body()), outputs);
        } else {
            self.memory_bytes -= removed.bytes();
        }
        queue
    }

    fn apply_definition(&mut self, definition: Definition) {
        let name = definition.name().to_owned();
        let counts = self.catalogue.apply(&name, Some(definition.clone()));
        if counts {
            self.adopt(&definition);
        }
    }

    fn apply_deleted(&mut self, id: QueueId, count: u64, outputs: &mut Outputs) {
        let Some(queue) = self.queues.remove(&id) else {
            unreachable!("{id:?} is deleted and does not exist")
        };
        assert_eq!(queue.reserved, 0, "a queue with puts on their way is not deleted");
        self.catalogue.apply(&queue.definition.name, None);
        let mut queue = queue;
        self.region.counts.removed += count * queue.persistent_live();
        release_away(queue.drop_away(u64::MAX), outputs);
        self.memory_bytes -= queue.memory_bytes;
        self.garbage.add(queue.take_all());
        self.give_up_pages(&mut queue);
    }

    fn apply_cleared(
        &mut self,
        id: QueueId,
        upto: MessageSequence,
        count: u64,
        outputs: &mut Outputs,
    ) {
        let queue = self.queue_mut(id);
        queue.clearing = queue.clearing.saturating_sub(1);
        let (live, memory_bytes) = (queue.live, queue.memory_bytes);
        let persistent = queue.persistent_live();
        release_away(queue.drop_away(upto.0), outputs);
        // What is decided behind a CLEAR is applied behind it. But a replay from the oldest extent
        // may have found a later message, at the position that it was carried to.
        let (all, some) = match queue.highest < upto.0 {
            true => (Some(queue.take_all()), Vec::new()),
            false => (None, queue.take_before(upto.0)),
        };
        queue.totals.cleared += count * (live - queue.live);
        let persistent = persistent - queue.persistent_live();
        let memory_bytes = memory_bytes - queue.memory_bytes;
        self.region.counts.removed += count * persistent;
        self.mark_changed(id);
        self.saw_sequence(MessageSequence(upto.0.saturating_sub(1)));
        self.memory_bytes -= memory_bytes;
        all.into_iter().for_each(|all| self.garbage.add(all));
        let persistent = some.into_iter().filter(|message| message.entry.persistent);
        persistent.for_each(|message| release(Some(message.body()), outputs));
    }
}

/// The bodies of these pages are no longer needed.
fn release_away(pages: Vec<Arc<Outline>>, outputs: &mut Outputs) {
    for page in pages {
        let shares = page.extents.iter().map(|share| Effect::RemovedFrom { share: *share });
        outputs.effects.extend(shares);
    }
}

/// This body is no longer needed.
pub(crate) fn release(body: Option<Body>, outputs: &mut Outputs) {
    match body {
        Some(Body::Log(location)) => outputs.effects.push(Effect::Removed { location }),
        Some(Body::Chunks(chunks)) => {
            let removed = chunks.iter().map(|location| Effect::Removed { location: *location });
            outputs.effects.extend(removed);
        }
        Some(Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. }) | None => {}
    }
}
