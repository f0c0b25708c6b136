//! What is in the log folder: which files are extents, images, spares and leftovers, and whether
//! the extents can be used.
//!
//! Not here: their batches (`scan`). Nothing is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use towline_types::Lsn;

use super::scan::Found;
use super::table::{self, FileFacts, FileVerdict, Header, Length};
use crate::block::Aligned;
use crate::disk::Disk;
use crate::error::{Damage, Finding, LogError};
use crate::format::{
    BLOCK_BYTES, BadHeader, EXTENT_HEADER_BYTES, ExtentHeader, FORMAT_VERSION, LogId, extent_name,
    image_name, number_in_name,
};
use crate::image::{self, Loaded, NEW_IMAGE_NAME};
use crate::keeper::NEW_NAME;

/// The folder's files by kind.
#[derive(Default)]
pub(crate) struct Folder {
    /// Lengths by sequence.
    pub(crate) extents: BTreeMap<u64, u64>,
    /// Oldest first.
    pub(crate) images: Vec<Lsn>,
    pub(crate) spares: Vec<(String, u64)>,
    /// Half-made files that a crash left.
    pub(crate) leftovers: Vec<String>,
}

/// A log's extents, all of them usable.
pub(crate) struct Opened {
    pub(crate) log_id: LogId,
    pub(crate) extent_bytes: u64,
    pub(crate) extents: BTreeMap<u64, Found>,
}

impl Folder {
    /// # Errors
    /// [`LogError::Io`].
    pub(crate) fn list(disk: &dyn Disk) -> Result<Folder, LogError> {
        let files =
            disk.list().map_err(|e| LogError::io("list the log folder", &disk.name(), e))?;
        let mut folder = Folder::default();
        for (name, length) in files {
            if let Some(sequence) = number_in_name("extent-", &name) {
                folder.extents.insert(sequence, length);
            } else if let Some(at) = number_in_name("image-", &name) {
                folder.images.push(Lsn(at));
            } else if number_in_name("spare-", &name).is_some() {
                folder.spares.push((name, length));
            } else if name == NEW_NAME || name == NEW_IMAGE_NAME {
                folder.leftovers.push(name);
            }
        }
        folder.images.sort_unstable();
        Ok(folder)
    }
}

/// Opens all extents of a folder; `None` when there is none.
///
/// # Errors
/// The first file that cannot be used, or that is missing.
pub(crate) fn open_extents(disk: &dyn Disk, folder: &Folder) -> Result<Option<Opened>, LogError> {
    let mut opened: Option<Opened> = None;
    let last = folder.extents.last_key_value().map(|(sequence, _)| *sequence);
    for (&sequence, &length) in &folder.extents {
        let name = extent_name(sequence);
        let failed = |e| LogError::io("open an extent", &name, e);
        let file = disk.open(&name).map_err(failed)?;
        let (header, decoded) = read_header(file.as_ref(), sequence, opened.as_ref())
            .map_err(|e| LogError::io("read an extent's header", &name, e))?;
        let extent_bytes = decoded.map_or(u64::MAX, |header| header.extent_bytes);
        let followed = Some(sequence) != last;
        let facts = FileFacts { length: length_of(length, extent_bytes), header, followed };
        let lsn = Lsn(sequence.saturating_mul(opened.as_ref().map_or(0, |o| o.extent_bytes)));
        let finding = |what| {
            let file = name.clone();
            LogError::Damaged(Finding { file, extent: sequence, offset: 0, lsn, what })
        };
        match (table::judge_file(facts), decoded) {
            (FileVerdict::Use, Some(header)) => {
                let opened = opened.get_or_insert_with(|| Opened {
                    log_id: header.log_id,
                    extent_bytes: header.extent_bytes,
                    extents: BTreeMap::new(),
                });
                let expected = opened.extents.last_key_value().map(|(last, _)| last + 1);
                if expected.is_some_and(|expected| expected != sequence) {
                    return Err(missing(expected.unwrap_or_default(), opened.extent_bytes));
                }
                opened.extents.insert(sequence, Found { file, length });
            }
            (FileVerdict::Use, None) => return Err(finding(Damage::ExtentHeader)),
            (FileVerdict::Refuse(what), _) => return Err(finding(what)),
            (FileVerdict::RefuseVersion, _) => {
                let found = decoded_version(file.as_ref());
                return Err(LogError::Version { file: name, found, supported: FORMAT_VERSION });
            }
            (FileVerdict::RefuseOtherLog, _) => return Err(LogError::OtherLog { file: name }),
        }
    }
    Ok(opened)
}

/// The finding that an extent between others, or before an image, is not there.
pub(crate) fn missing(sequence: u64, extent_bytes: u64) -> LogError {
    let lsn = Lsn(sequence.saturating_mul(extent_bytes));
    let what = Damage::ExtentMissing;
    let file = extent_name(sequence);
    LogError::Damaged(Finding { file, extent: sequence, offset: 0, lsn, what })
}

fn length_of(length: u64, extent_bytes: u64) -> Length {
    if length == 0 {
        Length::Empty
    } else if length < EXTENT_HEADER_BYTES as u64 || !length.is_multiple_of(BLOCK_BYTES as u64) {
        Length::Ragged
    } else if length < extent_bytes {
        Length::Part
    } else {
        Length::Full
    }
}

fn header_block(file: &dyn crate::disk::DiskFile) -> std::io::Result<Aligned> {
    let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0)?;
    block.truncate(count);
    Ok(block)
}

fn read_header(
    file: &dyn crate::disk::DiskFile,
    sequence: u64,
    before: Option<&Opened>,
) -> std::io::Result<(Header, Option<ExtentHeader>)> {
    let block = header_block(file)?;
    Ok(match ExtentHeader::decode(block.bytes()) {
        Err(BadHeader::Damaged) => (Header::Damaged, None),
        Err(BadHeader::Version(_)) => (Header::Newer, None),
        Ok(header) => {
            let kind = if before.is_some_and(|before| before.log_id != header.log_id) {
                Header::OtherLog
            } else if header.sequence != sequence
                || before.is_some_and(|before| before.extent_bytes != header.extent_bytes)
                || !is_possible(&header)
            {
                Header::OtherPlace
            } else {
                Header::Good
            };
            (kind, Some(header))
        }
    })
}

/// Whether positions in the extent are far from 2^64: arithmetic on them need not be checked again.
fn is_possible(header: &ExtentHeader) -> bool {
    let bytes = header.extent_bytes;
    (crate::EXTENT_BYTES_MIN..=crate::options::EXTENT_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(BLOCK_BYTES as u64)
        && header.sequence < u64::MAX / crate::options::EXTENT_BYTES_MAX / 2
}

fn decoded_version(file: &dyn crate::disk::DiskFile) -> u16 {
    match header_block(file).map(|block| ExtentHeader::decode(block.bytes())) {
        Ok(Err(BadHeader::Version(version))) => version,
        Ok(Ok(_) | Err(BadHeader::Damaged)) | Err(_) => 0,
    }
}

/// The newest image that is whole, and what was found wrong with newer ones.
pub(crate) struct Images {
    pub(crate) newest: Option<(Lsn, Bytes)>,
    pub(crate) damaged: Vec<Lsn>,
    pub(crate) findings: Vec<Finding>,
}

/// Reads images, newest first, until one is whole.
///
/// # Errors
/// [`LogError::OtherLog`], [`LogError::Version`], [`LogError::Io`].
pub(crate) fn newest_image(
    disk: &dyn Disk,
    folder: &Folder,
    log_id: LogId,
) -> Result<Images, LogError> {
    let mut images = Images { newest: None, damaged: Vec::new(), findings: Vec::new() };
    for &at in folder.images.iter().rev() {
        match image::load(disk, at)? {
            Loaded::Whole(id, _, _) if id != log_id => {
                return Err(LogError::OtherLog { file: image_name(at) });
            }
            Loaded::Whole(_, at, bytes) => {
                images.newest = Some((at, bytes));
                break;
            }
            Loaded::Damaged => {
                images.damaged.push(at);
                let (file, what) = (image_name(at), Damage::Image);
                images.findings.push(Finding { file, extent: 0, offset: 0, lsn: at, what });
            }
        }
    }
    Ok(images)
}
