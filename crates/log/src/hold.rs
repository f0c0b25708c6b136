//! Retention holds: while a backup or a copy reads the log, or needs it to catch up afterwards,
//! extents from a position on are not released.
//!
//! Not here: releasing extents (`reclaim`); how long a hold may last (its holder decides).
//!
//! Invariants: a hold only moves forward; what was read while a hold held is what was written
//! there, because it ends before any extent goes for which it stood.

use std::collections::BTreeMap;
use std::sync::Arc;
use towline_os::sync::Mutex;

use towline_types::Lsn;

/// All holds of a log.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    all: Mutex<Numbered>,
}

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    from: BTreeMap<u64, Lsn>,
}

impl Holds {
    /// The earliest position that a holder keeps.
    pub(crate) fn from(&self) -> Option<Lsn> {
        self.all.lock().from.values().min().copied()
    }
}

/// While it lives, no extent is let go that reaches behind its position. Dropping it lets go.
#[derive(Debug)]
pub struct Hold {
    holds: Arc<Holds>,
    number: u64,
}

/// Takes a hold. The caller has the housekeeping lock: an extent that is just being released is
/// gone then, so what is there is held.
pub(crate) fn enter(holds: &Arc<Holds>, from: Lsn) -> Hold {
    let mut all = holds.all.lock();
    let number = all.next;
    all.next += 1;
    all.from.insert(number, from);
    Hold { holds: Arc::clone(holds), number }
}

impl Hold {
    /// The log before `from` is not needed any more. Never goes back.
    pub fn only_from(&self, from: Lsn) {
        if let Some(held) = self.holds.all.lock().from.get_mut(&self.number) {
            *held = from.max(*held);
        }
    }

    /// The position from which on it holds; `None` when it was let go.
    #[must_use]
    pub fn from(&self) -> Option<Lsn> {
        self.holds.all.lock().from.get(&self.number).copied()
    }

    /// Releases the log now, even while the holder exists: what the holder reads from now on is not
    /// to be trusted.
    pub fn let_go(&self) {
        self.holds.all.lock().from.remove(&self.number);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, MemoryDisk};
    use crate::listener::Urgency;
    use crate::log::Log;
    use crate::options::Options;
    use crate::testing::{Watch, append, body, image, start};
    use towline_types::SeededRandom;

    /// A log over several extents, with an image at its end: nothing but its tail is needed.
    fn long_log() -> (Log, Lsn) {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let mut random = SeededRandom::new(7);
        let mut end = Lsn::ZERO;
        while end.0 < 6 * Options::small().extent_bytes {
            end = append(&log, &[body(&mut random, 9_000)], Urgency::Forced).1;
        }
        watch.wait_durable(end);
        image(&log, end, b"all");
        (log, end)
    }

    fn held_back(log: &Log) -> u64 {
        log.held_from().map_or(0, |held| log.bytes_held_back(held))
    }

    fn first_extent(log: &Log) -> u64 {
        log.shared().first_held().0 / Options::small().extent_bytes
    }

    #[test]
    fn what_is_held_is_not_let_go_until_the_hold_is_dropped() {
        let (log, end) = long_log();
        let extent_bytes = Options::small().extent_bytes;
        let (early, late) = (log.hold(Lsn(extent_bytes)), log.hold(Lsn(3 * extent_bytes)));
        log.reclaim(end).unwrap();
        assert_eq!(first_extent(&log), 1, "the earliest hold counts");
        assert_eq!(held_back(&log), end.0 - 1 - extent_bytes, "held for nothing else");
        drop(early);
        log.reclaim(end).unwrap();
        assert_eq!(first_extent(&log), 3);
        drop(late);
        log.reclaim(end).unwrap();
        assert_eq!(first_extent(&log), end.0 / extent_bytes);
        assert_eq!(held_back(&log), 0);
    }

    #[test]
    fn a_hold_moves_forward_only() {
        let (log, end) = long_log();
        let extent_bytes = Options::small().extent_bytes;
        let held = log.hold(Lsn(extent_bytes));
        held.only_from(Lsn(4 * extent_bytes));
        held.only_from(Lsn(2 * extent_bytes));
        assert_eq!(held.from(), Some(Lsn(4 * extent_bytes)));
        log.reclaim(end).unwrap();
        assert_eq!(first_extent(&log), 4);
    }

    #[test]
    fn whoever_reads_under_a_hold_sees_that_it_was_let_go_before_any_extent_goes() {
        let (log, end) = long_log();
        let held = log.hold(Lsn::ZERO);
        held.let_go();
        assert_eq!(held.from(), None);
        held.only_from(Lsn(1));
        assert_eq!(held.from(), None, "it does not come back");
        log.reclaim(end).unwrap();
        assert!(first_extent(&log) > 0);
    }

    #[test]
    fn the_image_and_the_bodies_that_the_node_needs_are_kept_beside_holds() {
        let (log, end) = long_log();
        let extent_bytes = Options::small().extent_bytes;
        let held = log.hold(Lsn(3 * extent_bytes));
        log.reclaim(Lsn(2 * extent_bytes)).unwrap();
        assert_eq!(first_extent(&log), 2);
        assert_eq!(held_back(&log), 0, "nothing is kept for the hold alone");
        log.reclaim(end).unwrap();
        assert_eq!(first_extent(&log), 3);
        drop(held);
    }
}
