//! Locks that end with their process, whatever ends it: open file description locks (fcntl(2)).
//!
//! Not here: what is locked, and what it means. A lock is a hint that makes a takeover quick;
//! leases and folders make a lost lock harmless.
//!
//! Invariant: a file appears under its name only when it has its content and its lock.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use towline_os::fs::{self, File, OpenOptions, OpenOptionsExt, TryLockError};

/// Whether a living process has the lock of `file`.
///
/// # Errors
/// When the file system has no such locks.
pub(crate) fn is_held(file: &File) -> io::Result<bool> {
    fs::is_description_locked(file)
}

/// Takes the lock of a log folder that is not shared, together with other processes that want to
/// share it; `None`: an instance has it exclusively.
///
/// # Errors
/// What the operating system says.
pub(crate) fn share(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes the file `name` with `content`, locked by this process as long as what is returned lives.
/// If two processes try at once, one of them gets it, on every file system that has hard links.
/// `None`: it is there already.
///
/// # Errors
/// What the operating system says.
pub(crate) fn claim(folder: &Path, name: &str, content: &[u8]) -> io::Result<Option<File>> {
    loop {
        match claim_once(folder, name, content) {
            // An active instance took its file for one that a crash left, before it had its lock.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::try_exists(folder)? => {}
            claimed => return claimed,
        }
    }
}

fn claim_once(folder: &Path, name: &str, content: &[u8]) -> io::Result<Option<File>> {
    // No other process may write it, nor make another one of its name: what is linked would be a
    // file that this one has no lock of. The number of a process says nothing: in containers all
    // are number 1.
    let own = u128::from_le_bytes(towline_process::random::bytes());
    let scratch = folder.join(scratch_name(name, own));
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&scratch)?;
    let scratch = Scratch(scratch);
    fs::lock_description(&file)?;
    file.write_all(content)?;
    file.sync_all()?;
    match fs::hard_link(&scratch.0, folder.join(name)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(error),
    }
    drop(scratch);
    File::open(folder)?.sync_all()?;
    Ok(Some(file))
}

fn scratch_name(name: &str, own: u128) -> String {
    format!("{SCRATCH}{name}-{own:032x}")
}

const SCRATCH: &str = "new-";

/// The name that a claim was for, if this is that of its scratch file.
pub(crate) fn claimed_by(scratch: &str) -> Option<&str> {
    let (name, own) = scratch.strip_prefix(SCRATCH)?.rsplit_once('-')?;
    let is_drawn = own.len() == 32 && u128::from_str_radix(own, 16).is_ok();
    is_drawn.then_some(name)
}

/// Removes a scratch file that a crash left: no process has its lock. One that is about to lock it
/// makes another one.
///
/// # Errors
/// What the operating system says.
pub(crate) fn remove_abandoned(scratch: &Path) -> io::Result<()> {
    let removed = || -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(scratch)?;
        if is_held(&file)? { Ok(()) } else { fs::remove_file(scratch) }
    };
    match removed() {
        // Its claim has ended meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A name that goes.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, "a scratch file was gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{FileSystem, Verdict};
    use towline_os::sync::{Condvar, Mutex};

    use super::*;

    const LONG: Duration = Duration::from_secs(1);

    #[test]
    fn a_crash_or_a_power_cut_at_any_operation_of_a_claim_leaves_all_of_its_file_or_none() {
        let folder = Path::new("/epochs");
        let system = FileSystem::new();
        system.make_folder(folder);
        let claims = move || assert!(claim(folder, "one", b"first").unwrap().is_some());
        let runs = crash::at_each_operation(&system, 6, claims, |left, run| {
            let there = left.bytes(folder.join("one"));
            assert!(there.is_none_or(|bytes| bytes == b"first"), "{run}");
        });
        assert!(runs > 5 * 2 * 7, "{runs}");
    }

    #[test]
    fn what_a_crash_left_of_a_claim_is_removed_and_what_a_claim_uses_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = |own| folder.path().join(scratch_name("one", own));
        fs::write(scratch(7), b"left").unwrap();
        let used = File::create_new(scratch(8)).unwrap();
        fs::lock_description(&used).unwrap();
        for own in [7, 8, 9] {
            remove_abandoned(&scratch(own)).unwrap();
        }
        assert!(!fs::exists(scratch(7)) && fs::exists(scratch(8)));
        let name = scratch_name("one", 8);
        assert_eq!(claimed_by(&name), Some("one"));
        assert_eq!(claimed_by("new-one-8"), None);
        assert_eq!(claimed_by("new-log-00000000000000ff"), None);
    }

    #[test]
    fn a_claim_whose_file_is_removed_at_any_moment_is_made_all_the_same() {
        let folder = Path::new("/epochs");
        for number in 1.. {
            let system = FileSystem::new();
            assert!(system.make_folder(folder));
            let (removes, was_met) = (system.clone(), Arc::new(AtomicBool::new(false)));
            let met = Arc::clone(&was_met);
            system.set_faults(move |operation| {
                met.fetch_or(operation.number == number, Ordering::Relaxed);
                if operation.number == number { Verdict::Takes(LONG) } else { Verdict::Goes }
            });
            let claims = move || {
                let done = Arc::new((Mutex::new(false), Condvar::new()));
                let ended = Arc::clone(&done);
                let other = move || {
                    let (ended, ends) = ended.as_ref();
                    while !*ended.lock() {
                        ends.wait_for(&mut ended.lock(), LONG / 10);
                        for name in removes.names(folder) {
                            if claimed_by(&name).is_some() {
                                remove_abandoned(&folder.join(name)).unwrap();
                            }
                        }
                    }
                };
                let other = towline_os::thread::Builder::new().spawn(other).unwrap();
                let claimed = claim(folder, "one", b"first");
                *done.0.lock() = true;
                done.1.notify_all();
                drop(other.join());
                let file = claimed.unwrap().unwrap();
                let looked = File::open(folder.join("one")).unwrap();
                let is_held = is_held(&looked).unwrap();
                drop(file);
                is_held
            };
            assert!(crash::in_process(&system, number, claims).unwrap(), "operation {number}");
            if !was_met.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    #[test]
    fn a_name_is_claimed_once_and_its_lock_ends_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path(), "one", b"first").unwrap().unwrap();
        assert!(claim(folder.path(), "one", b"second").unwrap().is_none());
        let looked = File::open(folder.path().join("one")).unwrap();
        assert!(is_held(&looked).unwrap());
        drop(first);
        assert!(!is_held(&looked).unwrap());
        assert_eq!(fs::read(folder.path().join("one")).unwrap(), b"first");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no scratch file is left");
    }

    #[test]
    fn those_who_want_to_share_a_folder_exclude_only_who_has_it_for_himself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let ours = (share(&path).unwrap().unwrap(), share(&path).unwrap().unwrap());
        assert!(towline_log::LinuxDisk::open(folder.path()).is_err());
        drop(ours);
        let _theirs = towline_log::LinuxDisk::open(folder.path()).unwrap();
        assert!(share(&path).unwrap().is_none());
    }

    #[test]
    fn of_many_that_claim_at_once_one_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let name = format!("name-{round}");
            let claims = std::thread::scope(|scope| {
                let claims: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| claim(folder.path(), &name, b"x").unwrap()))
                    .collect();
                claims.into_iter().map(|claim| claim.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(claims.iter().flatten().count(), 1);
        }
    }
}
