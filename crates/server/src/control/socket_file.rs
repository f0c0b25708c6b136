//! The file of a control socket: made for its owner alone, and never taken from a process that
//! still answers on it.
//!
//! Invariant: a process removes the file of its own socket only.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use socket2::{Domain, SockAddr, Socket, Type};

/// The file of a socket on which this process listens. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have made another file at this path.
    id: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, a file of the folder `data`; `None`: another process answers there.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn bind(data: &Path, path: &Path) -> io::Result<Option<(SocketFile, UnixListener)>> {
        // Of two processes that start at once, the second one finds the first one listening.
        let folder = File::open(data)?;
        if let Err(error) = rustix::fs::flock(&folder, FlockOperation::LockExclusive) {
            // Some shared file systems do not lock folders. There, names are of one process.
            tracing::debug!(%error, "the data folder is not locked");
        }
        if answers(path)? {
            return Ok(None);
        }
        SocketFile::replace(path).map(Some)
    }

    /// Listens at `path`, whatever listens there now.
    ///
    /// # Errors
    /// What the operating system says.
    pub(super) fn replace(path: &Path) -> io::Result<(SocketFile, UnixListener)> {
        remove(path)?;
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let id = id_of(path)?;
        Ok((SocketFile { path: path.to_owned(), id }, listener))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if id_of(&self.path).is_ok_and(|id| id == self.id)
            && let Err(error) = remove(&self.path)
        {
            tracing::debug!(%error, "the control socket stays");
        }
    }
}

/// Removes the files at these paths on which no process listens.
pub(super) fn remove_dead(paths: &[PathBuf]) {
    for path in paths {
        if answers(path).is_ok_and(|answers| !answers)
            && let Err(error) = remove(path)
        {
            tracing::debug!(%error, "the control socket of a process that ended stays");
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let file = std::fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Whether a process of this machine listens at `path`.
fn answers(path: &Path) -> io::Result<bool> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A process that stands still may have a full queue of connections.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(false),
            io::ErrorKind::WouldBlock => Ok(true),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_socket_is_its_owners_only_and_not_taken_from_a_process_that_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (first, listener) = SocketFile::bind(folder.path(), &path).unwrap().unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(SocketFile::bind(folder.path(), &path).unwrap().is_none(), "it listens");
        let (second, _listens) = SocketFile::replace(&path).unwrap();
        drop((first, listener));
        assert!(path.exists(), "the file is not that of the first one any more");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_replaced_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        remove_dead(&[path.clone(), folder.path().join("none")]);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        let (_file, _listens) = SocketFile::bind(folder.path(), &path).unwrap().unwrap();
        remove_dead(std::slice::from_ref(&path));
        assert!(path.exists(), "it listens");
    }
}
