//! Batches read back whole, for a replica that lags behind.
//!
//! Not here: which ones it needs. Invariant: a returned batch is what the caller asked for: index,
//! term, position and length, under a right checksum.

use bytes::Bytes;
use towline_types::{Batch, BatchPlace, Lsn};

use crate::block::Aligned;
use crate::error::{Damage, Finding, LogError};
use crate::folder::names::extent_name;
use crate::format::{BATCH_HEADER_BYTES, BatchHeader, padded, size};
use crate::mend::{self, file_of};
use crate::shared::Shared;

/// Bytes read at a time: also what one batch given out may keep in memory.
const READ_BYTES: u64 = 4 * 1024 * 1024;

pub(crate) fn read_batches(
    shared: &Shared,
    places: &[BatchPlace],
    bytes_max: usize,
) -> Result<Vec<Batch>, LogError> {
    let wanted = within(places, bytes_max);
    loop {
        let cuts = shared.member.as_ref().map(super::Member::cuts);
        let read = read_wanted(shared, wanted);
        // What was read while the end was cut off may be from before or after the cut: read once
        // more. A batch that was cut off is found out by then; one that stays must not count as
        // gone.
        if shared.member.as_ref().map(super::Member::cuts) == cuts {
            return read;
        }
    }
}

fn read_wanted(shared: &Shared, wanted: &[BatchPlace]) -> Result<Vec<Batch>, LogError> {
    let mut batches = Vec::with_capacity(wanted.len());
    let mut rest = wanted;
    while let Some((place, others)) = rest.split_first() {
        if let Some(batch) = young(shared, place) {
            batches.push(batch);
            rest = others;
            continue;
        }
        let (piece, behind) = rest.split_at(together(shared, rest)?);
        read_piece(shared, piece, &mut batches)?;
        rest = behind;
    }
    Ok(batches)
}

/// The first of the wanted batches, of at most `bytes_max` bytes, one at least.
fn within(places: &[BatchPlace], bytes_max: usize) -> &[BatchPlace] {
    let mut bytes = 0_u64;
    let fits = |place: &&BatchPlace| {
        bytes = bytes.saturating_add(place.end.0.saturating_sub(place.lsn.0));
        bytes <= bytes_max as u64
    };
    let count = places.iter().take_while(fits).count().max(1);
    places.get(..count).unwrap_or(places)
}

/// The batch, if it is not durable yet.
fn young(shared: &Shared, place: &BatchPlace) -> Option<Batch> {
    let young = shared.member.as_ref()?.young.lock();
    let count = place.index.checked_sub(young.front()?.index)?;
    young.get(usize::try_from(count).ok()?).filter(|batch| batch.place() == *place).cloned()
}

/// How many of them, one at least, are read at once: they lie in one extent, in order, not far from
/// each other, and are durable.
///
/// # Errors
/// [`LogError::Gone`], [`LogError::OutOfPlace`] when the first cannot be read.
fn together(shared: &Shared, places: &[BatchPlace]) -> Result<usize, LogError> {
    let extent_bytes = shared.options.extent_bytes;
    let durable = shared.durable();
    let Some((first, others)) = places.split_first() else { return Ok(0) };
    let bytes = first.end.0.checked_sub(first.lsn.0);
    let refuse = |what| Err(LogError::OutOfPlace { index: first.index, lsn: first.lsn, what });
    let offset = first.lsn.0 % extent_bytes;
    match bytes {
        Some(bytes) if bytes < BATCH_HEADER_BYTES as u64 || bytes > extent_bytes - offset => {
            return refuse("no batch has such a position");
        }
        None => return refuse("no batch has such a position"),
        Some(_) if first.end > durable || offset != padded(offset) => {
            return Err(LogError::Gone { lsn: first.lsn });
        }
        Some(_) => {}
    }
    let limit = first.lsn.0.saturating_add(READ_BYTES.min(extent_bytes - offset));
    let limit = Lsn(limit.min(durable.0));
    let mut before = first.end;
    let mut count = 1;
    for place in others {
        if place.lsn < before || place.end < place.lsn || place.end > limit {
            break;
        }
        before = place.end;
        count += 1;
    }
    Ok(count)
}

fn read_piece(
    shared: &Shared,
    places: &[BatchPlace],
    batches: &mut Vec<Batch>,
) -> Result<(), LogError> {
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(()) };
    let extent_bytes = shared.options.extent_bytes;
    let sequence = first.lsn.0 / extent_bytes;
    let gone = LogError::Gone { lsn: first.lsn };
    if !shared.state().extents.holds(sequence) {
        return Err(gone);
    }
    let bytes = load(shared, sequence, (first.lsn, last.end));
    // Let go meanwhile: what was read may have been written over.
    if !shared.state().extents.holds(sequence) {
        return Err(gone);
    }
    let bytes = bytes?;
    for place in places {
        let from = size(place.lsn.0 - first.lsn.0);
        let until = from + size(padded(place.end.0 - place.lsn.0));
        let batch = if from <= bytes.len() {
            bytes.slice(from..until.min(bytes.len()))
        } else {
            Bytes::new()
        };
        batches.push(checked(shared, place, &batch)?);
    }
    Ok(())
}

fn load(shared: &Shared, sequence: u64, (from, until): (Lsn, Lsn)) -> Result<Bytes, LogError> {
    let file = file_of(shared, sequence)?;
    let mut bytes = Aligned::zeroed(size(padded(until.0 - from.0)));
    let offset = from.0 % shared.options.extent_bytes;
    let count = file.read_at(bytes.bytes_mut(), offset);
    let count = count.map_err(|e| LogError::io("read batches", &extent_name(sequence), e))?;
    Ok(bytes.into_bytes(count))
}

/// The batch in `bytes`, the blocks that were read from its position. Where it ends in its last
/// block its header says: what is known of that may come from a header that was damaged when this
/// process started (`recover::earlier`), and is repaired now.
fn checked(shared: &Shared, place: &BatchPlace, bytes: &Bytes) -> Result<Batch, LogError> {
    let known = padded(place.end.0 - place.lsn.0);
    let whole = whole_at(shared, place.lsn, bytes);
    match whole.or_else(|| longer_at(shared, place.lsn, bytes)) {
        Some((header, payload))
            if (header.index, u64::from(header.term)) == (place.index, place.term)
                && padded(header.batch_bytes()) == known =>
        {
            Ok(Batch { index: place.index, term: place.term, lsn: place.lsn, payload })
        }
        Some(_) => {
            let what = "another batch is at that position";
            Err(LogError::OutOfPlace { index: place.index, lsn: place.lsn, what })
        }
        None => {
            let extent = place.lsn.0 / shared.options.extent_bytes;
            let offset = place.lsn.0 % shared.options.extent_bytes;
            let file = extent_name(extent);
            let what = Damage::Batch;
            Err(LogError::Damaged(Finding { file, extent, offset, lsn: place.lsn, what }))
        }
    }
}

/// The batch at the beginning of `bytes`, when all of it is there.
fn whole_at(shared: &Shared, lsn: Lsn, bytes: &Bytes) -> Option<(BatchHeader, Bytes)> {
    let claimed = size(BatchHeader::decode(bytes)?.batch_bytes());
    let (header, payload) = mend::checked(shared, bytes.get(..claimed)?)?;
    (header.lsn == lsn).then(|| (header, bytes.slice_ref(payload)))
}

/// The same for one that is longer than what was read: another one may have taken its place.
fn longer_at(shared: &Shared, lsn: Lsn, bytes: &Bytes) -> Option<(BatchHeader, Bytes)> {
    let extent_bytes = shared.options.extent_bytes;
    let claimed = BatchHeader::decode(bytes)?.batch_bytes();
    if claimed <= bytes.len() as u64 || claimed > extent_bytes - lsn.0 % extent_bytes {
        return None;
    }
    let bytes = load(shared, lsn.0 / extent_bytes, (lsn, lsn.after(claimed))).ok()?;
    whole_at(shared, lsn, &bytes)
}
