//! A process waits until it may open the log of a shared data folder, and takes over.
//!
//! Not here: when it may (`watch`), how the new log folder is filled (`takeover`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use towline_os::fs::{self, File};
use towline_os::time::Instant;

use towline_admin::catalogue::{LEASE_LOST, STANDING_BY, TAKEN_OVER, TAKING_OVER};
use towline_config::{LogConfig, SharedConfig};
use towline_log::LogError;
use towline_logging::log;
use towline_process::folder;

use crate::epochs::{self, is_shared};
use crate::error::{EntryError, FolderError};
use crate::home::Home;
use crate::lease::{self, BootClock, Claim, Halt, Lease, Loss};
use crate::lock;
use crate::record::LeaseRecord;
use crate::takeover::{self, NewLogFolder};
use crate::watch::{Look, Verdict, Watch};

/// How often a standby looks at the folder. A crash of the active instance costs its clients this,
/// and a restart.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of log that are reserved for gets, and for a takeover on a full disk: it copies what may
/// still be written, at most the extents of the window and one on each side of it.
/// `window_bytes`: [`towline_log::Options::stray_bytes`].
#[must_use]
pub fn reserve_bytes(log: &LogConfig, window_bytes: u64) -> u64 {
    let copied = window_bytes.saturating_add(log.extent_bytes.saturating_mul(2));
    let wanted = log.reserve_bytes.saturating_add(copied);
    if log.log_bytes_max == 0 {
        return wanted;
    }
    // If that key bounds the log, and not the disk, there is free space for copies outside it.
    let least = log.extent_bytes.saturating_mul(4);
    wanted.min(log.log_bytes_max.saturating_sub(least)).max(log.reserve_bytes)
}

/// A process that wants to become the active instance of a shared data folder.
pub struct Entry<'a> {
    /// The queue manager.
    pub name: &'a str,
    /// This process, see [`process_name`].
    pub process: &'a str,
    /// Its data folder.
    pub data: &'a Path,
    /// Lease and takeover.
    pub shared: &'a SharedConfig,
    /// `--standby`: wait while another instance is active.
    pub stands_by: bool,
    /// [`towline_log::Options::stray_bytes`] of its log.
    pub window_bytes: u64,
    /// Called for each step.
    pub report: &'a dyn Fn(EntryStep<'_>),
}

/// What a process does on its way to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryStep<'a> {
    /// It stands by for this process, host:pid.
    StandsBy(&'a str),
    /// It is the active one, and makes its log folder.
    TakesOver,
}

impl Entry<'_> {
    /// Returns when this process may open the log: at once, or, with `--standby`, when the active
    /// instance has ended. A data folder that was shared once is never used without a lease again.
    ///
    /// # Errors
    /// Another process uses it, and this one has no `--standby`; the operating system.
    pub fn enter(&self) -> Result<Home, EntryError> {
        let lease = self.wait(self.process)?;
        (self.report)(EntryStep::TakesOver);
        let began = Instant::now();
        // Renewed from here on, however long the copy takes.
        lease.keep().map_err(EntryError::Thread)?;
        let new = self.take_over(&lease)?;
        let base = new.base.map_or_else(|| "nothing".to_owned(), |base| base.display().to_string());
        log(
            &TAKEN_OVER,
            &[
                &new.folder.display().to_string(),
                &base,
                &began.elapsed().as_millis().to_string(),
                &new.succession.linked.to_string(),
                &new.succession.copied.to_string(),
                &new.succession.bytes_copied.to_string(),
            ],
        );
        Ok(Home::leased(self.data.to_owned(), new.folder, lease))
    }

    /// Waits for an epoch.
    fn wait(&self, holder: &str) -> Result<Arc<Lease>, EntryError> {
        let clock = lease::boot_clock();
        let length = self.shared.lease();
        let mut watch = Watch::new(length, self.shared.takeover_by_lock);
        let mut standing_by = None;
        loop {
            // Until there is an epoch, an instance without a lease may use the folder.
            let single = self.lock_single()?;
            let began = clock();
            let look = match epochs::look(self.data) {
                // To wait for a file system that is away for a while is what a standby is for.
                Err(error) if standing_by.is_some() => {
                    tracing::warn!(%error, "the shared folder cannot be read");
                    towline_os::thread::park_timeout(length / 4);
                    continue;
                }
                look => look.map_err(FolderError::Io)?,
            };
            let now = clock();
            match watch.judge(look.as_ref(), began, now) {
                Verdict::Take(reason) => {
                    let epoch = look.map_or(0, |look| look.epoch).saturating_add(1);
                    let claimed = self.claim(epoch, holder, &clock).map_err(FolderError::Io)?;
                    if let Some(lease) = claimed {
                        log(&TAKING_OVER, &[self.name, &epoch.to_string(), reason.text()]);
                        drop((single, standing_by));
                        return Ok(lease);
                    }
                    // Another standby was faster.
                    continue;
                }
                Verdict::Wait => {}
            }
            let Some(look) = look else { continue };
            if !self.stands_by && look.is_locked {
                return Err(EntryError::InUse { holder: holder_of(&look) });
            }
            if standing_by.is_none() && self.stands_by {
                standing_by = Some(self.stand_by(holder, &look));
            }
            towline_os::thread::park_timeout(LOOK_INTERVAL);
        }
    }

    fn claim(&self, epoch: u64, holder: &str, clock: &BootClock) -> io::Result<Option<Arc<Lease>>> {
        let length = self.shared.lease();
        let window_bytes = self.window_bytes;
        let claim = Claim { data: self.data, epoch, length, window_bytes, holder };
        let claimed = Lease::claim(&claim, Arc::clone(clock), halt());
        if claimed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
            && fs::remove_file(self.data.join(epochs::FREE_SPACE_NAME)).is_ok()
        {
            return Lease::claim(&claim, Arc::clone(clock), halt());
        }
        claimed
    }

    /// Reports that this process stands by: to the process that started it, to the log, and to the
    /// active instance.
    fn stand_by(&self, holder: &str, look: &Look) -> Listing {
        let name = epochs::standby_name(holder);
        let file = lock::claim(self.data, &name, holder.as_bytes());
        if let Err(error) = &file {
            // The disk may be full. Only the status of the active instance is incomplete.
            tracing::warn!(%error, "this standby is not in the list of the active instance");
        }
        let listing = Listing { path: self.data.join(name), _file: file.ok().flatten() };
        let active = holder_of(look);
        log(&STANDING_BY, &[self.name, &active]);
        (self.report)(EntryStep::StandsBy(&active));
        listing
    }

    /// Excludes an instance without a lease, as long as the folder is not shared. Such an instance
    /// checks again when it has the lock ([`Home::check`]), so the lock is needed no longer than
    /// until there is an epoch.
    fn lock_single(&self) -> Result<Option<File>, FolderError> {
        let folder = self.data.join(epochs::SINGLE_LOG);
        if is_shared(self.data)? {
            return Ok(None);
        }
        // If there is no log folder, no process may make one while this one claims an epoch.
        folder::make(&folder)?;
        let lock = lock::share(&folder.join(epochs::SINGLE_LOCK))?;
        if lock.is_none() {
            return Err(LogError::Locked { folder, pid: None }.into());
        }
        Ok(lock)
    }

    fn take_over(&self, lease: &Lease) -> Result<NewLogFolder, FolderError> {
        let mut passed = |_| lease.prove();
        takeover::take_over(self.data, lease.epoch(), self.window_bytes, &mut passed)
    }
}

/// The entry of this process in the list of standbys; removed when it is dropped.
struct Listing {
    path: PathBuf,
    /// Held, never read: its lock says that this process lives.
    _file: Option<File>,
}

impl Drop for Listing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the active instance removed this standby from the list");
        }
    }
}

/// Ends the process before it can answer a client again.
fn halt() -> Halt {
    Box::new(|epoch: u64, loss: &Loss| {
        log(&LEASE_LOST, &[&epoch.to_string(), &loss.to_string()]);
        towline_os::process::exit(towline_process::EXIT_LEASE_LOST);
    })
}

fn holder_of(look: &Look) -> String {
    let record = LeaseRecord::decode(&look.content);
    record.map_or_else(|| "another process".to_owned(), |record| record.holder)
}

/// The name of this process among those of a shared data folder: host:pid.
#[must_use]
pub fn process_name() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use towline_config::Config;

    use super::*;

    #[test]
    fn a_reserve_for_takeovers_is_kept_where_the_disk_bounds_the_log() {
        let mut log = Config::default().log;
        let own = log.reserve_bytes;
        let extent = log.extent_bytes;
        let window = 1 << 20;
        assert_eq!(reserve_bytes(&log, window), own + window + 2 * extent);
        for extents in [4, 5, 6, 7, 100] {
            log.log_bytes_max = extents * extent + own;
            let reserve_bytes = reserve_bytes(&log, window);
            assert!((own..=own + window + 2 * extent).contains(&reserve_bytes), "{extents}");
        }
    }
}
