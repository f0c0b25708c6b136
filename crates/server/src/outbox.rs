//! What the instance has for one connection. Filled under the node's lock by whichever thread
//! stepped it, emptied by the connection's own task.
//!
//! Bounded by what the connection asked for: link credit, puts in flight, open requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use towline_node::Response;

/// Shared by the node's door and one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    responses: VecDeque<Response>,
    waker: Option<Waker>,
}

impl Outbox {
    pub(crate) fn new() -> Arc<Outbox> {
        Arc::new(Outbox::default())
    }

    /// Adds one; the caller wakes the connection when it has let the node go.
    pub(crate) fn push(&self, response: Response) {
        self.state.lock().responses.push_back(response);
    }

    /// Wakes the connection if it waits.
    pub(crate) fn wake(&self) {
        let waker = self.state.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves what there is to the end of `responses`; with nothing there, `waker` is woken by the
    /// next one.
    pub(crate) fn take(&self, responses: &mut VecDeque<Response>, waker: &Waker) {
        let mut state = self.state.lock();
        if state.responses.is_empty() {
            match &mut state.waker {
                Some(known) if known.will_wake(waker) => {}
                place => *place = Some(waker.clone()),
            }
        } else if responses.is_empty() {
            std::mem::swap(responses, &mut state.responses);
        } else {
            responses.append(&mut state.responses);
        }
    }
}
