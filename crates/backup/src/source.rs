//! What a backup is made from: a log, from the oldest extent that is needed to an end where no run
//! is unfinished, and the newest image in it.
//!
//! Not here: pages (the caller knows which ones the image names); copying.
//!
//! Invariants: all up to the end is durable, and whole runs; nothing is changed.

use std::sync::Arc;

use bytes::Bytes;
use towline_log::disk::Disk;
use towline_log::folder::chain::{ExtentOffset, beginning_is_gone, finding};
use towline_log::folder::files::{Files, Folder};
use towline_log::folder::images::{self, Images, LoadedImage};
use towline_log::folder::names::{extent_name, image_name};
use towline_log::folder::scan::Scan;
use towline_log::folder::table::{self, TailVerdict};
use towline_log::format::{ImageHeader, LogId};
use towline_log::mark::Seam;
use towline_log::{Damage, Log, LogError};
use towline_types::Lsn;

use crate::error::BackupError;
use crate::manifest::End;

/// A log as it is copied.
pub struct Source {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) log_id: LogId,
    pub(super) extent_bytes: u64,
    pub(super) image: Option<(ImageHeader, Bytes)>,
    /// The oldest extent that is needed.
    pub(super) first: u64,
    pub(super) end: End,
}

impl Source {
    /// A running log from the extent of `keep_from` on, with the image at `image_at`, up to what is
    /// durable now. The caller sees to it that no extent from there on is let go meanwhile, and
    /// that the image is one of the two newest.
    ///
    /// # Errors
    /// [`LogError`], when the image cannot be read. `None`: the log moved on so fast that its
    /// durable end is not known any more; ask again.
    pub fn running(
        log: &Log,
        image_at: Lsn,
        keep_from: Lsn,
    ) -> Result<Option<Source>, BackupError> {
        let Some(mark) = log.mark_at(log.durable()) else { return Ok(None) };
        let (end, extent_bytes) = (End::of(mark.seam()), log.extent_bytes());
        if Lsn(end.lsn) < image_at {
            // The last run that the image speaks of shares its batch with the beginning of another
            // one.
            return Ok(None);
        }
        let (disk, log_id) = (Arc::clone(log.disk()), log.id());
        let image = match images::load(disk.as_ref(), image_at)? {
            LoadedImage::Whole(header, bytes) if header.log_id == log_id => (header, bytes),
            LoadedImage::Whole(..) => {
                return Err(LogError::OtherLog { file: image_name(image_at) }.into());
            }
            LoadedImage::Damaged => {
                let (file, what) = (image_name(image_at), Damage::Image);
                let finding =
                    towline_log::Finding { file, extent: 0, offset: 0, lsn: image_at, what };
                return Err(LogError::Damaged(finding).into());
            }
        };
        let first = keep_from.0.min(image.0.needs().0) / extent_bytes;
        Ok(Some(Source { disk, log_id, extent_bytes, image: Some(image), first, end }))
    }

    /// A running log, all of it, with the newest image, up to what is durable: for an
    /// instance that can take no image now. The caller sees to it that no extent is let go
    /// meanwhile, and no image.
    ///
    /// # Errors
    /// [`LogError`], when the newest image is damaged or cannot be read, or there is none. `None`:
    /// as of [`Source::running`].
    pub fn behind_newest_image(log: &Log) -> Result<Option<Source>, BackupError> {
        Source::behind_image(log, true)
    }

    /// The same, without pages: a start with it finds the messages in the log. For an instance that
    /// rebuilt its queues so, and has no image of them yet. A newer image than the one that is used
    /// may be damaged.
    ///
    /// # Errors
    /// [`LogError`], when an image cannot be read, or none is whole. `None`: as of
    /// [`Source::running`].
    pub fn to_rebuild(log: &Log) -> Result<Option<Source>, BackupError> {
        Source::behind_image(log, false)
    }

    fn behind_image(log: &Log, with_pages: bool) -> Result<Option<Source>, BackupError> {
        let Some(mark) = log.mark_at(log.durable()) else { return Ok(None) };
        let (end, extent_bytes) = (End::of(mark.seam()), log.extent_bytes());
        let (disk, log_id) = (Arc::clone(log.disk()), log.id());
        let folder = Folder::list(disk.as_ref())?;
        let images = Images::load(disk.as_ref(), &folder, log_id, Lsn(end.lsn + 1))?;
        // The pages of one before a damaged one may have been used again.
        if let Some(damaged) = images.findings.into_iter().next().filter(|_| with_pages) {
            return Err(LogError::Damaged(damaged).into());
        }
        let held = log.first_held().0 / extent_bytes;
        let Some((header, _)) = &images.newest else {
            return Err(beginning_is_gone(held, extent_bytes).into());
        };
        // What the log holds it may have let go, in part, when a call about its name failed.
        let mut first = header.needs().0 / extent_bytes;
        while first > held && folder.extents.contains(&(first - 1)) {
            first -= 1;
        }
        Ok(Some(Source { disk, log_id, extent_bytes, image: images.newest, first, end }))
    }

    /// The log in a folder that no process uses, up to its end; a torn tail is left out.
    ///
    /// # Errors
    /// [`LogError`] as at a start of the log: damage, another version, no log at all.
    pub fn at_rest(disk: Arc<dyn Disk>) -> Result<Source, BackupError> {
        let folder = Folder::list(disk.as_ref())?;
        let Some(mut files) = Files::of(&disk, &folder)? else {
            return Err(BackupError::NoLog { folder: disk.name() });
        };
        files.check(disk.as_ref(), ..)?;
        let (log_id, extent_bytes) = (files.identity().log_id, files.identity().extent_bytes);
        let images = Images::load(disk.as_ref(), &folder, log_id, Lsn(u64::MAX))?;
        let first = files.first();
        let mut scan = match &images.newest {
            None if first > 0 => return Err(beginning_is_gone(first, extent_bytes).into()),
            None => Scan::new(&files, 0),
            Some((ImageHeader { seam: Some(seam), at, .. }, _)) => {
                let mut scan = Scan::behind(&files, *seam);
                let place = scan.place_of(*at);
                let name = extent_name(place.sequence);
                let read = |e| LogError::io("read the batch before the image", &name, e);
                if !scan.follows(*seam).map_err(read)? {
                    let finding = finding(place, *at, Damage::EndsBeforeImage);
                    return Err(LogError::Damaged(finding).into());
                }
                scan
            }
            Some((header, _)) => Scan::new(&files, header.needs().0 / extent_bytes),
        };
        let end = end_of(&mut scan, images.newest.as_ref().map(|(header, _)| header.at))?;
        Ok(Source {
            disk: Arc::clone(&disk),
            log_id,
            extent_bytes,
            image: images.newest,
            first,
            end,
        })
    }

    /// The image's content; the caller finds the pages in it.
    #[must_use]
    pub fn image(&self) -> Option<&Bytes> {
        self.image.as_ref().map(|(_, bytes)| bytes)
    }

    /// The bytes of the image's file, without padding; none without an image.
    pub(super) fn image_file(&self) -> Vec<u8> {
        let Some((header, content)) = &self.image else { return Vec::new() };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(content);
        bytes
    }

    /// Where the copy begins: the caller keeps the log from there on.
    #[must_use]
    pub fn first(&self) -> Lsn {
        Lsn(self.first * self.extent_bytes)
    }

    /// Where the copy ends.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.end.lsn)
    }
}

/// Reads to the end of the chain, which must be the end of the log.
fn end_of(scan: &mut Scan<'_>, image: Option<Lsn>) -> Result<End, LogError> {
    // What cannot be read is among the facts, and is not the end.
    while let Ok(Some(_)) = scan.next_batch() {}
    let facts = scan.facts(image, u64::MAX).facts;
    let place: ExtentOffset = scan.place;
    match table::judge_tail(facts) {
        TailVerdict::End | TailVerdict::Cut => {}
        TailVerdict::Refuse(what) => {
            return Err(LogError::Damaged(finding(place, scan.lsn(place), what)));
        }
    }
    let (end, bytes) = (scan.end, scan.batch_bytes);
    let seam = match scan.link {
        Some(link) => {
            Seam { end, index: link.index, checksum: link.checksum, term: link.term, bytes }
        }
        // The beginning of the log is gone, and so is every batch behind it.
        None => {
            return Err(LogError::Damaged(finding(place, scan.lsn(place), Damage::Batch)));
        }
    };
    Ok(End::of(seam))
}
