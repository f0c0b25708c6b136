//! Batches before the position where replay began, of which only the headers are read: an instance
//! of a group that lacks a little of what the image covers receives that from the log, and needs no
//! copy.
//!
//! Nothing is believed of what is read but what leads, header by header, to the batch behind which
//! replay began: each carries the checksum of the one before it. What does not is passed over, with
//! all that lies before it. A batch's content is checked when it is read
//! ([`crate::Log::read_batches`]).
//!
//! The checksum of a header is that of its batch, so what the chain does not show is proved by
//! reading whole batches: the oldest one, the last of each extent (nothing behind it shows its
//! length), and both where the term changes. Terms never go down along a log, so the others have
//! the term of those.
//!
//! Not here: how far back batches are wanted. Invariants: no more than a bounded part of the log is
//! read; each batch that is returned has the index, the term and the blocks with which it was
//! written.

use std::collections::VecDeque;

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::folder::names::extent_name;
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, LogId, padded, payload_sum,
    size,
};
use crate::member::KnownBatch;

/// Read at most, over all extents: a fraction of a second on a disk for this.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Read at most, beside that, to prove terms, and once more to prove the oldest batch: what the
/// walk used up must not make what it found worth nothing.
const PROOF_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Read at a time; headers that are further apart are read one by one.
const PIECE_BYTES: u64 = 128 * 1024;
const HEADER_BLOCK_BYTES: u64 = BLOCK_BYTES as u64;

/// The batches before `base`, oldest first, as far back as extents from `first` on and the bound
/// allow.
pub(super) fn earlier(
    disk: &dyn Disk,
    (log_id, extent_bytes): (LogId, u64),
    first: u64,
    base: KnownBatch,
) -> Vec<KnownBatch> {
    let mut found = VecDeque::new();
    let mut goal = Goal { index: base.index, checksum: base.checksum };
    let mut sequence = base.lsn.0 / extent_bytes;
    let mut walk = HeaderWalk { disk, log_id, extent_bytes, bytes_left: BYTES_MAX };
    while base.index > 0 && goal.index > 0 && sequence >= first {
        let Some(headers) = walk.extent(sequence, goal) else { break };
        let Some((oldest, last)) = headers.first().zip(headers.last()) else { break };
        if last.index < base.index && !walk.is_whole(last) {
            break;
        }
        goal = Goal { index: oldest.index.saturating_sub(1), checksum: oldest.previous };
        for header in headers.into_iter().rev().filter(|header| header.index < base.index) {
            found.push_front(header);
        }
        let Some(before) = sequence.checked_sub(1) else { break };
        sequence = before;
    }
    walk.forget_doubtful(&mut found, base.term);
    // Whether a run ends there only replay would know; nothing asks.
    found.iter().map(|header| KnownBatch::of(header, false)).collect()
}

/// The batch to which those of an extent must lead.
#[derive(Clone, Copy)]
struct Goal {
    index: u64,
    checksum: u32,
}

struct HeaderWalk<'a> {
    disk: &'a dyn Disk,
    log_id: LogId,
    extent_bytes: u64,
    bytes_left: u64,
}

impl HeaderWalk<'_> {
    /// The headers of an extent from its first one to the goal; `None` when they do not lead there.
    fn extent(&mut self, sequence: u64, goal: Goal) -> Option<Vec<BatchHeader>> {
        let file = self.disk.open(&extent_name(sequence)).ok()?;
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

    /// Whether the checksum of a batch is right, and so all that its header says. A batch that
    /// cannot be read, or is beyond the bound of what may be, is not.
    fn is_whole(&mut self, header: &BatchHeader) -> bool {
        let bytes = padded(header.batch_bytes());
        let Some(left) = self.bytes_left.checked_sub(bytes) else { return false };
        self.bytes_left = left;
        let Ok(file) = self.disk.open(&extent_name(header.lsn.0 / self.extent_bytes)) else {
            return false;
        };
        let mut piece = HeaderPiece { file: file.as_ref(), from: 0, bytes: Vec::new() };
        let offset = header.lsn.0 % self.extent_bytes;
        let payload = BATCH_HEADER_BYTES..size(header.batch_bytes());
        piece.read(offset, bytes).is_some_and(|()| {
            piece.bytes.get(payload).is_some_and(|payload| {
                header.sum(payload_sum(self.log_id, payload)) == header.checksum
            })
        })
    }

    /// Drops the oldest headers up to the last one whose term may not be that with which its batch
    /// was written. `base_term` is that of the batch behind them.
    fn forget_doubtful(&mut self, headers: &mut VecDeque<BatchHeader>, base_term: u32) {
        self.bytes_left = PROOF_BYTES_MAX;
        let mut newer: Option<BatchHeader> = None;
        let mut first = 0;
        for (at, header) in headers.iter().enumerate().rev() {
            let term = newer.map_or(base_term, |newer| newer.term);
            if header.term != term {
                if newer.is_some_and(|newer| !self.is_whole(&newer)) {
                    first = at + 2;
                    break;
                }
                if header.term > term || !self.is_whole(header) {
                    first = at + 1;
                    break;
                }
            }
            newer = Some(*header);
        }
        headers.drain(..first);
        self.bytes_left = PROOF_BYTES_MAX;
        while headers.front().is_some_and(|oldest| !self.is_whole(oldest)) {
            headers.pop_front();
        }
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
