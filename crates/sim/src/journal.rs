//! The recovery log as a simulated active sees it: facts become records in an open batch.
//!
//! Not here: when a batch is closed and written (the world says so).
//!
//! Invariants: the end of a run is the end of its last record; batches follow each other by index
//! and position.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Body, Durability, Fact, record};
use towline_node::{Journal, NotAppended};
use towline_types::{BATCH_HEADER_BYTES, Batch, BatchPlace, BodyLocation, Lsn, Time};

use crate::runs::{PREFIX_BYTES, put_record};

/// See the module.
#[derive(Debug)]
pub(crate) struct SimulatedJournal {
    open: RefCell<Open>,
    /// There is no free space.
    full: Cell<bool>,
    /// Bytes that may wait for the disk: with more, it takes no run until they are taken.
    waiting_bytes_max: usize,
    /// It took no run, and has not said yet that it takes some again.
    behind: Cell<bool>,
}

#[derive(Debug)]
struct Open {
    /// The open batch.
    index: u64,
    term: u64,
    lsn: Lsn,
    payload: Vec<u8>,
    /// A record before it is in the batch. Empty; kept for its memory.
    record: Vec<u8>,
    /// Full before their time, waiting to be taken.
    sealed: Vec<Batch>,
    forced: bool,
    batch_bytes: usize,
    block_bytes: u64,
}

/// What is chosen about a journal, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalSizes {
    /// A batch is closed before it has more.
    pub(crate) batch_bytes: usize,
    /// Batches begin at multiples of this.
    pub(crate) block_bytes: u64,
    /// With more that wait for the disk, it takes no run.
    pub(crate) waiting_bytes_max: usize,
}

/// What waits in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitUrgency {
    Nothing,
    /// No client waits for it.
    Lazy,
    Forced,
}

impl SimulatedJournal {
    /// A journal that goes on behind `last`.
    pub(crate) fn behind(last: BatchPlace, sizes: JournalSizes) -> Self {
        let JournalSizes { batch_bytes, block_bytes, waiting_bytes_max } = sizes;
        let open = Open {
            index: last.index + 1,
            term: last.term,
            lsn: next_lsn(last.end, block_bytes),
            payload: Vec::new(),
            record: Vec::new(),
            sealed: Vec::new(),
            forced: false,
            batch_bytes,
            block_bytes,
        };
        let (open, full, behind) = (RefCell::new(open), Cell::new(false), Cell::new(false));
        SimulatedJournal { open, full, waiting_bytes_max, behind }
    }

    pub(crate) fn fill(&self, full: bool) {
        self.full.set(full);
    }

    pub(crate) fn waiting(&self) -> CommitUrgency {
        let open = self.open.borrow();
        match (open.forced, open.payload.is_empty() && open.sealed.is_empty()) {
            (_, true) => CommitUrgency::Nothing,
            (true, false) => CommitUrgency::Forced,
            (false, false) => CommitUrgency::Lazy,
        }
    }

    /// Whether it takes runs again, and took none before: a message for the instance, once.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.open.borrow().waiting_bytes() <= self.waiting_bytes_max && self.behind.take()
    }

    /// Closes the open batch and gives away all that are closed.
    pub(crate) fn take(&self) -> Vec<Batch> {
        let mut open = self.open.borrow_mut();
        open.seal();
        open.forced = false;
        std::mem::take(&mut open.sealed)
    }
}

/// Where a batch behind one that ends at `end` begins.
pub(crate) fn next_lsn(end: Lsn, block_bytes: u64) -> Lsn {
    // The first batch stands behind the header of its extent, so no position is 0.
    Lsn(end.0.max(1).next_multiple_of(block_bytes))
}

impl Open {
    fn seal(&mut self) {
        if self.payload.is_empty() {
            return;
        }
        let payload = Bytes::from(std::mem::take(&mut self.payload));
        let batch = Batch { index: self.index, term: self.term, lsn: self.lsn, payload };
        self.index += 1;
        self.lsn = next_lsn(batch.end(), self.block_bytes);
        self.sealed.push(batch);
    }

    fn waiting_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|batch| batch.payload.len()).sum();
        sealed + self.payload.len()
    }

    fn tail(&self) -> Lsn {
        self.lsn.after(BATCH_HEADER_BYTES + self.payload.len() as u64)
    }

    fn push(&mut self, fact: &mut Fact, last: bool) {
        let mut bytes = std::mem::take(&mut self.record);
        bytes.clear();
        let body = record::encode(fact, last, &mut bytes);
        let length = self.payload.len() + PREFIX_BYTES + bytes.len();
        if !self.payload.is_empty() && length > self.batch_bytes {
            self.seal();
        }
        let at = self.tail().after(PREFIX_BYTES as u64);
        put_record(&mut self.payload, &bytes, last);
        self.record = bytes;
        let Some(range) = body else { return };
        let bytes = u32::try_from(range.len()).unwrap_or(u32::MAX);
        let place = BodyLocation { lsn: at.after(range.start as u64), bytes };
        match fact {
            Fact::Put { message, .. } => message.body = Body::Log(place),
            Fact::BodyChunk { chunk, .. } => *chunk = Body::Log(place),
            _ => {}
        }
    }
}

impl Journal for SimulatedJournal {
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Result<Lsn, NotAppended> {
        if self.full.get() {
            return Err(NotAppended::Full);
        }
        let mut open = self.open.borrow_mut();
        if open.waiting_bytes() > self.waiting_bytes_max {
            self.behind.set(true);
            return Err(NotAppended::Behind);
        }
        let count = facts.len();
        for (number, fact) in facts.iter_mut().enumerate() {
            open.push(fact, number + 1 == count);
        }
        open.forced |= durability == Durability::Forced;
        Ok(open.tail())
    }

    fn room_for_puts(&self) -> u64 {
        u64::MAX
    }

    fn resident(&self, _: BodyLocation) -> Option<Bytes> {
        None
    }

    fn surroundings(&self, _: Time) -> Status {
        Status::default()
    }
}

/// A journal for looking at an instance that must not change.
#[derive(Debug)]
pub(crate) struct NoJournal;

impl Journal for NoJournal {
    fn append(&self, facts: &mut [Fact], _: Durability) -> Result<Lsn, NotAppended> {
        unreachable!("looking changes nothing, but it logged {facts:?}")
    }

    fn room_for_puts(&self) -> u64 {
        u64::MAX
    }

    fn resident(&self, _: BodyLocation) -> Option<Bytes> {
        None
    }

    fn surroundings(&self, _: Time) -> Status {
        Status::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_core::{MessageSequence, QueueId};

    fn sizes(waiting_bytes_max: usize) -> JournalSizes {
        JournalSizes { batch_bytes: 20, block_bytes: 512, waiting_bytes_max }
    }

    fn got(sequence: u64) -> Fact {
        Fact::Got { queue: QueueId(1), sequence: MessageSequence(sequence) }
    }

    #[test]
    fn a_journal_that_is_behind_takes_no_run_until_its_batches_are_taken() {
        let last = BatchPlace { index: 4, term: 2, lsn: Lsn(100), end: Lsn(140) };
        let journal = SimulatedJournal::behind(last, sizes(40));
        let mut facts: Vec<Fact> = (0..10).map(got).collect();
        journal.append(&mut facts, Durability::Lazy).unwrap();
        let refused = journal.append(&mut [got(11)], Durability::Forced);
        assert_eq!(refused, Err(NotAppended::Behind));
        assert!(!journal.has_caught_up());
        assert_eq!(journal.waiting(), CommitUrgency::Lazy, "nothing of it is there");
        journal.take();
        assert!(journal.has_caught_up() && !journal.has_caught_up());
        journal.append(&mut [got(11)], Durability::Forced).unwrap();
    }

    #[test]
    fn a_run_that_is_longer_than_a_batch_ends_with_its_last_record() {
        let last = BatchPlace { index: 4, term: 2, lsn: Lsn(100), end: Lsn(140) };
        let journal = SimulatedJournal::behind(last, sizes(usize::MAX));
        let mut facts: Vec<Fact> = (0..10).map(got).collect();
        let end = journal.append(&mut facts, Durability::Forced).ok();
        assert_eq!(journal.waiting(), CommitUrgency::Forced);
        let batches = journal.take();
        assert!(batches.len() > 1, "{batches:?}");
        assert_eq!(batches.last().map(Batch::end), end);
        assert!(batches.iter().zip(5..).all(|(batch, index)| batch.index == index));
        assert!(batches.iter().all(|batch| batch.lsn.0 % 512 == 0 && batch.term == 2));
        assert_eq!(journal.waiting(), CommitUrgency::Nothing);
    }
}
