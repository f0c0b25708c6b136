//! (first interface commit)
use crate::{LogError, Stats};
use bytes::Bytes;
use std::marker::PhantomData;
use towline_types::{BodyLocation, Lsn};

/// How soon a run must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Now: somebody waits for it.
    Forced,
    /// With the next forced run, or after `lazy_delay`.
    Lazy,
}

/// How much room the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Enough.
    Ample,
    /// The reserve and less than one extent.
    Low,
    /// Only the reserve: refuse what adds, allow what frees.
    Full,
}

/// Who hears from the log. Called on the log's threads, outside its lock, one call at a time for
/// `durable` and `failed`; must return quickly and must not call [`Log::shutdown`].
pub trait Listener: Send + Sync {
    /// All that ends at or before `upto` is durable. Ascends from call to call.
    fn durable(&self, upto: Lsn);
    /// A write or a sync failed. Called once; `durable` is never called after it.
    fn failed(&self, error: &LogError);
    /// The room changed.
    fn space(&self, space: Space);
}

/// A running log. A cheap handle: clones share one log; the last one dropped stops its threads
/// without writing what is open (as a crash would).
#[derive(Clone)]
pub struct Log {}

impl Log {
    /// Begins a run: waits until no other run is being appended.
    #[must_use]
    pub fn appender(&self) -> Appender<'_> {
        todo!()
    }
    /// Longest record.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        todo!()
    }
    /// A durable body from memory.
    #[must_use]
    pub fn resident(&self, body: BodyLocation) -> Option<Bytes> {
        todo!("{body:?}")
    }
    /// A durable body, from memory or disk; blocks.
    ///
    /// # Errors
    /// [`LogError::Gone`], [`LogError::Damaged`], [`LogError::Io`].
    pub fn read(&self, body: BodyLocation) -> Result<Bytes, LogError> {
        todo!("{body:?}")
    }
    /// Bytes appended and not yet durable. Reads one atomic.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        todo!()
    }
    /// Writes an image; blocks.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn write_image(&self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        todo!("{at}{bytes:?}")
    }
    /// Lets go what lies before `keep_from`; blocks.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn reclaim(&self, keep_from: Lsn) -> Result<(), LogError> {
        todo!("{keep_from}")
    }
    /// End of the last run appended.
    #[must_use]
    pub fn tail(&self) -> Lsn {
        todo!()
    }
    /// All before it is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        todo!()
    }
    /// How much room there is now.
    #[must_use]
    pub fn space(&self) -> Space {
        todo!()
    }
    /// A picture of the figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Writes what is open, waits for the disk, ends the threads. Later appends are refused.
    pub fn shutdown(&self) {
        todo!()
    }
}

/// A run being appended: an atomic sequence of records. Replay yields all of it or nothing.
/// Dropped without [`Appender::commit`], the run is given up.
pub struct Appender<'a>(PhantomData<&'a Log>);

impl Appender<'_> {
    /// Adds a record, written by `write` at the end of the buffer that it is given (which holds
    /// other bytes before; `write` only appends). `bytes_hint` is its length if known (a wrong hint
    /// costs a copy). Returns the position of the record's first byte, which is the position of
    /// what `write` wrote first. After a failure (no room), positions mean nothing and
    /// [`Appender::commit`] says so.
    ///
    /// # Panics
    /// When the record is longer than [`Log::record_bytes_max`].
    pub fn record(&mut self, bytes_hint: usize, write: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        todo!("{bytes_hint} {}", std::any::type_name_of_val(&write))
    }

    /// Ends the run. It is durable when [`Listener::durable`] says `upto >=` the returned end.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::Failed`], [`LogError::Stopped`]: nothing of the run will be
    /// seen by replay.
    pub fn commit(self, urgency: Urgency) -> Result<Lsn, LogError> {
        todo!("{urgency:?}")
    }
}
