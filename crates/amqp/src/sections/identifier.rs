//! Message and correlation ids (AMQP 3.2.11 to 3.2.14) and their canonical text.
//!
//! An id may be a ulong, a uuid, a binary or a string; JMS clients show all of them as text and
//! turn the text back into the same id (AMQP JMS mapping, "JMSMessageID and JMSCorrelationID"):
//!
//! ```text
//!   as it came          as a message id                    as a correlation id
//!   string ID:a         ID:a                               ID:a
//!   string a            ID:AMQP_NO_PREFIX:a                a
//!   string ID:AMQP_..   ID:AMQP_STRING:ID:AMQP_..          ID:AMQP_STRING:ID:AMQP_..
//!   uuid                ID:AMQP_UUID:8-4-4-4-12 lower case hexadecimal
//!   ulong               ID:AMQP_ULONG:decimal
//!   binary              ID:AMQP_BINARY:upper case hexadecimal
//! ```
//! A selector compares with this text, and the hash by which a queue finds an id is one of it.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::codec::{DecodeError, Reader, Value, write};

/// A message id or correlation id, as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageId<'a> {
    /// 3.2.11.
    Ulong(u64),
    /// 3.2.12.
    Uuid([u8; 16]),
    /// 3.2.13.
    Binary(&'a [u8]),
    /// 3.2.14.
    String(&'a str),
}

const PREFIX: &str = "ID:";
const NO_PREFIX: &str = "ID:AMQP_NO_PREFIX:";
const ENCODED: [&str; 5] =
    ["ID:AMQP_UUID:", "ID:AMQP_ULONG:", "ID:AMQP_BINARY:", "ID:AMQP_STRING:", "ID:AMQP_NO_PREFIX:"];

impl<'a> MessageId<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<MessageId<'a>, DecodeError> {
        let found = reader.peek().unwrap_or_default();
        match Value::decode(reader)? {
            Value::Ulong(id) => Ok(MessageId::Ulong(id)),
            Value::Uuid(id) => Ok(MessageId::Uuid(id)),
            Value::Binary(id) => Ok(MessageId::Binary(id)),
            Value::String(id) => Ok(MessageId::String(id)),
            _ => Err(DecodeError::WrongType { expected: "message id", found }),
        }
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        match *self {
            MessageId::Ulong(id) => write::u64(out, id),
            MessageId::Uuid(id) => write::uuid(out, id),
            MessageId::Binary(id) => write::binary(out, id),
            MessageId::String(id) => write::string(out, id),
        }
    }

    /// The text of a message id.
    #[must_use]
    pub fn message_id_text(&self) -> Cow<'a, str> {
        self.text(true)
    }

    /// The text of a correlation id.
    #[must_use]
    pub fn correlation_id_text(&self) -> Cow<'a, str> {
        self.text(false)
    }

    /// [`id_hash`] of the text of a message id, without making the text.
    #[must_use]
    pub fn message_id_hash(&self) -> u64 {
        self.hash(true)
    }

    /// [`id_hash`] of the text of a correlation id, without making the text.
    #[must_use]
    pub fn correlation_id_hash(&self) -> u64 {
        self.hash(false)
    }

    fn text(&self, prefixed: bool) -> Cow<'a, str> {
        if let (None, MessageId::String(id)) = (self.string_prefix(prefixed), *self) {
            return Cow::Borrowed(id);
        }
        let mut text = String::new();
        self.write(prefixed, |part| text.push_str(part));
        Cow::Owned(text)
    }

    fn hash(&self, prefixed: bool) -> u64 {
        let mut hash = IdHash::default();
        self.write(prefixed, |part| hash.add(part.as_bytes()));
        hash.finish()
    }

    /// What goes before an id that is a string.
    fn string_prefix(&self, prefixed: bool) -> Option<&'static str> {
        let MessageId::String(id) = *self else { return None };
        if !id.starts_with(PREFIX) {
            return prefixed.then_some(NO_PREFIX);
        }
        ENCODED.iter().any(|encoded| id.starts_with(encoded)).then_some("ID:AMQP_STRING:")
    }

    /// Hands the text to `put`, part by part.
    fn write(&self, prefixed: bool, mut put: impl FnMut(&str)) {
        match *self {
            MessageId::Ulong(id) => {
                put("ID:AMQP_ULONG:");
                put(&id.to_string());
            }
            MessageId::Uuid(id) => {
                put("ID:AMQP_UUID:");
                for (index, byte) in id.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        put("-");
                    }
                    put(&format!("{byte:02x}"));
                }
            }
            MessageId::Binary(id) => {
                put("ID:AMQP_BINARY:");
                id.iter().for_each(|byte| put(&format!("{byte:02X}")));
            }
            MessageId::String(id) => {
                put(self.string_prefix(prefixed).unwrap_or_default());
                put(id);
            }
        }
    }
}

/// Hash of an id's canonical text; never 0. It is stored in the log: it must stay as it is. Not for
/// tables that an attacker may flood without bounds: a look-up by it compares the id too.
#[must_use]
pub fn id_hash(text: &str) -> u64 {
    let mut hash = IdHash::default();
    hash.add(text.as_bytes());
    hash.finish()
}

/// Takes eight bytes at a time, however the text is cut into pieces.
struct IdHash {
    state: u64,
    length: u64,
    pending: [u8; 8],
    pending_len: usize,
}

/// 2^64 divided by the golden ratio, made odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for IdHash {
    fn default() -> IdHash {
        IdHash { state: MULTIPLIER, length: 0, pending: [0; 8], pending_len: 0 }
    }
}

impl IdHash {
    fn add(&mut self, mut bytes: &[u8]) {
        self.length = self.length.wrapping_add(bytes.len() as u64);
        while let Some((first, rest)) = bytes.split_first() {
            if self.pending_len == 0
                && let Some((word, rest)) = bytes.split_first_chunk()
            {
                self.mix(u64::from_le_bytes(*word));
                bytes = rest;
                continue;
            }
            if let Some(place) = self.pending.get_mut(self.pending_len) {
                *place = *first;
            }
            self.pending_len = self.pending_len.saturating_add(1);
            if self.pending_len == self.pending.len() {
                self.mix(u64::from_le_bytes(self.pending));
                self.pending = [0; 8];
                self.pending_len = 0;
            }
            bytes = rest;
        }
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(MULTIPLIER);
        self.state ^= self.state >> 29;
    }

    fn finish(mut self) -> u64 {
        let word = u64::from_le_bytes(self.pending);
        self.mix(word);
        let length = self.length;
        self.mix(length);
        (self.state ^ (self.state >> 32)).max(1)
    }
}
