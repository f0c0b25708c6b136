//! Reading images: one file, or the newest one of a folder that is whole.
//!
//! Not here: writing them (`image`); what is in one.
//!
//! Invariants: an image with a wrong checksum is never returned; one that could not be read is not
//! taken for damaged, because what an older one needs may be gone for good reasons.

use std::io;

use bytes::Bytes;
use towline_types::Lsn;

use super::files::Folder;
use super::names::image_name;
use crate::block::Aligned;
use crate::disk::Disk;
use crate::error::{Damage, Finding, LogError};
use crate::format::{
    BadHeader, FORMAT_VERSION, IMAGE_HEADER_BYTES, ImageHeader, LogId, padded, size,
};

/// The newest image that can be used, and what was found wrong with newer ones.
#[derive(Default)]
pub struct Images {
    /// Header and content.
    pub newest: Option<(ImageHeader, Bytes)>,
    /// Positions of newer images that cannot be used.
    pub damaged: Vec<Lsn>,
    /// The findings about them.
    pub findings: Vec<Finding>,
}

impl Images {
    /// Reads images of `folder` before `before`, newest first, until one is whole.
    ///
    /// # Errors
    /// [`LogError::OtherLog`], [`LogError::Version`]; [`LogError::Io`] when one cannot be read: it
    /// may be whole.
    pub fn load(
        disk: &dyn Disk,
        folder: &Folder,
        log_id: LogId,
        before: Lsn,
    ) -> Result<Images, LogError> {
        let mut images = Images::default();
        for &at in folder.images.iter().rev().filter(|at| **at < before) {
            let what = match load(disk, at) {
                Ok(LoadedImage::Whole(header, _)) if header.log_id != log_id => {
                    return Err(LogError::OtherLog { file: image_name(at) });
                }
                Ok(LoadedImage::Whole(header, bytes)) => {
                    images.newest = Some((header, bytes));
                    break;
                }
                Ok(LoadedImage::Damaged) => Damage::Image,
                Err(LogError::Io { doing, file, source }) => {
                    return Err(LogError::Io { doing, file, source: unreadable(&source) });
                }
                Err(other) => return Err(other),
            };
            images.damaged.push(at);
            let file = image_name(at);
            images.findings.push(Finding { file, extent: 0, offset: 0, lsn: at, what });
        }
        Ok(images)
    }
}

fn unreadable(error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "{error}; it may be whole, so that no older one is used instead: try again when the \
             disk can be read. If the file is lost for good, move it away: then the image before \
             it is used"
        ),
    )
}

/// What came of reading an image.
#[derive(Debug)]
pub enum LoadedImage {
    /// It verifies.
    Whole(ImageHeader, Bytes),
    /// Its header or its checksum is wrong.
    Damaged,
}

/// Reads an image's header; `None` when it is damaged.
///
/// # Errors
/// [`LogError::Io`]; [`LogError::Version`].
pub fn load_header(disk: &dyn Disk, at: Lsn) -> Result<Option<ImageHeader>, LogError> {
    let name = image_name(at);
    let failed = |e| LogError::io("read an image", &name, e);
    let file = disk.open(&name).map_err(failed)?;
    let mut block = Aligned::zeroed(IMAGE_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0).map_err(failed)?;
    decode_header(block.first(count), at, &name)
}

fn decode_header(bytes: &[u8], at: Lsn, name: &str) -> Result<Option<ImageHeader>, LogError> {
    match ImageHeader::decode(bytes) {
        Ok(header) if header.at == at => Ok(Some(header)),
        Ok(_) | Err(BadHeader::Damaged) => Ok(None),
        Err(BadHeader::Version(found)) => {
            let file = name.to_owned();
            Err(LogError::Version { file, found, supported: FORMAT_VERSION })
        }
    }
}

/// Reads an image and checks it.
///
/// # Errors
/// [`LogError::Io`]; [`LogError::Version`].
pub fn load(disk: &dyn Disk, at: Lsn) -> Result<LoadedImage, LogError> {
    let name = image_name(at);
    let failed = |e| LogError::io("read an image", &name, e);
    let file = disk.open(&name).map_err(failed)?;
    // Never more memory than there is file, whatever a header says.
    let length = file.len().map_err(failed)?;
    let mut content = Aligned::zeroed(size(padded(length)).max(IMAGE_HEADER_BYTES));
    let count = file.read_at(content.bytes_mut(), 0).map_err(failed)?;
    content.truncate(count);
    let Some(header) = decode_header(content.bytes(), at, &name)? else {
        return Ok(LoadedImage::Damaged);
    };
    let end = usize::try_from(header.bytes).ok().and_then(|b| b.checked_add(IMAGE_HEADER_BYTES));
    let Some(end) = end.filter(|end| *end <= count) else { return Ok(LoadedImage::Damaged) };
    let content = content.into_bytes(end).slice(IMAGE_HEADER_BYTES..);
    if crc32c::crc32c(&content) != header.checksum {
        return Ok(LoadedImage::Damaged);
    }
    Ok(LoadedImage::Whole(header, content))
}
