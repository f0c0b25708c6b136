//! The one place where the server reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use towline_types::Time;

/// Wall-clock time read once at start, moved on by monotonic time: it never goes back while the
/// process lives, whatever happens to the wall clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started_at: Time,
    started: Instant,
}

impl Clock {
    /// Reads the wall clock.
    #[must_use]
    pub(crate) fn start() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started_at: Time::ZERO + since_epoch, started: Instant::now() }
    }

    /// The time now.
    #[must_use]
    pub(crate) fn now(&self) -> Time {
        self.started_at + self.started.elapsed()
    }

    /// When the process started.
    #[must_use]
    pub(crate) fn started_at(&self) -> Time {
        self.started_at
    }
}
