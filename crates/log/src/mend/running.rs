//! One damaged batch of a running log, replaced where it lies by what another instance of the group
//! has; and the batch that another instance asks for.
//!
//! Not here: which instance is asked, and how often (the group). Missing extents (`mend`, of a
//! log at rest); headers of extents (`headers`).
//!
//! Invariants: what verifies is not written; what is written was proven to be the original, by the
//! header that is left or by its neighbours; nothing beyond the blocks of that one batch is
//! written. Meanwhile no extent is released and nothing is cut off: both need the lock of the
//! housekeeping. A crash at any moment leaves the batch damaged or whole: its checksum shows which.

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn, fitting};

use super::headers::file_of;
use super::{Around, proven};
use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::error::{Damage, Finding, LogError};
use crate::folder::chain::ExtentOffset;
use crate::folder::files::{Files, Folder};
use crate::folder::names::extent_name;
use crate::folder::scan::Scan;
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, padded, payload_sum, size,
};
use crate::shared::{Phase, Shared};
use crate::writer::fail;

/// Read at a time while a batch is searched for.
const PIECE_BYTES: u64 = 128 * 1024;
/// An earlier configuration may have allowed batches longer than this one does.
const BATCH_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Parts that are reported at a time.
const DAMAGED_MAX: usize = 1_024;
const BLOCK: u64 = BLOCK_BYTES as u64;
const FIRST: u64 = EXTENT_HEADER_BYTES as u64;

/// A batch that is as it was written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MendedBatch {
    /// The file inside the log folder.
    pub file: String,
    /// Byte offset of the batch in it.
    pub offset: u64,
    /// The same location as a log position.
    pub lsn: Lsn,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Why nothing was written.
#[derive(Debug)]
pub enum NotMended {
    /// What came is not what stood here, or cannot be proven to be.
    Refused(&'static str),
    /// This log.
    Log(LogError),
}

/// The batch that covers a part of the log: header and payload as they are on this disk, checked.
///
/// # Errors
/// See [`crate::Log::batch_over`].
pub(crate) fn batch_over(shared: &Shared, part: BodyLocation) -> Result<Bytes, LogError> {
    let gone = LogError::Gone { lsn: part.lsn };
    let Some(inside) = Inside::of(shared, part) else { return Err(gone) };
    if !shared.state().extents.holds(inside.sequence) {
        return Err(gone);
    }
    let file = file_of(shared, inside.sequence)?;
    let found = inside.covering(shared, file.as_ref());
    // Reclaimed meanwhile: what was read may have been written over.
    if !shared.state().extents.holds(inside.sequence) {
        return Err(gone);
    }
    let name = extent_name(inside.sequence);
    let found = found.map_err(|e| LogError::io("read a batch", &name, e))?;
    found.ok_or_else(|| {
        let offset = inside.from / BLOCK * BLOCK;
        let what = Damage::Batch;
        LogError::Damaged(Finding {
            file: name,
            extent: inside.sequence,
            offset,
            lsn: part.lsn,
            what,
        })
    })
}

/// Writes the batch `came` at its position, which must cover `part`. `None`: the batch there is
/// whole.
///
/// # Errors
/// [`NotMended`]; see [`crate::Log::mend_batch`].
pub(crate) fn mend_batch(
    shared: &Shared,
    part: BodyLocation,
    came: &[u8],
) -> Result<Option<MendedBatch>, NotMended> {
    let gone = || NotMended::Log(LogError::Gone { lsn: part.lsn });
    let inside = Inside::of(shared, part).ok_or_else(gone)?;
    let (there, payload) = judge(shared, inside, came).map_err(NotMended::Refused)?;
    if !shared.state().extents.holds(inside.sequence) {
        return Err(gone());
    }
    let file = file_of(shared, inside.sequence).map_err(NotMended::Log)?;
    // No extent is let go while it is held, nothing is cut off, and no second one mends.
    let housekeeping = shared.housekeeping.lock();
    match shared.state().phase {
        Phase::Running => {}
        Phase::Closing | Phase::Stopped => return Err(NotMended::Log(LogError::Stopped)),
        Phase::Failed => return Err(NotMended::Log(LogError::Failed)),
    }
    let end = there.lsn.after(there.batch_bytes());
    if !shared.state().extents.holds(inside.sequence) || end > shared.durable() {
        return Err(gone());
    }
    let own = Own { shared, file: file.as_ref(), begin: inside.begin };
    let offset = there.lsn.0 - inside.begin;
    if own.is_whole(offset) {
        return Ok(None);
    }
    let around = own.around(offset, &there);
    let sum = payload_sum(shared.log_id, payload);
    let header = proven(own.header(offset), &there, sum, around);
    let why = "it cannot be proven to be what was here";
    let header = header.ok_or(NotMended::Refused(why))?;
    let mut bytes = Aligned::with_capacity(came.len());
    bytes.append_to().extend_from_slice(&header.encode());
    bytes.append_to().extend_from_slice(payload);
    bytes.pad();
    let name = extent_name(inside.sequence);
    let written = file.write_at(bytes.bytes(), offset).and_then(|()| file.sync_data());
    if let Err(error) = written {
        // What is on the disk now is for recovery to find out, as after any write.
        let error = LogError::io("write a damaged batch again", &name, error);
        drop(housekeeping);
        fail(shared, &error);
        return Err(NotMended::Log(error));
    }
    Ok(Some(MendedBatch { file: name, offset, lsn: there.lsn, bytes: bytes.len() as u64 }))
}

/// Parts of the log that are damaged, each where a batch should begin, up to what is durable now;
/// of contiguous damage, the first batch. Reads all of the log. Positions where nothing is missing
/// may be among them: another instance, asked for those, has no batch there.
pub(crate) fn damaged_parts(shared: &Shared) -> Result<Vec<BodyLocation>, LogError> {
    let extent_bytes = shared.options.extent_bytes;
    let (first, durable) = (shared.first_held().0 / extent_bytes, shared.durable());
    let folder = Folder::list(shared.disk.as_ref())?;
    let Some(files) = Files::of(&shared.disk, &folder)? else { return Ok(Vec::new()) };
    let mut scan = Scan::new(&files, first);
    let mut found = Vec::new();
    while found.len() < DAMAGED_MAX {
        while scan.end < durable && matches!(scan.next_batch(), Ok(Some(_))) {}
        if scan.end >= durable {
            break;
        }
        let place = scan.place;
        // A batch is as long as its header at least.
        let bytes = fitting(BATCH_HEADER_BYTES as u64);
        let part = |place: ExtentOffset| BodyLocation {
            lsn: Lsn(place.sequence * extent_bytes + place.offset),
            bytes,
        };
        // An extent may have been left before its end.
        let next = ExtentOffset { sequence: place.sequence + 1, offset: FIRST };
        let here = (place.offset < extent_bytes).then(|| part(place));
        let from = ExtentOffset { offset: place.offset + BLOCK, ..place };
        let behind = scan.next_whole(from).map(|found| found.place);
        let goes_over = behind.is_none_or(|behind| behind > next);
        found.extend(here);
        found.extend(goes_over.then(|| part(next)).filter(|part| part.lsn < durable));
        match behind {
            Some(behind) if part(behind).lsn < durable => scan.go_on_at(behind),
            _ => break,
        }
    }
    Ok(found)
}

/// A part of the log inside one extent.
#[derive(Clone, Copy)]
struct Inside {
    sequence: u64,
    /// Where the extent begins, as a position.
    begin: u64,
    /// Offsets in it.
    from: u64,
    until: u64,
}

impl Inside {
    /// `None`: no batch covers such a part, or it is not durable. The numbers may be a peer's.
    fn of(shared: &Shared, part: BodyLocation) -> Option<Inside> {
        let extent_bytes = shared.options.extent_bytes;
        let sequence = part.lsn.0 / extent_bytes;
        let (begin, from) = (sequence * extent_bytes, part.lsn.0 % extent_bytes);
        let until = from.checked_add(u64::from(part.bytes))?;
        let is_durable = part.lsn.0.checked_add(u64::from(part.bytes))? <= shared.durable().0;
        let is_inside = from >= FIRST && until <= extent_bytes;
        (is_durable && is_inside).then_some(Inside { sequence, begin, from, until })
    }

    /// Where the batch ends that `header` at `offset` is of, if it covers this part.
    fn end(self, extent_bytes: u64, offset: u64, header: &BatchHeader) -> Option<u64> {
        let end = offset.checked_add(header.batch_bytes())?;
        let is_here = header.lsn.0 == self.begin + offset && offset.is_multiple_of(BLOCK);
        let covers = offset <= self.from && self.until <= end && end <= extent_bytes;
        (is_here && covers).then_some(end)
    }

    fn covering(self, shared: &Shared, file: &dyn DiskFile) -> std::io::Result<Option<Bytes>> {
        let extent_bytes = shared.options.extent_bytes;
        let longest = BATCH_BYTES_MAX.max(shared.options.batch_bytes_hard_max() as u64);
        let block = self.from / BLOCK * BLOCK;
        let least = block.saturating_sub(longest).max(FIRST);
        let mut upto = block + BLOCK;
        while upto > least {
            let from = upto.saturating_sub(PIECE_BYTES).max(least);
            let mut piece = Aligned::zeroed(size(upto - from));
            file.read_at(piece.bytes_mut(), from)?;
            for at in (from / BLOCK..upto / BLOCK).rev().map(|block| block * BLOCK) {
                let header = BatchHeader::decode(piece.rest(size(at - from)));
                let end = header.and_then(|header| self.end(extent_bytes, at, &header));
                let Some(end) = end else { continue };
                let mut whole = Aligned::zeroed(size(padded(end - at)));
                let count = file.read_at(whole.bytes_mut(), at)?.min(size(end - at));
                let whole = whole.into_bytes(count);
                if checked(shared, &whole).is_some() {
                    return Ok(Some(whole));
                }
            }
            upto = from;
        }
        Ok(None)
    }
}

/// The header and the payload of a batch of this log that is whole. No field of a header counts
/// before its checksum was found right.
pub(crate) fn checked<'a>(shared: &Shared, bytes: &'a [u8]) -> Option<(BatchHeader, &'a [u8])> {
    let header = BatchHeader::decode(bytes)?;
    let payload = bytes.get(BATCH_HEADER_BYTES..)?;
    let is_whole = header.batch_bytes() == bytes.len() as u64
        && header.sum(payload_sum(shared.log_id, payload)) == header.checksum;
    is_whole.then_some((header, payload))
}

/// Whether what came is a whole batch of this log that covers the part.
fn judge<'a>(
    shared: &Shared,
    inside: Inside,
    came: &'a [u8],
) -> Result<(BatchHeader, &'a [u8]), &'static str> {
    let header = BatchHeader::decode(came).ok_or("it is no batch")?;
    if header.batch_bytes() != came.len() as u64 {
        return Err("its length is wrong");
    }
    let offset = header.lsn.0.checked_sub(inside.begin).ok_or("it has another position")?;
    let end = inside.end(shared.options.extent_bytes, offset, &header);
    if offset < FIRST || end.is_none() {
        return Err("it has another position");
    }
    checked(shared, came).ok_or("its checksum is wrong")
}

/// What this instance has around the damaged batch.
struct Own<'a> {
    shared: &'a Shared,
    file: &'a dyn DiskFile,
    begin: u64,
}

impl Own<'_> {
    /// What seems to be the header of a batch at `offset`; a block that cannot be read is none.
    fn header(&self, offset: u64) -> Option<BatchHeader> {
        header_at(self.file, self.begin, offset)
    }

    fn is_whole(&self, offset: u64) -> bool {
        let extent_bytes = self.shared.options.extent_bytes;
        let Some(header) = self.header(offset) else { return false };
        if header.batch_bytes() > extent_bytes - offset {
            return false;
        }
        let mut bytes = Aligned::zeroed(size(padded(header.batch_bytes())));
        let Ok(count) = self.file.read_at(bytes.bytes_mut(), offset) else { return false };
        let whole = bytes.into_bytes(count.min(size(header.batch_bytes())));
        checked(self.shared, &whole).is_some()
    }

    fn around(&self, offset: u64, there: &BatchHeader) -> Around {
        Around { previous: self.previous(offset, there), named: self.named(offset, there) }
    }

    /// Checksum of the batch before.
    fn previous(&self, offset: u64, there: &BatchHeader) -> Option<u32> {
        let is_before = |header: &BatchHeader| header.index.checked_add(1) == Some(there.index);
        if offset > FIRST {
            let ends = |at: u64, header: &BatchHeader| {
                at.checked_add(padded(header.batch_bytes())) == Some(offset)
            };
            return last_header(self.file, self.begin, offset, |at, header| {
                is_before(header) && ends(at, header)
            })
            .map(|header| header.checksum);
        }
        let sequence = (self.begin / self.shared.options.extent_bytes).checked_sub(1)?;
        let file = self.other(sequence)?;
        let begin = sequence * self.shared.options.extent_bytes;
        let end = self.shared.options.extent_bytes;
        let before = last_header(file.as_ref(), begin, end, |_, header| is_before(header));
        before.map(|header| header.checksum)
    }

    /// Its checksum, as the batch behind it says.
    fn named(&self, offset: u64, there: &BatchHeader) -> Option<u32> {
        let is_behind = |header: &BatchHeader| there.index.checked_add(1) == Some(header.index);
        let extent_bytes = self.shared.options.extent_bytes;
        let next = offset.checked_add(padded(there.batch_bytes()))?;
        let here = (next < extent_bytes).then(|| self.header(next)).flatten();
        let behind = here.filter(is_behind).or_else(|| {
            let sequence = self.begin / extent_bytes + 1;
            let file = self.other(sequence)?;
            header_at(file.as_ref(), sequence * extent_bytes, FIRST).filter(is_behind)
        });
        behind.map(|header| header.previous)
    }

    fn other(&self, sequence: u64) -> Option<std::sync::Arc<dyn DiskFile>> {
        let is_there = self.shared.state().extents.holds(sequence);
        is_there.then(|| self.shared.handles.get(sequence).ok()).flatten()
    }
}

/// The header at `offset` of the extent that begins at `begin`, if it says that it is of there.
fn header_at(file: &dyn DiskFile, begin: u64, offset: u64) -> Option<BatchHeader> {
    let mut block = Aligned::zeroed(BLOCK_BYTES);
    file.read_at(block.bytes_mut(), offset).ok()?;
    BatchHeader::decode(block.bytes()).filter(|header| header.lsn.0 == begin + offset)
}

/// The last one before `upto` that is wanted, not further back than a batch is long.
fn last_header(
    file: &dyn DiskFile,
    begin: u64,
    upto: u64,
    wanted: impl Fn(u64, &BatchHeader) -> bool,
) -> Option<BatchHeader> {
    let least = upto.saturating_sub(BATCH_BYTES_MAX).max(FIRST);
    let blocks = (least / BLOCK..upto / BLOCK).rev().map(|block| block * BLOCK);
    let mut headers = blocks.filter_map(|at| Some((at, header_at(file, begin, at)?)));
    headers.find(|(at, header)| wanted(*at, header)).map(|(_, header)| header)
}

#[cfg(test)]
mod tests;
