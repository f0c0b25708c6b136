//! Time as an argument.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since the Unix epoch, as the driver of a crate sees it. What is given for time-outs
/// (to connections, to a member of a group) never goes back; what is given for stamps is the time
/// of day, and follows whatever the clock is set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);
    /// Later than every other time: "never".
    pub const NEVER: Time = Time(u64::MAX);

    /// Whole milliseconds since the epoch (the unit of AMQP timestamps).
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// So many microseconds later, or earlier; never stays never.
    #[must_use]
    pub const fn moved(self, by_us: i64) -> Time {
        if self.0 == u64::MAX { self } else { Time(self.0.saturating_add_signed(by_us)) }
    }

    /// The time since `earlier`, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}
