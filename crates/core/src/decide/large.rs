//! Puts of large persistent messages. The body goes to the log in pieces, each in a run of its own
//! for which no client waits, and what others ask for is decided between them; then the put is
//! decided, and refers to the body.
//!
//! To the log this is a unit of work with bodies larger than memory: a body that no put comes
//! to refer to is [`Fact::Abandoned`], or dropped at the end of replay. Not here: when the next
//! piece has its turn, and that nothing of the same client overtakes it (`towline_node`).
//!
//! Invariant: from the beginning on a large put has its position in the queue (`reserved`), and its
//! space in the log (`large_room`); both are given back with the put, or without it.

use towline_types::{Time, limits};

use super::LazyFacts;
use super::put::split_into_chunks;
use crate::fact::{Durability, Fact};
use crate::log_room::log_room_of;
use crate::message::{Body, BodyName, NewMessage};
use crate::request::{Decision, PutTarget};
use crate::sessions::LargePut;
use crate::staged_puts::{StagedBody, StagedPut};
use crate::{BodyId, LargePutId, QueueId, QueueManager, Refusal, UnitId};

impl QueueManager {
    /// Whether this message is to be put by [`QueueManager::begin_large`]. One that is refused is
    /// not.
    #[must_use]
    pub fn is_large_put(&self, now: Time, target: &PutTarget, message: &NewMessage) -> bool {
        message.content.len() > limits::PUT_AT_ONCE_BYTES_MAX
            && self.check_put(now, target, message).is_ok_and(|header| header.persistent)
    }

    /// Begins to put a large message. [`QueueManager::next_piece`] follows as often as it yields
    /// one, then [`QueueManager::finish_large`], or [`QueueManager::abandon_large`] at any time.
    ///
    /// # Errors
    /// As [`QueueManager::put`].
    pub fn begin_large(
        &mut self,
        now: Time,
        target: &PutTarget,
        message: NewMessage,
        unit: Option<UnitId>,
    ) -> Result<LargePutId, Refusal> {
        self.check_open()?;
        self.check_accepting()?;
        let header = self.check_put(now, target, &message)?;
        assert!(header.persistent, "what is not logged needs no pieces");
        let bytes = message.content.len() as u64;
        if let Some(unit) = unit {
            self.check_unit_takes(target, unit, bytes)?;
        }
        let rest = split_into_chunks(&message.content, limits::BODY_CHUNK_BYTES);
        self.check_log_room(bytes, rest.len() as u64 + 1)?;
        let body = self.next_body();
        self.queue_mut(target.queue).reserved += 1;
        let (connection, queue) = (target.connection, target.queue);
        let rest = rest.into();
        let put = LargePut { connection, queue, header, unit, body, bytes, given: 0, rest };
        self.large_room += put.log_room();
        let id = LargePutId(body.0);
        let before = self.large_puts.insert(id, put);
        assert!(before.is_none(), "a large put begins once");
        Ok(id)
    }

    /// # Errors
    /// The unit of work takes no further message of so many bytes.
    fn check_unit_takes(
        &mut self,
        target: &PutTarget,
        unit: UnitId,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.check_staged_puts(target.connection)?;
        let bytes_max = self.limits.unit_bytes_max;
        let unit = self.unit_for_one_more(target.connection, unit)?;
        if unit.bytes.saturating_add(bytes) > bytes_max {
            return Err(Refusal::UnitTooLarge { bytes_max });
        }
        self.check_memory(limits::STAGED_PUT_BYTES)
    }

    /// Decides the next piece of its body. False: there is none left.
    pub fn next_piece(&mut self, id: LargePutId, out: &mut Decision) -> bool {
        self.begin_unasked(out);
        let put = self.large_put(id);
        let Some(chunk) = put.rest.pop_front() else { return false };
        let room = log_room_of(chunk.len() as u64, 1);
        let (body, index) = (put.body, put.given);
        put.given += 1;
        self.large_room -= room;
        let chunk = Body::Incoming(chunk);
        let body = BodyName::Own(body);
        out.push_logged(Fact::BodyChunk { body, index, chunk }, Durability::Lazy);
        true
    }

    /// Decides the put, all pieces being on their way to the log.
    ///
    /// # Errors
    /// The unit of work was rolled back meanwhile: its body is given up, which `out` says.
    pub fn finish_large(&mut self, id: LargePutId, out: &mut Decision) -> Result<(), Refusal> {
        self.begin_unasked(out);
        let LargePut { connection, queue, header, unit, body, bytes, given, .. } = {
            let put = self.large_put(id);
            assert!(put.rest.is_empty(), "a put does not come before its body");
            self.take_large(id)
        };
        let put =
            StagedPut { queue, header, body: StagedBody::Spilled { body, chunks: given, bytes } };
        let Some(unit) = unit else {
            self.push_put(put, out);
            return Ok(());
        };
        if let Err(refusal) = self.unit_for_one_more(connection, unit) {
            self.give_up_body(queue, body, out);
            return Err(refusal);
        }
        self.stage_spilled(unit, put, (body, bytes));
        Ok(())
    }

    /// Gives a put up that has begun: its client is gone.
    pub fn abandon_large(&mut self, id: LargePutId, out: &mut Decision) {
        self.begin_unasked(out);
        let LargePut { queue, body, given, .. } = self.take_large(id);
        if given > 0 {
            self.give_up_body(queue, body, out);
        } else {
            self.queue_mut(queue).reserved -= 1;
            self.reap(queue);
        }
    }

    fn give_up_body(&mut self, queue: QueueId, body: BodyId, out: &mut Decision) {
        self.queue_mut(queue).reserved -= 1;
        self.reap(queue);
        out.push_lazy(Fact::Abandoned { first: body, bodies: 1 });
    }

    fn large_put(&mut self, id: LargePutId) -> &mut LargePut {
        let Some(put) = self.large_puts.get_mut(&id) else {
            unreachable!("{id:?} has not begun, or is over")
        };
        put
    }

    fn take_large(&mut self, id: LargePutId) -> LargePut {
        let Some(put) = self.large_puts.remove(&id) else {
            unreachable!("{id:?} has not begun, or is over")
        };
        self.large_room -= put.log_room();
        put
    }
}
