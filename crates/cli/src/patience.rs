//! How long something is waited for that another process does, looked at again and again: a socket
//! that comes back, an instance that gets in sync. Nothing here waits for a thread of ours.

use std::thread;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    deadline: Instant,
}

impl Patience {
    /// So much from now on.
    pub(crate) fn of(longest: Duration) -> Patience {
        let now = Instant::now();
        Patience { deadline: now.checked_add(longest).unwrap_or(now) }
    }

    /// What is left of it.
    pub(crate) fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether there is any left; then after a pause.
    pub(crate) fn pause(self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(LOOK_INTERVAL.min(left));
        true
    }
}
