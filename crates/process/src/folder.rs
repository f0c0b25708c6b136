//! Folders whose names are durable: a power cut must not take the log away with the name of its
//! folder.

use std::io;
use std::path::Path;

use towline_os::fs::{self, DirBuilderExt};

/// Makes a folder, for its owner alone, and those above it that are missing. Syncs the name of each
/// one before anything is written into it.
///
/// # Errors
/// What the operating system says.
pub fn make(folder: &Path) -> io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if fs::is_dir(folder) {
        // The process that made it may have been killed before it synced the name.
        return match sync(parent) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    make(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    sync(parent)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// What the operating system says.
pub fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}
