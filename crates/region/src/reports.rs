//! When the relay of a recovery group reports the recovery point.
//!
//! By default at once after an advance, but not more often than an eighth of a round trip allows:
//! then what live believes is never older than a round trip, and a report costs next to nothing.
//! With StatusInterval (IBM MQ: 10 s, at least 5 s) it reports only so often, and in between after
//! each StatusCommitThreshold bytes; that is the published behaviour, whose backlog is high by all
//! that arrived since the last report.
//!
//! Where replies wait for recovery (SyncReplication) each advance is reported at once: a pause
//! would be in each of them.
//!
//! Not here: what is in a report ([`RecoveryPoint`]). Time is an argument.

use std::time::Duration;

use towline_types::Time;

use crate::wire::RecoveryPoint;

/// With no round trip measured yet, and for one that is shorter.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The same for one that is very long.
const PAUSE_MAX: Duration = Duration::from_millis(25);
/// Figures for people (time of decompression) go at least so often while they change.
const UNCHANGED_MAX: Duration = Duration::from_secs(1);

/// StatusInterval and StatusCommitThreshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportPolicy {
    /// StatusInterval; zero: with each round trip.
    pub interval: Duration,
    /// StatusCommitThreshold: bytes of log after which a report does not wait for the interval; 0:
    /// it always does.
    pub threshold_bytes: u64,
    /// Replies of the live group wait for it: each advance is reported at once.
    pub is_awaited: bool,
}

impl Default for ReportPolicy {
    fn default() -> ReportPolicy {
        ReportPolicy { interval: Duration::ZERO, threshold_bytes: 1 << 20, is_awaited: false }
    }
}

/// Decides when to report.
#[derive(Clone, Debug)]
pub struct Reports {
    policy: ReportPolicy,
    round_trip: Duration,
    reported: Option<(RecoveryPoint, Time)>,
}

impl Reports {
    /// For a link that begins now: the first report is due at once.
    #[must_use]
    pub fn new(policy: ReportPolicy) -> Reports {
        Reports { policy, round_trip: Duration::ZERO, reported: None }
    }

    /// The link's round trip was measured.
    pub fn measured(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// When `point` should be reported, if it stays as it is: `now` or a time in the past means at
    /// once; [`Time::NEVER`]: there is nothing new in it.
    #[must_use]
    pub fn due(&self, point: &RecoveryPoint) -> Time {
        let Some((before, at)) = &self.reported else { return Time::ZERO };
        let advanced = point.place.end.0.saturating_sub(before.place.end.0);
        if self.policy.is_awaited && advanced > 0 {
            return Time::ZERO;
        }
        let threshold = self.policy.threshold_bytes;
        if threshold > 0 && advanced >= threshold {
            return Time::ZERO;
        }
        if self.policy.interval > Duration::ZERO {
            return *at + self.policy.interval;
        }
        let moved = (point.place, point.received, point.counts)
            != (before.place, before.received, before.counts);
        if moved {
            return *at + (self.round_trip / 8).clamp(PAUSE_MIN, PAUSE_MAX);
        }
        if point == before { Time::NEVER } else { *at + UNCHANGED_MAX }
    }

    /// `point` goes out now.
    pub fn reported(&mut self, point: RecoveryPoint, now: Time) {
        self.reported = Some((point, now));
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;
    use crate::wire::Counts;

    const MS: u64 = 1_000;

    fn at(end: u64) -> RecoveryPoint {
        let mut point = RecoveryPoint { received: Lsn(end), ..RecoveryPoint::default() };
        point.place.end = Lsn(end);
        point
    }

    #[test]
    fn by_default_a_report_follows_each_advance_within_an_eighth_of_a_round_trip() {
        let mut reports = Reports::new(ReportPolicy::default());
        assert_eq!(reports.due(&at(0)), Time::ZERO, "the first one at once");
        reports.reported(at(100), Time(10 * MS));
        assert_eq!(reports.due(&at(100)), Time::NEVER);
        assert_eq!(reports.due(&at(101)), Time(11 * MS), "nothing is measured yet");
        reports.measured(Duration::from_millis(40));
        assert_eq!(reports.due(&at(101)), Time(15 * MS));
        reports.measured(Duration::from_secs(1));
        assert_eq!(reports.due(&at(101)), Time(35 * MS));
        assert_eq!(reports.due(&at(100 + (1 << 20))), Time::ZERO, "1 MiB does not wait");
        let applied = RecoveryPoint { counts: Counts { put: 1, removed: 0 }, ..at(100) };
        assert_eq!(reports.due(&applied), Time(35 * MS));
        let figures = RecoveryPoint { decompression_us: 5, ..at(100) };
        assert_eq!(reports.due(&figures), Time(1_010 * MS));
    }

    #[test]
    fn with_status_interval_a_report_waits_for_it_or_for_the_threshold() {
        let interval = Duration::from_secs(10);
        let mut reports =
            Reports::new(ReportPolicy { interval, threshold_bytes: 0, is_awaited: false });
        reports.reported(at(0), Time(0));
        assert_eq!(reports.due(&at(1 << 40)), Time(10_000 * MS), "the published default");
        assert_eq!(reports.due(&at(0)), Time(10_000 * MS), "whether anything moved or not");
        let mut reports = Reports::new(ReportPolicy { interval, ..ReportPolicy::default() });
        reports.reported(at(0), Time(0));
        assert_eq!(reports.due(&at((1 << 20) - 1)), Time(10_000 * MS));
        assert_eq!(reports.due(&at(1 << 20)), Time::ZERO, "the published tuning");
    }

    #[test]
    fn where_replies_wait_for_it_each_advance_is_reported_at_once() {
        let interval = Duration::from_secs(10);
        for interval in [Duration::ZERO, interval] {
            let policy = ReportPolicy { interval, is_awaited: true, ..ReportPolicy::default() };
            let mut reports = Reports::new(policy);
            reports.measured(Duration::from_millis(40));
            reports.reported(at(100), Time(10 * MS));
            assert_eq!(reports.due(&at(101)), Time::ZERO);
            let received = RecoveryPoint { received: Lsn(200), ..at(100) };
            assert!(reports.due(&received) > Time(10 * MS), "none waits for that");
        }
    }
}
