//! Programs of another version: ours with its number changed in a copy. That it is another is what
//! it says of itself, and what it does is the same.
//!
//! Not here: data of other versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::said;
use crate::{Try, paths, require};

/// The version of a program.
///
/// # Errors
/// When it says none.
pub fn version(program: &Path) -> Try<String> {
    let output = Command::new(program).arg("--version").output()?;
    let words = said(&output);
    let version = words.trim().strip_prefix("towline ").ok_or_else(|| format!("{words:?}"))?;
    Ok(version.to_owned())
}

/// A copy of our program that says to be of the next version, in `folder`; and that version.
///
/// # Errors
/// When the number cannot be changed.
pub fn next_version(folder: &Path) -> Try<(PathBuf, String)> {
    let ours = paths::towline()?;
    let old = version(&ours)?;
    let last = old.bytes().next_back().ok_or("no version")?;
    require!(last.is_ascii_digit(), "{old}");
    let new = format!("{}{}", &old[..old.len() - 1], if last == b'9' { '8' } else { '9' });
    let mut bytes = fs::read(&ours)?;
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(old.len()).position(|part| part == old.as_bytes()) {
        at += found;
        bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
        at += new.len();
    }
    let path = folder.join("towline-next");
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::metadata(&ours)?.permissions())?;
    require!(version(&path)? == new, "the number of the version could not be changed");
    Ok((path, new))
}
