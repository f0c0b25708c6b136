//! A block as bytes: what is on a page of the page file.
//!
//! Numbers are varints as in `record`; a difference is a zigzag varint (0, -1, 1, -2, ...).
//!
//! ```text
//! version 1 or 2 (1 byte), number of messages (1 to 256), then each message:
//!   flags 1, sequence - sequence before, priority 1, difference of put_at,
//!   [time to live] [correlation 8 LE] [message id 8 LE] [backouts] [dead letter], [fields],
//!   body: difference of position, bytes; or (chunks) how many, each: the same
//!
//! flags: 0 expires, 1 correlation, 2 message id, 3 backouts, 4 dead letter, 5 chunks, 7 fields
//! ```
//! A page has version 2 exactly if one of its messages has fields (`record/fields.rs`). Bit 6 is
//! kept for references. That a later version wrote a page is known from the image that refers to
//! it, and from the page itself: it is refused then, not taken for damaged.
//!
//! The first message counts from sequence 0, time 0, position 0. Only persistent messages are on
//! pages, in any state; all are available when they come back, because a block with others does
//! not leave and no consumer holds a message at start.
//!
//! A decoder accepts exactly what the encoder makes, and never panics.

use towline_types::{BodyLocation, Lsn, PageRef, Time};

use super::block::{BLOCK_ENTRIES, ExtentShare, add_share};
use super::{Entry, EntryBody, EntryState, Extra, Marks, Outline, Sheet};
use crate::record::{
    LaterFormat, MessageFields, OPTIONAL_FLAGS, OptionalFields, Reader, RecordError, put_varint,
};

/// Newest version of pages.
pub const VERSION: u8 = 2;
const VERSION_WITHOUT_FIELDS: u8 = 1;

/// Bits 0 to 4 are the flags of the optional fields.
const CHUNKS: u8 = 1 << 5;
const FIELDS: u8 = 1 << 7;

/// The values that the next message is encoded against.
#[derive(Clone, Copy, Default)]
struct Before {
    sequence: u64,
    put_at: u64,
    lsn: u64,
    /// There was none before it.
    first: bool,
}

/// Writes the persistent messages of a sheet. Yields their outline, with a position that the caller
/// sets; `None` when there is none.
pub(crate) fn encode(sheet: &Sheet, extent_bytes: u64, out: &mut Vec<u8>) -> Option<Outline> {
    let outline = outline(sheet, extent_bytes)?;
    let has_fields =
        |entry: &Entry| !fields_of(entry, extra_of(sheet, entry)).is_empty(entry.put_at);
    out.push(if kept(sheet).any(has_fields) { VERSION } else { VERSION_WITHOUT_FIELDS });
    put_varint(u64::from(outline.live), out);
    let mut before = Before::default();
    for entry in kept(sheet) {
        let extra = extra_of(sheet, entry);
        put_entry(entry, extra, &mut before, out);
    }
    Some(outline)
}

fn extra_of<'a>(sheet: &'a Sheet, entry: &Entry) -> Option<&'a Extra> {
    if entry.marks.has_extra() { sheet.extras.get(entry.sequence) } else { None }
}

fn fields_of(entry: &Entry, extra: Option<&Extra>) -> MessageFields {
    MessageFields {
        carried: false,
        group: entry.group,
        group_sequence: extra.map_or(0, |extra| extra.group_sequence),
        deliver_at: extra.and_then(|extra| extra.deliver_at),
    }
}

/// What a page has of a sheet.
fn kept(sheet: &Sheet) -> impl Iterator<Item = &Entry> {
    sheet.entries.iter().filter(|entry| entry.persistent && entry.state != EntryState::Gone)
}

/// The outline of a page of this sheet, with a position that the caller sets; `None` when nothing
/// would be on it.
pub(crate) fn outline(sheet: &Sheet, extent_bytes: u64) -> Option<Outline> {
    let first = kept(sheet).next()?;
    let mut outline = Outline {
        page: PageRef { unit: 0, bytes: 0, checksum: 0 },
        first: first.sequence,
        last: first.sequence,
        live: 0,
        expiring: 0,
        expires_first: Time::NEVER,
        put_at: first.put_at,
        bytes: 0,
        extents: Box::default(),
    };
    let mut shares: Vec<ExtentShare> = Vec::new();
    for entry in kept(sheet) {
        let extra = extra_of(sheet, entry);
        outline.last = entry.sequence;
        outline.live += 1;
        outline.expiring += u32::from(entry.expires());
        outline.expires_first = outline.expires_first.min(entry.expires_at);
        for body in bodies(entry, extra) {
            outline.bytes += u64::from(body.bytes);
            add_share(&mut shares, body, extent_bytes);
        }
    }
    outline.extents = shares.into_boxed_slice();
    Some(outline)
}

pub(crate) fn bodies<'a>(
    entry: &'a Entry,
    extra: Option<&'a Extra>,
) -> impl Iterator<Item = BodyLocation> + 'a {
    let chunks = extra.and_then(|extra| extra.chunks.as_deref());
    let whole = match (chunks, &entry.place) {
        (None, EntryBody::Log { bytes, lsn }) => Some(BodyLocation { lsn: *lsn, bytes: *bytes }),
        (None, EntryBody::Memory(_)) => {
            unreachable!("the body of a persistent message is in the log")
        }
        (Some(_), _) => None,
    };
    whole.into_iter().chain(chunks.into_iter().flatten().copied())
}

fn put_entry(entry: &Entry, extra: Option<&Extra>, before: &mut Before, out: &mut Vec<u8>) {
    let chunks = extra.and_then(|extra| extra.chunks.as_ref());
    let optional = OptionalFields {
        expires_at: entry.expires().then_some(entry.expires_at),
        correlation_hash: entry.correlation_hash,
        message_id_hash: entry.message_id_hash,
        backout_count: entry.backout_count,
        dead_letter: extra.and_then(|extra| extra.dead_letter.as_deref()),
    };
    let fields = fields_of(entry, extra);
    let has_fields = !fields.is_empty(entry.put_at);
    let chunked = if chunks.is_some() { CHUNKS } else { 0 };
    out.push(optional.flags() | chunked | if has_fields { FIELDS } else { 0 });
    put_varint(entry.sequence - before.sequence, out);
    out.push(entry.priority);
    put_difference(entry.put_at.0, &mut before.put_at, out);
    before.sequence = entry.sequence;
    optional.put(entry.put_at, out);
    if has_fields {
        fields.put(entry.put_at, out);
    }
    if let Some(chunks) = chunks {
        put_varint(chunks.len() as u64, out);
    }
    for body in bodies(entry, extra) {
        put_difference(body.lsn.0, &mut before.lsn, out);
        put_varint(u64::from(body.bytes), out);
    }
}

fn put_difference(number: u64, before: &mut u64, out: &mut Vec<u8>) {
    let difference = number.wrapping_sub(*before).cast_signed();
    put_varint(((difference << 1) ^ (difference >> 63)).cast_unsigned(), out);
    *before = number;
}

fn read_difference(reader: &mut Reader<'_>, before: &mut u64) -> Result<u64, RecordError> {
    let zigzag = reader.varint()?;
    let difference = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
    *before = before.wrapping_add(difference);
    Ok(*before)
}

/// Reads a page.
///
/// # Errors
/// It is not one of ours.
pub(crate) fn decode(bytes: &[u8]) -> Result<Sheet, RecordError> {
    let mut reader = Reader::new(bytes);
    let known = match reader.byte()? {
        VERSION_WITHOUT_FIELDS => OPTIONAL_FLAGS | CHUNKS,
        VERSION => OPTIONAL_FLAGS | CHUNKS | FIELDS,
        later @ 3.. => return Err(RecordError::later(0, LaterFormat::Version(later))),
        0 => return Err(reader.error("a page of another version")),
    };
    let count = reader.varint()?;
    if count == 0 || count > BLOCK_ENTRIES as u64 {
        return Err(reader.error("a page has 1 to 256 messages"));
    }
    let mut sheet = Sheet::default();
    let mut before = Before { first: true, ..Before::default() };
    let mut all_flags = 0;
    for _ in 0..count {
        let flags = reader.byte()?;
        if flags & !known != 0 {
            return Err(reader.error("an unknown flag"));
        }
        all_flags |= flags;
        let (entry, extra) = read_entry(flags, &mut reader, &mut before)?;
        if let Some(extra) = extra {
            sheet.extras.insert(entry.sequence, extra);
        }
        sheet.entries.push(entry);
    }
    if known & FIELDS != all_flags & FIELDS {
        return Err(reader.error("a page without fields of a version with fields"));
    }
    reader.end()?;
    Ok(sheet)
}

fn read_entry(
    flags: u8,
    reader: &mut Reader<'_>,
    before: &mut Before,
) -> Result<(Entry, Option<Extra>), RecordError> {
    let step = reader.varint()?;
    let sequence = before.sequence.checked_add(step).filter(|_| step > 0 || before.first);
    let sequence = sequence.ok_or_else(|| reader.error("sequences do not ascend"))?;
    before.sequence = sequence;
    before.first = false;
    let priority = reader.byte()?;
    if priority > 9 {
        return Err(reader.error("a priority above 9"));
    }
    let put_at = Time(read_difference(reader, &mut before.put_at)?);
    let optional = OptionalFields::read(reader, flags, put_at)?;
    let fields = match flags & FIELDS != 0 {
        true => MessageFields::read(reader, put_at)?,
        false => MessageFields::default(),
    };
    let MessageFields { carried: false, group, group_sequence, deliver_at } = fields else {
        return Err(reader.error("a page does not say what was carried forward"));
    };
    let (location, chunks) = if flags & CHUNKS != 0 {
        (BodyLocation::default(), Some(read_chunks(reader, before)?))
    } else {
        (read_body(reader, before)?, None)
    };
    let dead_letter = optional.dead_letter;
    let extra = Extra { dead_letter, chunks, deliver_at, group_sequence }.kept();
    let entry = Entry {
        sequence,
        expires_at: optional.expires_at.unwrap_or(Time::NEVER),
        put_at,
        correlation_hash: optional.correlation_hash,
        message_id_hash: optional.message_id_hash,
        group,
        place: EntryBody::at(location),
        backout_count: optional.backout_count,
        state: EntryState::Available,
        priority,
        persistent: true,
        marks: Marks::of(extra.is_some()),
    };
    Ok((entry, extra))
}

/// Where the bodies of a page are.
#[cfg(test)]
pub(crate) fn bodies_of_page(bytes: &[u8]) -> Vec<BodyLocation> {
    let Ok(sheet) = decode(bytes) else { return Vec::new() };
    let all = |entry: &Entry| {
        let bodies: Vec<_> = bodies(entry, sheet.extras.get(entry.sequence)).collect();
        bodies
    };
    sheet.entries.iter().flat_map(all).collect()
}

fn read_body(reader: &mut Reader<'_>, before: &mut Before) -> Result<BodyLocation, RecordError> {
    let lsn = Lsn(read_difference(reader, &mut before.lsn)?);
    Ok(BodyLocation { lsn, bytes: reader.varint_u32()? })
}

fn read_chunks(
    reader: &mut Reader<'_>,
    before: &mut Before,
) -> Result<Box<[BodyLocation]>, RecordError> {
    let count = reader.varint()?;
    // Each chunk takes two bytes at least: what a page claims is not believed before it is read.
    let mut chunks: Vec<BodyLocation> = Vec::new();
    for _ in 0..count {
        chunks.push(read_body(reader, before)?);
    }
    Ok(chunks.into_boxed_slice())
}

#[cfg(test)]
mod tests;
