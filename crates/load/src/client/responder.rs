//! A client that gets requests and puts each one's body back to its reply-to.
//!
//! A request is accepted when the broker has confirmed the reply, so a lost connection repeats a
//! request rather than losing a reply. A request without reply-to is rejected.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use towline_amqp::event::{Event, IncomingDelivery, IncomingId, LinkId};
use towline_amqp::{Connection, types::DeliveryState};
use towline_types::Payload;

use super::links::{Asking, Sender};
use crate::desk::{Desk, is_accepted};
use crate::plan::{Plan, Seat};

/// See the module.
#[derive(Debug)]
pub(crate) struct Responder {
    index: u32,
    queue: Arc<str>,
    window: u32,
    sender: Sender,
    receiver: Option<LinkId>,
    attached: u8,
    credit: u32,
    /// Requests with a reply that waits for its outcome, by the reply's key.
    answered: Slab<IncomingId>,
    /// Replies that wait for credit.
    ready: VecDeque<(IncomingId, Payload)>,
}

impl Responder {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Responder {
        Responder {
            index: seat.index,
            queue: seat.queue.clone(),
            window: plan.window,
            sender: Sender::default(),
            receiver: None,
            attached: 0,
            credit: 0,
            answered: Slab::new(),
            ready: VecDeque::new(),
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, desk: &mut Desk) {
        let mut asking = Asking::begin(connection, self.index);
        self.sender = Sender::new(asking.sender(None));
        self.receiver = asking.receiver(Some(&self.queue));
        self.turn(connection, desk);
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(_) => self.attached += 1,
            Event::Flow(flow) => self.sender.flow(flow),
            Event::Outcome { key, state, settled, .. } => {
                if !settled {
                    self.sender.settle(connection, key);
                }
                self.reply_is_done(connection, desk, key, state.as_ref());
            }
            Event::Transfer(transfer) => self.answer(connection, desk, &transfer),
            _ => {}
        }
        self.turn(connection, desk);
    }

    fn answer(
        &mut self,
        connection: &mut Connection,
        desk: &mut Desk,
        transfer: &IncomingDelivery,
    ) {
        self.credit = self.credit.saturating_sub(1);
        if let Some(reply) = desk.content.reply(&transfer.payload) {
            self.ready.push_back((transfer.delivery, reply));
        } else {
            desk.remark("a request without reply-to was rejected".into());
            let state = DeliveryState::Rejected { error: None };
            connection.settle_incoming(transfer.delivery, state);
        }
    }

    fn reply_is_done(
        &mut self,
        connection: &mut Connection,
        desk: &mut Desk,
        key: u64,
        state: Option<&DeliveryState>,
    ) {
        let found = usize::try_from(key).ok().and_then(|key| self.answered.try_remove(key));
        let Some(request) = found else { return };
        if is_accepted(state) {
            desk.counts.replies += 1;
        } else {
            desk.refused("reply", state);
        }
        // A refused reply has no reader: its requester is gone.
        connection.settle_incoming(request, DeliveryState::Accepted);
        desk.counts.gets += 1;
    }

    pub(super) fn turn(&mut self, connection: &mut Connection, _: &mut Desk) {
        if let Some(link) = self.receiver.filter(|_| self.credit <= self.window / 2) {
            self.credit = self.window;
            connection.set_credit(link, self.credit);
        }
        while self.sender.credit() > 0 {
            let Some((request, reply)) = self.ready.pop_front() else { return };
            let key = self.answered.insert(request) as u64;
            self.sender.send(connection, key, reply, None);
        }
    }

    pub(super) fn lost(&mut self, _: &mut Desk) {
        self.sender = Sender::default();
        self.receiver = None;
        self.attached = 0;
        self.credit = 0;
        self.answered.clear();
        self.ready.clear();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.attached == 2
    }

    /// A responder follows; its requesters are busy while it is.
    pub(super) fn is_busy(&self) -> bool {
        false
    }
}
