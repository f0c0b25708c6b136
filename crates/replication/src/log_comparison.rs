//! Which batches the log of an old live group has in common with that of the group that took over
//! from it, found by comparing positions and checksums of batches.
//!
//! Histories say where both logs part if each byte of a history was decided once. That is not so
//! when a live group lost a part of its log and went on: its data folder was put back from a backup
//! or a snapshot, or a majority of its instances was lost (`instance force-vote`). Then it has
//! other batches before the fork than the group that had received them before, and what is there
//! may have been acknowledged. So nothing is said of a fork before those batches were compared.
//!
//! What the other group says unasked is enough when nothing was lost. Else this one asks for others
//! with its next hello, ever closer to where the logs part, until [`WINDOW`] batches in a row are
//! the same and the one behind them is not.
//!
//! Not here: the sections (`batch_marks`), what follows (`region_part::comparing`). Invariants: a
//! batch that was not compared is in common with nothing; the result is only ever too early, and
//! not too late.

use std::collections::BTreeMap;

use crate::batch_marks::{ASKED_MAX, BatchMark, BatchMarks, WINDOW};

/// The log of this side, as it is compared.
pub(crate) struct ComparedLog<'a> {
    /// The newest batch that is not there any more.
    pub(crate) gone: u64,
    /// The last batch that ends at or before the fork.
    pub(crate) upto: u64,
    /// One of its batches; `None`: it cannot be read.
    pub(crate) mark_at: &'a dyn Fn(u64) -> Option<BatchMark>,
}

/// What is known of both logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOutcome {
    /// These are to be asked for.
    Asks(Vec<u64>),
    /// The newest batches that both have, the newest one last.
    Common(Vec<BatchMark>),
    /// Both have none of those that are there still: this is the first that is another one.
    Other(u64),
    /// One of both has no batch before the fork any more: there was nothing to compare.
    Nothing,
}

/// What the other group said of its batches so far; see the module.
#[derive(Debug, Default)]
pub(crate) struct LogComparison {
    /// The newest batch that is not in its log any more.
    gone: u64,
    /// Its last one.
    last: u64,
    said: BTreeMap<u64, BatchMark>,
}

impl LogComparison {
    /// The other group said this; `last` is the index of its last batch.
    pub(crate) fn hears(&mut self, said: &BatchMarks, last: u64) {
        self.gone = self.gone.max(said.gone);
        self.last = self.last.max(last);
        self.said.extend(said.marks.iter().map(|mark| (mark.index, *mark)));
    }

    /// Compares that with this log.
    pub(crate) fn compare(&self, log: &ComparedLog<'_>) -> ComparisonOutcome {
        let gone = self.gone.max(log.gone);
        // Whether both have the same one; not known: `None`.
        let is_same = |index: u64| match self.said.get(&index) {
            Some(said) => (log.mark_at)(index).map(|own| own == *said),
            None => (index > self.last).then_some(false),
        };
        let inside = self.said.keys().filter(|index| **index > gone && **index <= log.upto);
        let first_other = inside.copied().find(|index| is_same(*index) == Some(false));
        let beyond = log.upto.min(self.last).saturating_add(1);
        let other = first_other.map_or(beyond, |index| index.min(beyond));
        let newest = other.saturating_sub(1);
        if newest <= gone {
            return match other <= log.upto {
                true => ComparisonOutcome::Other(other),
                false => ComparisonOutcome::Nothing,
            };
        }
        let window = newest.saturating_sub(WINDOW - 1).max(gone + 1)..=newest;
        let unknown: Vec<u64> = window.clone().filter(|index| is_same(*index).is_none()).collect();
        if unknown.is_empty() {
            return ComparisonOutcome::Common(
                window.filter_map(|index| (log.mark_at)(index)).collect(),
            );
        }
        let said = self.said.range(gone + 1..=newest).rev().map(|(index, _)| *index);
        let same = said.into_iter().find(|index| is_same(*index) == Some(true));
        ComparisonOutcome::Asks(asked(same.unwrap_or(gone), newest, unknown))
    }
}

/// Batches between the newest one that both are known to have and the newest one that they may
/// have, in equal steps, and those of the window that are not known.
fn asked(same: u64, newest: u64, unknown: Vec<u64>) -> Vec<u64> {
    let room = (ASKED_MAX - unknown.len().min(ASKED_MAX)) as u64;
    let between = newest.saturating_sub(same);
    let step = between.div_ceil(room.max(1)).max(1);
    let steps = (1..=room).map(|at| same + at * step).take_while(|index| *index <= newest);
    let mut asked: Vec<u64> = unknown.into_iter().chain(steps).collect();
    asked.sort_unstable();
    asked.dedup();
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(index: u64, sum: u32) -> BatchMark {
        let lsn = index * 4_096;
        BatchMark { index, term: 2, lsn, end: lsn + 100, sum }
    }

    /// Two logs with the same batches up to `parted`; each has its own number of batches, and lacks
    /// the oldest ones. `alike`: those behind `parted` are the same all the same.
    struct Both {
        parted: u64,
        own: (u64, u64),
        other: (u64, u64),
        alike: &'static [u64],
    }

    impl Both {
        fn of(&self, index: u64, is_own: bool) -> Option<BatchMark> {
            let (gone, last) = if is_own { self.own } else { self.other };
            let is_same = index <= self.parted || self.alike.contains(&index);
            let sum = if is_same || is_own { 0 } else { 1 };
            (index > gone && index <= last).then(|| mark(index, sum))
        }

        /// Compares until nothing more is asked for; how often was asked, and the newest batch.
        fn compared(&self, unasked: std::ops::RangeInclusive<u64>) -> (usize, Option<u64>) {
            let mut comparison = LogComparison::default();
            let mut asked: Vec<u64> = unasked.collect();
            for questions in 0..40 {
                let marks = asked.iter().filter_map(|index| self.of(*index, false)).collect();
                comparison.hears(&BatchMarks { gone: self.other.0, marks }, self.other.1);
                let mark_at = |index| self.of(index, true);
                let log = ComparedLog { gone: self.own.0, upto: self.own.1, mark_at: &mark_at };
                match comparison.compare(&log) {
                    ComparisonOutcome::Common(common) => {
                        assert!(common.iter().all(|it| it.index <= self.parted));
                        return (questions, common.last().map(|it| it.index));
                    }
                    ComparisonOutcome::Other(first) => {
                        assert!(first > self.parted);
                        return (questions, None);
                    }
                    ComparisonOutcome::Nothing => {
                        assert!(self.own.1 <= self.own.0.max(self.other.0), "some were there");
                        return (questions, None);
                    }
                    ComparisonOutcome::Asks(more) => {
                        assert!(!more.is_empty() && more.len() <= ASKED_MAX, "{more:?}");
                        asked = more;
                    }
                }
            }
            panic!("it asks without end");
        }
    }

    const UP_TO_FORK: Both = Both { parted: 1_000, own: (0, 1_000), other: (0, 1_001), alike: &[] };

    #[test]
    fn a_log_that_lost_nothing_is_known_by_what_is_said_unasked() {
        assert_eq!(UP_TO_FORK.compared(937..=1_001), (0, Some(1_000)));
        let lacks = Both { own: (0, 980), ..UP_TO_FORK };
        assert_eq!(lacks.compared(937..=1_001), (0, Some(980)), "it has the beginning");
        let short = Both { parted: 7, own: (0, 7), other: (0, 8), alike: &[] };
        assert_eq!(short.compared(1..=8), (0, Some(7)));
    }

    #[test]
    fn a_log_that_went_on_from_an_older_end_is_found_out_and_asks_where() {
        for parted in [0, 1, 5, 400, 968, 969, 999] {
            // It ends before the fork, at it, and has more batches before it.
            for end in [parted + 1, 1_000, 1_400] {
                let both = Both { parted, own: (0, end), other: (0, 1_200), alike: &[] };
                let (questions, newest) = both.compared(937..=1_001);
                assert_eq!(newest, (parted > 0).then_some(parted), "{parted} {end}");
                assert!(questions < 6, "{questions}");
            }
        }
    }

    #[test]
    fn few_batches_that_are_alike_behind_others_are_no_beginning() {
        let alike: &[u64] = &[970, 980, 990, 991, 992, 993, 994, 995, 996, 997, 998, 999, 1_000];
        let both = Both { parted: 960, alike, ..UP_TO_FORK };
        assert_eq!(both.compared(937..=1_001).1, Some(960));
        let both = Both { parted: 300, alike, ..UP_TO_FORK };
        assert_eq!(both.compared(1_000..=1_001).1, Some(300));
    }

    #[test]
    fn what_is_gone_on_either_side_is_in_common_with_nothing() {
        let both = Both { parted: 300, own: (400, 1_000), other: (0, 1_001), alike: &[] };
        assert_eq!(both.compared(937..=1_001).1, None);
        let both = Both { parted: 300, own: (0, 1_000), other: (500, 1_001), alike: &[] };
        assert_eq!(both.compared(937..=1_001).1, None);
        // What is before the fork is gone: that is no sign that it was another one.
        let both = Both { own: (1_000, 1_000), ..UP_TO_FORK };
        assert_eq!(both.compared(937..=1_001).1, None);
        let both = Both { other: (1_400, 2_000), ..UP_TO_FORK };
        assert_eq!(both.compared(1_401..=1_402).1, None);
        let both = Both { parted: 1_000, own: (990, 1_000), other: (980, 1_001), alike: &[] };
        assert_eq!(both.compared(937..=1_001).1, Some(1_000), "a part of the window is enough");
    }

    #[test]
    fn without_an_answer_nothing_is_in_common() {
        let mut comparison = LogComparison::default();
        comparison.hears(&BatchMarks::default(), 1_001);
        let mark_at = |index| UP_TO_FORK.of(index, true);
        let log = ComparedLog { gone: 0, upto: 1_000, mark_at: &mark_at };
        let ComparisonOutcome::Asks(asked) = comparison.compare(&log) else { panic!() };
        assert!(asked.contains(&1_000) && asked.len() <= ASKED_MAX);
    }
}
