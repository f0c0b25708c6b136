//! The preallocation thread: makes extents ready ahead of the writers, and watches the free space.
//!
//! A new extent is filled with zeros once (a write into a block that was written before needs no
//! change of the file's own records, which halves the time of a small synced write); after that it
//! is used again and again. Not here: letting extents go (`reclaim`), reporting free space
//! (`space_notifier`).
//!
//! Invariants: an extent gets its name `extent-...` only when its header and all of it are synced;
//! zeros are only written where no batch may have been opened (beyond `filled_to`); a file that is
//! not log yet may fail in any way, and another is made later, but a failed sync of names, or of an
//! extent that holds batches, ends the log; this thread never calls the listener about free space,
//! because the listener may append and so wait for an extent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogError, is_full};
use crate::extents::{Extent, Ready, Space, UnfilledExtent};
use crate::folder::names::{NEW_NAME, extent_name};
use crate::format::{EXTENT_HEADER_BYTES, ExtentHeader, LogId, size};
use crate::image;
use crate::shared::{Phase, Shared};
use crate::writer::fail;

/// Zeros written at a time.
const FILL_BYTES: u64 = 1024 * 1024;
/// How often a full disk is asked again.
const RETRY: Duration = Duration::from_millis(200);

enum Chore {
    /// Fill this extent.
    Fill(UnfilledExtent),
    /// Make the next extent ready, from the spare if there is one.
    Prepare {
        sequence: u64,
        spare: Option<String>,
    },
    Stop,
}

/// Why a chore was not done.
enum Failure {
    /// Nothing of the log is touched: the same may go well later.
    Again(io::Error),
    /// What is on the disk is not known: the log ends.
    Final(io::Error),
    /// The log ended.
    Ended,
}

/// Body of the preallocation thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut refused = false;
    let mut reported = None;
    loop {
        let result = match next(shared, &mut refused) {
            Chore::Fill(unfilled) => fill(shared, &unfilled),
            Chore::Prepare { sequence, spare } => prepare_next(shared, sequence, spare),
            Chore::Stop => return,
        };
        match result {
            Ok(()) => (refused, reported) = (false, None),
            Err(Failure::Again(error)) => {
                refused = true;
                refuse(shared, error, &mut reported);
            }
            Err(Failure::Final(error)) => {
                fail(shared, &LogError::io("make an extent ready", NEW_NAME, error));
            }
            Err(Failure::Ended) => {}
        }
    }
}

/// Enters that the disk gives no further extent, or no more of the newest one. The reason is
/// reported when it is not that the disk is full, and differs from the last report.
fn refuse(shared: &Shared, error: io::Error, reported: &mut Option<io::ErrorKind>) {
    let mut state = shared.state();
    state.extents.disk_room = 0;
    state.extents.fill_refused = state.extents.unfilled().is_some();
    if !is_full(&error) && *reported != Some(error.kind()) {
        *reported = Some(error.kind());
        state.hindrance = Some(LogError::io("make an extent ready", NEW_NAME, error));
        shared.space_notifier.notify_one();
    }
    shared.wake_appenders(&mut state);
}

fn next(shared: &Shared, refused: &mut bool) -> Chore {
    let mut state = shared.state();
    loop {
        // Without the lock: a disk that hangs must not keep others from seeing that it does.
        let disk_room = if *refused {
            None
        } else {
            drop(state);
            let free = shared.disk.free_bytes();
            state = shared.state();
            Some(free / state.extents.extent_bytes)
        };
        match state.phase {
            Phase::Stopped | Phase::Failed => return Chore::Stop,
            Phase::Running | Phase::Closing => {}
        }
        if let Some(disk_room) = disk_room {
            if let Some(unfilled) = state.extents.unfilled() {
                return Chore::Fill(unfilled);
            }
            if disk_room < state.extents.disk_room {
                // A caller may wait for an extent that will not be made after all.
                shared.wake_appenders(&mut state);
            }
            state.extents.disk_room = disk_room;
            if state.extents.wants_ready() {
                let spare = state.extents.spares.pop();
                state.extents.recycling = spare.is_some();
                return Chore::Prepare { sequence: state.extents.next_sequence(), spare };
            }
        }
        shared.note_room(&state);
        let space = state.space_now();
        if space != state.space {
            state.space = space;
            shared.space_notifier.notify_one();
        }
        if *refused || space != Space::Ample {
            let waited = shared.preallocation.wait_for(&mut state, RETRY);
            *refused &= !waited.timed_out() && state.extents.spares.is_empty();
        } else {
            shared.preallocation.wait(&mut state);
        }
    }
}

/// Fills a piece of the newest extent; batches follow into it. Where that is part of a copy, or
/// comes from a backup, the space for it was not preallocated yet.
fn fill(shared: &Shared, unfilled: &UnfilledExtent) -> Result<(), Failure> {
    let UnfilledExtent { extent, filled_to: from } = unfilled;
    let from = *from;
    let extent_bytes = shared.options.extent_bytes;
    let to = extent_bytes.min(from + FILL_BYTES);
    let file = extent.file.as_ref();
    file.reserve(extent_bytes).map_err(Failure::Again)?;
    if let Err(error) = file.write_at(Aligned::zeroed(size(to - from)).bytes(), from) {
        if !is_full(&error) {
            return Err(Failure::Final(error));
        }
        // Some of it may be there, and a start wants whole blocks. When this fails too, it is
        // written over soon.
        drop(file.cut(from));
        return Err(Failure::Again(error));
    }
    // It may say that a batch beside it was not written: never tried again.
    file.sync_data().map_err(Failure::Final)?;
    let mut state = shared.state();
    state.extents.filled(extent.sequence, from, to);
    shared.wake_appenders(&mut state);
    Ok(())
}

fn prepare_next(shared: &Shared, sequence: u64, spare: Option<String>) -> Result<(), Failure> {
    let header =
        ExtentHeader { log_id: shared.log_id, sequence, extent_bytes: shared.options.extent_bytes };
    let disk = shared.disk.as_ref();
    let is_new = spare.is_none();
    let file = match spare {
        Some(spare) => {
            let recycled = recycle(disk, &spare, header);
            recycled.map_err(|error| take_back(shared, spare, error))?
        }
        None => {
            let is_ending = || shared.state().is_ending();
            match make(disk, header, header.extent_bytes, &is_ending) {
                Ok(Some(file)) => file,
                Ok(None) => return Err(Failure::Ended),
                Err(error) => {
                    // What was made so far must not take the space that is needed. When it cannot
                    // be removed, the next try empties it.
                    drop(disk.remove(NEW_NAME));
                    return Err(Failure::Again(error));
                }
            }
        }
    };
    // Whether the name is there is not known when this fails, nor by trying again.
    image::sync_names(shared).map_err(|_| Failure::Ended)?;
    let mut state = shared.state();
    let extents = &mut state.extents;
    assert_eq!(
        extents.next_sequence(),
        sequence,
        "only the preallocation thread makes extents ready"
    );
    let (extent, filled_to) = (Arc::new(Extent::made(sequence, file)), extents.extent_bytes);
    extents.ready.push_back(Ready { extent, filled_to });
    if is_new {
        // What it took is not there a second time; the disk is asked again soon.
        extents.disk_room = extents.disk_room.saturating_sub(1);
    }
    extents.recycling = false;
    shared.wake_appenders(&mut state);
    Ok(())
}

/// A spare could not be used. On a full disk it is kept for later: its space is all there is.
/// Otherwise it goes, so that another file is tried; one that cannot be removed either is found by
/// the next start.
fn take_back(shared: &Shared, spare: String, error: io::Error) -> Failure {
    let is_kept = is_full(&error);
    if !is_kept {
        drop(shared.disk.remove(&spare));
    }
    let mut state = shared.state();
    state.extents.recycling = false;
    state.extents.spares.extend(is_kept.then_some(spare));
    Failure::Again(error)
}

/// Gives a used file of full length a new header and name. What else is in it is worthless: it
/// carries other positions. The name is not synced yet.
fn recycle(disk: &dyn Disk, spare: &str, header: ExtentHeader) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(spare)?;
    write_header(file.as_ref(), header)?;
    file.sync_data()?;
    disk.rename(spare, &extent_name(header.sequence))?;
    Ok(file)
}

/// Makes an extent with its first `filled` bytes written; its name is not synced yet. `None` when
/// `is_ending` says so between two pieces.
pub(crate) fn make(
    disk: &dyn Disk,
    header: ExtentHeader,
    filled: u64,
    is_ending: &dyn Fn() -> bool,
) -> io::Result<Option<Arc<dyn DiskFile>>> {
    let file = disk.create(NEW_NAME)?;
    file.reserve(header.extent_bytes)?;
    let zeros = Aligned::zeroed(size(FILL_BYTES.min(filled)));
    let mut at = 0;
    while at < filled {
        if is_ending() {
            return Ok(None);
        }
        let piece = size((filled - at).min(FILL_BYTES));
        file.write_at(zeros.first(piece), at)?;
        at += piece as u64;
    }
    write_header(file.as_ref(), header)?;
    file.sync_data()?;
    disk.rename(NEW_NAME, &extent_name(header.sequence))?;
    Ok(Some(file))
}

fn write_header(file: &dyn DiskFile, header: ExtentHeader) -> io::Result<()> {
    let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
    block.bytes_mut().copy_from_slice(&header.encode());
    file.write_at(block.bytes(), 0)
}

/// Which log a new extent belongs to, for the first one.
pub(crate) fn first_header(log_id: LogId, extent_bytes: u64) -> ExtentHeader {
    ExtentHeader { log_id, sequence: 0, extent_bytes }
}

#[cfg(test)]
mod tests;
