//! The last whole interval of what this instance sends to the other region, for status and metrics.
//!
//! Not here: what is calculated (`towline_region::RegionIntervals`), and what looks at it as time
//! passes (the daemon).

use std::time::Duration;

use towline_os::sync::Mutex;
pub use towline_region::RegionInterval;
use towline_region::RegionIntervals;
use towline_types::Time;

use crate::region_part::RegionPart;

/// The nominal length of an interval, as IBM MQ publishes such figures. The real one is among them.
const INTERVAL_US: u64 = 10_000_000;
/// How often it should be looked at: a round trip that changes in between is not seen.
pub const INTERVAL_LOOK: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug, Default)]
pub struct SentIntervals(Mutex<KnownIntervals>);

#[derive(Debug, Default)]
struct KnownIntervals {
    under_way: Option<RegionIntervals>,
    last: Option<(RegionInterval, Time)>,
}

impl SentIntervals {
    /// Looks at what is shipped now, and ends the interval if it is over.
    pub fn look(&self, part: &RegionPart) {
        let Some(figures) = part.figures() else { return };
        let now = part.now();
        let mut known = self.0.lock();
        let Some(intervals) = &mut known.under_way else {
            // What was before is in no interval.
            part.sample_backlog();
            known.under_way = Some(RegionIntervals::begin(figures, now));
            return;
        };
        intervals.look(figures.round_trip_us, now);
        if intervals.lasts_us(now) < INTERVAL_US {
            return;
        }
        let Some(backlog) = part.sample_backlog() else { return };
        known.last = Some((intervals.end(figures, &backlog, now), now));
    }

    /// The last whole one, and when it ended; `None`: there was none since this instance ships.
    pub fn last(&self) -> Option<(RegionInterval, Time)> {
        self.0.lock().last
    }
}
