//! Why a data folder cannot be started from. Only types and texts.

use towline_log::LogError;
use towline_node::{LogPart, RestartError};
use towline_standby::FolderError;
use towline_types::Lsn;

use crate::missing_extents::MissingExtents;

/// Why a data folder cannot be started from.
#[derive(Debug)]
pub enum StartError {
    /// The folder cannot be used.
    Folder(std::io::Error),
    /// The log cannot be opened or read.
    Log(LogError),
    /// The page file does not fit the image.
    Pages(LogError),
    /// A later version of this program wrote here.
    Newer {
        /// The file, and where in it.
        place: String,
        /// What is there: a format version or level, a kind of record, a field.
        found: String,
        /// The newest that this program reads.
        known: String,
    },
    /// The log is not that of this group.
    OtherLog {
        /// Name of the group.
        group: String,
    },
    /// The log is that of a group of another name.
    OtherGroup {
        /// The name that stands with the log.
        theirs: String,
        /// The name in the configuration.
        ours: String,
    },
    /// The log has batches and no history, no mark is kept, and the group is to begin in recovery.
    UnknownRole {
        /// Name of the group.
        group: String,
    },
    /// The folder is that of an instance of a group, and no group is configured. Messages that it
    /// accepted alone would be cut off when it joins its group again.
    FolderOfGroup,
    /// The folder is a shared one ([`FolderError::Shared`]), and this is no such instance.
    Shared(FolderError),
    /// The data is that of a queue manager of another name.
    OtherName {
        /// The name that stands with the data.
        theirs: String,
        /// The name that it was to be started with.
        ours: String,
    },
    /// Extents with live messages are missing.
    MissingExtents(MissingExtents),
    /// The log's content does not fit together.
    Restart(RestartError),
}

impl StartError {
    /// Whether the queues can be rebuilt from the log alone.
    #[must_use]
    pub fn is_of_pages(&self) -> bool {
        matches!(self, StartError::Pages(_) | StartError::Restart(RestartError::Page { .. }))
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Folder(error) => write!(out, "{error}"),
            StartError::Log(error) | StartError::Pages(error) => write!(out, "{error}"),
            StartError::Newer { place, found, known } => {
                write!(out, "{place} has {found}, this program reads up to {known}")
            }
            StartError::OtherLog { group } => write!(
                out,
                "the log there is not that of a queue manager of this name in group '{group}'; begin \
                 with an empty folder, or set the log aside with `towline instance replace`"
            ),
            StartError::OtherGroup { theirs, ours } => write!(
                out,
                "the log there is that of group '{theirs}', and the configuration is that of group \
                 '{ours}'; correct --data, or group.name; an instance of '{ours}' that is to get a \
                 log from its own group begins with an empty folder"
            ),
            StartError::UnknownRole { group } => write!(
                out,
                "group.role is 'recovery', and the log there has messages and does not say which \
                 group is live: it is not a copy of another group's. A recovery group begins with \
                 an empty folder, and gets the log of the live group. If these are the messages of \
                 group '{group}' as the live one, configure role = \"live\""
            ),
            StartError::FolderOfGroup => write!(
                out,
                "it is the data folder of an instance of a group, and the configuration has no \
                 [group]; name the configuration file of that instance with --config (to make a \
                 single queue manager of its messages, restore a backup into another folder)"
            ),
            StartError::Shared(error) => write!(out, "{error}"),
            StartError::OtherName { theirs, ours } => {
                write!(out, "it belongs to queue manager '{theirs}', not to '{ours}'")
            }
            StartError::MissingExtents(missing) => write!(out, "{missing}"),
            StartError::Restart(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<FolderError> for StartError {
    fn from(error: FolderError) -> StartError {
        match error {
            FolderError::Io(error) => StartError::Folder(error),
            FolderError::Log(error) => StartError::Log(error),
            FolderError::Shared => StartError::Shared(error),
        }
    }
}

/// Why the content of the log is refused; for what a later version wrote, with the file.
pub(crate) fn refusal(error: RestartError, image_at: Lsn, extent_bytes: u64) -> StartError {
    match error {
        RestartError::Newer { part, found } => {
            let place = match part {
                LogPart::Record(lsn) => format!("extent-{:016x} at {lsn}", lsn.0 / extent_bytes),
                LogPart::Image => format!("image-{:016x}", image_at.0),
                LogPart::Page(page) => format!("pages at unit {}", page.unit),
            };
            let known = found.known(part.version());
            StartError::Newer { place, found: found.to_string(), known }
        }
        RestartError::Image(_)
        | RestartError::Record { .. }
        | RestartError::Page { .. }
        | RestartError::Replay { .. } => StartError::Restart(error),
    }
}
