//! What the peer of a consumer lets us send, and the deliveries that wait for it.
//!
//! Nothing is given to the AMQP machine that it could not send at once: not without link credit,
//! which the peer may take back while a body is being read, and not while the session's window is
//! closed, where bodies would gather in memory. What waits here waits without its body.
//!
//! A persistent message of a link that settles in advance is got first and sent when that is
//! durable: at most once, also after a crash. It is got only when the window lets it out, and its
//! frames of the window are kept for it against the other links of the session. One that is not
//! persistent is got as it is sent. So what was never sent is on its queue when the link ends.
//!
//! One body at a time and link is given to the machine that is larger than its session's window,
//! and waits inside for the rest of it. All those of a connection are counted together, with what
//! is being got: beyond `BEGUN_BYTES_MAX` no other one is begun before one of them is through. What
//! fits into its window goes all the same.
//!
//! What waits is looked at only when something happened that it waits for: see
//! [`super::link_schedule`].
//!
//! The instance is given a part of the peer's credit at a time: what a peer that does not read its
//! socket gave credit for stays in the queue.
//!
//! Invariants: deliveries of a link leave in the order in which the instance gave them; the answer
//! to a drain stays behind the deliveries before it; sent, held, leaving and `unsent` deliveries
//! are together what the instance has dispatched to the consumer and this connection has heard of,
//! and more than `granted` only when the peer took credit back.

use towline_amqp::{LinkFlow, LinkId};
use towline_core::{ConsumerId, Delivery, Outcome};
use towline_types::{Payload, Time, limits};

use super::Front;
use super::deliver::wire_bytes_max;
use super::link_schedule::{Standing, TargetLine};
use super::links::{ConsumerLink, LinkUse};
use super::outbound::{Settling, Supply, got, settle};
use crate::request::{LinkToken, Request, Response};

/// Links with a large message that are looked at when the peer has sent something, though too many
/// bytes wait already.
const LARGE_LOOKED_AT: usize = 16;

/// What becomes of that which stands first on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Goes,
    /// There is nothing, or its link holds it back: its credit, or what is leaving before it.
    Stays,
    /// The window of its session holds it back.
    Window,
    /// It would have to wait inside, where too much does already.
    Large,
}

impl Front {
    /// Takes a response that may be carried out now. One that must wait stays here, until
    /// [`Front::next_held`] yields it.
    pub fn admit(&mut self, response: Response) -> Option<Response> {
        let consumer = match &response {
            Response::Deliver(delivery) => delivery.consumer,
            Response::Drained { consumer, .. } => *consumer,
            _ => return Some(response),
        };
        // Without a link, the consumer is closed, or about to be: its deliveries go back.
        let token = self.links.of_consumer(consumer)?;
        let (id, supply) = self.links.supply(token)?;
        let goes = match &response {
            // What waits for the same window goes first.
            Response::Deliver(delivery) => {
                supply.held.is_empty()
                    && !self.links.lines.any_waits(id.session())
                    && self.verdict_on(token, id, supply, delivery) == Verdict::Goes
            }
            // Without credit nothing that waits here could use it up.
            _ => !supply.waits() || self.machine.allowance(id).credit == 0,
        };
        if goes {
            return Some(response);
        }
        self.hold(token, response, false);
        None
    }

    /// Keeps a response for later, behind or before what waits already.
    fn hold(&mut self, token: LinkToken, response: Response, first: bool) {
        let Some(supply) = self.links.supply_mut(token) else { return };
        let is_next = first || supply.held.is_empty();
        match first {
            true => supply.held.push_front(response),
            false => supply.held.push_back(response),
        }
        self.links.now_held(1);
        if is_next {
            self.links.wake(token);
        }
    }

    /// Whether a delivery could be on its way at once. One that is larger than all that is left of
    /// the window may begin when nothing else is on its way to it: it has to begin some time.
    fn verdict_on(
        &self,
        token: LinkToken,
        id: LinkId,
        supply: &Supply,
        delivery: &Delivery,
    ) -> Verdict {
        let allowance = self.machine.allowance(id);
        if allowance.credit as usize <= supply.leaving.len() || supply.leaving.holds_back(delivery)
        {
            return Verdict::Stays;
        }
        if self.links.leaving_bytes() >= limits::BEGUN_BYTES_MAX && self.is_in_advance(token) {
            return Verdict::Large;
        }
        let reserved = self.links.reserved(id);
        if reserved.saturating_add(self.frames_of(delivery)) <= allowance.frames {
            return Verdict::Goes;
        }
        if reserved > 0 || allowance.frames == 0 {
            return Verdict::Window;
        }
        if self.may_begin_large() { Verdict::Goes } else { Verdict::Large }
    }

    fn is_in_advance(&self, token: LinkToken) -> bool {
        self.links.consumer(token).is_some_and(|link| link.settling == Settling::InAdvance)
    }

    /// Whether one more body may wait in memory for the window of its session.
    fn may_begin_large(&self) -> bool {
        self.machine.begun_bytes() + self.links.leaving_bytes() < limits::BEGUN_BYTES_MAX
    }

    /// Transfer frames that a delivery takes, at most.
    pub(super) fn frames_of(&self, delivery: &Delivery) -> u32 {
        self.machine.frames_max(wire_bytes_max(delivery))
    }

    /// A response that was held and can be carried out now. Also sends what only waited for the
    /// peer's window.
    pub fn next_held(&mut self, now: Time, requests: &mut Vec<Request>) -> Option<Response> {
        if self.is_full {
            self.go_on_if_free(requests);
        }
        loop {
            if self.links.lines.are_empty() {
                return None;
            }
            let large = self.links.lines.large();
            let token = match self.links.lines.next() {
                Some(token) => token,
                None => large.filter(|_| self.may_begin_large())?,
            };
            self.looks += 1;
            let goes = self.look(now, token, requests);
            if goes.is_some() {
                return goes;
            }
        }
    }

    /// How often a link that waits was looked at, for tests of what a response costs.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Looks at a link that may go on, and moves it to where it belongs then.
    fn look(
        &mut self,
        now: Time,
        token: LinkToken,
        requests: &mut Vec<Request>,
    ) -> Option<Response> {
        self.send_leaving(now, token, requests);
        let (id, supply) = self.links.supply(token)?;
        let has_turn = matches!(supply.standing, Standing::Window(_));
        let is_ready = supply.leaving.is_ready();
        let mut verdict = self.verdict(token);
        let is_delivery = matches!(supply.held.front(), Some(Response::Deliver(_)));
        if verdict == Verdict::Goes
            && is_delivery
            && !has_turn
            && self.links.lines.any_waits(id.session())
        {
            verdict = Verdict::Window;
        }
        match verdict {
            Verdict::Goes => {}
            Verdict::Stays => {
                self.links.stand(token, TargetLine::Nowhere);
                return None;
            }
            Verdict::Large => {
                self.links.stand(token, TargetLine::Large);
                return None;
            }
            Verdict::Window => {
                match (has_turn, is_ready) {
                    (true, _) => self.links.lines.not_due(),
                    (false, true) => self.links.stand(token, TargetLine::WindowFirst),
                    (false, false) => self.links.stand(token, TargetLine::Window),
                }
                return None;
            }
        }
        let supply = self.links.supply_mut(token)?;
        let response = supply.held.pop_front();
        let place = if supply.held.is_empty() { TargetLine::Nowhere } else { TargetLine::Window };
        self.links.held_no_more(usize::from(response.is_some()));
        if has_turn {
            self.links.lines.rotate();
        }
        self.links.stand(token, place);
        self.links.lines.window_moved(id.session());
        response
    }

    fn verdict(&self, token: LinkToken) -> Verdict {
        let Some((id, supply)) = self.links.supply(token) else { return Verdict::Stays };
        if supply.leaving.is_ready() && self.machine.allowance(id).credit > 0 {
            return Verdict::Window;
        }
        match supply.held.front() {
            Some(Response::Deliver(delivery)) => self.verdict_on(token, id, supply, delivery),
            Some(_) if supply.leaving.is_empty() => Verdict::Goes,
            Some(_) | None => Verdict::Stays,
        }
    }

    /// The peer may have opened windows.
    pub(super) fn windows_moved(&mut self) {
        let firsts: Vec<LinkToken> = self.links.lines.firsts().collect();
        for token in firsts {
            let Some((id, _)) = self.links.supply(token) else { continue };
            if self.machine.allowance(id).frames > 0 {
                self.links.lines.window_moved(id.session());
            }
        }
        // One that is large may fit into its window by now. They take turns.
        for _ in 0..self.links.lines.large_count().min(LARGE_LOOKED_AT) {
            if let Some(token) = self.links.lines.large() {
                self.links.stand(token, TargetLine::Ready);
            }
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
        let Some(token) = self.links.of_consumer(delivery.consumer) else { return };
        let Some(ConsumerLink { id, settling, supply }) = self.links.consumer(token) else {
            return;
        };
        if self.verdict_on(token, id, supply, &delivery) != Verdict::Goes {
            // The peer took its credit back while the body was read. Nothing went before it since.
            return self.hold(token, Response::Deliver(delivery), true);
        }
        match settling {
            Settling::InAdvance if delivery.persistent => {
                self.begin_to_leave(token, delivery, body, requests);
            }
            Settling::InAdvance => {
                requests.push(got(&delivery, token, false));
                self.send_one(now, token, &delivery, body, true, requests);
            }
            Settling::Browsed => self.send_one(now, token, &delivery, body, true, requests),
            Settling::ByPeer => self.send_one(now, token, &delivery, body, false, requests),
        }
    }

    /// Sends a delivery for which there is credit, and lets the instance go on in time.
    pub(super) fn send_one(
        &mut self,
        now: Time,
        token: LinkToken,
        delivery: &Delivery,
        body: Payload,
        settled: bool,
        requests: &mut Vec<Request>,
    ) {
        let Some(link) = self.links.by_token(token) else { return };
        let id = link.id;
        let LinkUse::Consumer { supply, .. } = &mut link.used_for else { return };
        supply.sent += 1;
        if supply.wants_more() {
            self.grant_if_low(token, delivery.consumer, requests);
        }
        self.send(now, id, delivery, body, settled);
    }

    fn grant_if_low(
        &mut self,
        token: LinkToken,
        consumer: ConsumerId,
        requests: &mut Vec<Request>,
    ) {
        let ahead = self.dispatched_ahead();
        let Some(supply) = self.links.supply_mut(token) else { return };
        if supply.is_low(ahead) {
            requests.push(supply.word(consumer, ahead));
        }
    }

    /// A delivery cannot be sent: its message was gone before its content was read (another
    /// consumer got what a browser was about to see, for example). The peer's credit for it is
    /// still there, and serves another one; a drain is not done before that.
    pub fn not_sent(&mut self, consumer: ConsumerId, requests: &mut Vec<Request>) {
        let ahead = self.dispatched_ahead();
        let Some(token) = self.links.of_consumer(consumer) else { return };
        let link = self.links.by_token(token).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { supply, .. }) = link else { return };
        supply.unsent += 1;
        requests.push(supply.word(consumer, ahead));
    }

    /// The peer moved the credit of a consumer.
    pub(super) fn credit_moved(&mut self, flow: LinkFlow, requests: &mut Vec<Request>) {
        let ahead = self.dispatched_ahead();
        let link = self.links.get_mut(flow.link).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { consumer, supply, .. }) = link else { return };
        supply.limit = flow.sends + u64::from(flow.credit);
        supply.drain = flow.drain;
        let waits = supply.waits();
        requests.push(supply.word(*consumer, ahead));
        if let Some(token) = self.links.token(flow.link).filter(|_| waits) {
            self.keep_frames(token);
            self.links.wake(token);
        }
    }

    /// The instance had dispatched more than the peer lets us send by now, and has heard of that:
    /// no delivery beyond what waits here is on its way. Those without credit go back, all at once,
    /// so that they come again in their order.
    pub(super) fn withdrawn(
        &mut self,
        consumer: ConsumerId,
        flow: u64,
        requests: &mut Vec<Request>,
    ) {
        let Some(token) = self.links.of_consumer(consumer) else { return };
        let Some((id, _)) = self.links.supply(token) else { return };
        let mut credit = self.machine.allowance(id).credit as usize;
        let link = self.links.by_token(token).map(|link| &mut link.used_for);
        let Some(LinkUse::Consumer { settling, supply, .. }) = link else { return };
        // What is only browsed has no way back: it waits for credit.
        if supply.flow != flow || *settling == Settling::Browsed {
            return;
        }
        credit = credit.saturating_sub(supply.leaving.len());
        let unsent = &mut supply.unsent;
        let before = supply.held.len();
        supply.held.retain(|held| {
            let Response::Deliver(delivery) = held else { return true };
            if credit > 0 {
                credit -= 1;
                return true;
            }
            *unsent += 1;
            requests.push(settle(delivery, token, Outcome::Released, false));
            false
        });
        let (waits, gone) = (supply.waits(), before - supply.held.len());
        self.links.held_no_more(gone);
        if waits {
            self.links.wake(token);
        }
    }

    /// The instance has nothing more for a consumer that wanted to know, or has used up what it was
    /// granted: then it is to go on. An answer to an earlier word on its credit is none: another
    /// answer follows, if it is still wanted.
    pub(super) fn drained(&mut self, consumer: ConsumerId, flow: u64, requests: &mut Vec<Request>) {
        let ahead = self.dispatched_ahead();
        let Some(token) = self.links.of_consumer(consumer) else { return };
        let Some(link) = self.links.by_token(token) else { return };
        let id = link.id;
        let LinkUse::Consumer { supply, .. } = &mut link.used_for else { return };
        if supply.flow != flow {
            return;
        }
        if supply.taken() == supply.granted && supply.granted < supply.wanted() {
            if ahead > 0 {
                return requests.push(supply.word(consumer, ahead));
            }
            // There is more, and no memory for it before the client settles: it is not to wait.
            supply.limit = supply.sent;
        }
        self.machine.drained(id);
    }
}
