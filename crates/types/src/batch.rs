//! A batch of the recovery log as it travels between instances.

use bytes::Bytes;

use crate::Lsn;

/// Bytes that the log writes before the payload of a batch.
pub const BATCH_HEADER_BYTES: u64 = 40;

/// What one write of the recovery log makes durable. In a group it is one entry of the replicated
/// log, and stands at the same position in the log of every instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// 1 for the first batch of a log, then one more each.
    pub index: u64,
    /// The leader's term when it was made.
    pub term: u64,
    /// Position of the batch's first byte, which is its header's.
    pub lsn: Lsn,
    /// Records, without the header. Empty for the first batch of a term.
    pub payload: Bytes,
}

impl Batch {
    /// Position behind the last byte; what pads it to a block is not counted.
    ///
    /// # Panics
    /// When it passes 2^64.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.lsn.after(BATCH_HEADER_BYTES + self.payload.len() as u64)
    }

    /// Its location, without its content.
    #[must_use]
    pub fn place(&self) -> BatchPlace {
        BatchPlace { index: self.index, term: self.term, lsn: self.lsn, end: self.end() }
    }
}

/// Where a batch is in the log, and which instance wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchPlace {
    /// See [`Batch::index`].
    pub index: u64,
    /// See [`Batch::term`].
    pub term: u64,
    /// See [`Batch::lsn`].
    pub lsn: Lsn,
    /// See [`Batch::end`].
    pub end: Lsn,
}
