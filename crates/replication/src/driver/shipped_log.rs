//! The log of this instance as it is shipped to another region.
//!
//! Not here: what is shipped when (`region_shipping`).

use towline_types::{Batch, BatchPlace, Lsn};

use super::Driver;
use crate::applicable::CommittedBatches;
use crate::region_position::ShippedLog;
use crate::repair;

/// Between the fork of a history and its record there are only the first batches of leaders, which
/// are empty. So many are looked at.
const EMPTY_BATCHES_MAX: usize = 16;

impl Driver {
    /// Whether this log has just this batch, committed or not.
    pub(crate) fn has_batch(&self, place: BatchPlace, sum: Option<u32>) -> bool {
        sum.is_some()
            && ShippedLog::place(self, place.index) == Some(place)
            && self.sum_of(place) == sum
    }

    /// Looks at the first batch with content behind a position, committed or not: whether `is_it`
    /// says so of its payload. False: there is none, or it cannot be read. May read the disk.
    pub fn first_behind(&self, position: Lsn, is_it: impl Fn(&[u8]) -> bool) -> bool {
        let (base, last) =
            self.look(|core| (core.member.progress().base.index, core.member.last().index));
        let is_before =
            |index: u64| ShippedLog::place(self, index).is_some_and(|place| place.lsn < position);
        let (mut low, mut high) = (base.saturating_add(1), last.saturating_add(1));
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle) { low = middle + 1 } else { high = middle }
        }
        for index in (low..=last).take(EMPTY_BATCHES_MAX) {
            let Some(payload) = self.payload_of(index) else { return false };
            if !payload.is_empty() {
                return is_it(&payload);
            }
        }
        false
    }

    /// Whether this log is new: there are only the first batches of leaders in it.
    pub fn has_no_content(&self) -> bool {
        let is_whole = ShippedLog::known_behind(self) == 0;
        is_whole
            && self.look(|core| core.member.last().index) <= EMPTY_BATCHES_MAX as u64
            && !self.first_behind(Lsn::ZERO, |_| true)
    }

    fn payload_of(&self, index: u64) -> Option<bytes::Bytes> {
        let known = self.look(|core| core.member.batch(index));
        if let Some(batch) = known {
            return Some(batch.payload);
        }
        let place = ShippedLog::place(self, index)?;
        let read = repair::read_batches(self, &[place], 1).ok()?;
        read.into_iter().next().map(|batch| batch.payload)
    }
}

impl ShippedLog for Driver {
    fn term(&self) -> u64 {
        self.look(|core| core.member.progress().term)
    }

    fn committed(&self) -> BatchPlace {
        self.look(|core| core.member.committed_place())
    }

    fn place(&self, index: u64) -> Option<BatchPlace> {
        self.look(|core| core.member.place(index))
    }

    fn known_behind(&self) -> u64 {
        self.look(|core| core.member.progress().base.index)
    }

    fn behind(&self, index: u64, bytes_max: u64) -> Result<Vec<Batch>, String> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        match self.committed_behind(index, bytes_max) {
            CommittedBatches::Batches(batches) => Ok(batches),
            CommittedBatches::Places(places) if places.is_empty() => Ok(Vec::new()),
            CommittedBatches::Places(places) => {
                repair::read_batches(self, &places, bytes_max).map_err(|error| error.to_string())
            }
        }
    }

    fn sum(&self, place: BatchPlace) -> Option<u32> {
        self.sum_of(place)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towline_group::HardState;
    use towline_log::{Disk, MemoryDisk, Urgency};

    use super::super::tests::{LONG, one_of};
    use super::*;

    /// A group of one leads, and its log has the empty batch of its term, and two with content.
    #[test]
    fn the_first_content_behind_a_position_is_looked_at_and_a_batch_is_known_by_its_sum() {
        let disk = Arc::new(MemoryDisk::new()) as Arc<dyn Disk>;
        let folder = tempfile::tempdir().unwrap();
        let hard_state = HardState { may_vote: true, knows_term: true, ..HardState::default() };
        let (driver, _ended) = one_of(&["a"], hard_state, &disk, folder.path());
        let committed = |upto: Lsn| {
            let leads = || {
                driver.look_again();
                driver.committed_end() >= upto
            };
            assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
        };
        committed(Lsn(1));
        let begin = ShippedLog::committed(driver.as_ref());
        assert!(driver.has_no_content(), "it has the first batch of a leader");
        for content in [5_u8, 6] {
            let mut appender = driver.log().appender();
            appender.record(16, |memory| memory.resize(memory.len() + 16, content));
            committed(appender.commit(Urgency::Forced).unwrap());
        }
        assert!(!driver.has_no_content());
        let has = |position, content: u8| {
            driver.first_behind(position, |payload| payload.ends_with(&[content; 16]))
        };
        let first = ShippedLog::place(driver.as_ref(), begin.index + 1).unwrap();
        assert!(has(begin.lsn, 5) && has(begin.end, 5) && has(first.end, 6));
        assert!(!has(first.end, 5));
        let end = driver.committed_end();
        assert!(!driver.first_behind(end, |_| true), "there is nothing");
        let sum = driver.sum_of(first);
        assert!(driver.has_batch(first, sum) && !driver.has_batch(first, None));
        assert!(!driver.has_batch(first, sum.map(|sum| sum ^ 1)));
        let other = BatchPlace { term: first.term + 1, ..first };
        assert!(!driver.has_batch(other, sum), "one of another term");
        driver.log().shutdown();
    }
}
