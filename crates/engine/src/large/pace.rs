//! How fast a large message goes on while others wait for the memory that it takes.
//!
//! Memory for large messages is bounded for all connections together, in either direction
//! (`arrivals`, `departures`), so a client that stops in the middle of one keeps it from the
//! others. It may, as long as there is enough. When others wait it must go on, with a megabyte a
//! second: one that does not is disconnected. It has some seconds in which it may stand still, and
//! what it is slower than that takes them up: with a byte now and then as soon as with none.
//!
//! Not here: which connections wait, and how much each holds.

use std::time::Duration;

use tokio::time::Instant;

/// What each byte is worth, in microseconds, while others wait: a message of 100 MB may take 100 s.
const BYTE_US: u64 = 1;
/// Between two checks of a waiting connection whether the holders of the memory make progress.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes since the last look.
    moved: u64,
    /// What it has taken up of its patience, and when that was seen last.
    behind: Option<(Duration, Instant)>,
    /// This side keeps it from making progress.
    is_excused: bool,
}

impl Pace {
    /// So many bytes went on.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// It cannot go on, through no fault of its client, until [`Pace::pressed`].
    pub(super) fn excused(&mut self) {
        *self = Pace { is_excused: true, ..Pace::default() };
    }

    /// It can go on.
    pub(super) fn pressed(&mut self) {
        self.is_excused = false;
    }

    /// Asked while others wait, each second: by how much it is behind, if that is `patience`.
    pub(super) fn stalled(&mut self, now: Instant, patience: Duration) -> Option<Duration> {
        if self.is_excused {
            return None;
        }
        let moved = std::mem::take(&mut self.moved);
        let worth = Duration::from_micros(moved.saturating_mul(BYTE_US));
        let behind = match self.behind {
            // None waited for a time: it begins anew.
            Some((behind, seen)) if now.saturating_duration_since(seen) <= 2 * LOOK_INTERVAL => {
                (behind + now.saturating_duration_since(seen)).saturating_sub(worth)
            }
            _ => Duration::ZERO,
        };
        self.behind = Some((behind, now));
        (behind >= patience).then_some(behind)
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
