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
    let Some(parent) = folder.parent() else { return Ok(()) };
    if fs::is_dir(folder) {
        // The process that made it may have been killed before it synced the name.
        return match fs::sync_name_of(folder) {
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
    fs::sync_name_of(folder)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// What the operating system says.
pub fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use towline_os::simulated::crash;
    use towline_os::simulated::fs::{FileSystem, OperationKind, Verdict};

    use super::*;

    const EINVAL: i32 = 22;
    const EIO: i32 = 5;

    #[test]
    fn a_folder_above_that_takes_no_sync_is_left_without_and_the_own_one_is_not() {
        let made_where_a_sync_fails = |error| {
            let system = FileSystem::new();
            assert!(system.make_folder("/mount"));
            system.set_faults(move |operation| {
                let is_above = operation.path == Path::new("/mount");
                let fails = is_above && operation.kind == OperationKind::Sync;
                if fails { Verdict::Fails(error) } else { Verdict::Goes }
            });
            let makes = || {
                // The second time it is there.
                let made = [make(Path::new("/mount/data")), make(Path::new("/mount/data"))];
                (made, sync(Path::new("/mount")))
            };
            crash::in_process(&system, 1, makes).unwrap()
        };
        let (made, own) = made_where_a_sync_fails(EINVAL);
        assert!(made.iter().all(Result::is_ok) && own.is_err(), "{made:?}, {own:?}");
        let (made, _) = made_where_a_sync_fails(EIO);
        assert!(made.iter().all(Result::is_err), "{made:?}");
    }
}
