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

use towline_types::Lsn;

use super::chain::beginning_is_gone;
use super::headers::{check, length_of, refused};
use super::names::RESTORING_NAME;
use super::table::{self, FileFacts, FileVerdict, Header};
use crate::coverage::Coverage;
use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, Finding, LogError};
use crate::folder::handles::Handles;
use crate::folder::headers::Identity;
use crate::folder::names::{
    NEW_IMAGE_NAME, NEW_NAME, PAGES_NAME, TIME_INDEX_NAME, extent_name, image_name, number_in_name,
};
use crate::format::{ExtentHeader, ImageHeader};

/// The folder's files by kind.
#[derive(Default)]
pub struct Folder {
    /// By sequence.
    pub extents: BTreeSet<u64>,
    /// Oldest first.
    pub images: Vec<Lsn>,
    /// Files for new extents, with their lengths.
    pub spares: Vec<(String, u64)>,
    /// Half-made files that a crash left.
    pub leftovers: Vec<String>,
    /// Whether a file is there that only a running log makes, and makes after its first extent.
    pub has_company: bool,
}

/// A log's extents.
pub struct Files {
    /// The open files.
    pub handles: Handles,
    /// Lengths by sequence. Those before the images are taken to be whole until they are read: to
    /// look at each would make a start as long as the log.
    pub lengths: BTreeMap<u64, u64>,
    /// Those that lie before a gap and that no image needs, see [`Files::cover`].
    pub below: BTreeMap<u64, u64>,
    /// The extent in which reading begins.
    needed: Option<u64>,
}

impl Folder {
    /// # Errors
    /// [`LogError::Io`]; [`LogError::Restoring`].
    pub fn list(disk: &dyn Disk) -> Result<Folder, LogError> {
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
                folder.has_company |= name == PAGES_NAME || name == TIME_INDEX_NAME;
            }
        }
        folder.images.sort_unstable();
        Ok(folder)
    }

    /// Whether there was a log, as far as the files beside its extents show.
    pub fn held_log(&self) -> bool {
        self.has_company || !self.images.is_empty() || !self.spares.is_empty()
    }
}

/// Why there is a first and a last extent: [`Files::of`] yields no files of a folder without.
const NO_EXTENT: &str = "a log has an extent";

impl Files {
    /// The extents of a folder, of which none is checked yet; `None` when there is none. Reads the
    /// header of one.
    ///
    /// # Errors
    /// That file cannot be used.
    pub fn of(disk: &Arc<dyn Disk>, folder: &Folder) -> Result<Option<Files>, LogError> {
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
        if lengths.is_empty() {
            // Beside a running log: all of them went while the folder was looked through.
            let gone = io::Error::from(io::ErrorKind::NotFound);
            return Err(LogError::io("look at an extent", &name, gone));
        }
        Ok(Some(Files { handles, lengths, below: BTreeMap::new(), needed: None }))
    }

    /// Enters where reading begins, and makes sure by the file names that the log exists from there
    /// on. Files before an earlier gap are no part of the log then: a call to release an extent
    /// failed, and those behind it were released. Whether a message in them lives is not known
    /// here, so they stay until they are released.
    ///
    /// # Errors
    /// [`LogError::Damaged`]: the first extent that would be read is missing, or an older one
    /// between.
    pub fn cover(&mut self, image: Option<ImageHeader>) -> Result<(), LogError> {
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
    pub fn is_there(&self, sequence: u64) -> bool {
        self.lengths.contains_key(&sequence) || self.below.contains_key(&sequence)
    }

    /// Which extents there are.
    fn coverage(&self) -> Coverage {
        Coverage::of(self.below.keys().chain(self.lengths.keys()).copied(), self.needed)
    }

    /// The finding that extents lie before a gap, if there are such.
    pub fn left_over(&self) -> Option<Finding> {
        let (&sequence, _) = self.below.first_key_value()?;
        let (what, offset) = (Damage::LeftOver(self.coverage()), 0);
        let lsn = Lsn(sequence.saturating_mul(self.identity().extent_bytes));
        Some(Finding { file: extent_name(sequence), extent: sequence, offset, lsn, what })
    }

    /// That all of the log that is there can be read from its beginning on.
    ///
    /// # Errors
    /// [`LogError::Damaged`], when some of it lies before a gap.
    pub fn check_no_gap(&self) -> Result<(), LogError> {
        let Some((last, _)) = self.below.last_key_value() else { return Ok(()) };
        let what = Damage::ExtentMissing(self.coverage());
        Err(refused(last + 1, self.identity().extent_bytes, what))
    }

    /// Checks that the extents follow each other, and the length of each; and the headers of those
    /// in `with_headers`.
    ///
    /// # Errors
    /// The first file that cannot be used, or that is missing.
    pub fn check(
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
            if let Some(missing) = expected.filter(|expected| *expected != sequence) {
                let what = Damage::ExtentMissing(coverage);
                return Err(refused(missing, identity.extent_bytes, what));
            }
            expected = Some(sequence + 1);
        }
        Ok(())
    }

    /// What all extents of the log have in common.
    pub fn identity(&self) -> Identity {
        self.handles.identity()
    }

    /// The oldest extent.
    pub fn first(&self) -> u64 {
        let Some((first, _)) = self.lengths.first_key_value() else { unreachable!("{NO_EXTENT}") };
        *first
    }

    /// The newest extent.
    pub fn last(&self) -> u64 {
        let Some((last, _)) = self.lengths.last_key_value() else { unreachable!("{NO_EXTENT}") };
        *last
    }

    /// Length of an extent's file, if it is there.
    pub fn length(&self, sequence: u64) -> Option<u64> {
        self.lengths.get(&sequence).copied()
    }

    /// The next extent that is there.
    pub fn next_after(&self, sequence: u64) -> Option<u64> {
        self.lengths.range(sequence.checked_add(1)?..).next().map(|(next, _)| *next)
    }

    /// The file of an extent.
    ///
    /// # Errors
    /// What the disk said, or that the header is not the right one.
    pub fn file(&self, sequence: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.handles.get(sequence).map_err(|error| match error {
            LogError::Io { source, .. } => source,
            other => io::Error::other(other),
        })
    }
}

/// The finding that there is no extent, and was one: at the newest image, when there is one.
pub fn no_extents(folder: &Folder) -> LogError {
    let lsn = folder.images.last().copied().unwrap_or(Lsn::ZERO);
    let file = folder.images.last().map_or_else(|| extent_name(0), |at| image_name(*at));
    let what = Damage::NoExtents(Coverage::of(std::iter::empty(), None));
    LogError::Damaged(Finding { file, extent: 0, offset: 0, lsn, what })
}
