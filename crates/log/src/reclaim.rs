//! Releasing extents that no reader needs.
//!
//! Not here: what is still needed (the node says so, and `hold`); turning spares into extents again
//! (`preallocation`).
//!
//! Invariants: extents go oldest first and each one durably before the next, and where the log
//! begins moves only when the file is gone: so what is left after a crash, or after a call that
//! failed, has no gap, and what could not be let go is tried again. What the older of the kept
//! images needs stays, so that it can be used when the newer one cannot. Only one call lets extents
//! go at a time (`housekeeping` is held), and no body is read from the extent that goes.

use std::io;

use towline_types::Lsn;

use crate::error::LogError;
use crate::folder::names::extent_name;
use crate::image::sync_names;
use crate::shared::Shared;

/// Files kept for use again; more are removed.
const SPARES_MAX: usize = 8;

/// Name of a file that is to be used again.
pub(crate) fn spare_name(sequence: u64) -> String {
    format!("spare-{sequence:016x}")
}

pub(crate) fn reclaim(shared: &Shared, keep_from: Lsn) -> Result<(), LogError> {
    assert!(keep_from <= shared.durable(), "what is not durable is needed");
    let housekeeping = shared.housekeeping.lock();
    let Some(needs) = housekeeping.images.iter().map(|image| image.needs).min() else {
        return Ok(());
    };
    let tail = shared.state().tail;
    shared.needs.lock().enter_keep(keep_from, tail);
    let mut needed = keep_from.min(needs);
    if let Some(held) = shared.holds.from() {
        needed = needed.min(held);
    }
    let first_needed = needed.0 / shared.options.extent_bytes;
    while let Some(sequence) = leave(shared, first_needed) {
        shared.handles.forget(sequence);
        let gone = let_go(shared, sequence).and_then(|spare| sync_names(shared).map(|()| spare));
        let mut state = shared.state();
        match gone {
            Ok(spare) => state.extents.left(spare),
            Err(error) => {
                state.extents.stays();
                return Err(error);
            }
        }
        shared.note_room(&state);
        shared.wake_appenders(&mut state);
        shared.preallocation.notify_one();
    }
    Ok(())
}

/// The oldest extent, if no reader needs it. From now on no code reads it; what the node said that
/// it needs lies behind it.
fn leave(shared: &Shared, first_needed: u64) -> Option<u64> {
    shared.state().extents.leave(first_needed)
}

/// Gives the file of an extent another name, which is returned, or removes it. A file system that
/// is full may refuse a name and allow a removal.
fn let_go(shared: &Shared, sequence: u64) -> Result<Option<String>, LogError> {
    let disk = shared.disk.as_ref();
    let name = extent_name(sequence);
    if is_worth_keeping(shared, sequence) {
        let spare = spare_name(sequence);
        if disk.rename(&name, &spare).is_ok() {
            return Ok(Some(spare));
        }
    }
    match disk.remove(&name) {
        Ok(()) => Ok(None),
        // Removed by another process, or by a call that failed and yet took effect.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("let an extent go", &name, error)),
    }
}

/// Whether the file is to be used again. One below a gap was never looked at.
fn is_worth_keeping(shared: &Shared, sequence: u64) -> bool {
    let spares_max = if shared.options.recycle_extents { SPARES_MAX } else { 0 };
    let state = shared.state();
    let extents = &state.extents;
    sequence >= extents.first && extents.spares.len() < spares_max
}
