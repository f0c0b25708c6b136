//! What follows from applying and dispatching: data that the node carries out.
//! Correctness never depends on an effect arriving.

use crate::fact::Fact;
use crate::message::{Body, DeadLetter};
use crate::{
    ConnectionId, ConsumerId, ExtentShare, MessageSequence, PageRequest, QueueId, Refusal, UnitId,
};
use towline_types::{BodyLocation, Time};

/// What one call yields. The caller owns and reuses it.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Facts that no client asked for or waits for (expiry, backout counts): logged lazily, then
    /// applied like all others. Each is a run of its own.
    pub facts: Vec<Fact>,
    /// What to do.
    pub effects: Vec<Effect>,
}

/// One thing to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a message to a consumer.
    Deliver(Delivery),
    /// A consumer's drain is done: all credit that is left is used up (AMQP 2.6.7).
    Drained {
        /// The connection.
        connection: ConnectionId,
        /// Which.
        consumer: ConsumerId,
    },
    /// The queue manager closes a consumer (its queue was deleted or get-inhibited).
    ConsumerClosed {
        /// The connection.
        connection: ConnectionId,
        /// Which.
        consumer: ConsumerId,
        /// Why.
        reason: Refusal,
    },
    /// An open unit of work was rolled back by the queue manager (its age, or log space).
    UnitRolledBack {
        /// The connection.
        connection: ConnectionId,
        /// Which.
        unit: UnitId,
        /// Why.
        reason: Refusal,
    },
    /// The body (or chunk) at this location is needed from now on: its log extent must stay.
    Stored {
        /// Where.
        location: BodyLocation,
    },
    /// The body (or chunk) at this location is no longer needed.
    Removed {
        /// Where.
        location: BodyLocation,
    },
    /// As `Removed`, for all messages of a queue that was cleared or deleted.
    RemovedMany {
        /// Where.
        locations: Vec<BodyLocation>,
    },
    /// As `Removed`, for bodies of which only the extent is known.
    RemovedFrom {
        /// Which extent, how many bodies, how many bytes.
        share: ExtentShare,
    },
    /// A page of a queue is needed: read it, then call `page_arrived`.
    LoadPage {
        /// Which.
        request: PageRequest,
    },
    /// A selector needs the content of this message: read it, then call `content_arrived`.
    Fetch {
        /// In which queue.
        queue: QueueId,
        /// Which.
        sequence: MessageSequence,
        /// Where it is.
        body: Body,
    },
}

/// A message on its way to a consumer.
#[derive(Debug)]
pub struct Delivery {
    /// The connection.
    pub connection: ConnectionId,
    /// Which.
    pub consumer: ConsumerId,
    /// From which queue.
    pub queue: QueueId,
    /// Its sequence.
    pub sequence: MessageSequence,
    /// Where its content is (`Memory`, `Log` or `Chunks`).
    pub body: Body,
    /// See [`crate::Header::persistent`].
    pub persistent: bool,
    /// See [`crate::Header::priority`].
    pub priority: u8,
    /// See [`crate::Header::expires_at`].
    pub expires_at: Option<Time>,
    /// See [`crate::Message::backout_count`].
    pub backout_count: u32,
    /// No other consumer had it before (AMQP 3.2.1). False: one may have had it; of a message that
    /// was there before this process took the log over, that is not known.
    pub first_acquirer: bool,
    /// What outcomes added to the message; the rules do not know of it, and leave it empty.
    pub annotations: Option<bytes::Bytes>,
    /// See [`crate::Message::dead_letter`].
    pub dead_letter: Option<Box<DeadLetter>>,
}
