//! What travels on a transaction control link: declare and discharge (AMQP 4.5.2, 4.5.3).

use bytes::BytesMut;

use super::TxnId;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Reader, descriptor};

/// Opens a transaction. Global transactions are not offered: a global-id is refused as not
/// decodable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declare;

/// Ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discharge {
    /// Which transaction.
    pub txn_id: TxnId,
    /// True: roll back; false: commit.
    pub fail: bool,
}

/// A message on a coordinator link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorCommand {
    /// Open a transaction.
    Declare(Declare),
    /// Commit or roll back.
    Discharge(Discharge),
}

impl Composite for Declare {
    const CODE: u8 = 0x31;
    const NAME: &'static str = "amqp:declare:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Declare, DecodeError> {
        match fields.with(|reader| reader.checked_value().map(drop))? {
            None => Ok(Declare),
            Some(()) => Err(DecodeError::OutOfRange("global-id")),
        }
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.null();
    }
}

impl Composite for Discharge {
    const CODE: u8 = 0x32;
    const NAME: &'static str = "amqp:discharge:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<Discharge, DecodeError> {
        Ok(Discharge {
            txn_id: TxnId::field(fields)?.ok_or(DecodeError::MissingField("txn-id"))?,
            fail: fields.bool()?.unwrap_or(false),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.binary(Some(self.txn_id.as_bytes()));
        // Written out although it is the default: Artemis fails on a discharge without it.
        fields.bool(Some(self.fail));
    }
}

impl CoordinatorCommand {
    /// Reads the amqp-value section of a message to a coordinator. Sections before it (a header,
    /// for example) must have been taken off.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn decode(reader: &mut Reader<'_>) -> Result<CoordinatorCommand, DecodeError> {
        let code = descriptor(reader)?;
        if code == u64::from(Declare::CODE) {
            Declare::decode_body(reader).map(CoordinatorCommand::Declare)
        } else if code == u64::from(Discharge::CODE) {
            Discharge::decode_body(reader).map(CoordinatorCommand::Discharge)
        } else {
            Err(DecodeError::UnknownDescriptor)
        }
    }

    /// Appends it as the value alone; the message around it is `sections::encode_value_body`'s.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            CoordinatorCommand::Declare(declare) => declare.encode(out),
            CoordinatorCommand::Discharge(discharge) => discharge.encode(out),
        }
    }
}
