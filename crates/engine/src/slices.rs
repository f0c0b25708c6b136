//! Long work of the instance, in slices, on a thread of its own: what no step of a client may take
//! the time for (a search through a deep queue, a scan for expired messages).
//!
//! All others wait for the instance while a slice is done, so a slice takes about a millisecond,
//! and between slices those who wait have their turn first. How many units fit into that time is
//! measured here: the instance reads no clock. Not here: what the work is (`towline_core`).

use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::Receiver;
use towline_os::thread::JoinHandle;

use crate::door::{Door, Slice};

/// How long a slice should take.
const SLICE: Duration = Duration::from_millis(1);
/// Units of the first slice: of the dearest kind, they take no longer than that.
const UNITS_FIRST: u32 = 256;
/// Units of a slice at least and at most, however the measurements turn out: a thread that was
/// interrupted in the middle of a slice measured the time of others.
const UNITS_MIN: u32 = 64;
const UNITS_MAX: u32 = 8_192;

/// Starts the thread; it ends with the process.
pub(crate) fn start(work: Receiver<()>, door: Arc<Door>) -> std::io::Result<JoinHandle<()>> {
    towline_os::thread::Builder::new().name("slices".into()).spawn(move || {
        let mut next = SliceUnits(UNITS_FIRST);
        while work.recv().is_ok() {
            loop {
                let mut left = next.0;
                let Slice { took, more } = door.slice(&mut left);
                next.follow(next.0 - left, took);
                if !more {
                    break;
                }
                // Threads that were woken by what the slice did may need this processor.
                towline_os::thread::yield_now();
            }
        }
    })
}

/// How many units the next slice has.
struct SliceUnits(u32);

impl SliceUnits {
    /// So many units took so long.
    fn follow(&mut self, units: u32, took: Duration) {
        if units == 0 {
            return;
        }
        let fits = u128::from(units) * SLICE.as_nanos() / took.as_nanos().max(1);
        let fits = u32::try_from(fits).unwrap_or(u32::MAX);
        // A slice that ended early says nothing about a longer one. By a half at a time: a single
        // measurement may be of something else.
        let most = if units < self.0 { self.0 } else { self.0 + self.0 / 2 };
        let least = self.0 / 2;
        self.0 = fits.clamp(least, most).clamp(UNITS_MIN, UNITS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_as_many_units_as_fit_into_its_time() {
        let mut next = SliceUnits(UNITS_FIRST);
        for _ in 0..20 {
            next.follow(next.0, Duration::from_micros(2) * next.0);
        }
        assert!((450..=550).contains(&next.0), "{}", next.0);
    }

    #[test]
    fn one_measurement_changes_little_and_none_passes_the_bounds() {
        let mut next = SliceUnits(1_000);
        next.follow(1_000, Duration::from_secs(1));
        assert_eq!(next.0, 500);
        next.follow(500, Duration::ZERO);
        assert_eq!(next.0, 750);
        next.follow(10, Duration::ZERO);
        assert_eq!(next.0, 750, "nothing was left to do");
        (0..50).for_each(|_| next.follow(next.0, Duration::ZERO));
        assert_eq!(next.0, UNITS_MAX);
        (0..50).for_each(|_| next.follow(next.0, Duration::from_secs(1)));
        assert_eq!(next.0, UNITS_MIN);
    }
}
