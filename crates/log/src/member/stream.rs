//! Runs out of a sequence of batches, one batch at a time, as the group commits them.
//!
//! Not here: reading batches, deciding which are committed. A run that is not finished is held in
//! memory, however long: the caller that feeds it sets the limit.
//!
//! Invariant: only whole runs come out, in the order in which they were committed.

use std::fmt;

use bytes::Bytes;
use towline_types::{BATCH_HEADER_BYTES, Lsn};

use crate::record::{Kind, Receiver, Records};

/// Cuts a sequence of batches into whole runs.
#[derive(Clone, Debug, Default)]
pub struct RunStream {
    /// Records of the unfinished run: slices of their batches.
    waiting: Vec<(Lsn, Bytes)>,
}

/// Why [`RunStream::feed`] ended. The stream is then of no further use.
#[derive(Debug)]
pub enum FeedError<E> {
    /// The payload's records do not add up: it is not what a leader wrote.
    Malformed {
        /// Position of the batch.
        lsn: Lsn,
    },
    /// The receiver refused a record.
    Record {
        /// Its position.
        lsn: Lsn,
        /// What the receiver said.
        error: E,
    },
}

impl<E: fmt::Display> fmt::Display for FeedError<E> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedError::Malformed { lsn } => {
                write!(out, "the records of the batch at {lsn} are inconsistent")
            }
            FeedError::Record { lsn, error } => write!(out, "the record at {lsn}: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for FeedError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            FeedError::Malformed { .. } => None,
            FeedError::Record { error, .. } => Some(error),
        }
    }
}

impl RunStream {
    /// Begins at a seam: the beginning of a log, or where an image was taken.
    #[must_use]
    pub fn new() -> RunStream {
        RunStream::default()
    }

    /// Goes on behind these records of an unfinished run.
    pub(crate) fn behind(waiting: Vec<(Lsn, Bytes)>) -> RunStream {
        RunStream { waiting }
    }

    /// Takes the payload of the next batch, which lies at `lsn` (that of its header, as in
    /// [`towline_types::Batch`]); yields each record of each run that it completes, with its
    /// position, in order. A batch without records ends what was unfinished: it begins a term or
    /// ends a log.
    ///
    /// # Errors
    /// [`FeedError`].
    pub fn feed<E>(
        &mut self,
        lsn: Lsn,
        payload: &Bytes,
        record: &mut Receiver<'_, E>,
    ) -> Result<(), FeedError<E>> {
        if payload.is_empty() {
            self.waiting.clear();
        }
        let mut yielded = |lsn: Lsn, bytes: &[u8]| {
            record(lsn, bytes).map_err(|error| FeedError::Record { lsn, error })
        };
        for found in Records::new(payload) {
            let Ok(found) = found else { return Err(FeedError::Malformed { lsn }) };
            let at = found.start as u64;
            let at = BATCH_HEADER_BYTES.checked_add(at).and_then(|at| lsn.0.checked_add(at));
            let Some(at) = at.map(Lsn) else { return Err(FeedError::Malformed { lsn }) };
            match found.kind {
                Kind::More => self.waiting.push((at, payload.slice_ref(found.bytes))),
                Kind::GivenUp => self.waiting.clear(),
                Kind::Last => {
                    for (at, bytes) in self.waiting.drain(..) {
                        yielded(at, &bytes)?;
                    }
                    yielded(at, found.bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Whether no run is unfinished: an image of what was yielded so far holds all that was fed.
    #[must_use]
    pub fn at_seam(&self) -> bool {
        self.waiting.is_empty()
    }
}
