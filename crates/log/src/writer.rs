//! Writer threads: take a batch, write it, sync it, say how far the log is durable.
//!
//! Not here: when a batch is taken (`rule`).
//!
//! Invariants: nothing is done to the disk under the log's lock; a failed write or sync ends the
//! log, it is never tried again; the durable prefix ends before the first batch that is not back;
//! no writer waits for one that is inside the listener, which may itself wait for writers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towline_os::time::Instant;

use bytes::Bytes;
use towline_types::{Lsn, fitting};

use crate::batch::Batch;
use crate::block::Aligned;
use crate::error::LogError;
use crate::folder::names::extent_name;
use crate::format::{BATCH_HEADER_BYTES, BATCH_VERSION, BatchHeader, payload_sum, size};
use crate::member::ReceivedBatches;
use crate::record;
use crate::rule::{YIELD_FOR, YIELDS_MAX};
use crate::shared::{Job, LogState, Phase, ReportPosition, Shared, WrittenBatch};

/// Body of a writer thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut reported = false;
    while let Some(work) = next(shared, reported) {
        let began = Instant::now();
        let (name, done) = match work {
            Work::Own { batch, unsynced, term } => {
                let (name, index) = (batch.extent.sequence, batch.index);
                let done = write(shared, batch, unsynced, term);
                let written = |done: &Done| [WrittenBatch { index, checksum: done.checksum }];
                (name, done.map(|done| finish(shared, &written(&done), began, done)))
            }
            Work::FromLeader(copied) => {
                let name = copied.first().extent.sequence;
                let done = copy(shared, copied);
                (name, done.map(|(written, done)| finish(shared, &written, began, done)))
            }
        };
        match done {
            Ok(found) => reported = found,
            Err(error) => {
                fail(shared, &LogError::io("write a batch", &extent_name(name), error));
                reported = false;
            }
        }
    }
}

/// What a writer has to do.
enum Work {
    Own { batch: Batch, unsynced: u32, term: u32 },
    FromLeader(ReceivedBatches),
}

/// What a write leaves behind.
struct Done {
    /// Position of its first byte.
    lsn: Lsn,
    /// Headers and records.
    bytes: u64,
    padded_bytes: u64,
    /// Of the last batch.
    checksum: u32,
    /// For the cache; of a following log nothing.
    content: Option<Bytes>,
    /// Memory that `content` keeps alive.
    cost: usize,
    /// The buffer, when it is free again.
    memory: Option<Vec<u8>>,
}

/// The next batch to write. `reported`: this writer comes back from reporting.
fn next(shared: &Shared, reported: bool) -> Option<Work> {
    let mut state = shared.state();
    if reported {
        state.reporting -= 1;
    }
    loop {
        if shared.expects_company(&state, Instant::now()) {
            state.writer_looks = true;
            drop(state);
            let_others_go_first();
            state = shared.state();
            state.writer_looks = false;
        }
        match shared.next_job(&mut state, Instant::now()) {
            Job::Write { batch, unsynced, term } => {
                // There may be more for another writer.
                shared.wake_writer(&mut state);
                return Some(Work::Own { batch, unsynced, term });
            }
            Job::Copy(copied) => {
                shared.wake_writer(&mut state);
                return Some(Work::FromLeader(copied));
            }
            Job::Stop => return None,
            Job::Wait(due) => {
                state.writers_idle += 1;
                match due {
                    None => shared.writers.wait(&mut state),
                    Some(due) => {
                        let rest = due.saturating_duration_since(Instant::now());
                        let rest = rest.max(Duration::from_micros(1));
                        shared.writers.wait_for(&mut state, rest);
                    }
                }
                state.writers_idle -= 1;
                state.writer_looks = false;
            }
        }
    }
}

/// The threads that want this processor may add to the batch that is about to leave
/// ([`crate::rule`]).
fn let_others_go_first() {
    let began = Instant::now();
    for _ in 0..YIELDS_MAX {
        towline_os::thread::yield_now();
        if began.elapsed() > YIELD_FOR {
            return;
        }
    }
}

/// Content of a batch of ours on its way to the disk.
enum Kept {
    Buffer(Aligned),
    /// In use elsewhere too.
    Shared(Bytes),
}

impl Kept {
    fn bytes(&self) -> &[u8] {
        match self {
            Kept::Buffer(buffer) => buffer.bytes(),
            Kept::Shared(bytes) => bytes,
        }
    }
}

fn write(shared: &Shared, batch: Batch, unsynced: u32, term: u32) -> io::Result<Done> {
    let Batch { lsn, index, extent, offset, mut buffer, has_bodies, is_told, .. } = batch;
    let bytes = buffer.len();
    if has_bodies {
        let payload = &mut buffer.bytes_mut()[BATCH_HEADER_BYTES..];
        record::seal_checks(payload, shared.log_id, lsn.after(BATCH_HEADER_BYTES as u64));
    }
    let payload = &buffer.bytes()[BATCH_HEADER_BYTES..];
    let payload_sum = payload_sum(shared.log_id, payload);
    let payload_bytes = fitting(payload.len() as u64);
    let (checksum, previous) = (0, 0);
    let version = BATCH_VERSION;
    let mut header =
        BatchHeader { version, payload_bytes, checksum, previous, lsn, term, unsynced, index };
    let held = shared.options.batch_bytes_hard_max();
    let is_small = bytes < held / 2;
    let copy = |buffer: &Aligned| is_small.then(|| Bytes::copy_from_slice(buffer.first(bytes)));
    // The group hears of it before it is written, so its content must be there by then.
    let told = shared.member.as_ref().filter(|_| is_told);
    let mut content = told.and_then(|_| copy(&buffer));
    let mut kept = Kept::Buffer(buffer);
    shared.chain.link(index, |previous| {
        header.previous = previous;
        header.checksum = header.sum(payload_sum);
        let Some(member) = told else { return header.checksum };
        let whole = match &content {
            Some(content) => content.clone(),
            None => share(&mut kept, &header),
        };
        let payload = whole.slice(BATCH_HEADER_BYTES..bytes);
        let term = u64::from(term);
        member.leaves(towline_types::Batch { index, term, lsn, payload });
        header.checksum
    });
    if let Kept::Buffer(buffer) = &mut kept {
        put_header(buffer, &header);
    }
    extent.write_batches(kept.bytes(), offset, shared.log_id, shared.options.extent_bytes)?;
    let padded_bytes = kept.bytes().len() as u64;
    let (bytes, checksum) = (bytes as u64, header.checksum);
    let done =
        |content, cost, memory| Done { lsn, bytes, padded_bytes, checksum, content, cost, memory };
    Ok(match kept {
        Kept::Shared(whole) => done(Some(whole.slice(..size(bytes))), held, None),
        Kept::Buffer(buffer) => match content.take().or_else(|| copy(&buffer)) {
            Some(content) => done(Some(content), size(bytes), Some(buffer.into_memory())),
            None => done(Some(buffer.into_bytes(size(bytes))), held, None),
        },
    })
}

/// Makes the batch ready to be written: header and padding.
fn put_header(buffer: &mut Aligned, header: &BatchHeader) {
    buffer.first_mut(BATCH_HEADER_BYTES).copy_from_slice(&header.encode());
    buffer.pad();
}

/// Makes the batch ready to be written from memory that others look at too.
fn share(kept: &mut Kept, header: &BatchHeader) -> Bytes {
    let shared = match std::mem::replace(kept, Kept::Shared(Bytes::new())) {
        Kept::Shared(shared) => shared,
        Kept::Buffer(mut buffer) => {
            put_header(&mut buffer, header);
            let bytes = buffer.len();
            buffer.into_bytes(bytes)
        }
    };
    *kept = Kept::Shared(shared.clone());
    shared
}

/// Writes batches of a leader that lie one behind the other: each with a header of its own, all
/// with one write and one sync.
fn copy(shared: &Shared, copied: ReceivedBatches) -> io::Result<(Vec<WrittenBatch>, Done)> {
    let first = copied.first();
    let (extent, offset, lsn) = (Arc::clone(&first.extent), first.offset, first.batch.lsn);
    let ReceivedBatches { batches, mut unsynced, memory } = copied;
    let held = shared.options.batch_bytes_hard_max();
    let memory = memory.map_or_else(|| Aligned::with_capacity(held), Aligned::reuse);
    let (mut buffer, mut logical) = (memory, 0);
    let mut checksum = 0;
    let mut written = Vec::with_capacity(batches.len());
    for received in &batches {
        let payload = &received.batch.payload;
        let payload_sum = payload_sum(shared.log_id, payload);
        let mut header = BatchHeader {
            version: BATCH_VERSION,
            payload_bytes: fitting(payload.len() as u64),
            checksum: 0,
            previous: 0,
            lsn: received.batch.lsn,
            term: received.term,
            unsynced,
            index: received.batch.index,
        };
        shared.chain.link(header.index, |previous| {
            header.previous = previous;
            header.checksum = header.sum(payload_sum);
            header.checksum
        });
        assert_eq!(received.offset, offset + buffer.len() as u64, "batches lie together");
        let memory = buffer.append_to();
        memory.extend_from_slice(&header.encode());
        memory.extend_from_slice(payload);
        buffer.pad();
        logical += received.bytes();
        checksum = header.checksum;
        written.push(WrittenBatch { index: header.index, checksum });
        unsynced = unsynced.saturating_add(1);
    }
    extent.write_batches(buffer.bytes(), offset, shared.log_id, shared.options.extent_bytes)?;
    let padded_bytes = buffer.len() as u64;
    // No thread reads the newest batches of a following log: they are applied from the memory that
    // they were received in. Another copy for the cache would be the most expensive part of a
    // replica's work.
    let (content, cost, memory) = (None, 0, Some(buffer.into_memory()));
    Ok((written, Done { lsn, bytes: logical, padded_bytes, checksum, content, cost, memory }))
}

/// Enters that batches are on disk. True when it reported.
fn finish(shared: &Shared, batches: &[WrittenBatch], began: Instant, done: Done) -> bool {
    let took = began.elapsed();
    shared.written.lock().enter(done.bytes, done.padded_bytes, took);
    if let Some(content) = done.content {
        shared.cache.lock().insert(done.lsn, content, done.cost);
    }
    {
        let mut state = shared.state();
        if state.phase == Phase::Failed {
            return false;
        }
        state.typical_write.enter(took);
        let bytes = batches.iter().map(|batch| state.written(*batch)).sum();
        if let Some(memory) = done.memory {
            state.pool_up(memory, shared.options.writes_in_flight_max + 1);
        }
        shared.unsynced.fetch_sub(bytes, Ordering::Relaxed);
        shared.durable.store(state.durable.0, Ordering::Release);
        if let Some(member) = &shared.member {
            member.durable(state.durable);
        }
        // A caller that leads, or cuts something off, waits until all writes are back.
        if state.role.is_following() {
            shared.wake_appenders(&mut state);
        }
        if bytes == 0 {
            return false;
        }
        state.reporting += 1;
        // Threads that wait for writers go on when none is left.
        if state.phase == Phase::Closing || shared.all_report(&state) {
            shared.wake_appenders(&mut state);
        }
    }
    shared.reported.post();
    report(shared);
    true
}

/// Notifies the listener how far the log is durable, in order, when that was posted. Never waits:
/// a thread that is inside the listener looks again when it comes out. A thread that locked
/// [`Shared::reported`] calls this when it has released the lock.
pub(crate) fn report(shared: &Shared) {
    let take = |reported: &mut ReportPosition| {
        let upto = shared.durable();
        if !reported.failed && upto > reported.upto {
            reported.upto = upto;
            shared.report(|listener| listener.durable(upto));
        }
    };
    shared.reported.take_posted(take, |()| ());
}

/// Ends the log: the first failure is reported, all threads stop.
pub(crate) fn fail(shared: &Shared, error: &LogError) {
    let first = {
        let mut state = shared.state();
        let first = state.phase != Phase::Failed;
        state.phase = Phase::Failed;
        first
    };
    shared.writers.notify_all();
    shared.appenders.notify_all();
    shared.preallocation.notify_all();
    shared.space_notifier.notify_all();
    if first {
        let mut reported = shared.reported.lock();
        reported.failed = true;
        shared.report(|listener| listener.failed(error));
        drop(reported);
        report(shared);
    }
}

impl LogState {
    fn pool_up(&mut self, memory: Vec<u8>, count_max: usize) {
        if self.pool.len() < count_max {
            self.pool.push(memory);
        }
    }
}

#[cfg(test)]
mod tests;
