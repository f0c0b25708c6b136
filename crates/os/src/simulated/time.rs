//! The monotonic clock.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::LazyLock;
use std::time::Duration;

use super::schedule;

/// Where virtual time begins, as an instant of the operating system.
static BEGINNING: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// How long a simulated machine has been running when its world begins.
pub const UPTIME: Duration = Duration::from_secs(1_000);
/// What its wall clock shows then: the beginning of 2026.
pub const WALL: Duration = Duration::from_secs(1_767_225_600);

/// Time since the machine started; `None` outside of a world.
pub(crate) fn since_boot() -> Option<Duration> {
    let now_us = schedule::in_world().then(|| schedule::with(|schedule| schedule.now_us))?;
    Some(UPTIME + Duration::from_micros(now_us))
}

/// What the wall clock of the process shows; `None` outside of a world.
pub(crate) fn since_epoch() -> Option<Duration> {
    let clocks = |schedule: &mut schedule::Schedule| (schedule.now_us, schedule.wall_ahead_us());
    let (now_us, ahead_us) = schedule::in_world().then(|| schedule::with(clocks))?;
    let wall_us = u64::try_from(WALL.as_micros()).unwrap_or(u64::MAX).saturating_add(now_us);
    Some(Duration::from_micros(wall_us.saturating_add_signed(ahead_us)))
}

/// As [`std::time::Instant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(std::time::Instant);

impl Instant {
    /// The time now.
    #[must_use]
    pub fn now() -> Instant {
        if schedule::in_world() {
            let now_us = schedule::with(|schedule| schedule.now_us);
            return Instant(*BEGINNING + Duration::from_micros(now_us));
        }
        Instant(std::time::Instant::now())
    }

    /// Time since then.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// From an earlier instant to this one; none when that one is later.
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.0.duration_since(earlier.0)
    }

    /// The same, under the name that says it.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// From an earlier instant to this one, unless that one is later.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// Later by this, if there is such an instant.
    #[must_use]
    pub fn checked_add(&self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time).map(Instant)
    }

    /// Earlier by this, if there is such an instant.
    #[must_use]
    pub fn checked_sub(&self, time: Duration) -> Option<Instant> {
        self.0.checked_sub(time).map(Instant)
    }

    /// The instant of the operating system.
    pub(super) fn real(self) -> std::time::Instant {
        self.0
    }

    /// In virtual microseconds.
    pub(super) fn us(self) -> u64 {
        let since = self.0.saturating_duration_since(*BEGINNING);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, time: Duration) -> Instant {
        Instant(self.0 - time)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, time: Duration) {
        self.0 -= time;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}
