//! One link: its two states (ours and the peer's half), its credit, and the delivery that is coming
//! in on it frame by frame.
//!
//! It does *not* write frames and knows no windows: the session does.
//!
//! Invariants: `allowance >= credit` as last announced to the peer; at most one incoming delivery
//! is unfinished (AMQP 2.6.14 forbids to mix two); delivery counts are serial numbers (RFC 1982).

pub mod coordinator;

use std::sync::Arc;

use bytes::BytesMut;
use towline_types::Payload;

use crate::types::{DeliveryState, DeliveryTag, Error, ReceiverSettleMode, Role};

/// Where a link stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LinkState {
    /// The peer attached, the driver has not answered.
    Requested,
    /// We attached, the peer has not answered.
    Requesting,
    /// Both attached.
    Attached,
    /// We detached; frames of the peer are dropped until its detach comes.
    Detaching {
        /// Whether the driver still has to hear of it.
        report: bool,
    },
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) generation: u32,
    pub(crate) name: Arc<str>,
    pub(crate) state: LinkState,
    /// The peer's handle; none before its attach came.
    pub(crate) peer_handle: Option<u32>,
    pub(crate) receiver_settle_mode: ReceiverSettleMode,
    pub(crate) direction: Direction,
    /// A flow is to be written.
    pub(crate) flow_due: bool,
}

/// Which way deliveries go.
#[derive(Debug)]
pub(crate) enum Direction {
    /// We send.
    Sending(Sending),
    /// We receive.
    Receiving(Receiving),
}

/// The sending half.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Deliveries with their first frame written, and credit given back.
    pub(crate) delivery_count: u32,
    /// The peer takes deliveries up to this count.
    pub(crate) limit: u32,
    /// Deliveries given to `send`, with their first frame not written yet.
    pub(crate) queued: u32,
    /// Deliveries ever given to `send`.
    pub(crate) sends: u64,
    /// The peer wants the credit used up.
    pub(crate) drain: bool,
    /// The driver has nothing more: the credit goes back when all that waits is written.
    pub(crate) give_back: bool,
    /// The target is the coordinator: settlements must not be overtaken by what we send.
    pub(crate) to_coordinator: bool,
}

/// The receiving half.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    pub(crate) delivery_count: u32,
    /// Deliveries that the driver wants from here on.
    pub(crate) credit: u32,
    /// Deliveries that the peer may send according to any flow of ours that it may act on.
    pub(crate) allowance: u32,
    pub(crate) drain: bool,
    /// Largest message in bytes; 0 for no limit.
    pub(crate) message_bytes_max: u64,
    pub(crate) partial: Option<Box<Partial>>,
}

/// An incoming delivery of which more frames follow.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) delivery: u32,
    pub(crate) tag: DeliveryTag,
    pub(crate) message_format: u32,
    pub(crate) settled: bool,
    /// Of an earlier attach, as the peer says: it is ignored.
    pub(crate) resumed: bool,
    pub(crate) state: Option<DeliveryState>,
    pub(crate) payload: Payload,
    /// The last piece, behind `payload`.
    pub(crate) gathered: BytesMut,
    /// Held, of all frames so far.
    pub(crate) bytes: u64,
    /// Of all frames so far, once they are more than the link takes: nothing is held then.
    pub(crate) dropped: u64,
    /// The driver knows already that it is too long.
    pub(crate) reported: bool,
}

impl Sending {
    /// Credit that no first frame has used.
    pub(crate) fn unused(&self) -> u32 {
        serial_distance(self.delivery_count, self.limit)
    }

    /// Deliveries that may still be given to `send`; zero when more were than the peer allows.
    pub(crate) fn credit(&self) -> u32 {
        self.unused().saturating_sub(self.queued)
    }
}

impl Link {
    pub(crate) fn new(
        generation: u32,
        name: Arc<str>,
        state: LinkState,
        direction: Direction,
    ) -> Link {
        Link {
            generation,
            name,
            state,
            peer_handle: None,
            receiver_settle_mode: ReceiverSettleMode::First,
            direction,
            flow_due: false,
        }
    }

    /// Our role.
    pub(crate) fn role(&self) -> Role {
        match self.direction {
            Direction::Sending(_) => Role::Sender,
            Direction::Receiving(_) => Role::Receiver,
        }
    }

    pub(crate) fn peer_role(&self) -> Role {
        match self.direction {
            Direction::Sending(_) => Role::Receiver,
            Direction::Receiving(_) => Role::Sender,
        }
    }

    pub(crate) fn settles_second(&self) -> bool {
        self.receiver_settle_mode == ReceiverSettleMode::Second
    }

    /// Whether commands of the driver still mean something.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self.state, LinkState::Detaching { .. })
    }

    pub(crate) fn sending_mut(&mut self) -> Option<&mut Sending> {
        match &mut self.direction {
            Direction::Sending(sending) => Some(sending),
            Direction::Receiving(_) => None,
        }
    }

    pub(crate) fn receiving_mut(&mut self) -> Option<&mut Receiving> {
        match &mut self.direction {
            Direction::Sending(_) => None,
            Direction::Receiving(receiving) => Some(receiving),
        }
    }
}

/// What a peer did wrong, and how far the damage goes.
#[derive(Debug)]
pub(crate) enum Violation {
    /// The connection is closed.
    Connection(Error),
    /// The session is ended.
    Session(Error),
    /// The link at this index is detached.
    Link(u16, Error),
}

/// From `from` up to `to` in serial numbers; 0 when `to` lies behind `from`.
pub(crate) fn serial_distance(from: u32, to: u32) -> u32 {
    let distance = to.wrapping_sub(from);
    if distance > u32::MAX / 2 { 0 } else { distance }
}
