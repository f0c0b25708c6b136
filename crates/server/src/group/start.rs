//! From a data folder to a replica.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use towline_admin::catalogue::GROUP_LOG_FORGOT;
use towline_admin::status::RestartStatus;
use towline_group::{FetchOrder, HardState, Member, MemberId, Options, RecoveredLog};
use towline_log::{Finding, Listener, LogError, LogId, Pages, Replicator};

use super::replica::Replica;
use crate::clock::Clock;
use crate::door::Door;
use crate::images::Images;
use crate::shared_folder::Home;
use crate::start::{self, Found, REBUILD_MARKER, StartError, Wishes};
use towline_config::{Config, GroupConfig};
use towline_link::Peer;
use towline_logging::log as say;
use towline_replication::agreement::of_process_before;
use towline_replication::driver::{Driver, Heartbeat, Surroundings};
use towline_replication::frames::member_of;
use towline_replication::hard_state_file::HardStateFile;
use towline_replication::incarnation;
use towline_replication::log_swap::{self, SwapError};
use towline_replication::reexec;
use towline_replication::repair;
use towline_replication::repair_at_start::{self, StartRepair};

/// A replica, and what its threads need.
pub(crate) struct Opened {
    pub(crate) driver: Arc<Driver>,
    pub(crate) replica: Arc<Replica>,
    pub(crate) images: Arc<Images>,
    pub(crate) pages: Pages,
    /// Taken by the thread that reads.
    pub(crate) fetches: Mutex<Option<Receiver<FetchOrder>>>,
    pub(crate) restart: RestartStatus,
    pub(crate) extent_bytes: u64,
    pub(crate) marker: std::path::PathBuf,
    pub(crate) clock: Clock,
    /// Set when this instance becomes active.
    door: Arc<OnceLock<Arc<Door>>>,
}

impl Opened {
    /// The door, if this instance became active.
    pub(crate) fn door(&self) -> Option<&Arc<Door>> {
        self.door.get()
    }

    /// This instance serves clients from now on.
    pub(crate) fn set_door(&self, door: Arc<Door>) {
        assert!(self.door.set(door).is_ok(), "an instance becomes active once");
    }
}

/// Ticks in a heartbeat interval.
const TICKS: u32 = 5;

/// Time between ticks.
pub(crate) fn tick(group: &GroupConfig) -> Duration {
    (group.heartbeat_interval() / TICKS).max(Duration::from_millis(2))
}

/// Opens the log in `data` as that of a member.
///
/// # Errors
/// When the folder, the log or its content cannot be used; nothing is changed then.
pub(crate) fn open(
    name: &str,
    data: &Path,
    (config, group, this): (&Config, &GroupConfig, Peer),
    wishes: Wishes,
    clock: Clock,
) -> Result<Opened, StartError> {
    let id = log_id(name, &group.name);
    log_swap::settle(data, REBUILD_MARKER).map_err(|error| match error {
        SwapError::Log(error) => StartError::Log(error),
        SwapError::Folder(error) => StartError::Folder(error),
    })?;
    let hard_state_file = HardStateFile::of(data);
    let about = StartRepair { queue_manager: name, group, this, log: id };
    let read_back = |known| {
        let home = Home::single(data);
        let back = || start::bring_back(name, &home, config, wishes, (id, Some(known)));
        repair_at_start::reading(&about, home.log_folder(), damage, back)
    };
    let Promised { hard_state, held, found } =
        promised((data, member_of(this)), &hard_state_file, read_back)?;
    let Found { restart, recovery, pages, status, marker, disk, lacks, doubt, .. } = found;
    if recovery.log_id() != id {
        return Err(StartError::OtherLog { group: group.name.clone() });
    }
    log_swap::clear_up(data);
    // One that re-executed itself, and whose folder is as it left it, was not put back.
    let meets_first = reexec::start_before() != Some(hard_state_file.starts().own().nonce);
    let drawn = u64::from_le_bytes(crate::random::bytes());
    // Before anything is promised, and with what may not be promised any more.
    let renewed = hard_state_file.prepare().and_then(|()| {
        incarnation::renew(data, &hard_state_file, &hard_state, member_of(this), drawn)
    });
    renewed.map_err(StartError::Folder)?;
    let (_, stream) = recovery.stream();
    let applied = held.places.iter().find(|place| place.index == held.applied).copied();
    let applied = applied.unwrap_or(held.base);
    let extent_bytes = recovery.extent_bytes();
    let member =
        Member::new(options(group, this, (meets_first, lacks)), hard_state, held, clock.now());
    let (orders, fetches) = channel();
    let names = group.member.iter().map(|member| member.name.clone()).collect();
    let surroundings = Surroundings {
        now: Box::new(move || clock.now()),
        log_failed_status: crate::EXIT_LOG_FAILED,
        heartbeat: Heartbeat::of(group),
    };
    let driver = Driver::new(member, hard_state_file, surroundings, names, orders);
    let driver = Arc::new(driver);
    let listener: Arc<dyn Listener> = driver.clone();
    let replicator: Arc<dyn Replicator> = driver.clone();
    let log = recovery.start_following(listener, replicator).map_err(StartError::Log)?;
    let images = start::images_of(disk, log.durable(), pages.clone());
    driver.set_log(log);
    // With the option it gets a copy, whatever comes of the doubt.
    let doubt = doubt.filter(|_| !wishes.without_missing);
    let begin = (restart, stream, applied);
    let door = Arc::new(OnceLock::new());
    let replica = Replica::new(
        begin,
        doubt,
        (Arc::clone(&driver), Arc::clone(&door)),
        (pages.clone(), clock),
    );
    let replica = Arc::new(replica);
    start::remove_marker(&marker, &images, replica.as_ref());
    let restart = status;
    let fetches = Mutex::new(Some(fetches));
    Ok(Opened {
        driver,
        replica,
        images,
        pages,
        fetches,
        restart,
        extent_bytes,
        marker,
        clock,
        door,
    })
}

/// What an error of a start says of damage in the log.
fn damage(error: &StartError) -> Option<&Finding> {
    match error {
        StartError::Log(LogError::Damaged(found)) => Some(found),
        _ => None,
    }
}

/// A log that was read back, and what it is good for.
struct Promised {
    hard_state: HardState,
    held: RecoveredLog,
    found: Found,
}

/// Reads the log back as far as its hard state bears it out. A log that is not the one for which
/// the promises were made, or lacks what was noted, gives no vote; and what stands in it behind its
/// image may never have been committed. Nor does the folder of another member, which knows nothing
/// of what this one promised.
fn promised(
    (data, this): (&Path, MemberId),
    hard_state_file: &HardStateFile,
    read_back: impl Fn(u64) -> Result<Found, StartError>,
) -> Result<Promised, StartError> {
    hard_state_file.refuse_later_version().map_err(StartError::Folder)?;
    // Without any hard state that can be read, it is not known what was promised, nor in which
    // term.
    let hard_state = of_process_before(hard_state_file.read().unwrap_or_default());
    let is_ours = hard_state_file.whose().is_none_or(|whose| whose == this);
    let is_own =
        is_ours && incarnation::is_own(data, hard_state_file.mark()).map_err(StartError::Folder)?;
    // While it may not vote, its note is owed, not had.
    let known = if is_own && hard_state.may_vote { hard_state.committed } else { 0 };
    let found = read_back(known)?;
    let held = held(&found);
    let (has, is_older) = (held.has(&hard_state), hard_state.is_older_than(held.last()));
    let judged = judged(hard_state, is_own && !is_older, has);
    if judged == hard_state || !hard_state.may_vote {
        return Ok(Promised { hard_state: judged, held, found });
    }
    let (last, noted) = (held.last().index.to_string(), hard_state.committed.to_string());
    let what = match (is_ours, is_own && !is_older) {
        (false, _) => "the data folder of another instance",
        (true, true) => "an older copy of its log",
        (true, false) => "another log, or another hard state",
    };
    say(&GROUP_LOG_FORGOT, &[what, &last, &noted]);
    let hard_state = judged;
    if known == 0 {
        return Ok(Promised { hard_state, held, found });
    }
    drop(found);
    let found = read_back(0)?;
    Ok(Promised { hard_state, held: self::held(&found), found })
}

/// What still counts of a hard state, beside this log. Which of both is an older one cannot be
/// told, so neither the vote nor the term is believed; what is owed is.
fn judged(hard_state: HardState, is_own: bool, has_noted: bool) -> HardState {
    // While it has no vote it is known to lack what was noted.
    if is_own && (has_noted || !hard_state.may_vote) { hard_state } else { hard_state.forgotten() }
}

fn held(found: &Found) -> RecoveredLog {
    // Another instance may lack a little of what the image covers.
    let (base, places) = found.recovery.places_from_earlier();
    let (applied, _) = found.recovery.stream();
    RecoveredLog { base, places, applied }
}

fn options(group: &GroupConfig, this: Peer, (meets_first, lacks_batches): (bool, bool)) -> Options {
    Options {
        id: member_of(this),
        voters: (0..group.member.len()).map(member_of).collect(),
        tick: tick(group),
        heartbeat_interval: group.heartbeat_interval(),
        heartbeat_timeout: group.heartbeat_timeout(),
        seed: u64::from_le_bytes(crate::random::bytes()),
        meets_first,
        lacks_batches,
    }
}

/// The id of a group's log: the same on all instances without asking anybody, because their batches
/// are the same too. Made of the names, so that instances of different groups do not mix their
/// logs.
fn log_id(queue_manager: &str, group: &str) -> LogId {
    let bytes = queue_manager.bytes().chain([0]).chain(group.bytes());
    let sum = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    LogId(sum)
}

/// Reads batches for members that lag, until the process ends.
pub(crate) fn serve_fetches(opened: &Opened) {
    /// Read for one order.
    const BYTES_MAX: usize = 8 * 1024 * 1024;
    let driver = &opened.driver;
    let Some(orders) = opened.fetches.lock().take() else { return };
    for FetchOrder { id, places } in orders {
        let batches = repair::read_batches(driver, &places, BYTES_MAX).unwrap_or_else(|error| {
            tracing::warn!(%error, "batches for an instance that lags behind");
            Vec::new()
        });
        driver.fetched(id, batches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_another_log_neither_vote_nor_term_is_believed_and_without_a_vote_only_the_number_tells()
     {
        let voting = HardState { term: 7, may_vote: true, committed: 9, ..HardState::default() };
        assert_eq!(judged(voting, true, true), voting);
        for (is_own, has) in [(false, true), (true, false), (false, false)] {
            let judged = judged(voting, is_own, has);
            assert_eq!((judged.may_vote, judged.has_newest_term()), (false, false));
            assert_eq!((judged.term, judged.committed), (7, 9), "what is owed stays");
        }
        // It took a copy, or ended before it had caught up.
        let catches_up = voting.without_vote();
        assert_eq!(judged(catches_up, true, false), catches_up);
        assert!(!judged(catches_up, false, true).has_newest_term());
        assert!(!judged(HardState::default(), true, true).has_newest_term(), "there is none");
    }

    #[test]
    fn groups_of_other_names_have_other_logs() {
        assert_eq!(log_id("QM1", "G"), log_id("QM1", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM2", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM", "1G"));
    }
}
