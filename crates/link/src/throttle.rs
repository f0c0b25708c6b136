//! The same thing is not reported again and again: first at once, then at most once a minute.
//!
//! Not here: what is reported, and the clock. Invariant: at most [`REPORTS_MAX`] things are
//! remembered.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two times that the same thing is reported.
const PAUSE: Duration = Duration::from_secs(60);
/// Things remembered: a host that reaches the port can make up as many as it likes.
const REPORTS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub struct Throttle {
    reports: Mutex<HashMap<String, Repeats>>,
}

#[derive(Debug)]
struct Repeats {
    at: Instant,
    since: u64,
}

impl Throttle {
    /// Whether to report it now; if so, how often it was suppressed since the last report.
    pub fn passes(&self, what: &str, now: Instant) -> Option<u64> {
        let mut reports = self.reports.lock();
        if let Some(last) = reports.get_mut(what)
            && now.saturating_duration_since(last.at) < PAUSE
        {
            last.since += 1;
            return None;
        }
        if reports.len() >= REPORTS_MAX {
            reports.retain(|_, last| now.saturating_duration_since(last.at) < PAUSE);
            if reports.len() >= REPORTS_MAX {
                // All of them of this minute: nothing more is reported before one of them expires.
                return None;
            }
        }
        let before = reports.insert(what.to_owned(), Repeats { at: now, since: 0 });
        Some(before.map_or(0, |before| before.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_reported_at_once_and_then_once_a_minute_with_the_times_between() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        assert_eq!(throttle.passes("x", now), Some(0));
        for second in 1..60 {
            assert_eq!(throttle.passes("x", now + Duration::from_secs(second)), None);
        }
        assert_eq!(throttle.passes("y", now), Some(0), "another thing has its own minute");
        assert_eq!(throttle.passes("x", now + PAUSE), Some(59));
        assert_eq!(throttle.passes("x", now + 2 * PAUSE), Some(0));
    }

    #[test]
    fn what_is_made_up_is_bounded_and_expires_after_a_minute() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let reports = |now| {
            let things = (0..1_000).map(|number| number.to_string());
            things.filter(|what| throttle.passes(what, now).is_some()).count()
        };
        assert_eq!(reports(now), REPORTS_MAX);
        assert_eq!(reports(now + PAUSE), REPORTS_MAX);
        assert_eq!(throttle.reports.lock().len(), REPORTS_MAX);
    }
}
