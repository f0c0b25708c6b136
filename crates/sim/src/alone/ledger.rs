//! What the processes of a run and the run share.
//!
//! Invariant: none of its locks is held while a coroutine waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use towline_core::Delivery;
use towline_log::LogError;

use crate::client::Answer;
use crate::history::History;
use crate::served::connection::{Ends, Witness};
use crate::trace::{self, now_us};

/// See the module.
pub(super) struct Ledger {
    pub(super) history: Mutex<History>,
    pub(super) answers: Mutex<VecDeque<(usize, u64, Answer)>>,
    pub(super) failure: Mutex<Option<String>>,
    /// Of each machine, whether operations of its files went wrong.
    pub(super) disturbed: Vec<Arc<AtomicBool>>,
}

impl Ledger {
    pub(super) fn new(machines: usize) -> Ledger {
        Ledger {
            history: Mutex::new(History::by_connection()),
            answers: Mutex::default(),
            failure: Mutex::default(),
            disturbed: (0..machines).map(|_| Arc::default()).collect(),
        }
    }
}

impl Witness for Ledger {
    fn history(&self) -> &Mutex<History> {
        &self.history
    }

    fn answers(&self) -> &Mutex<VecDeque<(usize, u64, Answer)>> {
        &self.answers
    }

    fn fail(&self, what: String) {
        trace::write(now_us(), format_args!("BROKEN: {what}"));
        self.failure.lock().get_or_insert(what);
    }

    /// A body cannot be read by a disk that answers: that is a loss.
    fn unreadable(&self, ends: &Ends, delivery: &Delivery, error: &LogError) -> bool {
        let node = ends.speaker.node;
        self.fail(format!("machine {node} cannot read the body of {delivery:?}: {error}"));
        false
    }

    fn on_acknowledged(&self, _ends: &Ends, _answer: &Answer) {}
}
