//! The puts of one unit of work, in the order in which they came, in chunks: a unit may have a
//! million of them, and one list of all would be copied each time that it grows, while all others
//! wait. What is taken from the front is free chunk by chunk, for the same reason.
//!
//! Not here: what is decided about them (`decide/spill`, `decide/unit`, `decide/parts`).
//!
//! Invariants: no chunk is empty, and all but the first and the last one are full; `counted` has
//! the puts of all chunks but the last one, as long as none was taken.

use std::collections::{BTreeMap, VecDeque};

use towline_types::{Payload, limits};

use crate::message::Header;
use crate::{BodyId, QueueId};

/// Puts of one chunk: some 120 KiB.
const CHUNK_PUTS: usize = 1_024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct StagedPuts {
    chunks: VecDeque<VecDeque<StagedPut>>,
    len: usize,
    /// How many puts to which queue are in chunks that are full.
    counted: BTreeMap<QueueId, u64>,
}

/// A put that waits for its unit of work to commit.
#[derive(Debug)]
pub(crate) struct StagedPut {
    pub(crate) queue: QueueId,
    pub(crate) header: Header,
    pub(crate) body: StagedBody,
}

/// Where the body of a staged put is.
#[derive(Debug)]
pub(crate) enum StagedBody {
    Here(Payload),
    /// On its way to the log, or there, in chunks.
    Spilled {
        body: BodyId,
        chunks: u32,
        bytes: u64,
    },
}

impl StagedPut {
    /// Bytes of the body that are in memory.
    pub(crate) fn bytes_here(&self) -> u64 {
        match &self.body {
            StagedBody::Here(content) => content.len() as u64,
            StagedBody::Spilled { .. } => 0,
        }
    }

    /// Bytes of memory that are counted for it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes_here() + limits::STAGED_PUT_BYTES
    }

    /// Bytes that could be in the log instead of in memory.
    pub(crate) fn bytes_to_spill(&self) -> u64 {
        if self.header.persistent { self.bytes_here() } else { 0 }
    }
}

impl StagedPuts {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn push(&mut self, put: StagedPut) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_PUTS => last.push_back(put),
            Some(_) | None => {
                // One look at each put in all: a roll-back of a million counts one chunk.
                let full = self.chunks.back().into_iter().flatten();
                full.for_each(|put| *self.counted.entry(put.queue).or_default() += 1);
                self.chunks.push_back(VecDeque::from([put]));
            }
        }
    }

    /// Takes the first one.
    pub(crate) fn pop(&mut self) -> Option<StagedPut> {
        let first = self.chunks.front_mut()?;
        let put = first.pop_front();
        if first.is_empty() {
            self.chunks.pop_front();
        }
        assert!(put.is_some() && self.len > 0, "a chunk without puts");
        self.len -= 1;
        put
    }

    /// How many puts there are to which queue. Not once some were taken.
    pub(crate) fn by_queue(&self) -> BTreeMap<QueueId, u64> {
        let mut counts = self.counted.clone();
        let last = self.chunks.back().into_iter().flatten();
        last.for_each(|put| *counts.entry(put.queue).or_default() += 1);
        assert_eq!(counts.values().sum::<u64>(), self.len as u64, "each put is counted once");
        counts
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StagedPut> {
        self.chunks.iter().flatten()
    }

    /// All from this one on, of a unit of which none was taken. It looks at none of the chunks
    /// before it.
    pub(crate) fn iter_mut_from(&mut self, first: usize) -> impl Iterator<Item = &mut StagedPut> {
        let (full, rest) = (first / CHUNK_PUTS, first % CHUNK_PUTS);
        self.chunks.range_mut(full.min(self.chunks.len())..).flatten().skip(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(number: u64) -> StagedPut {
        let body = StagedBody::Here(Payload::default());
        let header = Header { group: number, ..Header::default() };
        StagedPut { queue: QueueId(u32::from(number.is_multiple_of(3))), header, body }
    }

    fn of(count: u64) -> StagedPuts {
        let mut puts = StagedPuts::default();
        (0..count).for_each(|number| puts.push(put(number)));
        puts
    }

    fn address(puts: &StagedPuts) -> *const StagedPut {
        puts.iter().next().map_or(std::ptr::null(), std::ptr::from_ref)
    }

    #[test]
    fn they_come_in_the_order_in_which_they_went_and_are_counted_by_queue() {
        for count in [0, 1, 2, 1_023, 1_024, 1_025, 5_000] {
            let mut puts = of(count);
            assert_eq!((puts.len() as u64, puts.is_empty()), (count, count == 0));
            let thirds = count.div_ceil(3);
            let counts = puts.by_queue();
            assert_eq!(counts.get(&QueueId(1)).copied().unwrap_or_default(), thirds);
            assert_eq!(counts.get(&QueueId(0)).copied().unwrap_or_default(), count - thirds);
            assert!(puts.iter().map(|put| put.header.group).eq(0..count));
            let mut popped = 0;
            while let Some(put) = puts.pop() {
                assert_eq!(put.header.group, popped);
                popped += 1;
                assert_eq!(puts.len() as u64, count - popped);
            }
            assert!(popped == count && puts.is_empty() && puts.chunks.is_empty());
        }
    }

    #[test]
    fn all_from_one_on_are_changed_and_none_before_it() {
        for first in [0, 1, 1_023, 1_024, 1_025, 2_999, 3_000, 9_000] {
            let mut puts = of(3_000);
            puts.iter_mut_from(first).for_each(|put| put.header.priority = 9);
            let changed = puts.iter().filter(|put| put.header.priority == 9);
            assert!(changed.map(|put| put.header.group).eq(first as u64..3_000));
        }
    }

    #[test]
    fn what_is_there_is_not_copied_when_more_comes_and_is_free_as_it_is_taken() {
        let mut puts = of(CHUNK_PUTS as u64);
        let before = address(&puts);
        (0..100_000).for_each(|number| puts.push(put(number)));
        assert_eq!(address(&puts), before);
        let chunks = puts.chunks.len();
        (0..50 * CHUNK_PUTS).for_each(|_| assert!(puts.pop().is_some()));
        assert_eq!(puts.chunks.len(), chunks - 50);
        assert!(puts.chunks.iter().all(|chunk| chunk.capacity() <= CHUNK_PUTS));
    }
}
