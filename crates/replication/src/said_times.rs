//! When the other end of a link said what came: a frame may have waited for seconds, in a queue
//! there or in front of the receiver here, and is as old as it is.
//!
//! Each frame has a stamp, by the clock of ages of its sender. The stamp, and when the frame came,
//! bound how far both clocks are apart from one side: no frame comes before it was said. From the
//! other side the sender bounds it, which names the newest stamp that it heard, and when that came
//! to it. Each bound is kept as long as no later frame makes it closer, so one frame that did not
//! wait dates all those that do.
//!
//! Not here: what is said (`region_condition`). Invariants: nothing is called younger than it is
//! (`earliest`), but for what two clocks drift apart beyond [`DRIFT_PARTS`]; no arithmetic on
//! numbers of the other end overflows.

use towline_types::Time;

/// Clocks may drift apart by one part in so many: bounds become wider by that with time. NTP holds
/// them within 500 in a million of true time, most are within 50.
const DRIFT_PARTS: u64 = 5_000;

/// When something was said, by the clock of ages here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaidTime {
    /// Not later than that.
    pub latest: Time,
    /// Not before that; `None`: it is not known how long it has been on its way.
    pub earliest: Option<Time>,
}

impl SaidTime {
    /// The earliest time that is known for it.
    #[must_use]
    pub fn oldest(&self) -> Time {
        self.earliest.unwrap_or(self.latest)
    }
}

/// The stamp of a frame of the other end that was heard, for that end to find again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardStamp {
    /// By the clock of the end that sent the frame, microseconds.
    pub said_us: u64,
    /// When it came, by the clock of the end that heard it, microseconds.
    pub came_us: u64,
}

/// By how much the clock here is ahead of the one there, at most or at least, as a frame showed at
/// `at`.
#[derive(Clone, Copy, Debug)]
struct ClockBound {
    us: i64,
    at: Time,
}

impl ClockBound {
    /// How much wider it is by now.
    fn drift_us(self, now: Time) -> i64 {
        i64::try_from(now.0.saturating_sub(self.at.0) / DRIFT_PARTS).unwrap_or(i64::MAX)
    }
}

/// What is known of the clock at the other end of one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaidTimes {
    most: Option<ClockBound>,
    least: Option<ClockBound>,
    heard: Option<HeardStamp>,
}

impl SaidTimes {
    /// A frame with this stamp came at `now`; its sender had heard `echo` of this end.
    pub fn came(&mut self, said_us: u64, echo: Option<HeardStamp>, now: Time) -> SaidTime {
        let unknown = SaidTime { latest: now, earliest: None };
        let Some(most_us) = difference(now.0, said_us) else { return unknown };
        // One that says it heard of what was not said yet heard of another process.
        let echo = echo.filter(|echo| echo.said_us <= now.0 && echo.came_us <= said_us);
        let least_us = echo.and_then(|echo| difference(echo.said_us, echo.came_us));
        self.heard = Some(HeardStamp { said_us, came_us: now.0 });
        let mut most = closer(
            self.most,
            most_us,
            |kept| most_us <= kept.us.saturating_add(kept.drift_us(now)),
            now,
        );
        let mut least = self.least;
        if let Some(us) = least_us {
            least = Some(closer(
                least,
                us,
                |kept| us >= kept.us.saturating_sub(kept.drift_us(now)),
                now,
            ));
        }
        let wide = |most: ClockBound, least: Option<ClockBound>| {
            let least = least.map(|it| it.us.saturating_sub(it.drift_us(now)));
            (most.us.saturating_add(most.drift_us(now)).min(most_us), least)
        };
        if wide(most, least).1.is_some_and(|least| least > wide(most, None).0) {
            // A clock ran slow, or stood still with its machine: what was known is over.
            most = ClockBound { us: most_us, at: now };
            let fresh = least_us.filter(|us| *us <= most_us);
            least = fresh.map(|us| ClockBound { us, at: now });
        }
        (self.most, self.least) = (Some(most), least);
        let (most_us, least_us) = wide(most, least);
        let at = |us: i64| Time(said_us.saturating_add_signed(us));
        SaidTime { latest: at(most_us).min(now), earliest: least_us.map(at) }
    }

    /// The newest stamp that came.
    #[must_use]
    pub fn heard(&self) -> Option<HeardStamp> {
        self.heard
    }
}

/// The bound that is kept, unless the new one `is_closer`.
fn closer(
    kept: Option<ClockBound>,
    us: i64,
    is_closer: impl Fn(ClockBound) -> bool,
    now: Time,
) -> ClockBound {
    kept.filter(|kept| !is_closer(*kept)).unwrap_or(ClockBound { us, at: now })
}

/// `None`: no clock says such times.
fn difference(here: u64, there: u64) -> Option<i64> {
    i64::try_from(here).ok()?.checked_sub(i64::try_from(there).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;
    /// The clock there is so much ahead of the one here.
    const AHEAD: u64 = 700 * S;

    /// A frame that is said at `said` and comes at `came`, by the clock here; the other end had
    /// heard at `heard.1` what was said here at `heard.0`.
    fn came(times: &mut SaidTimes, said: u64, came: u64, heard: Option<(u64, u64)>) -> SaidTime {
        let echo = heard.map(|(said, came)| HeardStamp { said_us: said, came_us: came + AHEAD });
        times.came(said + AHEAD, echo, Time(came))
    }

    #[test]
    fn a_frame_that_waited_is_as_old_as_it_is_and_never_younger() {
        let mut times = SaidTimes::default();
        let first = came(&mut times, 10 * S, 10 * S + 40_000, None);
        assert_eq!(first, SaidTime { latest: Time(10 * S + 40_000), earliest: None });
        assert_eq!(times.heard().unwrap().came_us, 10 * S + 40_000);
        // What was said here at 10.1 came there at 10.13: its clock is 700 s ahead, to 70 ms.
        let echo = Some((10 * S + 100_000, 10 * S + 130_000));
        let second = came(&mut times, 11 * S, 11 * S + 60_000, echo);
        assert!(second.earliest.unwrap() <= Time(11 * S) && second.latest >= Time(11 * S));
        assert!(second.earliest.unwrap() >= Time(11 * S - 31_000), "{second:?}");
        // The next ones wait for 18 s, and what they heard is as old.
        for said in 12..40 {
            let waited = came(&mut times, said * S, (said + 18) * S, echo);
            let (least, most) = (waited.earliest.unwrap(), waited.latest);
            assert!(least <= Time(said * S) && Time(said * S) <= most, "{said}: {waited:?}");
            assert!(least >= Time(said * S - 40_000) && most <= Time(said * S + 50_000));
        }
    }

    #[test]
    fn when_all_have_waited_there_is_no_bound_but_that_of_what_was_heard() {
        let mut times = SaidTimes::default();
        let waited = came(&mut times, 10 * S, 15 * S, None);
        assert_eq!(waited, SaidTime { latest: Time(15 * S), earliest: None });
        let waited = came(&mut times, 11 * S, 16 * S, Some((9 * S, 9 * S + 100_000)));
        assert_eq!(waited.latest, Time(16 * S));
        assert_eq!(waited.earliest, Some(Time(10_900_000)), "it is 5.1 s old at most");
    }

    #[test]
    fn a_clock_that_stood_still_or_runs_slow_makes_nothing_younger() {
        let mut times = SaidTimes::default();
        came(&mut times, 10 * S, 10 * S + 1_000, Some((9 * S, 9 * S + 1_000)));
        // The machine there slept for 100 s, and its clock did not count them.
        let echo = HeardStamp { said_us: 112 * S, came_us: 12 * S + AHEAD };
        let said = times.came(13 * S + AHEAD, Some(echo), Time(113 * S + 1_000));
        assert_eq!(said.earliest, Some(Time(113 * S)));
        assert_eq!(said.latest, Time(113 * S + 1_000));
    }

    #[test]
    fn numbers_that_no_clock_says_are_nothing() {
        let mut times = SaidTimes::default();
        let far = HeardStamp { said_us: 0, came_us: u64::MAX };
        for said in [0, 1, u64::MAX / 2, u64::MAX] {
            for echo in [None, Some(far), Some(HeardStamp { said_us: u64::MAX, came_us: 0 })] {
                let at = times.came(said, echo, Time(5 * S));
                assert_eq!((at.latest <= Time(5 * S), at.earliest), (true, None), "{said}");
            }
        }
    }
}
