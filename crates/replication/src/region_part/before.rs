//! What an instance that becomes active knows of the other region before that has reported to it:
//! what the active instance before it said a moment ago, and when the log was how long.
//!
//! Without it the age of what is at risk would begin with this instance, and an alarm would be
//! taken back by a change of the active instance that mended nothing.
//!
//! Not here: how members of a group say it to each other (the daemon). Invariant: what was said too
//! long ago counts for nothing: the other region has gone on since.

use std::sync::Arc;
use std::time::Duration;

use towline_group::Mode;
use towline_region::RecoveryPoint;
use towline_types::{Lsn, Time};

use super::RegionPart;
use crate::region_shipping::{Shipping, TimesBehind};

/// So long an election may take from the last word of the active instance before it.
const SAID_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct SaidBefore {
    point: RecoveryPoint,
    /// What is behind that was committed then, or later.
    behind_at: Time,
    said_at: Time,
}

impl SaidBefore {
    /// Whether it counts at `now`.
    fn holds(&self, now: Time) -> bool {
        now.since(self.said_at) <= SAID_MAX
    }
}

impl RegionPart {
    /// The active instance of this group says that the other region has reported this, and how old
    /// what is behind that is, microseconds; 0: nothing is.
    pub fn hears_of_point(&self, point: RecoveryPoint, age_us: u64) {
        if self.driver.mode() != Mode::Voting {
            return;
        }
        let said_at = self.driver.now();
        let behind_at = Time(said_at.0.saturating_sub(age_us));
        *self.said_before.lock() = Some(SaidBefore { point, behind_at, said_at });
    }

    /// What was said, if it counts now.
    fn said_before(&self) -> Option<SaidBefore> {
        let now = self.driver.now();
        self.said_before.lock().filter(|said| said.holds(now))
    }

    /// What ships from here begins with what was said.
    pub(super) fn takes_over_point(&self, shipping: &Shipping) {
        if let Some(SaidBefore { point, behind_at, .. }) = self.said_before() {
            shipping.knows(point, Some(behind_at), self.driver.now());
        }
    }

    /// When what is behind a position was committed, by the clock of ages.
    pub(super) fn times_behind(&self) -> Box<TimesBehind> {
        let (host, driver) = (Arc::clone(&self.host), Arc::clone(&self.driver));
        let (end, said) = (self.driver.committed_end(), self.said_before());
        Box::new(move |position: Lsn| {
            let age_us = |at: Time| host.wall().0.saturating_sub(at.0);
            let by_log = host.time_behind(position);
            let by_log = by_log.map(|at| Time(driver.now().0.saturating_sub(age_us(at))));
            // Of what was committed before this instance became active its log knows no times.
            let said = said.filter(|_| position < end).map(|said| said.behind_at);
            [by_log, said].into_iter().flatten().min()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_long_before_an_election_counts_for_nothing() {
        let at = Time(20_000_000);
        let said = SaidBefore { point: RecoveryPoint::default(), behind_at: at, said_at: at };
        assert!(said.holds(Time(30_000_000)));
        assert!(!said.holds(Time(30_000_001)));
    }
}
