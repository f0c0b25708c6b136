//! Checking a backup, or the pages of a log at rest: are all bytes what was written?
//!
//! Not here: repair; what an image says (the caller finds its pages).
//!
//! Invariant: nothing is changed; damage is a finding, only what keeps from looking is an error.

use std::sync::Arc;

use bytes::Bytes;
use towline_log::block::Aligned;
use towline_log::disk::Disk;
use towline_log::folder::files::Folder;
use towline_log::folder::images::{self, LoadedImage};
use towline_log::format::{padded, size};
use towline_log::{Damage, Finding, LogError, Pages, offline};
use towline_types::{Lsn, PageRef};

use crate::copy::Lacks;
use crate::damaged_batch::DamagedBatch;
use crate::error::BackupError;
use crate::folder::{Backup, PIECE_BYTES};
use crate::manifest::{FileSum, Manifest, Point};
use crate::progress::Progress;
use crate::view::View;

/// Finds the pages that an image refers to; the reason in words when it is not understood.
pub type PagesOf<'a> = &'a dyn Fn(&Bytes) -> Result<Vec<PageRef>, String>;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files read, and their bytes.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Whole batches.
    pub batches: u64,
    /// Images that are whole.
    pub images: u64,
    /// Pages that are whole.
    pub pages: u64,
    /// The earliest position that can be restored.
    pub first: Option<Lsn>,
    /// Where the backup ends.
    pub last: Option<Lsn>,
    /// What is wrong, one line each.
    pub findings: Vec<String>,
    /// Batches that were damaged in the log when the backup was made, and are as they were then.
    pub damaged: Vec<DamagedBatch>,
}

impl CheckReport {
    /// Whether it can be restored as it was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether the log had this damage when it was copied.
    fn was_known(&self, found: &Finding) -> bool {
        // Of the last batch of all it is not seen whether it was torn.
        matches!(found.what, Damage::Batch | Damage::TornTail)
            && self.damaged.iter().any(|damaged| damaged.lsn == found.lsn)
    }
}

impl Backup {
    /// Reads all of a backup and checks it: lengths and checksums of its files, the chain of the
    /// log, images, and the pages that they refer to.
    ///
    /// # Errors
    /// What keeps it from being read at all.
    pub fn check(
        &self,
        pages_of: PagesOf<'_>,
        lacks: Lacks,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CheckReport, BackupError> {
        let manifest = self.listed()?;
        let mut report = CheckReport {
            first: manifest.points.first().map(Point::earliest),
            last: manifest.newest().map(|point| Lsn(point.end.lsn)),
            damaged: manifest.damaged_batches(),
            ..CheckReport::default()
        };
        let mut now = Progress { done: 0, all: manifest.bytes(), extent: 0 };
        for sum in manifest.files() {
            report.files += 1;
            let mut read = |bytes: u64| {
                now.done += bytes;
                progress(now);
            };
            if let Err(what) = self.check_file(sum, &mut read) {
                report.findings.push(format!("{}: {what}", sum.file));
            }
        }
        report.bytes = now.done;
        if report.is_sound() {
            self.check_points(manifest, pages_of, lacks, &mut report)?;
        }
        Ok(report)
    }

    /// Reads a file and compares length and checksum. `read` is called with the length of each
    /// piece.
    pub(super) fn check_file(
        &self,
        sum: &FileSum,
        read: &mut dyn FnMut(u64),
    ) -> Result<(), String> {
        let file = self.file(sum).map_err(|error| error.to_string())?;
        let mut buffer = Aligned::zeroed(PIECE_BYTES);
        let (mut at, mut found) = (0, 0);
        while at < sum.bytes {
            let wanted = size((sum.bytes - at).min(PIECE_BYTES as u64));
            let wanted_blocks = size(padded(wanted as u64));
            let count = file.read_at(buffer.first_mut(wanted_blocks), at);
            let count = count.map_err(|error| error.to_string())?;
            let bytes = buffer.first(wanted.min(count));
            if bytes.len() < wanted {
                return Err("it is too short".into());
            }
            found = crc32c::crc32c_append(found, bytes);
            at += wanted as u64;
            read(wanted as u64);
        }
        if found == sum.crc32c { Ok(()) } else { Err("its checksum is wrong".into()) }
    }

    fn check_points(
        &self,
        manifest: &Manifest,
        pages_of: PagesOf<'_>,
        lacks: Lacks,
        report: &mut CheckReport,
    ) -> Result<(), BackupError> {
        let mut walked: Option<(u64, u64)> = None;
        for point in &manifest.points {
            let reach = manifest.reach(point);
            let view = View::of(self, manifest, point, reach)?;
            let named: Vec<PageRef> = view.places().iter().map(|place| place.page).collect();
            let disk: Arc<dyn Disk> = Arc::new(view);
            if point.image.is_some() {
                check_image(&disk, Lsn(point.at), Some(&named), pages_of, report)?;
            }
            // What keeps a start from reading the copy so is a finding already, or no damage.
            let ended: Arc<dyn Disk> = Arc::new(View::of(self, manifest, point, point.end)?);
            if let Ok(Some(lacking)) = lacks(&ended) {
                let end = Lsn(point.end.lsn);
                let found = format!("the backup up to {end} lacks, with live messages: {lacking}");
                report.findings.push(found);
            }
            // What an earlier point reaches was walked over with it.
            let new = walked.is_none_or(|(from, to)| point.first_extent < from || reach.lsn > to);
            if new {
                let log = offline::verify_disk(&disk)?;
                report.batches += log.batches;
                let new = log.findings.iter().filter(|found| !report.was_known(found));
                let new: Vec<String> = new.map(ToString::to_string).collect();
                report.findings.extend(new);
                let last = report.damaged.last().map_or(Lsn::ZERO, |damaged| damaged.lsn);
                let ends = log.last == Some(Lsn(reach.lsn));
                if !ends && reach.index > 0 && log.last.is_none_or(|end| end > last) {
                    report.findings.push(format!("the log does not end at {}", Lsn(reach.lsn)));
                }
                walked = Some((point.first_extent, reach.lsn));
            }
        }
        Ok(())
    }
}

/// Checks the newest image of a log folder and its pages.
///
/// # Errors
/// What keeps them from being read at all.
pub fn check_newest_image(
    disk: &Arc<dyn Disk>,
    pages_of: PagesOf<'_>,
) -> Result<CheckReport, BackupError> {
    let mut report = CheckReport::default();
    if let Some(at) = Folder::list(disk.as_ref())?.images.last() {
        check_image(disk, *at, None, pages_of, &mut report)?;
    }
    Ok(report)
}

/// Checks an image and its pages on a disk; `named`: the pages that are there.
fn check_image(
    disk: &Arc<dyn Disk>,
    at: Lsn,
    named: Option<&[PageRef]>,
    pages_of: PagesOf<'_>,
    report: &mut CheckReport,
) -> Result<(), BackupError> {
    let content = match images::load(disk.as_ref(), at)? {
        LoadedImage::Whole(_, content) => content,
        LoadedImage::Damaged => {
            report.findings.push(format!("the image at {at} is damaged"));
            return Ok(());
        }
    };
    report.images += 1;
    let mut pages = match pages_of(&content) {
        Ok(pages) => pages,
        Err(why) => {
            report.findings.push(format!("the image at {at} cannot be understood: {why}"));
            return Ok(());
        }
    };
    pages.sort_unstable();
    if named.is_some_and(|named| named != pages) {
        report.findings.push(format!("the image at {at} refers to other pages than are there"));
        return Ok(());
    }
    check_pages(disk, &pages, report);
    Ok(())
}

fn check_pages(disk: &Arc<dyn Disk>, pages: &[PageRef], report: &mut CheckReport) {
    const AT_ONCE: usize = 256;
    if pages.is_empty() {
        return;
    }
    let opened = match Pages::open(Arc::clone(disk), pages.iter().copied()) {
        Ok(opened) => opened,
        Err(error) => {
            report.findings.push(error.to_string());
            return;
        }
    };
    for some in pages.chunks(AT_ONCE) {
        for result in opened.read_all(some) {
            match result {
                Ok(_) => report.pages += 1,
                Err(LogError::Damaged(finding)) => report.findings.push(finding.to_string()),
                Err(error) => report.findings.push(error.to_string()),
            }
        }
    }
}
