//! What the disk tester makes in the tested folder goes again, in whatever way the tester ends.
//!
//! A second process, the guard, waits for the end of its standard input, which comes when the
//! tester is killed too, and removes what is left. Not here: what is made.
//!
//! Invariants: the guard runs before there is anything to guard; it removes no file unless its name
//! begins as ours do.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How all names begin that the disk tester makes.
const NAME: &str = "towline-disktest-";
/// How long our processes may take to end when the first one was killed.
const ENDING: Duration = Duration::from_secs(5);

/// The program itself, to be started once more as a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Itself<'a> {
    /// Where the program is.
    pub program: &'a Path,
    /// The argument before the name of the part.
    pub part: &'a str,
}

impl Itself<'_> {
    /// The command that starts a part. It has a process group of its own: Ctrl-C is for the first
    /// process.
    pub(crate) fn command(&self, part: &str, place: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.arg(self.part).arg(part).arg("--").arg(place);
        command.stdin(Stdio::piped()).process_group(0);
        command
    }
}

/// A name in the tested folder. What has it is removed when this is dropped, and when the process
/// ends.
#[derive(Debug)]
pub(crate) struct GuardedName {
    folder: PathBuf,
    path: PathBuf,
    guard: Child,
}

impl GuardedName {
    /// A name that no file has; `what` is a part of it. Makes nothing.
    ///
    /// # Errors
    /// No such folder; a guard that cannot be started.
    pub(crate) fn new(folder: &Path, what: &str, itself: Itself<'_>) -> io::Result<GuardedName> {
        let number = getrandom::u64().map_err(io::Error::other)?;
        let folder = fs::canonicalize(folder)?;
        let path = folder.join(format!("{NAME}{what}-{}-{number:016x}", std::process::id()));
        let mut command = itself.command("guard", &path);
        let guard = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(GuardedName { folder, path, guard })
    }

    /// The name, from the root.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the name itself durable.
    ///
    /// # Errors
    /// Of the sync.
    pub(crate) fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for GuardedName {
    fn drop(&mut self) {
        remove(&self.path).ok();
        drop(self.guard.stdin.take());
        self.guard.wait().ok();
    }
}

/// Body of the guard.
///
/// # Errors
/// When something is there and cannot be removed.
pub(crate) fn run(path: &Path) -> io::Result<()> {
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    remove(path)
}

/// Removes a file, or a folder with all in it. What is gone already is fine.
fn remove(path: &Path) -> io::Result<()> {
    let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME));
    if !is_ours {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name of ours"));
    }
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => remove_folder(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Ok(()),
    }
}

/// Removes a folder in which others of our processes may still make files: they end with the first
/// one, but not at the same moment.
fn remove_folder(path: &Path) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match fs::remove_dir_all(path) {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty && began.elapsed() < ENDING => {
            }
            removed => return removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (folder.path().join("towline-disktest-x"), folder.path().join("log"));
        fs::write(&ours, "").unwrap();
        fs::write(&other, "").unwrap();
        remove(&ours).unwrap();
        remove(&ours).unwrap();
        assert!(remove(&other).is_err());
        assert!(!ours.exists() && other.exists());
        fs::create_dir(&ours).unwrap();
        fs::write(ours.join("inner"), "").unwrap();
        remove(&ours).unwrap();
        assert!(!ours.exists());
    }
}
