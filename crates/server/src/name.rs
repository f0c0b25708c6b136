//! The name of a queue manager stands with its data, so that a slip on the command line does not
//! rename it. A folder without one takes the name that it is first started with.
//!
//! Invariant: the file is there whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::start::StartError;
use towline_process::folder;

/// The file in the data folder.
const FILE: &str = "name";
/// More than any name has.
const BYTES_MAX: u64 = 4_096;

/// Refuses a data folder that belongs to a queue manager of another name.
///
/// # Errors
/// The other name, or the folder cannot be read.
pub(crate) fn check(data: &Path, name: &str) -> Result<(), StartError> {
    match noted(data)? {
        Some(theirs) if theirs != name => {
            Err(StartError::OtherName { theirs, ours: name.to_owned() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Notes the name in a folder that has none. To be called with the lock of the log held, and when
/// the log is open: a folder that could not be used, a restore that was not finished, keeps no
/// name.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn note(data: &Path, name: &str) -> Result<(), StartError> {
    if noted(data)?.is_none()
        && let Err(error) = write(data, name)
    {
        // The disk may be full, and gets must be served all the same. The next start tries.
        tracing::warn!(%error, "the name of the queue manager is not noted in its folder");
    }
    Ok(())
}

/// The name that stands in a folder, if one does.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn noted(data: &Path) -> Result<Option<String>, StartError> {
    let path = data.join(FILE);
    match File::open(&path) {
        Ok(file) => {
            use std::io::Read;
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
    std::fs::rename(&beside, &path)?;
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
        note(folder.path(), "QM1").unwrap();
        note(folder.path(), "QM1").unwrap();
        check(folder.path(), "QM1").unwrap();
        let refused = check(folder.path(), "OTHER").unwrap_err();
        let StartError::OtherName { theirs, ours } = refused else { panic!("{refused}") };
        assert_eq!((theirs.as_str(), ours.as_str()), ("QM1", "OTHER"));
        std::fs::remove_file(folder.path().join(FILE)).unwrap();
        check(folder.path(), "OTHER").unwrap();
    }
}
