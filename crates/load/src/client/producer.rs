//! A client that puts, with a window of puts that wait for their outcome.

use std::sync::Arc;

use towline_amqp::{Connection, event::Event};

use super::links::{Asking, Sender};
use crate::desk::{Desk, is_accepted};
use crate::latency::Kind;
use crate::pace::Pace;
use crate::plan::{Plan, Seat};
use crate::window::Window;

/// See the module.
#[derive(Debug)]
pub(crate) struct Producer {
    number: u32,
    index: u32,
    queue: Arc<str>,
    sender: Sender,
    window: Window,
    is_attached: bool,
    /// Whether the window or the credit stopped it when it last had something to put.
    is_blocked: bool,
    pace: Pace,
}

impl Producer {
    pub(super) fn new(seat: &Seat, plan: &Plan) -> Producer {
        Producer {
            number: seat.number,
            index: seat.index,
            queue: seat.queue.clone(),
            sender: Sender::default(),
            window: Window::default(),
            is_attached: false,
            is_blocked: false,
            pace: Pace::new(plan.interval, seat.quota),
        }
    }

    pub(super) fn open(&mut self, connection: &mut Connection, _: &mut Desk) {
        self.sender = Sender::new(Asking::begin(connection, self.index).sender(Some(&self.queue)));
    }

    pub(super) fn event(&mut self, connection: &mut Connection, desk: &mut Desk, event: Event) {
        match event {
            Event::Attached(_) => self.is_attached = true,
            Event::Flow(flow) => {
                self.sender.flow(flow);
                self.turn(connection, desk);
            }
            Event::Outcome { key, state, settled, .. } => {
                if !settled {
                    self.sender.settle(connection, key);
                }
                let Some(put_at) = self.window.settle(key) else { return };
                if is_accepted(state.as_ref()) {
                    desk.put_accepted(self.number, key);
                    desk.time(Kind::Put, put_at);
                } else {
                    desk.refused("put", state.as_ref());
                }
                self.turn(connection, desk);
            }
            _ => {}
        }
    }

    pub(super) fn turn(&mut self, connection: &mut Connection, desk: &mut Desk) {
        while desk.is_running() {
            if self.window.span() >= desk.plan.window as usize || self.sender.credit() == 0 {
                self.is_blocked = true;
                return;
            }
            let Some(from) = self.pace.take(desk.now, self.is_blocked) else {
                self.is_blocked = false;
                return;
            };
            let sequence = self.window.push(from);
            let message = desk.content.message(desk.stamp(self.number, sequence));
            self.sender.send(connection, sequence, message, None);
        }
    }

    pub(super) fn lost(&mut self, desk: &mut Desk) {
        for sequence in self.window.abandon() {
            desk.ledger.in_doubt(self.number, sequence);
            self.pace.again();
        }
        self.sender = Sender::default();
        self.is_attached = false;
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_attached
    }

    pub(super) fn is_busy(&self) -> bool {
        self.window.unsettled() > 0
    }

    pub(super) fn pace(&mut self) -> &mut Pace {
        &mut self.pace
    }
}
