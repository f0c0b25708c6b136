//! The responses of the instance for one connection. Filled under the lock of the door by the
//! thread that stepped the instance, emptied by the task of the connection.
//!
//! Bounded by the requests of the connection: link credit (a part of it at a time), puts in flight,
//! open requests.
//!
//! A settlement that went well overtakes the deliveries before it, whose bodies may have to be
//! read: a message that is settled in advance is gone from its queue by then, and must be on its
//! way soon.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use towline_node::Response;
use towline_os::sync::{Mutex, MutexGuard};

/// Shared by the node's door and one connection.
#[derive(Debug, Default)]
pub struct Outbox {
    queues: Mutex<Queues>,
    /// There are settlements. Only a hint: it is set and read without the lock.
    has_settled: AtomicBool,
    /// The instance takes nothing more from the connection for now.
    is_shut: AtomicBool,
}

#[derive(Debug, Default)]
struct Queues {
    responses: VecDeque<Response>,
    settled: VecDeque<Response>,
    waker: Option<Waker>,
}

impl Queues {
    fn wakes(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) if known.will_wake(waker) => {}
            waiting => *waiting = Some(waker.clone()),
        }
    }
}

/// An outbox that is being filled.
pub(crate) struct Filling<'a> {
    queues: MutexGuard<'a, Queues>,
    has_settled: &'a AtomicBool,
}

impl Filling<'_> {
    /// Adds one.
    pub(crate) fn push(&mut self, response: Response) {
        if matches!(response, Response::Settled { result: Ok(()), .. }) {
            self.queues.settled.push_back(response);
            self.has_settled.store(true, Ordering::Release);
        } else {
            self.queues.responses.push_back(response);
        }
    }

    /// What wakes the connection, if it waits.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.queues.waker.take()
    }
}

impl Outbox {
    pub(crate) fn new() -> Arc<Outbox> {
        Arc::new(Outbox::default())
    }

    /// Opens it to add responses; the caller wakes the connection when it has left the door
    /// ([`Filling::take_waker`]).
    pub(crate) fn open(&self) -> Filling<'_> {
        Filling { queues: self.queues.lock(), has_settled: &self.has_settled }
    }

    /// Whether the instance takes nothing more from the connection for now: what it has waits, and
    /// nothing is read. `waker` says when that is over: it is left here, since a connection that
    /// waits for something else before it sends comes to no [`Outbox::take`].
    pub fn is_shut(&self, waker: &Waker) -> bool {
        if !self.is_shut.load(Ordering::Acquire) {
            return false;
        }
        self.queues.lock().wakes(waker);
        // It may have been opened before it had the waker.
        self.is_shut.load(Ordering::Acquire)
    }

    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Ordering::Release);
    }

    /// The instance takes requests again; yields what wakes the connection.
    pub(crate) fn reopen(&self) -> Option<Waker> {
        // Before the lock: a connection that leaves its waker after this sees it.
        if !self.is_shut.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.queues.lock().waker.take()
    }

    /// The next settlement. Without one the connection must still look for the other responses,
    /// with its waker.
    pub fn take_settled(&self) -> Option<Response> {
        if !self.has_settled.load(Ordering::Acquire) {
            return None;
        }
        let mut queues = self.queues.lock();
        let settled = queues.settled.pop_front();
        self.has_settled.store(!queues.settled.is_empty(), Ordering::Release);
        settled
    }

    /// Moves all responses to the end of `responses`; if there are none, the next one wakes
    /// `waker`.
    pub fn take(&self, responses: &mut VecDeque<Response>, waker: &Waker) {
        let mut queues = self.queues.lock();
        let Queues { responses: waiting, settled, .. } = &mut *queues;
        if waiting.is_empty() && !settled.is_empty() {
            waiting.append(settled);
            self.has_settled.store(false, Ordering::Release);
        }
        if queues.responses.is_empty() {
            queues.wakes(waker);
        } else if responses.is_empty() {
            std::mem::swap(responses, &mut queues.responses);
        } else {
            responses.append(&mut queues.responses);
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

    #[test]
    fn a_connection_that_is_shut_is_woken_when_it_is_open_also_if_it_takes_no_responses() {
        let outbox = Outbox::new();
        assert!(!outbox.is_shut(Waker::noop()));
        outbox.shut();
        assert!(outbox.reopen().is_none(), "it has not looked yet");
        outbox.shut();
        assert!(outbox.is_shut(Waker::noop()));
        assert!(outbox.reopen().is_some());
        assert!(outbox.reopen().is_none() && !outbox.is_shut(Waker::noop()));
    }
}
