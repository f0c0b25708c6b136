//! What is in the log folder: which files are extents, images, spares and leftovers, and whether
//! the extents can be used.
//!
//! Not here: their batches (`scan`). Nothing is written.
//!
//! Invariant: an extent is only read after its header was checked; those that lie before an image
//! are known by name and length alone until then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::Bytes;
use towline_types::Lsn;

use super::beginning_is_gone;
use super::table::{self, FileFacts, FileVerdict, Header, Length};
use crate::block::Aligned;
use crate::coverage::Coverage;
use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, Finding, LogError};
use crate::format::{
    BLOCK_BYTES, BadHeader, EXTENT_HEADER_BYTES, EXTENT_VERSION, ExtentHeader, ImageHeader, LogId,
    extent_name, image_name, number_in_name,
};
use crate::handles::{Handles, Identity};
use crate::image::{self, Loaded, NEW_IMAGE_NAME};
use crate::keeper::NEW_NAME;
use crate::pages::PAGES_NAME;
use crate::times::TIMES_NAME;

/// Name of a file that says: this folder is being filled from a backup.
pub(crate) const RESTORING_NAME: &str = "restoring";

/// The folder's files by kind.
#[derive(Default)]
pub(crate) struct Folder {
    /// By sequence.
    pub(crate) extents: BTreeSet<u64>,
    /// Oldest first.
    pub(crate) images: Vec<Lsn>,
    pub(crate) spares: Vec<(String, u64)>,
    /// Half-made files that a crash left.
    pub(crate) leftovers: Vec<String>,
    /// Whether a file is there that only a running log makes, and makes after its first extent.
    pub(crate) has_company: bool,
}

/// A log's extents.
pub(crate) struct Files {
    pub(crate) handles: Handles,
    /// Lengths by sequence. Those before the images are taken to be whole until they are read: to
    /// look at each would make a start as long as the log.
    pub(crate) lengths: BTreeMap<u64, u64>,
    /// Those that lie before a gap and that no image needs, see [`Files::cover`].
    pub(crate) below: BTreeMap<u64, u64>,
    /// The extent in which reading begins.
    needed: Option<u64>,
}

impl Folder {
    /// # Errors
    /// [`LogError::Io`]; [`LogError::Restoring`].
    pub(crate) fn list(disk: &dyn Disk) -> Result<Folder, LogError> {
        let names =
            disk.names().map_err(|e| LogError::io("list the log folder", &disk.name(), e))?;
        let mut folder = Folder::default();
        for name in names {
            if let Some(sequence) = number_in_name("extent-", &name) {
                folder.extents.insert(sequence);
            } else if let Some(at) = number_in_name("image-", &name) {
                folder.images.push(Lsn(at));
            } else if number_in_name("spare-", &name).is_some() {
                let length = disk.length(&name);
                let length = length.map_err(|e| LogError::io("look at a spare", &name, e))?;
                folder.spares.push((name, length));
            } else if name == RESTORING_NAME {
                return Err(LogError::Restoring { folder: disk.name() });
            } else if name == NEW_NAME || name == NEW_IMAGE_NAME {
                folder.leftovers.push(name);
            } else {
                folder.has_company |= name == PAGES_NAME || name == TIMES_NAME;
            }
        }
        folder.images.sort_unstable();
        Ok(folder)
    }

    /// Whether there was a log, as far as files beside its extents tell.
    pub(crate) fn held_log(&self) -> bool {
        self.has_company || !self.images.is_empty() || !self.spares.is_empty()
    }
}

impl Files {
    /// The extents of a folder, of which none is checked yet; `None` when there is none. Reads the
    /// header of one.
    ///
    /// # Errors
    /// That file cannot be used.
    pub(crate) fn of(disk: &Arc<dyn Disk>, folder: &Folder) -> Result<Option<Files>, LogError> {
        // Without an image all are checked, oldest first: then the oldest says what the others must
        // be. The newest alone is read in any case.
        let one = match folder.images.is_empty() {
            true => folder.extents.first(),
            false => folder.extents.last(),
        };
        let Some(&sequence) = one else { return Ok(None) };
        let name = extent_name(sequence);
        let file = disk.open(&name).map_err(|e| LogError::io("open an extent", &name, e))?;
        let length = file.len().map_err(|e| LogError::io("look at an extent", &name, e))?;
        let followed = folder.extents.range(sequence..).nth(1).is_some();
        let header = check(file.as_ref(), sequence, length, followed, None)?;
        let ExtentHeader { log_id, extent_bytes, .. } = header;
        let handles = Handles::new(Arc::clone(disk), Identity { log_id, extent_bytes });
        handles.put(sequence, file);
        let oldest_image = folder.images.first().map_or(0, |at| at.0.saturating_sub(1));
        let needed_from = oldest_image / extent_bytes.max(1);
        let mut lengths = BTreeMap::new();
        for &sequence in &folder.extents {
            let length = if sequence < needed_from {
                extent_bytes
            } else {
                let name = extent_name(sequence);
                match disk.length(&name) {
                    Ok(length) => length,
                    // Beside a running log an extent may go while the folder is looked through.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(LogError::io("look at an extent", &name, error)),
                }
            };
            lengths.insert(sequence, length);
        }
        Ok(Some(Files { handles, lengths, below: BTreeMap::new(), needed: None }))
    }

    /// Enters where reading begins, and sees that the log is there from there on, as far as names
    /// tell. What lies before a gap before that is no part of the log then: a call that was to let
    /// an extent go failed, and those behind it went. Whether a message in them lives is not known
    /// here, so they stay until they are let go.
    ///
    /// # Errors
    /// [`LogError::Damaged`]: the first extent that would be read is missing, or an older one
    /// between.
    pub(crate) fn cover(&mut self, image: Option<ImageHeader>) -> Result<(), LogError> {
        let extent_bytes = self.identity().extent_bytes;
        let Some(image) = image else {
            let is_there = self.lengths.contains_key(&0);
            return if is_there {
                Ok(())
            } else {
                Err(beginning_is_gone(self.first(), extent_bytes))
            };
        };
        let needed = image.needs().0 / extent_bytes;
        self.needed = Some(needed);
        let first = self.first_without_gap();
        if first <= needed {
            let newer = self.lengths.split_off(&first);
            self.below.append(&mut self.lengths);
            self.lengths = newer;
        }
        if self.lengths.contains_key(&needed) {
            return Ok(());
        }
        let coverage = self.coverage();
        let what = match self.below.contains_key(&needed) {
            true => Damage::ExtentMissing(coverage),
            false => Damage::ImageExtentMissing(coverage),
        };
        Err(refused(needed, extent_bytes, what))
    }

    /// The oldest extent from which on none is missing.
    fn first_without_gap(&self) -> u64 {
        let mut first = self.last();
        for &sequence in self.lengths.keys().rev().skip(1) {
            if sequence + 1 != first {
                break;
            }
            first = sequence;
        }
        first
    }

    /// Whether the file of an extent is there.
    pub(crate) fn is_there(&self, sequence: u64) -> bool {
        self.lengths.contains_key(&sequence) || self.below.contains_key(&sequence)
    }

    /// Which extents there are.
    fn coverage(&self) -> Coverage {
        Coverage::of(self.below.keys().chain(self.lengths.keys()).copied(), self.needed)
    }

    /// The finding that extents lie before a gap, if there are such.
    pub(crate) fn left_over(&self) -> Option<Finding> {
        let (&sequence, _) = self.below.first_key_value()?;
        let (what, offset) = (Damage::LeftOver(self.coverage()), 0);
        let lsn = Lsn(sequence.saturating_mul(self.identity().extent_bytes));
        Some(Finding { file: extent_name(sequence), extent: sequence, offset, lsn, what })
    }

    /// That all of the log that is there can be read from its beginning on.
    ///
    /// # Errors
    /// [`LogError::Damaged`], when some of it lies before a gap.
    pub(crate) fn check_no_gap(&self) -> Result<(), LogError> {
        let Some((last, _)) = self.below.last_key_value() else { return Ok(()) };
        let what = Damage::ExtentMissing(self.coverage());
        Err(refused(last + 1, self.identity().extent_bytes, what))
    }

    /// Checks that the extents follow each other, and the length of each; and the headers of those
    /// in `with_headers`.
    ///
    /// # Errors
    /// The first file that cannot be used, or that is missing.
    pub(crate) fn check(
        &mut self,
        disk: &dyn Disk,
        with_headers: impl RangeBounds<u64>,
    ) -> Result<(), LogError> {
        let identity = self.handles.identity();
        let coverage = self.coverage();
        let last = self.lengths.last_key_value().map(|(sequence, _)| *sequence);
        let mut expected = None;
        for (&sequence, length) in &mut self.lengths {
            let followed = Some(sequence) != last;
            if self.handles.is_open(sequence) {
                // It was checked then.
            } else if with_headers.contains(&sequence) {
                let name = extent_name(sequence);
                let file =
                    disk.open(&name).map_err(|e| LogError::io("open an extent", &name, e))?;
                *length = file.len().map_err(|e| LogError::io("look at an extent", &name, e))?;
                check(file.as_ref(), sequence, *length, followed, Some(identity))?;
                self.handles.put(sequence, file);
            } else {
                let length = length_of(*length, identity.extent_bytes);
                let facts = FileFacts { length, header: Header::Good, followed };
                if let FileVerdict::Refuse(what) = table::judge_file(facts) {
                    return Err(refused(sequence, identity.extent_bytes, what));
                }
            }
            if expected.is_some_and(|expected| expected != sequence) {
                let missing = expected.unwrap_or_default();
                let what = Damage::ExtentMissing(coverage);
                return Err(refused(missing, identity.extent_bytes, what));
            }
            expected = Some(sequence + 1);
        }
        Ok(())
    }

    pub(crate) fn identity(&self) -> Identity {
        self.handles.identity()
    }

    pub(crate) fn first(&self) -> u64 {
        self.lengths.first_key_value().map_or(0, |(sequence, _)| *sequence)
    }

    pub(crate) fn last(&self) -> u64 {
        self.lengths.last_key_value().map_or(0, |(sequence, _)| *sequence)
    }

    /// Length of an extent's file, if it is there.
    pub(crate) fn length(&self, sequence: u64) -> Option<u64> {
        self.lengths.get(&sequence).copied()
    }

    /// The next extent that is there.
    pub(crate) fn next_after(&self, sequence: u64) -> Option<u64> {
        self.lengths.range(sequence.checked_add(1)?..).next().map(|(next, _)| *next)
    }

    /// The file of an extent.
    ///
    /// # Errors
    /// What the disk said, or that the header is not the right one.
    pub(crate) fn file(&self, sequence: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.handles.get(sequence).map_err(|error| match error {
            LogError::Io { source, .. } => source,
            other => io::Error::other(other),
        })
    }
}

/// The finding that there is no extent, and was one: at the newest image, when there is one.
pub(crate) fn no_extents(folder: &Folder) -> LogError {
    let lsn = folder.images.last().copied().unwrap_or(Lsn::ZERO);
    let file = folder.images.last().map_or_else(|| extent_name(0), |at| image_name(*at));
    let what = Damage::NoExtents(Coverage::of(std::iter::empty(), None));
    LogError::Damaged(Finding { file, extent: 0, offset: 0, lsn, what })
}

fn refused(sequence: u64, extent_bytes: u64, what: Damage) -> LogError {
    let lsn = Lsn(sequence.saturating_mul(extent_bytes));
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

/// Judges an extent by its header alone.
///
/// # Errors
/// [`LogError::Io`]; why it cannot be used.
pub(crate) fn check_header(
    file: &dyn DiskFile,
    sequence: u64,
    identity: Option<Identity>,
) -> Result<ExtentHeader, LogError> {
    check(file, sequence, u64::MAX / BLOCK_BYTES as u64 * BLOCK_BYTES as u64, true, identity)
}

/// Judges an extent's file by its length and header; `identity` is what the others have.
fn check(
    file: &dyn DiskFile,
    sequence: u64,
    length: u64,
    followed: bool,
    identity: Option<Identity>,
) -> Result<ExtentHeader, LogError> {
    let name = extent_name(sequence);
    let (header, decoded) = read_header(file, sequence, identity)
        .map_err(|e| LogError::io("read an extent's header", &name, e))?;
    let extent_bytes = decoded.ok().map_or(u64::MAX, |header| header.extent_bytes);
    let facts = FileFacts { length: length_of(length, extent_bytes), header, followed };
    let known_bytes = identity.map_or(0, |identity| identity.extent_bytes);
    match (table::judge_file(facts), decoded) {
        (FileVerdict::Use, Ok(header)) => Ok(header),
        (FileVerdict::Use, Err(_)) => Err(refused(sequence, known_bytes, Damage::ExtentHeader)),
        (FileVerdict::Refuse(what), _) => Err(refused(sequence, known_bytes, what)),
        (FileVerdict::RefuseVersion, decoded) => {
            let found = match decoded {
                Err(BadHeader::Version(version)) => version,
                Ok(_) | Err(BadHeader::Damaged) => 0,
            };
            Err(LogError::Version { file: name, found, supported: EXTENT_VERSION })
        }
        (FileVerdict::RefuseOtherLog, _) => Err(LogError::OtherLog { file: name }),
    }
}

fn read_header(
    file: &dyn DiskFile,
    sequence: u64,
    identity: Option<Identity>,
) -> io::Result<(Header, Result<ExtentHeader, BadHeader>)> {
    let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0)?;
    block.truncate(count);
    let decoded = ExtentHeader::decode(block.bytes());
    let kind = match decoded {
        Err(BadHeader::Damaged) => Header::Damaged,
        Err(BadHeader::Version(_)) => Header::Newer,
        Ok(header) => {
            if identity.is_some_and(|identity| identity.log_id != header.log_id) {
                Header::OtherLog
            } else if header.sequence != sequence
                || identity.is_some_and(|identity| identity.extent_bytes != header.extent_bytes)
                || !is_possible(&header)
            {
                Header::OtherPlace
            } else {
                Header::Good
            }
        }
    };
    Ok((kind, decoded))
}

/// Whether positions in the extent are far from 2^64: arithmetic on them need not be checked again.
fn is_possible(header: &ExtentHeader) -> bool {
    let bytes = header.extent_bytes;
    (crate::EXTENT_BYTES_MIN..=crate::options::EXTENT_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(BLOCK_BYTES as u64)
        && header.sequence < u64::MAX / crate::options::EXTENT_BYTES_MAX / 2
}

/// The newest image that can be used, and what was found wrong with newer ones.
#[derive(Default)]
pub(crate) struct Images {
    pub(crate) newest: Option<(ImageHeader, Bytes)>,
    pub(crate) damaged: Vec<Lsn>,
    pub(crate) findings: Vec<Finding>,
}

impl Images {
    /// Reads images of `folder` before `before`, newest first, until one is whole.
    ///
    /// # Errors
    /// [`LogError::OtherLog`], [`LogError::Version`].
    pub(crate) fn load(
        disk: &dyn Disk,
        folder: &Folder,
        log_id: LogId,
        before: Lsn,
    ) -> Result<Images, LogError> {
        let mut images = Images::default();
        for &at in folder.images.iter().rev().filter(|at| **at < before) {
            let what = match image::load(disk, at) {
                Ok(Loaded::Whole(header, _)) if header.log_id != log_id => {
                    return Err(LogError::OtherLog { file: image_name(at) });
                }
                Ok(Loaded::Whole(header, bytes)) => {
                    images.newest = Some((header, bytes));
                    break;
                }
                Ok(Loaded::Damaged) => Damage::Image,
                Err(LogError::Io { .. }) => Damage::ImageUnreadable,
                Err(other) => return Err(other),
            };
            images.damaged.push(at);
            let file = image_name(at);
            images.findings.push(Finding { file, extent: 0, offset: 0, lsn: at, what });
        }
        Ok(images)
    }
}
