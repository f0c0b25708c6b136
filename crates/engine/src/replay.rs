//! From a data folder to an instance: opens the log, reads the newest image and applies the log
//! behind it.
//!
//! Not here: what runs after that (`running`), how records are read (`towline_log`) and applied
//! (`towline_node::Restart`).
//!
//! Invariant: a start that is refused has changed nothing but the tail of the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use towline_os::fs;
use towline_os::time::Instant;

use bytes::Bytes;
use towline_admin::catalogue::{
    LOG_LEFT_OVER, MENDED, MESSAGES_GIVEN_UP, REBUILDING, RECOVERY_ENDED, RECOVERY_GOES_ON,
    STARTING, TAIL_CUT,
};
use towline_admin::status::RestartStatus;
use towline_config::Config;
use towline_core::Pages as Trust;
use towline_log::{
    Begin, Damage, DelayDisk, Disk, Finding, Image, LinuxDisk, LogId, Pages, Recovery, ReplayError,
    ReplayItem, Report, mark_rebuild,
};
use towline_logging::log;
use towline_node::{Restart, RestartError};
use towline_process::folder;
use towline_standby::Home;
use towline_types::{Lsn, PageRef};

use crate::missing_extents::{Doubt, MissingExtents};
use crate::name_file;
use crate::page_writer::evict;
use crate::settings::{options, rules};
use crate::shared_log::SharedLog;
use crate::start_error::{StartError, refusal};

/// Options of the command line for one start.
#[derive(Clone, Copy, Debug, Default)]
pub struct StartOptions {
    /// Added to each sync of the log.
    pub sync_delay: Duration,
    /// Start although extents with live messages are missing.
    pub without_missing: bool,
}

/// Which log is opened, and how far it is applied.
#[derive(Clone, Copy, Debug)]
pub struct ReplayTarget {
    /// The id of a log that is created, when there is none.
    pub new_id: LogId,
    /// In a group: runs that end behind this batch are not applied.
    pub known: Option<u64>,
}

/// Reads the newest image in `home` and the log behind it, and applies them. Creates a log that
/// does not exist.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub fn replay(
    name: &str,
    home: &Home,
    config: &Config,
    start: StartOptions,
    target: ReplayTarget,
) -> Result<ReplayedLog, StartError> {
    let data = home.data();
    let log_folder = home.log_folder();
    folder::make(log_folder).map_err(StartError::Folder)?;
    // Another process may have made it a moment ago, without a sync.
    folder::sync(data).map_err(StartError::Folder)?;
    let disk = LinuxDisk::open(log_folder).map_err(StartError::Log)?;
    home.check()?;
    name_file::check(data, name)?;
    log(&STARTING, &[name, towline_types::program_version(), &data.display().to_string()]);
    crate::owners::report([data, log_folder]);
    let disk: Arc<dyn Disk> = match SharedLog::begin(data).map_err(StartError::Folder)? {
        Some(shared) => Arc::new(shared.disk(disk).map_err(StartError::Log)?),
        None if start.sync_delay.is_zero() => Arc::new(disk),
        None => Arc::new(DelayDisk::new(Arc::new(disk), start.sync_delay)),
    };
    let disk = home.guard(disk);
    let marker = home.rebuild_marker();
    let without_missing = start.without_missing;
    let replay = Replay { name, config, home, disk, marker: &marker, target, without_missing };
    // A marker that cannot be looked at may be there: pages that are not whole must not be trusted.
    if fs::try_exists(&marker).map_err(StartError::Folder)? {
        log(&REBUILDING, &["an earlier start, or run, found that pages cannot be used"]);
        return replay.run(Trust::Ignored);
    }
    match replay.run(Trust::Whole) {
        Err(error) if error.is_of_pages() => {
            log(&REBUILDING, &[&error.to_string()]);
            replay.run(Trust::Ignored)
        }
        other => other,
    }
}

/// Takes what the log yields, as an instance that applies it live does.
///
/// # Errors
/// As [`Restart::record`].
pub(crate) fn apply(
    restart: &mut Restart,
    item: ReplayItem<'_>,
    read: &dyn Fn(PageRef) -> Option<Bytes>,
) -> Result<(), RestartError> {
    match item {
        ReplayItem::Record { lsn, bytes } => restart.record(lsn, bytes, read),
        ReplayItem::NewTerm { at } => {
            restart.new_term(at);
            Ok(())
        }
    }
}

/// How often, in records, replay checks whether too much is in memory.
const EVICTION_INTERVAL: u64 = 4_096;

/// What is needed to replay a log, once or (when pages are damaged) twice.
struct Replay<'a> {
    name: &'a str,
    config: &'a Config,
    home: &'a Home,
    disk: Arc<dyn Disk>,
    /// See [`mark_rebuild`].
    marker: &'a Path,
    target: ReplayTarget,
    /// See [`StartOptions`].
    without_missing: bool,
}

impl Replay<'_> {
    fn run(&self, trust: Trust) -> Result<ReplayedLog, StartError> {
        let began = Instant::now();
        let disk = Arc::clone(&self.disk);
        let options = self.home.options(options(self.config));
        let recovery = Recovery::open(Arc::clone(&disk), options, self.target.new_id);
        let mut recovery = recovery.map_err(StartError::Log)?;
        name_file::write_once(self.home.data(), self.name)?;
        if let Some(committed) = self.target.known {
            recovery.yield_upto(committed);
        }
        let extent_bytes = recovery.extent_bytes();
        let image = recovery.image();
        let trust = trust_with(image.as_ref(), trust);
        if image.is_some() && trust == Trust::Ignored {
            // The page file is emptied: no image that refers to it may be trusted from now on.
            mark_rebuild(self.marker).map_err(StartError::Folder)?;
        }
        let bytes = image.as_ref().map(|image| image.bytes.as_ref());
        let restart = Restart::begin(self.name, rules(self.config), extent_bytes, bytes, trust);
        let image_at = image.as_ref().map(|image| image.at).unwrap_or_default();
        let refused = |error| refusal(error, image_at, extent_bytes);
        let mut restart = restart.map_err(refused)?;
        let image_made = began.elapsed();
        let begin = match (&image, restart.is_whole()) {
            (Some(image), false) if image.version > 1 => Begin::Oldest,
            (_, _) => Begin::Image,
        };
        let pages = Pages::open(Arc::clone(&disk), restart.pages()).map_err(StartError::Pages)?;
        let mut records = 0_u64;
        let mut can_evict = true;
        let take = |item: ReplayItem<'_>| {
            records += 1;
            if can_evict && records.is_multiple_of(EVICTION_INTERVAL) {
                can_evict = evict(&mut restart, &pages);
            }
            apply(&mut restart, item, &|page| pages.read(page).ok())
        };
        let replayed = recovery.replay_items(begin, take, progress_line());
        let report = replayed.map_err(|error| match error {
            ReplayError::Log(error) => StartError::Log(error),
            ReplayError::Record { error, .. } => refused(error),
        })?;
        report_recovery(&report, began.elapsed());
        let read = |page| pages.read(page).ok();
        let missing = MissingExtents::find(&restart, &recovery, &read);
        if missing.is_empty() {
            report_left_over(&report);
        }
        let doubt = Doubt::of(&restart, &recovery);
        let images_from = images_from(&restart, &recovery);
        // An instance that starts without extents does not lead while there is a doubt.
        let lacks_extents = !missing.is_empty() || (self.without_missing && doubt.is_some());
        self.judge(missing)?;
        let rebuilt = matches!(begin, Begin::Oldest);
        let status = restart_status(&report, rebuilt, image_made, began.elapsed());
        Ok(ReplayedLog {
            restart,
            recovery,
            pages,
            status,
            marker: self.marker.to_owned(),
            tail: report.tail,
            disk,
            lacks_extents,
            doubt,
            images_from,
        })
    }
}

/// Whether the page file can be used with `image`: pages that an older image refers to may have
/// been reused.
fn trust_with(image: Option<&Image>, trust: Trust) -> Trust {
    match image {
        Some(image) if image.is_newest => trust,
        Some(_) => {
            log(&REBUILDING, &["the newest image is damaged, and an older one is used"]);
            Trust::Ignored
        }
        None => Trust::Ignored,
    }
}

impl Replay<'_> {
    /// Whether a start is allowed without the extents that are missing.
    fn judge(&self, missing: MissingExtents) -> Result<(), StartError> {
        match (missing.is_empty(), self.without_missing) {
            (true, _) => Ok(()),
            (false, true) => {
                log(&MESSAGES_GIVEN_UP, &[&missing.messages().to_string(), &missing.to_string()]);
                Ok(())
            }
            (false, false) => Err(StartError::MissingExtents(missing)),
        }
    }
}

/// An instance before the end of its restart, with its log and page file.
pub struct ReplayedLog {
    /// The instance.
    pub restart: Restart,
    /// The log, before it runs.
    pub recovery: Recovery,
    /// Its page file.
    pub pages: Pages,
    /// The times of the restart.
    pub status: RestartStatus,
    /// The rebuild marker, whether or not it is there.
    pub marker: PathBuf,
    /// The end of the log.
    pub tail: Lsn,
    /// The log folder.
    pub disk: Arc<dyn Disk>,
    /// An operator started it without extents that hold live messages.
    pub lacks_extents: bool,
    /// Whether live messages are in missing extents is known when more of the log is applied.
    pub doubt: Option<Doubt>,
    /// Before the batch of this index is applied no image may be taken, because it would lack
    /// messages: see [`images_from`]. 0: at once.
    pub images_from: u64,
}

/// When messages are found in the log, those are not found that were in reclaimed extents. What
/// removes them is in a batch of the log, and the rules pass over it. But before it is applied the
/// queues lack these messages, and no later start could pass over their removal if an image said
/// that the queues are whole.
fn images_from(restart: &Restart, recovery: &Recovery) -> u64 {
    if restart.is_whole() || !recovery.held_back() {
        return 0;
    }
    let known = recovery.places();
    known.batches.last().unwrap_or(&known.base).index
}

/// Reports the progress of a long start, at most once in a second.
fn progress_line() -> impl FnMut(u64, u64) {
    let mut reported = Instant::now();
    move |done, all| {
        if reported.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        reported = Instant::now();
        let percent = done.saturating_mul(100) / all.max(1);
        let mebibytes = |bytes: u64| (bytes >> 20).to_string();
        log(&RECOVERY_GOES_ON, &[&mebibytes(done), &mebibytes(all), &percent.to_string()]);
    }
}

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

fn restart_status(
    report: &Report,
    rebuilt: bool,
    image_made: Duration,
    total: Duration,
) -> RestartStatus {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    RestartStatus {
        rebuilt,
        records: report.records,
        bytes: report.bytes,
        reads: report.reads,
        opening_us: us(report.opening),
        image_us: us(image_made.saturating_sub(report.opening)),
        replaying_us: us(report.replaying),
        waiting_us: us(report.waiting),
        judging_us: us(report.judging),
        total_us: us(total),
    }
}

fn report_recovery(report: &Report, took: Duration) {
    for finding in &report.findings {
        let entry = match finding.what {
            Damage::TornTail => &TAIL_CUT,
            // Whether the gap lacks live messages is not known yet.
            Damage::LeftOver(_) => continue,
            _ => &MENDED,
        };
        log(entry, &[&finding.to_string()]);
    }
    let (records, bytes) = (report.records.to_string(), report.bytes.to_string());
    log(&RECOVERY_ENDED, &[&records, &bytes, &took.as_millis().to_string()]);
}

/// Reports extents before a gap, when no live message is missing.
fn report_left_over(report: &Report) {
    let is_left_over = |finding: &&Finding| matches!(finding.what, Damage::LeftOver(_));
    for finding in report.findings.iter().filter(is_left_over) {
        log(&LOG_LEFT_OVER, &[&finding.to_string()]);
    }
}

#[cfg(test)]
mod tests;
