//! Checks of the whole state, for tests: everything that is counted twice must agree.

use std::collections::BTreeSet;

use crate::decide::parts::CommitInParts;
use crate::queue::{Attention, EntryState, Queue};
use crate::returns::ReturningMessage;
use crate::sessions::{Cursor, GetPlaces, LargePut, StagedGet, UnitOfWork};
use crate::staged_puts::{StagedBody, StagedPut};
use crate::{ConsumerId, QueueManager};

impl QueueManager {
    /// Checks all invariants, at the cost of looking at everything.
    ///
    /// # Panics
    /// When one is broken.
    pub fn audit(&self) {
        self.catalogue.audit();
        for queue in self.queues.values() {
            queue.audit();
            self.audit_queue(queue);
        }
        let blocks = || self.queues.values().flat_map(|queue| queue.all_blocks());
        let here = blocks().filter(|(_, block)| block.is_here()).count();
        let extra_bytes: u64 = blocks().map(|(_, block)| block.extra_bytes()).sum();
        let census = &self.page_cache.census;
        assert_eq!((here, extra_bytes), (census.here(), census.extra_bytes()), "blocks in memory");
        let non_persistent = |queue: &Queue| -> u64 {
            let memory = queue.iter().filter(|(_, entry)| !entry.persistent);
            memory.map(|(_, entry)| entry.memory_bytes()).sum()
        };
        let stored: u64 = self.queues.values().map(|queue| non_persistent(queue)).sum();
        let rolled_back = || self.returns.puts();
        let in_no_part = || self.commits.values().flat_map(CommitInParts::puts);
        let of_units = || self.units.values().flat_map(|unit| unit.puts.iter());
        let puts = || of_units().chain(rolled_back()).chain(in_no_part());
        let staged: u64 = puts().map(StagedPut::memory_bytes).sum();
        let to_spill: u64 = puts().map(StagedPut::bytes_to_spill).sum();
        assert_eq!(self.staged_bytes, to_spill, "what could be in the log");
        let large: u64 = self.large_puts.values().map(LargePut::log_room).sum();
        let commits: u64 = self.commits.values().map(CommitInParts::log_room).sum();
        assert_eq!(
            self.large_room,
            large + commits,
            "space in the log of what is on its way there"
        );
        let in_flight: u64 = self.queues.values().map(|queue| queue.in_flight).sum();
        let known = stored + staged + self.parts.memory_bytes();
        assert!(self.memory_bytes >= known, "memory is accounted for");
        // A part on its way is not known here.
        if in_flight == 0 && self.commits.is_empty() {
            assert_eq!(self.memory_bytes, known, "memory is given back");
        }
        for (id, consumer) in &self.consumers {
            let connection = self.connections.get(&consumer.connection);
            assert!(
                connection.is_some_and(|found| found.consumers.contains(id)),
                "known consumers"
            );
            assert!(!consumer.browses() || consumer.held.is_empty(), "a browser holds nothing");
            assert!(
                !consumer.waiting || !consumer.closing,
                "a consumer that is being closed waits for nothing"
            );
            if let Cursor::Lanes(cursor) = &consumer.cursor
                && let Some(queue) = self.queues.get(&consumer.queue)
            {
                queue.waiting.returned.audit(*id, cursor);
            }
            let looks = consumer.attention != Attention::Plain;
            assert!(
                looks || consumer.refused.is_empty(),
                "a consumer that refused a message looks"
            );
        }
        for (id, unit) in &self.units {
            let connection = self.connections.get(&unit.connection);
            assert!(connection.is_some_and(|found| found.units.contains(id)), "known units");
            assert!(!self.ended_units.contains_key(id), "a unit is open or ended");
            audit_unit(unit);
            audit_gets(&unit.gets, &unit.get_places);
        }
        self.audit_staged_puts();
        for ended in self.ended_units.values() {
            audit_gets(&ended.late, &ended.late_places);
        }
    }

    fn audit_staged_puts(&self) {
        for (id, connection) in &self.connections {
            let units = self.units.values().filter(|unit| unit.connection == *id);
            let puts: usize = units.map(|unit| unit.puts.len()).sum();
            assert_eq!(connection.staged_puts, puts as u64, "puts of open units");
        }
    }

    fn audit_queue(&self, queue: &Queue) {
        let id = queue.id();
        let of_queue = || self.consumers.values().filter(move |consumer| consumer.queue == id);
        let inputs = of_queue().filter(|consumer| !consumer.browses()).count();
        let browsers = of_queue().filter(|consumer| consumer.browses()).count();
        let opened: BTreeSet<ConsumerId> = of_queue().map(|consumer| consumer.id).collect();
        assert_eq!(opened, queue.consumers, "a queue knows its consumers");
        assert_eq!(inputs, queue.open_input as usize, "consumers of a queue");
        assert_eq!(browsers, queue.open_browse as usize, "browsers of a queue");
        let outputs: u32 =
            self.connections.values().filter_map(|found| found.outputs.get(&id)).sum();
        assert_eq!(outputs, queue.open_output, "producers of a queue");
        let late = self.ended_units.values().flat_map(|unit| &unit.late);
        let gets = self.units.values().flat_map(|unit| &unit.gets).chain(late);
        let in_no_part = self.commits.values().flat_map(CommitInParts::gets);
        let gets = gets.chain(in_no_part);
        let staged: Vec<u64> =
            gets.filter(|get| get.queue == id).map(|get| get.spot.sequence).collect();
        let back = || self.returns.messages().filter(move |message| message.queue() == id);
        let rolled_back = back().filter(|message| message.is_of_unit()).count();
        let in_parts = self.commits.values().map(|commit| commit.decided_in(id));
        let in_parts = in_parts.fold((0, 0), |sum, (puts, gets)| (sum.0 + puts, sum.1 + gets));
        let uncommitted = (staged.len() + rolled_back) as u64 + in_parts.1;
        assert_eq!(uncommitted, queue.uncommitted_gets, "uncommitted gets");
        let back: Vec<u64> = back().map(ReturningMessage::sequence).collect();
        assert_eq!(back.len() as u64, queue.returning, "messages that come back");
        let puts = self.units.values().flat_map(|unit| unit.puts.iter());
        let large = self.large_puts.values().filter(|put| put.queue == id).count();
        let in_no_part = self.commits.values().flat_map(CommitInParts::puts);
        let puts = puts.chain(in_no_part);
        let reserved = (puts.filter(|put| put.queue == id).count() + large) as u64 + in_parts.0;
        assert_eq!(self.parts.arriving_in(id), queue.arriving, "operations that arrive");
        assert_eq!(reserved + queue.in_flight, queue.reserved, "reserved places");
        let holders = of_queue().flat_map(|consumer| consumer.held.keys().copied());
        let holders = holders.chain(staged).chain(back);
        let mut held = BTreeSet::new();
        for sequence in holders {
            assert!(held.insert(sequence), "a message is held once");
        }
        let states: BTreeSet<u64> = queue
            .iter()
            .filter(|(_, entry)| entry.state == EntryState::Held)
            .map(|(_, entry)| entry.sequence)
            .collect();
        assert_eq!(held, states, "what is held has a holder");
        assert!(queue.depth() == queue.live + queue.reserved, "depth");
    }
}

fn audit_gets(gets: &[StagedGet], places: &GetPlaces) {
    assert_eq!(gets.len(), places.len(), "each get of a unit is found by its delivery");
    for (place, get) in gets.iter().enumerate() {
        let found = places.get(&(get.consumer, get.spot.sequence));
        assert_eq!(found, Some(&place), "{get:?} is found where it is");
    }
}

fn audit_unit(unit: &UnitOfWork) {
    let mut ahead = Vec::new();
    let mut bytes = 0;
    let mut spilled_bytes = 0;
    for (at, put) in unit.puts.iter().enumerate() {
        assert!(at >= unit.spilled_puts || put.bytes_to_spill() == 0, "spilled from the front on");
        match put.body {
            StagedBody::Here(_) => bytes += put.bytes_here(),
            StagedBody::Spilled { body, chunks, bytes: length } => {
                assert!(put.header.persistent && chunks > 0, "what the log may have");
                bytes += length;
                spilled_bytes += length;
                ahead.push(body.0);
            }
        }
    }
    assert_eq!((bytes, spilled_bytes), (unit.bytes, unit.spilled_bytes), "bytes of a unit");
    let to_spill: u64 = unit.puts.iter().map(StagedPut::bytes_to_spill).sum();
    assert_eq!(to_spill, unit.staged_bytes, "bytes of a unit in memory");
    let ranges = unit.spilled_bodies.iter().flat_map(|(first, count)| first.0..first.0 + count);
    // One that was staged before a large one may have gone to the log behind it.
    ahead.sort_unstable();
    assert_eq!(ahead, ranges.collect::<Vec<_>>(), "a unit knows its bodies in the log");
}
