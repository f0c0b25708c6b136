//! What the peer sends inside a session, other than attach and detach.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use towline_types::{Payload, limits};

use crate::event::{self, Deliveries, Event, IncomingId, LinkId, SessionId, TooLong};
use crate::link::{Direction, Link, LinkState, Partial, Receiving, Violation, serial_distance};
use crate::output::Output;
use crate::session::{Session, UnfinishedDeliveries};
use crate::types::{
    DeliveryState, Disposition, Error, Flow, ReceiverSettleMode, Role, Symbol, Transfer, condition,
};

/// What came of an unfinished delivery is copied into pieces of about this size. A slice of the
/// read buffer would keep all of it (128 KiB), and one read may bring a frame of a few bytes.
const PIECE_BYTES: usize = 64 * 1_024;
/// A delivery that is too long for its link is read, and dropped, up to here: a program that sends
/// one such message hears of it by its outcome and keeps the link.
const DROPPED_BYTES_MAX: u64 = 2 * limits::TRANSFER_BYTES_MAX;
/// The largest credit that fits serial numbers (RFC 1982).
const CREDIT_MAX: u32 = i32::MAX as u32;

/// What is left of a disposition that covers too many open deliveries for once.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) session: SessionId,
    range: Deliveries,
    settled: bool,
    state: Option<DeliveryState>,
    /// Deliveries of the range that it was sent with beside the open ones that were reached: none,
    /// if all were open.
    missing: u64,
}

impl Outcomes {
    /// What a unit of work loses when the session ends first.
    pub(crate) fn lost_in_unit(&self) -> Option<Event> {
        Event::lost_in_unit(self.state.as_ref())
    }
}

fn session_violation(condition: Symbol, text: &str) -> Violation {
    Violation::Session(Error::new(condition, text))
}

impl Session {
    /// The index of the link behind a handle of the peer.
    pub(super) fn by_handle(&self, handle: u32) -> Result<u16, Violation> {
        let slot = usize::try_from(handle).ok().and_then(|handle| self.handles.get(handle));
        slot.copied().flatten().ok_or_else(|| {
            session_violation(condition::UNATTACHED_HANDLE, "the handle is not attached")
        })
    }

    /// Takes a transfer frame.
    pub(crate) fn on_transfer(
        &mut self,
        transfer: Transfer,
        payload: Bytes,
        events: &mut VecDeque<Event>,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Result<(), Violation> {
        if !self.window.came_in() {
            let text = "a transfer beyond the session window";
            return Err(session_violation(condition::WINDOW_VIOLATION, text));
        }
        self.flow_due |= self.window.is_narrow();
        let index = self.by_handle(transfer.handle)?;
        let session = self.index;
        let Some(link) = self.links.get_mut(usize::from(index)) else { return Ok(()) };
        if !link.is_live() {
            events.extend(Event::lost_in_unit(transfer.state.as_ref()));
            return Ok(());
        }
        let id = LinkId { session, index, generation: link.generation };
        check_settle_mode(index, link.receiver_settle_mode, &transfer)?;
        if transfer.resume {
            events.extend(Event::lost_in_unit(transfer.state.as_ref()));
        }
        let Direction::Receiving(receiving) = &mut link.direction else {
            let text = "a transfer on a link whose sender is the other end";
            return Err(session_violation(condition::NOT_ALLOWED, text));
        };
        events.extend(receiving.take_frame(id, transfer, payload, unfinished)?);
        Ok(())
    }

    /// Takes a disposition; what is left of it belongs to [`Session::go_on`].
    pub(crate) fn on_disposition(
        &mut self,
        disposition: Disposition,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<Outcomes>, Violation> {
        let Disposition { role, first, last, settled, state, batchable: _ } = disposition;
        let last = last.unwrap_or(first);
        if last != first && serial_distance(first, last) == 0 {
            let text = "a disposition whose last delivery lies before its first";
            return Err(session_violation(condition::INVALID_FIELD, text));
        }
        match role {
            Role::Sender if settled => {
                let session = self.id();
                let deliveries = Deliveries { first, last };
                events.push_back(Event::SenderSettled { session, deliveries, state });
            }
            Role::Sender => {}
            Role::Receiver => {
                let says_nothing = matches!(state, None | Some(DeliveryState::Received { .. }));
                if settled || !says_nothing {
                    let missing = u64::from(serial_distance(first, last)) + 1;
                    let session = self.id();
                    let range = Deliveries { first, last };
                    let outcomes = Outcomes { session, range, settled, state, missing };
                    return Ok(self.go_on(outcomes, events));
                }
            }
        }
        Ok(None)
    }

    /// Notifies the driver of each open delivery in the range, once unsettled and once settled at
    /// most: a peer cannot multiply events by repeating itself. So many at a time that other
    /// connections need not wait for a million of them; the rest is returned.
    pub(crate) fn go_on(
        &mut self,
        outcomes: Outcomes,
        events: &mut VecDeque<Event>,
    ) -> Option<Outcomes> {
        let Outcomes { range, settled, state, mut missing, .. } = outcomes;
        let session = self.index;
        let links = &self.links;
        let rest = self.unsettled.walk(range, limits::OUTCOMES_AT_ONCE_MAX, |entry| {
            missing = missing.saturating_sub(1);
            let link = links.get(usize::from(entry.link));
            if let Some(Link { generation, .. }) = link
                && (settled || !entry.reported)
            {
                let link = LinkId { session, index: entry.link, generation: *generation };
                let key = entry.key;
                let state = state.clone();
                events.push_back(Event::Outcome { link, key, state, settled });
                entry.reported = true;
            }
            !settled
        });
        if let Some(range) = rest {
            return Some(Outcomes { range, state, missing, ..outcomes });
        }
        if missing > 0 {
            events.extend(Event::lost_in_unit(state.as_ref()));
        }
        None
    }

    /// Takes a flow, and sends what it lets through.
    pub(crate) fn on_flow(
        &mut self,
        flow: &Flow,
        events: &mut VecDeque<Event>,
        output: &mut Output,
    ) -> Result<(), Violation> {
        self.window.flowed(flow);
        if let Some(handle) = flow.handle {
            let index = self.by_handle(handle)?;
            if flow.in_transaction {
                let text = "messages cannot be acquired in a transaction (flow with a txn-id); \
                            settle them in one";
                let error = Error::new(condition::NOT_IMPLEMENTED, text);
                return Err(Violation::Link(index, error));
            }
            self.on_link_flow(index, flow, events);
        } else if flow.echo {
            self.flow_due = true;
        }
        self.pump(output);
        Ok(())
    }

    fn on_link_flow(&mut self, index: u16, flow: &Flow, events: &mut VecDeque<Event>) {
        let Some(id) = self.link_id(index) else { return };
        let Some(link) = self.links.get_mut(usize::from(index)) else { return };
        if !link.is_live() {
            return;
        }
        let mut event = event::LinkFlow {
            link: id,
            credit: 0,
            sends: 0,
            drain: flow.drain,
            available: flow.available,
        };
        match &mut link.direction {
            Direction::Sending(sending) => {
                if let Some(credit) = flow.link_credit {
                    // Null: the receiver had not seen our attach, which has initial count 0.
                    let count = flow.delivery_count.unwrap_or(0);
                    sending.limit = count.wrapping_add(credit.min(CREDIT_MAX));
                }
                sending.drain = flow.drain;
                event.credit = sending.credit();
                event.sends = sending.sends;
            }
            Direction::Receiving(receiving) => {
                if let Some(count) = flow.delivery_count {
                    let given_back = serial_distance(receiving.delivery_count, count);
                    receiving.delivery_count = receiving.delivery_count.wrapping_add(given_back);
                    receiving.credit = receiving.credit.saturating_sub(given_back);
                    receiving.allowance = receiving.allowance.saturating_sub(given_back);
                }
                event.drain = receiving.drain && receiving.credit == 0;
                receiving.drain &= !event.drain;
                event.credit = receiving.credit;
            }
        }
        let answers = flow.echo && link.state == LinkState::Attached;
        events.push_back(Event::Flow(event));
        if answers {
            self.owe_flow(index);
        }
    }

    /// See [`Connection::set_credit`](crate::Connection::set_credit).
    pub(crate) fn grant(&mut self, id: LinkId, credit: u32, drain: bool) {
        let Some(receiving) = self.link_mut(id).and_then(Link::receiving_mut) else { return };
        let credit = credit.min(CREDIT_MAX);
        let known = receiving.credit == credit && receiving.drain == drain;
        receiving.credit = credit;
        receiving.drain = drain;
        if !known || drain {
            self.owe_flow(id.index);
        }
    }
}

impl Receiving {
    /// Puts a frame to its delivery. What is not whole then stays here; none then.
    fn take_frame(
        &mut self,
        id: LinkId,
        transfer: Transfer,
        payload: Bytes,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Result<Option<Event>, Violation> {
        let more = transfer.more;
        let aborted = transfer.aborted;
        let bytes = payload.len() as u64;
        let Some(partial) = self.take_partial(unfinished) else {
            let partial = first_frame(id.index, self, transfer)?;
            if aborted || (partial.resumed && !more) {
                return Ok(Some(self.aborted(id)));
            }
            if !more && !self.is_too_long(bytes) {
                return Ok(Some(Event::Transfer(partial.into_event(id, Payload::from(payload)))));
            }
            return self.go_on(id, partial, payload, more, unfinished);
        };
        let partial = next_frame(*partial, transfer)?;
        if aborted || (partial.resumed && !more) {
            return Ok(Some(self.aborted(id)));
        }
        self.go_on(id, partial, payload, more, unfinished)
    }

    /// Adds a frame's payload to its delivery, which waits for `more` or is reported. What the link
    /// does not take is counted and dropped, so that its end can be refused and the link stays; one
    /// that the sender settled has no outcome to wait for, and is reported at the frame that is too
    /// much. A delivery without an end detaches the link.
    fn go_on(
        &mut self,
        id: LinkId,
        partial: Partial,
        payload: Bytes,
        more: bool,
        unfinished: &mut UnfinishedDeliveries,
    ) -> Result<Option<Event>, Violation> {
        let bytes = payload.len() as u64;
        let total = partial.bytes.saturating_add(partial.dropped).saturating_add(bytes);
        if total > DROPPED_BYTES_MAX {
            let error = Error::new(condition::MESSAGE_SIZE_EXCEEDED, "a message without an end");
            return Err(Violation::Link(id.index, error));
        }
        let too_long = self.is_too_long(total) || partial.resumed;
        let mut partial = if too_long { partial.drop_all(total) } else { partial.with(payload) };
        let bytes_max = self.message_bytes_max;
        let report =
            too_long && !partial.resumed && !partial.reported && (partial.settled || !more);
        partial.reported |= report;
        let refused = report.then(|| {
            let transfer = partial.event(id, Payload::Empty, partial.state.clone());
            Event::TooLong(Box::new(TooLong { transfer, bytes: total, bytes_max }))
        });
        if more {
            self.put_partial(Box::new(partial), unfinished)?;
            return Ok(refused);
        }
        Ok(if too_long { refused } else { Some(Event::Transfer(partial.finish(id))) })
    }

    const fn is_too_long(&self, bytes: u64) -> bool {
        self.message_bytes_max != 0 && bytes > self.message_bytes_max
    }

    /// An aborted delivery used up credit, and nothing else shows that. So did one that is resumed:
    /// we keep none of an earlier attach, and it must be ignored (AMQP 2.7.5).
    fn aborted(&self, link: LinkId) -> Event {
        let credit = self.credit;
        Event::Flow(event::LinkFlow { link, credit, sends: 0, drain: false, available: None })
    }
}

/// Opens a delivery: takes its credit and its name.
fn first_frame(
    index: u16,
    receiving: &mut Receiving,
    transfer: Transfer,
) -> Result<Partial, Violation> {
    let Some(allowance) = receiving.allowance.checked_sub(1) else {
        let error = Error::new(condition::TRANSFER_LIMIT_EXCEEDED, "a transfer without credit");
        return Err(Violation::Link(index, error));
    };
    let (Some(delivery), Some(tag)) = (transfer.delivery_id, transfer.delivery_tag) else {
        let text = "the first frame of a delivery without its id or tag";
        return Err(session_violation(condition::INVALID_FIELD, text));
    };
    receiving.allowance = allowance;
    receiving.credit = receiving.credit.saturating_sub(1);
    receiving.delivery_count = receiving.delivery_count.wrapping_add(1);
    Ok(Partial {
        delivery,
        tag,
        message_format: transfer.message_format.unwrap_or(0),
        settled: transfer.settled.unwrap_or(false),
        resumed: transfer.resume,
        state: transfer.state,
        payload: Payload::Empty,
        gathered: BytesMut::new(),
        bytes: 0,
        dropped: 0,
        reported: false,
    })
}

/// A delivery may settle first on a link of mode second, and not the other way (AMQP 2.7.5).
fn check_settle_mode(
    index: u16,
    link: ReceiverSettleMode,
    transfer: &Transfer,
) -> Result<(), Violation> {
    let wants_second = transfer.rcv_settle_mode == Some(ReceiverSettleMode::Second);
    if wants_second && link == ReceiverSettleMode::First {
        let text = "a transfer with rcv-settle-mode second on a link of mode first";
        return Err(Violation::Link(index, Error::new(condition::INVALID_FIELD, text)));
    }
    Ok(())
}

/// Adds what a further frame says of its delivery: settled once is settled, a state replaces the
/// state; id, tag and format may be repeated, and then as the first frame had them (AMQP 2.7.5).
fn next_frame(mut partial: Partial, transfer: Transfer) -> Result<Partial, Violation> {
    let text = if transfer.delivery_id.is_some_and(|delivery| delivery != partial.delivery) {
        Some("a delivery began before the one in progress on its link ended")
    } else if transfer.delivery_tag.is_some_and(|tag| tag != partial.tag) {
        Some("another delivery-tag than in the first frame of the delivery")
    } else if transfer.message_format.is_some_and(|format| format != partial.message_format) {
        Some("another message-format than in the first frame of the delivery")
    } else {
        None
    };
    if let Some(text) = text {
        return Err(session_violation(condition::INVALID_FIELD, text));
    }
    partial.settled |= transfer.settled.unwrap_or(false);
    if transfer.state.is_some() {
        partial.state = transfer.state;
    }
    Ok(partial)
}

impl Partial {
    /// Adds the payload of one frame.
    fn with(mut self, payload: Bytes) -> Partial {
        self.bytes = self.bytes.saturating_add(payload.len() as u64);
        if self.gathered.len() + payload.len() > PIECE_BYTES {
            self.flush();
        }
        self.gathered.extend_from_slice(&payload);
        self
    }

    /// Keeps nothing but the count: it is more than the link takes.
    fn drop_all(mut self, total: u64) -> Partial {
        self.payload = Payload::Empty;
        self.gathered = BytesMut::new();
        self.bytes = 0;
        self.dropped = total;
        self
    }

    fn flush(&mut self) {
        self.payload.push(std::mem::take(&mut self.gathered).freeze());
    }

    fn finish(mut self, link: LinkId) -> event::IncomingDelivery {
        self.flush();
        let payload = std::mem::take(&mut self.payload);
        self.into_event(link, payload)
    }

    fn into_event(mut self, link: LinkId, payload: Payload) -> event::IncomingDelivery {
        let state = self.state.take();
        self.event(link, payload, state)
    }

    fn event(
        &self,
        link: LinkId,
        payload: Payload,
        state: Option<DeliveryState>,
    ) -> event::IncomingDelivery {
        event::IncomingDelivery {
            link,
            delivery: IncomingId { link, delivery: self.delivery, settled: self.settled },
            tag: self.tag,
            payload,
            settled: self.settled,
            message_format: self.message_format,
            state,
        }
    }
}
