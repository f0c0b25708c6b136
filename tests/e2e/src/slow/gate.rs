//! Lets operations that change the folder hang until they may go on. Reading goes on.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::slow::count::Operation;

/// See the module; open at first.
#[derive(Default)]
pub(super) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(super) fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = is_closed;
        self.opened.notify_all();
    }

    /// Waits while the gate is closed to this kind.
    pub(super) fn pass(&self, operation: Operation) {
        match operation {
            Operation::Write | Operation::Sync | Operation::Other => {}
            Operation::Look | Operation::Open | Operation::Read | Operation::List => return,
        }
        let closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let open = self.opened.wait_while(closed, |closed| *closed);
        drop(open.unwrap_or_else(PoisonError::into_inner));
    }
}
