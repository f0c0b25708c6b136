//! The lease of an active instance: it renews it, and proves before each answer to a client that it
//! still holds it.
//!
//! Not here: which process gets an epoch; what a standby concludes from a lease (`watch`).
//!
//! Invariants: the lease counts from before the write of its last renewal that ended in time; a
//! renewal that ends when the lease has expired does not count; a lease that was lost stays lost;
//! nothing is reported as durable, and nothing is answered, without a valid lease at that moment.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use towline_admin::status::{InstanceRole, SharedStatus};
use towline_os::fs::{self, File, FileExt};
use towline_os::sync::{Condvar, Mutex};

use crate::epochs::{Epochs, epoch_name};
use crate::lock;
use crate::record::LeaseRecord;

/// How long a lease that lasts long goes without a renewal: standbys are listed with it.
const RENEWAL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Time since any fixed moment, which goes on while the machine sleeps.
pub type BootClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// CLOCK_BOOTTIME.
pub(crate) fn boot_clock() -> BootClock {
    Arc::new(towline_process::since_boot)
}

/// Why an instance must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It could not be renewed in time: the process was stopped, or the file system was away.
    RanOut,
    /// Another process has a later epoch.
    Succeeded(u64),
    /// It ended itself.
    GivenUp,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Loss::RanOut => write!(out, "it was not renewed in time"),
            Loss::Succeeded(epoch) => write!(out, "another instance has taken over, epoch {epoch}"),
            Loss::GivenUp => write!(out, "it was given up"),
        }
    }
}

/// Called when a lease is lost, with its epoch. That of the daemon does not return.
pub type Halt = Box<dyn Fn(u64, &Loss) + Send + Sync>;

/// The right of this process to be active, as long as it lasts.
pub struct Lease {
    data: PathBuf,
    epoch: u64,
    length: Duration,
    /// Nanoseconds of the clock; 0: lost.
    valid_until: AtomicU64,
    held: Mutex<Option<Held>>,
    is_given_up: Mutex<bool>,
    given_up: Condvar,
    standbys: Mutex<Vec<String>>,
    clock: BootClock,
    halt: Halt,
}

/// The file of the epoch, with its lock.
struct Held {
    file: File,
    record: LeaseRecord,
}

/// What is needed to begin an epoch.
pub struct Claim<'a> {
    /// The shared data folder.
    pub data: &'a Path,
    /// The number of the epoch.
    pub epoch: u64,
    /// How long a lease lasts without a renewal.
    pub length: Duration,
    /// How far apart the writes of the holder to the log can be, bytes.
    pub window_bytes: u64,
    /// This process, host:pid.
    pub holder: &'a str,
}

impl Lease {
    /// Takes the epoch; `None`: another process has it, or a later one.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn claim(
        claim: &Claim<'_>,
        clock: BootClock,
        halt: Halt,
    ) -> io::Result<Option<Arc<Lease>>> {
        let &Claim { data, epoch, length, window_bytes, holder } = claim;
        let record = LeaseRecord {
            given_up: false,
            lease_ms: u32::try_from(length.as_millis()).unwrap_or(u32::MAX),
            epoch,
            counter: 1,
            window_bytes,
            holder: holder.to_owned(),
        };
        let began = clock();
        let file = lock::claim(data, &epoch_name(epoch), &record.encode())?;
        let Some(file) = file else { return Ok(None) };
        // A process that was so slow that later epochs exist, and old ones were removed, got a
        // number that means nothing any more.
        if Epochs::list(data)?.newest() != Some(epoch) {
            return Ok(None);
        }
        let lease = Lease {
            data: data.to_owned(),
            epoch,
            length,
            valid_until: AtomicU64::new(nanoseconds(began.saturating_add(length))),
            held: Mutex::new(Some(Held { file, record })),
            is_given_up: Mutex::new(false),
            given_up: Condvar::new(),
            standbys: Mutex::default(),
            clock,
            halt,
        };
        Ok(Some(Arc::new(lease)))
    }

    /// Starts the threads that renew the lease, and that end the process when it is lost.
    ///
    /// # Errors
    /// The operating system refused a thread.
    pub fn keep(self: &Arc<Lease>) -> io::Result<()> {
        let lease = Arc::clone(self);
        let interval = (lease.length / 4).min(RENEWAL_INTERVAL_MAX);
        towline_os::thread::Builder::new().name("lease".into()).spawn(move || {
            while lease.goes_on_after(interval) {
                match lease.renew() {
                    Ok(()) => {}
                    Err(error) => tracing::warn!(%error, "the lease could not be renewed"),
                }
            }
        })?;
        let lease = Arc::clone(self);
        // A second thread, because a renewal may wait for a file system that is away.
        towline_os::thread::Builder::new().name("lease-watch".into()).spawn(move || {
            while lease.goes_on_after(lease.left().max(Duration::from_millis(1))) {
                drop(lease.prove());
            }
        })?;
        Ok(())
    }

    /// Waits; false when the lease was given up.
    fn goes_on_after(&self, time: Duration) -> bool {
        let mut given_up = self.is_given_up.lock();
        if !*given_up {
            self.given_up.wait_for(&mut given_up, time);
        }
        !*given_up
    }

    fn left(&self) -> Duration {
        let until = Duration::from_nanos(self.valid_until.load(Ordering::SeqCst));
        until.saturating_sub((self.clock)())
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes the next record. It counts if the write ended before the lease expired.
    ///
    /// # Errors
    /// What the operating system says: the lease is as long as it was.
    pub(crate) fn renew(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        let Some(Held { file, record }) = held.as_mut() else { return Ok(()) };
        let began = (self.clock)();
        let found = Epochs::list(&self.data)?;
        if let Some(newest) = found.newest().filter(|newest| *newest > self.epoch) {
            self.lose(&Loss::Succeeded(newest));
            return Ok(());
        }
        record.counter = record.counter.saturating_add(1);
        file.write_all_at(&record.encode(), 0)?;
        file.sync_data()?;
        if self.prove().is_ok() {
            let until = nanoseconds(began.saturating_add(self.length));
            self.valid_until.fetch_max(until, Ordering::SeqCst);
        }
        drop(held);
        *self.standbys.lock() = self.living(found.standbys);
        Ok(())
    }

    /// The standbys that live; removes the files of those that ended.
    fn living(&self, names: Vec<String>) -> Vec<String> {
        let mut living = Vec::new();
        for name in names {
            let path = self.data.join(&name);
            let held = File::options().read(true).write(true).open(&path).and_then(|file| {
                let is_held = lock::is_held(&file)?;
                if is_held { io::read_to_string(file).map(Some) } else { Ok(None) }
            });
            match held {
                Ok(Some(holder)) => living.push(holder),
                Ok(None) => drop(fs::remove_file(&path)),
                Err(error) => tracing::debug!(%error, name, "a standby was not looked at"),
            }
        }
        living
    }

    /// Whether the lease lasts at this moment; when not, the process ends.
    ///
    /// # Errors
    /// It was given up, so that the process ends anyway.
    pub fn prove(&self) -> io::Result<()> {
        let until = self.valid_until.load(Ordering::SeqCst);
        if nanoseconds((self.clock)()) < until {
            return Ok(());
        }
        let loss = if *self.is_given_up.lock() { Loss::GivenUp } else { Loss::RanOut };
        self.lose(&loss);
        Err(io::Error::other(loss.to_string()))
    }

    /// As [`Lease::prove`], for a caller that can do nothing without a lease: does not return then.
    pub fn need(&self) {
        if self.prove().is_err() {
            loop {
                towline_os::thread::park();
            }
        }
    }

    fn lose(&self, loss: &Loss) {
        self.valid_until.store(0, Ordering::SeqCst);
        if *loss != Loss::GivenUp {
            (self.halt)(self.epoch, loss);
        }
    }

    /// Writes that this instance has ended: a standby need not wait. To be called when nothing is
    /// logged and nothing is answered any more.
    pub(crate) fn give_up(&self) {
        *self.is_given_up.lock() = true;
        self.given_up.notify_all();
        let Some(Held { file, mut record }) = self.held.lock().take() else { return };
        self.valid_until.store(0, Ordering::SeqCst);
        record.given_up = true;
        let written = file.write_all_at(&record.encode(), 0).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A standby notices by the lock, or by the missing renewals.
            tracing::warn!(%error, "the lease could not be given up");
        }
    }

    /// For `towline status`.
    #[must_use]
    pub fn status(&self) -> SharedStatus {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        SharedStatus {
            role: InstanceRole::Active,
            epoch: self.epoch,
            lease_ms: ms(self.length),
            lease_age_ms: ms(self.length.saturating_sub(self.left())),
            standbys: self.standbys.lock().clone(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;
    use crate::testing::{Hands, claim};

    const LENGTH: Duration = Duration::from_millis(1_000);

    #[test]
    fn a_renewal_that_counts_is_on_the_disk_where_other_machines_see_it() {
        let system = FileSystem::new();
        system.make_folder("/data");
        let seen = system.clone();
        let renews = move || {
            let hands = Hands::at(Duration::from_secs(5));
            let lease = claim(Path::new("/data"), 1, LENGTH, &hands).unwrap();
            for _ in 0..2 {
                lease.renew().unwrap();
                let files =
                    seen.tree().into_iter().filter_map(|(path, bytes)| Some((path, bytes?)));
                let files: Vec<_> = files.collect();
                assert_eq!(files.len(), 1, "the lease");
                assert!(files.iter().all(|(path, bytes)| seen.is_synced(path, 0, bytes)));
            }
        };
        crash::in_process(&system, 1, renews).unwrap();
    }

    #[test]
    fn a_lease_lasts_from_before_its_renewal_and_not_from_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        // Each time that the clock is read, 100 ms go by: writing takes that long.
        hands.tick(Duration::from_millis(100));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        hands.tick(Duration::ZERO);
        assert_eq!(hands.now(), Duration::from_millis(5_100));
        assert_eq!(lease.left(), Duration::from_millis(900));
        hands.tick(Duration::from_millis(100));
        lease.renew().unwrap();
        hands.tick(Duration::ZERO);
        assert_eq!(hands.now(), Duration::from_millis(5_300));
        assert_eq!(lease.left(), Duration::from_millis(800));
        assert_eq!(hands.losses(), []);
    }

    #[test]
    fn a_renewal_that_comes_back_too_late_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        hands.go(LENGTH - Duration::from_millis(1));
        lease.prove().unwrap();
        // Begun in time: the clock goes past the end while it is written.
        hands.tick(Duration::from_millis(1));
        lease.renew().unwrap();
        assert_eq!(hands.losses(), [Loss::RanOut]);
        hands.tick(Duration::ZERO);
        assert!(lease.prove().is_err(), "what is lost does not come back");
        lease.renew().unwrap();
        assert!(lease.prove().is_err(), "what is lost does not come back");
    }

    #[test]
    fn a_lease_is_lost_when_it_has_run_out() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        hands.go(LENGTH);
        assert!(lease.prove().is_err());
        assert_eq!(hands.losses(), [Loss::RanOut]);
    }

    #[test]
    fn a_lease_is_lost_as_soon_as_a_later_epoch_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        let _later = claim(folder.path(), 2, LENGTH, &hands).unwrap();
        lease.renew().unwrap();
        assert_eq!(hands.losses(), [Loss::Succeeded(2)]);
        assert!(lease.prove().is_err());
    }

    #[test]
    fn an_epoch_is_given_once_and_never_below_one_that_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let _first = claim(folder.path(), 4, LENGTH, &hands).unwrap();
        assert!(claim(folder.path(), 4, LENGTH, &hands).is_none());
        assert!(claim(folder.path(), 3, LENGTH, &hands).is_none());
    }

    #[test]
    fn of_processes_with_one_number_that_claim_at_once_one_has_the_epoch_with_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        // In containers, on one machine each, all have number 1; here, all are this process.
        for epoch in 1..50 {
            let claims = std::thread::scope(|scope| {
                let claims: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| claim(folder.path(), epoch, LENGTH, &hands)))
                    .collect();
                claims.into_iter().map(|claim| claim.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(claims.iter().flatten().count(), 1, "epoch {epoch}");
            let look = super::super::epochs::look(folder.path()).unwrap().unwrap();
            assert!(look.epoch == epoch && look.is_locked, "epoch {epoch}");
        }
    }

    #[test]
    fn whoever_gives_up_says_so_and_is_not_halted() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        lease.keep().unwrap();
        lease.give_up();
        let look = super::super::epochs::look(folder.path()).unwrap().unwrap();
        assert!(LeaseRecord::decode(&look.content).unwrap().given_up && !look.is_locked);
        assert!(lease.prove().is_err());
        assert_eq!(hands.losses(), []);
    }

    #[test]
    fn standbys_that_live_are_listed_and_the_files_of_others_go() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, LENGTH, &hands).unwrap();
        let living = lock::claim(folder.path(), "standby-a_1", b"a:1").unwrap();
        drop(lock::claim(folder.path(), "standby-b_2", b"b:2").unwrap());
        lease.renew().unwrap();
        assert_eq!(lease.status().standbys, ["a:1"]);
        assert!(!folder.path().join("standby-b_2").exists());
        drop(living);
    }
}
