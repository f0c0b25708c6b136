//! A client that puts a request and waits for its reply on a dynamic queue of its own.
//!
//! Its message counts as put, for the check of losses, only together with its reply: a reply queue
//! ends with its connection.

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

/// Standing credit for replies; one is in flight.
const REPLY_CREDIT: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Asker {
    number: u32,
    index: u32,
    queue: Arc<str>,
    sender: Sender,
    receiver: Option<LinkId>,
    reply_to: Option<Arc<str>>,
    attached: u8,
    waiting: Option<Waiting>,
    sequence: u64,
    credit: u32,
    order: Order,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    from: Time,
    is_accepted: bool,
    is_answered: bool,
}

impl Asker {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Asker {
        Asker {
            number: seat.number,
            index: seat.index,
            queue: seat.queue.clone(),
            sender: Sender::default(),
            receiver: None,
            reply_to: None,
            attached: 0,
            waiting: None,
            sequence: 0,
            credit: 0,
            order: Order::default(),
            pace: Pace::new(plan.interval, seat.quota),
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, _: &mut Desk) {
        let mut asking = Asking::begin(connection, self.index);
        self.sender = Sender::new(asking.sender(Some(&self.queue)));
        self.receiver = asking.receiver(None);
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(attached) => {
                self.attached += 1;
                if self.receiver == Some(attached.link) {
                    self.reply_to = attached.source.and_then(|source| source.address);
                }
            }
            Event::Flow(flow) => self.sender.flow(flow),
            Event::Outcome { key, state, settled, .. } => {
                if !settled {
                    self.sender.settle(connection, key);
                }
                self.put_is_done(desk, state.as_ref());
            }
            Event::Transfer(transfer) => self.answer(connection, desk, &transfer),
            _ => {}
        }
        self.turn(connection, desk);
    }

    fn put_is_done(&mut self, desk: &mut Desk, state: Option<&DeliveryState>) {
        let Some(waiting) = &mut self.waiting else { return };
        if is_accepted(state) {
            waiting.is_accepted = true;
            let from = waiting.from;
            desk.time(Kind::Put, from);
        } else {
            desk.refused("request", state);
            self.waiting = None;
            self.sequence += 1;
        }
    }

    fn answer(
        &mut self,
        connection: &mut Connection,
        desk: &mut Desk,
        transfer: &IncomingDelivery,
    ) {
        connection.settle_incoming(transfer.delivery, DeliveryState::Accepted);
        self.credit = self.credit.saturating_sub(1);
        let stamp = Desk::read_stamp(&transfer.payload);
        let is_mine = stamp
            .is_some_and(|stamp| stamp.sequence == self.sequence && stamp.producer == self.number);
        desk.got(stamp, &mut self.order);
        if let Some(waiting) = self.waiting.as_mut().filter(|_| is_mine) {
            waiting.is_answered = true;
        }
    }

    pub(super) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        if let Some(link) = self.receiver.filter(|_| self.credit < REPLY_CREDIT / 2) {
            self.credit = REPLY_CREDIT;
            connection.set_credit(link, self.credit);
        }
        let mut was_busy = false;
        if let Some(Waiting { from, is_accepted: true, is_answered: true }) = self.waiting {
            desk.put_accepted(self.number, self.sequence);
            desk.time(Kind::Pair, from);
            desk.counts.pairs += 1;
            self.waiting = None;
            self.sequence += 1;
            was_busy = true;
        }
        if self.waiting.is_some() || !desk.is_running() || self.sender.credit() == 0 {
            return;
        }
        let Some(reply_to) = &self.reply_to else { return };
        let Some(from) = self.pace.take(desk.now, was_busy) else { return };
        let stamp = desk.stamp(self.number, self.sequence);
        let message = desk.content.request(stamp, &self.queue, reply_to);
        self.sender.send(connection, self.sequence, message, None);
        self.waiting = Some(Waiting { from, is_accepted: false, is_answered: false });
    }

    pub(super) fn lost(&mut self, desk: &mut Desk) {
        if self.waiting.take().is_some() {
            desk.ledger.in_doubt(self.number, self.sequence);
            self.sequence += 1;
            self.pace.again();
        }
        self.sender = Sender::default();
        self.receiver = None;
        self.reply_to = None;
        self.attached = 0;
        self.credit = 0;
        self.order.forget();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.attached == 2
    }

    pub(super) fn is_busy(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }
}
