//! Where a batch lies in the files of a log, and what it must continue.
//!
//! Not here: reading batches (`scan`).

use towline_types::Lsn;

use super::names::extent_name;
use crate::error::{Damage, Finding, LogError};
use crate::format::BatchHeader;
use crate::mark::Seam;

/// A location in the log: extent and offset in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentOffset {
    /// The extent.
    pub sequence: u64,
    /// Bytes from the beginning of its file.
    pub offset: u64,
}

/// What the next batch must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Checksum of the batch before.
    pub checksum: u32,
    /// Index of the batch before.
    pub index: u64,
    /// Term of the batch before.
    pub term: u32,
}

impl Link {
    /// Before the first batch of a log.
    pub const ROOT: Link = Link { checksum: 0, index: 0, term: 0 };

    /// The link behind a seam.
    pub fn of_seam(seam: Seam) -> Link {
        Link { checksum: seam.checksum, index: seam.index, term: seam.term }
    }

    pub(super) fn of(header: &BatchHeader) -> Link {
        Link { checksum: header.checksum, index: header.index, term: header.term }
    }

    pub(super) fn continued_by(&self, header: &BatchHeader) -> bool {
        header.previous == self.checksum
            && Some(header.index) == self.index.checked_add(1)
            && header.term >= self.term
    }
}

/// The finding that the log begins with extent `first` and no image covers what was before it.
pub fn beginning_is_gone(first: u64, extent_bytes: u64) -> LogError {
    let place = ExtentOffset { sequence: first, offset: 0 };
    let lsn = Lsn(first.saturating_mul(extent_bytes));
    LogError::Damaged(finding(place, lsn, Damage::ImageMissing))
}

/// A finding at a location of the log.
pub fn finding(place: ExtentOffset, lsn: Lsn, what: Damage) -> Finding {
    let ExtentOffset { sequence, offset } = place;
    Finding { file: extent_name(sequence), extent: sequence, offset, lsn, what }
}
