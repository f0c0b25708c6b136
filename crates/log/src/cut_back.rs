//! Cutting a log at rest back to an earlier position: what an old live group's instance does when
//! it gives up what it has behind the fork of two histories.
//!
//! Not here: whether to, what the records behind the fork meant, and where it is noted that a cut
//! has begun (the caller: until it is over, the log may not be opened otherwise). A running log of
//! a member cuts off what conflicts by itself (`member`).
//!
//! Invariants: nothing that ends at or before the position is written, renamed or removed. A cut
//! that was interrupted anywhere is done again from its beginning, with the same result: it reads
//! only what it keeps.

use std::io;
use std::sync::Arc;

use towline_types::{BatchPlace, Lsn};

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile, FileSystem};
use crate::error::LogError;
use crate::folder::files::{self, Files, Folder};
use crate::folder::names::{extent_name, image_name, number_in_name};
use crate::folder::scan::Scan;
use crate::format::{BLOCK_BYTES, padded};
use crate::member::KnownBatch;

/// Zeros that are written at once.
const ZEROS_BYTES: usize = 1024 * 1024;

/// Why a log cannot be cut back.
#[derive(Debug)]
pub enum CutError {
    /// It cannot be read, or written.
    Log(LogError),
    /// No batch ends there: it lies within this one.
    WithinBatch(BatchPlace),
    /// Nothing is left of the log at or before the position.
    Gone,
}

impl std::fmt::Display for CutError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CutError::Log(error) => error.fmt(out),
            CutError::WithinBatch(batch) => {
                write!(out, "the position lies within batch {} at {}", batch.index, batch.lsn)
            }
            CutError::Gone => write!(out, "the log does not hold the position any more"),
        }
    }
}

impl std::error::Error for CutError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CutError::Log(error) => Some(error),
            CutError::WithinBatch(_) | CutError::Gone => None,
        }
    }
}

impl From<LogError> for CutError {
    fn from(error: LogError) -> CutError {
        CutError::Log(error)
    }
}

/// The newest batch that ends at or before `upto`, as far as the chain of batches leads there.
///
/// # Errors
/// [`CutError`].
pub fn last_upto(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<BatchPlace, CutError> {
    found(disk, upto).map(|(_, keep, _)| keep.place())
}

/// The same, with the CRC-32C of its payload.
///
/// # Errors
/// [`CutError`].
pub fn summed_upto(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<(BatchPlace, u32), CutError> {
    found(disk, upto).map(|(_, keep, sum)| (keep.place(), sum))
}

fn found(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<(Folder, KnownBatch, u32), CutError> {
    let folder = Folder::list(disk.as_ref())?;
    // Whether all extents are there is not asked: a cut removes those behind the position.
    let files = Files::of(disk, &folder)?.ok_or_else(|| files::no_extents(&folder))?;
    let extent_bytes = files.identity().extent_bytes;
    let at = upto.0.saturating_sub(1) / extent_bytes;
    let extents = folder.extents.iter().rev().copied().filter(|sequence| *sequence <= at);
    for sequence in extents {
        let mut scan = Scan::new(&files, sequence);
        let mut keep = None;
        loop {
            let next = scan.next_batch();
            let next = next.map_err(|e| LogError::io("read", &extent_name(sequence), e))?;
            let Some(batch) = next.map(|header| KnownBatch::of(&header, false)) else { break };
            if batch.lsn >= upto {
                break;
            }
            if batch.end > upto {
                return Err(CutError::WithinBatch(batch.place()));
            }
            let payload = scan.payload();
            let payload = payload.map_err(|e| LogError::io("read", &extent_name(sequence), e))?;
            keep = Some((batch, crc32c::crc32c(payload)));
        }
        if let Some((keep, sum)) = keep {
            return Ok((folder, keep, sum));
        }
    }
    Err(CutError::Gone)
}

/// Whether [`cut_back`] would remove an image. With one that is older the page file cannot be used:
/// pages that it refers to may have been reused since.
///
/// # Errors
/// As [`cut_back`].
pub fn removes_images(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<bool, CutError> {
    let (folder, keep, _) = found(disk, upto)?;
    Ok(folder.images.iter().any(|at| *at > keep.end))
}

/// Cuts off all behind `upto`: images, whole extents, and what is behind it in its own extent. To
/// be done again until it was done once. Yields the last batch that is left.
///
/// # Errors
/// [`CutError`]. Before anything was changed, unless the disk failed.
pub fn cut_back(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<BatchPlace, CutError> {
    let (folder, keep, _) = found(disk, upto)?;
    let files = Files::of(disk, &folder)?.ok_or_else(|| files::no_extents(&folder))?;
    let extent_bytes = files.identity().extent_bytes;
    let last = keep.end.0.saturating_sub(1) / extent_bytes;
    // An image that covers what is not there would be refused.
    let mut names: Vec<String> =
        folder.images.iter().rev().filter(|at| **at > keep.end).map(|at| image_name(*at)).collect();
    let behind = folder.extents.iter().rev().take_while(|sequence| **sequence > last);
    names.extend(behind.map(|sequence| extent_name(*sequence)));
    for name in &names {
        match disk.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LogError::io("remove what is cut off", name, error).into());
            }
            Ok(()) | Err(_) => {}
        }
    }
    let synced = disk.sync_names();
    synced.map_err(|e| LogError::io("sync the log folder", &disk.name(), e))?;
    let name = extent_name(last);
    let file = disk.open(&name).map_err(|e| LogError::io("open an extent", &name, e))?;
    erase(file.as_ref(), padded(keep.end.0 - last * extent_bytes))
        .map_err(|e| LogError::io("erase what is cut off", &name, e))?;
    Ok(keep.place())
}

/// Writes zeros from `from` to the end of the file, durably.
fn erase(file: &dyn DiskFile, from: u64) -> io::Result<()> {
    let (mut at, end) = (from, file.len()?);
    let zeros = Aligned::zeroed(ZEROS_BYTES);
    while at < end {
        let bytes = usize::try_from(end - at).unwrap_or(ZEROS_BYTES).min(ZEROS_BYTES);
        // An extent that was made when the power went may end within a block.
        let bytes = bytes.next_multiple_of(BLOCK_BYTES).min(ZEROS_BYTES);
        file.write_at(zeros.bytes().get(..bytes).unwrap_or_default(), at)?;
        at += bytes as u64;
    }
    file.sync_data()
}

/// A folder as it would be after [`cut_back`], for a look: nothing is changed, and nothing can be.
pub struct CutView {
    disk: Arc<dyn Disk>,
    keep: Lsn,
    last: u64,
    offset: u64,
}

impl CutView {
    /// Of this folder, cut off behind `upto`; and the last batch that would be left.
    ///
    /// # Errors
    /// As [`cut_back`].
    pub fn of(disk: &Arc<dyn Disk>, upto: Lsn) -> Result<(CutView, BatchPlace), CutError> {
        let (folder, keep, _) = found(disk, upto)?;
        let files = Files::of(disk, &folder)?.ok_or_else(|| files::no_extents(&folder))?;
        let extent_bytes = files.identity().extent_bytes;
        let last = keep.end.0.saturating_sub(1) / extent_bytes;
        let offset = padded(keep.end.0 - last * extent_bytes);
        let view = CutView { disk: Arc::clone(disk), keep: keep.end, last, offset };
        Ok((view, keep.place()))
    }

    fn shows(&self, name: &str) -> bool {
        let extent = number_in_name("extent-", name).is_none_or(|sequence| sequence <= self.last);
        let image = number_in_name("image-", name).is_none_or(|at| Lsn(at) <= self.keep);
        extent && image
    }
}

fn only_a_look<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "the folder is only looked at"))
}

impl Disk for CutView {
    fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
        only_a_look()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if !self.shows(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = self.disk.open(name)?;
        let is_last = number_in_name("extent-", name) == Some(self.last);
        let from = if is_last { self.offset } else { u64::MAX };
        Ok(Arc::new(CutViewFile { file, from }))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        only_a_look()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        only_a_look()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = self.disk.names()?;
        names.retain(|name| self.shows(name));
        Ok(names)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.disk.length(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn file_system(&self) -> Option<FileSystem> {
        self.disk.file_system()
    }

    fn name(&self) -> String {
        self.disk.name()
    }

    fn is_buffered(&self) -> bool {
        self.disk.is_buffered()
    }
}

struct CutViewFile {
    file: Arc<dyn DiskFile>,
    /// From here on it is zeros.
    from: u64,
}

impl DiskFile for CutViewFile {
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        only_a_look()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(bytes, offset)?;
        let keeps = usize::try_from(self.from.saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(behind) = bytes.get_mut(keeps.min(count)..count) {
            behind.fill(0);
        }
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        only_a_look()
    }

    fn cut(&self, _: u64) -> io::Result<()> {
        only_a_look()
    }
}

#[cfg(test)]
mod tests;
