//! Batches before the position where replay began, of which only the headers are read: an instance
//! of a group that lacks a little of what the image covers receives that from the log, and needs no
//! copy.
//!
//! Nothing is believed of what is read but what leads, header by header, to the batch behind which
//! replay began: each carries the checksum of the one before it. What does not is passed over, with
//! all that lies before it. A batch's content is checked when it is read
//! ([`crate::Log::read_batches`]).
//!
//! Not here: how far back batches are wanted. Invariant: no more than a bounded part of the log is
//! read.

use std::collections::VecDeque;

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::folder::names::extent_name;
use crate::format::{BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, padded, size};
use crate::member::KnownBatch;

/// Read at most, over all extents: a fraction of a second on a disk for this.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Read at a time; headers that are further apart are read one by one.
const PIECE_BYTES: u64 = 128 * 1024;
const HEADER_BLOCK_BYTES: u64 = BLOCK_BYTES as u64;

/// The batches before `base`, oldest first, as far back as extents from `first` on and the bound
/// allow.
pub(super) fn earlier(
    disk: &dyn Disk,
    extent_bytes: u64,
    first: u64,
    base: KnownBatch,
) -> Vec<KnownBatch> {
    let mut found = VecDeque::new();
    let mut goal = Goal { index: base.index, checksum: base.checksum };
    let mut sequence = base.lsn.0 / extent_bytes;
    let mut walk = HeaderWalk { extent_bytes, bytes_left: BYTES_MAX };
    while base.index > 0 && goal.index > 0 && sequence >= first {
        let Some(headers) = walk.extent(disk, sequence, goal) else { break };
        let Some(oldest) = headers.first() else { break };
        goal = Goal { index: oldest.index.saturating_sub(1), checksum: oldest.previous };
        for header in headers.iter().rev().filter(|header| header.index < base.index) {
            // Whether a run ends there only replay would know; nothing asks.
            found.push_front(KnownBatch::of(header, false));
        }
        let Some(before) = sequence.checked_sub(1) else { break };
        sequence = before;
    }
    found.into()
}

/// The batch to which those of an extent must lead.
#[derive(Clone, Copy)]
struct Goal {
    index: u64,
    checksum: u32,
}

struct HeaderWalk {
    extent_bytes: u64,
    bytes_left: u64,
}

impl HeaderWalk {
    /// The headers of an extent from its first one to the goal; `None` when they do not lead there.
    fn extent(&mut self, disk: &dyn Disk, sequence: u64, goal: Goal) -> Option<Vec<BatchHeader>> {
        let file = disk.open(&extent_name(sequence)).ok()?;
        let mut piece = HeaderPiece { file: file.as_ref(), from: 0, bytes: Vec::new() };
        let mut headers: Vec<BatchHeader> = Vec::new();
        let mut offset = EXTENT_HEADER_BYTES as u64;
        loop {
            let header = self.header(&mut piece, offset)?;
            let follows = headers.last().is_none_or(|last| {
                (last.index.checked_add(1), last.checksum) == (Some(header.index), header.previous)
            });
            let fits = header.batch_bytes() <= self.extent_bytes - offset;
            let is_here = header.lsn.0 == sequence * self.extent_bytes + offset;
            if !follows || !fits || !is_here || header.index > goal.index {
                return None;
            }
            offset += padded(header.batch_bytes());
            let (index, checksum) = (header.index, header.checksum);
            headers.push(header);
            if index == goal.index {
                return (checksum == goal.checksum).then_some(headers);
            }
        }
    }

    fn header(&mut self, piece: &mut HeaderPiece<'_>, offset: u64) -> Option<BatchHeader> {
        if offset + HEADER_BLOCK_BYTES > self.extent_bytes {
            return None;
        }
        if !piece.holds(offset) {
            // One that lies right behind what was read is followed by others, most likely.
            let is_next = offset == piece.from + piece.bytes.len() as u64;
            let bytes = if is_next { PIECE_BYTES } else { HEADER_BLOCK_BYTES };
            let bytes = bytes.min(self.extent_bytes - offset);
            self.bytes_left = self.bytes_left.checked_sub(bytes)?;
            piece.read(offset, bytes)?;
        }
        BatchHeader::decode(piece.at(offset)?)
    }
}

/// A part of an extent in memory.
struct HeaderPiece<'a> {
    file: &'a dyn DiskFile,
    from: u64,
    bytes: Vec<u8>,
}

impl HeaderPiece<'_> {
    fn holds(&self, offset: u64) -> bool {
        self.at(offset).is_some()
    }

    fn at(&self, offset: u64) -> Option<&[u8]> {
        let from = size(offset.checked_sub(self.from)?);
        self.bytes.get(from..from.checked_add(size(HEADER_BLOCK_BYTES))?)
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Option<()> {
        let mut buffer = Aligned::zeroed(size(bytes));
        let count = self.file.read_at(buffer.bytes_mut(), offset).ok()?;
        self.from = offset;
        self.bytes = buffer.bytes().get(..count)?.to_vec();
        Some(())
    }
}
