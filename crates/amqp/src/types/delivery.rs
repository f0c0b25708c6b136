//! Delivery tags, transaction ids, and the states of a delivery (AMQP 3.4, 4.5.4, 4.5.5).

use std::fmt;

use bytes::BytesMut;

use super::Error;
use crate::codec::{DecodeError, Fields, FieldsWriter, Map, Reader, descriptor};

/// A binary of at most `BYTES_MAX` bytes that lives where it stands, without the heap.
#[derive(Clone, Copy)]
pub struct ShortBinary<const BYTES_MAX: usize> {
    bytes: [u8; BYTES_MAX],
    len: u8,
}

/// Names a delivery while it is unsettled (AMQP 2.8.7: at most 32 bytes).
pub type DeliveryTag = ShortBinary<{ towline_types::limits::DELIVERY_TAG_BYTES_MAX }>;
/// Names a transaction (AMQP 4.5.6; the standard sets no bound). 64 bytes hold what is seen: ours
/// have 8, Artemis sends the 36 characters of a UUID.
pub type TxnId = ShortBinary<64>;

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
    /// Not processed; deliver it again.
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

impl<const BYTES_MAX: usize> ShortBinary<BYTES_MAX> {
    /// A copy of `bytes`; `None` when they are more than `BYTES_MAX`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let mut short = ShortBinary { bytes: [0; BYTES_MAX], len };
        short.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(short)
    }

    /// The eight bytes of a number, big-endian.
    #[must_use]
    pub fn from_number(number: u64) -> Self {
        let mut short = ShortBinary { bytes: [0; BYTES_MAX], len: 8 };
        if let Some(first) = short.bytes.first_chunk_mut() {
            *first = number.to_be_bytes();
        }
        short
    }

    /// The number, when it is one of [`ShortBinary::from_number`].
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        <[u8; 8]>::try_from(self.as_bytes()).ok().map(u64::from_be_bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn checked(bytes: &[u8]) -> Result<Self, DecodeError> {
        ShortBinary::new(bytes).ok_or(DecodeError::TooLong)
    }

    /// An optional field of a composite.
    pub(crate) fn field(fields: &mut Fields<'_>) -> Result<Option<Self>, DecodeError> {
        fields.binary()?.map(Self::checked).transpose()
    }
}

impl<const N: usize> PartialEq for ShortBinary<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for ShortBinary<N> {}

impl<const N: usize> std::hash::Hash for ShortBinary<N> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl<const N: usize> fmt::Debug for ShortBinary<N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

const RECEIVED: u8 = 0x23;
const ACCEPTED: u8 = 0x24;
const REJECTED: u8 = 0x25;
const RELEASED: u8 = 0x26;
const MODIFIED: u8 = 0x27;
const DECLARED: u8 = 0x33;
const TRANSACTIONAL: u8 = 0x34;

impl Outcome {
    /// Reads an outcome.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
        let code = descriptor_u8(reader)?;
        let mut fields = Fields::open(reader)?;
        let outcome = Outcome::of(code, &mut fields)?;
        fields.finish()?;
        Ok(outcome)
    }

    fn of(code: u8, fields: &mut Fields<'_>) -> Result<Outcome, DecodeError> {
        match code {
            ACCEPTED => Ok(Outcome::Accepted),
            REJECTED => Ok(Outcome::Rejected { error: fields.composite()?.map(Box::new) }),
            RELEASED => Ok(Outcome::Released),
            MODIFIED => Ok(Outcome::Modified {
                delivery_failed: fields.bool()?.unwrap_or(false),
                undeliverable_here: fields.bool()?.unwrap_or(false),
                annotations: fields.with(Map::decode)?.map(Box::new),
            }),
            _ => Err(DecodeError::UnknownDescriptor),
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Outcome::Accepted => FieldsWriter::list(out, ACCEPTED, |_| {}),
            Outcome::Rejected { error } => FieldsWriter::list(out, REJECTED, |fields| {
                fields.composite(error.as_deref());
            }),
            Outcome::Released => FieldsWriter::list(out, RELEASED, |_| {}),
            Outcome::Modified { delivery_failed, undeliverable_here, annotations } => {
                FieldsWriter::list(out, MODIFIED, |fields| {
                    fields.flag(*delivery_failed);
                    fields.flag(*undeliverable_here);
                    match annotations {
                        Some(annotations) => annotations.encode(fields.value()),
                        None => fields.null(),
                    }
                });
            }
        }
    }
}

impl DeliveryState {
    /// Reads a delivery state.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn decode(reader: &mut Reader<'_>) -> Result<DeliveryState, DecodeError> {
        let code = descriptor_u8(reader)?;
        let mut fields = Fields::open(reader)?;
        let state = match code {
            ACCEPTED => DeliveryState::Accepted,
            RECEIVED => DeliveryState::Received {
                section_number: fields.u32()?.ok_or(DecodeError::MissingField("section-number"))?,
                section_offset: fields.u64()?.ok_or(DecodeError::MissingField("section-offset"))?,
            },
            DECLARED => DeliveryState::Declared { txn_id: txn_id(&mut fields)? },
            TRANSACTIONAL => DeliveryState::Transactional {
                txn_id: txn_id(&mut fields)?,
                outcome: fields.with(Outcome::decode)?,
            },
            _ => DeliveryState::from(Outcome::of(code, &mut fields)?),
        };
        fields.finish()?;
        Ok(state)
    }

    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            DeliveryState::Received { section_number, section_offset } => {
                FieldsWriter::list(out, RECEIVED, |fields| {
                    fields.u32(Some(*section_number));
                    fields.u64(Some(*section_offset));
                });
            }
            DeliveryState::Declared { txn_id } => FieldsWriter::list(out, DECLARED, |fields| {
                fields.binary(Some(txn_id.as_bytes()));
            }),
            DeliveryState::Transactional { txn_id, outcome } => {
                FieldsWriter::list(out, TRANSACTIONAL, |fields| {
                    fields.binary(Some(txn_id.as_bytes()));
                    match outcome {
                        Some(outcome) => outcome.encode(fields.value()),
                        None => fields.null(),
                    }
                });
            }
            DeliveryState::Accepted => Outcome::Accepted.encode(out),
            DeliveryState::Released => Outcome::Released.encode(out),
            DeliveryState::Rejected { error } => {
                FieldsWriter::list(out, REJECTED, |fields| fields.composite(error.as_deref()));
            }
            DeliveryState::Modified { .. } => {
                if let Some(outcome) = self.outcome() {
                    outcome.encode(out);
                }
            }
        }
    }

    /// The outcome that it is, or that it holds for the commit of its transaction.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            DeliveryState::Received { .. } | DeliveryState::Declared { .. } => None,
            DeliveryState::Transactional { outcome, .. } => outcome.clone(),
            DeliveryState::Accepted => Some(Outcome::Accepted),
            DeliveryState::Rejected { error } => Some(Outcome::Rejected { error: error.clone() }),
            DeliveryState::Released => Some(Outcome::Released),
            DeliveryState::Modified { delivery_failed, undeliverable_here, annotations } => {
                Some(Outcome::Modified {
                    delivery_failed: *delivery_failed,
                    undeliverable_here: *undeliverable_here,
                    annotations: annotations.clone(),
                })
            }
        }
    }
}

impl From<Outcome> for DeliveryState {
    fn from(outcome: Outcome) -> DeliveryState {
        match outcome {
            Outcome::Accepted => DeliveryState::Accepted,
            Outcome::Rejected { error } => DeliveryState::Rejected { error },
            Outcome::Released => DeliveryState::Released,
            Outcome::Modified { delivery_failed, undeliverable_here, annotations } => {
                DeliveryState::Modified { delivery_failed, undeliverable_here, annotations }
            }
        }
    }
}

fn descriptor_u8(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    u8::try_from(descriptor(reader)?).map_err(|_| DecodeError::UnknownDescriptor)
}

fn txn_id(fields: &mut Fields<'_>) -> Result<TxnId, DecodeError> {
    ShortBinary::field(fields)?.ok_or(DecodeError::MissingField("txn-id"))
}
