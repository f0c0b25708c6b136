//! Replaces the log by a copy: at a start, before the log is opened. Not earlier, because the
//! threads of a running log use paths in its folder.
//!
//! ```text
//! the process that takes the copy      copy/log is whole and synced
//!                                      group-state: a copy comes          (synced)
//!                                      copy/log -> log.new                (folder synced), re-executes
//! the next start                       log      -> log.replaced
//!                                      log.new  -> log                    (folder synced), opens log
//!                                      log.replaced, copy are removed
//! ```
//!
//! A crash between any two steps leaves the old log or the new one, and the next start goes on
//! where this one ended. Not here: the transfer of a copy (`copy`).
//!
//! Invariants: `log.new` is whole; `log` is not renamed while a process has it; the old log stays
//! until the new one was opened well.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use towline_group::HardState;
use towline_log::{LinuxDisk, LogError};
use towline_os::fs::{self, File};

use crate::hard_state_file::HardStateFile;
use crate::incarnation;

const LOG: &str = "log";
const NEW: &str = "log.new";
const OLD: &str = "log.replaced";
/// Where a copy is made.
pub(crate) const COPY: &str = "copy";

/// Why a copy does not replace the log.
#[derive(Debug)]
pub enum SwapError {
    /// Another process has the log.
    Log(LogError),
    /// What the system said of the data folder.
    Folder(std::io::Error),
}

/// A copy is whole in `made/log`: the next start takes it, with `hard_state`, which says whether it
/// votes. `drawn` is a random number, from which the copy gets its incarnation.
///
/// # Errors
/// What the system said: the log is as it was.
pub fn hand_in(
    data: &Path,
    made: &Path,
    hard_state: &HardState,
    drawn: u64,
) -> std::io::Result<()> {
    let log = made.join(LOG);
    incarnation::expect_copy(&log, &HardStateFile::of(data), hard_state, drawn)?;
    fs::rename(log, data.join(NEW))?;
    File::open(data)?.sync_all()
}

/// Whether a copy was handed in, which the next start takes. What cannot be looked at may be one.
pub(crate) fn has_copy(data: &Path) -> bool {
    fs::try_exists(data.join(NEW)).unwrap_or(true)
}

/// Takes the copy that was handed in, if there is one, and goes on with what an earlier start
/// began. The file `of_old_log` goes with the old log.
///
/// # Errors
/// [`SwapError`]: the next start tries again.
pub fn settle(data: &Path, of_old_log: &str) -> Result<(), SwapError> {
    let log = data.join(LOG);
    let new = data.join(NEW);
    let old = data.join(OLD);
    // Taken for absent because the disk fails for a moment, the copy would replace what the old log
    // gets from this process on.
    let is_there = |path: &Path| fs::try_exists(path).map_err(SwapError::Folder);
    if !is_there(&new)? {
        // `log.replaced` alone is what was not removed in time: its log may lack files. An operator
        // that sets `log` aside meanwhile wants a copy of the group, and not that.
        return Ok(());
    }
    // Two processes that start at once: the second one finds everything done.
    let folder = File::open(data).map_err(SwapError::Folder)?;
    folder.lock().map_err(SwapError::Folder)?;
    let in_place = || -> std::io::Result<()> {
        // It lacks a name only when `log` got its own.
        rename_if_there(&new, &log)?;
        remove_file_if_there(&data.join(of_old_log))
    };
    if is_there(&log)? && is_there(&new)? {
        let _held = LinuxDisk::open(&log).map_err(SwapError::Log)?;
        let set_aside = || -> std::io::Result<()> {
            remove_folder_if_there(&old)?;
            fs::rename(&log, &old)
        };
        set_aside().map_err(SwapError::Folder)?;
    }
    if !is_there(&log)? {
        in_place().and_then(|()| folder.sync_all()).map_err(SwapError::Folder)?;
    }
    Ok(())
}

/// The log was opened well: removes what a copy left, whole or not.
pub fn clear_up(data: &Path) {
    for left in [OLD, COPY] {
        if let Err(error) = remove_folder_if_there(&data.join(left)) {
            // Only its free space is missed.
            tracing::warn!(%error, left, "what a copy left cannot be removed");
        }
    }
}

/// An empty folder for a copy.
///
/// # Errors
/// What the system said.
pub fn begin(data: &Path) -> std::io::Result<PathBuf> {
    let made = data.join(COPY);
    remove_folder_if_there(&made)?;
    fs::create_dir_all(made.join(LOG))?;
    Ok(made)
}

fn rename_if_there(from: &Path, to: &Path) -> std::io::Result<()> {
    absent_is_well(fs::rename(from, to))
}

fn remove_file_if_there(path: &Path) -> std::io::Result<()> {
    absent_is_well(fs::remove_file(path))
}

fn remove_folder_if_there(path: &Path) -> std::io::Result<()> {
    absent_is_well(fs::remove_dir_all(path))
}

fn absent_is_well(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;
    use crate::membership::Membership;

    /// A file of the old log.
    const MARKER: &str = "rebuild-queues";
    const ME: Membership = Membership { member: towline_group::MemberId(1), members_count: 3 };

    /// A data folder with an old log and a copy that is whole.
    fn with_copy() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        fs::create_dir(data.join(LOG)).unwrap();
        fs::write(data.join(LOG).join("which"), "old").unwrap();
        fs::write(data.join(MARKER), "").unwrap();
        let hard_state =
            HardState { term: 4, may_vote: true, committed: 9, ..HardState::default() };
        HardStateFile::of(data).write(&hard_state).unwrap();
        let made = begin(data).unwrap();
        fs::write(made.join(LOG).join("which"), "new").unwrap();
        folder
    }

    fn which(data: &Path) -> String {
        fs::read_to_string(data.join(LOG).join("which")).unwrap()
    }

    fn votes(data: &Path) -> bool {
        HardStateFile::of(data).read().unwrap().unwrap().may_vote
    }

    /// Hands the copy in, with or without a vote.
    fn come(data: &Path, with_vote: bool) {
        let hard_state = HardStateFile::of(data).read().unwrap().unwrap();
        let hard_state = if with_vote { hard_state } else { hard_state.without_vote() };
        hand_in(data, &data.join(COPY), &hard_state, 4_711).unwrap();
    }

    #[test]
    fn a_copy_that_bears_out_what_was_promised_votes_and_so_does_the_log_before_it() {
        let folder = with_copy();
        let data = folder.path();
        let file = HardStateFile::of(data);
        incarnation::renew(data, &file, &file.read().unwrap().unwrap(), ME, 7).unwrap();
        let is_own = || incarnation::is_own(data, HardStateFile::of(data).mark().unwrap()).unwrap();
        come(data, true);
        assert_eq!((which(data).as_str(), votes(data), is_own()), ("old", true, true));
        settle(data, MARKER).unwrap();
        assert_eq!((which(data).as_str(), votes(data), is_own()), ("new", true, true));
        fs::remove_dir_all(data.join(LOG)).unwrap();
        fs::create_dir(data.join(LOG)).unwrap();
        assert!(!is_own(), "an empty log cannot pass for it");
    }

    #[test]
    fn the_old_log_is_untouched_until_the_next_start_and_one_without_a_vote_gives_none() {
        let folder = with_copy();
        let data = folder.path();
        come(data, false);
        assert_eq!((which(data).as_str(), votes(data)), ("old", false));
        let hard_state = HardStateFile::of(data).read().unwrap().unwrap();
        assert_eq!((hard_state.term, hard_state.committed), (4, 9), "votes and what is owed stay");
        assert!(hard_state.knows_term, "a copy takes no promise with it");
        settle(data, MARKER).unwrap();
        assert_eq!((which(data).as_str(), votes(data)), ("new", false));
        assert!(!data.join(MARKER).exists(), "it was of the old log");
        assert!(data.join(OLD).exists(), "until the new one was opened well");
        clear_up(data);
        let left: Vec<_> =
            [OLD, NEW, COPY].into_iter().filter(|it| data.join(it).exists()).collect();
        assert_eq!((left, which(data).as_str()), (Vec::new(), "new"));
    }

    /// Makes a state of a data folder.
    type State = fn(&Path);

    #[test]
    fn a_crash_at_any_step_leaves_one_whole_log_and_the_next_start_goes_on() {
        // Each state that can be there when a process ends, and what the next start makes of it.
        let states: [(&str, State, &str, bool); 6] = [
            ("a copy on its way", |_| {}, "old", true),
            (
                "the vote is gone, the copy is not handed in",
                |data| {
                    let file = HardStateFile::of(data);
                    file.write(&HardState { may_vote: false, ..file.read().unwrap().unwrap() })
                        .unwrap();
                },
                "old",
                false,
            ),
            ("it is handed in", |data| come(data, false), "new", false),
            ("it is handed in with a vote", |data| come(data, true), "new", true),
            (
                "what an earlier copy left is in the way",
                |data| {
                    come(data, false);
                    fs::create_dir_all(data.join(OLD).join("more")).unwrap();
                },
                "new",
                false,
            ),
            (
                "the old log is set aside",
                |data| {
                    come(data, false);
                    fs::rename(data.join(LOG), data.join(OLD)).unwrap();
                },
                "new",
                false,
            ),
        ];
        for (name, state, log, vote) in states {
            let folder = with_copy();
            let data = folder.path();
            state(data);
            for _ in 0..2 {
                settle(data, MARKER).unwrap();
                assert_eq!((which(data).as_str(), votes(data)), (log, vote), "{name}");
            }
            clear_up(data);
            assert!(!data.join(OLD).exists() && !data.join(COPY).exists(), "{name}");
            assert_eq!(which(data), log, "{name}");
        }
    }

    #[test]
    fn a_disk_that_cannot_be_looked_at_for_a_moment_neither_hides_a_copy_nor_takes_one() {
        let folder = with_copy();
        let data = folder.path();
        let (state, aside) = (data.join("group-state"), data.join("aside"));
        fs::rename(&state, &aside).unwrap();
        fs::create_dir(&state).unwrap();
        let hard_state = HardState { term: 4, ..HardState::default() };
        hand_in(data, &data.join(COPY), &hard_state, 4_711).unwrap_err();
        assert!(!data.join(NEW).exists() && which(data) == "old");
        fs::remove_dir(&state).unwrap();
        fs::rename(&aside, &state).unwrap();
        come(data, false);
        for hidden in [NEW, LOG] {
            fs::rename(data.join(hidden), &aside).unwrap();
            std::os::unix::fs::symlink(data.join(hidden), data.join(hidden)).unwrap();
            assert!(matches!(settle(data, MARKER), Err(SwapError::Folder(_))), "{hidden}");
            fs::remove_file(data.join(hidden)).unwrap();
            fs::rename(&aside, data.join(hidden)).unwrap();
        }
        settle(data, MARKER).unwrap();
        assert_eq!(which(data), "new");
    }

    #[test]
    fn what_is_left_of_a_replaced_log_is_not_taken_when_the_log_is_set_aside() {
        let folder = with_copy();
        let data = folder.path();
        come(data, false);
        settle(data, MARKER).unwrap();
        // Neither removed nor whole, as after a power cut in the middle of it.
        assert!(data.join(OLD).is_dir());
        fs::rename(data.join(LOG), data.join("log-before-replace")).unwrap();
        settle(data, MARKER).unwrap();
        assert!(!data.join(LOG).exists());
        clear_up(data);
        assert!(!data.join(OLD).exists());
    }

    #[test]
    fn a_crash_or_a_power_cut_at_any_operation_leaves_one_whole_log_with_its_vote() {
        let data = Path::new("/data");
        for with_vote in [false, true] {
            let system = FileSystem::new();
            for (log, name) in [("log", "old"), ("copy/log", "new")] {
                system.put(data.join(log).join("which"), name.as_bytes());
                system.put(data.join(log).join("more"), name.as_bytes());
            }
            system.put(data.join(MARKER), b"");
            let starts = move || {
                let file = HardStateFile::of(data);
                let hard_state = HardState { term: 4, may_vote: true, ..HardState::default() };
                file.write(&hard_state).unwrap();
                incarnation::renew(data, &file, &hard_state, ME, 7).unwrap();
            };
            crash::in_process(&system, 1, starts).unwrap();
            system.sync();
            let swaps = move || {
                come(data, with_vote);
                settle(data, MARKER).unwrap();
                clear_up(data);
            };
            let runs = crash::at_each_operation(&system, 6, swaps, |left, run| {
                for _ in 0..2 {
                    let settled = crash::in_process(left, 1, move || {
                        settle(data, MARKER).unwrap();
                        let file = HardStateFile::of(data);
                        let is_own = incarnation::is_own(data, file.mark().unwrap()).unwrap();
                        clear_up(data);
                        (file.read().unwrap().unwrap().may_vote, is_own)
                    });
                    let (votes, is_own) = settled.unwrap();
                    let which = left.bytes(data.join(LOG).join("which")).unwrap();
                    assert_eq!(left.bytes(data.join(LOG).join("more")).unwrap(), which, "{run}");
                    assert!(is_own, "{run}");
                    let must_not = which == b"new" && !with_vote;
                    assert!(!(votes && must_not) && (votes || !with_vote), "{run}");
                    assert!(which == b"new" || left.has(data.join(MARKER)), "{run}");
                }
            });
            assert!(runs > 40 * 2 * 7, "{runs}");
        }
    }

    #[test]
    fn a_copy_that_cannot_be_announced_is_not_handed_in() {
        let folder = with_copy();
        let data = folder.path();
        let hard_state = HardStateFile::of(data).read().unwrap().unwrap();
        // A start would take the copy beside promises that were made for the log before it.
        fs::remove_file(data.join("group-state")).unwrap();
        fs::create_dir(data.join("group-state")).unwrap();
        for hard_state in [hard_state, hard_state.without_vote()] {
            hand_in(data, &data.join(COPY), &hard_state, 4_711).unwrap_err();
            assert!(!data.join(NEW).exists());
        }
    }

    #[test]
    fn a_log_that_a_process_has_is_not_renamed() {
        let folder = with_copy();
        let data = folder.path();
        come(data, false);
        let held = LinuxDisk::open(&data.join(LOG)).unwrap();
        assert!(matches!(settle(data, MARKER), Err(SwapError::Log(_))));
        assert_eq!(which(data), "old");
        drop(held);
        settle(data, MARKER).unwrap();
        assert_eq!(which(data), "new");
    }

    #[test]
    fn a_folder_without_a_log_stays_without_one() {
        let folder = tempfile::tempdir().unwrap();
        settle(folder.path(), MARKER).unwrap();
        assert!(!folder.path().join(LOG).exists());
        settle(&folder.path().join("none"), MARKER).unwrap();
    }
}
