//! What the live side of two regions looks at as time passes: how far the log is committed, whether
//! more is at risk than the objective allows, whether the first history is due, and how much log is
//! kept for the other region.
//!
//! Not here: shipping (`region_shipping`). Invariant: this instance's own log goes first: none is
//! kept for the other region beyond the bound, nor when it is tight.

use std::sync::atomic::{AtomicBool, Ordering};

use towline_admin::catalogue::{
    REGION_LOG_LET_GO, REGION_RPO_MET, REGION_RPO_MISSED, REGION_RPO_UNKNOWN,
};
use towline_config::{LogConfig, RecoveryConfig};
use towline_log::{Hold, Space};
use towline_logging::log as say;
use towline_region::{Counts, Exposure};
use towline_types::{Lsn, Time, limits};

use crate::driver::Driver;
use crate::region_shipping::{LOOK_INTERVAL, Shipping, ShippingView};

/// With an objective in bytes alone: for so many seconds it may be unknown what the other region
/// has. A link between regions that works stands and reports within one or two.
pub const UNKNOWN_S_MAX: u64 = 10;

/// What is looked at.
pub(crate) struct WatchedRegion<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) shipping: &'a Shipping,
    pub(crate) recovery: &'a RecoveryConfig,
    pub(crate) log: &'a LogConfig,
    /// Persistent messages ever put and removed, as applied.
    pub(crate) counts: &'a dyn Fn() -> Counts,
    /// The part of the log that is in use, in percent of what puts may fill.
    pub(crate) percent_full: &'a dyn Fn() -> u64,
    /// End of a copy that is given to the other region, behind which the log is held for it.
    pub(crate) copied: Option<Lsn>,
    /// Set while more is at risk than the objective allows.
    pub(crate) misses_rpo: &'a AtomicBool,
}

/// See the module.
pub(crate) struct RegionWatch {
    looked_at: Time,
    counts: Counts,
    hold: Option<Hold>,
    /// It was let go for want of space: the next one begins when the other region is connected.
    has_let_go: bool,
}

impl RegionWatch {
    /// Of an instance that becomes active: what is there now is kept.
    pub(crate) fn new(driver: &Driver) -> RegionWatch {
        let hold = driver.log().try_hold(Lsn::ZERO);
        RegionWatch { looked_at: Time::ZERO, counts: Counts::default(), hold, has_let_go: false }
    }

    /// Called at each turn of the thread that ships. Some of it is done only every
    /// [`LOOK_INTERVAL`]: then this yields what was seen.
    pub(crate) fn look(&mut self, region: &WatchedRegion<'_>) -> Option<ShippingView> {
        let now = region.driver.now();
        let is_due = now.since(self.looked_at) >= LOOK_INTERVAL;
        if is_due {
            self.counts = (region.counts)();
        }
        region.shipping.committed(self.counts, now);
        if !is_due {
            return None;
        }
        self.looked_at = now;
        let view = region.shipping.view(now);
        watch_objective(region, &view);
        self.keep_log(region, &view);
        region.shipping.note_log_let_go(self.has_let_go);
        Some(view)
    }

    /// Keeps what the other region lacks, up to the bound.
    fn keep_log(&mut self, region: &WatchedRegion<'_>, view: &ShippingView) {
        let log = region.driver.log();
        let needed = if view.is_known { view.point.place.end } else { Lsn::ZERO };
        // What is in a copy it does not lack.
        let needed = region.copied.map_or(needed, |copied| copied.max(needed));
        self.has_let_go &= !view.connected;
        if self.hold.is_none() && !self.has_let_go {
            self.hold = log.try_hold(needed);
        }
        let Some(hold) = &self.hold else { return };
        if view.is_known || region.copied.is_some() {
            hold.only_from(needed);
        }
        let bytes = hold.from().map_or(0, |from| log.bytes_held_back(from));
        let most = region.recovery.log_bytes_behind(region.log);
        let percent = (region.percent_full)();
        let is_tight = percent >= limits::LOG_HOLD_PERCENT || log.space() != Space::Ample;
        if bytes == 0 || (bytes <= most && !is_tight) {
            return;
        }
        if let Some(hold) = self.hold.take() {
            hold.let_go();
        }
        self.has_let_go = true;
        let why = match is_tight {
            true => format!("the log is {percent} % full, and goes on"),
            false => format!("it is more than the {most} bytes that are kept for it"),
        };
        say(&REGION_LOG_LET_GO, &[&region.recovery.name, &bytes.to_string(), &why]);
    }
}

fn watch_objective(region: &WatchedRegion<'_>, view: &ShippingView) {
    let recovery = region.recovery;
    let misses = misses_objective(view, recovery);
    if region.misses_rpo.swap(misses, Ordering::Relaxed) == misses {
        return;
    }
    if let Some(unknown) = view.unknown {
        let [seconds, bytes] = [unknown.age_us / 1_000_000, unknown.bytes].map(|it| it.to_string());
        return say(&REGION_RPO_UNKNOWN, &[&recovery.name, &seconds, &bytes]);
    }
    let bytes = view.exposure.bytes.to_string();
    let seconds = (view.exposure.age_us / 1_000_000).to_string();
    let message = if misses { &REGION_RPO_MISSED } else { &REGION_RPO_MET };
    say(message, &[&recovery.name, &bytes, &seconds]);
}

/// Whether more is at risk than the objectives allow. What is not known for as long as they allow
/// counts as more: nothing shows that they are met.
fn misses_objective(view: &ShippingView, recovery: &RecoveryConfig) -> bool {
    let (rpo_bytes, rpo_s) = (recovery.rpo_bytes, recovery.rpo_s);
    match view.unknown {
        None => misses(view.exposure, rpo_bytes, rpo_s),
        Some(_) if rpo_bytes == 0 && rpo_s == 0 => false,
        // What was committed since this instance became active the other region does not have.
        Some(unknown) => {
            let rpo_s = if rpo_s > 0 { rpo_s } else { UNKNOWN_S_MAX };
            misses(unknown, rpo_bytes, rpo_s)
        }
    }
}

/// Whether more is at risk than the objectives allow; 0: there is none.
fn misses(exposure: Exposure, rpo_bytes: u64, rpo_s: u64) -> bool {
    (rpo_bytes > 0 && exposure.bytes > rpo_bytes)
        || (rpo_s > 0 && exposure.age_us > rpo_s.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_missed_by_more_bytes_or_an_older_commit_and_without_one_never() {
        let exposure = Exposure { bytes: 1_001, age_us: 2_000_001, ..Exposure::default() };
        assert!(misses(exposure, 1_000, 0));
        assert!(!misses(exposure, 1_001, 0));
        assert!(misses(exposure, 0, 2));
        assert!(!misses(exposure, 0, 3));
        assert!(!misses(exposure, 0, 0));
    }
    #[test]
    fn what_is_not_known_for_longer_than_an_objective_allows_is_a_miss() {
        let recovery =
            |rpo_bytes, rpo_s| RecoveryConfig { rpo_bytes, rpo_s, ..RecoveryConfig::default() };
        let misses = |unknown, recovery: &RecoveryConfig| {
            // All of the log counts in the exposure of one of which nothing is known.
            let exposure = Exposure { bytes: 1 << 40, age_us: 1 << 40, ..Exposure::default() };
            let view = ShippingView { exposure, unknown, ..ShippingView::default() };
            misses_objective(&view, recovery)
        };
        let unknown = |bytes, seconds: u64| {
            Some(Exposure { bytes, age_us: seconds * 1_000_000 + 1, ..Exposure::default() })
        };
        assert!(!misses(unknown(5, 1), &recovery(0, 2)), "it may yet report");
        assert!(misses(unknown(0, 2), &recovery(0, 2)));
        assert!(misses(unknown(11, 0), &recovery(10, 0)), "that much is at risk for certain");
        assert!(!misses(unknown(10, 9), &recovery(10, 0)));
        assert!(misses(unknown(0, 10), &recovery(10, 0)));
        assert!(!misses(unknown(1 << 40, 1 << 20), &recovery(0, 0)), "no objective");
        assert!(misses(None, &recovery(1, 0)), "known again");
    }
}
