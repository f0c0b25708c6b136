//! What all connections together make this process hold, and how much of it each of them may have.
//!
//! Each has its bound; a hundred that use theirs up would take a hundred times as much. So while
//! all of them are beyond a budget, a connection is full at its part of the budget. What it holds
//! is not taken from it, and an ordinary one holds less than its part anyway.
//!
//! Not here: what a connection does when it is full (`towline_node::Front`).
//!
//! Invariants: `bytes` is the sum of what the shares have counted; a connection that waits until
//! its part is large enough is woken when it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use towline_os::sync::Mutex;
use towline_types::limits;

/// A share is counted anew when it has changed by so much: not for each message.
const STEP_BYTES: u64 = 64 * 1024;

/// Shared by all connections. The order of its counters means nothing.
#[derive(Debug, Default)]
pub struct ConnectionAccounts {
    bytes: AtomicU64,
    connections: AtomicU64,
    waiting: Mutex<WaitingAccounts>,
}

#[derive(Debug, Default)]
struct WaitingAccounts {
    next_ticket: u64,
    /// By the part that each waits for, and its ticket.
    wakers: BTreeMap<(u64, u64), Waker>,
}

/// What one connection holds of it; nothing any more once dropped.
#[derive(Debug)]
pub struct AccountShare {
    all: Arc<ConnectionAccounts>,
    counted: u64,
    /// Under which it waits for a larger part.
    waits: Option<(u64, u64)>,
}

impl ConnectionAccounts {
    /// What one more connection holds: nothing yet.
    pub fn join(self: &Arc<Self>) -> AccountShare {
        self.connections.fetch_add(1, Ordering::Relaxed);
        AccountShare { all: Arc::clone(self), counted: 0, waits: None }
    }

    /// What all of them hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// At how many bytes a connection is full that may have `bytes_max`, when it is alone.
    fn bytes_max_now(&self, bytes_max: u64) -> u64 {
        bytes_max.min(self.part())
    }

    /// The part of each connection now; any, while there is enough for all.
    fn part(&self) -> u64 {
        if self.bytes() < limits::CONNECTIONS_BYTES_MAX {
            return u64::MAX;
        }
        let part = limits::CONNECTIONS_BYTES_MAX / self.connections.load(Ordering::Relaxed).max(1);
        part.max(limits::CONNECTION_BYTES_MIN)
    }

    /// Something was given back: wakes those that waited for a part as large as it is now.
    fn wake(&self) {
        let mut waiting = self.waiting.lock();
        // Behind the lock: a connection that begins to wait looks again when it holds it.
        let part = self.part();
        while let Some(first) = waiting.wakers.first_entry()
            && first.key().0 <= part
        {
            first.remove().wake();
        }
    }
}

impl AccountShare {
    /// The connection holds so many bytes now. At how many it is full, of `bytes_max` when there
    /// is enough for all.
    pub fn holds(&mut self, bytes: u64, bytes_max: u64) -> u64 {
        if bytes.abs_diff(self.counted) >= STEP_BYTES {
            self.count(bytes);
        }
        self.all.bytes_max_now(bytes_max)
    }

    fn count(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.counted, bytes);
        self.all.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        if bytes < before {
            self.all.wake();
        }
    }

    /// Whether a connection may hold `part` bytes now; if not, `waker` is woken when it may. None:
    /// it does not wait any more.
    pub fn has_part(&mut self, part: Option<u64>, waker: &Waker) -> bool {
        if part.is_none() && self.waits.is_none() {
            return false;
        }
        let all = &self.all;
        let mut waiting = all.waiting.lock();
        if let Some(before) = self.waits.take() {
            waiting.wakers.remove(&before);
        }
        let Some(part) = part else { return false };
        if part <= all.part() {
            return true;
        }
        waiting.next_ticket += 1;
        let place = (part, waiting.next_ticket);
        let before = waiting.wakers.insert(place, waker.clone());
        assert!(before.is_none(), "a ticket is given once");
        self.waits = Some(place);
        false
    }
}

impl Drop for AccountShare {
    fn drop(&mut self) {
        self.has_part(None, Waker::noop());
        self.all.connections.fetch_sub(1, Ordering::Relaxed);
        self.all.bytes.fetch_sub(self.counted, Ordering::Relaxed);
        self.all.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EACH: u64 = limits::CONNECTION_BYTES_DEFAULT;

    #[test]
    fn connections_that_hold_the_budget_are_full_at_their_parts_until_others_give_back() {
        let all = Arc::new(ConnectionAccounts::default());
        let count = limits::CONNECTIONS_BYTES_MAX / EACH;
        let mut shares: Vec<_> = (0..count).map(|_| all.join()).collect();
        let mut ordinary = all.join();
        assert_eq!(ordinary.holds(1_000, EACH), EACH, "none holds anything");
        shares.iter_mut().for_each(|share| {
            share.holds(EACH, EACH);
        });
        assert_eq!(all.bytes(), limits::CONNECTIONS_BYTES_MAX);
        let part = limits::CONNECTIONS_BYTES_MAX / (count + 1);
        assert_eq!(ordinary.holds(1_000, EACH), part);
        drop(shares);
        assert_eq!((all.bytes(), ordinary.holds(1_000, EACH)), (0, EACH));
    }

    #[test]
    fn who_waits_for_a_larger_part_is_woken_when_others_give_back_or_go() {
        use std::sync::atomic::AtomicUsize;
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let all = Arc::new(ConnectionAccounts::default());
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let woken = || count.0.swap(0, Ordering::Relaxed);
        let mut shares: Vec<_> = (0..18).map(|_| all.join()).collect();
        shares[0].holds(3 * limits::CONNECTIONS_BYTES_MAX, EACH);
        let part = limits::CONNECTIONS_BYTES_MAX / 18;
        assert!(shares[1].has_part(Some(part), &waker), "it is its part");
        assert!(!shares[1].has_part(Some(EACH), &waker) && !shares[1].has_part(Some(EACH), &waker));
        assert!(!shares[2].has_part(Some(part + 1), &waker));
        assert!(!shares[3].has_part(Some(part + 1), &waker));
        shares[3].has_part(None, &waker);
        shares[0].holds(2 * limits::CONNECTIONS_BYTES_MAX, EACH);
        assert_eq!(woken(), 0, "their parts are the same");
        shares.pop();
        assert_eq!(woken(), 1, "the parts are larger: enough for one of them");
        shares[0].holds(limits::CONNECTIONS_BYTES_MAX - 1, EACH);
        assert_eq!(woken(), 1, "there is enough for all");
        assert_eq!(shares[1].holds(0, EACH), EACH);
        drop(shares);
        assert_eq!((woken(), all.bytes()), (0, 0));
    }

    #[test]
    fn a_part_is_never_too_small_for_an_ordinary_client() {
        let all = Arc::new(ConnectionAccounts::default());
        let mut shares: Vec<_> = (0..100_000).map(|_| all.join()).collect();
        shares[0].holds(limits::CONNECTIONS_BYTES_MAX, EACH);
        assert_eq!(shares[1].holds(0, EACH), limits::CONNECTION_BYTES_MIN);
    }
}
