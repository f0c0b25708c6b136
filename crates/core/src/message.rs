//! What the rules know of a message. Its content stays opaque: the sections that AMQP calls the
//! bare message and the message annotations, exactly as the producer sent them.

use bytes::Bytes;
use towline_types::{BodyLocation, Payload, Time};

use crate::{BodyId, MessageSequence, QueueId};

/// What decides where a message stands in its queue and how long it lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Survives a restart.
    pub persistent: bool,
    /// 0 to 9; what consumers see.
    pub priority: u8,
    /// 0 to 9; 9 is delivered first. As `priority`, or DEFPRTY of a queue with MSGDLVSQ(FIFO).
    pub order: u8,
    /// The message is never delivered at or after this time. Counted from put, as in IBM MQ.
    pub expires_at: Option<Time>,
    /// When it was put.
    pub put_at: Time,
    /// Hash of the correlation id in its canonical text, 0 when there is none.
    pub correlation_hash: u64,
    /// Hash of the message id in its canonical text, 0 when there is none.
    pub message_id_hash: u64,
    /// Hash of the group id (AMQP group-id, JMSXGroupID), 0 when it is in none. Groups of one hash
    /// count as one.
    pub group: u64,
    /// Its number in the group (AMQP group-sequence), 0 when it has none; 4294967295 closes the
    /// group.
    pub group_sequence: u32,
    /// When it becomes due; `None`: at once.
    pub deliver_at: Option<Time>,
}

/// A message as a producer offers it.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// `None`: as the queue's DEFPSIST says.
    pub persistent: Option<bool>,
    /// `None`: as the queue's DEFPRTY says. Above 9 counts as 9.
    pub priority: Option<u8>,
    /// `None`: never expires.
    pub expires_at: Option<Time>,
    /// See [`Header::correlation_hash`].
    pub correlation_hash: u64,
    /// See [`Header::message_id_hash`].
    pub message_id_hash: u64,
    /// See [`Header::group`].
    pub group: u64,
    /// See [`Header::group_sequence`]; of no account outside of a group.
    pub group_sequence: u32,
    /// See [`Header::deliver_at`].
    pub deliver_at: Option<Time>,
    /// The opaque content.
    pub content: Payload,
    /// Bytes of the content around the body, which MAXMSGL does not count, up to 64 KiB.
    pub envelope_bytes: u64,
}

/// A message as a queue holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What the rules look at.
    pub header: Header,
    /// Where its content is.
    pub body: Body,
    /// How often a delivery of it was backed out (BackoutCount; AMQP delivery-count).
    pub backout_count: u32,
    /// Set when the queue manager moved it to a dead-letter or backout queue.
    pub dead_letter: Option<Box<DeadLetter>>,
}

/// Where the content of a message is.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// As it came from the producer; on its way to the log.
    Incoming(Payload),
    /// In memory only: a non-persistent message.
    Memory(Bytes),
    /// In the log, in one piece.
    Log(BodyLocation),
    /// In the log, in two chunks or more, in order.
    Chunks(Box<[BodyLocation]>),
    /// In a put fact: the chunks went ahead as [`Fact::BodyChunk`](crate::Fact::BodyChunk)s;
    /// `apply` turns it into `Chunks`, or `Log` when there is one.
    Announced {
        /// Which chunks.
        body: BodyName,
        /// How many there are.
        chunks: u32,
        /// Bytes of all together.
        bytes: u64,
    },
}

/// What a body in chunks is found by until its put is there.
///
/// Ids of bodies are given by the side that decides the puts. A message that is carried forward is
/// logged again by the side that keeps the log: it needs no id, since it has a name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BodyName {
    /// The body of a put that is new.
    Own(BodyId),
    /// The body of this message, logged again.
    Carried(MessageSequence),
}

impl BodyName {
    /// Its number, as records have it.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            BodyName::Own(body) => body.0,
            BodyName::Carried(sequence) => sequence.0,
        }
    }
}

impl Body {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Body::Incoming(payload) => payload.len() as u64,
            Body::Memory(bytes) => bytes.len() as u64,
            Body::Log(location) => u64::from(location.bytes),
            Body::Chunks(chunks) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
            Body::Announced { bytes, .. } => *bytes,
        }
    }

    /// Its bytes on their way to the log.
    #[must_use]
    pub fn incoming_bytes(&self) -> u64 {
        match self {
            Body::Incoming(payload) => payload.len() as u64,
            Body::Memory(_) | Body::Log(_) | Body::Chunks(_) | Body::Announced { .. } => 0,
        }
    }
}

impl Message {
    /// The message as its next queue gets it: one that expired, or is damaged, is kept
    /// there for good.
    pub(crate) fn moved(mut self, dead_letter: DeadLetter) -> Message {
        // What is damaged waits for a person.
        if matches!(dead_letter.reason, DeadLetterReason::Expired | DeadLetterReason::Damaged) {
            self.header.expires_at = None;
        }
        // It is due where it is now.
        self.header.deliver_at = None;
        // What an administrator moves is a message like any other, wherever it was before.
        let is_dead = dead_letter.reason != DeadLetterReason::Moved;
        self.dead_letter = is_dead.then(|| Box::new(dead_letter));
        self
    }
}

/// Why a message is not where it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What happened.
    pub reason: DeadLetterReason,
    /// The queue that it was in.
    pub origin: String,
    /// Identity of that queue.
    pub origin_id: QueueId,
    /// When it was moved.
    pub moved_at: Time,
}

/// Reasons for which the queue manager itself moves a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeadLetterReason {
    /// A consumer rejected it.
    Rejected = 1,
    /// Its backout count reached BOTHRESH.
    BackoutThreshold = 2,
    /// It expired, and the queue manager is configured to keep expired messages.
    Expired = 3,
    /// The consumer declared that it cannot be delivered there (AMQP modified, undeliverable-here):
    /// only in logs of before it became that consumer's affair.
    Undeliverable = 4,
    /// Its content is damaged where the log has it. The message keeps that location, so that it is
    /// whole again when the log is repaired; until then consumers get a note.
    Damaged = 5,
    /// An administrator moved it (MOVE QLOCAL): it is no dead letter.
    Moved = 6,
}

impl DeadLetterReason {
    /// The stable text that applications see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DeadLetterReason::Rejected => "rejected",
            DeadLetterReason::BackoutThreshold => "backout-threshold",
            DeadLetterReason::Expired => "expired",
            DeadLetterReason::Undeliverable => "undeliverable-here",
            DeadLetterReason::Damaged => "message-damaged",
            DeadLetterReason::Moved => "moved",
        }
    }
}
