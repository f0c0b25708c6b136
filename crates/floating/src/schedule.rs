//! What is due when: renewals of the lease, announcements.
//!
//! Time is an argument. Invariant: a lease that is renewed when it is due does not run out, also
//! when two renewals fail.

use std::time::{Duration, Instant};

/// Between the first announcements.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// Renewals in the time of a lease.
const RENEWALS: u32 = 4;
/// After the process was stopped for longer than a lease: so long it may take to hear that another
/// instance is active.
const WAKE_UP: Duration = Duration::from_millis(200);
/// One that held the address before may have it for so many leases, and may say so to neighbours
/// that ask: so long each renewal is announced too.
const DOUBTFUL_LEASES: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Schedule {
    lease: Duration,
    count: u32,
    /// First announcements that are still to come.
    left: u32,
    renew_at: Instant,
    announce_at: Instant,
    /// From then on renewals are not announced.
    sure_at: Instant,
    looked_at: Instant,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) renew: bool,
    pub(super) announce: bool,
}

impl Schedule {
    /// The address is to be held from `now` on.
    pub(super) fn new(now: Instant, count: u32, lease: Duration) -> Schedule {
        assert!(count > 0 && !lease.is_zero(), "the configuration is checked");
        let sure_at = now + lease * DOUBTFUL_LEASES;
        let (renew_at, announce_at) = (now, now);
        Schedule { lease, count, left: count, renew_at, announce_at, sure_at, looked_at: now }
    }

    /// What is due; it counts as done.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        let slept = now.saturating_duration_since(self.looked_at) > self.lease;
        self.looked_at = now;
        if slept {
            self.announce_anew(now + WAKE_UP);
            self.renew_at = now + WAKE_UP;
            return Due::default();
        }
        let renew = now >= self.renew_at;
        if renew {
            self.renew_at = now + self.lease / RENEWALS;
        }
        let announce =
            if self.left > 0 { now >= self.announce_at } else { renew && now < self.sure_at };
        if announce && self.left > 0 {
            self.left -= 1;
            self.announce_at = now + ANNOUNCE_INTERVAL;
        }
        Due { renew, announce }
    }

    /// All is announced from the beginning again.
    pub(super) fn announce_anew(&mut self, now: Instant) {
        self.left = self.count;
        self.announce_at = now;
        self.sure_at = now + self.lease * DOUBTFUL_LEASES;
    }

    /// Until something is due.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let next = if self.left > 0 { self.renew_at.min(self.announce_at) } else { self.renew_at };
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(4);

    /// Milliseconds at which something is due, in `span`, for a thread that always wakes in time.
    fn run(schedule: &mut Schedule, began: Instant, span: Duration) -> (Vec<u128>, Vec<u128>) {
        let (mut renewed, mut announced) = (Vec::new(), Vec::new());
        let mut now = began;
        while now - began <= span {
            let due = schedule.due(now);
            let at = (now - began).as_millis();
            if due.renew {
                renewed.push(at);
            }
            if due.announce {
                announced.push(at);
            }
            now += schedule.wait(now);
        }
        (renewed, announced)
    }

    #[test]
    fn announcements_come_quickly_then_with_renewals_until_no_other_host_can_hold_it() {
        let began = Instant::now();
        let mut schedule = Schedule::new(began, 3, LEASE);
        let (renewed, announced) = run(&mut schedule, began, Duration::from_secs(12));
        assert_eq!(renewed, (0..=12).map(|second| second * 1_000).collect::<Vec<_>>());
        let expected = [0, 100, 200, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000];
        assert_eq!(announced, expected);
    }

    #[test]
    fn an_address_that_was_gone_is_announced_anew() {
        let began = Instant::now();
        let mut schedule = Schedule::new(began, 2, LEASE);
        run(&mut schedule, began, Duration::from_secs(20));
        let later = began + Duration::from_secs(21);
        schedule.announce_anew(later);
        let (_, announced) = run(&mut schedule, later, Duration::from_millis(500));
        assert_eq!(announced, [0, 100]);
    }

    #[test]
    fn a_process_that_was_stopped_waits_before_it_holds_the_address_again() {
        let began = Instant::now();
        let mut schedule = Schedule::new(began, 1, LEASE);
        assert_eq!(schedule.due(began), Due { renew: true, announce: true });
        let woken = began + LEASE * 3;
        assert_eq!(schedule.due(woken), Due::default());
        assert_eq!(schedule.wait(woken), WAKE_UP);
        assert_eq!(schedule.due(woken + WAKE_UP), Due { renew: true, announce: true });
    }
}
