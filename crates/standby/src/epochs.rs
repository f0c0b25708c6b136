//! The names in a shared data folder, and what they mean.
//!
//! ```text
//! epoch-<n>       the holder of epoch n and its lease: made once, by the process that gets it
//! log-<n>         the log folder that the holder of epoch n made for itself: the highest n counts
//! new-log-<n>     the same, not finished
//! log             the log folder of an instance without a lease: epoch 1 starts from it
//! room            a file that a takeover on a full disk removes to get free space
//! standby-<name>  a process that stands by, as long as its lock is held
//! new-<name>-<r>  an epoch or standby file that is not finished, or was left by a crash; r: random
//! ```
//! n is 16 hexadecimal digits. Not here: which process may make which.
//!
//! Invariants: numbers are never used again, because the highest epoch is never removed; `log-<n>`
//! is complete, because it gets its name when it is.

use std::io;
use std::path::{Path, PathBuf};

use towline_os::fs::{self, File, FileExt};

use crate::lock;
use crate::record::RECORD_BYTES;
use crate::watch::Look;

/// Free space for a takeover.
pub(crate) const FREE_SPACE_NAME: &str = "room";
/// The log folder of an instance without a lease.
pub(crate) const SINGLE_LOG: &str = "log";
/// The lock in it.
pub(crate) const SINGLE_LOCK: &str = "lock";

pub(crate) fn epoch_name(epoch: u64) -> String {
    format!("epoch-{epoch:016x}")
}

pub(crate) fn log_name(epoch: u64) -> String {
    format!("log-{epoch:016x}")
}

pub(crate) fn new_log_name(epoch: u64) -> String {
    format!("new-log-{epoch:016x}")
}

pub(crate) fn standby_name(holder: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    let name = holder.chars().map(|letter| if plain(letter) { letter } else { '_' });
    let name: String = name.collect();
    format!("standby-{name}")
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

/// Whether a data folder was ever shared: then it is never used without a lease again.
///
/// # Errors
/// The data folder cannot be listed.
pub fn is_shared(data: &Path) -> io::Result<bool> {
    Ok(Epochs::list(data)?.newest().is_some())
}

/// What is in a shared data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    /// Ascending.
    pub(crate) epochs: Vec<u64>,
    pub(crate) logs: Vec<u64>,
    pub(crate) new_logs: Vec<u64>,
    pub(crate) has_single_log: bool,
    pub(crate) standbys: Vec<String>,
    /// Files of claims that have not ended, or were left by a crash.
    pub(crate) scratches: Vec<String>,
}

impl Epochs {
    /// # Errors
    /// What the operating system says.
    pub(crate) fn list(data: &Path) -> io::Result<Epochs> {
        let mut found = Epochs::default();
        for entry in fs::read_dir(data)? {
            let Ok(name) = entry?.file_name().into_string() else { continue };
            if let Some(epoch) = number(&name, "epoch-") {
                found.epochs.push(epoch);
            } else if let Some(epoch) = number(&name, "log-") {
                found.logs.push(epoch);
            } else if let Some(epoch) = number(&name, "new-log-") {
                found.new_logs.push(epoch);
            } else if name == SINGLE_LOG {
                found.has_single_log = true;
            } else if name.starts_with("standby-") {
                found.standbys.push(name);
            } else if lock::claimed_by(&name).is_some_and(is_claimed) {
                found.scratches.push(name);
            }
        }
        found.epochs.sort_unstable();
        found.logs.sort_unstable();
        found.new_logs.sort_unstable();
        found.standbys.sort_unstable();
        Ok(found)
    }

    /// The highest number that was ever given out.
    pub(crate) fn newest(&self) -> Option<u64> {
        [&self.epochs, &self.logs].into_iter().filter_map(|numbers| numbers.last()).max().copied()
    }

    /// The folder of the newest log; `None`: there is no log yet.
    pub(crate) fn log_folder(&self, data: &Path) -> Option<PathBuf> {
        match self.logs.last() {
            Some(epoch) => Some(data.join(log_name(*epoch))),
            None => self.has_single_log.then(|| data.join(SINGLE_LOG)),
        }
    }
}

fn is_claimed(name: &str) -> bool {
    number(name, "epoch-").is_some() || name.starts_with("standby-")
}

fn number(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_ours =
        digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_ours { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// Reads the newest epoch; `None`: there is none. The file is opened for each look: that makes a
/// network file system ask its server.
///
/// # Errors
/// What the operating system says.
pub(crate) fn look(data: &Path) -> io::Result<Option<Look>> {
    loop {
        let Some(epoch) = Epochs::list(data)?.newest() else { return Ok(None) };
        let file = match File::options().read(true).write(true).open(data.join(epoch_name(epoch))) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if Epochs::list(data)?.newest() > Some(epoch) {
                    // There is a later one, and its holder has removed this one.
                    continue;
                }
                // It was removed by hand: there is a log, and no process holds it.
                return Ok(Some(Look { epoch, content: [0; RECORD_BYTES], is_locked: false }));
            }
            Err(error) => return Err(error),
        };
        let mut content = [0; RECORD_BYTES];
        let mut filled = 0;
        while let Some(rest) = content.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        return Ok(Some(Look { epoch, content, is_locked: lock::is_held(&file)? }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_programs_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        for name in [
            &epoch_name(2),
            &epoch_name(255),
            &log_name(3),
            &new_log_name(255),
            "epoch-2",
            "epoch-000000000000000G",
            "epoch-00000000000000FF",
            "log-x",
            "towline.sock",
            &standby_name("häuser:7"),
        ] {
            fs::create_dir(data.join(name)).unwrap();
        }
        let found = Epochs::list(data).unwrap();
        assert_eq!(found.epochs, [2, 255]);
        assert_eq!((found.logs.as_slice(), found.new_logs.as_slice()), (&[3][..], &[255][..]));
        assert_eq!(found.standbys, ["standby-h_user_7"]);
        assert_eq!(found.newest(), Some(255));
        assert_eq!(found.log_folder(data), Some(data.join(log_name(3))));
    }

    #[test]
    fn a_number_whose_lease_was_removed_is_not_given_again() {
        let folder = tempfile::tempdir().unwrap();
        for name in [&epoch_name(2), &log_name(7)] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(Epochs::list(folder.path()).unwrap().newest(), Some(7));
    }

    #[test]
    fn a_data_folder_that_is_not_there_has_no_log() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(log_folder(&folder.path().join("nothing")).unwrap(), None);
        assert_eq!(log_folder(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_folder_that_is_not_shared_yet_has_the_log_of_its_one_instance() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Epochs::list(folder.path()).unwrap(), Epochs::default());
        assert_eq!(Epochs::default().log_folder(folder.path()), None);
        assert!(look(folder.path()).unwrap().is_none());
        fs::create_dir(folder.path().join(SINGLE_LOG)).unwrap();
        let found = Epochs::list(folder.path()).unwrap();
        assert_eq!(found.log_folder(folder.path()), Some(folder.path().join("log")));
        assert_eq!(found.newest(), None);
    }
}
