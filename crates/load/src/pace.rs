//! When a client may begin its next operation.
//!
//! Unrated, at once. Rated, at fixed times (an open loop): a client that is late because the broker
//! kept it busy is timed from when it should have begun, so that a stall shows in the latencies. A
//! client that is late because our own timer was is timed from when it began.

use std::time::Duration;

use towline_types::Time;

/// The timetable of one client.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    interval: Option<Duration>,
    next: Time,
    left: Option<u64>,
}

impl Pace {
    /// A timetable with `interval` between operations (none: unrated), `quota` operations long.
    pub(crate) fn new(interval: Option<Duration>, quota: Option<u64>) -> Pace {
        Pace { interval, next: Time::ZERO, left: quota }
    }

    /// Sets the first time: clients of one run begin evenly spread over an interval, as `number` of
    /// `drivers`.
    pub(crate) fn start(&mut self, now: Time, number: u32, drivers: u32) {
        let share = self.interval.map(|interval| interval * number / drivers.max(1));
        self.next = now + share.unwrap_or_default();
    }

    /// Begins an operation if its time has come. Returns when it counts as begun. `was_busy`: it
    /// could not begin at its time because an earlier one was under way.
    pub(crate) fn take(&mut self, now: Time, was_busy: bool) -> Option<Time> {
        if self.is_exhausted() || (self.interval.is_some() && now < self.next) {
            return None;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        let Some(interval) = self.interval else { return Some(now) };
        let due = self.next;
        self.next = due + interval;
        Some(if was_busy { due } else { now })
    }

    /// An operation was cut off by the loss of its connection: one more may begin at once, as an
    /// application would do what failed again. Those that follow keep their times.
    pub(crate) fn again(&mut self) {
        if let Some(interval) = self.interval {
            self.next = Time::ZERO + self.next.since(Time::ZERO).saturating_sub(interval);
        }
    }

    /// Whether all operations of the quota were begun.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == Some(0)
    }

    /// When the next operation is due; `None` when unrated.
    pub(crate) fn due(&self) -> Option<Time> {
        self.interval.map(|_| self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_was_cut_off_is_begun_again_at_once_and_shifts_no_other() {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        let mut pace = Pace::new(Some(Duration::from_millis(1_000)), None);
        pace.start(at(100), 0, 1);
        assert!(pace.take(at(100), false).is_some());
        pace.again();
        assert_eq!(pace.take(at(180), false), Some(at(180)));
        assert_eq!(pace.take(at(1_090), false), None);
        assert_eq!(pace.take(at(1_100), false), Some(at(1_100)));
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn clients_are_spread_over_the_interval() {
        let mut pace = Pace::new(Some(10 * MS), None);
        pace.start(Time(0), 3, 10);
        assert_eq!(pace.take(Time(2_999), false), None);
        assert_eq!(pace.take(Time(3_000), false), Some(Time(3_000)));
        assert_eq!(pace.due(), Some(Time(13_000)));
    }

    #[test]
    fn a_stall_of_the_broker_counts_and_a_late_timer_does_not() {
        let mut pace = Pace::new(Some(MS), None);
        pace.start(Time(0), 0, 1);
        assert_eq!(pace.take(Time(100), false), Some(Time(100)));
        assert_eq!(pace.take(Time(5_000), true), Some(Time(1_000)));
        assert_eq!(pace.take(Time(5_000), true), Some(Time(2_000)));
    }

    #[test]
    fn a_quota_ends_the_operations() {
        let mut pace = Pace::new(None, Some(2));
        assert_eq!(pace.take(Time(1), false), Some(Time(1)));
        assert_eq!(pace.take(Time(1), true), Some(Time(1)));
        assert_eq!((pace.take(Time(1), true), pace.is_exhausted()), (None, true));
    }
}
