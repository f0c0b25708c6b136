//! What the instance of this group to which the live one ships reports to the others of what it
//! heard: the last of it is kept here. That instance may be lost together with the live group, and
//! what the live group had is to be known at a fail-over all the same.
//!
//! Not here: the report (the daemon), what this instance heard itself (`role`). Invariant: nothing
//! is said to be younger than it was when it was reported, and the time since.

use std::time::Duration;

use towline_link::Peer;
use towline_os::sync::Mutex;
use towline_types::Time;

use super::Driver;
use super::heard_live::{HeardLive, LiveSync, ToldLive};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ToldLiveNote(Mutex<Option<(Peer, HeardLive, Time)>>);

impl ToldLiveNote {
    /// It was of another history.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }
}

impl HeardLive {
    /// The same, so many milliseconds later: at least, and at most.
    #[must_use]
    fn later(self, ms: u64, most_ms: u64) -> HeardLive {
        let at_most = |age: Option<u64>| age.map(|age_ms| age_ms.saturating_add(most_ms));
        HeardLive {
            age_ms: self.age_ms.saturating_add(ms),
            age_most_ms: at_most(self.age_most_ms),
            sync_age_most_ms: at_most(self.sync_age_most_ms),
            still_ms: if self.is_still { self.still_ms.saturating_add(ms) } else { self.still_ms },
            sync_age_ms: self.sync_age_ms.map(|age_ms| age_ms.saturating_add(ms)),
            ..self
        }
    }

    /// Whether it says anything.
    fn is_heard(&self) -> bool {
        self.committed > 0 || self.sync != LiveSync::Not
    }
}

impl Driver {
    /// A peer, to which the live group ships, reported what it heard of that.
    pub fn told_of_live(&self, by: Peer, live: HeardLive) {
        if live.is_heard() {
            *self.told_live.0.lock() = Some((by, live, self.now()));
        }
    }

    /// What was reported last to this process; `None`: nothing was.
    pub fn told_live(&self) -> Option<ToldLive> {
        let (by, live, at) = (*self.told_live.0.lock())?;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let since = self.now().since(at);
        // It may have been on its way for as long as a connection stands over which nothing comes.
        let most = since.saturating_add(self.heartbeat_timeout());
        let live = live.later(ms(since), ms(most).saturating_add(1));
        Some(ToldLive { by: self.name(by).to_owned(), live })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reported_grows_older_here_too() {
        let live = HeardLive { committed: 7, age_ms: 40, ..HeardLive::default() };
        let later = live.later(1_000, 1_500);
        assert_eq!((later.committed, later.age_ms, later.still_ms), (7, 1_040, 0));
        assert_eq!((later.sync_age_ms, later.age_most_ms), (None, None), "it was never said");
        let bounded = HeardLive { age_most_ms: Some(60), ..live }.later(1_000, 1_500);
        assert_eq!((bounded.age_ms, bounded.age_most_ms), (1_040, Some(1_560)));
        let (sync, sync_age_ms) = (LiveSync::Strict, Some(500));
        let still = HeardLive { is_still: true, still_ms: 3, sync, sync_age_ms, ..live };
        let later = still.later(1_000, 1_500);
        assert_eq!((later.still_ms, later.sync_age_ms), (1_003, Some(1_500)));
        assert_eq!(still.later(u64::MAX, u64::MAX).age_ms, u64::MAX);
    }
}
