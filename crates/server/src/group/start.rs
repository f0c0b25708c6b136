//! From a data folder to a replica.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use parking_lot::Mutex;
use towline_admin::status::RestartStatus;
use towline_group::{FetchOrder, Held, Kept, Member, Options};
use towline_log::{Listener, LogId, Pages, Replicator};

use super::driver::Driver;
use super::kept_file::KeptFile;
use super::member_of;
use super::replica::Replica;
use crate::clock::Clock;
use crate::config::{Config, GroupConfig};
use crate::images::Images;
use crate::shared_folder::Home;
use crate::start::{self, Found, StartError};

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
    (config, group): (&Config, &GroupConfig),
    sync_delay: Duration,
    clock: Clock,
) -> Result<Opened, StartError> {
    let kept_file = KeptFile::of(data);
    let kept = kept_file.read().unwrap_or_default();
    let id = log_id(name, &group.name);
    let known = Some(kept.committed);
    let home = Home::single(data);
    let found = start::bring_back(name, &home, config, sync_delay, (id, known))?;
    let Found { restart, recovery, pages, status, marker, disk, .. } = found;
    if recovery.log_id() != id {
        return Err(StartError::OtherLog { group: group.name.clone() });
    }
    kept_file.prepare().map_err(StartError::Folder)?;
    // Another instance may lack a little of what the image covers.
    let (base, places) = recovery.places_from_earlier();
    let (fed, stream) = recovery.stream();
    let applied = places.iter().find(|place| place.index == fed).copied().unwrap_or(base);
    let held = Held { base, places };
    // What is applied is committed, whatever else was forgotten.
    let kept = Kept { committed: applied.index, committed_end: applied.end, ..kept };
    let extent_bytes = recovery.extent_bytes();
    let member = Member::new(options(group), kept, held, clock.now());
    let (orders, fetches) = channel();
    let names = group.member.iter().map(|member| member.name.clone()).collect();
    let driver = Arc::new(Driver::new(member, kept_file, clock, names, orders));
    let listener: Arc<dyn Listener> = driver.clone();
    let replicator: Arc<dyn Replicator> = driver.clone();
    let log = recovery.start_following(listener, replicator).map_err(StartError::Log)?;
    let images = start::images_of(disk, log.durable(), pages.clone());
    driver.set_log(log);
    let begin = (restart, stream, applied);
    let replica = Replica::new(begin, Arc::clone(&driver), pages.clone());
    let replica = Arc::new(replica);
    start::remove_marker(&marker, &images, replica.as_ref());
    let restart = status;
    let fetches = Mutex::new(Some(fetches));
    Ok(Opened { driver, replica, images, pages, fetches, restart, extent_bytes, marker })
}

fn options(group: &GroupConfig) -> Options {
    let this = group.position(&group.instance).unwrap_or(0);
    Options {
        id: member_of(this),
        voters: (0..group.member.len()).map(member_of).collect(),
        tick: tick(group),
        heartbeat_interval: group.heartbeat_interval(),
        heartbeat_timeout: group.heartbeat_timeout(),
        seed: u64::from_le_bytes(crate::random::bytes()),
    }
}

/// The id of a group's log: the same on all instances without asking anybody, because their batches are
/// the same too. Made of the names, so that instances of different groups do not mix their logs.
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
        let batches = driver.log().read_batches(&places, BYTES_MAX).unwrap_or_else(|error| {
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
    fn groups_of_other_names_have_other_logs() {
        assert_eq!(log_id("QM1", "G"), log_id("QM1", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM2", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM", "1G"));
    }
}
