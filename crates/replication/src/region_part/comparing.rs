//! The batches before a fork are compared with those of the other group, before this group says,
//! or does, anything about what it has behind it.
//!
//! Both say batches with their hellos, also with one that is refused. The active instance of a
//! group asks for others and dials again at once, until it knows; an instance that does not dial
//! has what the other group says unasked.
//!
//! Not here: the comparison (`log_comparison`), what follows from it (`returning`). Invariant: a
//! fork is said to be compared only if the log of this instance was, up to that position, as far as
//! both logs go back. Where they do not, nothing is in common: no log is cut by what histories say.

use std::cell::RefCell;
use std::collections::HashMap;

use towline_types::Lsn;

use super::RegionPart;
use crate::batch_marks::{BatchMark, BatchMarks, last_upto};
use crate::log_comparison::{ComparedLog, ComparisonOutcome, LogComparison};
use crate::region_meeting::RegionSaid;
use crate::region_position::ShippedLog;
use crate::return_order::{self, ForkEvidence, KnownFork};

/// Checksums that are kept: of more than is said at once.
const SUMS_MAX: usize = 2_048;
/// So much of the log is read for one hello, so that it does not come too late. What is left is
/// read for the next one.
const READ_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What is compared, on this side and for the other one.
#[derive(Default)]
pub(super) struct Comparing {
    /// The history that went on without this log, and its fork.
    of: ([u8; 16], u64),
    comparison: LogComparison,
    /// What this side asks for.
    asks: Vec<u64>,
    /// What the other side asked for last.
    asked: Vec<u64>,
    sums: KnownSums,
}

/// Checksums of batches of this log.
#[derive(Default)]
struct KnownSums {
    known: HashMap<u64, BatchMark>,
    /// So many bytes may still be read.
    left: u64,
}

impl RegionPart {
    /// The other group asks for these batches.
    pub(super) fn is_asked(&self, other: &RegionSaid) {
        self.comparing.lock().asked.clone_from(&other.asked);
    }

    /// What this instance says of its batches, and what it asks for.
    pub(super) fn batches_said(&self, said: RegionSaid) -> RegionSaid {
        let mut comparing = self.comparing.lock();
        let (asked, asks) = (comparing.asked.clone(), comparing.asks.clone());
        if said.agreement.is_live != Some(true) {
            return RegionSaid { asked: asks, ..said };
        }
        let log = self.driver.as_ref();
        comparing.sums.left = READ_BYTES_MAX;
        let sums = RefCell::new(&mut comparing.sums);
        let mark_at = |index| self.mark_at(&mut sums.borrow_mut(), index);
        let last = said.position.last.index;
        let batches = BatchMarks::of((log, last), &said.histories, &asked, &mark_at);
        RegionSaid { batches, asked: asks, ..said }
    }

    /// The same fork, as far as both logs were compared: at the end of the last batch that both
    /// have.
    pub(super) fn compared(
        &self,
        found: KnownFork,
        own: &RegionSaid,
        other: &RegionSaid,
    ) -> KnownFork {
        let log = self.driver.as_ref();
        let (gone, last) = (log.known_behind(), own.position.last.index);
        let upto = last_upto(log, (gone, last), Lsn(found.fork));
        let mut comparing = self.comparing.lock();
        if comparing.of != (found.history, found.fork) {
            comparing.of = (found.history, found.fork);
            comparing.comparison = LogComparison::default();
            comparing.asks.clear();
        }
        let Comparing { comparison, asks, sums, .. } = &mut *comparing;
        comparison.hears(&other.batches, other.position.last.index);
        sums.left = READ_BYTES_MAX;
        let sums = RefCell::new(sums);
        let mark_at = |index| self.mark_at(&mut sums.borrow_mut(), index);
        let result = comparison.compare(&ComparedLog { gone, upto, mark_at: &mark_at });
        match result {
            ComparisonOutcome::Asks(more) => {
                let is_news = *asks != more;
                *asks = more;
                drop(comparing);
                if is_news && let Some(links) = self.links.get() {
                    links.kick();
                }
                found
            }
            ComparisonOutcome::Common(common) => {
                asks.clear();
                let fork = self.end_of_common(&found, upto, &common);
                let evidence = ForkEvidence::Batches;
                KnownFork { fork, is_compared: true, common, evidence, own_from: fork, ..found }
            }
            ComparisonOutcome::Other(first) => {
                asks.clear();
                let evidence = ForkEvidence::OtherBatches;
                // Everything that is here may be of this log alone.
                let [fork, own_from] =
                    [gone + 1, first].map(|index| log.place(index).map_or(0, |it| it.lsn.0));
                let common = Vec::new();
                KnownFork { fork, is_compared: true, common, evidence, own_from, ..found }
            }
            ComparisonOutcome::Nothing => {
                asks.clear();
                let kept = return_order::known_fork(self.driver.folder()).ok().flatten();
                not_compared(found, kept)
            }
        }
    }

    /// Where this log parts from the other one, whose newest batches in common are these.
    fn end_of_common(&self, found: &KnownFork, upto: u64, common: &[BatchMark]) -> u64 {
        let log = self.driver.as_ref();
        let Some(newest) = common.last() else { return found.fork };
        // The histories are right: both have the same, up to where the newer one begins.
        let is_behind = log.place(upto + 1).is_none_or(|next| next.lsn.0 >= found.fork);
        if newest.index == upto && is_behind { found.fork } else { newest.end }
    }

    /// A batch of this log; `None`: it is not there, or cannot be read now.
    fn mark_at(&self, sums: &mut KnownSums, index: u64) -> Option<BatchMark> {
        let place = ShippedLog::place(self.driver.as_ref(), index)?;
        if let Some(known) = sums.known.get(&index).filter(|known| known.place() == place) {
            return Some(*known);
        }
        if sums.left == 0 {
            return None;
        }
        sums.left = sums.left.saturating_sub(place.end.0.saturating_sub(place.lsn.0));
        let mark = BatchMark::of(place, self.driver.sum_of(place)?);
        if sums.known.len() >= SUMS_MAX {
            sums.known.clear();
        }
        sums.known.insert(index, mark);
        Some(mark)
    }
}

/// The fork is what the histories say. What was compared while more of the logs was there says
/// more, if they part before that.
fn not_compared(found: KnownFork, kept: Option<KnownFork>) -> KnownFork {
    let found = KnownFork {
        is_compared: true,
        common: Vec::new(),
        evidence: ForkEvidence::Histories,
        own_from: found.fork,
        ..found
    };
    let parts_before = |kept: &KnownFork| {
        kept.history == found.history
            && kept.evidence != ForkEvidence::Unsaid
            && kept.fork < found.fork
    };
    match kept.filter(parts_before) {
        Some(KnownFork { evidence: ForkEvidence::OtherBatches, fork, own_from, .. }) => {
            KnownFork { evidence: ForkEvidence::OtherBatches, fork, own_from, ..found }
        }
        Some(KnownFork { fork, own_from, .. }) => KnownFork { fork, own_from, ..found },
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_that_cannot_be_compared_stays_unless_it_is_known_that_the_logs_part_before_it() {
        let mark = BatchMark { index: 7, ..BatchMark::default() };
        let found = KnownFork { fork: 9_000, history: [1; 16], ..KnownFork::default() };
        let alone = not_compared(found.clone(), None);
        assert!(alone.is_compared && alone.common.is_empty(), "no log is cut there");
        assert_eq!(
            (alone.fork, alone.own_from, alone.evidence),
            (9_000, 9_000, ForkEvidence::Histories)
        );
        let kept = |fork, evidence| KnownFork {
            fork,
            evidence,
            own_from: fork + 10,
            is_compared: true,
            common: vec![mark],
            ..found.clone()
        };
        let now = |kept| {
            let now = not_compared(found.clone(), Some(kept));
            assert!(now.common.is_empty(), "{now:?}");
            (now.fork, now.own_from, now.evidence)
        };
        let by_histories = (9_000, 9_000, ForkEvidence::Histories);
        // As an earlier version kept it: where the log began.
        assert_eq!(now(kept(4_096, ForkEvidence::Unsaid)), by_histories);
        assert_eq!(
            now(kept(8_000, ForkEvidence::Batches)),
            (8_000, 8_010, ForkEvidence::Histories)
        );
        assert_eq!(
            now(kept(4_096, ForkEvidence::OtherBatches)),
            (4_096, 4_106, ForkEvidence::OtherBatches)
        );
        assert_eq!(now(kept(9_000, ForkEvidence::Batches)), by_histories);
        let other = KnownFork { history: [2; 16], ..kept(8_000, ForkEvidence::Batches) };
        assert_eq!(now(other), by_histories);
    }
}
