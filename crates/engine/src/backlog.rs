//! What the log has taken and its disk has not written: when it is much, connections that would add
//! to it wait with what they have, instead of all others under the lock of the instance.
//!
//! Not here: what waits (the tasks of connections); that producers get no credit meanwhile
//! (`towline_node`); the log's own bound.
//!
//! Invariants: a task that waits is woken when it is over, whichever of both comes first; nothing
//! is kept of a connection that has ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::task::{Context, Waker};

use towline_core::{ConnectionId, FastMap};
use towline_os::sync::Mutex;
use towline_types::limits;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Runs wait in the instance, because the log did not take them, or so many replies that
    /// wait for the other region.
    is_stalled: AtomicBool,
    /// The instance has work that waits while the log is behind.
    has_work: AtomicBool,
    /// A task waits.
    is_awaited: AtomicBool,
    /// What connections within their shares added since the log had caught up.
    shares_bytes: AtomicU64,
    /// How often it had caught up after they had added something.
    rounds: AtomicU64,
    waiting: Mutex<WaitingTasks>,
}

/// What one connection added within its share since the log had caught up.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogShare {
    round: u64,
    bytes: u64,
}

/// In the order in which they came: those for which nothing was left the last time wait again
/// before the others do, and are woken first.
#[derive(Debug, Default)]
struct WaitingTasks {
    next: u64,
    turns: FastMap<ConnectionId, u64>,
    wakers: BTreeMap<u64, Waker>,
}

impl WaitingTasks {
    fn enter(&mut self, connection: ConnectionId, waker: Waker) {
        let turn = *self.turns.entry(connection).or_insert(self.next);
        self.next += 1;
        self.wakers.insert(turn, waker);
    }

    fn leave(&mut self, connection: ConnectionId) -> Option<Waker> {
        self.wakers.remove(&self.turns.remove(&connection)?)
    }
}

impl Backlog {
    /// Whether the log is behind, with so many bytes not written. One that was stays so until it
    /// has caught up well: clients are not to be stopped for each batch.
    pub(crate) fn is_behind(&self, unsynced_bytes: u64, was: bool) -> bool {
        let most = if was { limits::LOG_CAUGHT_UP_BYTES } else { limits::LOG_BEHIND_BYTES };
        if unsynced_bytes <= limits::LOG_CAUGHT_UP_BYTES
            && self.shares_bytes.load(Ordering::Relaxed) > 0
        {
            self.shares_bytes.store(0, Ordering::Relaxed);
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        unsynced_bytes > most || self.is_stalled.load(Ordering::SeqCst)
    }

    /// Whether a log that is behind takes so much of a connection that has little on its way and
    /// has added `own` already. Not without end: so many of them may come that the log would never
    /// catch up, and those that wait in turn would wait for ever. And one of them, whose messages
    /// are answered at once (in units of work), would leave nothing to the others.
    pub(crate) fn takes_share(&self, own: &mut LogShare, bytes: u64) -> bool {
        if self.is_stalled.load(Ordering::SeqCst) {
            return false;
        }
        let round = self.rounds.load(Ordering::Relaxed);
        if own.round != round {
            *own = LogShare { round, bytes: 0 };
        }
        let fits = |all: u64| Some(all + bytes).filter(|all| *all <= limits::LOG_SHARES_BYTES_MAX);
        let takes = own.bytes + bytes <= limits::LOG_SHARE_BYTES
            && self.shares_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if takes {
            own.bytes += bytes;
        }
        takes
    }

    /// Wakes the task when the log has caught up. False: it has already.
    pub(crate) fn wake_later(
        &self,
        connection: ConnectionId,
        context: &Context<'_>,
        unsynced_bytes: impl Fn() -> u64,
    ) -> bool {
        self.waiting.lock().enter(connection, context.waker().clone());
        self.is_awaited.store(true, Ordering::SeqCst);
        // What was written before is seen here, or this by the thread that wrote it.
        fence(Ordering::SeqCst);
        self.is_behind(unsynced_bytes(), true)
    }

    /// The connection has ended. Clients may come, wait and leave as long as a disk stands still:
    /// what is kept of them would grow without a bound.
    pub(crate) fn leave(&self, connection: ConnectionId) {
        // Its waker holds a task, whose end is not to come under this lock.
        let waker = self.waiting.lock().leave(connection);
        drop(waker);
    }

    /// Enters whether runs, or too many replies, wait in the instance. True when they do not any
    /// more.
    pub(crate) fn stalls(&self, is_stalled: bool) -> bool {
        let was = self.is_stalled.load(Ordering::Relaxed);
        if was != is_stalled {
            self.is_stalled.store(is_stalled, Ordering::SeqCst);
        }
        was && !is_stalled
    }

    /// Enters whether the instance has work that waits while the log is behind.
    pub(crate) fn has_work(&self, has_work: bool) {
        if self.has_work.load(Ordering::Relaxed) != has_work {
            self.has_work.store(has_work, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// Whether the instance is to go on with that work.
    pub(crate) fn lets_work(&self, unsynced_bytes: impl Fn() -> u64) -> bool {
        fence(Ordering::SeqCst);
        self.has_work.load(Ordering::SeqCst) && !self.is_behind(unsynced_bytes(), false)
    }

    /// Something was written, or runs wait no more: wakes all when the log has caught up.
    pub(crate) fn look(&self, unsynced_bytes: impl Fn() -> u64) {
        fence(Ordering::SeqCst);
        if !self.is_awaited.load(Ordering::SeqCst) || self.is_behind(unsynced_bytes(), true) {
            return;
        }
        self.is_awaited.store(false, Ordering::SeqCst);
        let WaitingTasks { wakers, .. } = std::mem::take(&mut *self.waiting.lock());
        wakers.into_values().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::task::Wake;

    use super::*;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const HIGH: u64 = limits::LOG_BEHIND_BYTES;
    const LOW: u64 = limits::LOG_CAUGHT_UP_BYTES;

    #[test]
    fn a_log_is_behind_beyond_one_bound_and_until_it_is_at_the_other() {
        let backlog = Backlog::default();
        assert!(!backlog.is_behind(HIGH, false));
        assert!(backlog.is_behind(HIGH + 1, false));
        assert!(backlog.is_behind(LOW + 1, true));
        assert!(!backlog.is_behind(LOW, true));
    }

    #[test]
    fn shares_are_taken_up_to_a_bound_until_the_log_has_caught_up_and_not_while_runs_wait() {
        let backlog = Backlog::default();
        let count = limits::LOG_SHARES_BYTES_MAX / limits::LOG_SHARE_BYTES;
        let takes = |bytes| backlog.takes_share(&mut LogShare::default(), bytes);
        for _ in 0..2 {
            assert!((1..count).all(|_| takes(limits::LOG_SHARE_BYTES)));
            assert!(takes(limits::LOG_SHARE_BYTES - 1));
            assert!(!takes(limits::LOG_SHARE_BYTES), "those that wait in turn have theirs first");
            assert!(takes(1), "what was refused was not added");
            assert!(!takes(1));
            assert!(backlog.is_behind(LOW + 1, true));
            assert!(!takes(1), "it has not caught up");
            assert!(!backlog.is_behind(LOW, true));
        }
        backlog.stalls(true);
        assert!(!takes(0));
    }

    #[test]
    fn a_connection_has_one_share_until_the_log_has_caught_up() {
        let (backlog, mut own) = (Backlog::default(), LogShare::default());
        for _ in 0..2 {
            assert!(backlog.takes_share(&mut own, limits::LOG_SHARE_BYTES - 1));
            assert!(!backlog.takes_share(&mut own, 2), "the others would have nothing");
            assert!(backlog.takes_share(&mut own, 1));
            assert!(backlog.takes_share(&mut LogShare::default(), limits::LOG_SHARE_BYTES));
            assert!(!backlog.is_behind(LOW, true));
        }
    }

    /// Notes in which order tasks are woken.
    struct InOrder(u64, Arc<Mutex<Vec<u64>>>);

    impl Wake for InOrder {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    #[test]
    fn tasks_are_woken_in_the_order_in_which_they_came_whatever_their_numbers_are() {
        let (backlog, order) = (Backlog::default(), Arc::default());
        let wait = |number: u64| {
            let waker = Waker::from(Arc::new(InOrder(number, Arc::clone(&order))));
            let context = Context::from_waker(&waker);
            assert!(backlog.wake_later(ConnectionId(number), &context, || HIGH));
        };
        [40, 1, 27, 2, 1, 40].into_iter().for_each(wait);
        backlog.look(|| LOW);
        assert_eq!(*order.lock(), [40, 1, 27, 2]);
    }

    #[test]
    fn who_left_is_not_woken_and_nothing_is_kept_of_it() {
        let (backlog, order) = (Backlog::default(), Arc::default());
        for number in 1..=1_000 {
            let waker = Waker::from(Arc::new(InOrder(number, Arc::clone(&order))));
            let context = Context::from_waker(&waker);
            assert!(backlog.wake_later(ConnectionId(number), &context, || HIGH));
            if number > 3 {
                backlog.leave(ConnectionId(number));
            }
        }
        backlog.leave(ConnectionId(2));
        backlog.leave(ConnectionId(2));
        let kept = backlog.waiting.lock();
        assert_eq!((kept.turns.len(), kept.wakers.len()), (2, 2));
        drop(kept);
        backlog.look(|| LOW);
        assert_eq!(*order.lock(), [1, 3]);
    }

    #[test]
    fn who_waits_is_woken_once_when_little_is_left_and_nothing_waits_in_the_instance() {
        let (backlog, woken) = (Backlog::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let context = Context::from_waker(&waker);
        let count = || woken.0.load(Ordering::SeqCst);
        assert!(
            !backlog.wake_later(ConnectionId(1), &context, || LOW),
            "there is nothing to wait for"
        );
        backlog.look(|| LOW);
        assert_eq!(count(), 1);
        assert!(!backlog.stalls(true));
        assert!(backlog.wake_later(ConnectionId(1), &context, || HIGH));
        backlog.look(|| LOW + 1);
        backlog.look(|| LOW);
        assert_eq!(count(), 1, "runs wait");
        assert!(backlog.stalls(false));
        backlog.look(|| LOW + 1);
        assert_eq!(count(), 1, "too much is left");
        backlog.look(|| LOW);
        backlog.look(|| 0);
        assert_eq!(count(), 2);
    }
}
