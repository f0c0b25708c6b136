//! Bringing back what is damaged in a log at rest, from a backup or from the log of another
//! instance; in `running`, one batch of a log that runs.
//!
//! Not here: cutting a torn tail (`recover`), images and pages (they are made anew from the log).
//!
//! Invariants: nothing that verifies is changed; what is written was proven to be the original: by
//! the checksum in the header that is left of it, by the next batch, which names it, or, for an
//! extent in which the log ended, by the image, which names the batch behind which it was taken.
//! Another instance has the same records at the same position under a header of its own, so only
//! they are taken from it.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn};

use crate::block::Aligned;
use crate::coverage::Coverage;
use crate::disk::{Disk, DiskFile, LinuxDisk};
use crate::error::{Damage, Finding, LogError};
use crate::folder::chain::{ExtentOffset, Link, finding};
use crate::folder::files::{Files, Folder, no_extents};
use crate::folder::headers::Identity;
use crate::folder::images::Images;
use crate::folder::names::{NEW_NAME, extent_name};
use crate::folder::scan::{Scan, WholeBatch};
use crate::folder::table::{self, TailVerdict};
use crate::format::{
    BATCH_HEADER_BYTES, BATCH_VERSION, BLOCK_BYTES, BatchHeader, ImageHeader,
    VERSION_WITHOUT_CHECKS, padded, payload_sum, size,
};
use crate::mark::Seam;

/// Batches before one in flight with it that are tried when its header is lost.
const UNSYNCED_TRIED: u32 = 4_096;
/// Bytes copied at a time when a whole extent is copied back.
const COPY_BYTES: u64 = 4 * 1024 * 1024;

/// Damage that could not be mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageLeft {
    /// What is damaged.
    pub found: Finding,
    /// Why it stays so.
    pub why: &'static str,
}

/// What was done to a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MendReport {
    /// What was damaged and is as it was written again.
    pub mended: Vec<Finding>,
    /// What is damaged still, and why.
    pub left: Vec<DamageLeft>,
    /// Bytes that were written.
    pub bytes: u64,
    /// The log ends here with what the source has: nothing shows whether the missing extent held
    /// more.
    pub ends_at: Option<Lsn>,
}

/// The file beside the log that identifies it to the group; it is removed when the log may have
/// become shorter, so that no vote or acknowledgement of this instance counts any more.
const INCARNATION_NAME: &str = "incarnation";

/// Mends the log in `folder`, which no process uses, from another log folder. Of the extents
/// missing before the oldest existing one, those from the oldest `wanted` one on are restored.
///
/// # Errors
/// [`LogError`]: one of them cannot be read, is of another log, or a write failed.
pub fn mend_from_log(
    folder: &Path,
    from: &Path,
    wanted: &[u64],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MendReport, LogError> {
    let target: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder)?);
    let source: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(from)?);
    mend(&target, &source, wanted, progress)
}

/// [`mend_from_log`] of any disks.
///
/// # Errors
/// As [`mend_from_log`].
pub fn mend(
    target: &Arc<dyn Disk>,
    source: &Arc<dyn Disk>,
    wanted: &[u64],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<MendReport, LogError> {
    let empty = || LogError::Options { what: "there is no log to take from" };
    let there = Folder::list(source.as_ref())?;
    let mut from = Files::of(source, &there)?.ok_or_else(empty)?;
    from.check(source.as_ref(), ..)?;
    let identity = from.identity();
    let mut report = MendReport::default();
    let mut take = |place| whole_of(&from, place);
    let mut mender = Mender { target, take: &mut take, identity, report: &mut report };
    mender.extents(&from, wanted)?;
    let folder = Folder::list(target.as_ref())?;
    let Some(mut files) = Files::of(target, &folder)? else { return Ok(report) };
    match files.check(target.as_ref(), ..) {
        // Without it the chain cannot be followed.
        Err(LogError::Damaged(found)) => {
            if report.left.is_empty() {
                let why = "the file cannot be used, and is not gone";
                report.left.push(DamageLeft { found, why });
            }
            return Ok(report);
        }
        checked => checked?,
    }
    if files.identity() != identity {
        return Err(LogError::OtherLog { file: extent_name(from.first()) });
    }
    mender.batches(&files, files.first(), folder.images.last().copied(), progress)?;
    Ok(report)
}

/// Mends batches from extent `first` on of the log in `folder`, which no process uses, with what
/// `ask` yields: other instances' answers to [`crate::Log::batch_over`] for a part of the log,
/// which lies where a batch begins. Damaged headers of extents are written again without asking;
/// extents that are gone stay so.
///
/// # Errors
/// As [`mend_from_log`].
pub fn mend_by_asking(
    folder: &Path,
    first: u64,
    ask: &mut dyn FnMut(BodyLocation) -> Option<Bytes>,
) -> Result<MendReport, LogError> {
    let target: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder)?);
    mend_asked(&target, first, ask)
}

/// [`mend_by_asking`] of any disk.
fn mend_asked(
    target: &Arc<dyn Disk>,
    first: u64,
    ask: &mut dyn FnMut(BodyLocation) -> Option<Bytes>,
) -> Result<MendReport, LogError> {
    let mut report = MendReport::default();
    let folder = Folder::list(target.as_ref())?;
    let Some(mut files) = Files::of(target, &folder)? else { return Ok(report) };
    let first = first.max(files.first());
    let identity = files.identity();
    for &sequence in folder.extents.range(first..) {
        if headers::is_damaged(target.as_ref(), sequence, identity)? {
            let name = extent_name(sequence);
            let written = headers::write(target.as_ref(), sequence, identity);
            report.bytes += written.map_err(|e| LogError::io("write a header again", &name, e))?;
            let lsn = Lsn(sequence * identity.extent_bytes);
            let what = Damage::ExtentHeader;
            report.mended.push(Finding { file: name, extent: sequence, offset: 0, lsn, what });
        }
    }
    files.check(target.as_ref(), first..)?;
    let mut take = |place| asked(identity, place, ask);
    let mut mender = Mender { target, take: &mut take, identity, report: &mut report };
    mender.batches(&files, first, folder.images.last().copied(), &mut |_, _| {})?;
    Ok(report)
}

/// The whole batch that another instance claims to have at a position.
fn asked(
    identity: Identity,
    place: ExtentOffset,
    ask: &mut dyn FnMut(BodyLocation) -> Option<Bytes>,
) -> Option<Taken> {
    let lsn = Lsn(place.sequence * identity.extent_bytes + place.offset);
    // A batch is as long as its header at least.
    let bytes = u32::try_from(BATCH_HEADER_BYTES).ok()?;
    let came = ask(BodyLocation { lsn, bytes })?;
    let header = BatchHeader::decode(&came)?;
    let payload = came.get(BATCH_HEADER_BYTES..)?;
    let is_whole = header.lsn == lsn
        && header.batch_bytes() == came.len() as u64
        && header.batch_bytes() <= identity.extent_bytes.checked_sub(place.offset)?
        && header.sum(payload_sum(identity.log_id, payload)) == header.checksum;
    is_whole.then(|| (header, payload.to_vec()))
}

/// The whole batch that another log has at a position.
fn whole_of(from: &Files, place: ExtentOffset) -> Option<Taken> {
    let Identity { log_id, extent_bytes } = from.identity();
    let lsn = Lsn(place.sequence * extent_bytes + place.offset);
    let file = from.file(place.sequence).ok()?;
    let (header, payload) = read(file.as_ref(), place, extent_bytes)?;
    let is_whole =
        header.lsn == lsn && header.sum(payload_sum(log_id, &payload)) == header.checksum;
    is_whole.then_some((header, payload))
}

/// Header and payload of a batch.
type Taken = (BatchHeader, Vec<u8>);

/// What shows that an extent of the source is what was here.
enum Continuation {
    /// The batch behind it.
    Next,
    /// The image; the source ends there.
    Image(Lsn),
}

struct Mender<'a> {
    target: &'a Arc<dyn Disk>,
    /// The whole batch that the source has at a position.
    take: &'a mut dyn FnMut(ExtentOffset) -> Option<Taken>,
    identity: Identity,
    report: &'a mut MendReport,
}

/// A batch as it stood in the log that is mended.
struct Proven {
    header: BatchHeader,
    /// In whole blocks.
    bytes: Aligned,
}

impl Mender<'_> {
    /// Restores missing extents, and damaged headers of extents.
    fn extents(&mut self, from: &Files, wanted: &[u64]) -> Result<(), LogError> {
        let folder = Folder::list(self.target.as_ref())?;
        let (Some(&first), Some(&last)) = (folder.extents.first(), folder.extents.last()) else {
            if let (true, LogError::Damaged(found)) = (folder.held_log(), no_extents(&folder)) {
                let why = "no extent is left that the source could continue";
                self.report.left.push(DamageLeft { found, why });
            }
            return Ok(());
        };
        let Identity { log_id, extent_bytes } = self.identity;
        let image = Images::load(self.target.as_ref(), &folder, log_id, Lsn(u64::MAX))?.newest;
        let image = image.map(|(header, _)| header);
        let needed = image.map(|header| header.needs().0 / extent_bytes);
        let coverage = Coverage::of(folder.extents.iter().copied(), needed);
        let last = needed.map_or(last, |needed| needed.max(last));
        // And those between, so that there is no gap.
        let oldest = wanted.iter().copied().chain(needed).min();
        let oldest = oldest.map_or(first, |oldest| oldest.min(first));
        for sequence in oldest..=last {
            let what = if folder.extents.contains(&sequence) {
                if !headers::is_damaged(self.target.as_ref(), sequence, self.identity)? {
                    continue;
                }
                Damage::ExtentHeader
            } else if needed == Some(sequence) {
                Damage::ImageExtentMissing(coverage)
            } else if sequence < first {
                Damage::OldestMissing(coverage)
            } else {
                Damage::ExtentMissing(coverage)
            };
            let lsn = Lsn(sequence.saturating_mul(extent_bytes));
            let file = extent_name(sequence);
            let found = Finding { file, extent: sequence, offset: 0, lsn, what };
            let failed = |e| LogError::io("bring an extent back", &extent_name(sequence), e);
            let done = match what {
                Damage::ExtentHeader => {
                    headers::write(self.target.as_ref(), sequence, self.identity)
                        .map(|bytes| self.report.bytes += bytes)
                }
                // A backup has of its last extent what was written of it.
                _ if from.length(sequence).is_none() => {
                    let why = "the source does not have it";
                    self.report.left.push(DamageLeft { found, why });
                    continue;
                }
                _ => match self.continues(from, sequence, image) {
                    Some(Continuation::Next) => self.copy_extent(from, sequence),
                    Some(Continuation::Image(end)) => {
                        self.shortened(end).map_err(failed)?;
                        self.copy_extent(from, sequence)
                    }
                    None => {
                        let why = "its batches do not continue those before it; a backup of this \
                                   instance has the right ones";
                        self.report.left.push(DamageLeft { found, why });
                        continue;
                    }
                },
            };
            done.map_err(failed)?;
            self.report.mended.push(found);
        }
        Ok(())
    }

    /// What shows that the source's extent goes between its neighbours here. Where those are
    /// missing too, the source has what lies between: each batch names the one before it. Where
    /// nothing lies behind it, because the log ended in it, the image names the batch at which it
    /// was taken.
    fn continues(
        &self,
        from: &Files,
        sequence: u64,
        image: Option<ImageHeader>,
    ) -> Option<Continuation> {
        let (first, mut last) = self.ends_there(from, sequence)?;
        let before = sequence.checked_sub(1).and_then(|before| self.ends_here(before));
        if before.is_some_and(|(_, before)| before.checksum != first.previous) {
            return None;
        }
        let seam = image.and_then(|image| image.seam);
        let names = |there: u64| seam.is_some_and(|seam| self.has_batch(from, there, seam));
        let mut is_named = names(sequence);
        for next in sequence + 1.. {
            if let Some((behind, _)) = self.ends_here(next) {
                return (behind.previous == last.checksum).then_some(Continuation::Next);
            }
            match self.ends_there(from, next) {
                Some((behind, end)) if behind.previous == last.checksum => last = end,
                Some(_) => return None,
                None => break,
            }
            is_named |= names(next);
        }
        is_named.then_some(Continuation::Image(Lsn(last.lsn.0 + last.batch_bytes())))
    }

    /// Whether an extent of the source has the batch behind which an image was taken.
    fn has_batch(&self, from: &Files, sequence: u64, seam: Seam) -> bool {
        let begin = sequence * self.identity.extent_bytes;
        let at = seam.end.0.checked_sub(u64::from(seam.bytes));
        let offset = at.and_then(|at| at.checked_sub(begin));
        let Some(offset) = offset.filter(|at| *at < self.identity.extent_bytes) else {
            return false;
        };
        let there = whole_of(from, ExtentOffset { sequence, offset });
        there.is_some_and(|(header, _)| {
            (header.index, header.checksum) == (seam.index, seam.checksum)
        })
    }

    /// The log will end at `end`, and ended there or later.
    fn shortened(&mut self, end: Lsn) -> std::io::Result<()> {
        match self.target.remove(INCARNATION_NAME) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => self.target.sync_names()?,
        }
        self.report.ends_at = Some(end);
        Ok(())
    }

    /// The first and the last whole batch of an extent in this log.
    fn ends_here(&self, sequence: u64) -> Option<(BatchHeader, BatchHeader)> {
        self.ends(self.target.open(&extent_name(sequence)).ok()?.as_ref(), sequence)
    }

    /// The same in the source.
    fn ends_there(&self, from: &Files, sequence: u64) -> Option<(BatchHeader, BatchHeader)> {
        self.ends(from.file(sequence).ok()?.as_ref(), sequence)
    }

    /// The first and the last whole batch of an extent.
    fn ends(&self, file: &dyn DiskFile, sequence: u64) -> Option<(BatchHeader, BatchHeader)> {
        let Identity { log_id, extent_bytes } = self.identity;
        let mut place = ExtentOffset { sequence, offset: BLOCK_BYTES as u64 };
        let mut found: Option<(BatchHeader, BatchHeader)> = None;
        while place.offset < extent_bytes {
            let lsn = Lsn(sequence * extent_bytes + place.offset);
            let whole = read(file, place, extent_bytes).filter(|(header, payload)| {
                header.lsn == lsn && header.sum(payload_sum(log_id, payload)) == header.checksum
            });
            place.offset +=
                whole.as_ref().map_or(BLOCK_BYTES as u64, |it| padded(it.0.batch_bytes()));
            if let Some((header, _)) = whole {
                found = Some((found.map_or(header, |it| it.0), header));
            }
        }
        found
    }

    /// Copies an extent as it is, with zeros behind what the source has of it.
    fn copy_extent(&mut self, from: &Files, sequence: u64) -> std::io::Result<()> {
        let from = from.file(sequence)?;
        let file = self.target.create(NEW_NAME)?;
        let mut at = 0;
        while at < self.identity.extent_bytes {
            let bytes = COPY_BYTES.min(self.identity.extent_bytes - at);
            let mut piece = Aligned::zeroed(size(bytes));
            from.read_at(piece.bytes_mut(), at)?;
            file.write_at(piece.bytes(), at)?;
            at += bytes;
        }
        file.sync_data()?;
        self.target.rename(NEW_NAME, &extent_name(sequence))?;
        self.report.bytes += at;
        self.target.sync_names()
    }

    /// Goes over the batches from extent `first` on, and mends what is damaged before the tail.
    fn batches(
        &mut self,
        files: &Files,
        first: u64,
        image: Option<Lsn>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), LogError> {
        let all = (files.last() + 1 - files.first()) * self.identity.extent_bytes;
        let mut scan = Scan::new(files, first);
        loop {
            while let Ok(Some(header)) = scan.next_batch() {
                let first = files.first() * self.identity.extent_bytes;
                progress(header.lsn.0.saturating_sub(first), all);
            }
            let facts = scan.facts(image, u64::MAX).facts;
            let place = scan.place;
            let what = match table::judge_tail(facts) {
                TailVerdict::End | TailVerdict::Cut => return Ok(()),
                TailVerdict::Refuse(what) => what,
            };
            let found = finding(place, scan.lsn(place), what);
            let behind = ExtentOffset { offset: place.offset + BLOCK_BYTES as u64, ..place };
            let next = scan.next_whole(behind);
            match self.range(&mut scan, files, next)? {
                Ok(()) => self.report.mended.push(found),
                Err(why) => self.report.left.push(DamageLeft { found, why }),
            }
            match next {
                Some(found) => scan.go_on_at(found.place),
                None => return Ok(()),
            }
        }
    }

    /// Mends what lies between the newest batch of the walk and the next whole one.
    fn range(
        &mut self,
        scan: &mut Scan<'_>,
        files: &Files,
        next: Option<WholeBatch>,
    ) -> Result<Result<(), &'static str>, LogError> {
        let Some(WholeBatch { place: until, header: next }) = next else {
            return Ok(Err("nothing whole lies behind it"));
        };
        let Some(mut link) = scan.link else { return Ok(Err("nothing whole lies before it")) };
        let (mut place, mut proven) = (scan.place, Vec::new());
        while place < until {
            if place.offset >= self.identity.extent_bytes {
                // The batch before filled its extent to the end.
                place = ExtentOffset { sequence: place.sequence + 1, offset: BLOCK_BYTES as u64 };
                continue;
            }
            let Some(there) = (self.take)(place) else {
                let behind =
                    ExtentOffset { sequence: place.sequence + 1, offset: BLOCK_BYTES as u64 };
                if behind <= until && !proven.is_empty() {
                    place = behind;
                    continue;
                }
                return Ok(Err("the source does not have it whole"));
            };
            let is_last = there.0.index.checked_add(1) == Some(next.index);
            let Some(batch) =
                self.prove(files, place, link, &there, is_last.then_some(next.previous))
            else {
                return Ok(Err("what the source has cannot be proven to be what was here"));
            };
            let header = batch.header;
            link = Link { checksum: header.checksum, index: header.index, term: header.term };
            let bytes = batch.bytes.len() as u64;
            proven.push((place, batch));
            place.offset += bytes;
        }
        if link.checksum != next.previous {
            return Ok(Err("what the source has is not continued by what lies behind it"));
        }
        for (place, batch) in proven {
            let written = files.file(place.sequence).and_then(|file| {
                file.write_at(batch.bytes.bytes(), place.offset)?;
                file.sync_data()
            });
            let name = extent_name(place.sequence);
            written.map_err(|e| LogError::io("write a batch back", &name, e))?;
            self.report.bytes += batch.bytes.len() as u64;
        }
        Ok(Ok(()))
    }

    /// The original batch at this position, if these records are its records. `named`: the checksum
    /// that the batch behind it states.
    fn prove(
        &self,
        files: &Files,
        place: ExtentOffset,
        link: Link,
        (there, payload): &(BatchHeader, Vec<u8>),
        named: Option<u32>,
    ) -> Option<Proven> {
        let index = link.index.checked_add(1)?;
        if there.index != index || there.term < link.term {
            return None;
        }
        let sum = payload_sum(self.identity.log_id, payload);
        let own = files.file(place.sequence).ok().and_then(|file| {
            let mut block = Aligned::zeroed(BLOCK_BYTES);
            file.read_at(block.bytes_mut(), place.offset).ok()?;
            BatchHeader::decode(block.bytes())
        });
        let around = Around { previous: Some(link.checksum), named };
        // The source's own header is believed when the chain goes through it.
        let as_there = Some(*there).filter(|there| around.fits(there, there, sum));
        let header = proven(own, there, sum, around).or(as_there)?;
        let mut bytes = Aligned::with_capacity(BATCH_HEADER_BYTES + payload.len());
        bytes.append_to().extend_from_slice(&header.encode());
        bytes.append_to().extend_from_slice(payload);
        bytes.pad();
        Some(Proven { header, bytes })
    }
}

/// What the neighbours of a batch say of it.
#[derive(Clone, Copy, Debug, Default)]
struct Around {
    /// Checksum of the batch before it.
    previous: Option<u32>,
    /// Its own checksum, as the batch behind it says.
    named: Option<u32>,
}

impl Around {
    /// Whether `header` can be that of a batch like the one `there`, with a payload of this sum.
    fn fits(&self, header: &BatchHeader, there: &BatchHeader, sum: u32) -> bool {
        (header.lsn, header.index, header.term) == (there.lsn, there.index, there.term)
            && header.payload_bytes == there.payload_bytes
            && self.previous.is_none_or(|previous| previous == header.previous)
            && header.sum(sum) == header.checksum
            && self.named.is_none_or(|named| named == header.checksum)
    }
}

/// The header with which a payload of that sum stood here: what is left of it, or, when its
/// checksum is named by the batch behind it, the one that has this checksum.
fn proven(
    own: Option<BatchHeader>,
    there: &BatchHeader,
    sum: u32,
    around: Around,
) -> Option<BatchHeader> {
    let rebuilt = || {
        let (named, previous) = (around.named?, around.previous?);
        let tries = [BATCH_VERSION, VERSION_WITHOUT_CHECKS].into_iter();
        let mut tries = tries.flat_map(|version| {
            (0..UNSYNCED_TRIED).map(move |unsynced| BatchHeader {
                version,
                unsynced,
                previous,
                checksum: named,
                ..*there
            })
        });
        tries.find(|header| around.fits(header, there, sum))
    };
    own.filter(|own| around.fits(own, there, sum)).or_else(rebuilt)
}

/// Header and payload at an offset of an extent, not checked.
fn read(
    file: &dyn DiskFile,
    place: ExtentOffset,
    extent_bytes: u64,
) -> Option<(BatchHeader, Vec<u8>)> {
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    file.read_at(block.bytes_mut(), place.offset).ok()?;
    let header = BatchHeader::decode(block.bytes())?;
    if header.batch_bytes() > extent_bytes.checked_sub(place.offset)? {
        return None;
    }
    let mut bytes = Aligned::zeroed(size(padded(header.batch_bytes())));
    file.read_at(bytes.bytes_mut(), place.offset).ok()?;
    let payload = bytes.bytes().get(BATCH_HEADER_BYTES..size(header.batch_bytes()))?.to_vec();
    Some((header, payload))
}

mod headers;
mod rest;
mod running;
#[cfg(test)]
mod tests;

pub(crate) use headers::file_of;
pub use rest::{batch_at_rest, id_at_rest};
pub use running::{MendedBatch, NotMended};
pub(crate) use running::{batch_over, checked, damaged_parts, mend_batch};
