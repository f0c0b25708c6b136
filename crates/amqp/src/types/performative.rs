//! The nine frame bodies of the transport (AMQP 2.7), as structs; their encoding is in `wire`.

use std::sync::Arc;

use super::{DeliveryState, DeliveryTag, Error, LinkTarget, Source};
use crate::codec::{Map, Symbols};

/// Which end of a link its sender is (2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// False on the wire.
    Sender,
    /// True on the wire.
    Receiver,
}

/// How the sender settles (2.8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderSettleMode {
    /// All deliveries unsettled at first.
    Unsettled,
    /// All deliveries settled.
    Settled,
    /// Either.
    #[default]
    Mixed,
}

/// How the receiver settles (2.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiverSettleMode {
    /// At once, on its own.
    #[default]
    First,
    /// After the sender has settled.
    Second,
}

/// Negotiates the connection (2.7.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// Identity of the peer.
    pub container_id: Arc<str>,
    /// Host to which the client connects.
    pub hostname: Option<Arc<str>>,
    /// Largest frame that the sender of this takes, in bytes; default 4,294,967,295.
    pub max_frame_bytes: u32,
    /// Highest channel number; default 65,535.
    pub channel_max: u16,
    /// The sender of this gives up after so many milliseconds of silence.
    pub idle_timeout_ms: Option<u32>,
    /// Languages for outgoing text.
    pub outgoing_locales: Symbols,
    /// Languages for incoming text.
    pub incoming_locales: Symbols,
    /// Extensions that the sender of this has.
    pub offered_capabilities: Symbols,
    /// Extensions that the sender of this would like.
    pub desired_capabilities: Symbols,
    /// Product, version, and the like.
    pub properties: Map,
}

/// Begins a session (2.7.2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Begin {
    /// In an answer: the channel of the peer's begin.
    pub remote_channel: Option<u16>,
    /// Transfer id of the first frame to come.
    pub next_outgoing_id: u32,
    /// Transfer frames that the sender of this can take.
    pub incoming_window: u32,
    /// Transfer frames that the sender of this may send.
    pub outgoing_window: u32,
    /// Highest handle; default 4,294,967,295 (after decoding; `Default` gives 0).
    pub handle_max: u32,
    /// Extensions that the sender of this has.
    pub offered_capabilities: Symbols,
    /// Extensions that the sender of this would like.
    pub desired_capabilities: Symbols,
    /// Anything.
    pub properties: Map,
}

/// Attaches a link (2.7.3).
#[derive(Clone, Debug, PartialEq)]
pub struct Attach {
    /// Name of the link, unique per direction between two containers.
    pub name: Arc<str>,
    /// Number of the link for the sender of this in this session.
    pub handle: u32,
    /// Role of the sender of this.
    pub role: Role,
    /// How the sender settles.
    pub snd_settle_mode: SenderSettleMode,
    /// How the receiver settles.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// Where messages come from; `None` in the answer that refuses a link.
    pub source: Option<Box<Source>>,
    /// Where messages go to; `None` in the answer that refuses a link.
    pub target: Option<Box<LinkTarget>>,
    /// Delivery tag to delivery state, when a link is resumed; empty when there is none.
    pub unsettled: Map,
    /// The map of unsettled deliveries did not fit.
    pub incomplete_unsettled: bool,
    /// Start of delivery-count; only from a sender.
    pub initial_delivery_count: Option<u32>,
    /// Longest message that the sender of this takes, in bytes. `None` and 0: no limit. The field
    /// is absent when `None`.
    pub max_message_bytes: Option<u64>,
    /// Extensions that the sender of this has.
    pub offered_capabilities: Symbols,
    /// Extensions that the sender of this would like.
    pub desired_capabilities: Symbols,
    /// Anything.
    pub properties: Map,
}

/// Windows and link credit (2.7.4). Of the properties only `txn-id` is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Next transfer id that the sender of this expects; `None` before it has seen the peer's
    /// begin.
    pub next_incoming_id: Option<u32>,
    /// Transfer frames that the sender of this can take.
    pub incoming_window: u32,
    /// Next transfer id that the sender of this will use.
    pub next_outgoing_id: u32,
    /// Transfer frames that the sender of this may send.
    pub outgoing_window: u32,
    /// The link that the rest is about; `None`: the session only.
    pub handle: Option<u32>,
    /// delivery-count of the link; `None` before the receiver has seen the sender's attach.
    pub delivery_count: Option<u32>,
    /// Messages that may come after `delivery_count`.
    pub link_credit: Option<u32>,
    /// Messages that wait at the sender.
    pub available: Option<u32>,
    /// Use up the credit at once.
    pub drain: bool,
    /// Answer with the state of the peer.
    pub echo: bool,
    /// The properties have a `txn-id`: what is sent from now on is to be acquired in a transaction
    /// (4.4.3). Which one is not kept.
    pub in_transaction: bool,
}

/// A message, or a piece of one (2.7.5); its payload follows the performative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// The link.
    pub handle: u32,
    /// On the first frame of a delivery.
    pub delivery_id: Option<u32>,
    /// On the first frame of a delivery.
    pub delivery_tag: Option<DeliveryTag>,
    /// On the first frame of a delivery; 0 is the standard's format.
    pub message_format: Option<u32>,
    /// `None`: false on the first frame, unchanged on later ones.
    pub settled: Option<bool>,
    /// More frames of this delivery follow.
    pub more: bool,
    /// Overrides the link's for this delivery.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// State of the delivery at the sender, for example transactional.
    pub state: Option<DeliveryState>,
    /// Part of a resumption.
    pub resume: bool,
    /// Throw away what came of this delivery.
    pub aborted: bool,
    /// No answer is urgent.
    pub batchable: bool,
}

/// State of deliveries `first` to `last` (2.7.6).
#[derive(Clone, Debug, PartialEq)]
pub struct Disposition {
    /// Role of the sender of this, towards the deliveries named.
    pub role: Role,
    /// First delivery id.
    pub first: u32,
    /// Last delivery id; `None`: `first`.
    pub last: Option<u32>,
    /// The sender of this has forgotten them.
    pub settled: bool,
    /// Their state.
    pub state: Option<DeliveryState>,
    /// No answer is urgent.
    pub batchable: bool,
}

/// Detaches a link (2.7.7).
#[derive(Clone, Debug, PartialEq)]
pub struct Detach {
    /// The link.
    pub handle: u32,
    /// For good: the terminus goes too.
    pub closed: bool,
    /// Why, when something went wrong.
    pub error: Option<Box<Error>>,
}

/// Ends a session (2.7.8).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// Why, when something went wrong.
    pub error: Option<Box<Error>>,
}

/// Closes the connection (2.7.9).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Close {
    /// Why, when something went wrong.
    pub error: Option<Box<Error>>,
}

/// The body of an AMQP frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Performative {
    /// See [`Open`].
    Open(Box<Open>),
    /// See [`Begin`].
    Begin(Box<Begin>),
    /// See [`Attach`].
    Attach(Box<Attach>),
    /// See [`Flow`].
    Flow(Flow),
    /// See [`Transfer`].
    Transfer(Transfer),
    /// See [`Disposition`].
    Disposition(Disposition),
    /// See [`Detach`].
    Detach(Detach),
    /// See [`End`].
    End(End),
    /// See [`Close`].
    Close(Close),
}
