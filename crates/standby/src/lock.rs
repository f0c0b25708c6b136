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
    // No other process may write it, nor remove it: what is linked would be a file that this one
    // has no lock of. The number of a process says nothing: in containers all are number 1.
    let own = u128::from_le_bytes(towline_process::random::bytes());
    let scratch = folder.join(format!("new-{name}-{own:032x}"));
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
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::FileSystem;

    use super::*;

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
