//! Positions in the log at which reading may begin: what an image must say so that nothing before
//! it is read.
//!
//! Not here: writing images (`image`), beginning at one (`recover`).
//!
//! Invariants: at a seam no run is unfinished, so a reader that begins there sees whole runs only;
//! seams are durable and ascend.

use std::collections::VecDeque;

use towline_types::Lsn;

/// Seams that are remembered: at ten thousand batches in a second, a tenth of a second.
const SEAMS_MAX: usize = 1_024;

/// The position between two batches where no run is unfinished, and what the next batch continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seam {
    /// End of the batch before it, without padding.
    pub end: Lsn,
    /// Index of that batch; 0 at the beginning of a log.
    pub index: u64,
    /// Checksum of that batch.
    pub checksum: u32,
    /// Term of that batch.
    pub term: u32,
    /// Length of that batch, header included; 0 at the beginning of a log.
    pub bytes: u32,
}

/// A durable position with what recovery needs to begin there: made by [`crate::Log::mark_at`],
/// taken by [`crate::Log::write_image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    at: Lsn,
    seam: Seam,
}

impl Mark {
    /// The position: all runs that end at or before it are behind it, all others before it.
    #[must_use]
    pub fn at(&self) -> Lsn {
        self.at
    }

    /// The seam where reading begins.
    pub fn seam(&self) -> Seam {
        self.seam
    }
}

/// The newest seams.
#[derive(Debug)]
pub struct Seams {
    seams: VecDeque<Seam>,
}

impl Seams {
    /// Begins with the seam at which a log goes on.
    pub fn new(first: Seam) -> Seams {
        Seams { seams: VecDeque::from([first]) }
    }

    /// Those of a log that was read: none is lost that may be needed again.
    pub fn of(seams: impl Iterator<Item = Seam>) -> Seams {
        let mut all = Seams { seams: VecDeque::new() };
        seams.for_each(|seam| all.push(seam));
        all
    }

    /// Forgets all behind `end`: that part of the log was cut off.
    pub fn cut(&mut self, end: Lsn) {
        self.seams.retain(|seam| seam.end <= end);
    }

    /// Adds the end of a batch that became durable.
    pub fn push(&mut self, seam: Seam) {
        assert!(self.seams.back().is_none_or(|last| last.end < seam.end), "seams ascend");
        if self.seams.len() == SEAMS_MAX {
            self.seams.pop_front();
        }
        self.seams.push_back(seam);
    }

    /// The mark of a durable position: `None` when no seam at or before it is remembered.
    pub fn mark_at(&self, at: Lsn) -> Option<Mark> {
        let behind = self.seams.partition_point(|seam| seam.end <= at);
        let seam = *self.seams.get(behind.checked_sub(1)?)?;
        Some(Mark { at, seam })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seam(end: u64) -> Seam {
        Seam { end: Lsn(end), index: end, checksum: 0, term: 1, bytes: 90 }
    }

    #[test]
    fn a_mark_has_the_newest_seam_at_or_before_it() {
        let mut seams = Seams::new(seam(100));
        seams.push(seam(200));
        seams.push(seam(300));
        let found = |at| seams.mark_at(Lsn(at)).map(|mark| (mark.at().0, mark.seam().end.0));
        assert_eq!(found(99), None);
        assert_eq!(found(100), Some((100, 100)));
        assert_eq!(found(299), Some((299, 200)));
        assert_eq!(found(1_000), Some((1_000, 300)));
    }

    #[test]
    fn only_the_newest_seams_are_remembered() {
        let mut seams = Seams::new(seam(1));
        (2..=2_000).for_each(|end| seams.push(seam(end)));
        assert_eq!(seams.mark_at(Lsn(976)), None);
        assert_eq!(seams.mark_at(Lsn(977)).map(|mark| mark.seam().end), Some(Lsn(977)));
    }
}
