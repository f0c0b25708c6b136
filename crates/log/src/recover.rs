//! (first interface commit)
use crate::{Disk, Finding, Listener, Log, LogError, LogId, Options};
use bytes::Bytes;
use std::sync::Arc;
use towline_types::Lsn;

/// A log that was opened and not yet started.
pub struct Recovery {}

/// What replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Batches replayed.
    pub batches: u64,
    /// Records replayed.
    pub records: u64,
    /// Bytes of log read.
    pub bytes: u64,
    /// Where the log goes on.
    pub tail: Lsn,
    /// What was found and put right: a torn tail, an image that had to be passed over.
    pub findings: Vec<Finding>,
}

/// Why replay ended early.
#[derive(Debug)]
pub enum ReplayError<E> {
    /// The log cannot be used.
    Log(LogError),
    /// The receiver refused a record.
    Record {
        /// Its position.
        lsn: Lsn,
        /// What the receiver said.
        error: E,
    },
}

impl Recovery {
    /// Opens a log, or makes one with `new_log_id` (random bytes) when the folder holds none.
    ///
    /// # Errors
    /// See [`LogError`]; nothing on the disk was changed.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        new_log_id: LogId,
    ) -> Result<Recovery, LogError> {
        todo!("{} {options:?} {new_log_id:?}", disk.name())
    }
    /// The newest readable image and its position, to be restored before replay.
    #[must_use]
    pub fn image(&self) -> Option<(Lsn, Bytes)> {
        todo!()
    }
    /// Which log this is.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        todo!()
    }
    /// Yields each record of each complete run from the image on, in order. Once.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn replay<E>(
        &mut self,
        record: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
    ) -> Result<Report, ReplayError<E>> {
        todo!("{}", std::any::type_name_of_val(&record))
    }
    /// Starts the log's threads. Replays into nothing when [`Recovery::replay`] was not called.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(self, listener: Arc<dyn Listener>) -> Result<Log, LogError> {
        let _ = listener;
        todo!()
    }
}
