//! What the instance has for one connection. Filled under the node's lock by whichever thread
//! stepped it, emptied by the connection's own task.
//!
//! Bounded by what the connection asked for: link credit (a part of it at a time), puts in flight,
//! open requests.
//!
//! A settlement that went well overtakes the deliveries before it, whose bodies may have to be
//! read: a message that is settled in advance is gone from its queue by then, and must be on its
//! way soon.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::{Mutex, MutexGuard};
use towline_node::Response;

/// Shared by the node's door and one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// There are settlements. Only a hint to look: it is set and read beside the lock.
    has_settled: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    responses: VecDeque<Response>,
    settled: VecDeque<Response>,
    waker: Option<Waker>,
}

/// An outbox that is being filled.
pub(crate) struct Filling<'a> {
    state: MutexGuard<'a, State>,
    has_settled: &'a AtomicBool,
}

impl Filling<'_> {
    /// Adds one.
    pub(crate) fn push(&mut self, response: Response) {
        if matches!(response, Response::Settled { result: Ok(()), .. }) {
            self.state.settled.push_back(response);
            self.has_settled.store(true, Ordering::Release);
        } else {
            self.state.responses.push_back(response);
        }
    }

    /// What wakes the connection, if it waits.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.state.waker.take()
    }
}

impl Outbox {
    pub(crate) fn new() -> Arc<Outbox> {
        Arc::new(Outbox::default())
    }

    /// To add some; the caller wakes the connection when it has let the node go
    /// ([`Filling::take_waker`]).
    pub(crate) fn open(&self) -> Filling<'_> {
        Filling { state: self.state.lock(), has_settled: &self.has_settled }
    }

    /// The next settlement. With none there the connection must still look for the other responses,
    /// with its waker.
    pub(crate) fn take_settled(&self) -> Option<Response> {
        if !self.has_settled.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let settled = state.settled.pop_front();
        self.has_settled.store(!state.settled.is_empty(), Ordering::Release);
        settled
    }

    /// Moves what there is to the end of `responses`; with nothing there, `waker` is woken by the
    /// next one.
    pub(crate) fn take(&self, responses: &mut VecDeque<Response>, waker: &Waker) {
        let mut state = self.state.lock();
        let State { responses: waiting, settled, .. } = &mut *state;
        if waiting.is_empty() && !settled.is_empty() {
            waiting.append(settled);
            self.has_settled.store(false, Ordering::Release);
        }
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

#[cfg(test)]
mod tests {
    use towline_core::{ConsumerId, MessageSequence, Outcome, Refusal};
    use towline_node::LinkToken;

    use super::*;

    fn settled(sequence: u64, result: Result<(), Refusal>) -> Response {
        let (link, sequence) = (LinkToken(0), MessageSequence(sequence));
        Response::Settled { link, sequence, unit: None, outcome: Outcome::Accepted, result }
    }

    fn drained(flow: u64) -> Response {
        Response::Drained { consumer: ConsumerId(1), flow }
    }

    fn shown(responses: impl IntoIterator<Item = Response>) -> Vec<String> {
        let show = |response: Response| match response {
            Response::Settled { sequence, .. } => format!("settled {}", sequence.0),
            Response::Drained { flow, .. } => format!("drained {flow}"),
            other => panic!("not expected: {other:?}"),
        };
        responses.into_iter().map(show).collect()
    }

    #[test]
    fn a_settlement_overtakes_what_stands_before_it_and_a_refusal_does_not() {
        let outbox = Outbox::new();
        outbox.open().push(drained(1));
        outbox.open().push(settled(2, Ok(())));
        outbox.open().push(settled(3, Err(Refusal::UnknownUnit)));
        outbox.open().push(settled(4, Ok(())));
        let first = std::iter::from_fn(|| outbox.take_settled());
        assert_eq!(shown(first), ["settled 2", "settled 4"]);
        let mut rest = VecDeque::new();
        outbox.take(&mut rest, Waker::noop());
        assert_eq!(shown(rest), ["drained 1", "settled 3"]);
    }

    #[test]
    fn a_connection_that_has_nothing_else_to_do_does_not_sleep_beside_a_settlement() {
        let outbox = Outbox::new();
        outbox.open().push(settled(1, Ok(())));
        let mut taken = VecDeque::new();
        outbox.take(&mut taken, Waker::noop());
        assert_eq!(shown(taken), ["settled 1"]);
        assert!(outbox.take_settled().is_none());
    }
}
