//! Image and log of a queue manager read as a start reads them, without a change: which extents
//! hold live messages and are missing, and which names are used and not defined.
//!
//! Safe beside a running queue manager. Not here: what follows from it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub use towline_core::Pages as Trust;
use towline_core::{DanglingNames, Limits};
use towline_log::{
    Begin, Disk, LinuxDisk, LogId, Options, Pages, REBUILD_MARKER, Recovery, ReplayError,
    ReplayItem,
};
use towline_node::{Instance, Restart};
use towline_os::fs;
use towline_standby::log_folder;
use towline_types::Lsn;

use crate::missing_extents::MissingExtents;
use crate::replay::apply;
use crate::start_error::{StartError, refusal};

/// Why image and log could not be inspected.
#[derive(Debug)]
pub enum InspectionError {
    /// A start is refused for it.
    Refused(StartError),
    /// A start reads the log in another way, or makes it: the reason.
    OtherWay(String),
}

impl InspectionError {
    fn other(why: impl fmt::Display) -> InspectionError {
        InspectionError::OtherWay(why.to_string())
    }
}

impl From<StartError> for InspectionError {
    fn from(error: StartError) -> InspectionError {
        // With damaged pages the queues are rebuilt from the log.
        match error.is_of_pages() {
            true => InspectionError::other(error),
            false => InspectionError::Refused(error),
        }
    }
}

impl fmt::Display for InspectionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectionError::Refused(error) => error.fmt(out),
            InspectionError::OtherWay(why) => out.write_str(why),
        }
    }
}

/// The extents that hold live messages and are missing from the log in `data`.
///
/// # Errors
/// Why this cannot be known.
pub fn missing_extents(data: &Path) -> Result<MissingExtents, String> {
    let inspected = inspect(data, Limits::default());
    inspected.map(|inspected| inspected.missing).map_err(|why| why.to_string())
}

/// Names that the configuration uses and that are not defined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndefinedNames {
    /// The dead-letter queue.
    pub dead_letter_queue: Option<String>,
    /// Rules of `[[auto_define]]` without their model: pattern and model.
    pub models: Vec<(String, String)>,
}

impl UndefinedNames {
    /// The names that `instance` needs and does not have.
    #[must_use]
    pub fn of(instance: &Instance) -> UndefinedNames {
        let DanglingNames { dead_letter_queue, models } = instance.dangling();
        UndefinedNames { dead_letter_queue, models }
    }
}

/// What an inspection found.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// The extents with live messages that are missing.
    pub missing: MissingExtents,
    /// Names that are used and not defined.
    pub undefined: UndefinedNames,
    /// The end of the log.
    pub tail: Lsn,
}

/// Reads image and log of the queue manager in `data` under the rules of a configuration.
///
/// # Errors
/// See [`InspectionError`].
pub fn inspect(data: &Path, rules: Limits) -> Result<Inspection, InspectionError> {
    let folder = log_folder(data).map_err(InspectionError::other)?;
    let folder = folder.ok_or_else(|| InspectionError::other("there is no recovery log"))?;
    if fs::exists(data.join(REBUILD_MARKER)) || fs::exists(folder.join(REBUILD_MARKER)) {
        return Err(InspectionError::other(
            "the next start rebuilds the queues from the whole log",
        ));
    }
    let disk = LinuxDisk::read_only(&folder).map_err(StartError::Log)?;
    inspect_disk(&(Arc::new(disk) as Arc<dyn Disk>), rules)
}

/// The extents that a copy of a log lacks for its messages, in words; `None`: it has them all.
///
/// # Errors
/// As [`missing_extents`].
pub fn missing_in_copy(disk: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    let inspected = inspect_disk(disk, Limits::default()).map_err(|why| why.to_string())?;
    let missing = inspected.missing;
    Ok((!missing.is_empty()).then(|| missing.to_string()))
}

/// The same for its messages and for those that were set aside.
///
/// # Errors
/// As [`missing_extents`].
pub fn missing_in_copy_with_notes(disk: &Arc<dyn Disk>) -> Result<Option<String>, String> {
    let inspected = inspect_disk(disk, Limits::default()).map_err(|why| why.to_string())?;
    let missing = inspected.missing;
    let all = missing.of_all();
    Ok((!all.is_empty()).then(|| all.to_string()))
}

/// Whether a start could go on with the log on this disk, which is to end at `tail`; with the page
/// file, or without it.
///
/// # Errors
/// Why it could not.
pub fn can_start_at(disk: &Arc<dyn Disk>, tail: Lsn, trust: Trust) -> Result<(), String> {
    let found = inspect_with(disk, Limits::default(), trust).map_err(|why| why.to_string())?;
    if !found.missing.is_empty() {
        return Err(format!("live messages are in extents that are gone: {}", found.missing));
    }
    match found.tail == tail {
        true => Ok(()),
        false => Err(format!("it would end at {} instead of {tail}", found.tail)),
    }
}

fn inspect_disk(disk: &Arc<dyn Disk>, rules: Limits) -> Result<Inspection, InspectionError> {
    inspect_with(disk, rules, Trust::Whole)
}

fn inspect_with(
    disk: &Arc<dyn Disk>,
    rules: Limits,
    trust: Trust,
) -> Result<Inspection, InspectionError> {
    let recovery = Recovery::open(Arc::clone(disk), Options::default(), LogId(0));
    let mut recovery = recovery.map_err(StartError::Log)?;
    recovery.look_only();
    let image = recovery.image();
    if image.as_ref().is_some_and(|image| !image.is_newest) {
        return Err(InspectionError::other("the newest image is damaged"));
    }
    let bytes = image.as_ref().map(|image| image.bytes.as_ref());
    let image_at = image.as_ref().map(|image| image.at).unwrap_or_default();
    let extent_bytes = recovery.extent_bytes();
    let refused = |error| refusal(error, image_at, extent_bytes);
    let restart = Restart::begin("", rules, extent_bytes, bytes, trust);
    let mut restart = restart.map_err(refused)?;
    let begin = match &image {
        Some(image) if trust == Trust::Ignored && image.version > 1 => Begin::Oldest,
        _ => Begin::Image,
    };
    if image.is_some() && trust == Trust::Whole && !restart.is_whole() {
        return Err(InspectionError::other("the image is of an older version"));
    }
    let used: Vec<_> = restart.pages().collect();
    let pages = match used.is_empty() {
        // To open the page file would create it.
        true => None,
        false => {
            let pages = Pages::open(Arc::clone(disk), used);
            Some(pages.map_err(StartError::Pages)?)
        }
    };
    let read = |page| pages.as_ref().and_then(|pages| pages.read(page).ok());
    let take = |item: ReplayItem<'_>| apply(&mut restart, item, &read);
    let replayed = recovery.replay_items(begin, take, |_, _| {});
    let report = replayed.map_err(|error| match error {
        ReplayError::Log(error) => StartError::Log(error),
        ReplayError::Record { error, .. } => refused(error),
    })?;
    let missing = MissingExtents::find(&restart, &recovery, &read);
    let undefined = UndefinedNames::of(restart.instance());
    Ok(Inspection { missing, undefined, tail: report.tail })
}
