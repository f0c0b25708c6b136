//! How far a copy between two regions is, how fast it goes and when it will be there.
//!
//! Not here: how it is shown. Invariants: the rate is that of this connection alone, so that a
//! pause of the link does not make it too low; it is taken between two moments at which it was
//! known how much had come, so that what came since does not make it too low either.

use std::time::Duration;

use towline_types::Time;

/// Between two messages about how far it is.
const TELL_INTERVAL: Duration = Duration::from_secs(30);
/// Before that a rate says nothing.
const RATE_MIN: Duration = Duration::from_millis(500);
/// What comes is noted more often than this while anything comes: later, the rate goes down.
const STILL_MAX: Duration = Duration::from_secs(3);

/// A copy on its way, as status and messages want it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebaseView {
    /// Bytes that the taker has on its disk.
    pub done: u64,
    /// Bytes of the copy.
    pub all: u64,
    /// Bytes a second; 0: not known.
    pub bytes_per_second: u64,
    /// Seconds until all of it has come, at this rate; 0: not known.
    pub rest_s: u64,
}

impl RebaseView {
    /// The part that has come.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = u128::from(self.done) * 100 / u128::from(self.all.max(1));
        u64::try_from(percent).unwrap_or(100)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RebaseProgress {
    all: u64,
    done: u64,
    /// What this connection began with, and when.
    from: u64,
    began: Time,
    /// When more had come for the last time.
    moved: Time,
    told: Time,
}

impl RebaseProgress {
    /// Of a connection on which `from` of `all` bytes are there already.
    pub(crate) fn begin(from: u64, all: u64, now: Time) -> RebaseProgress {
        RebaseProgress { all, done: from, from, began: now, moved: now, told: now }
    }

    /// So much is on the taker's disk.
    pub(crate) fn has(&mut self, done: u64, now: Time) {
        if done > self.done {
            (self.done, self.moved) = (done, now);
        }
    }

    /// What was there when this connection began.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// Whether anything came on this connection.
    pub(crate) fn has_moved(&self) -> bool {
        self.done > self.from
    }

    pub(crate) fn view(&self, now: Time) -> RebaseView {
        let is_still = now.since(self.moved) >= STILL_MAX;
        let until = if is_still { now } else { self.moved };
        let took = until.since(self.began);
        let came = u128::from(self.done.saturating_sub(self.from));
        let rate = match took >= RATE_MIN {
            true => came * 1_000_000 / took.as_micros().max(1),
            false => 0,
        };
        let rest = u128::from(self.all.saturating_sub(self.done));
        let rest_s = if rate == 0 { 0 } else { rest.div_ceil(rate) };
        RebaseView {
            done: self.done,
            all: self.all,
            bytes_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            rest_s: u64::try_from(rest_s).unwrap_or(u64::MAX),
        }
    }

    /// Whether it is time to say how far it is.
    pub(crate) fn is_to_tell(&mut self, now: Time) -> bool {
        let is_due = now.since(self.told) >= TELL_INTERVAL;
        if is_due {
            self.told = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a copy comes at once, and its first extent later: a copy of 22 s showed 2,896 s.
    #[test]
    fn what_came_at_once_says_nothing_of_the_rate() {
        let ms = |count: u64| Time(count * 1_000);
        let mut progress = RebaseProgress::begin(0, 32_547_518, ms(0));
        progress.has(12_990, ms(10));
        assert_eq!(progress.view(ms(1_000)).rest_s, 0, "not known yet");
        progress.has(1_500_000, ms(1_010));
        assert_eq!(progress.view(ms(1_500)).rest_s, 21);
    }

    #[test]
    fn rate_and_rest_are_those_of_this_connection() {
        let second = |count: u64| Time(count * 1_000_000);
        let mut progress = RebaseProgress::begin(600, 1_000, second(10));
        assert_eq!(progress.view(second(10)).rest_s, 0, "not known yet");
        progress.has(700, second(12));
        let view = progress.view(second(12));
        let expected = RebaseView { done: 700, all: 1_000, bytes_per_second: 50, rest_s: 6 };
        assert_eq!((view, view.percent()), (expected, 70));
        progress.has(650, second(13));
        assert_eq!(progress.view(second(12)), expected, "it does not go back");
        assert_eq!(progress.view(second(14)), expected, "what came since then is not known yet");
        assert_eq!(progress.view(second(20)).bytes_per_second, 10, "nothing comes");
        assert!(!progress.is_to_tell(second(39)) && progress.is_to_tell(second(40)));
        assert!(!progress.is_to_tell(second(41)));
    }
}
