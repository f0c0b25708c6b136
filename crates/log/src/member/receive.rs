//! Batches of a leader on their way into a following log.
//!
//! Not here: cutting off what conflicts (`cut`), writing (`writer`).
//!
//! Invariants: what arrives is checked whole before any of it is entered or anything is cut off; a
//! batch is entered at the position that it names, or not at all; one call at a time.

use std::sync::atomic::Ordering;
use towline_os::sync::MutexGuard;
use towline_os::time::Instant;

use towline_types::{BATCH_HEADER_BYTES, Batch, BatchPlace, Lsn, fitting};

use super::cut::cut;
use super::follower::{KnownBatch, ReceivedBatch};
use super::following::{check_phase, next_place, with_follower};
use crate::error::LogError;
use crate::extents::Room;
use crate::folder::chain::ExtentOffset;
use crate::format::{BLOCK_BYTES, EXTENT_HEADER_BYTES, padded};
use crate::options::Options;
use crate::record::{self, PayloadShape};
use crate::shared::{LogState, SEALED_BYTES_MAX, Shared};

pub(crate) fn receive(shared: &Shared, batches: &[Batch]) -> Result<(), LogError> {
    let _turn = Turn::take(shared);
    let (behind, batches) = fresh(shared, batches)?;
    let judged = judge(&shared.options, behind, batches)?;
    if judged.is_empty() {
        return Ok(());
    }
    let is_conflict = with_follower(&mut shared.state(), |follower| {
        Ok(follower.last().is_some_and(|last| last.index > behind.index))
    })?;
    if is_conflict {
        cut(shared, behind)?;
    }
    enter(shared, judged)
}

/// Whether these batches can stand in a log with these options behind that one, as far as they say
/// themselves.
pub(crate) fn check(
    options: &Options,
    behind: BatchPlace,
    batches: &[Batch],
) -> Result<(), LogError> {
    let BatchPlace { index, term, lsn, end } = behind;
    let term = fitting(term);
    let behind = KnownBatch { index, term, lsn, end, checksum: 0, is_seam: true };
    judge(options, behind, batches).map(drop)
}

/// The right to change where the log ends: appenders and other calls wait meanwhile.
pub(super) struct Turn<'a>(&'a Shared);

impl<'a> Turn<'a> {
    pub(super) fn take(shared: &'a Shared) -> Turn<'a> {
        let mut state = shared.state();
        while state.appending {
            state = shared.wait_as_appender(state);
        }
        state.appending = true;
        Turn(shared)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.appending = false;
        self.0.wake_appenders(&mut state);
    }
}

/// A batch that fits, and what was found in it.
struct Judged<'b> {
    batch: &'b Batch,
    term: u32,
    place: ExtentOffset,
    shape: PayloadShape,
}

fn out_of_place(batch: &Batch, what: &'static str) -> LogError {
    LogError::OutOfPlace { index: batch.index, lsn: batch.lsn, what }
}

/// Passes over what the log has already. Returns the rest and the batch that it follows.
fn fresh<'b>(shared: &Shared, batches: &'b [Batch]) -> Result<(KnownBatch, &'b [Batch]), LogError> {
    let mut state = shared.state();
    with_follower(&mut state, |follower| {
        let Some(mut behind) = follower.last() else { return Err(LogError::Failed) };
        for (count, batch) in batches.iter().enumerate() {
            let rest = &batches[count..];
            let before = batch.index.checked_sub(1).and_then(|before| follower.find(before));
            behind = before.ok_or_else(|| {
                out_of_place(batch, "its index is not that of a next batch, or one too old")
            })?;
            match follower.find(batch.index) {
                None => return Ok((behind, rest)),
                Some(there) if u64::from(there.term) != batch.term => return Ok((behind, rest)),
                Some(there) if there.lsn != batch.lsn || there.end != checked_end(batch)? => {
                    return Err(out_of_place(batch, "another batch has this index and term"));
                }
                Some(there) => behind = there,
            }
        }
        Ok((behind, &[]))
    })
}

fn checked_end(batch: &Batch) -> Result<Lsn, LogError> {
    let bytes = BATCH_HEADER_BYTES.checked_add(batch.payload.len() as u64);
    let end = bytes.and_then(|bytes| batch.lsn.0.checked_add(bytes));
    end.map(Lsn).ok_or_else(|| out_of_place(batch, "its place is no position"))
}

/// Checks that each batch follows the one before it, the first the batch `behind`.
fn judge<'b>(
    options: &Options,
    mut behind: KnownBatch,
    batches: &'b [Batch],
) -> Result<Vec<Judged<'b>>, LogError> {
    let extent_bytes = options.extent_bytes;
    let bytes_max = options.batch_bytes_hard_max() as u64;
    let mut judged = Vec::with_capacity(batches.len());
    for batch in batches {
        let refuse = |what| Err(out_of_place(batch, what));
        if behind.index.checked_add(1) != Some(batch.index) {
            return refuse("its index does not follow");
        }
        let Ok(term) = u32::try_from(batch.term) else { return refuse("its term is too high") };
        if term < behind.term {
            return refuse("its term is lower than that of the batch before it");
        }
        let end = checked_end(batch)?;
        let sequence = batch.lsn.0 / extent_bytes;
        let place = ExtentOffset { sequence, offset: batch.lsn.0 % extent_bytes };
        let next = next_place(behind, extent_bytes);
        let offset = EXTENT_HEADER_BYTES as u64;
        if place != next && place != (ExtentOffset { sequence: next.sequence + 1, offset }) {
            return refuse("its position is not where the next batch goes");
        }
        let bytes = end.0 - batch.lsn.0;
        if bytes > bytes_max || bytes > extent_bytes - place.offset {
            return refuse("it is longer than a batch may be, or crosses an extent");
        }
        let Ok(shape) = record::shape(&batch.payload) else {
            return refuse("its records do not add up");
        };
        judged.push(Judged { batch, term, place, shape });
        let is_seam = shape.is_seam;
        let (index, lsn) = (batch.index, batch.lsn);
        behind = KnownBatch { index, term, lsn, end, checksum: 0, is_seam };
    }
    Ok(judged)
}

/// Enters batches that passed the check, waiting for free space and for writers.
fn enter(shared: &Shared, judged: Vec<Judged<'_>>) -> Result<(), LogError> {
    let mut state = shared.state();
    for found in judged {
        state = wait_for_room(shared, state, &found)?;
        let Judged { batch, term, place: ExtentOffset { offset, .. }, shape } = found;
        let is_seam = shape.is_seam;
        let extent = std::sync::Arc::clone(&state.extents.current);
        assert_eq!(state.next_index, batch.index, "batches follow each other");
        let received = ReceivedBatch { batch: batch.clone(), term, extent, offset, is_seam };
        let bytes = received.bytes();
        if let Some(member) = &shared.member {
            member.came(batch);
        }
        with_follower(&mut state, |follower| {
            follower.push(received);
            Ok(())
        })?;
        let end = batch.end();
        state.extents.position = offset + padded(bytes);
        state.next_index += 1;
        state.commits += shape.runs;
        (state.sealed_end, state.tail) = (end, end);
        shared.tail.store(end.0, Ordering::Release);
        shared.unsynced.fetch_add(bytes, Ordering::Relaxed);
    }
    if state.space_now() != state.space {
        shared.preallocation.notify_one();
    }
    shared.wake_writer(&mut state);
    Ok(())
}

/// Waits until the current extent is that of the batch and has space for it, and until writers are
/// not too far behind.
fn wait_for_room<'a>(
    shared: &'a Shared,
    mut state: MutexGuard<'a, LogState>,
    found: &Judged<'_>,
) -> Result<MutexGuard<'a, LogState>, LogError> {
    let bytes = found.batch.end().0 - found.batch.lsn.0;
    loop {
        check_phase(&state)?;
        let behind = state.role.waiting().bytes > SEALED_BYTES_MAX;
        match state.extents.room_at(found.place, bytes) {
            Room::Here { .. } if !behind => {
                state.waits_for_extent = None;
                return Ok(state);
            }
            room @ (Room::Here { .. } | Room::Wait) => {
                if room == Room::Wait {
                    state.waits_for_extent.get_or_insert_with(Instant::now);
                }
                shared.preallocation.notify_one();
                shared.wake_writer(&mut state);
                state = shared.wait_as_appender(state);
            }
            Room::Next => {
                state.extents.advance();
                shared.preallocation.notify_one();
            }
            Room::Nowhere => {
                state.waits_for_extent = None;
                shared.preallocation.notify_one();
                shared.wake_writer(&mut state);
                return Err(LogError::Full);
            }
        }
    }
}

const _: () = assert!(BATCH_HEADER_BYTES == crate::format::BATCH_HEADER_BYTES as u64);
const _: () = assert!(EXTENT_HEADER_BYTES == BLOCK_BYTES);
