//! Reading bodies back from disk.
//!
//! A position does not say where its batch begins: the search goes back over 4 KiB boundaries until
//! a batch is found that covers the position and has a right checksum. Where the last block read
//! ended is remembered, so reading a queue in order needs no search: one read for each MiB.
//!
//! A body of a batch that is damaged elsewhere is judged by the check behind it.
//!
//! Not here: which bodies young enough to be in memory (`cache`).
//!
//! Invariant: no byte is given out that a right checksum does not cover.

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn};

use crate::block::Aligned;
use crate::cache::READ_AHEAD_BYTES;
use crate::disk::DiskFile;
use crate::error::{Damage, Finding, LogError};
use crate::folder::names::extent_name;
use crate::format::{
    BATCH_HEADER_BYTES, BLOCK_BYTES, BatchHeader, EXTENT_HEADER_BYTES, padded, payload_sum, size,
};
use crate::mend::file_of;
use crate::record::{CHECK_BYTES, body_is_whole};
use crate::shared::Shared;

/// How far back the first read of a search begins.
const SEARCH_BYTES: u64 = 128 * 1024;

pub(crate) fn read(shared: &Shared, body: BodyLocation) -> Result<Bytes, LogError> {
    let end = body.lsn.after(u64::from(body.bytes));
    assert!(end <= shared.durable(), "a body that is read back is durable");
    let (found, cuts) = {
        let mut cache = shared.cache.lock();
        (cache.get(body), cache.cuts())
    };
    if let Some(bytes) = found {
        return Ok(bytes);
    }
    let gone = LogError::Gone { lsn: body.lsn };
    let sequence = body.lsn.0 / shared.options.extent_bytes;
    if !shared.state().extents.holds(sequence) {
        return Err(gone);
    }
    let found = match file_of(shared, sequence) {
        Ok(file) => Search { shared, sequence, file: file.as_ref(), body, cuts }.run(),
        Err(error) => Err(error),
    };
    // Reclaimed meanwhile: what was read may have been written over.
    if shared.state().extents.holds(sequence) { found } else { Err(gone) }
}

struct Search<'a> {
    shared: &'a Shared,
    sequence: u64,
    file: &'a dyn DiskFile,
    body: BodyLocation,
    /// See [`crate::cache::Cache::cuts`].
    cuts: u64,
}

/// A piece of the extent in memory.
struct BlockPiece {
    from: u64,
    bytes: Aligned,
}

impl Search<'_> {
    fn run(&self) -> Result<Bytes, LogError> {
        let extent_bytes = self.shared.options.extent_bytes;
        let begin = self.sequence * extent_bytes;
        let place = self.body.lsn.0 - begin;
        let body_end = place + u64::from(self.body.bytes);
        assert!(body_end <= extent_bytes, "a body lies inside one extent");
        let block = place / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let hard_max = self.shared.options.batch_bytes_hard_max().max(
            // An earlier configuration may have allowed larger batches.
            8 * 1024 * 1024,
        ) as u64;
        let least = block.saturating_sub(hard_max).max(EXTENT_HEADER_BYTES as u64);

        let known = self
            .shared
            .cache
            .lock()
            .nearest_start(Lsn(begin + least), self.body.lsn)
            .map(|start| start.0 - begin);
        if let Some(start) = known {
            let piece = self.load(start, body_end)?;
            if let Some(body) = self.keep(piece, start) {
                return Ok(body);
            }
        }
        let mut from = block.saturating_sub(SEARCH_BYTES).max(least);
        let mut upto = block;
        let mut piece = self.load(from, body_end)?;
        loop {
            let mut at = upto;
            while at >= from {
                if let Some(end) = self.plausible(&piece, at) {
                    let whole = if end > piece.from + piece.bytes.len() as u64 {
                        self.load(at, end)?
                    } else {
                        piece.rest_from(at)
                    };
                    if let Some(body) = self.keep(whole, at) {
                        return Ok(body);
                    }
                    // Its batch, most likely, and damaged.
                    if let Some(body) = self.by_check(place)? {
                        return Ok(body);
                    }
                }
                at -= BLOCK_BYTES as u64;
            }
            if from == least {
                return self.by_check(place)?.ok_or_else(|| self.damaged(block));
            }
            upto = from - BLOCK_BYTES as u64;
            from = from.saturating_sub(READ_AHEAD_BYTES).max(least);
            piece = self.load(from, from)?;
        }
    }

    /// The body at this offset of the extent, if it has a check and that is right. Not cached: what
    /// lies around it is not known to be whole.
    fn by_check(&self, place: u64) -> Result<Option<Bytes>, LogError> {
        let body = self.body.bytes as usize;
        let from = place / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let end = place + (body + CHECK_BYTES) as u64;
        let to = padded(end).min(self.shared.options.extent_bytes);
        let mut piece = Aligned::zeroed(size(to.saturating_sub(from)));
        let count = self.file.read_at(piece.bytes_mut(), from);
        let count =
            count.map_err(|e| LogError::io("read a body", &extent_name(self.sequence), e))?;
        piece.truncate(count);
        let found = piece.rest(size(place - from));
        let is_whole = body_is_whole(found, body, self.shared.log_id, self.body.lsn);
        Ok(is_whole.then(|| Bytes::copy_from_slice(&found[..body])))
    }

    /// Reads from `from` on, up to `to` at least.
    fn load(&self, from: u64, to: u64) -> Result<BlockPiece, LogError> {
        let extent_bytes = self.shared.options.extent_bytes;
        let to = padded(to.max(from + READ_AHEAD_BYTES)).min(extent_bytes);
        let mut bytes = Aligned::zeroed(size(to - from));
        let name = || extent_name(self.sequence);
        let count = self.file.read_at(bytes.bytes_mut(), from);
        let count = count.map_err(|e| LogError::io("read a body", &name(), e))?;
        bytes.truncate(count);
        Ok(BlockPiece { from, bytes })
    }

    /// Where the batch at `at` ends, if one seems to begin there that covers the body.
    fn plausible(&self, piece: &BlockPiece, at: u64) -> Option<u64> {
        let extent_bytes = self.shared.options.extent_bytes;
        let offset = usize::try_from(at.checked_sub(piece.from)?).ok()?;
        let header = BatchHeader::decode(piece.bytes.bytes().get(offset..)?)?;
        let end = at.checked_add(header.batch_bytes())?;
        let covers =
            self.sequence * extent_bytes + end >= self.body.lsn.0 + u64::from(self.body.bytes);
        let here = header.lsn == Lsn(self.sequence * extent_bytes + at);
        (here && covers && end <= extent_bytes).then_some(end)
    }

    /// Checks the batches in `piece`, which begins with one at `start`; keeps the whole ones in the
    /// cache. Returns the body if it is in them.
    fn keep(&self, piece: BlockPiece, start: u64) -> Option<Bytes> {
        assert_eq!(piece.from, start, "the piece begins with the batch");
        let begin = Lsn(self.sequence * self.shared.options.extent_bytes).after(start);
        let whole = whole_bytes(self.shared, piece.bytes.bytes(), begin);
        let offset = usize::try_from(self.body.lsn.0.checked_sub(begin.0)?).ok()?;
        let end = offset.checked_add(usize::try_from(self.body.bytes).ok()?)?;
        if end > whole {
            return None;
        }
        let cost = piece.bytes.len() + BLOCK_BYTES;
        // A long block of which little was good is not worth its memory.
        let (bytes, cost) = if whole < cost / 2 {
            (Bytes::copy_from_slice(piece.bytes.bytes().get(..whole)?), whole)
        } else {
            (piece.bytes.into_bytes(whole), cost)
        };
        let body = bytes.slice(offset..end);
        self.shared.cache.lock().insert_read(begin, self.cuts, bytes, cost);
        Some(body)
    }

    fn damaged(&self, offset: u64) -> LogError {
        LogError::Damaged(Finding {
            file: extent_name(self.sequence),
            extent: self.sequence,
            offset,
            lsn: self.body.lsn,
            what: Damage::Batch,
        })
    }
}

impl BlockPiece {
    /// A copy of the piece from `at` on.
    fn rest_from(&self, at: u64) -> BlockPiece {
        let rest = self.bytes.rest(size(at - self.from));
        let mut bytes = Aligned::with_capacity(rest.len());
        bytes.append_to().extend_from_slice(rest);
        BlockPiece { from: at, bytes }
    }
}

/// How many bytes from the beginning, a batch at `lsn`, are whole batches with their padding.
fn whole_bytes(shared: &Shared, bytes: &[u8], lsn: Lsn) -> usize {
    let mut at = 0;
    while let Some(header) = bytes.get(at..).and_then(BatchHeader::decode) {
        let end = at + size(header.batch_bytes());
        let Some(payload) = bytes.get(at + BATCH_HEADER_BYTES..end) else { break };
        let sum = header.sum(payload_sum(shared.log_id, payload));
        if header.lsn != lsn.after(at as u64) || sum != header.checksum {
            break;
        }
        at = end.next_multiple_of(BLOCK_BYTES).min(bytes.len());
    }
    at
}
