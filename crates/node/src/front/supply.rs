//! What the peer of a consumer lets us send, and the deliveries that wait for it.
//!
//! Nothing is given to the AMQP machine that it could not send at once: not without link credit,
//! which the peer may take back while a body is being read, and not while the session's window is
//! closed, where bodies would gather in memory. What waits here waits without its body.
//!
//! A persistent message of a link that settles in advance is got first and sent when that is
//! durable: at most once, also after a crash.
//!
//! Invariants: deliveries of a link leave in the order in which the instance gave them; the answer
//! to a drain stays behind the deliveries before it; sent, held, leaving and `unsent` deliveries are
//! together what the instance has dispatched to the consumer and this connection has heard of.

use std::collections::VecDeque;

use towline_amqp::{Flow, LinkId};
use towline_core::{ConsumerId, Delivery, MessageSequence, Outcome};
use towline_types::{Payload, Time, limits};

use super::Front;
use super::links::LinkUse;
use crate::request::{Request, Response};

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
    limit: u64,
    /// Deliveries that the instance counts as sent and that never left: their message was gone, or
    /// they were given back.
    unsent: u64,
    /// The last flow asked for a drain.
    drain: bool,
    /// Number of our last word on credit: an answer to an earlier one means nothing any more.
    flow: u64,
    /// Settled in advance: what is being got, and what must not overtake it.
    leaving: VecDeque<Leaving>,
    leaving_bytes: usize,
    /// What cannot be sent yet.
    held: VecDeque<Response>,
    /// The link stands in the list of those that wait.
    listed: bool,
}

/// A delivery that is settled in advance, on its way out of its queue.
#[derive(Debug)]
struct Leaving {
    delivery: Box<Delivery>,
    body: Payload,
    /// It is gone from its queue for good.
    gone: bool,
}

impl Supply {
    /// Whether one more may go, when the machine could send so many.
    fn may_send(&self, sendable: u32) -> bool {
        sendable as usize > self.leaving.len() && self.leaving_bytes < limits::LEAVING_BYTES_MAX
    }

    /// Our next word on credit to the instance.
    fn word(&mut self, consumer: ConsumerId) -> Request {
        self.flow += 1;
        let limit = self.limit + self.unsent;
        Request::Credit { consumer, limit, drain: self.drain, flow: self.flow }
    }

    fn waits(&self) -> bool {
        !self.held.is_empty() || !self.leaving.is_empty()
    }
}

impl Front {
    /// Takes a response that may be carried out now. One that must wait stays here, until
    /// [`Front::next_held`] yields it.
    pub fn admit(&mut self, response: Response) -> Option<Response> {
        let (consumer, is_delivery) = match &response {
            Response::Deliver(delivery) => (delivery.consumer, true),
            Response::Drained { consumer, .. } => (*consumer, false),
            _ => return Some(response),
        };
        // Without a link, the consumer is closed, or about to be: its deliveries go back.
        let id = self.link_of(consumer)?;
        let (sendable, credit) = (self.machine.sendable(id), self.machine.sending_credit(id));
        let LinkUse::Consumer { supply, .. } = &mut self.links.get_mut(id)?.used_for else {
            return None;
        };
        let goes = match is_delivery {
            true => supply.held.is_empty() && supply.may_send(sendable),
            // Without credit nothing that waits here could use it up.
            false => credit == 0 || !supply.waits(),
        };
        if goes {
            return Some(response);
        }
        supply.held.push_back(response);
        self.list(id);
        None
    }

    /// A response that was held and can be carried out now. Also sends what only waited for the
    /// peer's window.
    pub fn next_held(&mut self, now: Time) -> Option<Response> {
        for _ in 0..self.supplies_waiting.len() {
            let id = self.supplies_waiting.pop_front()?;
            self.send_leaving(now, id);
            let sendable = self.machine.sendable(id);
            let link = self.links.get_mut(id).map(|link| &mut link.used_for);
            let Some(LinkUse::Consumer { supply, .. }) = link else { continue };
            if !supply.waits() {
                supply.listed = false;
                continue;
            }
            self.supplies_waiting.push_back(id);
            let goes = match supply.held.front() {
                Some(Response::Deliver(_)) => supply.may_send(sendable),
                Some(_) => supply.leaving.is_empty(),
                None => false,
            };
            if goes {
                return supply.held.pop_front();
            }
        }
        None
    }

    fn list(&mut self, id: LinkId) {
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        if let Some(LinkUse::Consumer { supply, .. }) = link
            && !std::mem::replace(&mut supply.listed, true)
        {
            self.supplies_waiting.push_back(id);
        }
    }

    /// Sends a message that the instance chose for one of our consumers.
    pub(super) fn deliver(
        &mut self,
        now: Time,
        delivery: Box<Delivery>,
        body: Payload,
        requests: &mut Vec<Request>,
    ) {
        let Some(id) = self.link_of(delivery.consumer) else { return };
        let Some(token) = self.links.token(id) else { return };
        let sendable = self.machine.sendable(id);
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { settling, supply, .. }) = link else { return };
        if !supply.may_send(sendable) {
            // The peer took its credit back while the body was read. Nothing went before it since.
            supply.held.push_front(Response::Deliver(delivery));
            return self.list(id);
        }
        let gone = !delivery.persistent;
        match settling {
            Settling::InAdvance if !gone || !supply.leaving.is_empty() => {
                if !gone {
                    requests.push(Request::Settle {
                        consumer: delivery.consumer,
                        sequence: delivery.sequence,
                        outcome: Outcome::Accepted,
                        unit: None,
                        settled: true,
                        link: token,
                        reply_wanted: true,
                    });
                }
                supply.leaving_bytes += body.len();
                supply.leaving.push_back(Leaving { delivery, body, gone });
                self.list(id);
            }
            Settling::InAdvance | Settling::Browsed => self.send(now, id, &delivery, body, true),
            Settling::ByPeer => self.send(now, id, &delivery, body, false),
        }
    }

    /// A message that is settled in advance is gone from its queue for good. False: it is none.
    pub(super) fn left(&mut self, now: Time, id: LinkId, sequence: MessageSequence) -> bool {
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { settling: Settling::InAdvance, supply, .. }) = link else {
            return false;
        };
        let mut leaving = supply.leaving.iter_mut();
        if let Some(found) = leaving.find(|leaving| leaving.delivery.sequence == sequence) {
            found.gone = true;
        }
        self.send_leaving(now, id);
        true
    }

    fn send_leaving(&mut self, now: Time, id: LinkId) {
        loop {
            let sendable = self.machine.sendable(id);
            let link = self.links.get_mut(id).map(|link| &mut link.used_for);
            let Some(LinkUse::Consumer { supply, .. }) = link else { return };
            if sendable == 0 || !supply.leaving.front().is_some_and(|first| first.gone) {
                return;
            }
            let Some(Leaving { delivery, body, .. }) = supply.leaving.pop_front() else { return };
            supply.leaving_bytes -= body.len();
            self.send(now, id, &delivery, body, true);
        }
    }

    /// A delivery cannot be sent: its message was gone before its content was read (another consumer
    /// got what a browser was about to see, for example). The peer's credit for it is still there,
    /// and serves another one; a drain is not done before that.
    pub fn not_sent(&mut self, consumer: ConsumerId, requests: &mut Vec<Request>) {
        let Some(id) = self.link_of(consumer) else { return };
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { supply, .. }) = link else { return };
        supply.unsent += 1;
        requests.push(supply.word(consumer));
    }

    /// The peer moved the credit of a consumer.
    pub(super) fn credit_moved(&mut self, flow: Flow, requests: &mut Vec<Request>) {
        let link = self.links.get_mut(flow.link).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { consumer, supply, .. }) = link else { return };
        supply.limit = flow.sends + u64::from(flow.credit);
        supply.drain = flow.drain;
        requests.push(supply.word(*consumer));
    }

    /// The instance had dispatched more than the peer lets us send by now, and has heard of that: no
    /// delivery beyond what waits here is on its way. Those without credit go back, all at once, so
    /// that they come again in their order.
    pub(super) fn withdrawn(
        &mut self,
        consumer: ConsumerId,
        flow: u64,
        requests: &mut Vec<Request>,
    ) {
        let Some(id) = self.link_of(consumer) else { return };
        let Some(token) = self.links.token(id) else { return };
        let mut credit = self.machine.sending_credit(id);
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { settling, supply, .. }) = link else { return };
        // What is settled in advance, or only browsed, has no way back: it waits for credit.
        if supply.flow != flow || *settling != Settling::ByPeer {
            return;
        }
        let unsent = &mut supply.unsent;
        supply.held.retain(|held| {
            let Response::Deliver(delivery) = held else { return true };
            if credit > 0 {
                credit -= 1;
                return true;
            }
            *unsent += 1;
            requests.push(Request::Settle {
                consumer,
                sequence: delivery.sequence,
                outcome: Outcome::Released,
                unit: None,
                settled: true,
                link: token,
                reply_wanted: false,
            });
            false
        });
    }

    /// The instance has nothing more for a consumer that wanted to know. An answer to an earlier
    /// word on its credit is none: another answer follows, if it is still wanted.
    pub(super) fn drained(&mut self, consumer: ConsumerId, flow: u64) {
        let Some(id) = self.link_of(consumer) else { return };
        let link = self.links.get_mut(id).map(|link| &mut link.used_for);
        if let Some(LinkUse::Consumer { supply, .. }) = link
            && supply.flow == flow
        {
            self.machine.drained(id);
        }
    }
}
