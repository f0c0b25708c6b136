//! Messages that the harness puts, and what it reads of those that it gets.
//!
//! ```text
//! | header (durable) | properties (requests, replies) | data section: stamp, filler |
//!   \______ written anew for each message: some 50 bytes _____________/   \ a slice
//! ```
//!
//! The filler is a slice of a pool that is made once: nothing of a body is copied here. The pool is
//! walked through, so that a random body never repeats within [`POOL_BYTES`], farther than LZ4
//! looks back.

use bytes::{Bytes, BytesMut};
use towline_amqp::codec::{OwnedValue, Reader, Value, descriptor, write};
use towline_amqp::types::{CoordinatorCommand, Declare, Discharge, TxnId};
use towline_types::{Payload, SeededRandom};

use crate::args::Entropy;
use crate::plan::Plan;
use crate::stamp::{STAMP_BYTES, Stamp};

/// Descriptor codes of message sections (AMQP 3.2).
const HEADER: u8 = 0x70;
const PROPERTIES: u8 = 0x73;
const DATA: u8 = 0x75;
const AMQP_VALUE: u8 = 0x77;
/// Fields of the properties section (AMQP 3.2.4), by position.
const MESSAGE_ID: usize = 0;
const REPLY_TO: usize = 4;
const CORRELATION_ID: usize = 5;

/// Length of the pool, unless one body is longer.
const POOL_BYTES: usize = 4 << 20;
/// Fillers begin at multiples of a cache line.
const STEP_BYTES: usize = 64;
/// What one allocation of small pieces holds.
const HEADS_BYTES: usize = 64 << 10;

/// Makes messages. One for each worker.
pub(crate) struct Content {
    header: Bytes,
    heads: BytesMut,
    pool: Bytes,
    at: usize,
    size: usize,
}

impl Content {
    /// Makes the pool.
    pub(crate) fn new(plan: &Plan) -> Content {
        let mut header = BytesMut::new();
        if plan.persistent {
            let durable = OwnedValue::list(&[Value::Bool(true)]);
            write::described(&mut header, HEADER);
            header.extend_from_slice(durable.as_bytes());
        }
        let filler = plan.size - STAMP_BYTES;
        let pool = pool(plan.entropy, POOL_BYTES.max(filler), u64::from(plan.run));
        Content { header: header.freeze(), heads: BytesMut::new(), pool, at: 0, size: plan.size }
    }

    /// A message without properties.
    pub(crate) fn message(&mut self, stamp: Stamp) -> Payload {
        self.begin();
        self.finish(stamp)
    }

    /// A request that wants its reply at `reply_to`.
    pub(crate) fn request(&mut self, stamp: Stamp, to: &str, reply_to: &str) -> Payload {
        self.begin();
        let id = (u64::from(stamp.producer) << 40) | stamp.sequence;
        let fields = [
            Value::Ulong(id),
            Value::Null,
            Value::String(to),
            Value::Null,
            Value::String(reply_to),
        ];
        self.properties(&fields);
        self.finish(stamp)
    }

    /// The reply to a request, with its body; `None` when it names no reply-to.
    pub(crate) fn reply(&mut self, request: &Payload) -> Option<Payload> {
        let whole = request.to_contiguous();
        let properties = section(&whole, PROPERTIES)?;
        let Value::List(fields) = properties else { return None };
        let mut found = [Value::Null; CORRELATION_ID + 1];
        for (slot, field) in found.iter_mut().zip(fields.iter()) {
            *slot = field.ok()?;
        }
        let reply_to = found[REPLY_TO].as_str()?;
        let correlation = match found[CORRELATION_ID] {
            Value::Null => found[MESSAGE_ID],
            given => given,
        };
        let Value::Binary(body) = section(&whole, DATA)? else { return None };
        self.begin();
        let to = Value::String(reply_to);
        self.properties(&[Value::Null, Value::Null, to, Value::Null, Value::Null, correlation]);
        write::described(&mut self.heads, DATA);
        write::binary_prefix(&mut self.heads, body.len());
        let mut payload = Payload::from(self.heads.split().freeze());
        payload.push(whole.slice_ref(body));
        Some(payload)
    }

    fn begin(&mut self) {
        if self.heads.capacity() < self.header.len() + 1024 {
            self.heads.reserve(HEADS_BYTES);
        }
        self.heads.extend_from_slice(&self.header);
    }

    fn properties(&mut self, fields: &[Value<'_>]) {
        write::described(&mut self.heads, PROPERTIES);
        self.heads.extend_from_slice(OwnedValue::list(fields).as_bytes());
    }

    fn finish(&mut self, stamp: Stamp) -> Payload {
        write::described(&mut self.heads, DATA);
        write::binary_prefix(&mut self.heads, self.size);
        self.heads.extend_from_slice(&stamp.encode());
        let mut payload = Payload::from(self.heads.split().freeze());
        payload.push(self.filler());
        payload
    }

    fn filler(&mut self) -> Bytes {
        let length = self.size - STAMP_BYTES;
        if self.pool.len() - self.at < length {
            self.at = 0;
        }
        let filler = self.pool.slice(self.at..self.at + length);
        self.at = (self.at + length).next_multiple_of(STEP_BYTES).min(self.pool.len());
        filler
    }
}

/// The bytes that fillers are cut from.
fn pool(entropy: Entropy, length: usize, seed: u64) -> Bytes {
    let mut pool = BytesMut::with_capacity(length + 16);
    let mut random = SeededRandom::new(seed);
    match entropy {
        Entropy::Zeros => pool.resize(length, 0),
        Entropy::Random => {
            while pool.len() < length {
                pool.extend_from_slice(&random.next_u64().to_le_bytes());
            }
        }
        Entropy::Text => {
            while pool.len() < length {
                let [.., pick] = random.next_u64().to_le_bytes();
                let word = WORDS[usize::from(pick) % WORDS.len()];
                pool.extend_from_slice(word.as_bytes());
                pool.extend_from_slice(b" ");
            }
        }
    }
    pool.truncate(length);
    pool.freeze()
}

const WORDS: [&str; 32] = [
    "account",
    "amount",
    "balance",
    "branch",
    "carrier",
    "charge",
    "credit",
    "currency",
    "customer",
    "date",
    "debit",
    "delivery",
    "entry",
    "harbour",
    "invoice",
    "item",
    "ledger",
    "notice",
    "order",
    "payment",
    "pilot",
    "price",
    "quantity",
    "quay",
    "receipt",
    "reference",
    "shipment",
    "status",
    "total",
    "transfer",
    "value",
    "vessel",
];

/// The stamp of a message; `None` for one that the harness did not make.
pub(crate) fn body_start(payload: &Payload) -> Option<Stamp> {
    let Payload::One(bytes) = payload else {
        return stamp_of(&payload.to_contiguous());
    };
    stamp_of(bytes)
}

fn stamp_of(message: &[u8]) -> Option<Stamp> {
    let Value::Binary(body) = section(message, DATA)? else { return None };
    Stamp::decode(body)
}

/// The value of the first section with this code.
fn section(message: &[u8], wanted: u8) -> Option<Value<'_>> {
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let code = descriptor(&mut reader).ok()?;
        let value = Value::decode(&mut reader).ok()?;
        if code == u64::from(wanted) {
            return Some(value);
        }
    }
    None
}

/// A message to the coordinator that opens a unit of work (AMQP 4.5.2).
pub(crate) fn declare() -> Payload {
    coordinator(&CoordinatorCommand::Declare(Declare))
}

/// A message to the coordinator that commits a unit of work (AMQP 4.5.3).
pub(crate) fn commit(txn_id: TxnId) -> Payload {
    coordinator(&CoordinatorCommand::Discharge(Discharge { txn_id, fail: false }))
}

fn coordinator(command: &CoordinatorCommand) -> Payload {
    let mut out = BytesMut::new();
    write::described(&mut out, AMQP_VALUE);
    command.encode(&mut out);
    Payload::from(out.freeze())
}

#[cfg(test)]
mod tests;
