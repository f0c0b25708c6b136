//! Cutting off the end of a following log, because the group decided otherwise.
//!
//! Not here: whether to (`receive`).
//!
//! Invariants: nothing is cut off before all is written, nothing that an image covers; batches are
//! erased from the newest to the oldest, those that no remaining one proves durable together, each
//! such group durably before the next: so at any moment the log that is there is one that recovery
//! takes, and what is behind is never taken for its continuation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use towline_types::Lsn;

use super::follower::KnownBatch;
use super::following::{check_phase, next_place, with_follower};
use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::error::LogError;
use crate::extents::Extent;
use crate::folder::names::extent_name;
use crate::format::{BLOCK_BYTES, BatchHeader};
use crate::shared::{Housekeeping, ReportPosition, Shared};
use crate::writer::{fail, report};

/// Cuts off all behind `keep`, a batch that is known. Waits for the disk and for the listener.
pub(super) fn cut(shared: &Shared, keep: KnownBatch) -> Result<(), LogError> {
    wait_until_quiet(shared)?;
    let housekeeping = shared.housekeeping.lock();
    let mut reported = shared.reported.lock();
    let result = cut_locked(shared, keep, &housekeeping, &mut reported);
    drop(reported);
    if let Err(NotCut::HalfErased(error)) = &result {
        // What is on disk now is for recovery to find out, and nothing more is reported.
        fail(shared, error);
    }
    // A writer that found the lock held left its report to this thread.
    report(shared);
    result.map_err(|(NotCut::Refused(error) | NotCut::HalfErased(error))| error)
}

/// Why nothing was cut off.
enum NotCut {
    /// Nothing was changed.
    Refused(LogError),
    /// What is on disk is not known.
    HalfErased(LogError),
}

impl From<LogError> for NotCut {
    fn from(error: LogError) -> NotCut {
        NotCut::Refused(error)
    }
}

fn cut_locked(
    shared: &Shared,
    keep: KnownBatch,
    housekeeping: &Housekeeping,
    reported: &mut ReportPosition,
) -> Result<(), NotCut> {
    if reported.failed {
        return Err(LogError::Failed.into());
    }
    // Looked up once more: it may not have been written before, and had no checksum.
    let (keep, strays) = with_follower(&mut shared.state(), |follower| {
        let behind = follower.known.iter().filter(|batch| batch.index > keep.index);
        let strays: Vec<KnownBatch> = behind.copied().collect();
        Ok((follower.find(keep.index).unwrap_or(keep), strays))
    })?;
    let Some(first) = strays.first() else { return Ok(()) };
    // A log without the end of what its image covers is taken for damaged.
    if housekeeping.images.iter().any(|image| image.at > keep.end) {
        let (index, lsn) = (first.index, first.lsn);
        let what = "an image covers the batches at its position";
        return Err(LogError::OutOfPlace { index, lsn, what }.into());
    }
    let extents = erase(shared, keep, &strays).map_err(NotCut::HalfErased)?;
    enter(shared, keep, extents)?;
    reported.upto = keep.end;
    shared.report(|listener| listener.cut(keep.end));
    Ok(())
}

/// Waits until all that was received is durable.
pub(super) fn wait_until_quiet(shared: &Shared) -> Result<(), LogError> {
    let mut state = shared.state();
    loop {
        check_phase(&state)?;
        if state.is_quiet() {
            return Ok(());
        }
        state = shared.wait_as_appender(state);
    }
}

/// Erases the batches; returns the extents from the one where the log goes on.
fn erase(
    shared: &Shared,
    keep: KnownBatch,
    strays: &[KnownBatch],
) -> Result<Vec<Arc<Extent>>, LogError> {
    let sequence = next_place(keep, shared.options.extent_bytes).sequence;
    let current = Arc::clone(&shared.state().extents.current);
    let mut extents = Vec::new();
    for sequence in sequence..current.sequence {
        extents.push(Arc::new(Extent::found(sequence, shared.handles.get(sequence)?)));
    }
    extents.push(current);
    let eraser = Eraser { extents: &extents, extent_bytes: shared.options.extent_bytes };
    eraser.erase_all(strays)?;
    Ok(extents)
}

struct Eraser<'a> {
    extents: &'a [Arc<Extent>],
    extent_bytes: u64,
}

impl Eraser<'_> {
    fn erase_all(&self, strays: &[KnownBatch]) -> Result<(), LogError> {
        let mut group: Vec<KnownBatch> = Vec::new();
        // All before this index were durable, says one of the group.
        let mut proven = 0;
        for stray in strays.iter().rev() {
            if proven > stray.index {
                self.erase_group(&group)?;
                group.clear();
                proven = 0;
            }
            group.push(*stray);
            proven = proven.max(self.proves(*stray)?);
        }
        self.erase_group(&group)
    }

    fn file(&self, lsn: Lsn) -> Result<(&Arc<dyn DiskFile>, u64), LogError> {
        let sequence = lsn.0 / self.extent_bytes;
        let found = self.extents.iter().find(|extent| extent.sequence == sequence);
        let found = found.map(|extent| (&extent.file, lsn.0 % self.extent_bytes));
        found.ok_or(LogError::Gone { lsn })
    }

    /// The index before which all were durable when this batch was handed to the disk.
    fn proves(&self, stray: KnownBatch) -> Result<u64, LogError> {
        let (file, offset) = self.file(stray.lsn)?;
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        let read = file.read_at(block.bytes_mut(), offset);
        read.map_err(|e| self.failed("read a batch that is cut off", stray.lsn, e))?;
        let header = BatchHeader::decode(block.bytes());
        let header = header.filter(|header| header.checksum == stray.checksum);
        // Damaged meanwhile: then it proves nothing, and erasing it alone is never wrong.
        Ok(header.map_or(stray.index, |header| header.proves_durable_before()))
    }

    fn erase_group(&self, group: &[KnownBatch]) -> Result<(), LogError> {
        let zeros = Aligned::zeroed(BLOCK_BYTES);
        let doing = "cut off a batch";
        for stray in group {
            let (file, offset) = self.file(stray.lsn)?;
            let written = file.write_at(zeros.bytes(), offset);
            written.map_err(|e| self.failed(doing, stray.lsn, e))?;
        }
        let mut synced = None;
        for stray in group {
            let sequence = stray.lsn.0 / self.extent_bytes;
            if synced.replace(sequence) != Some(sequence) {
                let (file, _) = self.file(stray.lsn)?;
                file.sync_data().map_err(|e| self.failed(doing, stray.lsn, e))?;
            }
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, lsn: Lsn, error: std::io::Error) -> LogError {
        LogError::io(doing, &extent_name(lsn.0 / self.extent_bytes), error)
    }
}

/// Enters that the log ends with `keep`.
fn enter(shared: &Shared, keep: KnownBatch, mut extents: Vec<Arc<Extent>>) -> Result<(), LogError> {
    let mut state = shared.state();
    with_follower(&mut state, |follower| {
        follower.cut(keep.index);
        Ok(())
    })?;
    let position = next_place(keep, shared.options.extent_bytes).offset;
    let behind = extents.split_off(1);
    if let Some(to) = extents.pop() {
        state.extents.go_back(to, behind, position);
    }
    state.next_index = keep.index + 1;
    state.seams.cut(keep.end);
    (state.durable, state.sealed_end, state.tail) = (keep.end, keep.end, keep.end);
    shared.durable.store(keep.end.0, Ordering::Release);
    shared.tail.store(keep.end.0, Ordering::Release);
    shared.chain.reset(keep.index + 1, keep.checksum);
    shared.cache.lock().cut(keep.end);
    if let Some(member) = &shared.member {
        member.cuts.fetch_add(1, Ordering::AcqRel);
        assert!(member.young.lock().is_empty(), "what is cut off was durable");
    }
    Ok(())
}
