//! A run on its way into the open batch.
//!
//! Not here: when batches are written, what records mean.
//!
//! Invariants: one run is appended at a time (`appending`), even while the lock is released to wait
//! for free space; a run that is not committed leaves nothing that replay would yield.

use std::sync::atomic::Ordering;
use towline_os::sync::MutexGuard;
use towline_os::time::Instant;

use towline_types::Lsn;

use crate::batch::{Batch, Overflow};
use crate::error::LogError;
use crate::format::BATCH_HEADER_BYTES;
use crate::listener::Urgency;
use crate::record::{CHECK_BYTES, prefix_bytes};
use crate::shared::{LogState, OpenOutcome, Phase, SEALED_BYTES_MAX, Shared};

/// A run being appended: an atomic sequence of records. Replay yields all of it or nothing.
/// Dropped without [`Appender::commit`], the run is given up.
///
/// It holds the log's lock: append without waiting for anything else.
pub struct Appender<'a> {
    shared: &'a Shared,
    /// `None` only while a method of this type waits, and after the end.
    state: Option<MutexGuard<'a, LogState>>,
    /// Index of the batch in which the run began, and its length before.
    began: Option<(u64, usize)>,
    failed: Option<OpenOutcome>,
    /// Batches that are full are handed over without waiting until the writers have caught up.
    hurries: bool,
}

impl<'a> Appender<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Appender<'a> {
        let mut state = shared.state();
        while state.appending {
            state = shared.wait_as_appender(state);
        }
        state.appending = true;
        Appender { shared, state: Some(state), began: None, failed: None, hurries: false }
    }

    /// A run of about `bytes` bytes, when the log takes it at once.
    pub(crate) fn at_once(shared: &'a Shared, bytes: usize) -> Option<Appender<'a>> {
        let mut state = shared.state();
        if shared.is_behind(&state, bytes) {
            state.behind = true;
            return None;
        }
        state.behind = false;
        state.appending = true;
        Some(Appender { shared, state: Some(state), began: None, failed: None, hurries: true })
    }

    /// Adds a record, written by `write` at the end of the buffer that it is given (which holds
    /// other bytes before; `write` only appends). `bytes_hint` is its length if known (a wrong hint
    /// costs a copy). Returns the position of the record's first byte, which is the position of
    /// what `write` wrote first. After a failure (no space), positions mean nothing and
    /// [`Appender::commit`] returns the error.
    ///
    /// # Panics
    /// When the record is longer than [`crate::Log::record_bytes_max`].
    pub fn record(&mut self, bytes_hint: usize, write: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        self.record_with_body(bytes_hint, |memory| {
            write(memory);
            None
        })
    }

    /// [`Appender::record`] of a record that ends with a body, which is read back by its position:
    /// `write` returns where in the record the body begins. It gets a checksum of its own.
    ///
    /// # Panics
    /// As [`Appender::record`]; when the body begins behind the record's end.
    pub fn record_with_body(
        &mut self,
        bytes_hint: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Option<usize>,
    ) -> Lsn {
        let bytes_max = self.shared.options.record_bytes_max();
        let bytes_hint = bytes_hint.min(bytes_max);
        if self.failed.is_some() || !self.make_room(bytes_hint) {
            return Lsn::ZERO;
        }
        match self.push(bytes_hint, write) {
            Ok(lsn) => lsn,
            Err(Overflow { record, body }) => {
                assert!(record.len() <= bytes_max, "a record is longer than record_bytes_max");
                self.seal();
                if !self.make_room(record.len()) {
                    return Lsn::ZERO;
                }
                let pushed = self.push(record.len(), |memory| {
                    memory.extend_from_slice(&record);
                    body
                });
                let Ok(lsn) = pushed else { unreachable!("a record fits a new batch") };
                lsn
            }
        }
    }

    /// Ends the run. It is durable when [`crate::Listener::durable`] says `upto >=` the returned
    /// end. A run without records ends where the log ends.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::Failed`], [`LogError::Stopped`], [`LogError::Following`]:
    /// nothing of the run will be seen by replay.
    pub fn commit(mut self, urgency: Urgency) -> Result<Lsn, LogError> {
        match self.failed {
            None => {}
            Some(OpenOutcome::Full) => return Err(LogError::Full),
            Some(OpenOutcome::Stopped) => return Err(LogError::Stopped),
            Some(OpenOutcome::Following) => return Err(LogError::Following),
            Some(OpenOutcome::Failed | OpenOutcome::Yes) => return Err(LogError::Failed),
        }
        if self.state.as_ref().is_none_or(|state| state.phase == Phase::Failed) {
            return Err(LogError::Failed);
        }
        if self.state.as_ref().is_some_and(|state| state.role.is_following()) {
            return Err(LogError::Following);
        }
        let Some(mut state) = self.state.take() else { return Err(LogError::Failed) };
        let first_lazy = match &mut state.open {
            Some(batch) => {
                if self.began.is_some() {
                    batch.end_run();
                }
                match urgency {
                    Urgency::Forced => {
                        batch.forced += 1;
                        false
                    }
                    Urgency::Lazy => {
                        let first = batch.lazy_since.is_none();
                        batch.lazy_since.get_or_insert_with(Instant::now);
                        first
                    }
                }
            }
            None => false,
        };
        state.commits += 1;
        state.appending = false;
        let end = state.tail;
        self.shared.tail.store(end.0, Ordering::Release);
        self.shared.note_room(&state);
        if first_lazy {
            // Its delay must be watched.
            self.shared.call_writer(&mut state);
        } else {
            self.shared.wake_writer(&mut state);
        }
        self.shared.wake_appenders(&mut state);
        Ok(end)
    }

    fn push(
        &mut self,
        bytes_hint: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Option<usize>,
    ) -> Result<Lsn, Overflow> {
        let Some(LogState { open: Some(batch), given_up, tail, .. }) = self.state.as_deref_mut()
        else {
            return Err(Overflow { record: Vec::new(), body: None });
        };
        let before = batch.bytes();
        if *given_up {
            batch.push_given_up();
        }
        let from = batch.bytes();
        let pushed = batch.push(bytes_hint, write);
        if pushed.is_err() {
            batch.truncate(before);
            return pushed;
        }
        *given_up = false;
        *tail = batch.end();
        self.began.get_or_insert((batch.index, from));
        let header = if before == BATCH_HEADER_BYTES { BATCH_HEADER_BYTES } else { 0 };
        let added = batch.bytes() - before + header;
        self.shared.unsynced.fetch_add(added as u64, Ordering::Relaxed);
        pushed
    }

    /// Makes sure that a batch is open with space for a record of `bytes` bytes.
    fn make_room(&mut self, bytes: usize) -> bool {
        // A mark for a run that was given up may have to go before the record, a check behind it.
        let need = prefix_bytes(bytes) + bytes + 1 + CHECK_BYTES;
        let target = self.shared.options.batch_bytes_target;
        let Some(state) = self.state.as_ref() else { return false };
        match state.phase {
            Phase::Running if state.role.is_following() => {
                self.failed = Some(OpenOutcome::Following)
            }
            Phase::Running => {}
            Phase::Closing | Phase::Stopped => self.failed = Some(OpenOutcome::Stopped),
            Phase::Failed => self.failed = Some(OpenOutcome::Failed),
        }
        if self.failed.is_some() {
            return false;
        }
        match &state.open {
            Some(batch) if batch.is_empty() && batch.fits(need) => return true,
            Some(batch) if batch.bytes() < target && batch.fits(need) => return true,
            Some(_) => self.seal(),
            None => {}
        }
        let Some(state) = self.state.take() else { return false };
        let (state, opened) = self.shared.open_batch(state, BATCH_HEADER_BYTES + need);
        self.state = Some(state);
        if opened != OpenOutcome::Yes {
            self.failed = Some(opened);
        }
        opened == OpenOutcome::Yes
    }

    /// Hands the open batch to the writers and lets them have the lock for a moment.
    fn seal(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if state.open.as_ref().is_some_and(Batch::is_empty) {
            state.drop_empty();
        } else {
            state.seal();
        }
        self.shared.wake_writer(&mut state);
        drop(state);
        let state = self.shared.state.lock();
        self.state = Some(match self.hurries {
            true => state,
            false => self.shared.wait_for_writers(state),
        });
    }
}

impl Shared {
    /// Whether a run of about `bytes` bytes would have to wait: for another run, for the writers,
    /// or for an extent that is being made ready. Not of a log that is full or ended, which takes
    /// no run in any case; and a run that is longer than all that is ever ready is not refused for
    /// that.
    fn is_behind(&self, state: &LogState, bytes: usize) -> bool {
        if state.phase != Phase::Running || state.role.is_following() {
            return false;
        }
        if state.appending || state.sealed_bytes > SEALED_BYTES_MAX {
            return true;
        }
        let longest = self.options.record_bytes_max();
        let comes = state.extents.comes_soon(state.open_bytes(), bytes as u64, longest as u64);
        if comes {
            self.preallocation.notify_one();
        }
        comes
    }
}

impl Drop for Appender<'_> {
    /// Gives the run up unless it was committed.
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        state.appending = false;
        if let Some((index, bytes)) = self.began {
            let dropped = state.give_up(index, bytes);
            self.shared.unsynced.fetch_sub(dropped as u64, Ordering::Relaxed);
            self.shared.note_room(&state);
        }
        self.shared.wake_appenders(&mut state);
    }
}
