//! Persistent messages that are settled in advance, on their way out of their queue: they are got
//! first, and sent when that is durable.
//!
//! What is not persistent never stands here: it would be locked to a link that has no credit for it
//! any more, and what was got behind it would overtake it if it went back. It waits until all
//! before it have left (`delivery_window.rs`), and goes back from there.
//!
//! Not here: whether a delivery may begin to leave; see [`super::delivery_window`].
//!
//! Invariants: in the order of the queue; `bytes` and `frames` are the sums of what is in it.

use towline_core::{Delivery, MessageSequence};
use towline_types::{Payload, Time};

use super::Front;
use super::link_schedule::TargetLine;
use super::links::LinkUse;
use super::outbound::{PresettledDelivery, Settling, got};
use crate::request::{LinkToken, Request};

impl Front {
    /// A persistent delivery that is settled in advance.
    pub(super) fn begin_to_leave(
        &mut self,
        token: LinkToken,
        delivery: Box<Delivery>,
        body: Payload,
        requests: &mut Vec<Request>,
    ) {
        let frames = self.frames_of(&delivery);
        let Some(supply) = self.links.supply_mut(token) else { return };
        requests.push(got(&delivery, token, true));
        let bytes = body.len();
        supply.leaving.add(PresettledDelivery { delivery, body, frames, is_got: false });
        self.links.leaves(bytes);
        self.keep_frames(token);
    }

    /// Keeps frames of the session's window for what is leaving, unless it has no credit any more:
    /// the others shall not wait for it.
    pub(super) fn keep_frames(&mut self, token: LinkToken) {
        let Some((id, supply)) = self.links.supply(token) else { return };
        let frames = supply.leaving.frames;
        let has_credit = frames > 0 && self.machine.allowance(id).credit > 0;
        self.links.keep(token, if has_credit { frames } else { 0 });
    }

    /// A message that is settled in advance is gone from its queue for good. False: it is none.
    pub(super) fn left(
        &mut self,
        now: Time,
        token: LinkToken,
        sequence: MessageSequence,
        requests: &mut Vec<Request>,
    ) -> bool {
        let link = self.links.by_token(token).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { settling: Settling::InAdvance, supply, .. }) = link else {
            return false;
        };
        supply.leaving.got(sequence);
        self.send_leaving(now, token, requests);
        let Some((id, supply)) = self.links.supply(token) else { return true };
        let is_ready = supply.leaving.is_ready();
        let waits = supply.waits();
        if is_ready && self.machine.allowance(id).credit > 0 {
            self.links.stand(token, TargetLine::WindowFirst);
        } else if waits {
            self.links.wake(token);
        }
        if let Some(large) = self.links.lines.large() {
            self.links.stand(large, TargetLine::Ready);
        }
        true
    }

    pub(super) fn send_leaving(
        &mut self,
        now: Time,
        token: LinkToken,
        requests: &mut Vec<Request>,
    ) {
        loop {
            let Some((id, supply)) = self.links.supply(token) else { return };
            if !supply.leaving.is_ready() {
                return;
            }
            let allowance = self.machine.allowance(id);
            if allowance.credit == 0 || allowance.frames == 0 {
                return self.keep_frames(token);
            }
            let Some(supply) = self.links.supply_mut(token) else { return };
            let Some(PresettledDelivery { delivery, body, .. }) = supply.leaving.pop() else {
                return;
            };
            self.links.left(body.len());
            self.keep_frames(token);
            self.send_one(now, token, &delivery, body, true, requests);
        }
    }
}
