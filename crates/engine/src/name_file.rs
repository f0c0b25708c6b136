//! The name of a queue manager is stored with its data, so that a typing error on the command line
//! does not rename it. A folder without a name gets the name of its first start.
//!
//! Invariant: the file is there whole or not at all.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use towline_os::fs::{self, File};
use towline_process::folder;

use crate::start_error::StartError;

/// The file in the data folder.
const FILE: &str = "name";
/// Longer than any name.
const BYTES_MAX: u64 = 4_096;

/// Refuses a data folder that belongs to a queue manager of another name.
///
/// # Errors
/// The other name, or the folder cannot be read.
pub fn check(data: &Path, name: &str) -> Result<(), StartError> {
    match read(data)? {
        Some(theirs) if theirs != name => {
            Err(StartError::OtherName { theirs, ours: name.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Writes the name into a folder that has none. To be called with the lock of the log held, and
/// when the log is open: a folder that could not be used, or a restore that was not finished, gets
/// no name.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn write_once(data: &Path, name: &str) -> Result<(), StartError> {
    if read(data)?.is_none()
        && let Err(error) = write(data, name)
    {
        // The disk may be full, and gets must be served all the same. The next start tries again.
        tracing::warn!(%error, "the name of the queue manager cannot be written into its folder");
    }
    Ok(())
}

/// The name in a folder, if it has one.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn read(data: &Path) -> Result<Option<String>, StartError> {
    let path = data.join(FILE);
    match File::open(&path) {
        Ok(file) => {
            let mut text = Vec::new();
            file.take(BYTES_MAX).read_to_end(&mut text).map_err(StartError::Folder)?;
            Ok(Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StartError::Folder(error)),
    }
}

fn write(data: &Path, name: &str) -> std::io::Result<()> {
    let (path, beside) = (data.join(FILE), data.join("name.new"));
    let mut file = File::create(&beside)?;
    writeln!(file, "{name}")?;
    file.sync_all()?;
    fs::rename(&beside, &path)?;
    folder::sync(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_the_name_that_it_was_first_started_with() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path(), "QM1").unwrap();
        check(folder.path(), "OTHER").unwrap();
        write_once(folder.path(), "QM1").unwrap();
        write_once(folder.path(), "QM1").unwrap();
        check(folder.path(), "QM1").unwrap();
        let refused = check(folder.path(), "OTHER").unwrap_err();
        let StartError::OtherName { theirs, ours } = refused else { panic!("{refused}") };
        assert_eq!((theirs.as_str(), ours.as_str()), ("QM1", "OTHER"));
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        check(folder.path(), "OTHER").unwrap();
    }
}
