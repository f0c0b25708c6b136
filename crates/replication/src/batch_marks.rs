//! Batches of a log as they are compared between two groups: positions and checksums, the section
//! of the hello in which a group says some of its own, and the one in which it asks for others. All
//! numbers are little-endian.
//!
//! ```text
//! 7 batches
//!   0   8  index of the newest batch that is not in this log any more; 0: all are
//!   8   2  count; of each: index, term, LSN, end 32, CRC-32C of its payload 4
//! 8 asked for
//!   0   2  count; of each: index 8
//! ```
//!
//! Not here: what follows from it (`log_comparison`). Invariant: no section has more entries than
//! its bound, whatever a log or another group says.

use serde::{Deserialize, Serialize};
use towline_region::wire::{place, put_place};
use towline_types::{BatchPlace, Histories, Lsn};

use crate::region_position::ShippedLog;

/// So many batches before a fork are compared, one by one. A single one does not prove what is
/// before it: two logs that parted may have the same removal at the same place. A put has the time
/// of day in microseconds, and so have all but the dullest 32 batches.
pub const WINDOW: u64 = 32;
/// Of so many of the newest forks of its log a group says batches unasked.
const FORKS_MAX: usize = 4;
/// So many before each: also for an instance that lacks the last ones.
const SAID: u64 = 2 * WINDOW;
/// Batches that are asked for, and so answered, at once.
pub const ASKED_MAX: usize = 64;
/// Entries of the section: of each fork, the first one behind it too.
const MARKS_MAX: usize = FORKS_MAX * 65 + ASKED_MAX;
const _: () = assert!(SAID == 64 && ASKED_MAX as u64 >= WINDOW, "a window is asked for at once");

/// One batch of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct BatchMark {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Its position.
    pub lsn: u64,
    /// Its end.
    pub end: u64,
    /// CRC-32C of its payload.
    pub sum: u32,
}

impl BatchMark {
    /// Of this batch.
    #[must_use]
    pub fn of(place: BatchPlace, sum: u32) -> BatchMark {
        let BatchPlace { index, term, lsn, end } = place;
        BatchMark { index, term, lsn: lsn.0, end: end.0, sum }
    }

    /// Where it is.
    #[must_use]
    pub fn place(&self) -> BatchPlace {
        let BatchMark { index, term, lsn, end, .. } = *self;
        BatchPlace { index, term, lsn: Lsn(lsn), end: Lsn(end) }
    }
}

/// Batches that a group says of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchMarks {
    /// The newest batch that is not there any more.
    pub gone: u64,
    /// Some of those that are.
    pub marks: Vec<BatchMark>,
}

impl BatchMarks {
    /// Tag of the section.
    pub const TAG: u8 = 7;

    /// What to say of a log with these histories to a group that asked for these.
    #[must_use]
    pub fn of(
        (log, last): (&dyn ShippedLog, u64),
        histories: &Histories,
        asked: &[u64],
        mark_at: &dyn Fn(u64) -> Option<BatchMark>,
    ) -> BatchMarks {
        let gone = log.known_behind();
        let forks = histories.iter().rev().filter(|it| it.parent.is_some()).take(FORKS_MAX);
        let mut wanted: Vec<u64> = asked.iter().copied().take(ASKED_MAX).collect();
        for history in forks {
            let upto = last_upto(log, (gone, last), history.fork);
            wanted.extend(upto.saturating_sub(SAID - 1)..=upto.saturating_add(1));
        }
        wanted.sort_unstable();
        wanted.dedup();
        // The newest ones first: not all may be read for one hello.
        let there = wanted.into_iter().rev().filter(|index| *index > gone && *index <= last);
        BatchMarks { gone, marks: there.filter_map(mark_at).take(MARKS_MAX).collect() }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let marks = self.marks.get(..MARKS_MAX).unwrap_or(&self.marks);
        let mut bytes = self.gone.to_le_bytes().to_vec();
        bytes.extend_from_slice(&count(marks.len()));
        for mark in marks {
            put_place(&mut bytes, mark.place());
            bytes.extend_from_slice(&mark.sum.to_le_bytes());
        }
        bytes
    }

    /// Reads them; `None`: the bytes are none. What a later version adds to the end is skipped.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<BatchMarks> {
        let (gone, rest) = bytes.split_first_chunk()?;
        let (count, mut rest) = rest.split_first_chunk()?;
        let count = usize::from(u16::from_le_bytes(*count)).min(MARKS_MAX);
        let mut marks = Vec::with_capacity(count);
        for _ in 0..count {
            let place = place(&mut rest).ok()?;
            let (sum, behind) = rest.split_first_chunk()?;
            marks.push(BatchMark::of(place, u32::from_le_bytes(*sum)));
            rest = behind;
        }
        Some(BatchMarks { gone: u64::from_le_bytes(*gone), marks })
    }
}

/// Tag of the section that asks for batches.
pub const TAG_ASKED: u8 = 8;

/// The bytes of a question.
#[must_use]
pub fn encode_asked(asked: &[u64]) -> Vec<u8> {
    let asked = asked.get(..ASKED_MAX).unwrap_or(asked);
    let indexes = asked.iter().flat_map(|index| index.to_le_bytes());
    count(asked.len()).into_iter().chain(indexes).collect()
}

/// Reads one; `None`: the bytes are none.
#[must_use]
pub fn decode_asked(bytes: &[u8]) -> Option<Vec<u64>> {
    let (count, mut rest) = bytes.split_first_chunk()?;
    let count = usize::from(u16::from_le_bytes(*count)).min(ASKED_MAX);
    let mut asked = Vec::with_capacity(count);
    for _ in 0..count {
        let (index, behind) = rest.split_first_chunk()?;
        asked.push(u64::from_le_bytes(*index));
        rest = behind;
    }
    Some(asked)
}

fn count(of: usize) -> [u8; 2] {
    u16::try_from(of).unwrap_or(u16::MAX).to_le_bytes()
}

/// Index of the last batch that ends at or before a position, of those behind `gone` up to `last`;
/// `gone`: none does.
pub(crate) fn last_upto(log: &dyn ShippedLog, (gone, last): (u64, u64), position: Lsn) -> u64 {
    let is_upto = |index: u64| log.place(index).is_some_and(|place| place.end <= position);
    let (mut low, mut high) = (gone, last);
    while low < high {
        let middle = high - (high - low) / 2;
        if is_upto(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use towline_types::Batch;

    use super::*;
    use crate::followed_histories::tests::chain_of;

    /// A log of which the batches up to `gone` are not there any more.
    struct TestLog {
        gone: u64,
        last: u64,
    }

    impl ShippedLog for TestLog {
        fn term(&self) -> u64 {
            2
        }

        fn committed(&self) -> BatchPlace {
            BatchPlace::default()
        }

        fn place(&self, index: u64) -> Option<BatchPlace> {
            let lsn = Lsn(index * 4_096);
            let place = BatchPlace { index, term: 2, lsn, end: lsn.after(100) };
            (self.gone..=self.last).contains(&index).then_some(place)
        }

        fn known_behind(&self) -> u64 {
            self.gone
        }

        fn behind(&self, _: u64, _: u64) -> Result<Vec<Batch>, String> {
            Ok(Vec::new())
        }

        fn sum(&self, _: BatchPlace) -> Option<u32> {
            None
        }
    }

    /// Histories of which each one but the first begins behind one of these batches.
    fn begun_behind(batches: &[u64]) -> Histories {
        let forks = batches.iter().map(|index| Lsn(index * 4_096).after(100));
        chain_of([Lsn::ZERO].into_iter().chain(forks))
    }

    #[test]
    fn a_group_says_the_batches_before_its_newest_forks_and_what_it_was_asked_for() {
        let log = TestLog { gone: 100, last: 2_000 };
        let mark_at = |index| log.place(index).map(|place| BatchMark::of(place, 1));
        let said = |forks: &[u64], asked: &[u64]| {
            let said = BatchMarks::of((&log, log.last), &begun_behind(forks), asked, &mark_at);
            assert_eq!(said.gone, 100);
            assert_eq!(BatchMarks::decode(&said.encode()), Some(said.clone()));
            let mut indexes: Vec<u64> = said.marks.iter().map(|mark| mark.index).collect();
            indexes.sort_unstable();
            indexes
        };
        assert!(said(&[], &[]).is_empty(), "the first history has no fork");
        assert_eq!(said(&[1_000], &[]), (937..=1_001).collect::<Vec<_>>());
        assert_eq!(said(&[2_000], &[]), (1_937..=2_000).collect::<Vec<_>>(), "nothing is behind");
        assert_eq!(said(&[120], &[]), (101..=121).collect::<Vec<_>>(), "what is there");
        assert_eq!(said(&[], &[7, 300, 300, 5_000]), [300]);
        let most = said(&[200, 300, 400, 500, 600], &(700..900).collect::<Vec<_>>());
        assert_eq!((most.len(), most[0]), (4 * 65 + ASKED_MAX, 237), "of four forks");
    }

    #[test]
    fn marks_and_questions_come_back_and_those_that_are_cut_do_not() {
        let mark = BatchMark { index: 7, term: 2, lsn: 4_096, end: 4_200, sum: 9 };
        let said = BatchMarks { gone: 3, marks: vec![mark, BatchMark { index: 8, ..mark }] };
        let bytes = said.encode();
        assert_eq!(BatchMarks::decode(&[&bytes[..], &[1]].concat()), Some(said));
        assert!((0..bytes.len()).all(|end| BatchMarks::decode(&bytes[..end]).is_none()));
        let bytes = encode_asked(&[1, 5]);
        assert_eq!(decode_asked(&bytes), Some(vec![1, 5]));
        assert!((0..bytes.len()).all(|end| decode_asked(&bytes[..end]).is_none()));
        let many: Vec<u64> = (0..1_000).collect();
        assert_eq!(decode_asked(&encode_asked(&many)).unwrap().len(), ASKED_MAX);
    }
}
