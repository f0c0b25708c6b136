//! The batches before a fork are compared with those of the other group, before this group says,
//! or does, anything about what it has behind it.
//!
//! Both say batches with their hellos, also with one that is refused. The active instance of a
//! group asks for others and dials again at once, until it knows; an instance that does not dial
//! has what the other group says unasked.
//!
//! Not here: the comparison (`log_comparison`), what follows from it (`returning`). Invariant: a
//! fork is said to be compared only if the log of this instance was, up to that position.

use std::cell::RefCell;
use std::collections::HashMap;

use towline_types::Lsn;

use super::RegionPart;
use crate::batch_marks::{BatchMark, BatchMarks, last_upto};
use crate::log_comparison::{ComparedLog, ComparisonOutcome, LogComparison};
use crate::region_meeting::RegionSaid;
use crate::region_position::ShippedLog;
use crate::return_order::KnownFork;

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
                let fork = self.end_of_common(&found, (gone, upto), &common);
                KnownFork { fork, is_compared: true, common, ..found }
            }
        }
    }

    /// Where this log parts from the other one, whose newest batches in common are these.
    fn end_of_common(
        &self,
        found: &KnownFork,
        (gone, upto): (u64, u64),
        common: &[BatchMark],
    ) -> u64 {
        let log = self.driver.as_ref();
        let Some(newest) = common.last() else {
            // Everything that is here may be of this log alone.
            return log.place(gone + 1).map_or(0, |first| first.lsn.0);
        };
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
