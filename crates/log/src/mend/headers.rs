//! The header of an extent, written again when it is damaged: all that it says is known from the
//! name of the file and from the other extents of the log.
//!
//! Not here: batches. Invariants: a header that can be decoded is not written over, whatever it
//! says, for it may be right and the name wrong; no batch is taken to be whole because of a new
//! header: each names its log and its position, under a checksum.

use std::io;
use std::sync::Arc;

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, LogError};
use crate::folder::headers::Identity;
use crate::folder::names::extent_name;
use crate::format::{BadHeader, EXTENT_HEADER_BYTES, ExtentHeader};
use crate::shared::{Phase, Shared};
use crate::writer::fail;

/// Whether the first block is not a header at all; one of another log is for the check behind.
pub(super) fn is_damaged(
    disk: &dyn Disk,
    sequence: u64,
    identity: Identity,
) -> Result<bool, LogError> {
    let name = extent_name(sequence);
    let failed = |e| LogError::io("read an extent's header", &name, e);
    let file = disk.open(&name).map_err(failed)?;
    if file.len().map_err(failed)? < identity.extent_bytes {
        return Ok(false);
    }
    let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0).map_err(failed)?;
    block.truncate(count);
    Ok(matches!(ExtentHeader::decode(block.bytes()), Err(BadHeader::Damaged)))
}

/// Writes the header of an extent, and syncs it. Yields the bytes written.
pub(super) fn write(disk: &dyn Disk, sequence: u64, identity: Identity) -> io::Result<u64> {
    let Identity { log_id, extent_bytes } = identity;
    let file = disk.open(&extent_name(sequence))?;
    let mut block = Aligned::with_capacity(EXTENT_HEADER_BYTES);
    let header = ExtentHeader { log_id, sequence, extent_bytes };
    block.append_to().extend_from_slice(&header.encode());
    file.write_at(block.bytes(), 0)?;
    file.sync_data()?;
    Ok(EXTENT_HEADER_BYTES as u64)
}

/// The file of an extent of a running log, to be read. A header that is damaged is written again
/// before. Not for a caller that holds the lock of the housekeeping.
///
/// # Errors
/// [`LogError::Io`]; what the header says when it is not that of this extent.
pub(crate) fn file_of(shared: &Shared, sequence: u64) -> Result<Arc<dyn DiskFile>, LogError> {
    match shared.handles.get(sequence) {
        Err(LogError::Damaged(found)) if found.what == Damage::ExtentHeader => {
            repair(shared, sequence)?;
            shared.handles.get(sequence)
        }
        got => got,
    }
}

fn repair(shared: &Shared, sequence: u64) -> Result<(), LogError> {
    // The extent is neither let go nor used again while it is held.
    let housekeeping = shared.housekeeping.lock();
    let may_write = shared.state().phase == Phase::Running;
    if !may_write || !shared.state().extents.holds(sequence) {
        return Ok(());
    }
    let (disk, identity) = (shared.disk.as_ref(), shared.handles.identity());
    if !is_damaged(disk, sequence, identity)? {
        // Another reader was quicker.
        return Ok(());
    }
    let name = extent_name(sequence);
    let written = write(disk, sequence, identity);
    drop(housekeeping);
    if let Err(error) = written {
        let error = LogError::io("write a damaged header again", &name, error);
        fail(shared, &error);
        return Err(error);
    }
    shared.report(|listener| listener.header_repaired(&name));
    Ok(())
}
