//! Whether the log of a recovery instance has space for what the live group ships. What does not
//! fit is not given to the member: it waits, with the link, until there is space. A member that had
//! taken it would have to start anew from its disk, and would be sent the same once more.
//!
//! Not here: how much space there is (`towline_log`), what live does about it (`region_part`).
//! Invariant: said once, when it begins and when it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_admin::catalogue::{REGION_LOG_FULL, REGION_LOG_HAS_ROOM};
use towline_logging::log as say;
use towline_os::sync::Mutex;
use towline_types::{Batch, Time};

use super::Driver;

/// A log that only waits for an image, or for an extent, has space a moment later.
const FULL_FOR: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ShippedRoom {
    /// Since when something does not fit.
    lacking_since: Mutex<Option<Time>>,
    is_full: AtomicBool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoomChange {
    Same,
    Full,
    Over,
}

impl ShippedRoom {
    fn look(&self, has_room: bool, now: Time) -> RoomChange {
        let mut lacking_since = self.lacking_since.lock();
        let since = if has_room { None } else { Some(lacking_since.unwrap_or(now)) };
        *lacking_since = since;
        let is_full = since.is_some_and(|since| now.since(since) >= FULL_FOR);
        let was_full = self.is_full.load(Ordering::SeqCst);
        match (was_full, is_full, has_room) {
            (false, true, _) => {
                self.is_full.store(true, Ordering::SeqCst);
                RoomChange::Full
            }
            (true, _, true) => {
                self.is_full.store(false, Ordering::SeqCst);
                RoomChange::Over
            }
            (false, false, _) | (true, _, false) => RoomChange::Same,
        }
    }
}

impl Driver {
    /// Whether batches that were shipped find space in the log.
    pub(super) fn has_room_for(&self, batches: &[Batch]) -> bool {
        let Some(end) = batches.last().map(Batch::end) else { return true };
        let has_room = self.log().reaches(end);
        let told = match self.region.room.look(has_room, self.now()) {
            RoomChange::Same => return has_room,
            RoomChange::Full => &REGION_LOG_FULL,
            RoomChange::Over => &REGION_LOG_HAS_ROOM,
        };
        say(told, &[&self.log().stats().bytes_in_use.to_string()]);
        has_room
    }

    /// Whether the log has no space for what the live group ships, and has had none for a while.
    pub fn lacks_room_for_shipped(&self) -> bool {
        self.relays() && self.region.room.is_full.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use std::sync::Arc;
    use towline_group::{HardState, Mode, Shipment};
    use towline_log::{Disk, MemoryDisk};
    use towline_types::{BatchPlace, Lsn};

    use super::*;
    use crate::driver::tests::{LONG, one_of};

    const BLOCK: u64 = 4_096;

    /// It re-executed every two seconds, and was sent the same again each time.
    #[test]
    fn what_does_not_fit_into_the_log_waits_until_it_does() {
        let (disk, folder) =
            (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
        let mode = Mode::Recovery;
        let hard_state =
            HardState { may_vote: true, knows_term: true, mode, ..HardState::default() };
        let (driver, ends) = one_of(&["a"], hard_state, &disk, folder.path());
        let log = driver.log();
        let (mut at, mut previous) = (log.tail().0.next_multiple_of(BLOCK), BatchPlace::default());
        let refused = loop {
            if at.is_multiple_of(log.extent_bytes()) {
                at += BLOCK;
            }
            let index = previous.index + 1;
            let batch = Batch { index, term: 1, lsn: Lsn(at), payload: Bytes::new() };
            at += BLOCK;
            let place = batch.place();
            let shipment = Shipment { term: 1, previous, batches: vec![batch] };
            match driver.ship(shipment.clone()).unwrap() {
                Some(answer) => assert_eq!(answer.refused, None),
                None => break shipment,
            }
            previous = place;
        };
        assert!(previous.end.0 > 4 * log.extent_bytes(), "the reserve is taken too");
        assert!(!driver.lacks_room_for_shipped(), "not yet");
        let takes = || driver.ship(refused.clone()).unwrap().is_some();
        let is_told = || !takes() && driver.lacks_room_for_shipped();
        assert!(driver.wait_until(LONG, is_told));
        assert!(ends.try_recv().is_err() && driver.group().last == previous);
        assert!(driver.wait_until(LONG, || log.durable() >= previous.end));
        // What frees the log of live frees this one.
        for _ in 0..2 {
            log.write_image(log.mark_at(previous.end).unwrap(), b"an image").unwrap();
        }
        log.drop_older_images().unwrap();
        log.reclaim(previous.end).unwrap();
        assert!(driver.wait_until(LONG, takes));
        assert!(!driver.lacks_room_for_shipped());
        assert!(ends.try_recv().is_err() && driver.group().last.index == previous.index + 1);
        driver.log().shutdown();
    }

    #[test]
    fn a_log_is_full_when_it_has_had_no_space_for_a_while_and_that_is_said_once() {
        let room = ShippedRoom::default();
        let at = |ms: u64| Time(ms * 1_000);
        assert_eq!(room.look(false, at(0)), RoomChange::Same, "it may wait for an image");
        assert_eq!(room.look(true, at(1_900)), RoomChange::Same);
        assert_eq!(room.look(false, at(2_100)), RoomChange::Same, "it counts anew");
        assert_eq!(room.look(false, at(4_100)), RoomChange::Full);
        for ms in (4_120..60_000).step_by(20) {
            assert_eq!(room.look(false, at(ms)), RoomChange::Same);
            assert!(room.is_full.load(Ordering::SeqCst));
        }
        assert_eq!(room.look(true, at(60_000)), RoomChange::Over);
        assert_eq!(room.look(true, at(60_020)), RoomChange::Same);
        assert!(!room.is_full.load(Ordering::SeqCst));
    }
}
