//! The way back: a log folder from a backup, to its end or to an earlier position.
//!
//! Order: all files of the backup are checked; a file that says *unfinished* is made; pages,
//! extents, the time index, the image; that file goes. While it is there no queue manager
//! starts. Not here: which position a time of day is in words of people (the caller reads those).
//!
//! Invariants: what is behind the end is not in the new folder, and the log goes on with a higher
//! term than the backup knows, so nothing of the old continuation can pass for one; a damaged
//! backup is refused before anything is written.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use towline_log::block::Aligned;
use towline_log::disk::{Disk, LinuxDisk};
use towline_log::folder::chain::ExtentOffset;
use towline_log::folder::files::{Files, Folder};
use towline_log::folder::images;
use towline_log::folder::names::{
    PAGES_NAME, RESTORING_NAME, TIME_INDEX_NAME, extent_name, image_name,
};
use towline_log::folder::scan::Scan;
use towline_log::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, ExtentHeader, LogId,
    VERSION_WITHOUT_CHECKS, padded, payload_sum, size,
};
use towline_log::time_index::{self, Row};
use towline_log::{LogError, Pages};
use towline_os::fs;
use towline_types::{CivilTime, Lsn, PAGE_UNIT_BYTES, PageRef, Time};

use crate::cut::{self, Cut};
use crate::damaged_batch::DamagedBatch;
use crate::error::BackupError;
use crate::extent_length::ExtentLength;
use crate::folder::{Backup, PIECE_BYTES};
use crate::manifest::{End, Manifest, Point};
use crate::progress::Progress;
use crate::view::View;

/// How far a log is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upto {
    /// To the end of the newest backup.
    End,
    /// To the last run that ends at or before this position.
    Lsn(Lsn),
    /// To the last position that is known to have been durable at this time.
    Time(Time),
}

/// What a restore came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Where the log ends now.
    pub end: Lsn,
    /// The image that it begins with.
    pub image: Option<Lsn>,
    /// When the log was there, if that is known.
    pub at: Option<Time>,
    /// Extents written.
    pub extents: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Batches that were damaged when the backup was made, and are here too.
    pub damaged: Vec<DamagedBatch>,
}

/// Restores into a data folder, which must be empty, missing, or left by an interrupted restore.
///
/// # Errors
/// [`BackupError`].
pub fn restore_folder(
    backup: &Backup,
    data: &Path,
    upto: Upto,
    progress: &mut dyn FnMut(Progress),
) -> Result<RestoreReport, BackupError> {
    const LOG: &str = "log";
    if fs::exists(data) {
        let failed = |e| LogError::io("look into", &data.display().to_string(), e);
        for entry in fs::read_dir(data).map_err(failed)? {
            if entry.map_err(failed)?.file_name() != LOG {
                return Err(BackupError::NotEmpty { folder: data.display().to_string() });
            }
        }
    }
    let log = data.join(LOG);
    if fs::is_dir(&log) {
        // Looked at before it is locked: a lock file alone makes a folder one that is not empty.
        check_empty(&LinuxDisk::read_only(&log)?)?;
    }
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&log)?);
    let restored = restore(backup, &disk, upto, progress)?;
    // The data folder's own name must survive a power cut as well.
    match fs::sync_name_of(data) {
        // Made by another user, in a folder that this one may only pass through.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(restored),
        Err(e) => Err(LogError::io("sync the folder above", &data.display().to_string(), e).into()),
        Ok(()) => Ok(restored),
    }
}

/// Restores into a log folder, which must be empty or left by an interrupted restore.
///
/// # Errors
/// [`BackupError`]. Once writing has begun, the folder is one that no queue manager starts with,
/// until a restore into it succeeds.
pub fn restore(
    backup: &Backup,
    disk: &Arc<dyn Disk>,
    upto: Upto,
    progress: &mut dyn FnMut(Progress),
) -> Result<RestoreReport, BackupError> {
    check_empty(disk.as_ref())?;
    let manifest = backup.listed()?;
    for sum in manifest.files() {
        let checked = backup.check_file(sum, &mut |_| {});
        checked.map_err(|what| BackupError::Damaged { file: sum.file.clone(), what })?;
    }
    let plan = Plan::of(backup, manifest, upto)?;
    let io = |doing: &'static str| {
        let folder = disk.name();
        move |e| LogError::io(doing, &folder, e)
    };
    make_empty(disk.as_ref()).map_err(io("empty the log folder"))?;
    let bytes = plan.write(disk.as_ref(), progress)?;
    let done = disk.sync_names().and_then(|()| disk.remove(RESTORING_NAME));
    done.and_then(|()| disk.sync_names()).map_err(io("finish the restore"))?;
    let end = Lsn(plan.end.lsn);
    let at = plan.rows.iter().rev().find(|row| row.upto <= end).map(|row| row.at);
    let image = plan.point.image.as_ref().map(|_| Lsn(plan.point.at));
    let held = plan.view.extents().filter(|extent| extent.sequence <= plan.last());
    let extents = held.count() as u64;
    let first = Lsn(plan.point.first_extent.saturating_mul(plan.extent_bytes));
    let damaged = manifest.damaged_within(first, end);
    Ok(RestoreReport { end, image, at, extents, bytes, damaged })
}

/// Names that a disk makes for itself.
fn is_of_the_disk(name: &str) -> bool {
    ["lock", "probe"].contains(&name)
}

pub(super) fn check_empty(disk: &dyn Disk) -> Result<(), BackupError> {
    let names = disk.list().map_err(|e| LogError::io("look into", &disk.name(), e))?;
    let unfinished = names.iter().any(|(name, _)| name == RESTORING_NAME);
    if !unfinished && names.iter().any(|(name, _)| !is_of_the_disk(name)) {
        return Err(BackupError::NotEmpty { folder: disk.name() });
    }
    Ok(())
}

/// Removes what an interrupted restore left, and marks the folder as one that is being filled.
pub(super) fn make_empty(disk: &dyn Disk) -> std::io::Result<()> {
    for (name, _) in disk.list()? {
        if !is_of_the_disk(&name) && name != RESTORING_NAME {
            disk.remove(&name)?;
        }
    }
    disk.create(RESTORING_NAME)?.sync_data()?;
    disk.sync_names()
}

/// What is written.
struct Plan {
    log_id: LogId,
    extent_bytes: u64,
    point: Point,
    view: View,
    end: End,
    /// The last batch, when it had to be made shorter.
    shortened: Option<(Lsn, Aligned)>,
    /// The newest term in the backup.
    term: u32,
    rows: Vec<Row>,
}

impl Plan {
    fn of(backup: &Backup, manifest: &Manifest, upto: Upto) -> Result<Plan, BackupError> {
        let rows = rows_of(backup, manifest)?;
        let newest = manifest.newest().ok_or_else(|| out_of_reach(manifest, &rows, upto))?;
        let upto_lsn = match upto {
            Upto::End => Lsn(newest.end.lsn),
            Upto::Lsn(lsn) => lsn,
            Upto::Time(time) => {
                let known = rows.partition_point(|row| row.at <= time);
                let row = known.checked_sub(1).and_then(|last| rows.get(last));
                // Behind the end of the backup nothing is known about the log.
                let row = row.filter(|_| time.0 <= newest.made_at);
                row.ok_or_else(|| out_of_reach(manifest, &rows, upto))?.upto
            }
        };
        let point = manifest.points.iter().rev().find(|point| point.earliest() <= upto_lsn);
        let point = point.filter(|_| upto_lsn <= Lsn(newest.end.lsn));
        let point = point.ok_or_else(|| out_of_reach(manifest, &rows, upto))?.clone();
        let reach = manifest.reach(&point);
        if Lsn(reach.lsn) < upto_lsn {
            let behind = manifest.points.iter().map(Point::earliest);
            let behind = behind.filter(|at| *at > upto_lsn).min().unwrap_or(upto_lsn);
            return Err(BackupError::Gap { asked: upto_lsn, before: Lsn(reach.lsn), behind });
        }
        if let Some(damaged) = manifest.damage_between(&point, upto_lsn) {
            let behind = manifest.points.iter().map(|point| Lsn(point.at));
            let behind = behind.filter(|at| *at > damaged.lsn).min();
            return Err(BackupError::DamageBetween { asked: upto_lsn, damaged, behind });
        }
        let view = Arc::new(View::of(backup, manifest, &point, reach)?);
        let log_id = manifest.log_id().ok_or_else(|| out_of_reach(manifest, &rows, upto))?;
        // Where a backup ended is known, also when nothing of the log was before it.
        let ends = manifest.points.iter().map(|point| point.end).chain([reach]);
        let cut = if let Some(end) = ends.into_iter().find(|end| Lsn(end.lsn) == upto_lsn) {
            Some(Cut { end, last: None })
        } else {
            let before = Lsn(point.first_extent.saturating_mul(manifest.extent_bytes));
            let damaged = manifest.damaged_within(before, Lsn(point.at));
            find_cut(&view, &point, &damaged, upto_lsn, reach, log_id)?
        };
        let Cut { end, last } = cut.ok_or_else(|| out_of_reach(manifest, &rows, upto))?;
        let view = View::of(backup, manifest, &point, end)?;
        let terms = manifest.points.iter().map(|point| point.end.term);
        let term = terms.fold(newest.end.term, u32::max);
        let rows = rows.into_iter().filter(|row| row.upto.0 <= end.lsn).collect();
        let (extent_bytes, shortened) = (manifest.extent_bytes, last);
        Ok(Plan { log_id, extent_bytes, point, view, end, shortened, term, rows })
    }

    /// The extent that holds the end.
    fn last(&self) -> u64 {
        self.end.place(self.extent_bytes).sequence
    }

    /// Yields how many bytes were written.
    fn write(
        &self,
        disk: &dyn Disk,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<u64, BackupError> {
        let pages: Vec<PageRef> = self.view.places().iter().map(|place| place.page).collect();
        let extents = self.view.extents().map(|extent| extent.bytes).sum::<u64>();
        let all = extents
            + pages.iter().map(|page| u64::from(page.units()) * PAGE_UNIT_BYTES).sum::<u64>();
        let mut progress = Progressing { tell: progress, done: 0, all, told: 0 };
        self.write_pages(disk, &pages, &mut progress)?;
        for ExtentLength { sequence, bytes } in self.view.extents() {
            self.write_extent(disk, sequence, bytes, &mut progress)?;
        }
        self.write_mark(disk, self.term)?;
        let failed = |e| LogError::io("write the time index", TIME_INDEX_NAME, e);
        if !self.rows.is_empty() {
            let file = time_index::write(disk, &self.rows).map_err(failed)?;
            file.sync_data().map_err(failed)?;
        }
        if self.point.image.is_some() {
            let name = image_name(Lsn(self.point.at));
            copy(&self.view, disk, &name, None, &mut progress)?;
        }
        Ok(progress.done)
    }

    fn write_pages(
        &self,
        disk: &dyn Disk,
        used: &[PageRef],
        progress: &mut Progressing<'_>,
    ) -> Result<(), BackupError> {
        const AT_ONCE: usize = 64;
        if used.is_empty() {
            return Ok(());
        }
        let failed = |e| LogError::io("write pages", PAGES_NAME, e);
        let from = Pages::of_file(self.view.open(PAGES_NAME).map_err(failed)?, used)?;
        let file = disk.create(PAGES_NAME).map_err(failed)?;
        for some in used.chunks(AT_ONCE) {
            for (page, content) in some.iter().zip(from.read_all(some)) {
                let mut buffer = Aligned::with_capacity(page.bytes as usize);
                buffer.append_to().extend_from_slice(&content?);
                buffer.pad();
                let at = u64::from(page.unit) * PAGE_UNIT_BYTES;
                file.write_at(buffer.bytes(), at).map_err(failed)?;
                progress.add(buffer.len() as u64);
            }
        }
        Ok(file.sync_data().map_err(failed)?)
    }

    fn write_extent(
        &self,
        disk: &dyn Disk,
        extent: u64,
        length: u64,
        progress: &mut Progressing<'_>,
    ) -> Result<(), BackupError> {
        let name = extent_name(extent);
        let begin = extent * self.extent_bytes;
        let shortened = self.shortened.as_ref().filter(|_| extent == self.last());
        // What is behind the cut must not get into the new folder, not even for a moment.
        let whole = shortened.map_or(length, |(lsn, _)| lsn.0 - begin);
        let file = copy(&self.view, disk, &name, Some(whole), progress)?;
        if let Some((lsn, batch)) = shortened {
            let written = file.write_at(batch.bytes(), lsn.0 - begin);
            let synced = written.and_then(|()| file.sync_data());
            synced.map_err(|e| LogError::io("write an extent", &name, e))?;
        }
        Ok(())
    }

    /// Writes a batch without records behind the end, with a term that the backup does not know: it
    /// drops a run that was never finished, and whatever the old log had here cannot follow it.
    fn write_mark(&self, disk: &dyn Disk, newest_term: u32) -> Result<(), BackupError> {
        let ExtentOffset { sequence: mut extent, mut offset } = self.end.place(self.extent_bytes);
        let name_of = extent_name;
        let failed = |e| LogError::io("write an extent", "extent", e);
        let block = padded(BATCH_HEADER_BYTES as u64);
        offset = offset.max(EXTENT_HEADER_BYTES as u64);
        let file = if offset + block <= self.extent_bytes {
            disk.open(&name_of(extent)).map_err(failed)?
        } else {
            (extent, offset) = (extent + 1, EXTENT_HEADER_BYTES as u64);
            let file = disk.create(&name_of(extent)).map_err(failed)?;
            let (log_id, extent_bytes) = (self.log_id, self.extent_bytes);
            let header = ExtentHeader { log_id, sequence: extent, extent_bytes };
            let mut block = Aligned::with_capacity(EXTENT_HEADER_BYTES);
            block.append_to().extend_from_slice(&header.encode());
            file.write_at(block.bytes(), 0).map_err(failed)?;
            file
        };
        let out_of_terms = LogError::Options { what: "the log has no terms left" };
        let mut header = BatchHeader {
            // It has no body, and may go into an extent of that version.
            version: VERSION_WITHOUT_CHECKS,
            payload_bytes: 0,
            checksum: 0,
            previous: self.end.checksum,
            lsn: Lsn(extent * self.extent_bytes + offset),
            term: newest_term.checked_add(1).ok_or(out_of_terms)?,
            unsynced: 0,
            index: self.end.index.checked_add(1).ok_or(LogError::Full)?,
        };
        header.checksum = header.sum(payload_sum(self.log_id, &[]));
        let mut buffer = Aligned::with_capacity(size(block));
        buffer.append_to().extend_from_slice(&header.encode());
        buffer.pad();
        let written = file.write_at(buffer.bytes(), offset);
        written.and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(())
    }
}

/// When the log was how long, as the newest backup knows it; the backups themselves included.
fn rows_of(backup: &Backup, manifest: &Manifest) -> Result<Vec<Row>, BackupError> {
    let mut rows = match &manifest.times {
        Some(sum) => time_index::decode(&backup.load(sum)?),
        None => Vec::new(),
    };
    let own = manifest.points.iter();
    rows.extend(own.map(|point| Row { at: Time(point.made_at), upto: Lsn(point.end.lsn) }));
    rows.sort_by_key(|row| (row.upto, row.at));
    // A clock that was set back stood still.
    let mut latest = Time::ZERO;
    for row in &mut rows {
        row.at = row.at.max(latest);
        latest = row.at;
    }
    Ok(rows)
}

fn out_of_reach(manifest: &Manifest, rows: &[Row], upto: Upto) -> BackupError {
    let first = manifest.earliest();
    let last = manifest.end();
    let asked = match upto {
        Upto::End => "the end".to_owned(),
        Upto::Lsn(lsn) => lsn.to_string(),
        Upto::Time(time) => CivilTime::of(time).to_string(),
    };
    BackupError::OutOfReach {
        asked,
        first,
        first_at: rows.iter().find(|row| row.upto >= first).map(|row| row.at),
        last,
        last_at: manifest.newest().map(|point| Time(point.made_at)),
    }
}

fn find_cut(
    view: &Arc<View>,
    point: &Point,
    damaged: &[DamagedBatch],
    upto: Lsn,
    reach: End,
    log_id: LogId,
) -> Result<Option<Cut>, BackupError> {
    let disk: Arc<dyn Disk> = Arc::clone(view) as Arc<dyn Disk>;
    let folder = Folder::list(disk.as_ref())?;
    let Some(mut files) = Files::of(&disk, &folder)? else { return Ok(None) };
    files.check(disk.as_ref(), ..)?;
    let header = match point.image {
        Some(_) => images::load_header(disk.as_ref(), Lsn(point.at))?,
        None => None,
    };
    let extent_bytes = files.identity().extent_bytes;
    let first = header.map_or(point.first_extent, |header| header.needs().0 / extent_bytes);
    let first = first.max(point.first_extent);
    let mut scan = Scan::new(&files, first);
    // What is damaged before the image is passed over: reading begins behind it.
    let inside = |damaged: &&DamagedBatch| damaged.lsn.0 / extent_bytes >= first;
    if let Some(last) = damaged.iter().rev().find(inside) {
        let place = scan.place_of(last.lsn.after(BLOCK_BYTES as u64));
        if let Some(whole) = scan.next_whole(place) {
            scan.go_on_at(whole.place);
        }
    }
    let found = cut::find(&mut scan, log_id, upto, reach)?;
    // The image's own last run is before its position.
    Ok(found.filter(|cut| cut.end.lsn >= point.at))
}

struct Progressing<'a> {
    tell: &'a mut dyn FnMut(Progress),
    done: u64,
    all: u64,
    told: u64,
}

impl Progressing<'_> {
    fn add(&mut self, bytes: u64) {
        const TELL_BYTES: u64 = 16 * 1024 * 1024;
        self.done += bytes;
        if self.done >= self.told + TELL_BYTES || self.done >= self.all {
            self.told = self.done;
            (self.tell)(Progress { done: self.done, all: self.all.max(self.done), extent: 0 });
        }
    }
}

/// Copies the first `most` bytes of a file (all without), and syncs the copy.
fn copy(
    from: &dyn Disk,
    to: &dyn Disk,
    name: &str,
    most: Option<u64>,
    progress: &mut Progressing<'_>,
) -> Result<Arc<dyn towline_log::disk::DiskFile>, BackupError> {
    let failed = |e| LogError::io("copy a file", name, e);
    let source = from.open(name).map_err(failed)?;
    let length = source.len().map_err(failed)?;
    let length = most.map_or(length, |most| most.min(length));
    let target = to.create(name).map_err(failed)?;
    target.reserve(length).map_err(failed)?;
    let mut at = 0;
    while at < length {
        let wanted = size(padded((length - at).min(PIECE_BYTES as u64)));
        let mut buffer = Aligned::zeroed(wanted);
        let count = source.read_at(buffer.bytes_mut(), at).map_err(failed)?;
        if count < wanted {
            return Err(failed(ErrorKind::UnexpectedEof.into()).into());
        }
        target.write_at(buffer.bytes(), at).map_err(failed)?;
        at += wanted as u64;
        progress.add(wanted as u64);
    }
    target.sync_data().map_err(failed)?;
    Ok(target)
}
