//! The frames of a SASL exchange (AMQP 5.3.3).

use std::sync::Arc;

use bytes::Bytes;

use super::Symbol;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Reader, Symbols};

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
