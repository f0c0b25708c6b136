//! The outbound side of one consumer link: its credit, and the deliveries that wait to be sent.
//!
//! Not here: when a delivery may be sent (`delivery_window`), and in which order links have their
//! turn (`link_schedule`).
//!
//! Invariants: `sent + unsent` passes `granted` only when the peer took credit back that was used,
//! and until our next word on credit; `bytes` and `frames` of a presettled queue
//! are the sums over its deliveries, which are in the order of the message queue.

use std::collections::VecDeque;

use towline_core::{ConsumerId, Delivery, MessageSequence, Outcome};
use towline_types::{Payload, limits};

use super::link_schedule::Standing;
use crate::request::{LinkToken, Request, Response};

/// How the deliveries of a consumer end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settling {
    /// Not at all: the messages stay.
    Browsed,
    /// As they are sent.
    InAdvance,
    /// By an outcome of the peer.
    ByPeer,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// Deliveries that may have been sent in all, by the peer's last flow.
    pub(super) limit: u64,
    /// Deliveries that were sent.
    pub(super) sent: u64,
    /// Deliveries that the instance counts as sent and that never left: their message was gone, or
    /// they were given back.
    pub(super) unsent: u64,
    /// Deliveries that the instance may have dispatched in all, by our last word.
    pub(super) granted: u64,
    /// The last flow asked for a drain.
    pub(super) drain: bool,
    /// Number of our last word on credit: an answer to an earlier one means nothing any more.
    pub(super) flow: u64,
    /// Settled in advance: what is being got, and what must not overtake it.
    pub(super) leaving: PresettledQueue,
    /// What cannot be sent yet.
    pub(super) held: VecDeque<Response>,
    /// Where the link stands among those that wait.
    pub(super) standing: Standing,
}

impl Supply {
    /// Our next word on credit to the instance, which is to be `ahead` of us by no more deliveries.
    /// What it was granted before is not taken back for that.
    pub(super) fn word(&mut self, consumer: ConsumerId, ahead: u64) -> Request {
        self.flow += 1;
        self.granted = self.wanted().min(self.granted.max(self.taken() + ahead));
        Request::Credit { consumer, limit: self.granted, drain: self.drain, flow: self.flow }
    }

    /// Deliveries that the peer wants to have been dispatched in all.
    pub(super) fn wanted(&self) -> u64 {
        self.limit + self.unsent
    }

    /// Dispatched deliveries that are not our affair any more.
    pub(super) fn taken(&self) -> u64 {
        self.sent + self.unsent
    }

    /// The instance was not granted all that the peer wants.
    pub(super) fn wants_more(&self) -> bool {
        self.granted < self.wanted()
    }

    /// It may go on before it has used up what it was granted.
    pub(super) fn is_low(&self, ahead: u64) -> bool {
        self.granted.saturating_sub(self.taken()) <= ahead / 2
    }

    pub(super) fn waits(&self) -> bool {
        !self.held.is_empty() || !self.leaving.is_empty()
    }
}

/// The deliveries of one link that are leaving.
#[derive(Debug, Default)]
pub(super) struct PresettledQueue {
    queue: VecDeque<PresettledDelivery>,
    bytes: usize,
    /// Frames of the session's window that they take.
    pub(super) frames: u32,
    /// Frames of it that are kept for them: all of these, or none.
    pub(super) kept: u32,
}

#[derive(Debug)]
pub(super) struct PresettledDelivery {
    pub(super) delivery: Box<Delivery>,
    pub(super) body: Payload,
    pub(super) frames: u32,
    /// It is gone from its queue for good, and may be sent.
    pub(super) is_got: bool,
}

impl PresettledQueue {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a delivery has to wait for what is leaving before it: no more is got ahead of its
    /// sending than a client may lose, and what is not got goes behind.
    pub(super) fn holds_back(&self, delivery: &Delivery) -> bool {
        !self.queue.is_empty()
            && (self.queue.len() >= limits::LEAVING_MESSAGES_MAX
                || self.bytes >= limits::LEAVING_BYTES_MAX
                || !delivery.persistent)
    }

    /// What stands first could be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.queue.front().is_some_and(|first| first.is_got)
    }

    pub(super) fn add(&mut self, departure: PresettledDelivery) {
        self.bytes += departure.body.len();
        self.frames += departure.frames;
        self.queue.push_back(departure);
    }

    pub(super) fn pop(&mut self) -> Option<PresettledDelivery> {
        let first = self.queue.pop_front()?;
        // The bound on what is got ahead of its sending, which a crash loses, counts on it.
        assert!(self.bytes >= first.body.len(), "a body left that was not counted");
        self.bytes -= first.body.len();
        assert!(!self.queue.is_empty() || self.bytes == 0, "bytes of bodies that are not here");
        // Other links of the session would wait for frames that this one does not need.
        assert!(self.frames >= first.frames, "frames of a delivery that were not counted");
        self.frames -= first.frames;
        Some(first)
    }

    pub(super) fn got(&mut self, sequence: MessageSequence) {
        let mut queue = self.queue.iter_mut();
        if let Some(found) = queue.find(|found| found.delivery.sequence == sequence) {
            assert!(!found.is_got, "a message that is settled in advance is got once");
            found.is_got = true;
        }
    }
}

pub(super) fn settle(
    delivery: &Delivery,
    link: LinkToken,
    outcome: Outcome,
    reply_wanted: bool,
) -> Request {
    Request::Settle {
        consumer: delivery.consumer,
        sequence: delivery.sequence,
        outcome,
        unit: None,
        annotations: None,
        settled: true,
        link,
        reply_wanted,
    }
}

/// The get of a message that is settled in advance.
pub(super) fn got(delivery: &Delivery, link: LinkToken, reply_wanted: bool) -> Request {
    settle(delivery, link, Outcome::Accepted, reply_wanted)
}
