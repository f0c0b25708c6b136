//! From a data folder to a running node: open the log, bring the instance back, define what a new
//! queue manager starts with.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_admin::catalogue::{MENDED, RECOVERY_ENDED, STARTING, TAIL_CUT};
use towline_core::{AutoDefine, Limits};
use towline_log::{
    Begin, Damage, DelayDisk, Disk, LinuxDisk, LogError, LogId, Options, Recovery, Report,
};
use towline_node::{Restart, RestartError};
use towline_types::limits;

use crate::clock::Clock;
use crate::config::Config;
use crate::door::Door;
use crate::fetcher::Fetcher;
use crate::logging::log;
use crate::status::Surroundings;

/// Why a data folder cannot be started from.
#[derive(Debug)]
pub enum StartError {
    /// The folder cannot be used.
    Folder(std::io::Error),
    /// The log cannot be opened or read.
    Log(LogError),
    /// The log's content does not fit together.
    Restart(RestartError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Folder(error) => write!(out, "{error}"),
            StartError::Log(error) => write!(out, "{error}"),
            StartError::Restart(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Opens the log in `data` and brings the queue manager `name` back.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub(crate) fn open(
    name: &str,
    data: &Path,
    config: &Config,
    sync_delay: Duration,
    clock: Clock,
) -> Result<(Arc<Door>, std::sync::mpsc::Receiver<towline_node::Fetch>), StartError> {
    let folder = data.join("log");
    // Messages and the administrator's socket are nobody else's.
    make_folder(&folder).map_err(StartError::Folder)?;
    // Somebody else may have made it a moment ago, without a sync.
    sync_folder(data).map_err(StartError::Folder)?;
    let disk = LinuxDisk::open(&folder).map_err(StartError::Log)?;
    log(&STARTING, &[name, env!("CARGO_PKG_VERSION"), &data.display().to_string()]);
    let disk: Arc<dyn Disk> = if sync_delay.is_zero() {
        Arc::new(disk)
    } else {
        Arc::new(DelayDisk::new(Arc::new(disk), sync_delay))
    };
    let began = Instant::now();
    let new_id = LogId(u128::from_le_bytes(crate::random::bytes()));
    let mut recovery = Recovery::open(disk, options(config), new_id).map_err(StartError::Log)?;
    let extent_bytes = recovery.extent_bytes();
    let image = recovery.image();
    let image = image.as_ref().map(|image| image.bytes.as_ref());
    let mut restart =
        Restart::begin(name, rules(config), extent_bytes, image).map_err(StartError::Restart)?;
    // The image holds no messages: they are in the log before it.
    let report = recovery
        .replay_from(Begin::Oldest, |lsn, record| restart.record(lsn, record), |_, _| {})
        .map_err(|error| match error {
            towline_log::ReplayError::Log(error) => StartError::Log(error),
            towline_log::ReplayError::Record { error, .. } => StartError::Restart(error),
        })?;
    let instance = restart.finish(report.tail);
    tell(&report, began.elapsed());
    let (fetcher, fetches) = Fetcher::new();
    let surroundings = Surroundings {
        started_at: clock.started_at(),
        cache_bytes_max: config.log.cache_bytes,
        log_bytes_nearly_max: log_bytes_max(config).saturating_sub(2 * extent_bytes),
        ..Surroundings::default()
    };
    let door = Arc::new(Door::new(instance, fetcher, surroundings, clock));
    let listener: Arc<dyn towline_log::Listener> = door.clone();
    let running = recovery.start(listener).map_err(StartError::Log)?;
    door.set_log(running);
    Ok((door, fetches))
}

fn tell(report: &Report, took: Duration) {
    for finding in &report.findings {
        let entry = match finding.what {
            Damage::TornTail => &TAIL_CUT,
            _ => &MENDED,
        };
        log(entry, &[&finding.to_string()]);
    }
    let (records, bytes) = (report.records.to_string(), report.bytes.to_string());
    log(&RECOVERY_ENDED, &[&records, &bytes, &took.as_millis().to_string()]);
}

fn log_bytes_max(config: &Config) -> u64 {
    if config.log.log_bytes_max == 0 { u64::MAX } else { config.log.log_bytes_max }
}

/// Makes a folder and those above it that are missing, each one's name synced before anything is
/// kept in it: a power cut must not take the log away with the name of its folder.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if folder.is_dir() {
        return Ok(());
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
fn sync_folder(folder: &Path) -> std::io::Result<()> {
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

fn rules(config: &Config) -> Limits {
    let manager = &config.queue_manager;
    let auto_define = config
        .auto_define
        .iter()
        .map(|rule| AutoDefine { pattern: rule.pattern.clone(), model: rule.model.clone() });
    Limits {
        unit_messages_max: manager.maxumsgs,
        unit_bytes_max: manager.unit_bytes_max,
        unit_age_max: Duration::from_secs(manager.unit_age_max_s),
        units_per_connection_max: limits::UNITS_PER_CONNECTION_MAX,
        memory_bytes_max: manager.memory_bytes_max,
        message_bytes_max: manager.maxmsgl,
        expired_to_dead_letter: manager.expired_to_deadq,
        dead_letter_queue: manager.deadq.clone(),
        auto_define: auto_define.collect(),
        expiry_scan_interval: Duration::from_secs(manager.expiry_interval_s),
    }
}
