//! The two clocks of the process: one says how long something takes, one says what time of day it
//! is.
//!
//! Not here: clocks of certificates, which are read when they are judged; the lease of a shared
//! folder.
//!
//! Invariants: [`Clock::now`] never goes back and never jumps, whatever happens to the wall clock;
//! it goes on while the machine sleeps. [`Clock::wall`] is the wall clock as it was last looked at.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use towline_admin::catalogue::CLOCK_STEPPED;
use towline_types::Time;

use towline_logging::log;
pub use towline_os::time::since_boot;

/// What an ordinary correction does not reach: a step is logged, and ages are kept over it.
const STEP_US_MIN: u64 = 1_000_000;

/// Wall-clock time read once at start, moved on by the time since then; and how far the wall clock
/// is from that now.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Time,
    started: Duration,
    /// Microseconds that the wall clock is ahead of `now`. Of all copies of this clock.
    ahead_us: &'static AtomicI64,
}

impl Clock {
    /// Reads the wall clock. One for each process: what its copies share stays for good.
    #[must_use]
    pub fn start() -> Clock {
        let ahead_us = Box::leak(Box::new(AtomicI64::new(0)));
        Clock { started_at: read_wall_clock(), started: since_boot(), ahead_us }
    }

    /// The time now, for time-outs and ages.
    #[must_use]
    pub fn now(&self) -> Time {
        self.started_at + since_boot().saturating_sub(self.started)
    }

    /// The time of day, for stamps and for what expires.
    #[must_use]
    pub fn wall(&self) -> Time {
        self.wall_at(self.now())
    }

    /// The time of day at a moment of [`Clock::now`].
    #[must_use]
    pub fn wall_at(&self, now: Time) -> Time {
        now.moved(self.ahead_us())
    }

    /// Microseconds from [`Clock::now`] to [`Clock::wall`].
    #[must_use]
    pub fn ahead_us(&self) -> i64 {
        self.ahead_us.load(Ordering::Relaxed)
    }

    /// Looks at the wall clock. Yields by how many microseconds it was set, when that is a step.
    #[must_use]
    pub fn follow(&self) -> Option<i64> {
        self.follow_to(self.now(), read_wall_clock())
    }

    fn follow_to(&self, now: Time, wall: Time) -> Option<i64> {
        let ahead_us = wall.0.wrapping_sub(now.0).cast_signed();
        let before = self.ahead_us.swap(ahead_us, Ordering::Relaxed);
        let step = ahead_us.saturating_sub(before);
        if step.unsigned_abs() < STEP_US_MIN {
            return None;
        }
        let way = if step > 0 { "forward" } else { "back" };
        let milliseconds = step.unsigned_abs() / 1_000;
        log(
            &CLOCK_STEPPED,
            &[&format!("{}.{:03}", milliseconds / 1_000, milliseconds % 1_000), way],
        );
        Some(step)
    }

    /// When the process started.
    #[must_use]
    pub fn started_at(&self) -> Time {
        self.started_at
    }

    /// How long it runs.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.now().since(self.started_at)
    }
}

fn read_wall_clock() -> Time {
    Time::ZERO + towline_os::time::since_epoch()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_followed_and_time_outs_do_not_see_it() {
        let clock = Clock::start();
        let now = clock.started_at() + Duration::from_secs(100);
        let hour = Duration::from_secs(3_600);
        assert_eq!(clock.follow_to(now, now + Duration::from_millis(20)), None, "a correction");
        assert_eq!(clock.wall_at(now), now + Duration::from_millis(20));
        assert_eq!(clock.follow_to(now, now + hour), Some(3_599_980_000));
        assert_eq!(clock.wall_at(now + hour), now + hour + hour);
        assert_eq!(clock.follow_to(now + hour, now + hour + hour), None, "told once");
        assert_eq!(clock.follow_to(now, now - hour), Some(-7_200_000_000));
        assert_eq!(clock.wall_at(now), now - hour);
        assert!(clock.now() < now, "the other clock did not move");
    }
}
