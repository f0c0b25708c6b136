//! How fast a large message goes on while others wait for the memory that it takes.
//!
//! Memory for large messages is bounded for all connections together, in either direction
//! (`arrivals`, `departures`), so a client that stops in the middle of one keeps it from the
//! others. It may, as long as there is enough. When others wait, it must go on; one that does not
//! is disconnected.
//!
//! Not here: which connections wait, and how much each holds.

use std::time::Duration;

use tokio::time::Instant;

/// How long one may stand still while others wait for its memory.
pub(super) const STALLED_MAX: Duration = Duration::from_secs(15);
/// Bytes after which it counts as having gone on: a byte now and then is standing still.
const STEP_BYTES: u64 = 256 * 1024;
/// Between two checks of a waiting connection whether the holders of the memory make progress.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes since `since`.
    moved: u64,
    /// When it was first seen standing still.
    since: Option<Instant>,
    /// This side keeps it from making progress.
    is_excused: bool,
}

impl Pace {
    /// So many bytes went on.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
        if self.moved >= STEP_BYTES {
            *self = Pace::default();
        }
    }

    /// It cannot go on, through no fault of its client, until [`Pace::pressed`].
    pub(super) fn excused(&mut self) {
        *self = Pace { is_excused: true, ..Pace::default() };
    }

    /// It can go on.
    pub(super) fn pressed(&mut self) {
        self.is_excused = false;
    }

    /// Asked while others wait: for how long it has stood still, if that is too long.
    pub(super) fn stalled(&mut self, now: Instant) -> Option<Duration> {
        if self.is_excused {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let still = now.saturating_duration_since(since);
        (still >= STALLED_MAX).then_some(still)
    }
}

#[cfg(test)]
pub(super) mod testing {
    /// With a clock that jumps to the next timer.
    pub(in crate::large) fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }
}
