//! A damaged batch in a backup: which one, and what is lost with it.
//!
//! Not here: finding it (`damage`).

use std::fmt;

use towline_log::format::BATCH_HEADER_BYTES;
use towline_types::{BodyLocation, Lsn, fitting};

/// A damaged batch that a backup has as it found it in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBatch {
    /// The extent in which it lies.
    pub file: String,
    /// Offset in the extent.
    pub offset: u64,
    /// Its position.
    pub lsn: Lsn,
    /// Messages in it that cannot be read, if that is known.
    pub messages: Option<u64>,
}

impl DamagedBatch {
    /// What is asked of another instance that may have the batch whole.
    #[must_use]
    pub fn part(&self) -> BodyLocation {
        // A batch is as long as its header at least.
        BodyLocation { lsn: self.lsn, bytes: fitting(BATCH_HEADER_BYTES as u64) }
    }
}

impl fmt::Display for DamagedBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DamagedBatch { file, offset, lsn, messages } = self;
        write!(out, "{file} at offset {offset} ({lsn}): a damaged batch, ")?;
        match messages {
            Some(messages) => write!(out, "{messages} messages in it cannot be read"),
            None => write!(out, "it is not known how many messages in it cannot be read"),
        }
    }
}
