//! Facts as bytes: what one record of the log means. The log itself keeps opaque bytes.
//!
//! One record is one fact. Numbers are varints (LEB128, least significant group first, at most ten
//! bytes, the shortest form only) unless a width is given; text is a length and UTF-8. Version 1:
//!
//! ```text
//! tag        1 byte   bit 7: last record of its run
//!                     bits 6-5: version of the layout - 1 (0)
//!                     bits 4-0: kind
//!
//! kind  fact        then
//!  1    Put         flags 1, queue, sequence, order << 4 | priority 1, put_at,
//!                   [time to live] [correlation 8 LE] [message id 8 LE] [backouts] [dead letter],
//!                   body: bytes, or (announced) body id, chunks, bytes
//!  2    Got         queue, sequence
//!  3    BackedOut   queue, sequence, count
//!  4    Expired     queue, sequence
//!  5    Moved       from, sequence, to, new sequence, dead letter
//!  6    BodyChunk   body id, index, bytes
//!  7    Defined     definition (see `definition.rs`)
//!  8    Deleted     queue
//!  9    Cleared     queue, first sequence that stays
//! 10    Committed   operations
//! 11    Undefined   name
//! 12    Abandoned   first body id, bodies
//!
//! flags of a Put: 0 persistent, 1 expires, 2 correlation, 3 message id, 4 backouts, 5 dead letter,
//!                 6 announced
//! time to live:   expires_at - put_at, modulo 2^64
//! dead letter:    reason 1, origin id, moved_at, origin
//! bytes:          all that is left of the record
//! ```
//!
//! A decoder accepts exactly what the encoder makes: no byte more, no byte less, no second
//! spelling. It never panics: whatever the bytes are, it yields a fact or a [`RecordError`].

mod definition;
mod optional;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::ops::Range;

use towline_types::{BodyLocation, Lsn, Time};

use crate::fact::Fact;
use crate::message::{Body, Header, Message};
use crate::{BodyId, MessageSequence, QueueId};

pub(crate) use definition::{decode_definition, encode_definition};
pub(crate) use optional::{
    ALL as OPTIONAL_FLAGS, OptionalFields, put_dead_letter, read_dead_letter,
};
pub(crate) use wire::{Reader, put_text, put_varint};

const LAST: u8 = 0x80;
const VERSION_MASK: u8 = 0x60;

const PUT: u8 = 1;
const GOT: u8 = 2;
const BACKED_OUT: u8 = 3;
const EXPIRED: u8 = 4;
const MOVED: u8 = 5;
const BODY_CHUNK: u8 = 6;
const DEFINED: u8 = 7;
const DELETED: u8 = 8;
const CLEARED: u8 = 9;
const COMMITTED: u8 = 10;
const UNDEFINED: u8 = 11;
const ABANDONED: u8 = 12;

const PERSISTENT: u8 = 1;
/// Bits 1 to 5 are the flags of the optional fields.
const OPTIONAL_SHIFT: u32 = 1;
const ANNOUNCED: u8 = 1 << 6;

/// Bytes that are not a record, or not an image, of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Where in the bytes.
    pub offset: usize,
    /// What was wrong there.
    pub what: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for RecordError {}

/// The log contradicts itself: it is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// What did not fit.
    pub what: String,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the log contradicts itself: {}", self.what)
    }
}

impl std::error::Error for ReplayError {}

/// Appends one record. Yields where the body's (or chunk's) bytes are, counted from the record's
/// first byte: the location that `apply` is to be given.
///
/// # Panics
/// When a body is in the log already: a record holds bytes, not locations.
pub fn encode(fact: &Fact, last: bool, out: &mut Vec<u8>) -> Option<Range<usize>> {
    let start = out.len();
    let tag = |kind: u8| if last { kind | LAST } else { kind };
    match fact {
        Fact::Put { queue, sequence, message } => {
            out.push(tag(PUT));
            return put_message(start, *queue, *sequence, message, out);
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
        Fact::Moved { from, sequence, to, new_sequence, dead_letter } => {
            put_place(tag(MOVED), *from, *sequence, out);
            put_varint(u64::from(to.0), out);
            put_varint(new_sequence.0, out);
            put_dead_letter(dead_letter, out);
        }
        Fact::BodyChunk { body, index, chunk } => {
            out.push(tag(BODY_CHUNK));
            put_varint(body.0, out);
            put_varint(u64::from(*index), out);
            return Some(put_bytes(start, chunk, out));
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
    }
    None
}

fn put_place(tag: u8, queue: QueueId, sequence: MessageSequence, out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(u64::from(queue.0), out);
    put_varint(sequence.0, out);
}

fn put_message(
    start: usize,
    queue: QueueId,
    sequence: MessageSequence,
    message: &Message,
    out: &mut Vec<u8>,
) -> Option<Range<usize>> {
    let Message { header, body, backout_count, dead_letter } = message;
    assert!(header.priority <= 9 && header.order <= 9, "priorities are 0 to 9");
    let announced = matches!(body, Body::Announced { .. });
    let optional = OptionalFields {
        expires_at: header.expires_at,
        correlation_hash: header.correlation_hash,
        message_id_hash: header.message_id_hash,
        backout_count: *backout_count,
        dead_letter: dead_letter.as_deref(),
    };
    let persistent = if header.persistent { PERSISTENT } else { 0 };
    let announced = if announced { ANNOUNCED } else { 0 };
    out.push(persistent | optional.flags() << OPTIONAL_SHIFT | announced);
    put_varint(u64::from(queue.0), out);
    put_varint(sequence.0, out);
    out.push(header.order << 4 | header.priority);
    put_varint(header.put_at.0, out);
    optional.put(header.put_at, out);
    if let Body::Announced { body, chunks, bytes } = body {
        put_varint(body.0, out);
        put_varint(u64::from(*chunks), out);
        put_varint(*bytes, out);
        return None;
    }
    Some(put_bytes(start, body, out))
}

fn put_bytes(start: usize, body: &Body, out: &mut Vec<u8>) -> Range<usize> {
    let from = out.len() - start;
    match body {
        Body::Incoming(payload) => {
            for piece in payload.pieces() {
                out.extend_from_slice(piece);
            }
        }
        Body::Memory(bytes) => out.extend_from_slice(bytes),
        Body::Log(_) | Body::Chunks(_) | Body::Announced { .. } => {
            unreachable!("a record holds bytes, not places")
        }
    }
    from..out.len() - start
}

/// Version of the layout of a record that a later program wrote; `None` when this one reads it.
#[must_use]
pub fn newer_version(bytes: &[u8]) -> Option<u8> {
    let bits = (bytes.first()? & VERSION_MASK) >> VERSION_MASK.trailing_zeros();
    (bits > 0).then_some(bits + 1)
}

/// Newest version of the layout of records.
pub const VERSION: u8 = 1;

/// Reads one record, which is all of `bytes`; `at` is the position of its first byte in the log.
/// The flag says whether it is the last of its run.
///
/// # Errors
/// The bytes are not exactly one record of a known version.
pub fn decode(bytes: &[u8], at: Lsn) -> Result<(Fact, bool), RecordError> {
    let mut reader = Reader::new(bytes);
    let tag = reader.byte()?;
    if tag & VERSION_MASK != 0 {
        return Err(reader.error("a record of a newer version"));
    }
    let last = tag & LAST != 0;
    let fact = match tag & !(LAST | VERSION_MASK) {
        PUT => read_put(&mut reader, at)?,
        GOT => {
            Fact::Got { queue: queue(&mut reader)?, sequence: MessageSequence(reader.varint()?) }
        }
        BACKED_OUT => Fact::BackedOut {
            queue: queue(&mut reader)?,
            sequence: MessageSequence(reader.varint()?),
            count: reader.varint_u32()?,
        },
        EXPIRED => Fact::Expired {
            queue: queue(&mut reader)?,
            sequence: MessageSequence(reader.varint()?),
        },
        MOVED => Fact::Moved {
            from: queue(&mut reader)?,
            sequence: MessageSequence(reader.varint()?),
            to: queue(&mut reader)?,
            new_sequence: MessageSequence(reader.varint()?),
            dead_letter: Box::new(read_dead_letter(&mut reader)?),
        },
        BODY_CHUNK => Fact::BodyChunk {
            body: BodyId(reader.varint()?),
            index: reader.varint_u32()?,
            chunk: Body::Log(read_location(&mut reader, at)?),
        },
        DEFINED => Fact::Defined { definition: Box::new(decode_definition(&mut reader)?) },
        DELETED => Fact::Deleted { queue: queue(&mut reader)? },
        CLEARED => {
            Fact::Cleared { queue: queue(&mut reader)?, upto: MessageSequence(reader.varint()?) }
        }
        COMMITTED => Fact::Committed { operations: reader.varint_u32()? },
        UNDEFINED => Fact::Undefined { name: reader.text()?.to_owned() },
        ABANDONED => Fact::Abandoned { first: BodyId(reader.varint()?), bodies: reader.varint()? },
        _ => return Err(reader.error("a record of an unknown kind")),
    };
    reader.end()?;
    Ok((fact, last))
}

fn queue(reader: &mut Reader<'_>) -> Result<QueueId, RecordError> {
    reader.varint_u32().map(QueueId)
}

fn read_put(reader: &mut Reader<'_>, at: Lsn) -> Result<Fact, RecordError> {
    let flags = reader.byte()?;
    if flags & 0x80 != 0 {
        return Err(reader.error("an unknown flag"));
    }
    let queue = queue(reader)?;
    let sequence = MessageSequence(reader.varint()?);
    let priorities = reader.byte()?;
    let (order, priority) = (priorities >> 4, priorities & 0x0f);
    if order > 9 || priority > 9 {
        return Err(reader.error("a priority above 9"));
    }
    let put_at = Time(reader.varint()?);
    let optional = OptionalFields::read(reader, flags >> OPTIONAL_SHIFT, put_at)?;
    let body = if flags & ANNOUNCED != 0 {
        Body::Announced {
            body: BodyId(reader.varint()?),
            chunks: reader.varint_u32()?,
            bytes: reader.varint()?,
        }
    } else {
        Body::Log(read_location(reader, at)?)
    };
    let header = Header {
        persistent: flags & PERSISTENT != 0,
        priority,
        order,
        expires_at: optional.expires_at,
        put_at,
        correlation_hash: optional.correlation_hash,
        message_id_hash: optional.message_id_hash,
        ..Header::default()
    };
    let OptionalFields { backout_count, dead_letter, .. } = optional;
    let message = Box::new(Message { header, body, backout_count, dead_letter });
    Ok(Fact::Put { queue, sequence, message })
}

/// All that is left of the record, as a location in the log.
fn read_location(reader: &mut Reader<'_>, at: Lsn) -> Result<BodyLocation, RecordError> {
    let range = reader.rest();
    let length = u32::try_from(range.len()).map_err(|_| reader.error("a body of 4 GiB"))?;
    let lsn = at.0.checked_add(range.start as u64).ok_or_else(|| reader.error("past any log"))?;
    Ok(BodyLocation { lsn: Lsn(lsn), bytes: length })
}
