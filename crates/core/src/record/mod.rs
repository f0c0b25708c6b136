//! Facts as bytes: what one record of the log means. The log itself keeps opaque bytes.
//!
//! One record is one fact. Numbers are varints (LEB128, least significant group first, at most ten
//! bytes, the shortest form only) unless a width is given; text is a length and UTF-8. Layout 2 is
//! layout 1 and fields (`fields.rs`); a record has layout 2 exactly if it has fields:
//!
//! ```text
//! tag        1 byte   bit 7: last record of its run
//!                     bits 6-5: layout - 1 (0 or 1)
//!                     bits 4-0: kind
//!
//! kind  fact        then
//!  1    Put         flags 1, queue, sequence, order << 4 | priority 1, put_at,
//!                   [time to live] [correlation 8 LE] [message id 8 LE] [backouts] [dead letter],
//!                   [fields], body: bytes, or (announced) body id, chunks, bytes
//!  2    Got         queue, sequence
//!  3    BackedOut   queue, sequence, count
//!  4    Expired     queue, sequence
//!  5    Moved       from, sequence, to, new sequence, dead letter, [fields]
//!  6    BodyChunk   body id, index, [fields], bytes
//!  7    Defined     definition (see `definition.rs`)
//!  8    Deleted     queue
//!  9    Cleared     queue, first sequence that stays
//! 10    Committed   operations
//! 11    Undefined   name
//! 12    Abandoned   first body id, bodies
//! 13    Level       fields
//! 14    Part        fields
//! 15    Completed   fields
//! 16    HistoryBegun  fields
//!
//! flags of a Put: 0 persistent, 1 expires, 2 correlation, 3 message id, 4 backouts, 5 dead letter,
//!                 6 announced
//! time to live:   expires_at - put_at, modulo 2^64
//! dead letter:    reason 1, origin id, moved_at, origin
//! body id:        of what is carried forward (a field says so): the sequence of the message
//! bytes:          all that is left of the record
//! ```
//!
//! Kinds from 13 on are of layout 2 only, and consist of fields. In records of other kinds fields
//! would stand at the end; there are none yet.
//!
//! A decoder accepts exactly what the encoder makes: no byte more, no byte less, no second
//! spelling. It never panics: whatever the bytes are, it yields a fact or a [`RecordError`]. What a
//! later version may have written is refused as such, and never skipped.

mod definition;
mod error;
pub mod fields;
mod history;
mod message_fields;
mod optional;
mod parts;
mod put;
mod tag;
#[cfg(test)]
mod tests;
mod wire;

use std::ops::Range;

use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_FIRST, History, Lsn};

use crate::fact::Fact;
use crate::{BodyId, MessageSequence, QueueId};

pub(crate) use definition::{decode_definition, encode_definition};
pub use error::{LaterFormat, RecordError, ReplayError};
pub(crate) use fields::FieldReader;
use fields::{FieldValue, put_fields};
pub(crate) use history::{put_history, read_history};
use history::{put_history_begun, read_history_begun};
pub(crate) use message_fields::MessageFields;
pub(crate) use optional::{
    ALL as OPTIONAL_FLAGS, OptionalFields, put_dead_letter, read_dead_letter,
};
use parts::{put_completed, put_part, read_completed, read_part};
use put::{PutPlace, put_chunk, put_message, read_chunk, read_put};
pub use tag::VERSION;
use tag::{
    ABANDONED, BACKED_OUT, BODY_CHUNK, CLEARED, COMMITTED, COMPLETED, DEFINED, DELETED, EXPIRED,
    GOT, HISTORY_BEGUN, LEVEL, MOVED, PART, PUT, RecordTag, UNDEFINED,
};
pub(crate) use wire::{Reader, put_text, put_varint};

/// Appends one record. Yields where the body's (or chunk's) bytes are, counted from the record's
/// first byte: the location that `apply` is to be given.
///
/// # Panics
/// When a body is in the log already: a record holds bytes, not locations.
pub fn encode(fact: &Fact, last: bool, out: &mut Vec<u8>) -> Option<Range<usize>> {
    let tag = |kind: u8| RecordTag { kind, last, has_fields: false }.byte();
    let with_fields = |kind: u8| RecordTag { kind, last, has_fields: true }.byte();
    match fact {
        Fact::Put { queue, sequence, carried, message } => {
            let place = PutPlace { queue: *queue, sequence: *sequence, carried: *carried };
            return put_message(&place, message, last, out);
        }
        Fact::BodyChunk { body, index, chunk } => {
            return Some(put_chunk(*body, *index, chunk, last, out));
        }
        Fact::Got { queue, sequence } => {
            put_place(tag(GOT), *queue, *sequence, out);
        }
        Fact::BackedOut { queue, sequence, count } => {
            put_place(tag(BACKED_OUT), *queue, *sequence, out);
            put_varint(u64::from(*count), out);
        }
        Fact::Expired { queue, sequence } => {
            put_place(tag(EXPIRED), *queue, *sequence, out);
        }
        Fact::Moved { from, sequence, to, new_sequence, order, dead_letter } => {
            let tag = RecordTag { kind: MOVED, last, has_fields: order.is_some() };
            put_place(tag.byte(), *from, *sequence, out);
            put_varint(u64::from(to.0), out);
            put_varint(new_sequence.0, out);
            put_dead_letter(dead_letter, out);
            if let Some(order) = order {
                put_fields(out, |fields| fields.number(fields::ORDER, u64::from(*order)));
            }
        }
        Fact::Defined { definition } => {
            out.push(tag(DEFINED));
            encode_definition(definition, out);
        }
        Fact::Deleted { queue } => {
            out.push(tag(DELETED));
            put_varint(u64::from(queue.0), out);
        }
        Fact::Cleared { queue, upto } => {
            put_place(tag(CLEARED), *queue, *upto, out);
        }
        Fact::Committed { operations } => {
            out.push(tag(COMMITTED));
            put_varint(u64::from(*operations), out);
        }
        Fact::Undefined { name } => {
            out.push(tag(UNDEFINED));
            put_text(name, out);
        }
        Fact::Abandoned { first, bodies } => {
            out.push(tag(ABANDONED));
            put_varint(first.0, out);
            put_varint(*bodies, out);
        }
        Fact::Level { level } => {
            out.push(with_fields(LEVEL));
            put_level(*level, out);
        }
        Fact::Part { commit, operations } => {
            put_part(with_fields(PART), *commit, *operations, out);
        }
        Fact::Completed { commit, operations, first } => {
            put_completed(with_fields(COMPLETED), (*commit, *operations, *first), out);
        }
        Fact::HistoryBegun { history, first } => {
            put_history_begun(with_fields(HISTORY_BEGUN), history, *first, out);
        }
    }
    None
}

/// A format level, as the one field of its owner.
pub(crate) fn put_level(level: u8, out: &mut Vec<u8>) {
    put_fields(out, |fields| fields.number(fields::LEVEL, u64::from(level)));
}

fn put_place(tag: u8, queue: QueueId, sequence: MessageSequence, out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(u64::from(queue.0), out);
    put_varint(sequence.0, out);
}

/// Reads one record, which is all of `bytes`; `at` is the position of its first byte in the log.
/// The flag says whether it is the last of its run.
///
/// # Errors
/// The bytes are not exactly one record of a known version.
pub fn decode(bytes: &[u8], at: Lsn) -> Result<(Fact, bool), RecordError> {
    let mut reader = Reader::new(bytes);
    let RecordTag { kind, last, has_fields } = RecordTag::read(&mut reader)?;
    let fact = match kind {
        PUT => read_put(&mut reader, has_fields, at)?,
        BODY_CHUNK => read_chunk(&mut reader, has_fields, at)?,
        MOVED => read_moved(&mut reader, has_fields)?,
        LEVEL if has_fields => {
            Fact::Level { level: read_level(&mut reader, &fields::LEVEL_RECORD)? }
        }
        PART if has_fields => read_part(&mut reader)?,
        COMPLETED if has_fields => read_completed(&mut reader)?,
        HISTORY_BEGUN if has_fields => read_history_begun(&mut reader)?,
        GOT..=ABANDONED => {
            let fact = read_plain(kind, &mut reader)?;
            if has_fields {
                // Whatever it is, this program does not know it.
                FieldReader::begin(&mut reader, &fields::OTHER_RECORD)?.refuse()?;
            }
            fact
        }
        _ if has_fields && kind > HISTORY_BEGUN => {
            return Err(RecordError::later(0, LaterFormat::Kind(kind)));
        }
        _ => return Err(RecordError::malformed(0, "a record of an unknown kind")),
    };
    reader.end()?;
    Ok((fact, last))
}

/// The format level to which a record raises the log that holds it, applied or not; that of all
/// logs when it is another record.
#[must_use]
pub fn raises_to(bytes: &[u8]) -> u8 {
    let is_level = bytes.first().is_some_and(|tag| tag & tag::KIND_MASK == LEVEL);
    if !is_level {
        return FORMAT_LEVEL_FIRST;
    }
    match decode(bytes, Lsn::ZERO) {
        Ok((Fact::Level { level }, _)) => level,
        // A later one, which cannot be applied here: an earlier program could even less.
        Ok(_) | Err(_) => FORMAT_LEVEL,
    }
}

/// The history that begins with a record, if one does.
#[must_use]
pub fn history_begun(bytes: &[u8]) -> Option<History> {
    let is_one = bytes.first().is_some_and(|tag| tag & tag::KIND_MASK == HISTORY_BEGUN);
    match decode(bytes, Lsn::ZERO) {
        Ok((Fact::HistoryBegun { history, .. }, _)) if is_one => Some(*history),
        // What does not add up is found out when it is applied.
        Ok(_) | Err(_) => None,
    }
}

/// A record of a kind that has no fields.
fn read_plain(kind: u8, reader: &mut Reader<'_>) -> Result<Fact, RecordError> {
    Ok(match kind {
        GOT => Fact::Got { queue: reader.queue()?, sequence: MessageSequence(reader.varint()?) },
        BACKED_OUT => Fact::BackedOut {
            queue: reader.queue()?,
            sequence: MessageSequence(reader.varint()?),
            count: reader.varint_u32()?,
        },
        EXPIRED => {
            Fact::Expired { queue: reader.queue()?, sequence: MessageSequence(reader.varint()?) }
        }
        DEFINED => Fact::Defined { definition: Box::new(decode_definition(reader)?) },
        DELETED => Fact::Deleted { queue: reader.queue()? },
        CLEARED => {
            Fact::Cleared { queue: reader.queue()?, upto: MessageSequence(reader.varint()?) }
        }
        COMMITTED => Fact::Committed { operations: reader.varint_u32()? },
        UNDEFINED => Fact::Undefined { name: reader.text()?.to_owned() },
        ABANDONED => Fact::Abandoned { first: BodyId(reader.varint()?), bodies: reader.varint()? },
        _ => return Err(reader.error("a record of an unknown kind")),
    })
}

fn read_moved(reader: &mut Reader<'_>, has_fields: bool) -> Result<Fact, RecordError> {
    let from = reader.queue()?;
    let sequence = MessageSequence(reader.varint()?);
    let to = reader.queue()?;
    let new_sequence = MessageSequence(reader.varint()?);
    let dead_letter = Box::new(read_dead_letter(reader)?);
    let mut order = None;
    if has_fields {
        let mut fields = FieldReader::begin(reader, &fields::MOVED)?;
        while let Some((_, value)) = fields.next()? {
            let FieldValue::Number(lane @ 0..=9) = value else {
                return Err(fields.error("a priority above 9"));
            };
            order = u8::try_from(lane).ok();
        }
    }
    Ok(Fact::Moved { from, sequence, to, new_sequence, order, dead_letter })
}

/// A format level, as the one field of its owner.
pub(crate) fn read_level(
    reader: &mut Reader<'_>,
    list: &'static fields::FieldList,
) -> Result<u8, RecordError> {
    let mut fields = FieldReader::begin(reader, list)?;
    let mut level = FORMAT_LEVEL_FIRST;
    while let Some((_, value)) = fields.next()? {
        level = fields.level(value)?;
    }
    Ok(level)
}
