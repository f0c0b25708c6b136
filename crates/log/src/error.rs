//! What can go wrong with the log, each case with what a person needs to act on it.
//!
//! Not here: mistakes of the caller (a record beyond `record_bytes_max`, a position never made).
//! Those are asserted.

use std::path::PathBuf;
use std::{fmt, io};

use towline_types::Lsn;

use crate::coverage::Coverage;

/// A failure of the log or of the disk under it. Text is for people; programs match the variant.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogError {
    /// A call to the operating system failed.
    Io {
        /// What was tried, such as `"write a batch"`.
        doing: &'static str,
        /// The file inside the log folder, or the folder.
        file: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process holds the folder.
    Locked {
        /// The log folder.
        folder: PathBuf,
        /// The process that holds it, when its lock file says so.
        pid: Option<u32>,
    },
    /// Bytes that had been reported durable are not as they were written. Nothing was changed.
    Damaged(Finding),
    /// A file was written in a format that this version does not read (a downgrade).
    Version {
        /// The file inside the log folder.
        file: String,
        /// The format version found in it.
        found: u16,
        /// The newest format version that this program reads.
        supported: u16,
    },
    /// A restore into this folder was interrupted: what is there is not a whole log.
    Restoring {
        /// The log folder.
        folder: String,
    },
    /// A file belongs to another log (another queue manager's folder was mixed in).
    OtherLog {
        /// The file inside the log folder.
        file: String,
    },
    /// There is no space for more log: `log_bytes_max` is reached or the disk is full, and the
    /// reserve is used up too. The run was not written; the log goes on when space comes back.
    Full,
    /// The log failed earlier (a write or sync failed); nothing is accepted any more.
    Failed,
    /// The log was shut down.
    Stopped,
    /// The log takes batches of a leader; nothing can be appended.
    Following,
    /// The log appends; it takes nothing from another instance.
    Leading,
    /// A batch does not belong where it is said to lie; nothing was changed.
    OutOfPlace {
        /// Its index, or that of the batch concerned.
        index: u64,
        /// Its position.
        lsn: Lsn,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The position asked for is in an extent that was reclaimed or never written.
    Gone {
        /// The position asked for.
        lsn: Lsn,
    },
    /// The options contradict each other or the log that is there.
    Options {
        /// What is wrong with them.
        what: &'static str,
    },
}

/// One thing found wrong in the log, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file inside the log folder.
    pub file: String,
    /// Sequence of the extent (zero for a file that is not an extent).
    pub extent: u64,
    /// Byte offset in the file.
    pub offset: u64,
    /// The same location as a log position.
    pub lsn: Lsn,
    /// What is wrong there.
    pub what: Damage,
}

/// The kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A batch with a wrong checksum or header, before the tail.
    Batch,
    /// A whole batch that does not continue the one before it (an old copy, a misdirected write).
    Chain,
    /// A block that could not be read.
    Unreadable,
    /// The header of an extent is wrong.
    ExtentHeader,
    /// The header of an extent names another position in the log (an old copy of a file).
    ExtentSequence,
    /// A file of no length, or shorter than its header.
    ExtentLength,
    /// An extent between others is not there, and an older one is needed.
    ExtentMissing(Coverage),
    /// The extent in which reading begins, as the image says, is not there.
    ImageExtentMissing(Coverage),
    /// An extent before the oldest one that is there is missing, and messages live in it or before
    /// it.
    OldestMissing(Coverage),
    /// Something says that there was a log, and no extent is there.
    NoExtents(Coverage),
    /// Extents that no image needs lie before a gap: a call that was to let one go failed. They go
    /// when no message in them lives.
    LeftOver(Coverage),
    /// The log ends before the position of its newest image.
    EndsBeforeImage,
    /// The log's beginning was reclaimed, and no readable image says what was in it.
    ImageMissing,
    /// An image is damaged (an older one is used when its log is there).
    Image,
    /// A page of the page file is not what was written there (an index can be rebuilt from the
    /// log).
    Page,
    /// Two pages that are referred to overlap (what refers to them is damaged).
    PagesOverlap,
    /// Records inside a whole batch do not add up (a fault of ours, not of the disk).
    Records,
    /// The batch at the tail was torn by a crash: cut off, nothing acknowledged is lost.
    TornTail,
}

impl Damage {
    /// Which extents there are, where one is missing.
    #[must_use]
    pub const fn coverage(self) -> Option<Coverage> {
        match self {
            Damage::ExtentMissing(coverage)
            | Damage::ImageExtentMissing(coverage)
            | Damage::OldestMissing(coverage)
            | Damage::NoExtents(coverage)
            | Damage::LeftOver(coverage) => Some(coverage),
            Damage::Batch
            | Damage::Chain
            | Damage::Unreadable
            | Damage::ExtentHeader
            | Damage::ExtentSequence
            | Damage::ExtentLength
            | Damage::EndsBeforeImage
            | Damage::ImageMissing
            | Damage::Image
            | Damage::Page
            | Damage::PagesOverlap
            | Damage::Records
            | Damage::TornTail => None,
        }
    }

    /// Whether the log can be used as it is, and nothing that was acknowledged is lost.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Damage::TornTail | Damage::LeftOver(_))
    }

    /// What to do about it, where the finding itself does not say it.
    const fn advice(self) -> Option<&'static str> {
        match self {
            Damage::ImageMissing => Some(IMAGE_WAY_OUT),
            _ if self.is_harmless() || self.coverage().is_none() => None,
            _ => Some(WAY_OUT),
        }
    }

    /// One line for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Damage::Batch => "a batch before the tail is damaged",
            Damage::Chain => "a batch does not continue the one before it",
            Damage::Unreadable => "the disk cannot read these bytes",
            Damage::ExtentHeader => "the extent's header is damaged",
            Damage::ExtentSequence => {
                "the file holds another extent than its name says (old copy?)"
            }
            Damage::ExtentLength => "the file is empty or too short",
            Damage::ExtentMissing(_) => "an extent between others is missing",
            Damage::ImageExtentMissing(_) => "the extent that the image needs first is missing",
            Damage::OldestMissing(_) => "an extent before the oldest one is missing",
            Damage::NoExtents(_) => "the log existed, but all of its extents are missing",
            Damage::LeftOver(_) => "older extents that no image needs are left before a gap",
            Damage::EndsBeforeImage => "the log ends before its newest image (old copy?)",
            Damage::ImageMissing => "the log's beginning is gone and no whole image covers it",
            Damage::Image => "the image is damaged",
            Damage::Page => "a page is damaged or missing",
            Damage::PagesOverlap => "two pages have the same position",
            Damage::Records => "the records of an intact batch are inconsistent",
            Damage::TornTail => "the last write before a crash is torn and is cut",
        }
    }
}

impl Finding {
    /// Where and what, without what to do about it: for one that is repaired.
    #[must_use]
    pub const fn without_advice(&self) -> impl fmt::Display + '_ {
        Bare(self)
    }
}

struct Bare<'a>(&'a Finding);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, offset, lsn, what, .. } = self.0;
        if *lsn == Lsn::ZERO {
            // The page file has no positions, and nothing of the log lies at the first one.
            write!(out, "{file} at offset {offset}: {}", what.text())?;
        } else {
            write!(out, "{file} at offset {offset} ({lsn}): {}", what.text())?;
        }
        what.coverage().map_or(Ok(()), |coverage| write!(out, " ({coverage})"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", Bare(self))?;
        self.what.advice().map_or(Ok(()), |advice| write!(out, "; {advice}"))
    }
}

/// What to do when no image is left.
const IMAGE_WAY_OUT: &str = "put the image files back; or restore a backup, or in a group run \
                             'towline instance replace'";
/// What to do when extents are gone.
const WAY_OUT: &str = "put the files back if they are somewhere; if not, restore a backup, or in a \
                       group run 'towline instance replace' here";

impl fmt::Display for LogError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { doing, file, source } => {
                write!(out, "cannot {doing} ({file}): {source}")?;
                advice(source.kind()).map_or(Ok(()), |advice| write!(out, "; {advice}"))
            }
            LogError::Locked { folder, pid: Some(pid) } => {
                write!(out, "the log folder {} is in use by process {pid}", folder.display())
            }
            LogError::Locked { folder, pid: None } => {
                write!(out, "the log folder {} is in use by another process", folder.display())
            }
            LogError::Damaged(finding) => write!(out, "the log is damaged: {finding}"),
            LogError::Version { file, found, supported } => write!(
                out,
                "{file} has log format version {found}, this program reads up to {supported}"
            ),
            LogError::Restoring { folder } => write!(
                out,
                "a restore into {folder} was not finished; run 'towline restore' once more"
            ),
            LogError::OtherLog { file } => write!(out, "{file} belongs to another log"),
            LogError::Full => write!(out, "the log has no space left, not even its reserve"),
            LogError::Failed => write!(out, "the log failed earlier and accepts nothing more"),
            LogError::Stopped => write!(out, "the log was shut down"),
            LogError::Following => {
                write!(out, "the log of a replica accepts only batches of the leader")
            }
            LogError::Leading => {
                write!(out, "the log of a leader accepts no batches of other instances")
            }
            LogError::OutOfPlace { index, lsn, what } => {
                write!(out, "batch {index} at {lsn} does not fit this log: {what}")
            }
            LogError::Gone { lsn } => write!(out, "the log no longer holds {lsn}"),
            LogError::Options { what } => write!(out, "log options: {what}"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Io { source, .. } => Some(source),
            LogError::Locked { .. }
            | LogError::Damaged(_)
            | LogError::Version { .. }
            | LogError::Restoring { .. }
            | LogError::OtherLog { .. }
            | LogError::Full
            | LogError::Failed
            | LogError::Stopped
            | LogError::Following
            | LogError::Leading
            | LogError::OutOfPlace { .. }
            | LogError::Gone { .. }
            | LogError::Options { .. } => None,
        }
    }
}

impl LogError {
    /// Whether the disk or the log had no space for what was to be written: nothing is broken, and
    /// the same call may succeed when there is space again.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            LogError::Io { source, .. } => is_full(source),
            LogError::Full => true,
            LogError::Locked { .. }
            | LogError::Damaged(_)
            | LogError::Version { .. }
            | LogError::Restoring { .. }
            | LogError::OtherLog { .. }
            | LogError::Failed
            | LogError::Stopped
            | LogError::Following
            | LogError::Leading
            | LogError::OutOfPlace { .. }
            | LogError::Gone { .. }
            | LogError::Options { .. } => false,
        }
    }

    /// Whether what was to be read is damaged on the disk, as against not to be had for now (no
    /// file handles, no memory).
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            LogError::Damaged(_) | LogError::OtherLog { .. } | LogError::Version { .. } => true,
            LogError::Io { source, .. } => {
                is_unreadable(source) || source.kind() == io::ErrorKind::NotFound
            }
            LogError::Locked { .. }
            | LogError::Restoring { .. }
            | LogError::Full
            | LogError::Failed
            | LogError::Stopped
            | LogError::Following
            | LogError::Leading
            | LogError::OutOfPlace { .. }
            | LogError::Gone { .. }
            | LogError::Options { .. } => false,
        }
    }

    /// That `doing` something to `file` failed.
    #[must_use]
    pub fn io(doing: &'static str, file: &str, source: io::Error) -> LogError {
        LogError::Io { doing, file: file.to_owned(), source }
    }
}

/// What a person can do about it.
fn advice(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::PermissionDenied => Some(
            "give the user of this process read and write permission for the folder and its files",
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("the file system is mounted read-only: mount it for writing")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free space on the file system")
        }
        _ => None,
    }
}

/// Whether the disk cannot read a sector, as against not being asked rightly.
pub fn is_unreadable(error: &io::Error) -> bool {
    // EIO, ENODATA.
    const UNREADABLE: [i32; 2] = [5, 61];
    error.raw_os_error().is_some_and(|code| UNREADABLE.contains(&code))
}

/// Whether the disk is full, as against broken.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repaired_is_named_without_what_to_do() {
        let coverage = Coverage::of([2, 3].into_iter(), Some(3));
        for what in [Damage::OldestMissing(coverage), Damage::ImageMissing] {
            let (file, lsn) = ("extent-0000000000000001".into(), Lsn::ZERO);
            let finding = Finding { file, extent: 1, offset: 0, lsn, what };
            let (whole, bare) = (finding.to_string(), finding.without_advice().to_string());
            assert!(whole.starts_with(&bare) && whole.contains("replace'"), "{whole}");
            assert!(bare.contains(what.text()) && !bare.contains("replace"), "{bare}");
        }
    }
}
