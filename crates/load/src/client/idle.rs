//! A client that holds a connection and does nothing.

use towline_amqp::{Connection, event::Event};

use crate::desk::Desk;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    is_open: bool,
}

impl Idle {
    pub(super) fn open(&mut self, _: &mut Connection, _: &mut Desk) {
        self.is_open = true;
    }

    pub(super) fn event(&mut self, _: &mut Connection, _: &mut Desk, _: Event) {}

    pub(super) fn turn(&mut self, _: &mut Connection, _: &mut Desk) {}

    pub(super) fn lost(&mut self, _: &mut Desk) {
        self.is_open = false;
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_open
    }

    pub(super) fn is_busy(&self) -> bool {
        false
    }
}
