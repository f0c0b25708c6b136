//! A client that puts one message, waits for accepted, gets one, accepts it, and repeats.
//!
//! What it gets need not be what it put: all clients share the queues. With `prefetch` one credit
//! stands between the gets, as with ordinary clients, and a message may come while the next put is
//! under way; it is held until it is wanted.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_amqp::event::{Event, IncomingDelivery, LinkId};
use towline_amqp::{Connection, types::DeliveryState};
use towline_types::Time;

use super::links::{Asking, Sender};
use crate::desk::{Desk, is_accepted};
use crate::latency::Kind;
use crate::pace::Pace;
use crate::plan::{Plan, Seat};
use crate::verify::Order;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requester {
    number: u32,
    index: u32,
    queue: Arc<str>,
    sender: Sender,
    receiver: Option<LinkId>,
    attached: u8,
    step: Step,
    sequence: u64,
    held: VecDeque<IncomingDelivery>,
    order: Order,
    pace: Pace,
    is_done: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Between,
    /// Since when the pair counts.
    Putting(Time),
    /// Since when the pair counts, and since when the get.
    Getting(Time, Time),
}

impl Requester {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Requester {
        Requester {
            number: seat.number,
            index: seat.index,
            queue: seat.queue.clone(),
            sender: Sender::default(),
            receiver: None,
            attached: 0,
            step: Step::Between,
            sequence: 0,
            held: VecDeque::new(),
            order: Order::default(),
            pace: Pace::new(plan.interval, seat.quota),
            is_done: false,
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let mut asking = Asking::begin(connection, self.index);
        self.sender = Sender::new(asking.sender(Some(&self.queue)));
        self.receiver = asking.receiver(Some(&self.queue));
        let wants_one =
            (desk.plan.prefetch && !self.is_done) || matches!(self.step, Step::Getting(..));
        if let Some(link) = self.receiver.filter(|_| wants_one) {
            connection.set_credit(link, 1);
        }
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(_) => self.attached += 1,
            Event::Flow(flow) => self.sender.flow(flow),
            Event::Outcome { key, state, settled, .. } => {
                if !settled {
                    self.sender.settle(connection, key);
                }
                if let Step::Putting(from) = self.step {
                    self.put_is_done(connection, desk, from, is_accepted(state.as_ref()));
                    if matches!(self.step, Step::Between) {
                        desk.refused("put", state.as_ref());
                    }
                }
            }
            Event::Transfer(transfer) => self.held.push_back(transfer),
            _ => {}
        }
        self.turn(connection, desk);
    }

    fn put_is_done(
        &mut self,
        connection: &mut Connection,
        desk: &mut Desk,
        from: Time,
        accepted: bool,
    ) {
        let sequence = self.sequence;
        self.sequence += 1;
        if !accepted {
            self.step = Step::Between;
            return;
        }
        desk.put_accepted(self.number, sequence);
        desk.time(Kind::Put, from);
        self.step = Step::Getting(from, desk.now);
        if let Some(link) = self.receiver.filter(|_| !desk.plan.prefetch) {
            connection.set_credit(link, 1);
        }
    }

    pub(super) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let mut was_busy = false;
        loop {
            match self.step {
                Step::Putting(_) => return,
                Step::Getting(from, since) => {
                    let Some(transfer) = self.held.pop_front() else { return };
                    self.accept(connection, desk, &transfer);
                    desk.time(Kind::Get, since);
                    desk.time(Kind::Pair, from);
                    desk.counts.pairs += 1;
                    self.step = Step::Between;
                    was_busy = true;
                }
                Step::Between if desk.is_running() && !self.pace.is_exhausted() => {
                    if self.sender.credit() == 0 {
                        return;
                    }
                    let Some(from) = self.pace.take(desk.now, was_busy) else { return };
                    let message = desk.content.message(desk.stamp(self.number, self.sequence));
                    self.sender.send(connection, self.sequence, message, None);
                    self.step = Step::Putting(from);
                }
                Step::Between => {
                    self.give_back(connection, desk);
                    return;
                }
            }
        }
    }

    fn accept(
        &mut self,
        connection: &mut Connection,
        desk: &mut Desk,
        transfer: &IncomingDelivery,
    ) {
        connection.settle_incoming(transfer.delivery, DeliveryState::Accepted);
        desk.got(Desk::read_stamp(&transfer.payload), &mut self.order);
        if let Some(link) = self.receiver.filter(|_| desk.plan.prefetch) {
            connection.set_credit(link, 1);
        }
    }

    /// At its end: another client may be waiting for what this one fetched ahead.
    fn give_back(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let is_over = desk.phase >= crate::board::Phase::Stop || self.pace.is_exhausted();
        if !is_over || self.is_done {
            return;
        }
        self.is_done = true;
        desk.board.messages_returned();
        for transfer in self.held.drain(..) {
            connection.settle_incoming(transfer.delivery, DeliveryState::Released);
        }
        if let Some(link) = self.receiver {
            connection.detach(link, true, None);
        }
    }

    pub(super) fn lost(&mut self, desk: &mut Desk) {
        if matches!(self.step, Step::Putting(_)) {
            desk.ledger.in_doubt(self.number, self.sequence);
            self.sequence += 1;
            self.step = Step::Between;
            self.pace.again();
        }
        self.sender = Sender::default();
        self.receiver = None;
        self.attached = 0;
        self.held.clear();
        self.order.forget();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.attached == 2
    }

    pub(super) fn is_busy(&self) -> bool {
        !matches!(self.step, Step::Between)
    }

    pub(super) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }
}
