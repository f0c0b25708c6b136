//! What the holder of a new epoch does before it may open its log: a folder of its own, made from
//! the newest one that is finished.
//!
//! Not here: which process gets the epoch; opening the log.
//!
//! 1. `new-log-*` that no process will finish are removed;
//! 2. `new-log-<n>` is made and filled from the newest `log-<m>` (or `log`): what its owner could
//!    still write is copied;
//! 3. it is renamed to `log-<n>`: from here on it is the newest log.
//!
//! Invariants: no file of the old folder that holds log is removed; a holder that is interrupted,
//! in any step, leaves a folder from which the holder of the next epoch can do the same; a holder
//! that lost its lease cannot undo what a later one did, because its number is lower.

use std::io;
use std::path::{Path, PathBuf};

use towline_log::succession::{self, Succession};
use towline_log::{LogError, REBUILD_MARKER, mark_rebuild};
use towline_os::fs;

use crate::epochs::{self, Epochs};
use crate::error::FolderError;
use crate::lock;
use crate::record::LeaseRecord;
use towline_process::folder;

/// Enough for a lease, two folders and their names, on any file system.
const FREE_SPACE_BYTES: usize = 256 * 1024;

/// Where a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The epoch is ours.
    Begun,
    /// Nothing is left of earlier ones that were not finished.
    Cleared,
    /// The new folder is there, empty.
    Made,
    /// It has all files of the log.
    Filled,
    /// And the marker that says whether pages can be trusted.
    Marked,
    /// It has its name.
    Named,
    /// The name is durable.
    Done,
}

/// The log folder that a takeover made.
#[derive(Debug)]
pub(crate) struct NewLogFolder {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The folder that it was made from.
    pub(crate) base: Option<PathBuf>,
    pub(crate) succession: Succession,
}

/// Makes the log folder of `epoch`. `passed` is called after each step, and ends it with an error.
/// `window_bytes`: see [`LeaseRecord::window_bytes`], where the old owner did not say.
///
/// # Errors
/// What the operating system says; that a later epoch has come.
pub(crate) fn take_over(
    data: &Path,
    epoch: u64,
    window_bytes: u64,
    passed: &mut dyn FnMut(Step) -> io::Result<()>,
) -> Result<NewLogFolder, FolderError> {
    let failed = FolderError::Io;
    passed(Step::Begun).map_err(failed)?;
    let found = Epochs::list(data).map_err(failed)?;
    // From here on we deal with folders of lower numbers only: their owners have no lease any more.
    check_newest(&found, data, epoch)?;
    for old in found.new_logs.iter().filter(|old| **old <= epoch) {
        remove_folder(&data.join(epochs::new_log_name(*old))).map_err(failed)?;
    }
    passed(Step::Cleared).map_err(failed)?;
    let new = data.join(epochs::new_log_name(epoch));
    folder::make(&new).map_err(failed)?;
    passed(Step::Made).map_err(failed)?;
    let base = found.log_folder(data);
    let window = match found.logs.last() {
        Some(owner) => window_of(data, *owner).map_err(failed)?.max(window_bytes),
        None => window_bytes,
    };
    let succession = base.as_deref().map(|base| fill(base, &new, window));
    let succession = succession.unwrap_or_else(|| Ok(Succession::default()))?;
    passed(Step::Filled).map_err(failed)?;
    let is_marked = || fs::try_exists(data.join(REBUILD_MARKER)).map_err(failed);
    if found.logs.is_empty() && is_marked()? {
        mark_rebuild(&new.join(REBUILD_MARKER)).map_err(failed)?;
    }
    passed(Step::Marked).map_err(failed)?;
    let named = data.join(epochs::log_name(epoch));
    still_newest(data, epoch)?;
    fs::rename(&new, &named).map_err(failed)?;
    passed(Step::Named).map_err(failed)?;
    folder::sync(data).map_err(failed)?;
    still_newest(data, epoch)?;
    passed(Step::Done).map_err(failed)?;
    Ok(NewLogFolder { folder: named, base, succession })
}

fn fill(base: &Path, new: &Path, window_bytes: u64) -> Result<Succession, FolderError> {
    match succession::succeed(base, new, window_bytes) {
        // Gets must be served on a full disk: the reserve of the old owner is free space.
        Err(error) if error.is_full() => {
            remove_folder(new).map_err(FolderError::Io)?;
            succession::make_room(base).map_err(FolderError::Log)?;
            folder::make(new).map_err(FolderError::Io)?;
            succession::succeed(base, new, window_bytes).map_err(FolderError::Log)
        }
        done => done.map_err(FolderError::Log),
    }
}

/// How far apart the writes of the owner of a log folder can be, bytes; 0 if its record was removed
/// or does not say.
fn window_of(data: &Path, owner: u64) -> io::Result<u64> {
    match fs::read(data.join(epochs::epoch_name(owner))) {
        Ok(content) => Ok(LeaseRecord::decode(&content).map_or(0, |record| record.window_bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        // A window that is too small would leave extents to an old owner that still writes.
        Err(error) => Err(error),
    }
}

fn still_newest(data: &Path, epoch: u64) -> Result<(), FolderError> {
    check_newest(&Epochs::list(data).map_err(FolderError::Io)?, data, epoch)
}

fn check_newest(found: &Epochs, data: &Path, epoch: u64) -> Result<(), FolderError> {
    if found.newest() == Some(epoch) {
        return Ok(());
    }
    Err(FolderError::Log(LogError::Locked { folder: data.to_owned(), pid: None }))
}

/// Keeps a little free space in the data folder, for the process that claims the next epoch on a
/// full disk.
///
/// # Errors
/// What the operating system says.
pub(crate) fn keep_free_space(data: &Path) -> io::Result<()> {
    let place = data.join(epochs::FREE_SPACE_NAME);
    if fs::metadata(&place).is_ok_and(|found| found.len() == FREE_SPACE_BYTES as u64) {
        return Ok(());
    }
    fs::write(&place, vec![0; FREE_SPACE_BYTES])?;
    fs::File::open(place)?.sync_all()
}

/// Removes the folders and leases of epochs before `epoch`, whose log folder is in use, and what
/// claims left that a crash ended. What cannot be removed stays.
pub(crate) fn tidy(data: &Path, epoch: u64) {
    let found = match Epochs::list(data) {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "what earlier instances left cannot be listed");
            return;
        }
    };
    let older = |numbers: &[u64], name: fn(u64) -> String| -> Vec<PathBuf> {
        let older = numbers.iter().filter(|number| **number < epoch);
        older.map(|number| data.join(name(*number))).collect()
    };
    let mut folders = older(&found.logs, epochs::log_name);
    folders.extend(older(&found.new_logs, epochs::new_log_name));
    if found.has_single_log {
        folders.push(data.join(epochs::SINGLE_LOG));
    }
    let files = older(&found.epochs, epochs::epoch_name);
    let removed = folders.iter().map(|folder| (folder, remove_folder(folder)));
    let removed = removed.chain(files.iter().map(|file| (file, fs::remove_file(file))));
    let scratches: Vec<PathBuf> = found.scratches.iter().map(|name| data.join(name)).collect();
    let removed = removed.chain(scratches.iter().map(|file| (file, lock::remove_abandoned(file))));
    for (place, result) in removed {
        if let Err(error) = result {
            tracing::warn!(%error, place = %place.display(), "what is not needed stays");
        }
    }
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;

    const STEPS: [Step; 7] = [
        Step::Begun,
        Step::Cleared,
        Step::Made,
        Step::Filled,
        Step::Marked,
        Step::Named,
        Step::Done,
    ];

    fn make(folder: &Path, files: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        for name in files {
            fs::write(folder.join(name), format!("{name} content")).unwrap();
        }
    }

    fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    fn claim(data: &Path, epoch: u64) {
        fs::write(data.join(epochs::epoch_name(epoch)), b"").unwrap();
    }

    /// Takes over up to `last`, where it crashes.
    fn crash_after(data: &Path, epoch: u64, last: Step) {
        let mut passed = |step: Step| match step == last {
            true => Err(io::Error::other("crash")),
            false => Ok(()),
        };
        take_over(data, epoch, 0, &mut passed).unwrap_err();
    }

    fn takes(data: &Path, epoch: u64) -> Result<NewLogFolder, FolderError> {
        take_over(data, epoch, 0, &mut |_| Ok(()))
    }

    const FILES: [&str; 3] = ["image-0000000000000001", "pages", "times"];

    #[test]
    fn after_a_crash_in_any_step_the_next_holder_finds_the_whole_log() {
        for base in ["log", "log-0000000000000003"] {
            for last in STEPS {
                let folder = tempfile::tempdir().unwrap();
                let data = folder.path();
                make(&data.join(base), &FILES);
                claim(data, 4);
                let before = content(&data.join(base));
                crash_after(data, 4, last);
                assert_eq!(
                    content(&data.join(base)),
                    before,
                    "{last:?}: the old folder is as it was"
                );
                claim(data, 5);
                let taken = takes(data, 5).unwrap();
                assert_eq!(content(&taken.folder), before, "{last:?}");
                let named = matches!(last, Step::Named | Step::Done);
                let wanted = if named { "log-0000000000000004" } else { base };
                assert_eq!(taken.base, Some(data.join(wanted)), "{last:?}");
                tidy(data, 5);
                let left = Epochs::list(data).unwrap();
                let wanted = Epochs { epochs: vec![5], logs: vec![5], ..Epochs::default() };
                assert_eq!(left, wanted, "{last:?}");
                assert_eq!(content(&taken.folder), before, "{last:?}");
            }
        }
    }

    #[test]
    fn after_a_crash_or_a_power_cut_at_any_operation_the_next_holder_finds_the_whole_log() {
        let data = Path::new("/data");
        for base in ["log", "log-0000000000000003"] {
            let system = FileSystem::new();
            for name in FILES {
                system.put(data.join(base).join(name), name.as_bytes());
            }
            system.put(data.join(epochs::epoch_name(4)), b"");
            let whole = FILES.map(|name| (name.to_owned(), name.as_bytes().to_vec()));
            let takes_over = move || {
                takes(data, 4).unwrap();
                tidy(data, 4);
            };
            let runs = crash::at_each_operation(&system, 6, takes_over, |left, run| {
                left.put(data.join(epochs::epoch_name(5)), b"");
                let taken = crash::in_process(left, 1, move || {
                    let taken = takes(data, 5).unwrap();
                    tidy(data, 5);
                    (content(&taken.folder), Epochs::list(data).unwrap())
                });
                let (content, epochs) = taken.unwrap();
                assert_eq!(content, BTreeMap::from(whole.clone()), "{run}");
                let wanted = Epochs { epochs: vec![5], logs: vec![5], ..Epochs::default() };
                assert_eq!(epochs, wanted, "{run}");
            });
            assert!(runs > 30 * 2 * 7, "{runs}");
        }
    }

    #[test]
    fn two_crashes_one_after_the_other_lose_nothing() {
        for first in STEPS {
            for second in STEPS {
                let folder = tempfile::tempdir().unwrap();
                let data = folder.path();
                make(&data.join("log"), &FILES);
                let before = content(&data.join("log"));
                for (epoch, last) in [(1, first), (2, second)] {
                    claim(data, epoch);
                    crash_after(data, epoch, last);
                }
                claim(data, 3);
                let taken = takes(data, 3).unwrap();
                assert_eq!(content(&taken.folder), before, "{first:?} {second:?}");
            }
        }
    }

    #[test]
    fn a_process_that_was_stopped_in_any_step_changes_nothing_when_it_wakes() {
        for stopped in STEPS {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path();
            make(&data.join("log-0000000000000001"), &FILES);
            claim(data, 2);
            let mut later = None;
            let mut passed = |step: Step| {
                if step == stopped {
                    // Meanwhile the lease expired, and another instance is active.
                    claim(data, 3);
                    let taken = takes(data, 3).unwrap();
                    fs::write(taken.folder.join("pages"), b"newer").unwrap();
                    tidy(data, 3);
                    later = Some(content(&taken.folder));
                }
                Ok(())
            };
            let woken = take_over(data, 2, 0, &mut passed);
            assert_eq!(woken.is_ok(), stopped == Step::Done, "{stopped:?}");
            let newest = Epochs::list(data).unwrap().log_folder(data).unwrap();
            assert_eq!(newest, data.join(epochs::log_name(3)), "{stopped:?}");
            assert_eq!(Some(content(&newest)), later, "{stopped:?}");
        }
    }

    #[test]
    fn a_new_data_folder_begins_with_an_empty_log_folder() {
        let folder = tempfile::tempdir().unwrap();
        claim(folder.path(), 1);
        let taken = takes(folder.path(), 1).unwrap();
        assert!(taken.base.is_none() && content(&taken.folder).is_empty());
        assert_eq!(taken.succession, Succession::default());
    }

    #[test]
    fn what_a_crash_left_of_claims_is_removed_and_files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let random = "0123456789abcdef0123456789abcdef";
        let left =
            [format!("new-epoch-0000000000000003-{random}"), format!("new-standby-a_7-{random}")];
        let others = [format!("new-thing-{random}"), "new-standby-a_7".to_owned()];
        for name in left.iter().chain(&others) {
            fs::write(data.join(name), b"x").unwrap();
        }
        tidy(data, 3);
        let there = |name: &String| data.join(name).exists();
        assert!(!left.iter().any(there) && others.iter().all(there));
    }

    #[test]
    fn a_rebuild_marker_that_cannot_be_looked_at_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join(REBUILD_MARKER);
        std::os::unix::fs::symlink(&marker, &marker).unwrap();
        claim(folder.path(), 1);
        takes(folder.path(), 1).unwrap_err();
        fs::remove_file(&marker).unwrap();
        takes(folder.path(), 1).unwrap();
    }

    #[test]
    fn the_rebuild_marker_is_passed_on_to_the_new_folder() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        make(&data.join("log"), &["pages"]);
        fs::write(data.join(REBUILD_MARKER), b"").unwrap();
        claim(data, 1);
        assert!(takes(data, 1).unwrap().folder.join(REBUILD_MARKER).exists());
        claim(data, 2);
        assert!(takes(data, 2).unwrap().folder.join(REBUILD_MARKER).exists());
        // The marker beside the folders is that of the instance without a lease.
        fs::remove_file(data.join(epochs::log_name(2)).join(REBUILD_MARKER)).unwrap();
        claim(data, 3);
        assert!(!takes(data, 3).unwrap().folder.join(REBUILD_MARKER).exists());
    }
}
