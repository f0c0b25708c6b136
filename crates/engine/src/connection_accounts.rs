//! What all connections together make this process hold, and how much of it each of them may have.
//!
//! Each has its bound; a hundred that use theirs up would take a hundred times as much. So while
//! all of them are beyond a budget, a connection is full at its part of the budget. What it holds
//! is not taken from it, and an ordinary one holds less than its part anyway.
//!
//! Not here: what a connection does when it is full (`towline_node::Front`).
//!
//! Invariant: `bytes` is the sum of what the shares have counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towline_types::limits;

/// A share is counted anew when it has changed by so much: not for each message.
const STEP_BYTES: u64 = 64 * 1024;

/// Shared by all connections. The order of its counters means nothing.
#[derive(Debug, Default)]
pub struct ConnectionAccounts {
    bytes: AtomicU64,
    connections: AtomicU64,
}

/// What one connection holds of it; nothing any more once dropped.
#[derive(Debug)]
pub struct AccountShare {
    all: Arc<ConnectionAccounts>,
    counted: u64,
}

impl ConnectionAccounts {
    /// What one more connection holds: nothing yet.
    pub fn join(self: &Arc<Self>) -> AccountShare {
        self.connections.fetch_add(1, Ordering::Relaxed);
        AccountShare { all: Arc::clone(self), counted: 0 }
    }

    /// What all of them hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// At how many bytes a connection is full that may have `bytes_max`, when it is alone.
    fn bytes_max_now(&self, bytes_max: u64) -> u64 {
        if self.bytes() < limits::CONNECTIONS_BYTES_MAX {
            return bytes_max;
        }
        let part = limits::CONNECTIONS_BYTES_MAX / self.connections.load(Ordering::Relaxed).max(1);
        bytes_max.min(part.max(limits::CONNECTION_BYTES_MIN))
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
        self.all.bytes.fetch_add(bytes.wrapping_sub(self.counted), Ordering::Relaxed);
        self.counted = bytes;
    }
}

impl Drop for AccountShare {
    fn drop(&mut self) {
        self.count(0);
        self.all.connections.fetch_sub(1, Ordering::Relaxed);
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
    fn a_part_is_never_too_small_for_an_ordinary_client() {
        let all = Arc::new(ConnectionAccounts::default());
        let mut shares: Vec<_> = (0..100_000).map(|_| all.join()).collect();
        shares[0].holds(limits::CONNECTIONS_BYTES_MAX, EACH);
        assert_eq!(shares[1].holds(0, EACH), limits::CONNECTION_BYTES_MIN);
    }
}
