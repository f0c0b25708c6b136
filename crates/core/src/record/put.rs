//! Puts and chunks as bytes, and where their bodies are. The drawing is in `record`.

use std::ops::Range;

use towline_types::{BodyLocation, Lsn, Time};

use super::error::RecordError;
use super::fields::{self, FieldReader, put_fields};
use super::message_fields::MessageFields;
use super::optional::OptionalFields;
use super::tag::{BODY_CHUNK, PUT, RecordTag};
use super::wire::{Reader, put_varint};
use crate::fact::Fact;
use crate::message::{Body, BodyName, Header, Message};
use crate::{BodyId, MessageSequence, QueueId};

const PERSISTENT: u8 = 1;
/// Bits 1 to 5 are the flags of the optional fields.
const OPTIONAL_SHIFT: u32 = 1;
const ANNOUNCED: u8 = 1 << 6;

/// What a Put says beside its message.
pub(super) struct PutPlace {
    pub(super) queue: QueueId,
    pub(super) sequence: MessageSequence,
    pub(super) carried: bool,
}

/// The fields of a message in a record.
fn fields_of(header: &Header, carried: bool) -> MessageFields {
    let Header { group, group_sequence, deliver_at, .. } = *header;
    MessageFields { carried, group, group_sequence, deliver_at }
}

pub(super) fn put_message(
    place: &PutPlace,
    message: &Message,
    last: bool,
    out: &mut Vec<u8>,
) -> Option<Range<usize>> {
    let start = out.len();
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
    let fields = fields_of(header, place.carried);
    let has_fields = !fields.is_empty(header.put_at);
    out.push(RecordTag { kind: PUT, last, has_fields }.byte());
    let persistent = if header.persistent { PERSISTENT } else { 0 };
    let announced = if announced { ANNOUNCED } else { 0 };
    out.push(persistent | optional.flags() << OPTIONAL_SHIFT | announced);
    put_varint(u64::from(place.queue.0), out);
    put_varint(place.sequence.0, out);
    out.push(header.order << 4 | header.priority);
    put_varint(header.put_at.0, out);
    optional.put(header.put_at, out);
    if has_fields {
        fields.put(header.put_at, out);
    }
    if let Body::Announced { body, chunks, bytes } = body {
        let own = match body {
            BodyName::Own(_) => !place.carried,
            BodyName::Carried(sequence) => place.carried && *sequence == place.sequence,
        };
        assert!(own, "a put refers to a body of its own");
        put_varint(body.number(), out);
        put_varint(u64::from(*chunks), out);
        put_varint(*bytes, out);
        return None;
    }
    Some(put_bytes(start, body, out))
}

pub(super) fn put_chunk(
    body: BodyName,
    index: u32,
    chunk: &Body,
    last: bool,
    out: &mut Vec<u8>,
) -> Range<usize> {
    let start = out.len();
    let has_fields = matches!(body, BodyName::Carried(_));
    out.push(RecordTag { kind: BODY_CHUNK, last, has_fields }.byte());
    put_varint(body.number(), out);
    put_varint(u64::from(index), out);
    if has_fields {
        put_fields(out, |fields| fields.nothing(fields::CARRIED));
    }
    put_bytes(start, chunk, out)
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

pub(super) fn read_put(
    reader: &mut Reader<'_>,
    has_fields: bool,
    at: Lsn,
) -> Result<Fact, RecordError> {
    let flags = reader.byte()?;
    if flags & 0x80 != 0 {
        return Err(reader.error("an unknown flag"));
    }
    let queue = reader.queue()?;
    let sequence = MessageSequence(reader.varint()?);
    let priorities = reader.byte()?;
    let (order, priority) = (priorities >> 4, priorities & 0x0f);
    if order > 9 || priority > 9 {
        return Err(reader.error("a priority above 9"));
    }
    let put_at = Time(reader.varint()?);
    let optional = OptionalFields::read(reader, flags >> OPTIONAL_SHIFT, put_at)?;
    let fields = match has_fields {
        true => MessageFields::read(reader, put_at)?,
        false => MessageFields::default(),
    };
    let MessageFields { carried, group, group_sequence, deliver_at } = fields;
    let body = if flags & ANNOUNCED != 0 {
        let body = match (carried, reader.varint()?) {
            (false, id) => BodyName::Own(BodyId(id)),
            (true, of) if of == sequence.0 => BodyName::Carried(sequence),
            (true, _) => return Err(reader.error("the body of another message")),
        };
        Body::Announced { body, chunks: reader.varint_u32()?, bytes: reader.varint()? }
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
        group,
        group_sequence,
        deliver_at,
    };
    let OptionalFields { backout_count, dead_letter, .. } = optional;
    let message = Box::new(Message { header, body, backout_count, dead_letter });
    Ok(Fact::Put { queue, sequence, carried, message })
}

pub(super) fn read_chunk(
    reader: &mut Reader<'_>,
    has_fields: bool,
    at: Lsn,
) -> Result<Fact, RecordError> {
    let number = reader.varint()?;
    let index = reader.varint_u32()?;
    let mut body = BodyName::Own(BodyId(number));
    if has_fields {
        let mut fields = FieldReader::begin(reader, &fields::BODY_CHUNK)?;
        // It has one number, which does not come twice.
        while fields.next()?.is_some() {
            body = BodyName::Carried(MessageSequence(number));
        }
    }
    Ok(Fact::BodyChunk { body, index, chunk: Body::Log(read_location(reader, at)?) })
}

/// All that is left of the record, as a location in the log.
fn read_location(reader: &mut Reader<'_>, at: Lsn) -> Result<BodyLocation, RecordError> {
    let range = reader.rest();
    let length = u32::try_from(range.len()).map_err(|_| reader.error("a body of 4 GiB"))?;
    let lsn = at.0.checked_add(range.start as u64).ok_or_else(|| reader.error("past any log"))?;
    Ok(BodyLocation { lsn: Lsn(lsn), bytes: length })
}
