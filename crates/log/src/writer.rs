//! Writer threads: take a batch, write it, sync it, say how far the log is durable.
//!
//! Not here: when a batch is taken (`rule`).
//!
//! Invariants: nothing is done to the disk under the log's lock; a failed write or sync ends the
//! log, it is never tried again; the durable prefix ends before the first batch that is not back;
//! no writer waits for one that is inside the listener, which may itself wait for writers.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towline_types::Lsn;

use crate::batch::Batch;
use crate::error::LogError;
use crate::format::{BATCH_HEADER_BYTES, BatchHeader, extent_name, payload_sum};
use crate::shared::{Job, Phase, Shared, State, hold, wait};

/// Body of a writer thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut reported = false;
    while let Some((batch, unsynced)) = next(shared, reported) {
        let name = batch.extent.sequence;
        let (index, lsn) = (batch.index, batch.lsn);
        let began = Instant::now();
        match write(shared, batch, unsynced) {
            Ok(done) => {
                let took = began.elapsed();
                hold(&shared.written).enter(done.bytes, done.padded_bytes, took);
                reported = finish(shared, index, lsn, took, done);
            }
            Err(error) => {
                fail(shared, &LogError::io("write a batch", &extent_name(name), error));
                reported = false;
            }
        }
    }
}

/// What a written batch leaves behind.
struct Done {
    /// Header and records.
    bytes: u64,
    padded_bytes: u64,
    checksum: u32,
    content: Bytes,
    /// Memory that `content` keeps alive.
    cost: usize,
    /// The buffer, when the content was copied out of it.
    memory: Option<Vec<u8>>,
}

/// The next batch to write. `reported`: this writer comes back from reporting.
fn next(shared: &Shared, reported: bool) -> Option<(Batch, u32)> {
    let mut state = shared.state();
    if reported {
        state.reporting -= 1;
    }
    loop {
        match shared.next_job(&mut state, Instant::now()) {
            Job::Write { batch, unsynced } => {
                // There may be more for another writer.
                shared.wake_writer(&state);
                return Some((batch, unsynced));
            }
            Job::Stop => return None,
            Job::Wait(due) => {
                state.writers_idle += 1;
                state = match due {
                    None => wait(&shared.writers, state),
                    Some(due) => {
                        let rest = due.saturating_duration_since(Instant::now());
                        let rest = rest.max(Duration::from_micros(1));
                        let waited = shared.writers.wait_timeout(state, rest);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                state.writers_idle -= 1;
            }
        }
    }
}

fn write(shared: &Shared, batch: Batch, unsynced: u32) -> io::Result<Done> {
    let Batch { lsn, index, extent, offset, mut buffer, .. } = batch;
    let bytes = buffer.len();
    let payload = buffer.bytes().get(BATCH_HEADER_BYTES..).unwrap_or(&[]);
    let payload_sum = payload_sum(shared.log_id, payload);
    let mut header = BatchHeader {
        payload_bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        checksum: 0,
        previous: 0,
        lsn,
        term: shared.term,
        unsynced,
        index,
    };
    shared.chain.link(index, |previous| {
        header.previous = previous;
        header.checksum = header.sum(payload_sum);
        header.checksum
    });
    if let Some(place) = buffer.bytes_mut().get_mut(..BATCH_HEADER_BYTES) {
        place.copy_from_slice(&header.encode());
    }
    buffer.pad();
    extent.file.write_at(buffer.bytes(), offset)?;
    extent.file.sync_data()?;
    let padded_bytes = buffer.len() as u64;
    let held = shared.options.batch_bytes_hard_max();
    let (content, cost, memory) = if bytes < held / 2 {
        let content = Bytes::copy_from_slice(buffer.bytes().get(..bytes).unwrap_or(&[]));
        (content, bytes, Some(buffer.into_memory()))
    } else {
        (buffer.into_bytes(bytes), held, None)
    };
    let (bytes, checksum) = (bytes as u64, header.checksum);
    Ok(Done { bytes, padded_bytes, checksum, content, cost, memory })
}

/// True when it reported.
fn finish(shared: &Shared, index: u64, lsn: Lsn, took: Duration, done: Done) -> bool {
    hold(&shared.cache).insert(lsn, done.content, done.cost);
    {
        let mut state = shared.state();
        if state.phase == Phase::Failed {
            return false;
        }
        let bytes = state.written((index, done.checksum), shared.term, took);
        if let Some(memory) = done.memory {
            state.pool_up(memory, shared.options.writes_in_flight_max + 1);
        }
        shared.unsynced.fetch_sub(bytes, Ordering::Relaxed);
        shared.durable.store(state.durable.0, Ordering::Release);
        if bytes == 0 {
            return false;
        }
        state.reporting += 1;
        // Who waits for writers goes on when none is left.
        if state.phase == Phase::Closing || shared.all_report(&state) {
            shared.wake_appenders(&state);
        }
    }
    report(shared);
    true
}

/// Tells the listener how far the log is durable, in order. Never waits for another writer: one
/// that is inside the listener looks again when it comes out.
///
/// No position is left untold. Say that A stored `durable`, passed its first fence and found the
/// lock held by B. Had B passed its second fence before A passed the first, A would have seen the
/// lock let go, because B did that before its fence. So B passes its second fence after A passed
/// the first, and what B reads then is what A stored, or more: B tells it, or finds the lock held
/// in its turn, and the same holds of B and that holder.
fn report(shared: &Shared) {
    loop {
        fence(Ordering::SeqCst);
        let mut reported = match shared.reported.try_lock() {
            Ok(reported) => reported,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if reported.failed {
            return;
        }
        let upto = shared.durable();
        if upto > reported.upto {
            reported.upto = upto;
            shared.listener.durable(upto);
        }
        let told = reported.upto;
        drop(reported);
        fence(Ordering::SeqCst);
        if shared.durable() <= told {
            return;
        }
    }
}

/// Ends the log: the first failure is told, everything stops.
pub(crate) fn fail(shared: &Shared, error: &LogError) {
    let first = {
        let mut state = shared.state();
        let first = state.phase != Phase::Failed;
        state.phase = Phase::Failed;
        first
    };
    shared.writers.notify_all();
    shared.appenders.notify_all();
    shared.keeper.notify_all();
    shared.teller.notify_all();
    if first {
        let mut reported = hold(&shared.reported);
        reported.failed = true;
        shared.listener.failed(error);
    }
}

impl State {
    fn pool_up(&mut self, memory: Vec<u8>, count_max: usize) {
        if self.pool.len() < count_max {
            self.pool.push(memory);
        }
    }
}

#[cfg(test)]
mod tests;
