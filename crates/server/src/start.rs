//! From a data folder to a running node: open the log, bring the instance back, define what a new
//! queue manager starts with.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use towline_admin::catalogue::{
    HOUSEKEEPING_FAILED, LOG_LEFT_OVER, MENDED, MESSAGES_GIVEN_UP, PAGE_WRITE_FAILED, REBUILDING,
    RECOVERY_ENDED, RECOVERY_GOES_ON, STARTING, TAIL_CUT,
};
use towline_admin::status::RestartStatus;
use towline_core::{AutoDefine, Limits, PageRequest, Pages as Trust};
use towline_log::time_index::Times;
use towline_log::{
    Begin, Damage, DelayDisk, Disk, Finding, LinuxDisk, LogError, LogId, Options, Pages, Recovery,
    Report,
};
use towline_node::{Chore, Fetch, Instance, Restart, RestartError};
use towline_types::{Lsn, limits};

use crate::clerk::Clerk;
use crate::clock::Clock;
use crate::door::{Chores, Door};
use crate::fetcher::Fetcher;
use crate::images::{Images, Stand};
use crate::lacking::{Doubt, Lacking};
use crate::pager::{self, Pager};
use crate::shared_folder::{Home, Lease};
use crate::status::Surroundings;
use towline_config::Config;
use towline_logging::log;

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
        /// The format version found.
        found: u8,
        /// The newest version that this program reads.
        supported: u8,
    },
    /// The log is not that of this group.
    OtherLog {
        /// Name of the group.
        group: String,
    },
    /// The data is that of a queue manager of another name.
    OtherName {
        /// The name that stands with the data.
        theirs: String,
        /// The name that it was to be started with.
        ours: String,
    },
    /// Extents with live messages are gone.
    Lacking(Lacking),
    /// The log's content does not fit together.
    Restart(RestartError),
}

/// What the one who starts it wants, beside the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// Added to each sync of the log.
    pub(crate) sync_delay: Duration,
    /// Start although extents with live messages are gone.
    pub(crate) without_missing: bool,
}

impl StartError {
    /// Whether the queues can be rebuilt from the log alone.
    pub(crate) fn is_of_pages(&self) -> bool {
        matches!(self, StartError::Pages(_) | StartError::Restart(RestartError::Page { .. }))
    }
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Folder(error) => write!(out, "{error}"),
            StartError::Log(error) | StartError::Pages(error) => write!(out, "{error}"),
            StartError::Newer { place, found, supported } => {
                write!(out, "{place} has version {found}, this program reads up to {supported}")
            }
            StartError::OtherLog { group } => write!(
                out,
                "the log there is not that of a queue manager of this name in group '{group}'; begin \
                 with an empty folder, or set the log aside with `towline instance replace`"
            ),
            StartError::OtherName { theirs, ours } => {
                write!(out, "it belongs to queue manager '{theirs}', not to '{ours}'")
            }
            StartError::Lacking(lacking) => write!(out, "{lacking}"),
            StartError::Restart(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A queue manager that is back, and what its threads need.
pub(crate) struct Opened {
    pub(crate) door: Arc<Door>,
    pub(crate) fetches: Receiver<Fetch>,
    pub(crate) page_requests: Receiver<PageRequest>,
    pub(crate) chores: Receiver<Chore>,
    pub(crate) images: Arc<Images>,
}

/// Opens the log of `home` and brings the queue manager `name` back.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub(crate) fn open(
    name: &str,
    home: &Home,
    config: &Config,
    wishes: Wishes,
    clock: Clock,
) -> Result<Opened, StartError> {
    let new_id = LogId(u128::from_le_bytes(crate::random::bytes()));
    let found = bring_back(name, home, config, wishes, (new_id, None))?;
    let Found { restart, recovery, pages, status, marker, tail, disk, lacks: _, doubt: _ } = found;
    let instance = restart.finish(tail);
    let extent_bytes = recovery.extent_bytes();
    let about = (config, extent_bytes, status);
    let made = Door::make(instance, about, (&pages, &marker, home.lease()), clock);
    let listener: Arc<dyn towline_log::Listener> = made.door.clone();
    let running = recovery.start(listener).map_err(StartError::Log)?;
    made.door.set_log(running);
    let images = images_of(disk, made.door.log().durable(), pages);
    remove_marker(&marker, &images, made.door.as_ref());
    let Made { door, fetches, page_requests, chores } = made;
    Ok(Opened { door, fetches, page_requests, chores, images })
}

/// An instance behind its door, and what its threads need.
pub(crate) struct Made {
    pub(crate) door: Arc<Door>,
    pub(crate) fetches: Receiver<Fetch>,
    pub(crate) page_requests: Receiver<PageRequest>,
    pub(crate) chores: Receiver<Chore>,
}

impl Door {
    /// A door in front of `instance`, which has no log yet.
    pub(crate) fn make(
        instance: Instance,
        (config, extent_bytes, restart): (&Config, u64, RestartStatus),
        (pages, marker, lease): (&Pages, &Path, Option<&Arc<Lease>>),
        clock: Clock,
    ) -> Made {
        let (fetcher, fetches) = Fetcher::new();
        let (pager, page_requests) = Pager::new();
        let surroundings = Surroundings {
            clock: Some(clock),
            cache_bytes_max: config.log.cache_bytes,
            log_bytes_nearly_max: log_bytes_max(config).saturating_sub(2 * extent_bytes),
            restart,
            lease: lease.cloned(),
            ..Surroundings::default()
        };
        assert!(surroundings.pages.set(pages.clone()).is_ok(), "the page file is opened once");
        let (clerk, chores) = Clerk::new();
        let for_it = Chores { fetcher, pager, clerk, rebuild_marker: marker.to_owned() };
        let door = Arc::new(Door::new(instance, for_it, surroundings, clock));
        Made { door, fetches, page_requests, chores }
    }
}

/// Who takes images, and the table of times beside the log.
pub(crate) fn images_of(disk: Arc<dyn Disk>, durable: Lsn, pages: Pages) -> Arc<Images> {
    let times = match Times::open(disk, durable) {
        Ok(times) => Some(times),
        Err(error) => {
            // A restore to a time of day will be less exact; nothing else needs it.
            tracing::warn!(%error, "the table of times cannot be read");
            None
        }
    };
    Arc::new(Images::new(pages, times))
}

/// After a rebuild: from the next image on, images tell what the pages hold.
pub(crate) fn remove_marker(marker: &Path, images: &Images, stand: &impl Stand) {
    if !marker.exists() {
        return;
    }
    images.remove_with_next(marker.to_owned());
    // When none can be taken now (the disk may be full), gets must be served all the same.
    if let Err(error) = images.take(stand) {
        log(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
    }
}

/// Reads what there is in `home`: the newest image and the log behind it, and applies it, but for
/// runs that end behind the batch `known`, if that is given. A log that does not exist is made,
/// with the id that is given.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub(crate) fn bring_back(
    name: &str,
    home: &Home,
    config: &Config,
    wishes: Wishes,
    (new_id, known): (LogId, Option<u64>),
) -> Result<Found, StartError> {
    let (data, folder) = (home.data(), home.log_folder());
    // Messages and the administrator's socket are nobody else's.
    make_folder(folder).map_err(StartError::Folder)?;
    // Somebody else may have made it a moment ago, without a sync.
    sync_folder(data).map_err(StartError::Folder)?;
    let disk = LinuxDisk::open(folder).map_err(StartError::Log)?;
    home.check()?;
    crate::name::check(data, name)?;
    log(&STARTING, &[name, towline_types::program_version(), &data.display().to_string()]);
    crate::owners::report([data, folder]);
    let disk: Arc<dyn Disk> = if wishes.sync_delay.is_zero() {
        Arc::new(disk)
    } else {
        Arc::new(DelayDisk::new(Arc::new(disk), wishes.sync_delay))
    };
    let disk = home.guard(disk);
    let marker = home.rebuild_marker();
    let without_missing = wishes.without_missing;
    let back = Back { name, config, home, disk, marker: &marker, new_id, known, without_missing };
    if marker.exists() {
        log(&REBUILDING, &["an earlier start, or run, found that pages cannot be used"]);
        return back.bring(Trust::Ignored);
    }
    match back.bring(Trust::Whole) {
        Err(error) if error.is_of_pages() => {
            log(&REBUILDING, &[&error.to_string()]);
            back.bring(Trust::Ignored)
        }
        other => other,
    }
}

/// The name of the file that says: do not trust the pages.
pub(crate) const REBUILD_MARKER: &str = "rebuild-queues";
/// How often, in records, it is looked whether replay has too much in memory.
const EVICTION_INTERVAL: u64 = 4_096;

/// What is needed to bring an instance back, once or (when pages are damaged) twice.
struct Back<'a> {
    name: &'a str,
    config: &'a Config,
    home: &'a Home,
    disk: Arc<dyn Disk>,
    /// See [`mark_rebuild`].
    marker: &'a Path,
    /// Of a log that is made.
    new_id: LogId,
    /// Of a member of a group: runs that end behind this batch are not applied.
    known: Option<u64>,
    /// See [`Wishes`].
    without_missing: bool,
}

impl Back<'_> {
    fn bring(&self, trust: Trust) -> Result<Found, StartError> {
        let began = Instant::now();
        let disk = Arc::clone(&self.disk);
        let options = self.home.options(options(self.config));
        let recovery = Recovery::open(Arc::clone(&disk), options, self.new_id);
        let mut recovery = recovery.map_err(StartError::Log)?;
        crate::name::note(self.home.data(), self.name)?;
        if let Some(committed) = self.known {
            recovery.yield_upto(committed);
        }
        let extent_bytes = recovery.extent_bytes();
        let image = recovery.image();
        // Pages that an older image refers to may have been used again.
        let trust = match &image {
            Some(image) if image.is_newest => trust,
            Some(_) => {
                log(&REBUILDING, &["the newest image is damaged, and an older one is used"]);
                Trust::Ignored
            }
            None => Trust::Ignored,
        };
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
        let mut has_room = true;
        let replayed = recovery.replay_from(
            begin,
            |lsn, record| {
                records += 1;
                if has_room && records.is_multiple_of(EVICTION_INTERVAL) {
                    has_room = make_room(&mut restart, &pages);
                }
                let read = |page| pages.read(page).ok();
                restart.record(lsn, record, &read)
            },
            Progress::default().line(),
        );
        let report = replayed.map_err(|error| match error {
            towline_log::ReplayError::Log(error) => StartError::Log(error),
            towline_log::ReplayError::Record { error, .. } => refused(error),
        })?;
        tell(&report, began.elapsed());
        let read = |page| pages.read(page).ok();
        let lacking = Lacking::find(&restart, &recovery, &read);
        if lacking.is_empty() {
            tell_left_over(&report);
        }
        let doubt = Doubt::of(&restart, &recovery);
        // Who was told to start without extents does not lead with a doubt.
        let lacks = !lacking.is_empty() || (self.without_missing && doubt.is_some());
        self.judge(lacking)?;
        let rebuilt = matches!(begin, Begin::Oldest);
        let status = restart_status(&report, rebuilt, image_made, began.elapsed());
        let (marker, tail) = (self.marker.to_owned(), report.tail);
        Ok(Found { restart, recovery, pages, status, marker, tail, disk, lacks, doubt })
    }
}

impl Back<'_> {
    /// Whether a start is allowed without the extents that are missing.
    fn judge(&self, lacking: Lacking) -> Result<(), StartError> {
        match (lacking.is_empty(), self.without_missing) {
            (true, _) => Ok(()),
            (false, true) => {
                log(&MESSAGES_GIVEN_UP, &[&lacking.messages().to_string(), &lacking.to_string()]);
                Ok(())
            }
            (false, false) => Err(StartError::Lacking(lacking)),
        }
    }
}

/// Why the content of the log is refused; for what a later version wrote, with the file.
pub(crate) fn refusal(error: RestartError, image_at: Lsn, extent_bytes: u64) -> StartError {
    match error {
        RestartError::Newer { lsn, found, supported } => {
            let place = match lsn {
                Some(lsn) => format!("extent-{:016x} at {lsn}", lsn.0 / extent_bytes),
                None => format!("image-{:016x}", image_at.0),
            };
            StartError::Newer { place, found, supported }
        }
        RestartError::Image(_)
        | RestartError::Record { .. }
        | RestartError::Page { .. }
        | RestartError::Replay { .. } => StartError::Restart(error),
    }
}

/// An instance that is nearly back, and what it stands on.
pub(crate) struct Found {
    pub(crate) restart: Restart,
    pub(crate) recovery: Recovery,
    pub(crate) pages: Pages,
    pub(crate) status: RestartStatus,
    /// The file that asks for a rebuild, whether or not it is there.
    pub(crate) marker: PathBuf,
    /// Where the log ends.
    pub(crate) tail: Lsn,
    pub(crate) disk: Arc<dyn Disk>,
    /// An operator wanted it without extents in which messages live.
    pub(crate) lacks: bool,
    /// Whether messages live in what is missing is known when more is applied.
    pub(crate) doubt: Option<Doubt>,
}

/// Tells how far a long start is, at most once in a second.
#[derive(Default)]
struct Progress {
    told: Option<Instant>,
}

impl Progress {
    fn line(mut self) -> impl FnMut(u64, u64) {
        let began = Instant::now();
        move |done, all| {
            let last = *self.told.get_or_insert(began);
            if last.elapsed() < PROGRESS_INTERVAL {
                return;
            }
            self.told = Some(Instant::now());
            let percent = done.saturating_mul(100) / all.max(1);
            let mebibytes = |bytes: u64| (bytes >> 20).to_string();
            log(&RECOVERY_GOES_ON, &[&mebibytes(done), &mebibytes(all), &percent.to_string()]);
        }
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

/// Makes the file that tells the next start not to trust the pages: until an image is taken, images
/// refer to what is not there.
///
/// # Errors
/// When it cannot be made durable.
pub(crate) fn mark_rebuild(marker: &Path) -> std::io::Result<()> {
    std::fs::File::create(marker)?.sync_all()?;
    marker.parent().map_or(Ok(()), sync_folder)
}

/// Moves out of memory what replay does not need there. False: pages cannot be written (the disk
/// may be full), which must not keep a queue manager from starting: gets are what makes room.
pub(crate) fn make_room(restart: &mut Restart, pages: &Pages) -> bool {
    let instance = restart.instance();
    while instance.wants_eviction() {
        let jobs = instance.plan_eviction(64);
        if jobs.is_empty() {
            break;
        }
        match pager::write(pages, &jobs) {
            Ok(stored) => {
                instance.pages_stored(stored.into_iter().flatten().collect(), true);
            }
            Err(error) => {
                log(&PAGE_WRITE_FAILED, &[&error.to_string()]);
                return false;
            }
        }
    }
    true
}

fn tell(report: &Report, took: Duration) {
    for finding in &report.findings {
        let entry = match finding.what {
            Damage::TornTail => &TAIL_CUT,
            // What is missing in the gap is not known yet.
            Damage::LeftOver(_) => continue,
            _ => &MENDED,
        };
        log(entry, &[&finding.to_string()]);
    }
    let (records, bytes) = (report.records.to_string(), report.bytes.to_string());
    log(&RECOVERY_ENDED, &[&records, &bytes, &took.as_millis().to_string()]);
}

/// Extents before a gap, where nothing that lives is missing.
fn tell_left_over(report: &Report) {
    let is_left_over = |finding: &&Finding| matches!(finding.what, Damage::LeftOver(_));
    for finding in report.findings.iter().filter(is_left_over) {
        log(&LOG_LEFT_OVER, &[&finding.to_string()]);
    }
}

fn log_bytes_max(config: &Config) -> u64 {
    if config.log.log_bytes_max == 0 { u64::MAX } else { config.log.log_bytes_max }
}

/// Makes a folder and those above it that are missing, each one's name synced before anything is
/// kept in it: a power cut must not take the log away with the name of its folder.
pub(crate) fn make_folder(folder: &Path) -> std::io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if folder.is_dir() {
        // The process that made it may have been killed before it synced the name.
        return match sync_folder(parent) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    make_folder(parent)?;
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    sync_folder(parent)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

pub(crate) fn options(config: &Config) -> Options {
    let log = &config.log;
    Options {
        extent_bytes: log.extent_bytes,
        writes_in_flight_max: log.writes_in_flight_max,
        cache_bytes: usize::try_from(log.cache_bytes).unwrap_or(usize::MAX),
        log_bytes_max: log_bytes_max(config),
        reserve_bytes: log.reserve_bytes,
        ..Options::default()
    }
}

pub(crate) fn rules(config: &Config) -> Limits {
    let manager = &config.queue_manager;
    let auto_define = config
        .auto_define
        .iter()
        .map(|rule| AutoDefine { pattern: rule.pattern.clone(), model: rule.model.clone() });
    Limits {
        unit_messages_max: manager.maxumsgs,
        unit_bytes_max: manager.unit_bytes_max,
        unit_staged_bytes_max: limits::UNIT_STAGED_BYTES_MAX,
        unit_age_max: Duration::from_secs(manager.unit_age_max_s),
        units_per_connection_max: limits::UNITS_PER_CONNECTION_MAX,
        memory_bytes_max: manager.memory_bytes_max,
        message_bytes_max: manager.maxmsgl,
        expired_to_dead_letter: manager.expired_to_deadq,
        dead_letter_queue: manager.deadq.clone(),
        auto_define: auto_define.collect(),
        expiry_scan_interval: Duration::from_secs(manager.expiry_interval_s),
        index_bytes_max: manager.index_bytes_max,
        // As the log has them; set when the log is open.
        extent_bytes: limits::EXTENT_BYTES_DEFAULT,
    }
}

#[cfg(test)]
mod tests;
