//! Where things are: the daemon's binary and the programs that `tests/install.sh` made.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::{Try, fail};

/// The cargo target folder that this test, or program, runs from.
///
/// # Errors
/// When its own path is not below a target folder.
pub fn target_folder() -> Try<PathBuf> {
    let exe = env::current_exe()?;
    // target/PROFILE/deps/TEST, or target/PROFILE/PROGRAM
    let is_test = exe.parent().is_some_and(|folder| folder.ends_with("deps"));
    match exe.ancestors().nth(if is_test { 3 } else { 2 }) {
        Some(folder) => Ok(folder.to_path_buf()),
        None => fail!("{} is not below a target folder", exe.display()),
    }
}

/// The daemon: `TOWLINE_BIN`, or the newer one of `target/release/towline` and
/// `target/debug/towline`.
///
/// # Errors
/// When there is none; the text says how to make one.
pub fn towline() -> Try<PathBuf> {
    if let Some(path) = env::var_os("TOWLINE_BIN") {
        return Ok(path.into());
    }
    let target = target_folder()?;
    let newest = ["release", "debug"]
        .iter()
        .map(|profile| target.join(profile).join("towline"))
        .filter_map(|path| Some((modified(&path)?, path)))
        .max();
    match newest {
        Some((_, path)) => Ok(path),
        None => fail!("no towline in {}; cargo build --release first", target.display()),
    }
}

/// A program or folder that `tests/install.sh` made, by its path below `target/e2e`.
///
/// # Errors
/// When it is not there; the text says how to make it.
pub fn installed(part: &str) -> Try<PathBuf> {
    let path = target_folder()?.join("e2e").join(part);
    if path.exists() {
        return Ok(path);
    }
    fail!("{} is missing; run tests/install.sh", path.display())
}

/// libfaketime for programs with threads, as Debian installs it.
///
/// # Errors
/// When it is not there; the text says how to get it.
pub fn faketime() -> Try<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib")?.filter_map(Result::ok);
    let mut paths = folders.map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    match paths.find(|path| path.exists()) {
        Some(path) => Ok(path),
        None => fail!("libfaketime is missing; run tests/install.sh"),
    }
}

/// The folder of this crate: sources of the client programs.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Copies the folders and files in a folder; not what is neither.
///
/// # Errors
/// What the disk said.
pub fn copy_folder(from: &Path, to: &Path) -> Try {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
