//! Files that a command writes with what is in messages, or was done to them: for their owner only,
//! as the data folder, backups and reports are.
//!
//! Not here: files with keys or passwords, which are made so that they are never half there.
//! Invariant: a file that was there keeps the rights that it had.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Read and write for the owner.
const MODE: u32 = 0o600;

/// A new one.
///
/// # Errors
/// It is there, or cannot be made.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Writes all of one, over what is there.
///
/// # Errors
/// What the disk said.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(MODE).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_for_its_owner_only_and_an_old_one_keeps_its_rights() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let (new, written) = (folder.path().join("new"), folder.path().join("written"));
        create_new(&new).unwrap();
        assert!(create_new(&new).is_err(), "it is there");
        write(&written, "long").unwrap();
        assert_eq!((mode(&new), mode(&written)), (0o600, 0o600));
        std::fs::set_permissions(&written, PermissionsExt::from_mode(0o644)).unwrap();
        write(&written, "x").unwrap();
        assert_eq!(
            (mode(&written), std::fs::read_to_string(&written).unwrap()),
            (0o644, "x".into())
        );
    }
}
