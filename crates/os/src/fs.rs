//! Files under the names of the standard library, and what it does not have.
//!
//! Whether a path is there is asked by functions: [`std::path::Path`] asks the operating system.
//!
//! Not here: standard streams, sockets and pipes.

use std::io;
use std::path::Path;

#[cfg(feature = "simulated")]
pub use crate::simulated::fs::{
    DirBuilder, DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, canonicalize, copy,
    create_dir, create_dir_all, hard_link, metadata, read, read_dir, read_to_string, remove_dir,
    remove_dir_all, remove_file, rename, symlink_metadata, write,
};
#[cfg(not(feature = "simulated"))]
pub use std::fs::{
    DirBuilder, DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, canonicalize, copy,
    create_dir, create_dir_all, hard_link, metadata, read, read_dir, read_to_string, remove_dir,
    remove_dir_all, remove_file, rename, symlink_metadata, write,
};

pub use std::fs::TryLockError;
pub use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};

#[cfg(feature = "simulated")]
use crate::simulated::fs as with;
#[cfg(not(feature = "simulated"))]
use real as with;

/// Free and total space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All that it can hold, in bytes.
    pub bytes_max: u64,
    /// What this process can still write.
    pub bytes_free: u64,
}

/// Whether there is a file or a folder; false also when that cannot be known.
#[must_use]
pub fn exists(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok()
}

/// Whether there is a file or a folder.
///
/// # Errors
/// That cannot be known.
pub fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether there is a folder.
#[must_use]
pub fn is_dir(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok_and(|found| found.is_dir())
}

/// Whether there is a file.
#[must_use]
pub fn is_file(path: impl AsRef<Path>) -> bool {
    metadata(path).is_ok_and(|found| found.is_file())
}

/// Makes the name of a folder durable: syncs the folder above it. Where that takes no sync at all
/// (EINVAL: the root of an autofs, some network file systems) its names are none that a power cut
/// could take: it is mounted over, or kept by a server.
///
/// # Errors
/// What the file system says; the folder above cannot be opened.
pub fn sync_name_of(folder: &Path) -> io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match File::open(parent)?.sync_all() {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Sets space aside for the first `bytes` bytes of a file; its length stays (fallocate(2)). Does
/// nothing where the file system cannot.
///
/// # Errors
/// `StorageFull`; what else the file system says.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    with::reserve(file, bytes)
}

/// How much the file system of a file can hold.
///
/// # Errors
/// What the file system says.
pub fn space(file: &File) -> io::Result<Space> {
    with::space(file)
}

/// Takes the lock of the open file description for all of a file (fcntl(2)), for this handle alone.
///
/// # Errors
/// Another handle has it; the file system has no such locks.
pub fn lock_description(file: &File) -> io::Result<()> {
    with::lock_description(file)
}

/// Whether another handle has the lock of [`lock_description`].
///
/// # Errors
/// The file system has no such locks.
pub fn is_description_locked(file: &File) -> io::Result<bool> {
    with::is_description_locked(file)
}

/// What the standard library does not have, for files of the operating system.
pub(crate) mod real {
    use std::fs::File;
    use std::io;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;

    use super::Space;

    pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn space(file: &File) -> io::Result<Space> {
        let found = rustix::fs::fstatvfs(file)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space { bytes_max: bytes(found.f_blocks), bytes_free: bytes(found.f_bavail) })
    }

    pub(crate) fn lock_description(file: &File) -> io::Result<()> {
        let asked = whole_file(libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_SETLK(&asked)).map(|_| ()).map_err(io::Error::from)
    }

    pub(crate) fn is_description_locked(file: &File) -> io::Result<bool> {
        let mut asked = whole_file(libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked)).map_err(io::Error::from)?;
        Ok(i32::from(asked.l_type) != libc::F_UNLCK)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the constants are 0 to 2, the fields 16 bits"
    )]
    fn whole_file(kind: libc::c_int) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            // Must be 0 for this kind of lock.
            l_pid: 0,
        }
    }
}
