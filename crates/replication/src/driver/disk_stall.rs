//! A disk that does not answer: how it is noticed, and what the driver does then.
//!
//! A leader gives up: it asks an instance that is in sync to take over, and is silent from then on.
//! The only instance of a group does not: no other one would serve its clients, who lose their
//! connections, and what is not persistent, for nothing. It waits, as a queue manager without a
//! group does, and says so.
//! A replica is silent until its disk answers, as one that is cut off: it neither stands nor votes,
//! because what it must keep for that would not be kept. Both go on to hear which instance leads,
//! for their clients.
//!
//! Not here: what the process does while it waits for the disk (`disk_probe`), what the others
//! learn (`disk_watch`).
//!
//! Invariant: nothing here waits for the disk, nor for a thread that holds the driver's lock while
//! it waits for the disk.

use std::io;
use std::time::Duration;
use towline_os::time::Instant;

use towline_admin::catalogue::{GROUP_DISK_ANSWERS, GROUP_DISK_OVERDUE};
use towline_group::{Input, Role};
use towline_log::Overdue;
use towline_os::sync::Mutex;

use super::{Core, Driver};
use crate::lifecycle::{EndReason, Lifecycle};
use towline_link::Where;
use towline_logging::log as say;

/// How long a caller that only looks waits for the driver's lock.
pub(super) const LOOK_MAX: Duration = Duration::from_millis(100);
/// The file that is watched besides the log.
const KEPT: &str = "group-state";

/// What the disk owes.
#[derive(Default)]
pub(crate) struct DiskDelay {
    /// Since when the file beside the log is being written.
    keeping: Mutex<Option<Instant>>,
    /// What is overdue, as the last look found.
    overdue: Mutex<Option<Overdue>>,
}

impl DiskDelay {
    /// Notes that the file beside the log is written meanwhile.
    pub(crate) fn keeping(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        *self.keeping.lock() = Some(Instant::now());
        let written = write();
        *self.keeping.lock() = None;
        written
    }

    fn kept_since(&self) -> Option<Overdue> {
        let since = self.keeping.lock().map(|since| since.elapsed())?;
        Some(Overdue { file: KEPT.to_owned(), since })
    }
}

impl Driver {
    /// What the disk has not answered for longer than it may, as the last look found.
    pub fn overdue(&self) -> Option<Overdue> {
        self.disk.overdue.lock().clone()
    }

    /// Whether this instance leads, and is not about to re-execute itself.
    pub fn leads(&self) -> bool {
        self.active.get().is_some() && self.picture().role == Role::Leader
    }

    /// Whether this instance gets a copy; not, while the lock is not to be had.
    pub fn is_copying(&self) -> bool {
        let copying = |core: &Core| core.lifecycle == Lifecycle::Copying;
        let is_copying = self.core.try_lock_for(LOOK_MAX).is_some_and(|core| copying(&core));
        self.after();
        is_copying
    }

    /// Looks for what the disk has not answered within `longest`, and acts on it. This process has
    /// been running for `running`: before that it stood still, or was not there, and so could not
    /// take an answer.
    pub fn look_at_disk(&self, longest: Duration, running: Duration) {
        let oldest = self.log().overdue().into_iter().chain(self.disk.kept_since());
        let oldest = oldest.map(|late| Overdue { since: late.since.min(running), ..late });
        let late = oldest.filter(|late| late.since >= longest).max_by_key(|late| late.since);
        let before = std::mem::replace(&mut *self.disk.overdue.lock(), late.clone());
        let milliseconds = |late: &Overdue| late.since.as_millis().to_string();
        match (&before, &late) {
            (None, Some(late)) => say(&GROUP_DISK_OVERDUE, &[&milliseconds(late), &late.file]),
            (Some(before), None) => say(&GROUP_DISK_ANSWERS, &[&milliseconds(before)]),
            (None, None) | (Some(_), Some(_)) => {}
        }
        match (before, late) {
            (_, Some(_)) => self.stall(),
            (Some(_), None) => self.go_on(),
            (None, None) => {}
        }
    }

    fn stall(&self) {
        // Its holder may wait for the disk, and then nothing goes out of this instance anyway.
        let Some(mut core) = self.core.try_lock_for(LOOK_MAX) else { return };
        if core.lifecycle != Lifecycle::Leading {
            core.lifecycle.stalls(true);
            return;
        }
        if self.is_alone() {
            return;
        }
        let peers = core.member.progress().peers;
        let heir = peers.iter().filter(|peer| peer.is_in_sync).max_by_key(|peer| peer.acknowledged);
        if let Some(heir) = heir {
            // It is asked to stand at once, and needs no vote of ours.
            self.run(&mut core, Input::Transfer(heir.id));
        }
        self.ends(&mut core, EndReason::DiskHangs);
        self.led_by(&mut core, None);
        // It was set to `Here` when this instance became active.
        self.place.send_replace(Where::NoActive);
        drop(core);
        // Those that wait for the log hold the door, and connections could not hear their end.
        self.log().give_up();
    }

    pub(crate) fn go_on(&self) {
        let mut core = self.core.lock();
        if core.lifecycle != Lifecycle::Stalled {
            return;
        }
        core.lifecycle.stalls(false);
        self.run_durable(&mut core);
        // Connections may have come meanwhile, and the member has not heard of them.
        let standings: Vec<_> = core.standings.iter().copied().enumerate().collect();
        for (peer, standing) in standings {
            if let Some(standing) = standing {
                self.report_opened(&mut core, peer, standing);
            }
        }
        if self.group_is_new(&core) {
            self.run(&mut core, Input::Form);
        }
        drop(core);
        self.after();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use towline_group::HardState;
    use towline_log::{Disk, MemoryDisk};

    use super::super::tests::{LONG, one_of};
    use super::*;

    /// No other one would serve its clients.
    #[test]
    fn the_only_instance_of_a_group_goes_on_when_its_disk_answers_again() {
        let (disk, folder) =
            (Arc::new(MemoryDisk::new()) as Arc<dyn Disk>, tempfile::tempdir().unwrap());
        let hard_state = HardState { may_vote: true, ..HardState::default() };
        let (driver, on_end) = one_of(&["a"], hard_state, &disk, folder.path());
        let leads = || {
            driver.look_again();
            driver.wait(u64::MAX, Duration::ZERO).leads_from == Some(1)
        };
        assert!(driver.wait_until(LONG, leads), "{:?}", driver.group());
        driver.stall();
        assert!(on_end.try_recv().is_err(), "it steps down");
        assert_eq!(driver.core.lock().lifecycle, Lifecycle::Leading);
        driver.go_on();
        driver.tick();
        assert_eq!(driver.group().role, Role::Leader);
        driver.log().shutdown();
    }
}
