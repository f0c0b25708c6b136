//! The composite types of the standard as Rust structs: performatives (part 2), termini and
//! delivery states (part 3), transactions (part 4), SASL frames (part 5).
//!
//! Each has `decode` (from a [`crate::codec::Reader`] standing on the described list) and `encode`
//! (onto a `BytesMut`), through the trait [`crate::codec::Composite`]. [`Performative::decode`]
//! distinguishes the nine frame bodies. Not here: what a frame *means* (the machines), messages
//! (`sections`).
//!
//! Invariants: decoding [`Transfer`], [`Disposition`] and [`Flow`] allocates nothing, unless a
//! delivery state carries an error or annotations. Maps and symbol arrays stay encoded
//! ([`crate::codec::Map`], [`crate::codec::Symbols`]), so a decoded frame never takes much more
//! memory than its bytes. Absent fields have the standard's defaults after decoding, and fields
//! that hold their default are left out when encoding.

pub mod condition;
mod delivery;
mod error;
mod performative;
mod sasl;
mod symbol;
mod terminus;
mod transaction;
mod wire;

pub use delivery::{DeliveryState, DeliveryTag, Outcome, ShortBinary, TxnId};
pub use error::Error;
pub use performative::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, ReceiverSettleMode,
    Role, SenderSettleMode, Transfer,
};
pub use sasl::{
    SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};
pub use symbol::Symbol;
pub use terminus::{
    Coordinator, DistributionMode, ExpiryPolicy, LinkTarget, Source, Target, TerminusDurability,
};
pub use transaction::{CoordinatorCommand, Declare, Discharge};

#[cfg(test)]
mod tests;
