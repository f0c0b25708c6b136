//! A client that gets and accepts, with a window of credit.

use std::sync::Arc;

use towline_amqp::event::{Event, IncomingDelivery, LinkId};
use towline_amqp::{Connection, types::DeliveryState};

use super::links::Asking;
use crate::args::Mode;
use crate::board::Phase;
use crate::desk::Desk;
use crate::plan::{Plan, Seat};
use crate::verify::Order;

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumer {
    index: u32,
    queue: Arc<str>,
    receiver: Option<LinkId>,
    is_attached: bool,
    /// Deliveries that the broker may still send.
    credit: u32,
    window: u32,
    /// Whether it has stopped asking for more.
    is_stopped: bool,
    order: Order,
}

impl Consumer {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Consumer {
        Consumer {
            index: seat.index,
            queue: seat.queue.clone(),
            receiver: None,
            is_attached: false,
            credit: 0,
            window: plan.window,
            is_stopped: false,
            order: Order::default(),
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, _: &mut Desk) {
        self.receiver = Asking::begin(connection, self.index).receiver(Some(&self.queue));
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(_) => {
                self.is_attached = true;
                self.turn(connection, desk);
            }
            Event::Transfer(transfer) => self.take(connection, desk, &transfer),
            _ => {}
        }
    }

    fn take(&mut self, connection: &mut Connection, desk: &mut Desk, transfer: &IncomingDelivery) {
        self.credit = self.credit.saturating_sub(1);
        let is_wanted = match (desk.plan.mode, desk.plan.count) {
            (Mode::Get, Some(count)) => desk.board.take_ticket(count),
            _ => true,
        };
        if !is_wanted {
            connection.settle_incoming(transfer.delivery, DeliveryState::Released);
            self.stop(connection);
            return;
        }
        connection.settle_incoming(transfer.delivery, DeliveryState::Accepted);
        desk.got(Desk::read_stamp(&transfer.payload), &mut self.order);
        self.turn(connection, desk);
    }

    /// Asks for more when a quarter of the credit is used up: one flow for many messages, and never
    /// so late that a producer with the same window gets ahead for that reason alone.
    pub(super) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        // A consumer that has producers beside it goes on until all has come.
        let only_gets = desk.plan.mode == Mode::Get;
        if only_gets && desk.phase >= Phase::Stop {
            self.stop(connection);
        }
        let may_begin = desk.phase >= Phase::Warm || !only_gets;
        if self.is_stopped
            || !self.is_attached
            || !may_begin
            || self.credit > self.window - self.window / 4
        {
            return;
        }
        if let Some(link) = self.receiver {
            self.credit = self.window;
            connection.set_credit(link, self.credit);
        }
    }

    fn stop(&mut self, connection: &mut Connection) {
        if let (Some(link), false) = (self.receiver, self.is_stopped) {
            connection.set_credit(link, 0);
            self.is_stopped = true;
        }
    }

    pub(super) fn lost(&mut self, _: &mut Desk) {
        self.receiver = None;
        self.is_attached = false;
        self.credit = 0;
        self.order.forget();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_attached
    }

    pub(super) fn is_busy(&self) -> bool {
        false
    }
}
