//! Start of a log: scan, classify by a table of cases, repair; in this order, in three files.
//!
//! [`Recovery::open`] looks at the files and changes nothing (but makes the first extent of a new
//! log). [`Recovery::replay_items`] reads the batches from the newest image on, or all that there
//! are, yields whole runs, decides about the tail, where the chain ends, and only then cuts a torn
//! tail off. [`Recovery::start`] starts the threads. Not here: what records mean.
//!
//! Invariants: what was durable is never cut off; nothing is repaired before everything that is
//! read was judged; what lies before the position where reading begins is neither read nor opened;
//! the log goes on with a higher term, so that no byte left behind can pass for a continuation.

mod earlier;
mod member;
mod progress;
mod repair;
mod replay;

#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use towline_os::time::Instant;

use bytes::Bytes;
use towline_types::Lsn;

use crate::disk::Disk;
use crate::error::{Damage, Finding, LogError};
use crate::folder::chain::{ExtentOffset, Link, beginning_is_gone, finding};
use crate::folder::files::{self, Files, Folder};
use crate::folder::images::Images;
use crate::folder::names::image_name;
use crate::folder::scan::{Scan, TailSurvey};
use crate::folder::table::{self, TailVerdict};
use crate::format::{ImageHeader, LogId};
use crate::listener::Listener;
use crate::log::Log;
use crate::options::Options;
use crate::preallocation;
use member::ReplayMemory;
use progress::Progress;
use replay::ReplaySource;

pub use member::{BatchPlaces, ResumedStream};

/// Bytes of the first extent that are filled before a new log can be used; the rest is filled
/// behind it while it is used. A start takes no longer than this.
const FIRST_FILL_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of an unfinished run that replay holds; a longer one is read a second time at its end.
const RUN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A log that was opened and not yet started.
pub struct Recovery {
    disk: Arc<dyn Disk>,
    options: Options,
    folder: Folder,
    files: Files,
    image: Option<(ImageHeader, Bytes)>,
    /// Whether a newer one than that could not be used.
    passed_over: bool,
    damaged_images: Vec<Lsn>,
    findings: Vec<Finding>,
    /// The oldest extent with a checked header.
    checked_from: u64,
    opened: Duration,
    seen: ReplayMemory,
    tail: Option<Tail>,
    /// A repair or a sync failed: what is on the disk is not known, and trying again proves
    /// nothing.
    failed: bool,
    /// See [`Recovery::look_only`].
    looks_only: bool,
}

/// Where the log goes on.
struct Tail {
    place: ExtentOffset,
    link: Link,
    end: Lsn,
    /// Length of the batch that ends there.
    batch_bytes: u32,
}

/// An image as it was found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Runs that end at or before it are in the image (in format version 1: from where on the log
    /// must be replayed, whatever is in the image).
    pub at: Lsn,
    /// What was given to [`Log::write_image`].
    pub bytes: Bytes,
    /// Whether it is the newest one on disk; else newer ones could not be used.
    pub is_newest: bool,
    /// Format version of its file, 1 or 2.
    pub version: u16,
}

/// Where replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the first run that is not in [`Recovery::image`]; without an image, with the first of
    /// the log. An image of format version 1 does not say where that is: then with the first run
    /// that ends behind its position, as far as it lies in the extent of the byte before it or
    /// later.
    Image,
    /// With the oldest extent that is there. When that is not the first of the log, the run that
    /// began before it is yielded as far as it is there.
    Oldest,
}

/// What replay yields, in the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayItem<'a> {
    /// Another process, or another leader, wrote from here on. What the one before did not finish
    /// never will be. Not yielded for the first batch of a log, nor for the first one that is read
    /// when nothing is known of the one before it.
    NewTerm {
        /// Position of the first batch of the term.
        at: Lsn,
    },
    /// A record of a whole run.
    Record {
        /// Position of its first byte.
        lsn: Lsn,
        /// What it holds.
        bytes: &'a [u8],
    },
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
    /// What was found and repaired: a torn tail, an image that had to be skipped. For the
    /// operator's log; nothing acknowledged is lost by them.
    pub findings: Vec<Finding>,
    /// Calls that read extents.
    pub reads: u64,
    /// Bytes that they asked for.
    pub bytes_read: u64,
    /// Listing and checking files, reading the image.
    pub opening: Duration,
    /// Reading batches and yielding their records, of which
    pub replaying: Duration,
    /// so much was waiting for the disk (that of `judging` included).
    pub waiting: Duration,
    /// Looking behind the end of the log, and cutting off what was torn.
    pub judging: Duration,
    /// Making durable what was found: syncs of extents, and one of the folder,
    pub syncs: u64,
    /// and how long they took with what was put away.
    pub syncing: Duration,
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
        let began = Instant::now();
        options.check()?;
        let mut folder = Folder::list(disk.as_ref())?;
        if folder.extents.is_empty() {
            if folder.held_log() {
                return Err(files::no_extents(&folder));
            }
            let header = preallocation::first_header(new_log_id, options.extent_bytes);
            let filled = FIRST_FILL_BYTES.min(options.extent_bytes);
            preallocation::make(disk.as_ref(), header, filled, &|| false)
                .and_then(|_| disk.sync_names())
                .map_err(|e| LogError::io("make the first extent", &disk.name(), e))?;
            folder = Folder::list(disk.as_ref())?;
        } else if !folder.held_log() {
            // The start that made it may not have come to make its name durable: files that are
            // made from here on, and outlive it in a power cut, would say that a log is gone.
            disk.sync_names().map_err(|e| LogError::io("sync the log folder", &disk.name(), e))?;
        }
        let Some(files) = Files::of(&disk, &folder)? else {
            return Err(files::no_extents(&folder));
        };
        options.extent_bytes = files.identity().extent_bytes;
        options.check()?;
        let log_id = files.identity().log_id;
        let images = Images::load(disk.as_ref(), &folder, log_id, Lsn(u64::MAX))?;
        let mut recovery = Recovery {
            disk,
            options,
            folder,
            checked_from: files.last() + 1,
            files,
            image: images.newest,
            passed_over: !images.damaged.is_empty(),
            damaged_images: images.damaged,
            findings: images.findings,
            opened: Duration::ZERO,
            seen: ReplayMemory::default(),
            tail: None,
            failed: false,
            looks_only: false,
        };
        recovery.check_covered()?;
        recovery.opened = began.elapsed();
        Ok(recovery)
    }

    /// The extent in which reading begins with the image, or without one.
    fn first_read(&self) -> u64 {
        let needs = self.image.as_ref().map_or(Lsn::ZERO, |(header, _)| header.needs());
        needs.0 / self.options.extent_bytes
    }

    /// Checks that the log is there from the image on, and the files in which it is.
    fn check_covered(&mut self) -> Result<(), LogError> {
        self.files.cover(self.image.as_ref().map(|(header, _)| *header))?;
        self.check_files(self.first_read())
    }

    fn check_files(&mut self, from: u64) -> Result<(), LogError> {
        let before = Bound::Excluded(self.checked_from);
        if from < self.checked_from {
            self.files.check(self.disk.as_ref(), (Bound::Included(from), before))?;
            self.checked_from = from;
        }
        Ok(())
    }

    /// The newest image that is whole, to be restored before replay.
    #[must_use]
    pub fn image(&self) -> Option<Image> {
        self.image.as_ref().map(|(header, bytes)| Image::of(header, bytes, !self.passed_over))
    }

    /// The next older image that is whole, if there is one: what it refers to may be needed too.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn older_image(&self) -> Result<Option<Image>, LogError> {
        let Some((header, _)) = &self.image else { return Ok(None) };
        let log_id = self.files.identity().log_id;
        let images = Images::load(self.disk.as_ref(), &self.folder, log_id, header.at)?;
        Ok(images.newest.map(|(header, bytes)| Image::of(&header, &bytes, false)))
    }

    /// Skips the image that [`Recovery::image`] gave, because what it refers to is damaged: the
    /// next older one replaces it, and replay begins there. The skipped image is among the
    /// findings, and is renamed at the end of replay. Returns whether there is an older one; if
    /// not, nothing was changed, and [`Begin::Oldest`] is what is left.
    ///
    /// # Errors
    /// [`LogError`], when the log is not there from the older image on.
    pub fn pass_over_image(&mut self) -> Result<bool, LogError> {
        assert!(self.tail.is_none(), "an image is chosen before replay");
        let Some((header, _)) = &self.image else { return Ok(false) };
        let at = header.at;
        let log_id = self.files.identity().log_id;
        let older = Images::load(self.disk.as_ref(), &self.folder, log_id, at)?;
        if older.newest.is_none() {
            return Ok(false);
        }
        self.passed_over = true;
        self.damaged_images.push(at);
        let (file, what) = (image_name(at), Damage::Image);
        self.findings.push(Finding { file, extent: 0, offset: 0, lsn: at, what });
        self.damaged_images.extend(older.damaged);
        self.findings.extend(older.findings);
        self.image = older.newest;
        self.check_covered()?;
        Ok(true)
    }

    /// Which log this is.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.files.identity().log_id
    }

    /// Bytes of one extent: those of the log that is there, whatever the options said.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.options.extent_bytes
    }

    /// Whether the file of an extent was there when the log was opened, whatever is in it.
    #[must_use]
    pub fn has_extent(&self, sequence: u64) -> bool {
        self.files.is_there(sequence)
    }

    /// The oldest extent that is there.
    #[must_use]
    pub fn oldest_extent(&self) -> u64 {
        self.files.below.keys().next().copied().unwrap_or_else(|| self.files.first())
    }

    /// Replay will only look: it cuts nothing off and syncs nothing. The log cannot be started
    /// then.
    pub fn look_only(&mut self) {
        self.looks_only = true;
    }

    /// [`Recovery::replay_from`] the image, without reporting progress.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When called again after it went well.
    pub fn replay<E>(
        &mut self,
        record: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
    ) -> Result<Report, ReplayError<E>> {
        self.replay_from(Begin::Image, record, |_, _| {})
    }

    /// [`Recovery::replay_items`] without the changes of term, for a receiver to which all runs are
    /// whole.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// When called again after it went well.
    pub fn replay_from<E>(
        &mut self,
        begin: Begin,
        mut record: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
        progress: impl FnMut(u64, u64),
    ) -> Result<Report, ReplayError<E>> {
        let take = |item: ReplayItem<'_>| match item {
            ReplayItem::Record { lsn, bytes } => record(lsn, bytes),
            ReplayItem::NewTerm { .. } => Ok(()),
        };
        self.replay_items(begin, take, progress)
    }

    /// Yields each record of each whole run from `begin` on, and each change of term of the batches
    /// that it does not hold back, in order, and cuts a torn tail off. Once; after an error,
    /// discard what was made of the records, and call it again from another beginning if that may
    /// help. `progress` gets the bytes of log done and (at most) to do, when 64 MiB or 100 ms have
    /// passed and at the end.
    ///
    /// # Errors
    /// [`ReplayError`]: damage before the tail, with its location. Nothing was changed. Or that
    /// what was found could not be made durable: then it is not known what is on the disk.
    ///
    /// # Panics
    /// When called again after it went well.
    pub fn replay_items<E>(
        &mut self,
        begin: Begin,
        mut take: impl FnMut(ReplayItem<'_>) -> Result<(), E>,
        progress: impl FnMut(u64, u64),
    ) -> Result<Report, ReplayError<E>> {
        assert!(self.tail.is_none(), "a log is replayed once");
        if self.failed {
            return Err(ReplayError::Log(LogError::Failed));
        }
        let began = Instant::now();
        let (mut scan, upto) = match begin {
            Begin::Image => self.scan_from_image().map_err(ReplayError::Log)?,
            Begin::Oldest => {
                if self.image.is_none() && self.files.first() > 0 {
                    let bytes = self.options.extent_bytes;
                    return Err(ReplayError::Log(beginning_is_gone(self.files.first(), bytes)));
                }
                // A message may live in what lies before a gap, and be rebuilt from there alone.
                self.files.check_no_gap().map_err(ReplayError::Log)?;
                self.check_files(self.files.first()).map_err(ReplayError::Log)?;
                (Scan::new(&self.files, self.files.first()), Lsn::ZERO)
            }
        };
        let first = scan.place.sequence;
        let image_at = self.image.as_ref().map(|(header, _)| header.at);
        let mut seen = self.seen.begin(scan.begun(), image_at.unwrap_or_default());
        let mut progress = Progress::new(scan.lsn(scan.place), &self.files, progress);
        let mut report = Report { opening: self.opened, ..Report::default() };
        // No more than bodies may take later.
        let bytes_max = seen.run_bytes_max(self.options.cache_bytes.min(RUN_BYTES_MAX));
        let source = ReplaySource { scan: &mut scan, files: &self.files, upto, bytes_max };
        let take = &mut take;
        let again = replay::yield_runs(source, take, &mut seen, &mut report, &mut progress)?;
        report.replaying = began.elapsed();
        let began = Instant::now();
        let TailSurvey { facts, ghosts } = scan.facts(image_at, self.options.stray_bytes());
        let (place, end, mut cost) = (scan.place, scan.end, scan.cost());
        cost.add(again);
        let (link, batch_bytes) = (scan.link, scan.batch_bytes);
        let lsn = scan.lsn(place);
        drop(scan);
        let ghosts = match table::judge_tail(facts) {
            TailVerdict::Refuse(what) => {
                let finding = finding(place, lsn, what);
                return Err(ReplayError::Log(LogError::Damaged(finding)));
            }
            TailVerdict::End => Vec::new(),
            TailVerdict::Cut => {
                self.findings.push(finding(place, lsn, Damage::TornTail));
                ghosts
            }
        };
        // The beginning of the log is gone, and so is every batch behind it.
        let no_batch = || ReplayError::Log(LogError::Damaged(finding(place, lsn, Damage::Batch)));
        let link = link.ok_or_else(no_batch)?;
        report.judging = began.elapsed();
        let began = Instant::now();
        let repaired = match self.looks_only {
            true => Ok(0),
            false => self.repair(first, place, &ghosts),
        };
        self.failed = repaired.is_err();
        report.syncs = repaired.map_err(ReplayError::Log)?;
        report.syncing = began.elapsed();
        self.findings.extend(self.files.left_over());
        self.seen = seen;
        self.tail = Some(Tail { place, link, end, batch_bytes });
        progress.end();
        report.tail = end;
        report.findings.clone_from(&self.findings);
        (report.reads, report.bytes_read, report.waiting) = (cost.reads, cost.bytes, cost.waited);
        Ok(report)
    }

    /// Where reading begins with the image, and up to where the image holds all.
    fn scan_from_image(&self) -> Result<(Scan<'_>, Lsn), LogError> {
        let Some((ImageHeader { at, seam, .. }, _)) = &self.image else {
            return Ok((Scan::new(&self.files, 0), Lsn::ZERO));
        };
        let Some(seam) = *seam else {
            return Ok((Scan::new(&self.files, self.first_read()), *at));
        };
        let mut scan = Scan::behind(&self.files, seam);
        let damage = match scan.follows(seam) {
            Ok(true) => return Ok((scan, *at)),
            Ok(false) => Damage::EndsBeforeImage,
            Err(_) => Damage::Unreadable,
        };
        let begin = Lsn(seam.end.0.saturating_sub(u64::from(seam.bytes)));
        Err(LogError::Damaged(finding(scan.place_of(begin), begin, damage)))
    }

    /// Starts the log's threads. Replays into nothing when [`Recovery::replay`] was not called. The
    /// listener is the caller's: when it is dropped, the log goes on and reports to nothing.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(mut self, listener: Arc<dyn Listener>) -> Result<Log, LogError> {
        self.replay_into_nothing()?;
        let role = repair::Begins::Writing;
        Log::run(Arc::new(self.into_shared(listener, role)?))
    }

    fn replay_into_nothing(&mut self) -> Result<(), LogError> {
        if self.tail.is_some() {
            return Ok(());
        }
        let nothing = |_: Lsn, _: &[u8]| Ok::<(), std::convert::Infallible>(());
        match self.replay(nothing) {
            Ok(_) => Ok(()),
            Err(ReplayError::Log(error)) => Err(error),
            Err(ReplayError::Record { error, .. }) => match error {},
        }
    }
}

impl Image {
    fn of(header: &ImageHeader, bytes: &Bytes, is_newest: bool) -> Image {
        let (at, version) = (header.at, header.version());
        Image { at, bytes: bytes.clone(), is_newest, version }
    }
}
