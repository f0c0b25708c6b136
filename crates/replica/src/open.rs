//! From a data folder to a replica.

use std::path::Path;
use std::sync::Arc;
use towline_os::sync::mpsc::{Receiver, Sender, channel};

use towline_admin::status::RestartStatus;
use towline_group::{FetchOrder, HardState, Member, Mode, Options, RecoveredLog};
use towline_log::record::Records;
use towline_log::{Finding, Listener, LogError, LogId, Pages, Replicator};
use towline_os::sync::{Mutex, OnceLock};

use crate::rehearsal_folder;
use crate::replica::Replica;
use crate::return_at_start;
use crate::role_at_start::{self, LogAtStart};
use towline_config::{Config, GroupConfig};
use towline_engine::{Door, Images, ReplayTarget, ReplayedLog, StartError, StartOptions, replay};
use towline_link::Peer;
use towline_log::REBUILD_MARKER;
use towline_process::Clock;
use towline_replication::driver::{Driver, Heartbeat, MadeIds, Surroundings};
use towline_replication::hard_state_file::HardStateFile;
use towline_replication::incarnation;
use towline_replication::log_identity;
use towline_replication::log_swap::{self, SwapError};
use towline_replication::membership::{self, Membership};
use towline_replication::repair_at_start::{self, StartRepair};
use towline_replication::trusted_log::{self, TrustedLog};
use towline_standby::Home;
use towline_types::{BatchPlace, FORMAT_LEVEL, FORMAT_LEVEL_FIRST};

/// A replica, and what its threads need.
pub struct OpenReplica {
    /// Its part in the group.
    pub driver: Arc<Driver>,
    /// What applies.
    pub replica: Arc<Replica>,
    /// Takes images.
    pub images: Arc<Images>,
    /// The page file.
    pub pages: Pages,
    /// Taken by the thread that reads.
    pub(crate) fetches: Mutex<Option<Receiver<FetchOrder>>>,
    /// The times of its restart.
    pub restart: RestartStatus,
    /// Bytes of an extent of its log.
    pub extent_bytes: u64,
    /// The rebuild marker, whether or not it is there.
    pub marker: std::path::PathBuf,
    /// The clock of the process.
    pub clock: Clock,
    /// Set when this instance becomes active.
    door: Arc<OnceLock<Arc<Door>>>,
}

impl OpenReplica {
    /// The door, if this instance became active.
    pub fn door(&self) -> Option<&Arc<Door>> {
        self.door.get()
    }

    /// This instance serves clients from now on.
    pub fn set_door(&self, door: Arc<Door>) {
        assert!(self.door.set(door).is_ok(), "an instance becomes active once");
    }
}

/// Goes on with what an earlier process has left for a start: a copy, a return.
fn settle(data: &Path, group: &GroupConfig) -> Result<(), StartError> {
    log_swap::settle(data, REBUILD_MARKER).map_err(swap_failed)?;
    refuse_other_group(data, group)?;
    if let Err(error) = rehearsal_folder::clear_up(data) {
        // It is in no one's way; the next one removes it, or says why not.
        tracing::warn!(%error, "what a rehearsal left cannot be removed");
    }
    return_at_start::settle(data)
}

/// Refuses a log that is known to be that of another group.
fn refuse_other_group(data: &Path, group: &GroupConfig) -> Result<(), StartError> {
    let theirs = log_identity::owner(data).map_err(StartError::Folder)?.map(|it| it.group);
    match theirs.filter(|theirs| *theirs != group.name) {
        Some(theirs) => Err(StartError::OtherGroup { theirs, ours: group.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses a log that names no group, and is none that this one can have. A group of one takes any:
/// it may be that of a queue manager that was in no group until now, and goes to no other instance.
fn refuse_other_log(
    data: &Path,
    hard_state_file: &HardStateFile,
    (found, made_ids): (LogId, MadeIds),
    group: &GroupConfig,
) -> Result<(), StartError> {
    let MadeIds { now, before } = made_ids;
    let is_ours = || {
        Ok(group.member.len() == 1
            || log_identity::owner(data)?.is_some()
            || log_identity::may_be_of_group(data, hard_state_file, found, [now, before])?)
    };
    match is_ours().map_err(StartError::Folder)? {
        true => Ok(()),
        false => Err(StartError::OtherLog { group: group.name.clone() }),
    }
}

/// Opens the log in `data` as that of a member. `start_before` is the nonce of the start of the
/// process that re-executed itself as this one, if one did.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub fn open(
    name: &str,
    data: &Path,
    (config, group, this): (&Config, &GroupConfig, Peer),
    wishes: StartOptions,
    (clock, start_before): (Clock, Option<u64>),
) -> Result<OpenReplica, StartError> {
    settle(data, group)?;
    let hard_state_file = HardStateFile::of(data);
    let made_ids = MadeIds::of(name, &group.name);
    let wanted = log_identity::wanted_id(data).map_err(StartError::Folder)?;
    let new_id = wanted.unwrap_or(made_ids.now);
    let about = StartRepair { queue_manager: name, group, this, log: new_id };
    let back = || read_back(data, config, wishes, &hard_state_file, &about);
    let (hard_state, held, found) = in_its_part(data, &hard_state_file, group, back)?;
    let ReplayedLog {
        restart,
        recovery,
        pages,
        status,
        marker,
        disk,
        lacks_extents: lacks,
        doubt,
        images_from,
        ..
    } = found;
    let membership = Membership::of(group, this);
    refuse_other_log(data, &hard_state_file, (recovery.log_id(), made_ids), group)?;
    log_swap::clear_up(data);
    // One that re-executed itself, and whose folder is as it left it, was not put back.
    let starts = hard_state_file.starts().map_err(StartError::Folder)?;
    let meets_first = start_before != Some(starts.own().nonce);
    renew(data, &hard_state_file, &hard_state, (group, membership)).map_err(StartError::Folder)?;
    let stream = recovery.stream().stream;
    let applied = held.places.iter().find(|place| place.index == held.applied);
    let applied = applied.copied().unwrap_or(held.base);
    let tail = places_behind(&held, applied);
    let known = places_upto(&held, applied);
    let extent_bytes = recovery.extent_bytes();
    // In a group of one there is no other that has what it lacks: it goes on without, as the
    // operator said.
    let lacks_batches = lacks && !membership.is_alone();
    let options = membership::options(group, this, random_number());
    let options = Options { meets_first, lacks_batches, ..options };
    let member = Member::new(options, hard_state, held, clock.now());
    let (orders, fetches) = channel();
    let driver = driver_of(member, hard_state_file, (group, made_ids), clock, orders);
    let driver = Arc::new(driver.map_err(StartError::Folder)?);
    let listener: Arc<dyn Listener> = driver.clone();
    let replicator: Arc<dyn Replicator> = driver.clone();
    let log = recovery.start_following(listener, replicator).map_err(StartError::Log)?;
    let images = Images::open(disk, log.durable(), pages.clone());
    driver.set_log(log);
    note_level_of_tail(&driver, &tail).map_err(StartError::Log)?;
    // With the option it gets a copy, whatever comes of the doubt.
    let doubt = doubt.filter(|_| !wishes.without_missing);
    let door = Arc::new(OnceLock::new());
    let replica = Arc::new(Replica::new(
        (restart, stream, applied),
        (doubt, images_from),
        (Arc::clone(&driver), Arc::clone(&door)),
        (pages.clone(), marker.clone(), clock),
    ));
    replica.begin_in_part(&known).map_err(StartError::Log)?;
    images.end_rebuild(marker.clone(), replica.as_ref());
    let fetches = Mutex::new(Some(fetches));
    Ok(OpenReplica {
        driver,
        replica,
        images,
        pages,
        fetches,
        restart: status,
        extent_bytes,
        marker,
        clock,
        door,
    })
}

/// The log, and the hard state with the part that this instance has in its group.
fn in_its_part(
    data: &Path,
    hard_state_file: &HardStateFile,
    group: &GroupConfig,
    back: impl Fn() -> Result<TrustedLog<ReplayedLog>, StartError>,
) -> Result<(HardState, RecoveredLog, ReplayedLog), StartError> {
    let TrustedLog { hard_state, recovered: held, log: mut found } = back()?;
    let (in_part, by_tail) = in_its_mode(data, hard_state, (&held, &mut found), group)?;
    let last = held.last();
    if !by_tail || in_part.mode != Mode::Recovery || held.applied >= last.index {
        return Ok((in_part, held, found));
    }
    // The only instance of its group led it until its last batch said that another one is live: all
    // of its log is committed, and no leader will say so.
    let (committed, committed_end) = (last.index, last.end);
    let noted = HardState { committed, committed_end, ..hard_state };
    hard_state_file.note_durably(&noted).map_err(StartError::Folder)?;
    drop(found);
    let TrustedLog { hard_state, recovered: held, log: mut found } = back()?;
    let (hard_state, _) = in_its_mode(data, hard_state, (&held, &mut found), group)?;
    Ok((hard_state, held, found))
}

/// The hard state with the part that this instance has in its group; whether a history that is not
/// applied says so, in a group of one.
fn in_its_mode(
    data: &Path,
    hard_state: HardState,
    (held, found): (&RecoveredLog, &mut ReplayedLog),
    group: &GroupConfig,
) -> Result<(HardState, bool), StartError> {
    let histories = found.restart.instance().histories();
    let log = LogAtStart { held, histories, tail: None };
    if !role_at_start::looks_at_tail(&log, hard_state.mode, group) {
        return Ok((role_at_start::in_its_mode(hard_state, &log, group)?, false));
    }
    let applied = held.places.iter().rfind(|place| place.index <= held.applied);
    let applied = applied.copied().unwrap_or(held.base);
    let home = Home::single(data);
    let newest = role_at_start::newest_begun(home.log_folder(), applied.end);
    let newest = newest.map_err(StartError::Log)?;
    let log = LogAtStart { tail: newest.as_ref(), ..log };
    let by_tail = newest.is_some() && group.member.len() == 1;
    Ok((role_at_start::in_its_mode(hard_state, &log, group)?, by_tail))
}

/// Makes log and hard state those of this start: before anything is promised, and with what may not
/// be promised any more.
fn renew(
    data: &Path,
    hard_state_file: &HardStateFile,
    hard_state: &HardState,
    (group, membership): (&GroupConfig, Membership),
) -> std::io::Result<()> {
    let members_count = membership.members_count;
    log_identity::note_owner(data, &group.name, members_count, hard_state.may_vote)?;
    hard_state_file.prepare()?;
    incarnation::renew(data, hard_state_file, hard_state, membership, random_number())
}

fn random_number() -> u64 {
    u64::from_le_bytes(towline_process::random::bytes())
}

fn places_behind(held: &RecoveredLog, applied: BatchPlace) -> Vec<BatchPlace> {
    held.places.iter().filter(|place| place.index > applied.index).copied().collect()
}

fn places_upto(held: &RecoveredLog, applied: BatchPlace) -> Vec<BatchPlace> {
    held.places.iter().take_while(|place| place.index <= applied.index).copied().collect()
}

/// Notes the format level of what the log has behind what is known to be committed, which is not
/// applied yet: an instance that does not read it must not join meanwhile.
fn note_level_of_tail(driver: &Driver, places: &[BatchPlace]) -> Result<(), LogError> {
    /// Read at once.
    const BYTES_MAX: usize = 4 * 1024 * 1024;
    let mut rest = places;
    while !rest.is_empty() && driver.stored_level() < FORMAT_LEVEL {
        let batches = driver.log().read_batches(rest, BYTES_MAX)?;
        driver.note_levels_of(&batches);
        assert!(!batches.is_empty(), "one batch at least is read");
        rest = rest.get(batches.len()..).unwrap_or_default();
    }
    Ok(())
}

/// The format level to which the payload of a batch raises the log that holds it.
#[must_use]
pub fn level_of(payload: &[u8]) -> u8 {
    // What does not add up is found out when it is applied.
    let records = Records::new(payload).map_while(Result::ok);
    let levels = records.map(|found| towline_node::raises_to(found.bytes));
    levels.max().unwrap_or(FORMAT_LEVEL_FIRST)
}

/// Replays the log as far as the hard state bears it out; damage is repaired from other instances.
fn read_back(
    data: &Path,
    config: &Config,
    wishes: StartOptions,
    hard_state_file: &HardStateFile,
    about: &StartRepair<'_>,
) -> Result<TrustedLog<ReplayedLog>, StartError> {
    let read_back = |known| {
        let home = Home::single(data);
        let target = ReplayTarget { new_id: about.log, known: Some(known) };
        let back = || replay(about.queue_manager, &home, config, wishes, target);
        let mut found = repair_at_start::reading(about, home.log_folder(), damage, back)?;
        found.restart.instance().set_group(&about.group.name);
        let recovered = recovered(&found);
        Ok((found, recovered))
    };
    let membership = Membership::of(about.group, about.this);
    trusted_log::read_back(data, membership, hard_state_file, read_back, StartError::Folder)
}

fn driver_of(
    member: Member,
    hard_state_file: HardStateFile,
    (group, made_ids): (&GroupConfig, MadeIds),
    clock: Clock,
    orders: Sender<FetchOrder>,
) -> std::io::Result<Driver> {
    let names = group.member.iter().map(|member| member.name.clone()).collect();
    let surroundings = Surroundings {
        now: Box::new(move || clock.now()),
        level_of: Box::new(|payload| level_of(payload)),
        log_failed_status: towline_process::EXIT_LOG_FAILED,
        heartbeat: Heartbeat::of(group),
        made_ids,
    };
    Driver::new(member, hard_state_file, surroundings, names, orders)
}

fn swap_failed(error: SwapError) -> StartError {
    match error {
        SwapError::Log(error) => StartError::Log(error),
        SwapError::Folder(error) => StartError::Folder(error),
    }
}

/// What an error of a start says of damage in the log.
fn damage(error: &StartError) -> Option<&Finding> {
    match error {
        StartError::Log(LogError::Damaged(found)) => Some(found),
        _ => None,
    }
}

fn recovered(found: &ReplayedLog) -> RecoveredLog {
    // Another instance may lack a little of what the image covers.
    let known = found.recovery.places_from_earlier();
    let applied = found.recovery.stream().fed;
    RecoveredLog { base: known.base, places: known.batches, applied }
}

#[cfg(test)]
mod tests;
