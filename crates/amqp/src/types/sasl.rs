//! The frames of a SASL exchange (AMQP 5.3.3).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::Symbol;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Reader, Symbols, descriptor};

/// The mechanisms that the server offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SaslMechanisms {
    /// For example `SCRAM-SHA-256`, in the server's order of preference.
    pub mechanisms: Symbols,
}

/// The client's choice.
#[derive(Clone, Debug, PartialEq)]
pub struct SaslInit {
    /// One of those offered.
    pub mechanism: Symbol,
    /// First message of the mechanism.
    pub initial_response: Option<Bytes>,
    /// Host to which the client connects.
    pub hostname: Option<Arc<str>>,
}

/// A question of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct SaslChallenge {
    /// Message of the mechanism.
    pub challenge: Bytes,
}

/// The client's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SaslResponse {
    /// Message of the mechanism.
    pub response: Bytes,
}

/// How a login ended (5.3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslCode {
    /// Logged in.
    Ok,
    /// Wrong credentials; nothing more is said.
    Auth,
    /// The system failed.
    Sys,
    /// The system failed and will not mend by itself.
    SysPerm,
    /// The system failed for now.
    SysTemp,
}

/// The end of the exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct SaslOutcome {
    /// How it ended.
    pub code: SaslCode,
    /// Last message of the mechanism (the server's signature in SCRAM).
    pub additional: Option<Bytes>,
}

/// The body of a SASL frame.
#[derive(Clone, Debug, PartialEq)]
pub enum SaslFrame {
    /// Server to client, first.
    Mechanisms(SaslMechanisms),
    /// Client to server.
    Init(SaslInit),
    /// Server to client.
    Challenge(SaslChallenge),
    /// Client to server.
    Response(SaslResponse),
    /// Server to client, last.
    Outcome(SaslOutcome),
}

impl SaslCode {
    fn from_number(code: u8) -> Result<SaslCode, DecodeError> {
        match code {
            0 => Ok(SaslCode::Ok),
            1 => Ok(SaslCode::Auth),
            2 => Ok(SaslCode::Sys),
            3 => Ok(SaslCode::SysPerm),
            4 => Ok(SaslCode::SysTemp),
            _ => Err(DecodeError::OutOfRange("code")),
        }
    }

    const fn as_number(self) -> u8 {
        match self {
            SaslCode::Ok => 0,
            SaslCode::Auth => 1,
            SaslCode::Sys => 2,
            SaslCode::SysPerm => 3,
            SaslCode::SysTemp => 4,
        }
    }
}

impl Composite for SaslMechanisms {
    const CODE: u8 = 0x40;
    const NAME: &'static str = "amqp:sasl-mechanisms:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<SaslMechanisms, DecodeError> {
        let mechanisms = fields.with(Symbols::decode)?;
        Ok(SaslMechanisms {
            mechanisms: mechanisms.ok_or(DecodeError::MissingField("sasl-server-mechanisms"))?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        self.mechanisms.encode(fields.value());
    }
}

impl Composite for SaslInit {
    const CODE: u8 = 0x41;
    const NAME: &'static str = "amqp:sasl-init:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<SaslInit, DecodeError> {
        Ok(SaslInit {
            mechanism: fields.symbol()?.ok_or(DecodeError::MissingField("mechanism"))?.into(),
            initial_response: fields.binary_owned()?,
            hostname: fields.string()?.map(Arc::from),
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.symbol(Some(&self.mechanism));
        fields.binary(self.initial_response.as_deref());
        fields.string(self.hostname.as_deref());
    }
}

impl Composite for SaslChallenge {
    const CODE: u8 = 0x42;
    const NAME: &'static str = "amqp:sasl-challenge:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<SaslChallenge, DecodeError> {
        let challenge = fields.binary_owned()?;
        Ok(SaslChallenge { challenge: challenge.ok_or(DecodeError::MissingField("challenge"))? })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.binary(Some(&self.challenge));
    }
}

impl Composite for SaslResponse {
    const CODE: u8 = 0x43;
    const NAME: &'static str = "amqp:sasl-response:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<SaslResponse, DecodeError> {
        let response = fields.binary_owned()?;
        Ok(SaslResponse { response: response.ok_or(DecodeError::MissingField("response"))? })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.binary(Some(&self.response));
    }
}

impl Composite for SaslOutcome {
    const CODE: u8 = 0x44;
    const NAME: &'static str = "amqp:sasl-outcome:list";

    fn decode_fields(fields: &mut Fields<'_>) -> Result<SaslOutcome, DecodeError> {
        let code = fields.u8()?.ok_or(DecodeError::MissingField("code"))?;
        Ok(SaslOutcome { code: SaslCode::from_number(code)?, additional: fields.binary_owned()? })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.u8(Some(self.code.as_number()));
        fields.binary(self.additional.as_deref());
    }
}

impl SaslFrame {
    /// Reads the body of a SASL frame, all of it.
    ///
    /// # Errors
    /// When it is not one of the five, or bytes follow.
    pub fn decode(body: &[u8]) -> Result<SaslFrame, DecodeError> {
        let reader = &mut Reader::new(body);
        let code = u8::try_from(descriptor(reader)?).map_err(|_| DecodeError::UnknownDescriptor)?;
        let frame = match code {
            SaslMechanisms::CODE => SaslFrame::Mechanisms(Composite::decode_body(reader)?),
            SaslInit::CODE => SaslFrame::Init(Composite::decode_body(reader)?),
            SaslChallenge::CODE => SaslFrame::Challenge(Composite::decode_body(reader)?),
            SaslResponse::CODE => SaslFrame::Response(Composite::decode_body(reader)?),
            SaslOutcome::CODE => SaslFrame::Outcome(Composite::decode_body(reader)?),
            _ => return Err(DecodeError::UnknownDescriptor),
        };
        if reader.is_empty() { Ok(frame) } else { Err(DecodeError::Excess) }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            SaslFrame::Mechanisms(body) => body.encode(out),
            SaslFrame::Init(body) => body.encode(out),
            SaslFrame::Challenge(body) => body.encode(out),
            SaslFrame::Response(body) => body.encode(out),
            SaslFrame::Outcome(body) => body.encode(out),
        }
    }
}
