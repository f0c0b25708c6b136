//! The folders into which a backup may be written for an administrator other than the user of this
//! process: a backup is written with the rights of the process.
//!
//! Not here: which administrators that is.

use std::path::{Component, Path, PathBuf};

use parking_lot::RwLock;
use towline_os::fs::{self, MetadataExt};

/// `[backup] folders`, as they are in force.
#[derive(Debug, Default)]
pub struct BackupFolders {
    allowed: RwLock<Vec<PathBuf>>,
}

impl BackupFolders {
    /// These folders.
    #[must_use]
    pub fn new(allowed: &[PathBuf]) -> BackupFolders {
        BackupFolders { allowed: RwLock::new(allowed.to_vec()) }
    }

    /// Other folders from now on.
    pub fn set(&self, allowed: &[PathBuf]) {
        *self.allowed.write() = allowed.to_vec();
    }

    /// The folder `to` with its symbolic links resolved.
    ///
    /// # Errors
    /// It is not in one of the folders, or other users could put a link there.
    pub(crate) fn judge(&self, to: &Path) -> Result<PathBuf, String> {
        let plain =
            to.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !plain {
            return Err(format!("{}: an absolute path without .. is needed", to.display()));
        }
        // A part that does not exist yet is no link; the links of the rest are resolved.
        let there = to.ancestors().find(|part| fs::symlink_metadata(part).is_ok());
        let there = there.ok_or_else(|| format!("{}: there is no such path", to.display()))?;
        let rest = to.strip_prefix(there).unwrap_or(Path::new(""));
        let failed = |error: std::io::Error| format!("{}: {error}", there.display());
        let there = fs::canonicalize(there).map_err(failed)?;
        for folder in self.allowed.read().iter() {
            let Ok(folder) = fs::canonicalize(folder) else { continue };
            // A folder that does not exist yet is made with the rights of this process.
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

/// A user with write access to a folder can put a link there after the check.
fn only_ours(folder: &Path) -> Result<(), String> {
    let metadata =
        fs::metadata(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_backup_for_another_user_goes_only_where_the_configuration_allows() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let (allowed, other) = (base.join("backups"), base.join("other"));
        for folder in [&allowed, &other, &allowed.join("there")] {
            std::fs::create_dir(folder).unwrap();
        }
        symlink(&other, allowed.join("away")).unwrap();
        symlink(&allowed, base.join("alias")).unwrap();
        symlink(base.join("nowhere"), allowed.join("dangling")).unwrap();
        let folders = BackupFolders::new(&[base.join("missing"), base.join("alias")]);
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
        assert!(BackupFolders::new(&[]).judge(&allowed).unwrap_err().contains("[backup] folders"));
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
