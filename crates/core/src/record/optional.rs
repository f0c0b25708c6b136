//! The fields that most messages lack: one layout for records of the log and for pages.
//!
//! ```text
//!   [time to live] [correlation 8 LE] [message id 8 LE] [backouts] [dead letter]
//! ```
//! Numbers without a width are varints; the flags say which of them are there.
//!
//! Not here: the other flags of a record or a page, and what stands before and behind these fields.
//!
//! Invariant: the bytes are part of formats on disk. A hash or a backout count of zero is not
//! written, and is refused when read.

use towline_types::Time;

use super::error::RecordError;
use super::wire::{Reader, put_text, put_varint};
use crate::QueueId;
use crate::message::{DeadLetter, DeadLetterReason};

/// It expires.
const EXPIRES: u8 = 1;
/// It has a correlation id.
const CORRELATION: u8 = 1 << 1;
/// It has a message id.
const MESSAGE_ID: u8 = 1 << 2;
/// It was backed out.
const BACKOUTS: u8 = 1 << 3;
/// It is a dead letter.
const DEAD_LETTER: u8 = 1 << 4;

/// All of these flags.
pub(crate) const ALL: u8 = EXPIRES | CORRELATION | MESSAGE_ID | BACKOUTS | DEAD_LETTER;

/// The optional fields of a message.
pub(crate) struct OptionalFields<D> {
    pub(crate) expires_at: Option<Time>,
    /// 0: it has none.
    pub(crate) correlation_hash: u64,
    /// 0: it has none.
    pub(crate) message_id_hash: u64,
    pub(crate) backout_count: u32,
    pub(crate) dead_letter: Option<D>,
}

impl OptionalFields<&DeadLetter> {
    /// Which of them are there.
    pub(crate) fn flags(&self) -> u8 {
        let flags = [
            (self.expires_at.is_some(), EXPIRES),
            (self.correlation_hash != 0, CORRELATION),
            (self.message_id_hash != 0, MESSAGE_ID),
            (self.backout_count != 0, BACKOUTS),
            (self.dead_letter.is_some(), DEAD_LETTER),
        ];
        flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum()
    }

    /// Writes those that are there, of a message that was put at `put_at`.
    pub(crate) fn put(&self, put_at: Time, out: &mut Vec<u8>) {
        if let Some(expires_at) = self.expires_at {
            put_varint(expires_at.0.wrapping_sub(put_at.0), out);
        }
        for hash in [self.correlation_hash, self.message_id_hash] {
            if hash != 0 {
                out.extend_from_slice(&hash.to_le_bytes());
            }
        }
        if self.backout_count != 0 {
            put_varint(u64::from(self.backout_count), out);
        }
        if let Some(dead_letter) = self.dead_letter {
            put_dead_letter(dead_letter, out);
        }
    }
}

impl OptionalFields<Box<DeadLetter>> {
    /// Reads those that the flags name, of a message that was put at `put_at`.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        flags: u8,
        put_at: Time,
    ) -> Result<OptionalFields<Box<DeadLetter>>, RecordError> {
        let expires_at = match flags & EXPIRES != 0 {
            true => Some(Time(put_at.0.wrapping_add(reader.varint()?))),
            false => None,
        };
        let mut hash = |flag: u8| match flags & flag != 0 {
            false => Ok(0),
            true => match reader.u64_le()? {
                0 => Err(reader.error("a hash of zero")),
                hash => Ok(hash),
            },
        };
        let correlation_hash = hash(CORRELATION)?;
        let message_id_hash = hash(MESSAGE_ID)?;
        let backout_count = match flags & BACKOUTS != 0 {
            false => 0,
            true => match reader.varint_u32()? {
                0 => return Err(reader.error("a backout count of zero")),
                count => count,
            },
        };
        let dead_letter = match flags & DEAD_LETTER != 0 {
            true => Some(Box::new(read_dead_letter(reader)?)),
            false => None,
        };
        Ok(OptionalFields {
            expires_at,
            correlation_hash,
            message_id_hash,
            backout_count,
            dead_letter,
        })
    }
}

pub(crate) fn put_dead_letter(dead_letter: &DeadLetter, out: &mut Vec<u8>) {
    out.push(dead_letter.reason as u8);
    put_varint(u64::from(dead_letter.origin_id.0), out);
    put_varint(dead_letter.moved_at.0, out);
    put_text(&dead_letter.origin, out);
}

pub(crate) fn read_dead_letter(reader: &mut Reader<'_>) -> Result<DeadLetter, RecordError> {
    let reason = match reader.byte()? {
        1 => DeadLetterReason::Rejected,
        2 => DeadLetterReason::BackoutThreshold,
        3 => DeadLetterReason::Expired,
        4 => DeadLetterReason::Undeliverable,
        5 => DeadLetterReason::Damaged,
        6 => DeadLetterReason::Moved,
        _ => return Err(reader.error("an unknown reason")),
    };
    let origin_id = QueueId(reader.varint_u32()?);
    let moved_at = Time(reader.varint()?);
    let origin = reader.text()?.to_owned();
    Ok(DeadLetter { reason, origin, origin_id, moved_at })
}
