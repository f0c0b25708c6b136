//! Puts of open units of work: staged in memory, and beyond a bound in the log, ahead of the
//! commit.
//!
//! A unit may be larger than memory. Its small bodies are staged; when they pass a bound they go to
//! the log together, as chunks that no put refers to yet, and only their names stay here. The
//! commit then logs puts that refer to them; a rollback says that no put ever will
//! ([`Fact::Abandoned`](crate::Fact)); after a crash no put ever will, and replay drops them.
//!
//! Not here: commit and rollback (`unit`); when a unit must go because it holds the log
//! (`expiry`).
//!
//! Invariant: `memory_bytes` counts [`StagedPut::memory_bytes`] of all staged puts, `staged_bytes`
//! what could be spilled of it.

use towline_types::{Payload, limits};

use super::put::push_chunks;
use crate::fact::Durability;
use crate::message::BodyName;
use crate::request::{Decision, PutTarget};
use crate::sessions::UnitOfWork;
use crate::staged_puts::{StagedBody, StagedPut};
use crate::{BodyId, ConnectionId, QueueManager, Refusal, UnitId};

/// A staged body up to this size is copied, so that it does not keep a whole read buffer alive: all
/// that came in one frame. Those of many frames have memory of their own.
const STAGED_COPY_BYTES_MAX: usize = limits::FRAME_BYTES_MAX as usize;

impl QueueManager {
    /// Adds a put to a unit of work, and logs bodies of the unit when there are too many in memory.
    ///
    /// # Errors
    /// The limits of units of work; memory.
    pub(super) fn stage_put(
        &mut self,
        target: &PutTarget,
        id: UnitId,
        mut put: StagedPut,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        let bytes = put.bytes_here();
        let bytes_max = self.limits.unit_bytes_max;
        let staged_bytes_max = self.staged_share(target.connection);
        self.check_staged_puts(target.connection)?;
        let unit = self.unit_for_one_more(target.connection, id)?;
        if unit.bytes.saturating_add(bytes) > bytes_max {
            return Err(Refusal::UnitTooLarge { bytes_max });
        }
        // Its own part only: the log must come to be full while a unit grows, because that is what
        // ends the oldest unit. What the unit holds in memory is looked at when it commits.
        self.check_log_room(put.bytes_to_spill(), 1)?;
        // What can be in the log needs no memory.
        self.check_memory(put.memory_bytes() - put.bytes_to_spill())?;
        if let StagedBody::Here(content) = &mut put.body
            && content.len() <= STAGED_COPY_BYTES_MAX
        {
            *content = Payload::from(content.to_owned_bytes());
        }
        self.memory_bytes += put.memory_bytes();
        self.staged_bytes += put.bytes_to_spill();
        self.queue_mut(target.queue).reserved += 1;
        let Some(unit) = self.units.get_mut(&id) else { return Err(Refusal::UnknownUnit) };
        unit.bytes += bytes;
        unit.staged_bytes += put.bytes_to_spill();
        unit.puts.push(put);
        let is_over_its_share = unit.staged_bytes > staged_bytes_max;
        self.put_is_staged(target.connection);
        let spills = is_over_its_share
            || self.staged_bytes > self.limits.memory_bytes_max / limits::UNITS_STAGED_SHARE
            || self.memory_bytes > self.limits.memory_bytes_max;
        if spills {
            self.spill(id, out);
        }
        Ok(())
    }

    /// What one unit of this connection may keep of persistent bodies: its units share.
    fn staged_share(&self, connection: ConnectionId) -> u64 {
        let units = self.connections.get(&connection).map_or(0, |found| found.units.len());
        let share = limits::CONNECTION_STAGED_BYTES_MAX / units.max(1) as u64;
        share.min(self.limits.unit_staged_bytes_max)
    }

    /// Sends all persistent bodies of a unit that are in memory to the log.
    fn spill(&mut self, id: UnitId, out: &mut Decision) {
        let Some(unit) = self.units.get_mut(&id) else { return };
        let first = BodyId(self.next.body);
        for put in unit.puts.iter_mut_from(unit.spilled_puts) {
            let bytes = put.bytes_to_spill();
            if bytes == 0 {
                continue;
            }
            if let StagedBody::Here(content) = &put.body {
                let body = BodyId(self.next.body);
                self.next.body += 1;
                let chunks = push_chunks(BodyName::Own(body), content, Durability::Lazy, out);
                put.body = StagedBody::Spilled { body, chunks, bytes };
            }
        }
        unit.spilled_puts = unit.puts.len();
        unit.went_ahead(first, self.next.body - first.0);
        unit.spilled_bytes += unit.staged_bytes;
        self.memory_bytes -= unit.staged_bytes;
        self.staged_bytes -= unit.staged_bytes;
        unit.staged_bytes = 0;
    }

    /// Adds a put with a body that went to the log on its own.
    pub(super) fn stage_spilled(
        &mut self,
        id: UnitId,
        put: StagedPut,
        (body, bytes): (BodyId, u64),
    ) {
        self.memory_bytes += put.memory_bytes();
        let Some(unit) = self.units.get_mut(&id) else { unreachable!("{id:?} was found open") };
        unit.bytes += bytes;
        unit.spilled_bytes += bytes;
        unit.puts.push(put);
        unit.went_ahead(body, 1);
        let connection = unit.connection;
        self.put_is_staged(connection);
    }

    /// A staged put is decided, or given up: its memory is free, but for a body that is not
    /// persistent and is `kept`.
    pub(crate) fn unstage(&mut self, put: &StagedPut, kept: bool) {
        let keeps = if kept { put.bytes_here() - put.bytes_to_spill() } else { 0 };
        self.memory_bytes -= put.memory_bytes() - keeps;
        self.staged_bytes -= put.bytes_to_spill();
    }
}

impl UnitOfWork {
    /// So many bodies went to the log.
    fn went_ahead(&mut self, first: BodyId, count: u64) {
        match self.spilled_bodies.last_mut() {
            _ if count == 0 => {}
            Some((known, bodies)) if known.0 + *bodies == first.0 => *bodies += count,
            _ => self.spilled_bodies.push((first, count)),
        }
    }
}
