//! What a connection asks of the instance, and what it gets back. Closed lists: what is not here
//! cannot happen.

use std::fmt;
use std::sync::Arc;

use towline_amqp::codec::Map;
use towline_core::selector::Selector;
use towline_core::{ConsumerId, Delivery, MessageSequence, NewMessage, Outcome, Refusal, UnitId};

/// How a connection names one of its links to itself; opaque to the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkToken(pub u64);

/// One open producer of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerId(pub u64);

/// Where messages go to or come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Terminus {
    /// A queue, an alias, or a name that a rule may define on first use.
    Queue(String),
    /// A new queue (AMQP dynamic nodes).
    Dynamic {
        /// Made from the model queue of this name.
        model: String,
        /// Only this connection consumes from it.
        private: bool,
    },
    /// The queue of this name that was made for a link of this connection, and kept when that was
    /// detached: it goes with the link that is asked for now.
    Kept(String),
}

/// One thing that a connection asks for. `token`s come back in the [`Response`].
#[derive(Debug)]
pub enum Request {
    /// The peer has logged in. The first request of a connection.
    Connected {
        /// Its container id.
        container: String,
        /// The user; `None`: anonymous.
        user: Option<String>,
        /// From where.
        address: String,
        /// It wants to be the only one of its container id.
        sole: bool,
    },
    /// Attach a link on which messages arrive.
    OpenProducer {
        /// Which link.
        link: LinkToken,
        /// Where to.
        terminus: Terminus,
    },
    /// That link is gone; a queue that was made for it goes with it.
    CloseProducer {
        /// Which.
        producer: ProducerId,
        /// That queue stays: the link was detached, and may come back.
        keep_queue: bool,
    },
    /// Put a message.
    Put {
        /// Comes back.
        token: u64,
        /// Where to.
        target: PutTo,
        /// What.
        message: NewMessage,
        /// Inside which unit of work.
        unit: Option<UnitId>,
        /// Whether the client waits for the answer (false: the transfer was settled).
        reply_wanted: bool,
    },
    /// Attach a link on which messages leave.
    OpenConsumer {
        /// Which link.
        link: LinkToken,
        /// Where from.
        terminus: Terminus,
        /// Browse: messages stay.
        browse: bool,
        /// Only these.
        selector: Option<Arc<Selector>>,
        /// Asked for alone (`Some(true)`), or shared (`Some(false)`).
        exclusive: Option<bool>,
    },
    /// That link is gone. What was delivered and not settled goes back.
    CloseConsumer {
        /// Which.
        consumer: ConsumerId,
        /// It broke (the backout counts rise), rather than being closed in order.
        lost: bool,
        /// As in `CloseProducer`.
        keep_queue: bool,
    },
    /// A queue that was kept goes: its link can come back no more.
    DropKept {
        /// Its name.
        queue: String,
    },
    /// Messages that this consumer may be sent, counted over the consumer's whole life.
    Credit {
        /// Which.
        consumer: ConsumerId,
        /// May have been sent this many in all.
        limit: u64,
        /// Use up at once what cannot be served.
        drain: bool,
        /// Number of this word on the consumer's credit; each is higher than the one before.
        flow: u64,
    },
    /// The outcome of a delivery.
    Settle {
        /// To which consumer it went.
        consumer: ConsumerId,
        /// Which message.
        sequence: MessageSequence,
        /// What became of it.
        outcome: Outcome,
        /// Inside which unit of work.
        unit: Option<UnitId>,
        /// Message annotations of a `modified` outcome.
        annotations: Option<Box<Map>>,
        /// The client has forgotten the delivery.
        settled: bool,
        /// The link that it was sent on: a refusal is answered in any case.
        link: LinkToken,
        /// Whether the client waits for the answer.
        reply_wanted: bool,
    },
    /// Begin a unit of work.
    Declare {
        /// Comes back.
        token: u64,
    },
    /// End a unit of work.
    Discharge {
        /// Comes back.
        token: u64,
        /// Which.
        unit: UnitId,
        /// Roll back rather than commit.
        fail: bool,
    },
    /// An administration request (see `docs/reference`).
    Admin {
        /// The link that the request came on.
        token: u64,
        /// `mqsc`, `status`, ...
        kind: String,
        /// The text of the request.
        text: String,
        /// Whether the client has the rights of the process (`Logins::is_owner`).
        owner: bool,
    },
    /// The connection ends. Always the last request of a connection.
    Disconnect {
        /// It broke, rather than being closed in order.
        lost: bool,
    },
}

/// Where a put goes.
#[derive(Debug, Clone)]
pub enum PutTo {
    /// To the queue that the link was opened for.
    Producer(ProducerId),
    /// To the queue that the message names (anonymous terminus).
    Name(String),
}

/// One message from the instance to a connection.
#[derive(Debug)]
pub enum Response {
    /// Answers `Connected`.
    Connected {
        /// False: another connection has its container id, and one of the two is to be the only
        /// one.
        entered: bool,
    },
    /// Answers `OpenProducer`.
    ProducerOpened {
        /// Which link.
        link: LinkToken,
        /// How it went.
        result: Result<ProducerOpened, Refusal>,
    },
    /// Answers `OpenConsumer`.
    ConsumerOpened {
        /// Which link.
        link: LinkToken,
        /// How it went.
        result: Result<ConsumerOpened, Refusal>,
    },
    /// Answers `Put`: durable, or staged in its unit of work, or refused.
    Put {
        /// From the request.
        token: u64,
        /// From the request.
        unit: Option<UnitId>,
        /// How it went.
        result: Result<(), Refusal>,
    },
    /// A message for a consumer.
    Deliver(Box<Delivery>),
    /// Answers `Settle`: durable, or staged, or refused.
    Settled {
        /// From the request.
        link: LinkToken,
        /// From the request.
        sequence: MessageSequence,
        /// From the request.
        unit: Option<UnitId>,
        /// From the request.
        outcome: Outcome,
        /// How it went.
        result: Result<(), Refusal>,
    },
    /// A drain is done.
    Drained {
        /// Which.
        consumer: ConsumerId,
        /// The last word on its credit that was heard before.
        flow: u64,
    },
    /// More was dispatched to a consumer than it may be sent by its last word on credit. What was,
    /// stands before this.
    Withdrawn {
        /// Which.
        consumer: ConsumerId,
        /// That word.
        flow: u64,
    },
    /// The instance closed a consumer.
    ConsumerClosed {
        /// Which.
        consumer: ConsumerId,
        /// Why.
        reason: Refusal,
    },
    /// Answers `Declare`.
    Declared {
        /// From the request.
        token: u64,
        /// The new unit.
        result: Result<UnitId, Refusal>,
    },
    /// Answers `Discharge`.
    Discharged {
        /// From the request.
        token: u64,
        /// From the request.
        unit: UnitId,
        /// From the request.
        fail: bool,
        /// How it went.
        result: Result<(), Refusal>,
    },
    /// The instance rolled a unit of work back by itself.
    UnitRolledBack {
        /// Which.
        unit: UnitId,
        /// Why.
        reason: Refusal,
    },
    /// Answers `Admin`.
    Admin(AdminReply),
    /// Nothing is served here any more: close the connection.
    Ending(Farewell),
    /// An administrator wants the connection closed (STOP CONN).
    Stopped,
}

/// Why an instance lets all its clients go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// The queue manager ends.
    Ending,
    /// Another instance of its group is active: there the clients are served.
    NotActive,
    /// It hands over to another instance of its group, which may fail: then it stays active.
    HandsOver,
    /// Its group serves nobody any more: why, and where clients may go.
    Fenced(Arc<str>),
}

impl fmt::Display for Farewell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Farewell::Fenced(why) => why,
            Farewell::Ending => "the queue manager is ending: connect again when it runs",
            Farewell::NotActive => {
                "this instance is not the active one any more: connect again, and the active one \
                 serves you"
            }
            Farewell::HandsOver => {
                "this instance hands over to another one: connect again, and the active one serves \
                 you"
            }
        })
    }
}

/// Answer to an administration request.
#[derive(Debug)]
pub struct AdminReply {
    /// From the request.
    pub token: u64,
    /// A JSON text.
    pub json: String,
}

/// What a producer learns when its link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerOpened {
    /// Its id.
    pub producer: ProducerId,
    /// The address (made by the instance for a dynamic node).
    pub address: String,
    /// MAXMSGL.
    pub message_bytes_max: u64,
    /// The queue with this MAXMSGL; `None`: the queue manager's.
    pub limit_of: Option<Box<str>>,
    /// The queue was made for this link, and is deleted when the link is closed.
    pub goes_with_link: bool,
}

/// What a consumer learns when its link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerOpened {
    /// Its id.
    pub consumer: ConsumerId,
    /// The address (made by the instance for a dynamic node).
    pub address: String,
    /// As in `ProducerOpened`.
    pub goes_with_link: bool,
}

impl fmt::Display for Terminus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Terminus::Queue(name) => write!(out, "queue '{name}'"),
            Terminus::Dynamic { model, .. } => write!(out, "a queue made from model '{model}'"),
            Terminus::Kept(name) => write!(out, "dynamic queue '{name}'"),
        }
    }
}
