//! Why a data folder cannot be used. Only types and texts.

use std::fmt;
use std::io;

use towline_log::LogError;

/// Why the log folder of this process cannot be made, or used.
#[derive(Debug)]
pub enum FolderError {
    /// The operating system refused something in the data folder.
    Io(io::Error),
    /// The log folder that it starts from cannot be used, or another process uses it.
    Log(LogError),
    /// It is a shared data folder, and was to be used without a lease.
    Shared,
}

/// Why a process does not become the active instance of a data folder.
#[derive(Debug)]
pub enum EntryError {
    /// The folder cannot be used.
    Folder(FolderError),
    /// Another instance is active, and this process has no `--standby`.
    InUse {
        /// The active instance, host:pid.
        holder: String,
    },
    /// The operating system refused a thread.
    Thread(io::Error),
}

impl From<FolderError> for EntryError {
    fn from(error: FolderError) -> EntryError {
        EntryError::Folder(error)
    }
}

impl From<io::Error> for FolderError {
    fn from(error: io::Error) -> FolderError {
        FolderError::Io(error)
    }
}

impl From<LogError> for FolderError {
    fn from(error: LogError) -> FolderError {
        FolderError::Log(error)
    }
}

impl fmt::Display for FolderError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderError::Io(error) => write!(out, "{error}"),
            FolderError::Log(error) => write!(out, "{error}"),
            FolderError::Shared => write!(
                out,
                "it is a shared data folder (multi-instance mode), which an instance of a group \
                 cannot use; name an empty folder for that instance with --data. Without a group, \
                 it was shared a moment ago: start again"
            ),
        }
    }
}

impl std::error::Error for FolderError {}
