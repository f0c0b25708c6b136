//! The only module of the harness that reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use towline_types::Time;

/// Wall-clock time at its start, monotonic since then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Time,
    since: Instant,
}

impl Clock {
    /// Reads the wall clock.
    pub(crate) fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Time::ZERO + wall, since: Instant::now() }
    }

    /// Now.
    pub(crate) fn now(&self) -> Time {
        self.start + self.since.elapsed()
    }
}
