//! Multi-instance mode: several processes with one data folder, on a file system that they share.
//! One is active, the others stand by.
//!
//! Not here: how a log folder is made from another one (`towline_log::succession`); anything about
//! clients. A folder that is not shared is served by the same type, [`Home`], and nothing is asked
//! of its file system that was not asked before.
//!
//! Reading order: `epochs` (the names), `record` and `lock` (a lease in bytes), `watch` (when a
//! standby may take over), `takeover` (how), `lease` and `guard` (why a stopped instance that wakes
//! does no harm). Why it is so: docs/adr, fencing by folder.

mod epochs;
mod guard;
mod lease;
mod lock;
mod record;
mod takeover;
#[cfg(test)]
mod testing;
mod watch;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_admin::catalogue::{LEASE_LOST, STANDING_BY, TAKEN_OVER, TAKING_OVER};
use towline_log::{Disk, LogError, Options};

use crate::refused::RunError;
use crate::run::RunArgs;
use crate::start::{self, REBUILD_MARKER, StartError, make_folder};
use epochs::Epochs;
pub(crate) use lease::Lease;
use lease::{Claim, Halt, Loss};
use record::Record;
use towline_config::Config;
use towline_logging::log;
use watch::{Look, Verdict, Watch};

/// How often a standby looks. What a dead instance costs its clients is this, and a restart.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Where a queue manager keeps its log, and by what right.
pub(crate) struct Home {
    data: PathBuf,
    log_folder: PathBuf,
    lease: Option<Arc<Lease>>,
}

impl Home {
    /// A data folder that is not shared.
    pub(crate) fn single(data: &Path) -> Home {
        Home { data: data.to_owned(), log_folder: data.join(epochs::SINGLE_LOG), lease: None }
    }

    /// The data folder.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The log folder.
    pub(crate) fn log_folder(&self) -> &Path {
        &self.log_folder
    }

    /// The file that says that pages are not to be trusted.
    pub(crate) fn rebuild_marker(&self) -> PathBuf {
        // With the log that it speaks of: an instance that was overtaken must not touch ours.
        let folder = if self.lease.is_some() { &self.log_folder } else { &self.data };
        folder.join(REBUILD_MARKER)
    }

    /// The lease, where there is one.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        self.lease.as_ref()
    }

    /// The disk, on which nothing is durable without a lease.
    pub(crate) fn guard(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        match &self.lease {
            Some(lease) => Arc::new(guard::LeasedDisk::new(disk, Arc::clone(lease))),
            None => disk,
        }
    }

    /// The options of a log in this place.
    pub(crate) fn options(&self, options: Options) -> Options {
        Options { recycle_extents: self.lease.is_none(), ..options }
    }

    /// Looks once more, now that the lock of the log folder is ours, whether it is
    /// still not shared.
    ///
    /// # Errors
    /// Another instance began to share it a moment ago.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.lease.is_none() && is_shared(&self.data).map_err(StartError::Folder)? {
            let folder = self.data.clone();
            return Err(StartError::Log(LogError::Locked { folder, pid: None }));
        }
        Ok(())
    }

    /// The log is open: removes what earlier instances left, and keeps room for a later one, on a
    /// thread of its own.
    pub(crate) fn settle(&self) {
        let Some(lease) = &self.lease else { return };
        let (data, epoch) = (self.data.clone(), lease.epoch());
        let tidying = std::thread::Builder::new().name("folders".into());
        let spawned = tidying.spawn(move || {
            takeover::tidy(&data, epoch);
            if let Err(error) = takeover::keep_room(&data) {
                tracing::warn!(%error, "no room is kept for a takeover on a full disk");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "what earlier instances left stays");
        }
    }

    /// The log is closed and no client is answered any more: a standby may take over at once.
    pub(crate) fn leave(&self) {
        if let Some(lease) = &self.lease {
            lease.give_up();
        }
    }
}

/// The log folder of a data folder, shared or not; `None`: there is none.
///
/// # Errors
/// The data folder cannot be listed.
pub fn log_folder(data: &Path) -> io::Result<Option<PathBuf>> {
    match Epochs::list(data) {
        Ok(found) => Ok(found.log_folder(data)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_shared(data: &Path) -> io::Result<bool> {
    Ok(Epochs::list(data)?.newest().is_some())
}

/// Bytes of log that are reserved for gets, and for a takeover on a full disk, which copies
/// what may still be written, at most the extents of the window and one on each side of it.
fn reserve_bytes(config: &Config) -> u64 {
    let (log, window) = (&config.log, start::options(config).stray_bytes());
    let copied = window.saturating_add(log.extent_bytes.saturating_mul(2));
    let wanted = log.reserve_bytes.saturating_add(copied);
    if log.log_bytes_max == 0 {
        return wanted;
    }
    // Where that bounds the log, and not the disk, there is room for copies outside it.
    let least = log.extent_bytes.saturating_mul(4);
    wanted.min(log.log_bytes_max.saturating_sub(least)).max(log.reserve_bytes)
}

/// Comes back when this process may open the log: at once, or, with `--standby`, when the active
/// instance has ended. A data folder that was shared once is never used without a lease again.
/// Where it is shared, more of the log is held in reserve than the configuration says.
///
/// # Errors
/// Somebody else uses it, and this process was not told to stand by; the operating system.
pub(crate) fn enter(args: &RunArgs, config: &mut Config) -> Result<Home, RunError> {
    let refused = |error| RunError::Start {
        name: args.name.as_str().into(),
        data: args.data.as_path().into(),
        error,
    };
    let data = args.data.clone();
    make_folder(&data).map_err(|error| refused(StartError::Folder(error)))?;
    let shared = is_shared(&data).map_err(|error| refused(StartError::Folder(error)))?;
    if !args.standby && !shared {
        return Ok(Home::single(&data));
    }
    config.log.reserve_bytes = reserve_bytes(config);
    for listener in &config.listener {
        // What a takeover would fail by had better be known now.
        crate::net::server_settings(listener).map_err(RunError::Tls)?;
    }
    let window_bytes = start::options(config).stray_bytes();
    let entry = Entry { args, config, data: &data, holder: holder(), window_bytes };
    let lease = entry.wait()?;
    let began = Instant::now();
    // Renewed from here on, however long it takes to copy.
    lease.keep().map_err(RunError::System)?;
    let taken = entry.take_over(&lease).map_err(refused)?;
    let (folder, succession) = (taken.folder, taken.succession);
    let base = taken.base.map_or_else(|| "nothing".to_owned(), |base| base.display().to_string());
    log(
        &TAKEN_OVER,
        &[
            &folder.display().to_string(),
            &base,
            &began.elapsed().as_millis().to_string(),
            &succession.linked.to_string(),
            &succession.copied.to_string(),
            &succession.bytes_copied.to_string(),
        ],
    );
    Ok(Home { data, log_folder: folder, lease: Some(lease) })
}

/// A process on its way to being active.
struct Entry<'a> {
    args: &'a RunArgs,
    config: &'a Config,
    data: &'a Path,
    holder: String,
    window_bytes: u64,
}

impl Entry<'_> {
    /// Waits for an epoch.
    fn wait(&self) -> Result<Arc<Lease>, RunError> {
        let failed = |error| self.refused(StartError::Folder(error));
        let clock = lease::boot_clock();
        let length = self.config.shared.lease();
        let mut watch = Watch::new(length, self.config.shared.takeover_by_lock);
        let mut standing_by = None;
        loop {
            // Until there is an epoch, an instance that does not share may run.
            let single = self.lock_single()?;
            let began = clock();
            let look = match epochs::look(self.data) {
                // A file system that is away for a while is what a standby is for.
                Err(error) if standing_by.is_some() => {
                    tracing::warn!(%error, "the shared folder cannot be looked at");
                    std::thread::park_timeout(length / 4);
                    continue;
                }
                look => look.map_err(failed)?,
            };
            let now = clock();
            match watch.judge(look.as_ref(), began, now) {
                Verdict::Take(reason) => {
                    let epoch = look.map_or(0, |look| look.epoch).saturating_add(1);
                    if let Some(lease) = self.claim(epoch, &clock).map_err(failed)? {
                        log(&TAKING_OVER, &[&self.args.name, &epoch.to_string(), reason.text()]);
                        drop((single, standing_by));
                        return Ok(lease);
                    }
                    // Somebody was quicker.
                    continue;
                }
                Verdict::Wait => {}
            }
            let Some(look) = look else { continue };
            if !self.args.standby && look.is_locked {
                return Err(RunError::InUse { data: self.data.into(), holder: holder_of(&look) });
            }
            if standing_by.is_none() && self.args.standby {
                standing_by = Some(self.stand_by(&look));
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }

    fn claim(&self, epoch: u64, clock: &lease::BootClock) -> io::Result<Option<Arc<Lease>>> {
        let claim = Claim {
            data: self.data,
            epoch,
            length: self.config.shared.lease(),
            window_bytes: self.window_bytes,
            holder: &self.holder,
        };
        let claimed = Lease::claim(&claim, Arc::clone(clock), halt());
        if claimed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
            && std::fs::remove_file(self.data.join(epochs::ROOM_NAME)).is_ok()
        {
            return Lease::claim(&claim, Arc::clone(clock), halt());
        }
        claimed
    }

    /// Reports that this process stands by, to its parent, to the log, and to the active
    /// instance.
    fn stand_by(&self, look: &Look) -> Listed {
        let name = epochs::standby_name(&self.holder);
        let scratch = format!("new-{name}");
        let file = lock::claim(self.data, &name, &scratch, self.holder.as_bytes());
        if let Err(error) = &file {
            // The disk may be full. Not being listed does no harm.
            tracing::warn!(%error, "this standby is not in the list of the active instance");
        }
        let listed = Listed { place: self.data.join(name), _file: file.ok().flatten() };
        let active = holder_of(look);
        log(&STANDING_BY, &[&self.args.name, &active]);
        crate::run::say(&format!("standby {active}"));
        listed
    }

    /// Keeps an instance that does not share out, as long as the folder is not shared. Such an
    /// instance looks once more when it has the lock ([`Home::check`]), so that it is needed no
    /// longer than until there is an epoch.
    fn lock_single(&self) -> Result<Option<File>, RunError> {
        let failed = |error| self.refused(StartError::Folder(error));
        let folder = self.data.join(epochs::SINGLE_LOG);
        if is_shared(self.data).map_err(failed)? {
            return Ok(None);
        }
        // Where there is none, one must not be made beside us.
        make_folder(&folder).map_err(failed)?;
        let lock = lock::share(&folder.join(epochs::SINGLE_LOCK)).map_err(failed)?;
        if lock.is_none() {
            let error = LogError::Locked { folder, pid: None };
            return Err(self.refused(StartError::Log(error)));
        }
        Ok(lock)
    }

    fn take_over(&self, lease: &Lease) -> Result<takeover::Taken, StartError> {
        let mut passed = |_| lease.prove();
        takeover::take_over(self.data, lease.epoch(), self.window_bytes, &mut passed)
    }

    fn refused(&self, error: StartError) -> RunError {
        RunError::Start { name: self.args.name.clone().into(), data: self.data.into(), error }
    }
}

/// A name in the list of those who stand by; it goes when we do so no more.
struct Listed {
    place: PathBuf,
    /// Held, never read: its lock says that we live.
    _file: Option<File>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.place) {
            tracing::debug!(%error, "the active instance took us off the list");
        }
    }
}

/// Ends the process: no client gets an answer to what it still has in its hands.
fn halt() -> Halt {
    Box::new(|epoch: u64, loss: &Loss| {
        log(&LEASE_LOST, &[&epoch.to_string(), &loss.to_string()]);
        std::process::exit(crate::EXIT_LEASE_LOST);
    })
}

fn holder_of(look: &Look) -> String {
    let record = Record::decode(&look.content);
    record.map_or_else(|| "another process".to_owned(), |record| record.holder)
}

/// Who we are, for people.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::testing::{Hands, claim};
    use super::*;
    use crate::clock::Clock;

    /// Also when nothing that it does needs the log: another instance may have given the same
    /// message to another client by then.
    #[test]
    fn an_instance_does_no_step_for_anybody_when_its_lease_has_run_out() {
        let (folder, length) = (tempfile::tempdir().unwrap(), Duration::from_secs(1));
        let hands = Hands::at(Duration::from_secs(5));
        let lease = claim(folder.path(), 1, length, &hands).unwrap();
        let (data, log_folder) = (folder.path().to_owned(), folder.path().join("log-1"));
        let home = Home { data, log_folder, lease: Some(lease) };
        let mut config = Config::default();
        config.log.extent_bytes = 4 << 20;
        let wishes = start::Wishes::default();
        let opened = start::open("QM1", &home, &config, wishes, Clock::start());
        let door = opened.unwrap().door;
        door.tick();
        // The log's own threads ask for the lease too: none of them has anything to do from here
        // on.
        door.log().shutdown();
        assert_eq!(hands.losses(), []);
        hands.go(length);
        let (done, steps) = mpsc::channel();
        thread::spawn(move || {
            door.tick();
            done.send(()).unwrap();
        });
        while hands.losses().is_empty() {
            assert!(steps.try_recv().is_err(), "it did a step");
            thread::yield_now();
        }
        assert_eq!(hands.losses(), [Loss::RanOut]);
        assert!(steps.try_recv().is_err(), "it did a step");
    }

    #[test]
    fn a_reserve_for_takeovers_is_held_where_the_disk_bounds_the_log() {
        let mut config = Config::default();
        let (own, extent) = (config.log.reserve_bytes, config.log.extent_bytes);
        let window = start::options(&config).stray_bytes();
        assert_eq!(reserve_bytes(&config), own + window + 2 * extent);
        for extents in [4, 5, 6, 7, 100] {
            config.log.log_bytes_max = extents * extent + own;
            let reserve_bytes = reserve_bytes(&config);
            assert!((own..=own + window + 2 * extent).contains(&reserve_bytes), "{extents}");
            start::options(&Config {
                log: towline_config::LogConfig { reserve_bytes, ..config.log.clone() },
                ..config.clone()
            })
            .check()
            .unwrap();
        }
    }

    #[test]
    fn a_data_folder_that_is_not_there_has_no_log() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(log_folder(&folder.path().join("nothing")).unwrap(), None);
        assert_eq!(log_folder(folder.path()).unwrap(), None);
    }
}
