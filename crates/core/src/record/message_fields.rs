//! The fields of a message: one layout for records of the log and for pages.
//!
//! Not here: where they stand (`put`, `queue/page`).
//!
//! Invariant: the bytes are part of formats on disk. What says what its absence says (0, or due at
//! put) is not written, and is refused when read.

use towline_types::Time;

use super::error::RecordError;
use super::fields::{
    CARRIED, DELIVERY_TIME, FieldReader, FieldValue, GROUP, GROUP_SEQUENCE, MESSAGE, put_fields,
};
use super::wire::Reader;

/// See [`Header`](crate::Header).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageFields {
    /// Of a Put: the message is known, and was logged again.
    pub(crate) carried: bool,
    pub(crate) group: u64,
    pub(crate) group_sequence: u32,
    pub(crate) deliver_at: Option<Time>,
}

impl MessageFields {
    /// Whether there is nothing to write of a message that was put at `put_at`.
    pub(crate) fn is_empty(&self, put_at: Time) -> bool {
        !self.carried && self.group == 0 && self.delay(put_at) == 0
    }

    fn delay(&self, put_at: Time) -> u64 {
        self.deliver_at.map_or(0, |due| due.0.wrapping_sub(put_at.0))
    }

    /// Writes those that are there, of a message that was put at `put_at`: at least one.
    pub(crate) fn put(&self, put_at: Time, out: &mut Vec<u8>) {
        assert!(self.group != 0 || self.group_sequence == 0, "a sequence in no group");
        put_fields(out, |fields| {
            if self.carried {
                fields.nothing(CARRIED);
            }
            if self.group != 0 {
                fields.word(GROUP, self.group);
            }
            if self.group_sequence != 0 {
                fields.number(GROUP_SEQUENCE, u64::from(self.group_sequence));
            }
            let delay = self.delay(put_at);
            if delay != 0 {
                fields.number(DELIVERY_TIME, delay);
            }
        });
    }

    /// Reads them, of a message that was put at `put_at`.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        put_at: Time,
    ) -> Result<MessageFields, RecordError> {
        let mut fields = FieldReader::begin(reader, &MESSAGE)?;
        let mut message = MessageFields::default();
        while let Some(field) = fields.next()? {
            match field {
                (CARRIED, FieldValue::Nothing) => message.carried = true,
                (GROUP, FieldValue::Word(hash)) if hash != 0 => message.group = hash,
                (GROUP_SEQUENCE, FieldValue::Number(sequence))
                    if sequence != 0 && message.group != 0 =>
                {
                    let sequence = u32::try_from(sequence);
                    message.group_sequence =
                        sequence.map_err(|_| fields.error("a number of more than 32 bits"))?;
                }
                (DELIVERY_TIME, FieldValue::Number(delay)) if delay != 0 => {
                    message.deliver_at = Some(Time(put_at.0.wrapping_add(delay)));
                }
                _ => return Err(fields.error("a field that says nothing")),
            }
        }
        Ok(message)
    }
}
