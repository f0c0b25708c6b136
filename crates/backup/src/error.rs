//! Why a backup cannot be made, checked or restored, with what a person needs to act on it.
//!
//! Not here: damage found by a check, which is a list and no error (`check`).

use std::fmt;
use std::path::{Path, PathBuf};

use towline_log::{Finding, LogError};
use towline_types::{CivilTime, Lsn, Time};

use crate::damaged_batch::DamagedBatch;

/// Why a backup cannot be made or used.
#[derive(Debug)]
#[non_exhaustive]
pub enum BackupError {
    /// The log, or a file of the backup, cannot be read or written.
    Log(LogError),
    /// A page that the image of a copy refers to cannot be read, or is damaged.
    Page(LogError),
    /// Another backup into the folder is being made.
    Busy {
        /// The folder.
        folder: PathBuf,
        /// The process that makes it, if it is known.
        pid: Option<u32>,
    },
    /// The folder holds something else.
    NotABackup {
        /// The folder.
        folder: String,
        /// A file that does not belong to a backup; empty when there is no manifest.
        file: String,
    },
    /// The folder of the backup lies in the log folder.
    InLog {
        /// The folder of the backup.
        folder: PathBuf,
        /// The log folder.
        log: PathBuf,
    },
    /// There is no log to copy.
    NoLog {
        /// The data folder.
        folder: String,
    },
    /// The manifest is of a later format.
    Version {
        /// The format version found.
        found: u32,
        /// The newest that this program reads.
        supported: u32,
    },
    /// The backup is of another log.
    OtherLog {
        /// The folder of the backup.
        folder: String,
    },
    /// The log was restored to an earlier position since the last backup, and continued from there.
    OtherHistory {
        /// Where the backup ends.
        end: Lsn,
    },
    /// The log is damaged where a restart of the copy would read it.
    SourceDamaged(Finding),
    /// An extent in which messages live is gone.
    ExtentGone {
        /// Its name.
        file: String,
    },
    /// The backup would give up an extent, and it is not known whether messages live in it.
    NotKnown {
        /// Its name.
        file: String,
        /// Why it is not known.
        why: String,
    },
    /// Between the image that would be restored and the position lies a damaged batch.
    DamageBetween {
        /// What was asked for.
        asked: Lsn,
        /// The damaged batch.
        damaged: DamagedBatch,
        /// The image that was made behind it, if there is one.
        behind: Option<Lsn>,
    },
    /// A file of the backup is not what was written.
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// What an image of the log refers to cannot be understood.
    Image(String),
    /// The backup does not reach to where it should be restored.
    OutOfReach {
        /// What was asked for.
        asked: String,
        /// The earliest position that can be had.
        first: Lsn,
        /// When the log was there, if that is known.
        first_at: Option<Time>,
        /// The latest.
        last: Lsn,
        /// When the log was there, if that is known.
        last_at: Option<Time>,
    },
    /// The log between two backups was reused before it was copied.
    Gap {
        /// What was asked for.
        asked: Lsn,
        /// The last position before it that can be had.
        before: Lsn,
        /// The first one behind it.
        behind: Lsn,
    },
    /// The disk has too little free space for a copy.
    NoRoom {
        /// Bytes that it takes.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The log that was being copied was released, because its space was needed.
    LetGo,
    /// The carrier of the copy failed, or delivered something that is no copy.
    Stream(std::io::Error),
    /// The folder to restore into is not empty.
    NotEmpty {
        /// The folder.
        folder: String,
    },
}

impl fmt::Display for BackupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Log(error) | BackupError::Page(error) => error.fmt(out),
            BackupError::Busy { folder, pid } => busy(folder, *pid, out),
            BackupError::NotABackup { folder, file } if file.is_empty() => {
                write!(out, "there is no backup in {folder}")
            }
            BackupError::NotABackup { folder, file } => {
                write!(out, "{folder} is not empty and not a backup: it holds {file}")
            }
            BackupError::InLog { folder, log } => in_log(folder, log, out),
            BackupError::NoLog { folder } => write!(out, "there is no recovery log in {folder}"),
            BackupError::Version { found, supported } => write!(
                out,
                "the backup has format version {found}, this program reads up to {supported}; \
                 use the version of towline that made it, or a later one"
            ),
            BackupError::OtherLog { folder } => {
                write!(out, "{folder} holds a backup of another queue manager; use another folder")
            }
            BackupError::OtherHistory { end } => write!(
                out,
                "the backup ends at {end}, and the log no longer goes through there: it was \
                 restored to an earlier position meanwhile; use another folder, or --full"
            ),
            BackupError::SourceDamaged(finding) => write!(
                out,
                "the log is damaged where a restart of the copy would read it: {finding}; \
                 'towline image' moves the beginning of a restart behind it, if the queue manager \
                 runs; 'towline log repair' brings the batch back from an older backup or another \
                 instance"
            ),
            BackupError::ExtentGone { file } => extent_gone(file, out),
            BackupError::NotKnown { file, why } => write!(
                out,
                "{file} is in the backup and not in the log, and it is not known whether messages \
                 live in it: {why}; the backup stays as it is: use another folder"
            ),
            BackupError::DamageBetween { asked, damaged, behind } => {
                damage_between(*asked, damaged, *behind, out)
            }
            BackupError::Damaged { file, what } => {
                write!(out, "the backup is damaged: {file}: {what}")
            }
            BackupError::Image(why) => write!(out, "the image cannot be understood: {why}"),
            BackupError::OutOfReach { asked, first, first_at, last, last_at } => {
                write!(out, "{asked} is out of reach: the backup holds {first}")?;
                at(*first_at, out)?;
                write!(out, " to {last}")?;
                at(*last_at, out)
            }
            BackupError::Gap { asked, before, behind } => write!(
                out,
                "{asked} is out of reach: the log from {before} to {behind} was not copied before \
                 it was used again; restore to one of these two, and make backups more often"
            ),
            BackupError::NoRoom { needed, free } => write!(
                out,
                "the copy takes {needed} bytes beside the log that is there, and the disk has {free} \
                 left; free space there"
            ),
            BackupError::LetGo => write!(out, "the log that was being copied was let go"),
            BackupError::Stream(error) => error.fmt(out),
            BackupError::NotEmpty { folder } => {
                write!(out, "{folder} is not empty; restore into a new folder")
            }
        }
    }
}

fn busy(folder: &Path, pid: Option<u32>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "a backup into {} is being made already", folder.display())?;
    pid.map_or(Ok(()), |pid| write!(out, ", by process {pid}"))?;
    write!(out, " (one goes on when its command is interrupted): wait until it is done")
}

fn in_log(folder: &Path, log: &Path, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        out,
        "{} lies in the log folder {}: what takes the log would take the backup along; use a \
         folder outside, better on another disk",
        folder.display(),
        log.display()
    )
}

fn extent_gone(file: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        out,
        "{file} is gone, and messages live in it: bring it back with 'towline log repair'; or, if \
         they were given up (--without-missing-extents), get or clear what is left of them, the \
         notes on the dead-letter queue too, and make the backup then"
    )
}

fn damage_between(
    asked: Lsn,
    damaged: &DamagedBatch,
    behind: Option<Lsn>,
    out: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(
        out,
        "{asked} is out of reach: the log before it was damaged when it was copied ({damaged}); \
         restore to a position before {}",
        damaged.lsn
    )?;
    behind.map_or(Ok(()), |behind| write!(out, ", or from {behind} on"))
}

fn at(time: Option<Time>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    time.map_or(Ok(()), |time| write!(out, " ({})", CivilTime::of(time)))
}

impl std::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackupError::Log(error) | BackupError::Page(error) => Some(error),
            BackupError::Stream(error) => Some(error),
            BackupError::Busy { .. }
            | BackupError::NotABackup { .. }
            | BackupError::InLog { .. }
            | BackupError::NoLog { .. }
            | BackupError::Version { .. }
            | BackupError::OtherLog { .. }
            | BackupError::OtherHistory { .. }
            | BackupError::SourceDamaged(_)
            | BackupError::ExtentGone { .. }
            | BackupError::NotKnown { .. }
            | BackupError::DamageBetween { .. }
            | BackupError::Damaged { .. }
            | BackupError::Image(_)
            | BackupError::OutOfReach { .. }
            | BackupError::Gap { .. }
            | BackupError::NoRoom { .. }
            | BackupError::LetGo
            | BackupError::NotEmpty { .. } => None,
        }
    }
}

impl From<LogError> for BackupError {
    fn from(error: LogError) -> BackupError {
        BackupError::Log(error)
    }
}
