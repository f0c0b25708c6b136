//! Facts: what was decided. A run of facts (the last one flagged) is applied whole or not at all.

use towline_types::History;

use crate::log_room::log_room_of;
use crate::message::{Body, BodyName, DeadLetter, Message};
use crate::object::Definition;
use crate::{BodyId, CommitId, MessageSequence, QueueId};

/// How the node must treat what was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing to log: apply at once (or behind what is on its way for the same queue, when
    /// `decide` says so).
    Memory,
    /// To the log with the next batch; no client waits for it.
    Lazy,
    /// To the log now; a reply waits until it is durable.
    Forced,
}

/// One thing that happened. Facts carry outcomes, never requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A message was put.
    Put {
        /// To which queue.
        queue: QueueId,
        /// Its sequence.
        sequence: MessageSequence,
        /// It is a known message, logged again so that its old extent can be reused. Of logs of
        /// format level 1 only the message tells: it is known.
        carried: bool,
        /// What was put.
        message: Box<Message>,
    },
    /// A message was got: it is gone.
    Got {
        /// From which queue.
        queue: QueueId,
        /// Which.
        sequence: MessageSequence,
    },
    /// A delivery was backed out; the message is available again with this count.
    BackedOut {
        /// In which queue.
        queue: QueueId,
        /// Which.
        sequence: MessageSequence,
        /// Its backout count from now on.
        count: u32,
    },
    /// A message expired: it is gone.
    Expired {
        /// From which queue.
        queue: QueueId,
        /// Which.
        sequence: MessageSequence,
    },
    /// The queue manager moved a message; its body stays where it is.
    Moved {
        /// From which queue.
        from: QueueId,
        /// Its sequence there.
        sequence: MessageSequence,
        /// To which queue.
        to: QueueId,
        /// Its sequence there.
        new_sequence: MessageSequence,
        /// The lane that it goes to; `None` in logs of format level 1: as the queue is then.
        order: Option<u8>,
        /// Why.
        dead_letter: Box<DeadLetter>,
    },
    /// A piece of a body, ahead of the put that will refer to it.
    BodyChunk {
        /// Of which body.
        body: BodyName,
        /// Its number, from 0.
        index: u32,
        /// The bytes (`Body::Incoming`) or where they are (`Body::Log`).
        chunk: Body,
    },
    /// These bodies belong to puts of a unit of work that was rolled back.
    Abandoned {
        /// The first body.
        first: BodyId,
        /// How many there are, with the ids that follow.
        bodies: u64,
    },
    /// An object exists from now on, or has these attributes from now on.
    Defined {
        /// The whole object.
        definition: Box<Definition>,
    },
    /// A queue was deleted, with all messages in it.
    Deleted {
        /// Which.
        queue: QueueId,
    },
    /// An alias or a model was deleted.
    Undefined {
        /// Its name.
        name: String,
    },
    /// All messages before this sequence were cleared from a queue.
    Cleared {
        /// Which.
        queue: QueueId,
        /// The first sequence that stays.
        upto: MessageSequence,
    },
    /// From here on the log may hold what came with this format level. Never lowered.
    Level {
        /// 2 or more.
        level: u8,
    },
    /// Ends the run of a unit of work.
    Committed {
        /// Number of facts in the run, this one not counted.
        operations: u32,
    },
    /// The facts of its run that follow are not carried out: they are kept aside for this commit.
    Part {
        /// Of which commit.
        commit: CommitId,
        /// How many there are: `Put`s, of which the sequence counts from 0 within the commit, and
        /// `Got`s. 0 at the end of the run: a reader that begins within it learns what it reads.
        operations: u32,
    },
    /// What is kept aside for this commit happens now, all of it.
    Completed {
        /// Which.
        commit: CommitId,
        /// How many facts the log has of it.
        operations: u32,
        /// The sequence of its first put; that of each other one counts from it.
        first: MessageSequence,
    },
    /// From here on another group is live, or this one again: see `crate::region`.
    HistoryBegun {
        /// The history.
        history: Box<History>,
        /// Sequences before this one that were not given are not given any more; `None`: all are.
        first: Option<MessageSequence>,
    },
}

impl Fact {
    /// Bytes of log that it needs of what the log keeps for puts, while its body is not there.
    #[must_use]
    pub fn log_room(&self) -> u64 {
        match self {
            Fact::Put { message, .. } => log_room_of(message.body.incoming_bytes(), 1),
            Fact::BodyChunk { chunk, .. } => log_room_of(chunk.incoming_bytes(), 1),
            // What ends messages has the reserve, and a definition is short.
            Fact::Got { .. }
            | Fact::BackedOut { .. }
            | Fact::Expired { .. }
            | Fact::Moved { .. }
            | Fact::Abandoned { .. }
            | Fact::Defined { .. }
            | Fact::Deleted { .. }
            | Fact::Undefined { .. }
            | Fact::Cleared { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::Part { .. }
            | Fact::Completed { .. }
            | Fact::HistoryBegun { .. } => 0,
        }
    }
}
