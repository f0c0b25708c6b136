//! Units of work: declared, filled by `put` and `settle`, discharged whole or not at all.
//!
//! Staged until commit, large ones with their bodies in the log (`spill`). The run of a commit
//! holds everything that must survive, ended by `Committed`; what concerns non-persistent messages
//! is applied together with it.

use towline_types::Time;

use super::LazyFacts;
use crate::effect::Effect;
use crate::fact::{Durability, Fact};
use crate::request::{Decision, Outcome};
use crate::returns::ReturningMessage;
use crate::sessions::{EndedUnit, HeldMessage, StagedGet, UnitOfWork};
use crate::staged_puts::StagedPut;
use crate::{ConnectionId, QueueManager, Refusal, UnitId};

impl QueueManager {
    /// Opens a unit of work.
    ///
    /// # Errors
    /// The connection has too many.
    pub fn declare(&mut self, now: Time, connection: ConnectionId) -> Result<UnitId, Refusal> {
        let units_max = self.limits.units_per_connection_max;
        let opened = self.connections.entry(connection).or_default();
        if opened.units.len() >= units_max {
            return Err(Refusal::TooManyUnits { units_max });
        }
        let id = UnitId(self.next.unit);
        self.next.unit += 1;
        opened.units.insert(id);
        self.units.insert(id, UnitOfWork::new(connection, now));
        Ok(id)
    }

    /// The open unit, with space for one more message.
    pub(super) fn unit_for_one_more(
        &mut self,
        connection: ConnectionId,
        id: UnitId,
    ) -> Result<&mut UnitOfWork, Refusal> {
        let messages_max = self.limits.unit_messages_max;
        self.check_unit(connection, id)?;
        let Some(unit) = self.units.get_mut(&id) else { return Err(Refusal::UnknownUnit) };
        if unit.messages() >= usize::try_from(messages_max).unwrap_or(usize::MAX) {
            return Err(Refusal::UnitTooManyMessages { messages_max });
        }
        Ok(unit)
    }

    /// One more put in an open unit of this connection.
    ///
    /// # Errors
    /// All of them together have too many.
    pub(super) fn check_staged_puts(&self, connection: ConnectionId) -> Result<(), Refusal> {
        let puts_max = self.limits.staged_puts_max.max(self.limits.unit_messages_max.into());
        let staged = self.connections.get(&connection).map_or(0, |found| found.staged_puts);
        if staged >= puts_max { Err(Refusal::UnitsTooManyPuts { puts_max }) } else { Ok(()) }
    }

    /// A put is staged in a unit of this connection.
    pub(super) fn put_is_staged(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.staged_puts += 1;
        }
    }

    fn puts_are_not_staged(&mut self, connection: ConnectionId, puts: usize) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.staged_puts -= puts as u64;
        }
    }

    fn check_unit(&self, connection: ConnectionId, id: UnitId) -> Result<(), Refusal> {
        if let Some(ended) = self.ended_units.get(&id) {
            let ours = ended.connection == connection;
            return Err(if ours { ended.reason.clone() } else { Refusal::UnknownUnit });
        }
        match self.units.get(&id) {
            Some(unit) if unit.connection == connection => Ok(()),
            Some(_) | None => Err(Refusal::UnknownUnit),
        }
    }

    /// Ends a unit of work: commits it, or with `fail` rolls it back.
    ///
    /// # Errors
    /// Unknown, or rolled back by the queue manager (the unit is gone then, unless it never was;
    /// the decision may have facts all the same). When puts are refused at present, a commit with
    /// puts is refused and the unit stays open.
    pub fn discharge(
        &mut self,
        now: Time,
        connection: ConnectionId,
        id: UnitId,
        fail: bool,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        if let Err(refusal) = self.check_unit(connection, id) {
            let ended = refusal != Refusal::UnknownUnit;
            if ended {
                self.forget_ended(now, id, out);
                self.forget_unit(connection, id);
            }
            // To roll back what is rolled back already is no error.
            return if ended && fail { Ok(()) } else { Err(refusal) };
        }
        if !fail {
            self.check_commit(connection, id)?;
        }
        let Some(unit) = self.take_unit(connection, id) else { return Err(Refusal::UnknownUnit) };
        if fail {
            self.roll_back(now, unit, out);
        } else {
            self.commit(now, unit, out);
        }
        Ok(())
    }

    /// # Errors
    /// The unit is not open, or has puts and they are refused at present.
    pub(super) fn check_commit(&self, connection: ConnectionId, id: UnitId) -> Result<(), Refusal> {
        self.check_open()?;
        self.check_unit(connection, id)?;
        if let Some(unit) = self.units.get(&id).filter(|unit| !unit.puts.is_empty()) {
            self.check_accepting()?;
            self.check_log_room(unit.staged_bytes, unit.puts.len() as u64)?;
        }
        Ok(())
    }

    /// It is not open any more.
    pub(super) fn take_unit(&mut self, connection: ConnectionId, id: UnitId) -> Option<UnitOfWork> {
        let unit = self.units.remove(&id)?;
        self.puts_are_not_staged(connection, unit.puts.len());
        self.forget_unit(connection, id);
        Some(unit)
    }

    /// The connection of a unit that was rolled back has heard of it, or is gone.
    pub(super) fn forget_ended(&mut self, now: Time, id: UnitId, facts: &mut dyn LazyFacts) {
        let Some(ended) = self.ended_units.remove(&id) else { return };
        for get in ended.late {
            self.roll_back_get(now, get, facts);
        }
    }

    fn forget_unit(&mut self, connection: ConnectionId, id: UnitId) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.units.remove(&id);
        }
    }

    fn commit(&mut self, now: Time, mut unit: UnitOfWork, out: &mut Decision) {
        let mut unlogged = Vec::new();
        let waits = |put: &StagedPut| {
            self.queues.get(&put.queue).is_some_and(|queue| queue.must_wait_its_turn())
        };
        let behind = unit.puts.iter().any(waits);
        out.facts.reserve(unit.puts.len() + unit.gets.len() + 1);
        while let Some(put) = unit.puts.pop() {
            self.unstage(&put, true);
            if put.header.persistent {
                self.push_put(put, out);
            } else {
                unlogged.push(self.memory_put(put));
            }
        }
        for get in unit.gets {
            self.commit_get(now, get, &mut unlogged, out);
        }
        if out.logged > 0 {
            let operations = u32::try_from(out.logged).unwrap_or(u32::MAX);
            // Whatever is logged: the answer says that all of it happened.
            out.push_logged(Fact::Committed { operations }, Durability::Forced);
        } else {
            out.behind = behind;
        }
        out.facts.append(&mut unlogged);
    }

    fn commit_get(
        &mut self,
        now: Time,
        get: StagedGet,
        unlogged: &mut Vec<Fact>,
        out: &mut Decision,
    ) {
        let StagedGet { queue, spot, outcome, consumer: _, settled: _ } = get;
        self.queue_mut(queue).uncommitted_gets -= 1;
        match outcome {
            Outcome::Accepted => {
                let got = Fact::Got { queue, sequence: Self::sequence(spot) };
                if self.leave(queue, spot) {
                    out.push_logged(got, Durability::Forced);
                } else {
                    unlogged.push(got);
                }
            }
            Outcome::Released | Outcome::Rejected | Outcome::Modified { .. } => {
                self.refuse_delivery(now, get, false, out);
            }
        }
    }

    /// Puts vanish; what was got and is forgotten becomes available again with a backout counted.
    /// Of a large unit that is done in slices.
    pub(crate) fn roll_back(&mut self, now: Time, unit: UnitOfWork, facts: &mut dyn LazyFacts) {
        let in_slices = self.return_in_slices(unit.messages());
        for (queue, puts) in unit.puts.by_queue() {
            self.queue_mut(queue).reserved -= puts;
            self.reap(queue);
        }
        if in_slices {
            self.give_puts_up(unit.puts);
        } else {
            unit.puts.iter().for_each(|put| self.unstage(put, false));
        }
        let mut later = Vec::new();
        for get in unit.gets {
            if in_slices && (get.settled || !self.consumers.contains_key(&get.consumer)) {
                later.push(ReturningMessage::Got(get));
            } else {
                self.roll_back_get(now, get, facts);
            }
        }
        self.return_later(later);
        for (first, bodies) in unit.spilled_bodies {
            facts.push_lazy(Fact::Abandoned { first, bodies });
        }
    }

    /// A delivery that the consumer has not settled is with it again, as before (AMQP 4.4.2).
    pub(crate) fn roll_back_get(&mut self, now: Time, get: StagedGet, facts: &mut dyn LazyFacts) {
        let StagedGet { consumer, settled, queue, spot, outcome: _ } = get;
        self.queue_mut(queue).uncommitted_gets -= 1;
        match self.consumers.get_mut(&consumer) {
            Some(consumer) if !settled => {
                let holding = HeldMessage { lane: spot.lane, failed: true };
                consumer.held.insert(spot.sequence, holding);
            }
            Some(_) | None => self.back_out(now, queue, spot, facts),
        }
    }

    /// Rolls an open unit of work back, without being asked: its connection hears why.
    pub(crate) fn end_unit(
        &mut self,
        now: Time,
        id: UnitId,
        reason: Refusal,
        facts: &mut dyn LazyFacts,
    ) {
        let Some(unit) = self.units.remove(&id) else { return };
        let connection = unit.connection;
        self.puts_are_not_staged(connection, unit.puts.len());
        self.roll_back(now, unit, facts);
        let ended = EndedUnit::new(connection, reason.clone());
        self.ended_units.insert(id, ended);
        self.effects.push(Effect::UnitRolledBack { connection, unit: id, reason });
    }
}
