//! Making a backup: copies what the folder does not have yet, checks it, and then makes it count.
//!
//! Order: image, pages, extents from the oldest on, their check, the manifest, and only then is
//! removed what no point needs any more. Not here: holding back what is being copied (the caller
//! does).
//!
//! Invariants: what the manifest names now is never written to; whatever fails before the new
//! manifest counts leaves the old one as good as it was.

use std::collections::BTreeSet;
use std::sync::Arc;

use towline_log::block::Aligned;
use towline_log::disk::{Disk, DiskFile};
use towline_log::folder::chain::ExtentOffset;
use towline_log::folder::files::{Files, Folder};
use towline_log::folder::names::extent_name;
use towline_log::folder::scan::Scan;
use towline_log::format::{BLOCK_BYTES, EXTENT_VERSION, FORMAT_VERSION, ImageHeader, padded, size};
use towline_log::time_index::{self, Row};
use towline_log::{LogError, is_unreadable};
use towline_types::{Lsn, Time};

use crate::account::CopyAccount;
use crate::damage;
use crate::damaged_batch::DamagedBatch;
use crate::error::BackupError;
use crate::folder::{Backup, PIECE_BYTES, file_name, serial_in_name};
use crate::manifest::{
    DamageNote, End, FileSum, MANIFEST_VERSION, Manifest, Part, Point, VERSION_WITHOUT_DAMAGE,
};
use crate::packs::{self, PackName, SourcePages};
use crate::progress::Progress;
use crate::source::Source;
use crate::view::View;

/// Looks at a log folder as a start would: the extents that it lacks for its messages, in words;
/// `None`: it has them all. Else why that cannot be known.
pub type Lacks = fn(&Arc<dyn Disk>) -> Result<Option<String>, String>;

/// How a backup is made.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Copy everything again, and let go of what was there.
    pub full: bool,
    /// Points that are kept, 1 or more: how many backups back the log can be taken.
    pub keep_points: usize,
    /// Name of the queue manager, if it is known.
    pub queue_manager: Option<String>,
    /// The time now.
    pub now: Time,
    /// The newest point gives way: it was made a moment ago, and the log was repaired since.
    pub instead: bool,
    /// Asked before the new backup counts: what it lacks, no older one may be given up for.
    pub lacks: Lacks,
}

/// What a backup came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Where it ends: all runs that end at or before this position are in it.
    pub end: Lsn,
    /// Position of its image.
    pub image: Option<Lsn>,
    /// The earliest position that can be restored.
    pub first: Lsn,
    /// Bytes written.
    pub bytes: u64,
    /// Files written.
    pub files: u64,
    /// Bytes of all files of the backup together.
    pub bytes_held: u64,
    /// Whether there was nothing to carry on from.
    pub full: bool,
    /// Batches in it that are damaged in the log too: all else can be restored.
    pub damaged: Vec<DamagedBatch>,
}

impl Backup {
    /// Adds a copy of `source` and of its pages to the backup. `rows`: when the log was how long.
    /// `progress` is called while bytes are copied; it may release extents that are copied.
    ///
    /// # Errors
    /// [`BackupError`]: what was there before can still be used. What was written meanwhile is
    /// removed, unless the error leaves open whether the new list counts: then the next backup
    /// does it.
    pub fn add(
        &mut self,
        source: &Source,
        pages: SourcePages<'_>,
        rows: &[Row],
        choices: &Choices,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<BackupReport, BackupError> {
        let added = self.copy(source, pages, rows, choices, progress);
        // When a manifest counts, what it does not name is what older points needed.
        let tidied = self.remove_leftovers();
        let done = added?;
        tidied?;
        Ok(done)
    }

    fn copy(
        &mut self,
        source: &Source,
        pages: SourcePages<'_>,
        rows: &[Row],
        choices: &Choices,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<BackupReport, BackupError> {
        let before = self.before(source, choices.full)?;
        let serial = self.manifest.as_ref().map_or(0, |manifest| manifest.serial) + 1;
        let missing = missing_parts(source, before.as_ref(), serial)?;
        let all = missing.iter().map(|part| part.sum.bytes).sum::<u64>()
            + pages
                .used
                .iter()
                .map(|page| u64::from(page.units()) * BLOCK_BYTES as u64)
                .sum::<u64>();
        let disk = Arc::clone(&self.disk);
        let mut tell = |now: Progress| {
            self.tell_progress(now.done, now.all);
            progress(now);
        };
        let progress = Progress { done: 0, all, extent: source.first };
        let mut written =
            CopyAccount { disk, tell: &mut tell, progress, told: 0, files: 0, bytes: 0 };
        written.tell();
        let at = source.image.as_ref().map(|(header, _)| header.at);
        let image = self.copy_image(source, before.as_ref(), serial, &mut written)?;
        let (places, pack) = match before.as_ref().and_then(Manifest::newest) {
            // The same image once more: its pages are there.
            Some(newest) if at.is_some() && newest.image == image => (newest.places.clone(), None),
            _ => {
                let name = PackName { at: source.image_at(), serial };
                let copied = packs::copy(self, pages, before.as_ref(), name, &mut written)?;
                (copied.table, copied.pack)
            }
        };
        let first_new = missing.first().map(|part| part.extent);
        let parts = copy_parts(source, missing, &mut written)?;
        let point = Point {
            at: at.map_or(0, |at| at.0),
            earliest: source.earliest(),
            image,
            places,
            first_extent: source.first,
            end: source.end,
            made_at: choices.now.0,
        };
        let mut manifest = new_manifest(source, before, serial, choices);
        if choices.instead {
            manifest.points.pop();
        }
        manifest.add(point, parts, pack, choices.keep_points.max(1));
        let serials = packs::packs_of(self, &manifest)?;
        manifest.packs.retain(|pack| {
            serial_in_name(&pack.file).is_some_and(|serial| serials.contains(&serial))
        });
        let rows = self.rows(&manifest, rows, source.end())?;
        if !rows.is_empty() {
            let name = file_name("times", source.end(), serial);
            manifest.times = Some(written.file(&name, &time_index::encode(&rows))?);
        }
        let found =
            first_new.map(|from| find_damage(self, &manifest, source, from.max(source.first)));
        // Without a new part there is nothing that could be damaged.
        manifest.note_damage(found.transpose()?.unwrap_or_default());
        self.refuse_loss(&manifest, choices.lacks)?;
        let (files, bytes) = (written.files, written.bytes);
        let full = self.manifest.is_none() || choices.full;
        let (end, bytes_held) = (source.end(), manifest.bytes());
        let first = manifest.earliest();
        let damaged = manifest.damaged_batches();
        self.publish(manifest)?;
        Ok(BackupReport { end, image: at, first, bytes, files, bytes_held, full, damaged })
    }

    /// Whatever the source said of itself: what counts now stays when the new list does not have
    /// the extents that its own messages need, or gives some up and it is not known which.
    fn refuse_loss(&self, manifest: &Manifest, lacks: Lacks) -> Result<(), BackupError> {
        let Some(point) = manifest.newest() else { return Ok(()) };
        let view: Arc<dyn Disk> = Arc::new(View::of(self, manifest, point, point.end)?);
        match lacks(&view) {
            Ok(None) => Ok(()),
            Ok(Some(file)) => Err(BackupError::ExtentGone { file }),
            Err(why) => {
                let mut held = self.manifest.iter().flat_map(|before| &before.parts);
                let lost = held.find(|part| manifest.held(part.extent) == 0);
                lost.map_or(Ok(()), |part| {
                    Err(BackupError::NotKnown { file: extent_name(part.extent), why })
                })
            }
        }
    }

    /// The manifest to carry on from.
    fn before(&self, source: &Source, full: bool) -> Result<Option<Manifest>, BackupError> {
        let Some(manifest) = &self.manifest else { return Ok(None) };
        if manifest.log_id() != Some(source.log_id) || manifest.extent_bytes != source.extent_bytes
        {
            return Err(BackupError::OtherLog { folder: self.disk.name() });
        }
        if full {
            return Ok(None);
        }
        let Some(newest) = manifest.newest() else { return Ok(None) };
        if !goes_through(source, newest.end)? || source.image_at() < Lsn(newest.at) {
            return Err(BackupError::OtherHistory { end: Lsn(newest.end.lsn) });
        }
        let mut manifest = manifest.clone();
        manifest.drop_what_was_repaired(source)?;
        Ok(Some(manifest))
    }

    /// When the log was how long, from the first point on: as the last backup knew it, and then as
    /// the log does.
    fn rows(&self, manifest: &Manifest, new: &[Row], end: Lsn) -> Result<Vec<Row>, BackupError> {
        let mut rows = match self.manifest.as_ref().and_then(|before| before.times.as_ref()) {
            Some(sum) => time_index::decode(&self.load(sum)?),
            None => Vec::new(),
        };
        let known = new.first().map_or(end, |row| row.upto);
        rows.retain(|row| row.upto < known);
        rows.extend(new.iter().filter(|row| row.upto <= end));
        let first = manifest.earliest();
        rows.retain(|row| row.upto >= first);
        Ok(time_index::bounded(rows))
    }

    /// The image as a file; the one that is there, when it is the same.
    fn copy_image(
        &self,
        source: &Source,
        before: Option<&Manifest>,
        serial: u64,
        written: &mut CopyAccount<'_>,
    ) -> Result<Option<FileSum>, BackupError> {
        let Some((header, _)) = &source.image else { return Ok(None) };
        let mut bytes = source.image_file();
        bytes.resize(size(padded(bytes.len() as u64)), 0);
        let newest = before.and_then(Manifest::newest).filter(|point| point.at == header.at.0);
        if let Some(known) = newest.and_then(|point| point.image.as_ref())
            && self.load(known)? == bytes
        {
            return Ok(Some(known.clone()));
        }
        written.file(&file_name("image", header.at, serial), &bytes).map(Some)
    }
}

impl Source {
    fn earliest(&self) -> u64 {
        match &self.image {
            // Version 1: the log is read from there on, and the image speaks of more.
            Some((ImageHeader { seam: None, .. }, _)) => self.end.lsn,
            Some((header, _)) => header.at.0,
            None => 0,
        }
    }

    pub(super) fn image_at(&self) -> Lsn {
        self.image.as_ref().map_or(Lsn::ZERO, |(header, _)| header.at)
    }
}

impl Point {
    /// The earliest position that can be restored from it.
    pub(super) fn earliest(&self) -> Lsn {
        Lsn(self.earliest)
    }
}

/// Whether the log has the batch at which the last backup ended, or begins behind it.
fn goes_through(source: &Source, end: End) -> Result<bool, BackupError> {
    if source.end.lsn < end.lsn {
        return Ok(false);
    }
    if end.index == 0 || end.place(source.extent_bytes).sequence < source.first {
        return Ok(true);
    }
    let folder = Folder::list(source.disk.as_ref())?;
    let Some(files) = Files::of(&source.disk, &folder)? else { return Ok(false) };
    let mut scan = Scan::behind(&files, end.seam());
    let follows = scan.follows(end.seam());
    let name = source.disk.name();
    follows.map_err(|e| LogError::io("read the end of the last backup", &name, e).into())
}

/// What the backup lacks of the extents, with names and lengths; checksums are not known yet.
fn missing_parts(
    source: &Source,
    before: Option<&Manifest>,
    serial: u64,
) -> Result<Vec<Part>, BackupError> {
    let ExtentOffset { sequence: last, offset } = source.end.place(source.extent_bytes);
    let mut parts = Vec::new();
    for extent in source.first..=last {
        let name = extent_name(extent);
        let to = if extent == last {
            offset
        } else {
            let file = source.disk.open(&name);
            let length = file.and_then(|file| file.len());
            length.map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => BackupError::ExtentGone { file: name.clone() },
                _ => LogError::io("open an extent", &name, e).into(),
            })?
        };
        let from = before.map_or(0, |before| before.held(extent));
        if from < to {
            let at = Lsn(extent * source.extent_bytes + from);
            let sum = FileSum { file: file_name("log", at, serial), bytes: to - from, crc32c: 0 };
            parts.push(Part { extent, from, sum });
        }
    }
    Ok(parts)
}

fn copy_parts(
    source: &Source,
    mut parts: Vec<Part>,
    written: &mut CopyAccount<'_>,
) -> Result<Vec<Part>, BackupError> {
    for part in &mut parts {
        written.progress.extent = part.extent;
        let (extent, name) = (extent_name(part.extent), part.sum.file.clone());
        let from = source.disk.open(&extent);
        let from = from.map_err(|e| LogError::io("open an extent", &extent, e))?;
        let failed = |e| LogError::io("write a file of the backup", &name, e);
        let to = written.disk.create(&name).map_err(failed)?;
        to.reserve(part.sum.bytes).map_err(failed)?;
        let mut buffer = Aligned::zeroed(PIECE_BYTES);
        let mut done = 0;
        while done < part.sum.bytes {
            let wanted = size((part.sum.bytes - done).min(PIECE_BYTES as u64));
            buffer.truncate(wanted);
            read_piece(from.as_ref(), &mut buffer, part.from + done)
                .map_err(|e| LogError::io("read an extent", &extent, e))?;
            to.write_at(buffer.bytes(), done).map_err(failed)?;
            part.sum.crc32c = crc32c::crc32c_append(part.sum.crc32c, buffer.bytes());
            done += wanted as u64;
            written.add(wanted as u64);
        }
        to.sync_data().map_err(failed)?;
        written.files += 1;
        written.bytes += part.sum.bytes;
    }
    Ok(parts)
}

/// Reads a piece. Blocks that the disk does not give back are zeros in the copy: the batch they
/// belong to is found to be damaged when the copy is read.
pub(super) fn read_piece(
    from: &dyn DiskFile,
    buffer: &mut Aligned,
    at: u64,
) -> std::io::Result<()> {
    let short = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    match from.read_at(buffer.bytes_mut(), at) {
        Ok(count) if count < buffer.len() => return Err(short()),
        Ok(_) => return Ok(()),
        Err(error) if !is_unreadable(&error) => return Err(error),
        Err(_) => {}
    }
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    let places = (at..).step_by(BLOCK_BYTES);
    for (to, at) in buffer.bytes_mut().chunks_mut(BLOCK_BYTES).zip(places) {
        match from.read_at(block.bytes_mut(), at) {
            Ok(count) if count < to.len() => return Err(short()),
            Ok(_) => to.copy_from_slice(block.first(to.len())),
            Err(error) if is_unreadable(&error) => to.fill(0),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn new_manifest(
    source: &Source,
    before: Option<Manifest>,
    serial: u64,
    choices: &Choices,
) -> Manifest {
    let known = before.as_ref().and_then(|before| before.queue_manager.clone());
    let (parts, packs, points, damaged) =
        before.map_or_else(Default::default, |old| (old.parts, old.packs, old.points, old.damaged));
    Manifest {
        version: VERSION_WITHOUT_DAMAGE,
        log_id: Manifest::id_text(source.log_id),
        extent_bytes: source.extent_bytes,
        extent_version: EXTENT_VERSION,
        image_version: FORMAT_VERSION,
        serial,
        queue_manager: choices.queue_manager.clone().or(known),
        towline: env!("CARGO_PKG_VERSION").to_owned(),
        parts,
        packs,
        points,
        times: None,
        damaged,
    }
}

impl Manifest {
    /// Adds a point and what belongs to it, and lets go of the oldest ones and of what only they
    /// need.
    fn add(&mut self, point: Point, parts: Vec<Part>, pack: Option<FileSum>, keep: usize) {
        self.points.retain(|old| old.image != point.image);
        self.points.push(point);
        let excess = self.points.len().saturating_sub(keep);
        self.points.drain(..excess);
        self.packs.extend(pack);
        self.parts.extend(parts);
        self.parts.sort_by_key(|part| (part.extent, part.from));
        let mut needed = BTreeSet::new();
        for point in &self.points {
            let last = self.reach(point).place(self.extent_bytes).sequence;
            needed.extend(point.first_extent..=last);
        }
        self.parts.retain(|part| needed.contains(&part.extent));
        let extent_bytes = self.extent_bytes;
        self.damaged.retain(|noted| needed.contains(&(noted.lsn / extent_bytes)));
    }

    /// Damage that was found now, beside what was known before.
    fn note_damage(&mut self, found: Vec<DamageNote>) {
        let known = |noted: &DamageNote| found.iter().any(|new| new.lsn == noted.lsn);
        self.damaged.retain(|noted| !known(noted));
        self.damaged.extend(found);
        self.damaged.sort_by_key(|noted| noted.lsn);
        self.version = match self.damaged.is_empty() {
            true => VERSION_WITHOUT_DAMAGE,
            false => MANIFEST_VERSION,
        };
    }
}

/// Reads the copy of the log, from an extent on, to its end: what was copied is what was written
/// there once, and the target gives it back. Yields what is damaged, where a restart needs none of
/// it.
fn find_damage(
    backup: &Backup,
    manifest: &Manifest,
    source: &Source,
    from: u64,
) -> Result<Vec<DamageNote>, BackupError> {
    let none = || BackupError::NotABackup { folder: backup.disk.name(), file: String::new() };
    let point = manifest.newest().ok_or_else(none)?;
    let view: Arc<dyn Disk> = Arc::new(View::of(backup, manifest, point, point.end)?);
    let folder = Folder::list(view.as_ref())?;
    let mut files = Files::of(&view, &folder)?.ok_or_else(none)?;
    let checked = files.check(view.as_ref(), ..);
    let image = source.image.as_ref().map(|(header, _)| header);
    let found = checked.and_then(|()| damage::look(&files, from, point.end, image));
    found.map_err(|error| match error {
        LogError::Damaged(finding) => BackupError::SourceDamaged(finding),
        other => other.into(),
    })
}
