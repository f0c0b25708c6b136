//! The keeper thread: makes extents ready ahead of the writers, and watches the room. The teller
//! thread: tells the listener about the room.
//!
//! A new extent is filled with zeros once (a write into a block that was written before needs no
//! change of the file's own records, which halves the time of a small synced write); after that it
//! is used again and again. Not here: letting extents go (`reclaim`).
//!
//! Invariants: an extent gets its name `extent-...` only when its header and all of it are synced;
//! zeros are only written where no batch may have been opened (beyond `filled_to`); the keeper
//! never calls the listener about room, because the listener may append and so wait for the keeper.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogError, is_full};
use crate::extents::{Extent, Space};
use crate::format::{EXTENT_HEADER_BYTES, ExtentHeader, LogId, extent_name, size};
use crate::shared::{Phase, Shared, wait};
use crate::writer::fail;

/// Zeros written at a time.
const FILL_BYTES: u64 = 1024 * 1024;
/// How often a full disk is asked again.
const RETRY: Duration = Duration::from_millis(200);
/// Name of a file that is being made.
pub(crate) const NEW_NAME: &str = "new";

enum Chore {
    /// Fill the newest extent from here on.
    Fill(Arc<Extent>, u64),
    /// Make the next extent ready, from the spare if there is one.
    Prepare {
        sequence: u64,
        spare: Option<String>,
    },
    Stop,
}

/// Body of the keeper thread.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut refused = false;
    loop {
        let result = match next(shared, &mut refused) {
            Chore::Fill(extent, from) => fill(shared, &extent, from),
            Chore::Prepare { sequence, spare } => {
                let prepared = prepare_next(shared, sequence, spare.as_deref());
                refused = prepared.as_ref().is_err_and(is_full);
                if refused {
                    take_back(shared, spare);
                    Ok(())
                } else {
                    prepared
                }
            }
            Chore::Stop => return,
        };
        if let Err(error) = result {
            fail(shared, &LogError::io("make an extent ready", NEW_NAME, error));
        }
    }
}

/// Body of the teller thread: tells the listener how much room there is, each time that it is not
/// what was told last. Changes that come while the listener is at work are told as one.
pub(crate) fn tell(shared: &Arc<Shared>) {
    let mut told = Space::Ample;
    let mut state = shared.state();
    while !state.is_ending() {
        if state.space == told {
            state = wait(&shared.teller, state);
        } else {
            told = state.space;
            drop(state);
            shared.listener.space(told);
            state = shared.state();
        }
    }
}

/// Enters that the disk has no room for another extent.
fn take_back(shared: &Shared, spare: Option<String>) {
    let mut state = shared.state();
    state.extents.disk_room = 0;
    state.extents.spares.extend(spare);
    state.extents.recycling = false;
    shared.wake_appenders(&state);
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
        if state.extents.filled_to < state.extents.extent_bytes {
            return Chore::Fill(Arc::clone(&state.extents.current), state.extents.filled_to);
        }
        if let Some(disk_room) = disk_room {
            if disk_room < state.extents.disk_room {
                // Somebody may wait for an extent that will not come after all.
                shared.wake_appenders(&state);
            }
            state.extents.disk_room = disk_room;
            if state.extents.wants_ready() {
                let spare = state.extents.spares.pop();
                state.extents.recycling = spare.is_some();
                return Chore::Prepare { sequence: state.extents.next_sequence(), spare };
            }
        }
        let space = state.extents.space();
        if space != state.space {
            state.space = space;
            shared.teller.notify_one();
        }
        state = if *refused || space != Space::Ample {
            let waited = shared.keeper.wait_timeout(state, RETRY);
            let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            *refused &= !timeout.timed_out() && state.extents.spares.is_empty();
            state
        } else {
            wait(&shared.keeper, state)
        };
    }
}

/// Fills a piece of the newest extent; batches follow into it.
fn fill(shared: &Shared, extent: &Extent, from: u64) -> io::Result<()> {
    let extent_bytes = shared.options.extent_bytes;
    let to = extent_bytes.min(from + FILL_BYTES);
    extent.file.write_at(Aligned::zeroed(size(to - from)).bytes(), from)?;
    extent.file.sync_data()?;
    let mut state = shared.state();
    if state.extents.current.sequence == extent.sequence {
        assert_eq!(state.extents.filled_to, from, "only the keeper fills");
        state.extents.filled_to = to;
    }
    shared.wake_appenders(&state);
    Ok(())
}

fn prepare_next(shared: &Shared, sequence: u64, spare: Option<&str>) -> io::Result<()> {
    let header =
        ExtentHeader { log_id: shared.log_id, sequence, extent_bytes: shared.options.extent_bytes };
    let disk = shared.disk.as_ref();
    let file = match spare {
        Some(spare) => recycle(disk, spare, header)?,
        None => {
            let made = make(disk, header, header.extent_bytes, &|| shared.state().is_ending());
            match made {
                Ok(Some(file)) => file,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // What was made so far must not take the room that is wanting.
                    disk.remove(NEW_NAME).or_else(ignore_absent)?;
                    return Err(error);
                }
            }
        }
    };
    let mut state = shared.state();
    assert_eq!(state.extents.next_sequence(), sequence, "only the keeper makes extents ready");
    state.extents.ready.push_back(Arc::new(Extent { sequence, file }));
    if spare.is_none() {
        // What it took is not there a second time; the disk is asked again soon.
        state.extents.disk_room = state.extents.disk_room.saturating_sub(1);
    }
    state.extents.recycling = false;
    shared.wake_appenders(&state);
    Ok(())
}

/// Gives a used file of full length a new header and name. What else is in it is worthless: it
/// carries other positions.
fn recycle(disk: &dyn Disk, spare: &str, header: ExtentHeader) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(spare)?;
    write_header(file.as_ref(), header)?;
    file.sync_data()?;
    disk.rename(spare, &extent_name(header.sequence))?;
    disk.sync_names()?;
    Ok(file)
}

/// Makes an extent whose first `filled` bytes are written. `None` when `is_ending` says so between
/// two pieces.
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
        file.write_at(zeros.bytes().get(..piece).unwrap_or(&[]), at)?;
        at += piece as u64;
    }
    write_header(file.as_ref(), header)?;
    file.sync_data()?;
    disk.rename(NEW_NAME, &extent_name(header.sequence))?;
    disk.sync_names()?;
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

fn ignore_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
