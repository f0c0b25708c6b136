//! (first interface commit)
use crate::{Finding, LogError};
use std::path::Path;
use towline_types::Lsn;

/// Which part of the log to show.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// From this position on.
    pub from: Lsn,
    /// Before this position.
    pub to: Lsn,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { from: Lsn::ZERO, to: Lsn(u64::MAX) }
    }
}

/// One thing shown by [`dump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An image.
    Image {
        /// What lies before it is in the image.
        at: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A batch's header.
    Batch {
        /// Its position.
        lsn: Lsn,
        /// Its index.
        index: u64,
        /// Its term.
        term: u32,
        /// Bytes of header and payload.
        bytes: u64,
    },
    /// A record.
    Record {
        /// Position of its first byte.
        lsn: Lsn,
        /// Whether it is the last of its run.
        last: bool,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// Something wrong.
    Finding(&'a Finding),
}

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Whole batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Position of the first batch.
    pub first: Option<Lsn>,
    /// End of the last batch.
    pub last: Option<Lsn>,
    /// What is wrong, in log order; a torn tail is listed too.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing but a torn tail was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.what == crate::Damage::TornTail)
    }
}

/// Shows the log of a folder, oldest first; changes nothing.
///
/// # Errors
/// [`LogError::Io`].
pub fn dump(folder: &Path, filter: Filter, show: &mut dyn FnMut(Item<'_>)) -> Result<(), LogError> {
    let _ = show;
    todo!("{folder:?} {filter:?}")
}

/// Checks every batch and image of a folder; changes nothing.
///
/// # Errors
/// [`LogError::Io`] when the folder cannot be read at all.
pub fn verify(folder: &Path) -> Result<VerifyReport, LogError> {
    todo!("{folder:?}")
}
