//! Backups of a queue manager, running or at rest, and the way back: finds what an image refers to,
//! and holds back what is being copied. The copying itself is in the room `log`.
//!
//! Not here: the command line; when a backup is made.
//!
//! Invariant: while a running queue manager is copied, no page of the image is used again and no
//! extent that was not copied yet is let go.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use towline_backup::{
    Backup, BackupError, CheckReport, Choices, DamagedBatch, Done, Progress, Restored, Source, Upto,
};
use towline_core::{Limits, Pages as Trust, QueueManager};
use towline_log::{Disk, LinuxDisk, Pages, time_index};
use towline_types::{BodyLocation, Lsn, PageRef, Time};

use crate::door::Door;
use crate::images::Images;
use crate::lacking;

/// What is asked of a queue manager in a request of kind `backup`.
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

/// What came of a backup.
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
    /// Batches that are damaged in the log, and so in the backup; all else can be restored.
    #[serde(default)]
    pub damaged: Vec<DamagedReply>,
}

/// A damaged batch of the log that a backup has as it found it.
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
    /// All of it in a line for people.
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
    fn of(done: &Done, began: Instant) -> BackupReply {
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

/// Where backups may be written that others ask for than the user of this process.
#[derive(Debug)]
pub(crate) struct Folders {
    allowed: RwLock<Vec<PathBuf>>,
}

impl Folders {
    pub(crate) fn new(allowed: &[PathBuf]) -> Folders {
        Folders { allowed: RwLock::new(allowed.to_vec()) }
    }

    /// Others from now on.
    pub(crate) fn set(&self, allowed: &[PathBuf]) {
        *self.allowed.write() = allowed.to_vec();
    }

    /// Where a backup into `to` is written, without symbolic links on the way.
    ///
    /// # Errors
    /// It is not in one of the folders, or what would be needed to be sure of that does not hold.
    fn judge(&self, to: &Path) -> Result<PathBuf, String> {
        let plain =
            to.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain {
            return Err(format!("{}: an absolute path without .. is needed", to.display()));
        }
        // What does not exist yet is no link; the rest is looked at where it leads.
        let there = to.ancestors().find(|part| part.symlink_metadata().is_ok());
        let there = there.ok_or_else(|| format!("{}: there is no such path", to.display()))?;
        let rest = to.strip_prefix(there).unwrap_or(Path::new(""));
        let failed = |error: std::io::Error| format!("{}: {error}", there.display());
        let there = there.canonicalize().map_err(failed)?;
        for folder in self.allowed.read().iter() {
            let Ok(folder) = folder.canonicalize() else { continue };
            // What is not there yet is made with the rights of this process.
            if there.starts_with(&folder) {
                let below = there.ancestors().take_while(|part| part.starts_with(&folder));
                below.into_iter().try_for_each(only_ours)?;
                return Ok(there.join(rest));
            }
        }
        Err(format!(
            "{}: a backup is written with the rights of the queue manager, so one that is not asked \
             for by its own user on the local socket (--data; in a group that of the active instance) \
             goes only into the folders of [backup] folders",
            to.display()
        ))
    }
}

/// Who can write into a folder can put a link there after it was looked at.
fn only_ours(folder: &Path) -> Result<(), String> {
    let metadata = folder.metadata().map_err(|error| format!("{}: {error}", folder.display()))?;
    let ours = metadata.uid() == rustix::process::geteuid().as_raw() || metadata.uid() == 0;
    if ours && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(format!(
        "{}: other users may write there; only folders of the queue manager's user, with mode 755 \
         or less, can be or lie in [backup] folders",
        folder.display()
    ))
}

/// How often it is asked; under load one or two are enough.
const TRIES: u32 = 10_000;

/// Makes a backup of the running queue manager `name`. Takes as long as copying takes.
/// `restricted`: not asked for by the user of this process, so it goes only into these folders.
///
/// # Errors
/// In words for the operator; the backup that was there before is as good as it was.
pub(crate) fn running(
    name: &str,
    door: &Door,
    images: &Images,
    (request, restricted): (&BackupRequest, Option<&Folders>),
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
    let Ok(_turn) = images.backup_turn.try_lock() else {
        return Err("another backup is being made".into());
    };
    let mut choices = Choices {
        full: request.full,
        keep_points: request.keep_images,
        queue_manager: Some(name.to_owned()),
        now: door.clock().wall(),
        instead: false,
        lacks: lacking::in_copy_with_notes,
    };
    let mut done = add(&mut backup, door, images, &choices)?;
    if is_repaired(door, &done.damaged) {
        // The next one has what was repaired, and takes the place of this one.
        let (bytes, files, full) = (done.bytes, done.files, done.full);
        (choices.full, choices.instead) = (false, true);
        done = add(&mut backup, door, images, &choices)?;
        (done.bytes, done.files, done.full) = (done.bytes + bytes, done.files + files, full);
    }
    Ok(BackupReply::of(&done, began))
}

/// A backup is no part of what it is to outlive: its folder may not lie in the log folder, wherever
/// links lead. What cannot be found out is found by the backup itself.
fn outside(to: &Path, log: &Path) -> Result<(), BackupError> {
    let there = to.ancestors().find_map(|part| part.canonicalize().ok());
    let inside = there.zip(log.canonicalize().ok());
    match inside.is_some_and(|(there, log)| there.starts_with(log)) {
        true => Err(BackupError::InLog { folder: to.to_owned(), log: log.to_owned() }),
        false => Ok(()),
    }
}

/// In a group, what is damaged here is fetched from the other instances. Whether any of it was.
fn is_repaired(door: &Door, damaged: &[DamagedBatch]) -> bool {
    let parts: Vec<BodyLocation> = damaged.iter().map(DamagedBatch::part).collect();
    !parts.is_empty() && door.repairs().is_some_and(|repairs| repairs.wait_for(parts))
}

/// Adds the log as it is now to a backup. What is copied is held meanwhile.
fn add(
    backup: &mut Backup,
    door: &Door,
    images: &Images,
    choices: &Choices,
) -> Result<Done, String> {
    let log = door.log();
    let (hold, _pages) = (log.hold(Lsn::ZERO), images.hold_pages());
    let taken = patiently(|| images.take(door).map_err(|error| error.to_string()))?;
    let source = patiently(|| {
        Source::running(&log, taken.at, taken.keep_from).map_err(|error| error.to_string())
    })?;
    let used = source.image().map_or_else(|| Ok(Vec::new()), pages_of)?;
    let extent_bytes = door.extent_bytes();
    let mut progress = |progress: Progress| {
        hold.only_from(Lsn(progress.extent.saturating_mul(extent_bytes)));
    };
    let rows = images.times().map(|times| times.rows()).unwrap_or_default();
    let pages = (Some(images.pages()), used.as_slice());
    let done = backup.add(&source, pages, &rows, choices, &mut progress);
    done.map_err(|error| error.to_string())
}

/// Asks until the log stands still for the moment that it takes.
pub(crate) fn patiently<T>(
    mut ask: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    for _ in 0..TRIES {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        std::thread::yield_now();
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
    // Extents that are gone are found before anything is copied, as a start finds them.
    if let Ok(missing) = lacking::look(data)
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
    let choices = Choices {
        full: request.full,
        keep_points: request.keep_images,
        queue_manager: crate::name::noted(data).ok().flatten(),
        now: wall_clock(),
        instead: false,
        lacks: lacking::in_copy_with_notes,
    };
    let rows = time_index::read(disk.as_ref())?;
    let mut told = |now: Progress| progress(now.done, now.all);
    let done = backup.add(&source, (pages.as_ref(), &used), &rows, &choices, &mut told)?;
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
    Backup::look(folder)?.check((&pages_of, lacking::in_copy), progress)
}

/// Checks the images and pages of the queue manager whose data is in `data`; safe beside a running
/// one, where a page of the older image may have been used again.
///
/// # Errors
/// What keeps them from being read at all.
pub fn check_images(data: &Path) -> Result<CheckReport, BackupError> {
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(&log_folder_of(data)?)?);
    towline_backup::check_newest_image(&disk, &pages_of)
}

fn log_folder_of(data: &Path) -> Result<PathBuf, BackupError> {
    let nothing = || BackupError::NoLog { folder: data.display().to_string() };
    crate::log_folder(data).ok().flatten().ok_or_else(nothing)
}

/// Restores a backup into a data folder, which must be empty. Notes there of which queue manager it
/// is, and yields that name, when the backup knows it.
///
/// # Errors
/// [`BackupError`].
pub fn restore(
    from: &Path,
    data: &Path,
    upto: Upto,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Restored, Option<String>), BackupError> {
    let backup = Backup::look(from)?;
    let mut told = |now: Progress| progress(now.done, now.all);
    let restored = towline_backup::restore_folder(&backup, data, upto, &mut told)?;
    let name = backup.manifest().and_then(|manifest| manifest.queue_manager.clone());
    if let Some(name) = &name
        && let Err(error) = crate::name::note(data, name)
    {
        // The first start names it.
        tracing::warn!(%error, "the name of the queue manager is not noted in its folder");
    }
    Ok((restored, name))
}

/// The pages that an image refers to.
pub(crate) fn pages_of(image: &Bytes) -> Result<Vec<PageRef>, String> {
    // The position comes first (`towline_node::ImagePlan::encode`).
    let snapshot = image.get(8..).ok_or("it is too short")?;
    let restored = QueueManager::restore(snapshot, Limits::default(), Trust::Whole);
    let restored = restored.map_err(|error| error.to_string())?;
    Ok(if restored.whole { restored.rules.pages().collect() } else { Vec::new() })
}

fn wall_clock() -> Time {
    Time::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

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
    fn a_backup_of_others_goes_only_where_the_configuration_allows() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (allowed, other) = (base.join("backups"), base.join("other"));
        for folder in [&allowed, &other, &allowed.join("there")] {
            std::fs::create_dir(folder).unwrap();
        }
        symlink(&other, allowed.join("away")).unwrap();
        symlink(&allowed, base.join("alias")).unwrap();
        symlink(base.join("nowhere"), allowed.join("dangling")).unwrap();
        let folders = Folders::new(&[base.join("missing"), base.join("alias")]);
        for to in ["backups", "backups/new", "backups/there/new/deep", "alias/new"] {
            let real = folders.judge(&base.join(to)).unwrap();
            assert!(real.starts_with(&allowed), "{}", real.display());
        }
        for to in [
            "other",
            "backups-2",
            "backups/../other",
            "backups/away",
            "backups/away/new",
            "backups/dangling",
            "backups/there/../../other",
            "",
        ] {
            assert!(folders.judge(&base.join(to)).is_err(), "{to}");
        }
        assert!(folders.judge(Path::new("backups/new")).is_err(), "not absolute");
        assert!(Folders::new(&[]).judge(&allowed).unwrap_err().contains("[backup] folders"));
        // One below that others may write is a way out: they can put a link there at any time.
        let theirs = allowed.join("there");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o777)).unwrap();
        for to in ["there", "there/new", "there/new/deep"] {
            let why = folders.judge(&allowed.join(to)).unwrap_err();
            assert!(why.contains("other users may write there"), "{to}: {why}");
        }
        std::fs::create_dir(theirs.join("ours")).unwrap();
        assert!(folders.judge(&theirs.join("ours")).is_err(), "the folder above is theirs");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o755)).unwrap();
        folders.judge(&theirs.join("ours")).unwrap();
        std::fs::set_permissions(&allowed, PermissionsExt::from_mode(0o777)).unwrap();
        let why = folders.judge(&allowed.join("new")).unwrap_err();
        assert!(why.contains("other users may write there"), "{why}");
    }
}
