//! What a connection reports to its driver, and the small ids by which both speak of sessions,
//! links and deliveries.
//!
//! It does *not* carry frames: windows, handles, delivery ids, continuation frames and empty frames
//! stay inside the machines.
//!
//! Invariants: an id is never reused for something else (generations); each link that was shown by
//! [`Event::Attached`] ends with exactly one of [`Event::Detached`], [`Event::SessionEnded`] (of
//! its session) or [`Event::Closed`]; after [`Event::Closed`] nothing follows.

use std::sync::Arc;

use bytes::Bytes;
use towline_types::Payload;

use crate::codec::{Map, Symbols};
use crate::sasl::Claim;
use crate::types::{
    DeliveryState, DeliveryTag, Error, LinkTarget, ReceiverSettleMode, Role, SenderSettleMode,
    Source, TxnId,
};

/// A session of this connection. Stays unique after the session ended: a late command is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

/// A link of this connection. Stays unique after the detach: a late command is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub(crate) session: u16,
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

/// What one of our sending links may send at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Deliveries, by the peer's link credit.
    pub credit: u32,
    /// Transfer frames, by the window of the session, which its links share; none while a delivery
    /// that was begun waits for more.
    pub frames: u32,
}

/// A delivery that the peer sent us, as long as its link is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IncomingId {
    /// The link that it came on.
    pub link: LinkId,
    pub(crate) delivery: u32,
    pub(crate) settled: bool,
}

/// A range of deliveries of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliveries {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Deliveries {
    /// Whether this delivery, of the same session, is among them.
    #[must_use]
    pub const fn has(self, delivery: IncomingId) -> bool {
        delivery.delivery.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

impl SessionId {
    /// Its number: no two live sessions of a connection have the same.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.index
    }
}

impl LinkId {
    /// Whether the link belongs to this session.
    #[must_use]
    pub const fn is_of(self, session: SessionId) -> bool {
        self.session == session.index
    }

    /// The number of its session: no two live sessions of a connection have the same.
    #[must_use]
    pub const fn session(self) -> u16 {
        self.session
    }
}

impl IncomingId {
    /// Whether the sender settled it already: no peer waits for an outcome.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        self.settled
    }
}

/// What happened, in the order in which the peer made it happen.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Server: the peer asks to log in; nothing more is read until
    /// [`sasl_credentials`](crate::Connection::sasl_credentials) (for SCRAM) or
    /// [`sasl_outcome`](crate::Connection::sasl_outcome) (for the others) answers.
    Login(Claim),
    /// The peer's open frame. Server: answer with `accept_open` or `close`. Events behind it may
    /// already wait (pipelining); `close` drops them.
    Opened(Box<PeerOpen>),
    /// A session is up, begun by the peer (server) or answered by it (client).
    SessionBegun(SessionId),
    /// A session ended with all its links.
    SessionEnded {
        /// Which one; from now on its id and those of its links mean nothing.
        session: SessionId,
        /// Why, when not in the ordinary way.
        error: Option<Error>,
        /// False when we ended it because of something that the peer did wrong.
        by_peer: bool,
    },
    /// Server: the peer asks for a link; answer with `accept_attach` or `refuse_attach`. Client:
    /// the peer's answer (a null terminus announces a refusal: `Detached` with the reason follows).
    Attached(Box<PeerAttach>),
    /// Credit moved on a link. On a receiving link also when an aborted delivery used some up.
    Flow(LinkFlow),
    /// A whole delivery came in (the frames of a large one are put together first).
    Transfer(IncomingDelivery),
    /// A whole delivery came in that is longer than the link takes; its payload was dropped. It is
    /// to be settled as any other one.
    TooLong(Box<TooLong>),
    /// The peer (receiver) gave its word on one delivery of ours. Unless `settled`, it waits for
    /// `settle_outgoing`.
    Outcome {
        /// The link that it was sent on.
        link: LinkId,
        /// The key given to `send`.
        key: u64,
        /// The outcome, or a transactional state that wraps it; none when settled without one.
        state: Option<DeliveryState>,
        /// Whether the peer has forgotten the delivery.
        settled: bool,
    },
    /// Something that the peer put into a transaction reached nothing: an outcome for a delivery
    /// that is not open (its link is detached, it is settled, or it never was), or a message, or
    /// the beginning of one, on a link or a session that we have ended meanwhile. The transaction
    /// must not succeed as though that were in it (4.4).
    LostInUnit {
        /// The transaction.
        txn_id: TxnId,
    },
    /// The peer (sender) settled deliveries that it sent before, by itself or because our outcome
    /// reached it (receiver-settle-mode second). Nothing needs to be answered.
    SenderSettled {
        /// The session of the deliveries.
        session: SessionId,
        /// Which deliveries of it.
        deliveries: Deliveries,
        /// The sender's state, seldom given.
        state: Option<DeliveryState>,
    },
    /// A link is gone.
    Detached {
        /// Which one; from now on its id means nothing.
        link: LinkId,
        /// Whether the terminus is to be destroyed; false suspends a durable subscription.
        closed: bool,
        /// Why, when not in the ordinary way.
        error: Option<Error>,
        /// False when we detached it because of something that the peer did wrong.
        by_peer: bool,
    },
    /// The connection is over. The last event.
    Closed {
        /// Why, when not in the ordinary way.
        error: Option<Error>,
        /// False when we closed it: a violation, silence, a failed login.
        by_peer: bool,
    },
}

impl Event {
    /// See [`Event::LostInUnit`]; none when what was dropped is outside of any unit.
    pub(crate) fn lost_in_unit(state: Option<&DeliveryState>) -> Option<Event> {
        match state {
            Some(DeliveryState::Transactional { txn_id, .. }) => {
                Some(Event::LostInUnit { txn_id: *txn_id })
            }
            _ => None,
        }
    }
}

/// The peer's open frame (AMQP 2.7.1).
#[derive(Clone, Debug, PartialEq)]
pub struct PeerOpen {
    /// The peer's container.
    pub container_id: Arc<str>,
    /// Server: the host that the client wanted.
    pub hostname: Option<Arc<str>>,
    /// Server: the user that logged in; none for ANONYMOUS and without SASL. The user of PLAIN and
    /// SCRAM, the certificate's identity for EXTERNAL.
    pub user: Option<Arc<str>>,
    /// The peer's max-frame-size in bytes.
    pub frame_bytes_max: u32,
    /// Product, version, platform and the like.
    pub properties: Map,
    /// Capabilities that the peer has.
    pub offered_capabilities: Symbols,
    /// Capabilities that the peer would like.
    pub desired_capabilities: Symbols,
}

/// The peer's attach frame (AMQP 2.7.3).
#[derive(Clone, Debug, PartialEq)]
pub struct PeerAttach {
    /// The link.
    pub link: LinkId,
    /// Its name, unique per direction between two containers.
    pub name: Arc<str>,
    /// What the *peer* is on it: `Role::Sender` puts to us, `Role::Receiver` gets from us.
    pub peer_role: Role,
    /// Where the deliveries come from.
    pub source: Option<Box<Source>>,
    /// Where they go: a node or the transaction coordinator.
    pub target: Option<Box<LinkTarget>>,
    /// When the sender settles.
    pub sender_settle_mode: SenderSettleMode,
    /// When the receiver settles.
    pub receiver_settle_mode: ReceiverSettleMode,
    /// The largest message that the peer takes, in bytes; none for no limit (absent or 0).
    pub message_bytes_max: Option<u64>,
    /// Whether the peer remembers deliveries of an earlier attach (which we do not resume).
    pub has_unsettled: bool,
    /// Capabilities that the peer has.
    pub offered_capabilities: Symbols,
    /// Capabilities that the peer would like (shared, global ...).
    pub desired_capabilities: Symbols,
    /// Link properties.
    pub properties: Map,
}

/// The state of credit on one link (AMQP 2.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFlow {
    /// The link.
    pub link: LinkId,
    /// Deliveries that may still be sent, behind those already given to `send`. On a receiving
    /// link: those that the peer may still send.
    pub credit: u32,
    /// Deliveries given to `send` on this link before this flow came in. `sends + credit` is the
    /// total that may ever be sent: a driver on another thread subtracts what it issued itself.
    pub sends: u64,
    /// The receiver wants the credit used up or given back: send what there is, then `drained`. On
    /// a receiving link: the peer has drained.
    pub drain: bool,
    /// Messages that the sender says are waiting, when it says so.
    pub available: Option<u32>,
}

/// One whole incoming delivery (AMQP 2.7.5).
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingDelivery {
    /// Its link.
    pub link: LinkId,
    /// By which it is settled.
    pub delivery: IncomingId,
    /// The sender's name for it, 32 bytes at most.
    pub tag: DeliveryTag,
    /// The message sections, as slices of the read buffer.
    pub payload: Payload,
    /// Whether the sender wants no outcome.
    pub settled: bool,
    /// 0 for AMQP messages (AMQP 2.8.11).
    pub message_format: u32,
    /// A transactional state names the unit of work that the delivery belongs to.
    pub state: Option<DeliveryState>,
}

/// A delivery without its payload, which was longer than max-message-size (AMQP 2.7.3).
#[derive(Clone, Debug, PartialEq)]
pub struct TooLong {
    /// All but the payload.
    pub transfer: IncomingDelivery,
    /// How long the payload was.
    pub bytes: u64,
    /// How long it may be on this link.
    pub bytes_max: u64,
}

/// Our answer to an attach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttachReply {
    /// The source as we understood it (for a dynamic one: with its address).
    pub source: Option<Box<Source>>,
    /// The target as we understood it.
    pub target: Option<Box<LinkTarget>>,
    /// The largest message that we take on this link, in bytes; 0 for no limit.
    pub message_bytes_max: u64,
    /// As agreed; the peer's wish is in [`PeerAttach`].
    pub sender_settle_mode: SenderSettleMode,
    /// As agreed; the peer's wish is in [`PeerAttach`].
    pub receiver_settle_mode: ReceiverSettleMode,
    /// Capabilities that we offer on it.
    pub offered_capabilities: Symbols,
    /// Link properties.
    pub properties: Map,
}

/// What a client asks for with an attach.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachRequest {
    /// Unique per direction between two containers.
    pub name: Arc<str>,
    /// What *we* are on it.
    pub role: Role,
    /// Where the deliveries come from.
    pub source: Option<Box<Source>>,
    /// Where they go: a node or the transaction coordinator.
    pub target: Option<Box<LinkTarget>>,
    /// When the sender settles.
    pub sender_settle_mode: SenderSettleMode,
    /// When the receiver settles.
    pub receiver_settle_mode: ReceiverSettleMode,
    /// The largest message that we take, in bytes; 0 for no limit.
    pub message_bytes_max: u64,
    /// Capabilities that we would like.
    pub desired_capabilities: Symbols,
    /// Link properties.
    pub properties: Map,
}

/// One delivery to send.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outgoing {
    /// Bytes before the content: a header section made for this delivery. May be empty.
    pub prefix: Bytes,
    /// The rest of the message.
    pub content: Payload,
    /// Whether we want no outcome.
    pub settled: bool,
    /// 0 for AMQP messages.
    pub message_format: u32,
    /// Made from the key (its 8 bytes, big-endian) unless given.
    pub tag: Option<DeliveryTag>,
    /// A transactional state puts the delivery into a unit of work (client).
    pub state: Option<DeliveryState>,
}
