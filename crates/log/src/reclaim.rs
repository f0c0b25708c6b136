//! Letting extents go that nobody needs.
//!
//! Not here: who needs what (the node says so, and `hold`); making spares into extents again (`keeper`).
//!
//! Invariants: extents go oldest first and each one durably before the next, so that what is left
//! after a crash has no gap; what the older of the kept images needs stays, so that it can be used
//! when the newer one cannot.

use towline_types::Lsn;

use crate::error::LogError;
use crate::format::extent_name;
use crate::image::sync_names;
use crate::shared::{Shared, hold};

/// Files kept for use again; more are removed.
const SPARES_MAX: usize = 8;

/// Name of a file that is to be used again.
pub(crate) fn spare_name(sequence: u64) -> String {
    format!("spare-{sequence:016x}")
}

pub(crate) fn reclaim(shared: &Shared, keep_from: Lsn) -> Result<(), LogError> {
    assert!(keep_from <= shared.durable(), "what is not durable is needed");
    let housekeeping = hold(&shared.housekeeping);
    let Some(needs) = housekeeping.images.iter().map(|image| image.needs).min() else {
        return Ok(());
    };
    let tail = shared.state().tail;
    hold(&shared.needs).enter_keep(keep_from, tail);
    let mut needed = keep_from.min(needs);
    if let Some(held) = shared.holds.from() {
        needed = needed.min(held);
    }
    let first_needed = needed.0 / shared.options.extent_bytes;
    while let Some((sequence, keep_file)) = take_oldest(shared, first_needed) {
        let name = extent_name(sequence);
        let spare = spare_name(sequence);
        let disk = shared.disk.as_ref();
        shared.handles.forget(sequence);
        let gone = if keep_file { disk.rename(&name, &spare) } else { disk.remove(&name) };
        gone.map_err(|e| LogError::io("let an extent go", &name, e))?;
        sync_names(shared)?;
        let mut state = shared.state();
        if keep_file {
            state.extents.spares.push(spare);
        }
        shared.wake_appenders(&state);
        shared.keeper.notify_one();
    }
    Ok(())
}

/// Takes the oldest extent out of those that hold log, if nobody needs it; and whether its file is
/// worth keeping.
fn take_oldest(shared: &Shared, first_needed: u64) -> Option<(u64, bool)> {
    let spares_max = if shared.options.recycle_extents { SPARES_MAX } else { 0 };
    let mut state = shared.state();
    let extents = &mut state.extents;
    let oldest = extents.first;
    if oldest >= first_needed || oldest == extents.current.sequence {
        return None;
    }
    extents.first += 1;
    Some((oldest, extents.spares.len() < spares_max))
}
