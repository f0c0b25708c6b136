//! Backups of a queue manager, running or at rest, and restores: finds the pages that an image
//! refers to, and retains what is being copied. The copying itself is in `towline_log::backup`.
//!
//! Not here: the command line; when a backup is made.
//!
//! Invariant: while a running queue manager is copied, no page of the image is reused and no extent
//! that was not copied yet is reclaimed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use towline_os::time::{Instant, since_epoch};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towline_backup::{
    Backup, BackupError, BackupReport, CheckReport, Choices, DamagedBatch, Progress, RestoreReport,
    Source, SourcePages, Upto,
};
use towline_core::{Limits, Pages as Trust, QueueManager};
use towline_log::{Disk, LinuxDisk, Pages, time_index};
use towline_os::fs;
use towline_types::{BodyLocation, Lsn, PageRef, Time};

use crate::backup_folders::BackupFolders;
use crate::door::Door;
use crate::images::Images;
use crate::inspection;
use crate::name_file;

/// A request of kind `backup` to a running queue manager.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// The folder, an absolute path.
    pub to: PathBuf,
    /// Copy everything again.
    pub full: bool,
    /// Images that are kept, 1 or more.
    pub keep_images: usize,
}

/// A backup that was made.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BackupReply {
    /// All runs that end at or before it are in the backup.
    pub lsn: String,
    /// Position of its image.
    pub image_lsn: Option<String>,
    /// The earliest position that can be restored.
    pub first_lsn: String,
    /// Whether everything was copied, and not only what was new.
    pub full: bool,
    /// Files written.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of the whole backup.
    pub bytes_held: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Batches that are damaged in the log, and so in the backup; the rest can be restored.
    #[serde(default)]
    pub damaged: Vec<DamagedReply>,
}

/// A damaged batch of the log, which a backup copies as it is.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DamagedReply {
    /// The extent.
    pub file: String,
    /// Offset in the extent.
    pub offset: u64,
    /// Its position.
    pub lsn: String,
    /// Messages in it that cannot be read, if that is known.
    pub messages: Option<u64>,
    /// The same in a line for people.
    pub text: String,
}

impl From<&DamagedBatch> for DamagedReply {
    fn from(damaged: &DamagedBatch) -> DamagedReply {
        let DamagedBatch { file, offset, lsn, messages } = damaged;
        let (file, text) = (file.clone(), damaged.to_string());
        DamagedReply { file, offset: *offset, lsn: lsn.to_string(), messages: *messages, text }
    }
}

impl BackupReply {
    fn of(done: &BackupReport, began: Instant) -> BackupReply {
        BackupReply {
            lsn: done.end.to_string(),
            image_lsn: done.image.map(|at| at.to_string()),
            first_lsn: done.first.to_string(),
            full: done.full,
            files: done.files,
            bytes: done.bytes,
            bytes_held: done.bytes_held,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            damaged: done.damaged.iter().map(DamagedReply::from).collect(),
        }
    }
}

/// How often `patiently` tries; under load once or twice is enough. Behind [`TRIES_AT_ONCE`] they
/// take [`PAUSE`] each: a disk that stalls for ten seconds fails no backup and no copy.
const TRIES: u32 = 11_000;
const TRIES_AT_ONCE: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Makes a backup of the running queue manager `name`. Takes as long as the copying.
/// `restricted`: another user than that of this process requests it, so it goes only into these
/// folders.
///
/// # Errors
/// In words for the operator; the backup that was there before is still valid.
pub(crate) fn back_up_running(
    name: &str,
    door: &Door,
    images: &Images,
    request: &BackupRequest,
    restricted: Option<&BackupFolders>,
) -> Result<BackupReply, String> {
    let began = Instant::now();
    if !request.to.is_absolute() {
        return Err(format!("{}: an absolute path is needed", request.to.display()));
    }
    let to = match restricted {
        Some(folders) => folders.judge(&request.to)?,
        None => request.to.clone(),
    };
    outside(&to, &door.log().folder()).map_err(|error| error.to_string())?;
    let mut backup = Backup::open(&to).map_err(|error| error.to_string())?;
    let Some(_turn) = images.backup_turn.try_lock() else {
        return Err("another backup is being made".into());
    };
    let mut choices = Choices {
        full: request.full,
        keep_points: request.keep_images,
        queue_manager: Some(name.to_owned()),
        now: door.clock().wall(),
        instead: false,
        lacks: inspection::missing_in_copy_with_notes,
    };
    let mut done = add(&mut backup, door, images, &choices)?;
    if is_repaired(door, &done.damaged) {
        // The next one has what was repaired, and replaces this one.
        let first = done;
        choices.full = false;
        choices.instead = true;
        done = add(&mut backup, door, images, &choices)?;
        done.bytes += first.bytes;
        done.files += first.files;
        done.full = first.full;
    }
    Ok(BackupReply::of(&done, began))
}

/// A backup must outlive the log: its folder may not lie in the log folder, wherever links lead. If
/// this cannot be checked, the backup itself fails.
fn outside(to: &Path, log: &Path) -> Result<(), BackupError> {
    let there = to.ancestors().find_map(|part| fs::canonicalize(part).ok());
    let inside = there.zip(fs::canonicalize(log).ok());
    match inside.is_some_and(|(there, log)| there.starts_with(log)) {
        true => Err(BackupError::InLog { folder: to.to_owned(), log: log.to_owned() }),
        false => Ok(()),
    }
}

/// In a group, damaged batches are fetched from the other instances. Whether any was.
fn is_repaired(door: &Door, damaged: &[DamagedBatch]) -> bool {
    let parts: Vec<BodyLocation> = damaged.iter().map(DamagedBatch::part).collect();
    !parts.is_empty() && door.repairs().is_some_and(|repairs| repairs.wait_for(parts))
}

/// Adds the log as it is now to a backup. What is copied is retained meanwhile.
fn add(
    backup: &mut Backup,
    door: &Door,
    images: &Images,
    choices: &Choices,
) -> Result<BackupReport, String> {
    let log = door.log();
    let hold = log.hold(Lsn::ZERO);
    let _pages = images.hold_pages();
    let taken = patiently(|| images.take(door).map_err(|error| error.to_string()))?;
    let source = patiently(|| {
        Source::running(&log, taken.at, taken.keep_from).map_err(|error| error.to_string())
    })?;
    let used = source.image().map_or_else(|| Ok(Vec::new()), pages_of)?;
    let extent_bytes = door.extent_bytes();
    let mut progress = |progress: Progress| {
        hold.only_from(Lsn(progress.extent.saturating_mul(extent_bytes)));
    };
    let rows = images.time_index().map(|index| index.rows()).unwrap_or_default();
    let pages = SourcePages { file: Some(images.pages()), used: &used };
    let done = backup.add(&source, pages, &rows, choices, &mut progress);
    done.map_err(|error| error.to_string())
}

/// Tries until the log does not move for the moment that it takes.
///
/// # Errors
/// That of `attempt`; that the log moves too fast.
pub fn patiently<T>(mut attempt: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    for tries in 0..TRIES {
        if let Some(answer) = attempt()? {
            return Ok(answer);
        }
        if tries < TRIES_AT_ONCE {
            towline_os::thread::yield_now();
        } else {
            // The disk takes its time, perhaps: what is appended waits for it.
            towline_os::thread::sleep(PAUSE);
        }
    }
    Err("the log moves too fast; try again".into())
}

/// Makes a backup of the queue manager whose data is in `data` and that does not run.
///
/// # Errors
/// [`BackupError`]; [`towline_log::LogError::Locked`] when it runs.
pub fn back_up_at_rest(
    data: &Path,
    request: &BackupRequest,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BackupReply, BackupError> {
    let began = Instant::now();
    let folder = log_folder_of(data)?;
    outside(&request.to, &folder)?;
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&folder)?);
    let source = Source::at_rest(Arc::clone(&disk))?;
    // Missing extents are found before anything is copied, as a start finds them.
    if let Ok(missing) = inspection::missing_extents(data)
        && !missing.of_all().is_empty()
    {
        return Err(BackupError::ExtentGone { file: missing.of_all().to_string() });
    }
    let mut backup = Backup::open(&request.to)?;
    let used = source.image().map_or_else(|| Ok(Vec::new()), pages_of);
    let used = used.map_err(BackupError::Image)?;
    let pages = match used.is_empty() {
        true => None,
        false => Some(Pages::open(Arc::clone(&disk), used.iter().copied())?),
    };
    let pages = SourcePages { file: pages.as_ref(), used: &used };
    let choices = Choices {
        full: request.full,
        keep_points: request.keep_images,
        queue_manager: name_file::read(data).ok().flatten(),
        now: wall_clock(),
        instead: false,
        lacks: inspection::missing_in_copy_with_notes,
    };
    let rows = time_index::read(disk.as_ref())?;
    let mut report = |now: Progress| progress(now.done, now.all);
    let done = backup.add(&source, pages, &rows, &choices, &mut report)?;
    Ok(BackupReply::of(&done, began))
}

/// Checks a backup: every file, the log, images and their pages.
///
/// # Errors
/// What keeps it from being read at all.
pub fn check_backup(
    folder: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<CheckReport, BackupError> {
    let mut report = |now: Progress| progress(now.done, now.all);
    Backup::look(folder)?.check(&pages_of, inspection::missing_in_copy, &mut report)
}

/// Checks the images and pages of the queue manager whose data is in `data`; safe beside a running
/// one, where a page of the older image may have been reused.
///
/// # Errors
/// What keeps them from being read at all.
pub fn check_images(data: &Path) -> Result<CheckReport, BackupError> {
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(&log_folder_of(data)?)?);
    towline_backup::check_newest_image(&disk, &pages_of)
}

fn log_folder_of(data: &Path) -> Result<PathBuf, BackupError> {
    let nothing = || BackupError::NoLog { folder: data.display().to_string() };
    towline_standby::log_folder(data).ok().flatten().ok_or_else(nothing)
}

/// Restores a backup into a data folder, which must be empty. Writes the name of the queue manager
/// into it, and yields that name, if the backup has it.
///
/// # Errors
/// [`BackupError`].
pub fn restore(
    from: &Path,
    data: &Path,
    upto: Upto,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(RestoreReport, Option<String>), BackupError> {
    let backup = Backup::look(from)?;
    let mut report = |now: Progress| progress(now.done, now.all);
    let restored = towline_backup::restore_folder(&backup, data, upto, &mut report)?;
    let name = backup.manifest().and_then(|manifest| manifest.queue_manager.clone());
    if let Some(name) = &name
        && let Err(error) = name_file::write_once(data, name)
    {
        // The first start names it.
        tracing::warn!(%error, "the name of the queue manager cannot be written into its folder");
    }
    Ok((restored, name))
}

/// The pages that an image refers to.
///
/// # Errors
/// The image cannot be read.
pub fn pages_of(image: &Bytes) -> Result<Vec<PageRef>, String> {
    // The position comes first (`towline_node::ImagePlan::encode`).
    let snapshot = image.get(8..).ok_or("it is too short")?;
    let restored = QueueManager::restore(snapshot, Limits::default(), Trust::Whole);
    let restored = restored.map_err(|error| error.to_string())?;
    Ok(if restored.whole { restored.rules.pages().collect() } else { Vec::new() })
}

fn wall_clock() -> Time {
    Time::ZERO + since_epoch()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_backup_does_not_lie_in_the_log_folder_wherever_links_lead() {
        let scratch = tempfile::tempdir().unwrap();
        let (log, other) = (scratch.path().join("data/log"), scratch.path().join("backups"));
        std::fs::create_dir_all(&log).unwrap();
        std::fs::create_dir(&other).unwrap();
        symlink(&log, other.join("in")).unwrap();
        symlink(&log, scratch.path().join("alias")).unwrap();
        for to in ["data/log", "data/log/bk", "data/log/deep/bk", "backups/in/bk", "alias/bk"] {
            for log in [&log, &scratch.path().join("alias")] {
                let refused = outside(&scratch.path().join(to), log);
                assert!(matches!(refused, Err(BackupError::InLog { .. })), "{to}");
            }
        }
        for to in ["data/bk", "data/log-2", "data/log/../bk", "backups", "backups/new/deep"] {
            assert!(outside(&scratch.path().join(to), &log).is_ok(), "{to}");
        }
    }

    #[test]
    fn a_log_that_stands_still_only_after_a_stall_of_the_disk_is_waited_for() {
        let began = Instant::now();
        let stall = Duration::from_millis(300);
        let still = patiently(|| Ok((began.elapsed() >= stall).then_some("still")));
        assert_eq!(still, Ok("still"));
    }
}
