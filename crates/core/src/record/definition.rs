//! Definitions as bytes, in records and images.
//!
//! ```text
//! kind 1: 1 local, 2 alias, 3 model, 4 queue manager; bit 7: [fields] at the end (none yet)
//! local:          id, deftype 1, name, attributes, created_at, altered_at
//! alias:          name, target, description, put 1, get 1, persistent 1, priority 1, created_at,
//!                 altered_at
//! model:          deftype 1, name, attributes, created_at, altered_at
//! queue manager:  description, dead-letter queue, message bytes, unit messages
//! attributes:     description, depth, message bytes, put 1, get 1, persistent 1, priority 1,
//!                 fifo 1, backout threshold, backout queue, share 1, default shared 1
//! deftype:        0 PREDEFINED, 1 PERMDYN, 2 TEMPDYN
//! ```

use towline_types::Time;

use super::error::RecordError;
use super::fields::{DEFINITION, FieldReader};
use super::wire::{Reader, put_text, put_varint};
use crate::QueueId;
use crate::object::{
    AliasQueue, Definition, DeliverySequence, LocalAttributes, LocalQueue, ModelQueue, QueueKind,
    QueueManagerAttributes, Stamps,
};

/// Of the kind.
const HAS_FIELDS: u8 = 0x80;

pub(crate) fn encode_definition(definition: &Definition, out: &mut Vec<u8>) {
    match definition {
        Definition::Local(LocalQueue { name, id, kind, attributes, stamps }) => {
            out.push(1);
            put_varint(u64::from(id.0), out);
            out.push(kind_code(*kind));
            put_text(name, out);
            put_attributes(attributes, out);
            put_stamps(*stamps, out);
        }
        Definition::Alias(alias) => {
            let AliasQueue { name, target, description, put_enabled, get_enabled, .. } = alias;
            out.push(2);
            for text in [name, target, description] {
                put_text(text, out);
            }
            for flag in [*put_enabled, *get_enabled, alias.default_persistent] {
                out.push(u8::from(flag));
            }
            out.push(alias.default_priority);
            put_stamps(alias.stamps, out);
        }
        Definition::Model(ModelQueue { name, kind, attributes, stamps }) => {
            out.push(3);
            out.push(kind_code(*kind));
            put_text(name, out);
            put_attributes(attributes, out);
            put_stamps(*stamps, out);
        }
        Definition::QueueManager(attributes) => {
            out.push(4);
            put_text(&attributes.description, out);
            put_text(&attributes.dead_letter_queue, out);
            put_varint(attributes.message_bytes_max, out);
            put_varint(u64::from(attributes.unit_messages_max), out);
        }
    }
}

fn kind_code(kind: QueueKind) -> u8 {
    match kind {
        QueueKind::Predefined => 0,
        QueueKind::PermanentDynamic => 1,
        QueueKind::TemporaryDynamic => 2,
    }
}

fn put_stamps(stamps: Stamps, out: &mut Vec<u8>) {
    put_varint(stamps.created_at.0, out);
    put_varint(stamps.altered_at.0, out);
}

fn put_attributes(attributes: &LocalAttributes, out: &mut Vec<u8>) {
    put_text(&attributes.description, out);
    put_varint(attributes.depth_max, out);
    put_varint(attributes.message_bytes_max, out);
    out.push(u8::from(attributes.put_enabled));
    out.push(u8::from(attributes.get_enabled));
    out.push(u8::from(attributes.default_persistent));
    out.push(attributes.default_priority);
    out.push(u8::from(attributes.sequence == DeliverySequence::Fifo));
    put_varint(u64::from(attributes.backout_threshold), out);
    put_text(&attributes.backout_queue, out);
    out.push(u8::from(attributes.shareable));
    out.push(u8::from(attributes.default_shared));
}

pub(crate) fn decode_definition(reader: &mut Reader<'_>) -> Result<Definition, RecordError> {
    let kind = reader.byte()?;
    let definition = read_kind_of_object(kind & !HAS_FIELDS, reader)?;
    if kind & HAS_FIELDS != 0 {
        FieldReader::begin(reader, &DEFINITION)?.refuse()?;
    }
    Ok(definition)
}

fn read_kind_of_object(kind: u8, reader: &mut Reader<'_>) -> Result<Definition, RecordError> {
    match kind {
        1 => {
            let id = QueueId(reader.varint_u32()?);
            let kind = read_kind(reader)?;
            let name = read_name(reader)?;
            let attributes = read_attributes(reader)?;
            let stamps = read_stamps(reader)?;
            Ok(Definition::Local(LocalQueue { name, id, kind, attributes, stamps }))
        }
        2 => Ok(Definition::Alias(AliasQueue {
            name: read_name(reader)?,
            target: reader.text()?.to_owned(),
            description: reader.text()?.to_owned(),
            put_enabled: reader.boolean()?,
            get_enabled: reader.boolean()?,
            default_persistent: reader.boolean()?,
            default_priority: read_priority(reader)?,
            stamps: read_stamps(reader)?,
        })),
        3 => {
            let kind = read_kind(reader)?;
            let name = read_name(reader)?;
            let attributes = read_attributes(reader)?;
            let stamps = read_stamps(reader)?;
            Ok(Definition::Model(ModelQueue { name, kind, attributes, stamps }))
        }
        4 => Ok(Definition::QueueManager(QueueManagerAttributes {
            description: reader.text()?.to_owned(),
            dead_letter_queue: reader.text()?.to_owned(),
            message_bytes_max: reader.varint()?,
            unit_messages_max: reader.varint_u32()?,
        })),
        _ => Err(reader.error("an unknown kind of object")),
    }
}

fn read_name(reader: &mut Reader<'_>) -> Result<String, RecordError> {
    match reader.text()? {
        "" => Err(reader.error("an object without a name")),
        name => Ok(name.to_owned()),
    }
}

fn read_kind(reader: &mut Reader<'_>) -> Result<QueueKind, RecordError> {
    match reader.byte()? {
        0 => Ok(QueueKind::Predefined),
        1 => Ok(QueueKind::PermanentDynamic),
        2 => Ok(QueueKind::TemporaryDynamic),
        _ => Err(reader.error("an unknown definition type")),
    }
}

fn read_priority(reader: &mut Reader<'_>) -> Result<u8, RecordError> {
    match reader.byte()? {
        priority @ 0..=9 => Ok(priority),
        _ => Err(reader.error("a priority above 9")),
    }
}

fn read_stamps(reader: &mut Reader<'_>) -> Result<Stamps, RecordError> {
    Ok(Stamps { created_at: Time(reader.varint()?), altered_at: Time(reader.varint()?) })
}

fn read_attributes(reader: &mut Reader<'_>) -> Result<LocalAttributes, RecordError> {
    Ok(LocalAttributes {
        description: reader.text()?.to_owned(),
        depth_max: reader.varint()?,
        message_bytes_max: reader.varint()?,
        put_enabled: reader.boolean()?,
        get_enabled: reader.boolean()?,
        default_persistent: reader.boolean()?,
        default_priority: read_priority(reader)?,
        sequence: match reader.boolean()? {
            true => DeliverySequence::Fifo,
            false => DeliverySequence::Priority,
        },
        backout_threshold: reader.varint_u32()?,
        backout_queue: reader.text()?.to_owned(),
        shareable: reader.boolean()?,
        default_shared: reader.boolean()?,
    })
}
