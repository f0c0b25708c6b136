//! Start of a log: scan, classify by a table of cases, repair; in this order, in three files.
//!
//! [`Recovery::open`] looks at the files and changes nothing (but makes the first extent of a new
//! log). [`Recovery::replay`] reads the batches from the newest image on, yields whole runs, judges
//! the place where the chain ends, and only then cuts a torn tail off. [`Recovery::start`] starts
//! the threads. Not here: what records mean.
//!
//! Invariants: what was durable is never cut off; nothing is repaired before everything was judged;
//! the log goes on with a higher term, so that no byte left behind can pass for a continuation.

pub(crate) mod files;
mod repair;
pub(crate) mod scan;
pub(crate) mod table;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use towline_types::Lsn;

use crate::disk::Disk;
use crate::error::{Damage, Finding, LogError};
use crate::format::{BATCH_HEADER_BYTES, LogId, extent_name};
use crate::keeper;
use crate::log::{Listener, Log};
use crate::options::Options;
use crate::record::{Halt, Runs};
use files::Folder;
use scan::{Found, Link, Place, Scan};
use table::TailVerdict;

/// Bytes of the first extent that are filled before a new log can be used; the rest is filled
/// behind it while it is used. A start takes no longer than this.
const FIRST_FILL_BYTES: u64 = 4 * 1024 * 1024;

/// A log that was opened and not yet started.
pub struct Recovery {
    disk: Arc<dyn Disk>,
    options: Options,
    log_id: LogId,
    folder: Folder,
    extents: BTreeMap<u64, Found>,
    image: Option<(Lsn, Bytes)>,
    damaged_images: Vec<Lsn>,
    findings: Vec<Finding>,
    /// Extent in which reading begins.
    first_read: u64,
    tail: Option<Tail>,
}

/// Where the log goes on.
struct Tail {
    place: Place,
    link: Link,
    end: Lsn,
}

/// What replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whole batches read.
    pub batches: u64,
    /// Records yielded.
    pub records: u64,
    /// Bytes of batches read.
    pub bytes: u64,
    /// Where the log goes on.
    pub tail: Lsn,
    /// What was found and put right: a torn tail, an image that had to be passed over. To be told
    /// to the operator; nothing acknowledged is lost by them.
    pub findings: Vec<Finding>,
}

/// Why replay ended early.
#[derive(Debug)]
pub enum ReplayError<E> {
    /// The log cannot be used. Nothing on disk was changed.
    Log(LogError),
    /// The receiver refused a record.
    Record {
        /// Its position.
        lsn: Lsn,
        /// What the receiver said.
        error: E,
    },
}

impl<E: std::fmt::Display> std::fmt::Display for ReplayError<E> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Log(error) => error.fmt(out),
            ReplayError::Record { lsn, error } => write!(out, "the record at {lsn}: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ReplayError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReplayError::Log(error) => Some(error),
            ReplayError::Record { error, .. } => Some(error),
        }
    }
}

impl Recovery {
    /// Opens a log, or makes one with `new_log_id` (random bytes) when the folder holds none. An
    /// existing log keeps its id and its size of extents.
    ///
    /// # Errors
    /// See [`LogError`]; nothing on the disk was changed.
    pub fn open(
        disk: Arc<dyn Disk>,
        mut options: Options,
        new_log_id: LogId,
    ) -> Result<Recovery, LogError> {
        options.check()?;
        let mut folder = Folder::list(disk.as_ref())?;
        if folder.extents.is_empty() {
            if let Some(at) = folder.images.last() {
                let sequence = at.0.saturating_sub(1) / options.extent_bytes;
                return Err(files::missing(sequence, options.extent_bytes));
            }
            let header = keeper::first_header(new_log_id, options.extent_bytes);
            let filled = FIRST_FILL_BYTES.min(options.extent_bytes);
            keeper::make(disk.as_ref(), header, filled, &|| false)
                .map_err(|e| LogError::io("make the first extent", &disk.name(), e))?;
            folder = Folder::list(disk.as_ref())?;
        }
        let Some(opened) = files::open_extents(disk.as_ref(), &folder)? else {
            return Err(files::missing(0, options.extent_bytes));
        };
        options.extent_bytes = opened.extent_bytes;
        options.check()?;
        let images = files::newest_image(disk.as_ref(), &folder, opened.log_id)?;
        let first_read = match &images.newest {
            Some((at, _)) => at.0.saturating_sub(1) / opened.extent_bytes,
            None => 0,
        };
        if !opened.extents.contains_key(&first_read) {
            return Err(not_covered(
                &opened.extents,
                first_read,
                images.newest.is_some(),
                &options,
            ));
        }
        Ok(Recovery {
            disk,
            options,
            log_id: opened.log_id,
            folder,
            extents: opened.extents,
            image: images.newest,
            damaged_images: images.damaged,
            findings: images.findings,
            first_read,
            tail: None,
        })
    }

    /// The newest readable image and its position, to be restored before replay.
    #[must_use]
    pub fn image(&self) -> Option<(Lsn, Bytes)> {
        self.image.clone()
    }

    /// Which log this is.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// Bytes of one extent: those of the log that is there, whatever the options said.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.options.extent_bytes
    }

    /// Yields each record of each whole run from the image on, in order, and cuts a torn tail off.
    /// Once. After an error, throw away what was made of the records.
    ///
    /// # Errors
    /// [`ReplayError`]: damage before the tail, with the place of it. Nothing was changed.
    ///
    /// # Panics
    /// When called twice.
    pub fn replay<E>(
        &mut self,
        mut record: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
    ) -> Result<Report, ReplayError<E>> {
        assert!(self.tail.is_none(), "a log is replayed once");
        let from = self.image.as_ref().map_or(Lsn::ZERO, |(at, _)| *at);
        let mut report = Report::default();
        let mut runs = Runs::default();
        let mut scan =
            Scan::new(self.log_id, self.options.extent_bytes, &self.extents, self.first_read);
        // An unreadable place ends the walk as any other; the table decides about it.
        while let Ok(Some(header)) = scan.next() {
            let lsn = header.lsn.after(BATCH_HEADER_BYTES as u64);
            let place = (header.term, lsn);
            report.batches += 1;
            report.bytes += header.batch_bytes();
            let payload = scan.payload().map_err(|e| LogError::io("read a batch", "extent", e));
            let payload = payload.map_err(ReplayError::Log)?;
            match runs.feed(place, payload, from, &mut record) {
                Ok(count) => report.records += count,
                Err(Halt::Receiver { lsn, error }) => {
                    return Err(ReplayError::Record { lsn, error });
                }
                Err(Halt::Malformed) => {
                    let bytes = self.options.extent_bytes;
                    let place = Place { sequence: lsn.0 / bytes, offset: header.lsn.0 % bytes };
                    let finding = finding(place, header.lsn, Damage::Records);
                    return Err(ReplayError::Log(LogError::Damaged(finding)));
                }
            }
        }
        let (facts, ghosts) = scan.facts(self.image.as_ref().map(|(at, _)| *at));
        let (place, end) = (scan.place, scan.end);
        let link = scan.link.unwrap_or(Link::ROOT);
        let lsn = scan.lsn(place);
        match table::judge_tail(facts) {
            TailVerdict::Refuse(what) => {
                let finding = finding(place, lsn, what);
                return Err(ReplayError::Log(LogError::Damaged(finding)));
            }
            TailVerdict::End => self.repair(place, &[]).map_err(ReplayError::Log)?,
            TailVerdict::Cut => {
                self.findings.push(finding(place, lsn, Damage::TornTail));
                self.repair(place, &ghosts).map_err(ReplayError::Log)?;
            }
        }
        self.tail = Some(Tail { place, link, end });
        report.tail = end;
        report.findings.clone_from(&self.findings);
        Ok(report)
    }

    /// Starts the log's threads. Replays into nothing when [`Recovery::replay`] was not called.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(mut self, listener: Arc<dyn Listener>) -> Result<Log, LogError> {
        if self.tail.is_none() {
            let nothing = |_: Lsn, _: &[u8]| Ok::<(), std::convert::Infallible>(());
            match self.replay(nothing) {
                Ok(_) => {}
                Err(ReplayError::Log(error)) => return Err(error),
                Err(ReplayError::Record { error, .. }) => match error {},
            }
        }
        Log::run(Arc::new(self.into_shared(listener)?))
    }
}

pub(crate) fn finding(place: Place, lsn: Lsn, what: Damage) -> Finding {
    let Place { sequence, offset } = place;
    Finding { file: extent_name(sequence), extent: sequence, offset, lsn, what }
}

/// Why the extent in which reading should begin is not among `extents`.
fn not_covered(
    extents: &BTreeMap<u64, Found>,
    first_read: u64,
    has_image: bool,
    options: &Options,
) -> LogError {
    let first = extents.first_key_value().map_or(0, |(sequence, _)| *sequence);
    let last = extents.last_key_value().map_or(0, |(sequence, _)| *sequence);
    if has_image && first_read > last {
        return files::missing(first_read, options.extent_bytes);
    }
    let place = Place { sequence: first, offset: 0 };
    let lsn = Lsn(first.saturating_mul(options.extent_bytes));
    LogError::Damaged(finding(place, lsn, Damage::ImageMissing))
}
