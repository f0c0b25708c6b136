//! One whole batch of a log that does not run, for another instance that has it damaged; and the
//! log's id.
//!
//! Not here: whether it may be given; the same of a log that runs (`running`). Invariant: nothing
//! is changed, and what is given verifies.

use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use towline_types::BodyLocation;

use super::whole_of;
use crate::disk::{Disk, LinuxDisk};
use crate::error::LogError;
use crate::folder::chain::ExtentOffset;
use crate::folder::files::{Files, Folder};
use crate::format::{BATCH_HEADER_BYTES, LogId, size};

/// The batch that begins where `part` does; `None`: it is not there whole.
///
/// # Errors
/// [`LogError`]: the folder cannot be read.
pub fn batch_at_rest(folder: &Path, part: BodyLocation) -> Result<Option<Bytes>, LogError> {
    at_rest(&(Arc::new(LinuxDisk::read_only(folder)?) as Arc<dyn Disk>), part)
}

/// The id of the log in `folder`; `None`: there is none.
///
/// # Errors
/// [`LogError`]: the folder cannot be read, or not the header that says it.
pub fn id_at_rest(folder: &Path) -> Result<Option<LogId>, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(folder)?);
    let files = Files::of(&disk, &Folder::list(disk.as_ref())?)?;
    Ok(files.map(|files| files.identity().log_id))
}

pub(super) fn at_rest(disk: &Arc<dyn Disk>, part: BodyLocation) -> Result<Option<Bytes>, LogError> {
    let folder = Folder::list(disk.as_ref())?;
    let Some(files) = Files::of(disk, &folder)? else { return Ok(None) };
    let extent_bytes = files.identity().extent_bytes;
    let place =
        ExtentOffset { sequence: part.lsn.0 / extent_bytes, offset: part.lsn.0 % extent_bytes };
    let Some((header, payload)) = whole_of(&files, place) else { return Ok(None) };
    let mut bytes = BytesMut::with_capacity(BATCH_HEADER_BYTES + size(header.batch_bytes()));
    bytes.put_slice(&header.encode());
    bytes.put_slice(&payload);
    Ok(Some(bytes.freeze()))
}
