//! The properties section (AMQP 3.2.4), borrowed from the message, and single application
//! properties.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::BytesMut;

use super::code::PROPERTIES;
use super::identifier::MessageId;
use crate::codec::{DecodeError, Fields, FieldsWriter, Reader, Value};

/// The immutable properties of a message. Times are milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    /// Names the message.
    pub message_id: Option<MessageId<'a>>,
    /// The user that made it.
    pub user_id: Option<&'a [u8]>,
    /// The node that it is for.
    pub to: Option<&'a str>,
    /// A summary.
    pub subject: Option<&'a str>,
    /// Where answers go.
    pub reply_to: Option<&'a str>,
    /// The message that it belongs to.
    pub correlation_id: Option<MessageId<'a>>,
    /// MIME type of the body.
    pub content_type: Option<&'a str>,
    /// Encoding of the body beside its type.
    pub content_encoding: Option<&'a str>,
    /// When it expires.
    pub absolute_expiry_time_ms: Option<i64>,
    /// When it was made.
    pub creation_time_ms: Option<i64>,
    /// The group that it belongs to.
    pub group_id: Option<&'a str>,
    /// Its position in the group.
    pub group_sequence: Option<u32>,
    /// The group that answers belong to.
    pub reply_to_group_id: Option<&'a str>,
}

impl<'a> Properties<'a> {
    /// Reads the list, after the descriptor.
    pub(super) fn decode_value(reader: &mut Reader<'a>) -> Result<Properties<'a>, DecodeError> {
        let mut fields = Fields::open(reader)?;
        let properties = Properties {
            message_id: fields.with(MessageId::decode)?,
            user_id: fields.binary()?,
            to: fields.string()?,
            subject: fields.string()?,
            reply_to: fields.string()?,
            correlation_id: fields.with(MessageId::decode)?,
            content_type: fields.symbol()?,
            content_encoding: fields.symbol()?,
            absolute_expiry_time_ms: fields.timestamp()?,
            creation_time_ms: fields.timestamp()?,
            group_id: fields.string()?,
            group_sequence: fields.u32()?,
            reply_to_group_id: fields.string()?,
        };
        fields.finish()?;
        Ok(properties)
    }

    /// Appends the section.
    ///
    /// # Panics
    /// When a content type or encoding is not ASCII.
    pub fn encode(&self, out: &mut BytesMut) {
        let id = |fields: &mut FieldsWriter<'_>, id: &Option<MessageId<'_>>| match id {
            Some(id) => id.encode(fields.value()),
            None => fields.null(),
        };
        FieldsWriter::list(out, PROPERTIES, |fields| {
            id(fields, &self.message_id);
            fields.binary(self.user_id);
            fields.string(self.to);
            fields.string(self.subject);
            fields.string(self.reply_to);
            id(fields, &self.correlation_id);
            fields.symbol(self.content_type);
            fields.symbol(self.content_encoding);
            fields.timestamp(self.absolute_expiry_time_ms);
            fields.timestamp(self.creation_time_ms);
            fields.string(self.group_id);
            fields.u32(self.group_sequence);
            fields.string(self.reply_to_group_id);
        });
    }
}

/// An application property in the types that a selector distinguishes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PropertyValue<'a> {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Any integer that an i64 holds.
    Long(i64),
    /// A ulong beyond that.
    Ulong(u64),
    /// A float or double.
    Double(f64),
    /// A string, or a symbol.
    Text(&'a str),
    /// A binary.
    Binary(&'a [u8]),
    /// Anything else: decimals, chars, timestamps, uuids, compound values.
    Other,
}

impl<'a> From<Value<'a>> for PropertyValue<'a> {
    fn from(value: Value<'a>) -> PropertyValue<'a> {
        match value {
            Value::Null => PropertyValue::Null,
            Value::Bool(value) => PropertyValue::Bool(value),
            Value::Ulong(value) => match i64::try_from(value) {
                Ok(value) => PropertyValue::Long(value),
                Err(_) => PropertyValue::Ulong(value),
            },
            Value::Ubyte(_)
            | Value::Ushort(_)
            | Value::Uint(_)
            | Value::Byte(_)
            | Value::Short(_)
            | Value::Int(_)
            | Value::Long(_) => value.as_i64().map_or(PropertyValue::Other, PropertyValue::Long),
            Value::Float(value) => PropertyValue::Double(f64::from(value)),
            Value::Double(value) => PropertyValue::Double(value),
            Value::String(text) | Value::Symbol(text) => PropertyValue::Text(text),
            Value::Binary(bytes) => PropertyValue::Binary(bytes),
            Value::Decimal32(_)
            | Value::Decimal64(_)
            | Value::Decimal128(_)
            | Value::Char(_)
            | Value::Timestamp(_)
            | Value::Uuid(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Array(_)
            | Value::Described(_) => PropertyValue::Other,
        }
    }
}
