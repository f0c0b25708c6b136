//! Delivery tags, transaction ids, and the states of a delivery (AMQP 3.4, 4.5.4, 4.5.5).

use std::fmt;

use super::Error;
use crate::codec::{Composite, DecodeError, Fields, FieldsWriter, Map, Reader};

/// A binary of at most 32 bytes that lives where it stands, without the heap.
#[derive(Clone, Copy)]
pub struct ShortBinary {
    bytes: [u8; ShortBinary::BYTES_MAX],
    len: u8,
}

/// Names a delivery while it is unsettled (AMQP 2.8.7: at most 32 bytes).
pub type DeliveryTag = ShortBinary;
/// Names a transaction (AMQP 4.5.6; the standard sets no bound, we accept 32 bytes).
pub type TxnId = ShortBinary;

/// What the receiver made of a delivery for good (AMQP 3.4.2 to 3.4.5).
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Taken.
    Accepted,
    /// Invalid in the receiver's eyes.
    Rejected {
        /// Why.
        error: Option<Box<Error>>,
    },
    /// Not processed; give it to somebody again.
    Released,
    /// Not processed, with remarks.
    Modified {
        /// Counts as a failed delivery attempt.
        delivery_failed: bool,
        /// This receiver must not get it again.
        undeliverable_here: bool,
        /// To be merged into the message annotations.
        annotations: Option<Box<Map>>,
    },
}

/// What a disposition or transfer says of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum DeliveryState {
    /// How much of the message has come (3.4.1); only for resumption.
    Received {
        /// Section in which the receiver stands.
        section_number: u32,
        /// Byte offset in it.
        section_offset: u64,
    },
    /// See [`Outcome::Accepted`].
    Accepted,
    /// See [`Outcome::Rejected`].
    Rejected {
        /// Why.
        error: Option<Box<Error>>,
    },
    /// See [`Outcome::Released`].
    Released,
    /// See [`Outcome::Modified`].
    Modified {
        /// Counts as a failed delivery attempt.
        delivery_failed: bool,
        /// This receiver must not get it again.
        undeliverable_here: bool,
        /// To be merged into the message annotations.
        annotations: Option<Box<Map>>,
    },
    /// The coordinator's answer to a declare (4.5.3).
    Declared {
        /// Name of the new transaction.
        txn_id: TxnId,
    },
    /// Part of a transaction (4.5.5); takes effect when it is discharged.
    Transactional {
        /// Which transaction.
        txn_id: TxnId,
        /// What becomes of the delivery when it commits.
        outcome: Option<Outcome>,
    },
}
