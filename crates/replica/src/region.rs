//! What the part of an instance in the traffic between two regions needs of its queues: histories,
//! counts, and the first history of a live group's log.
//!
//! Not here: the traffic (`towline_replication::region_part`).

use std::sync::Arc;

use towline_engine::{divergence, housekeeping};
use towline_log::record::Records;
use towline_os::sync::Mutex;
use towline_replication::copy::CopySource;
use towline_replication::driver::Driver;
use towline_replication::region_part::{CountedLog, RegionHost};
use towline_replication::region_position::ShippedLog;
use towline_standby::Home;
use towline_types::{BatchPlace, Histories, History, HistoryId, Lsn, Time};

use crate::open::OpenReplica;

/// Between two rows of the time index, while the log grows.
const ROW_US: u64 = 1_000_000;

/// The queues of an instance, active or not.
pub struct ReplicaRegion {
    opened: Arc<OpenReplica>,
    /// Name of its group.
    group: String,
    /// Bytes of the log that puts may not fill.
    reserve_bytes: u64,
    /// As they were seen last.
    histories: Mutex<Histories>,
}

impl ReplicaRegion {
    /// Of this instance of `group`.
    #[must_use]
    pub fn new(opened: Arc<OpenReplica>, group: String, reserve_bytes: u64) -> ReplicaRegion {
        ReplicaRegion { opened, group, reserve_bytes, histories: Mutex::default() }
    }
}

/// The committed batch with which a history began. It was applied a moment ago, so it is one of the
/// newest. `None`: it is not found, or the batches cannot be read.
pub(crate) fn place_of_history(driver: &Driver, history: HistoryId) -> Option<BatchPlace> {
    let mut index = ShippedLog::committed(driver).index;
    loop {
        let place = ShippedLog::place(driver, index)?;
        let batches = ShippedLog::behind(driver, index.checked_sub(1)?, 1).ok()?;
        let batch = batches.first().filter(|batch| batch.place() == place)?;
        if begins(&batch.payload, history) {
            return Some(place);
        }
        index -= 1;
    }
}

/// Whether a batch has the record with which a history begins.
fn begins(payload: &[u8], history: HistoryId) -> bool {
    let mut records = Records::new(payload).map_while(Result::ok);
    records.any(|found| {
        towline_node::history_begun(found.bytes).is_some_and(|begun| begun.id == history)
    })
}

impl RegionHost for ReplicaRegion {
    fn histories(&self) -> Histories {
        // While it becomes active nothing is applied, and so nothing changes.
        let now = self.opened.replica.look_if_there(|instance| instance.histories().clone());
        let mut seen = self.histories.lock();
        if let Some(now) = now {
            *seen = now;
        }
        seen.clone()
    }

    fn counted(&self) -> CountedLog {
        self.opened.replica.counted()
    }

    fn begin_first_history(&self, cause: &str) -> Result<(), String> {
        let door = self.opened.door().ok_or("this instance is not active")?;
        door.begin_first_history(&self.group, cause)
    }

    fn copy_source(&self) -> Arc<dyn CopySource> {
        Arc::clone(&self.opened) as Arc<dyn CopySource>
    }

    fn time_at(&self, position: Lsn) -> Option<Time> {
        let rows = self.opened.images.time_index()?.rows();
        rows.iter().rev().find(|row| row.upto <= position).map(|row| row.at)
    }

    fn is_log_older_than(&self, time: Time) -> Option<bool> {
        self.opened.replica.look_if_there(|instance| {
            instance.oldest_definition().is_some_and(|defined| defined <= time)
        })
    }

    fn time_behind(&self, position: Lsn) -> Option<Time> {
        // A row each second while this instance was active, and of none before.
        let rows = self.opened.images.time_index().map(|index| index.rows()).unwrap_or_default();
        let first = rows.partition_point(|row| row.upto <= position);
        let row = rows.get(first).map(|row| Time(row.at.0.saturating_sub(ROW_US)));
        // What is before a history was committed before that began.
        let histories = self.histories();
        let history = histories.iter().find(|it| it.fork > position).map(|it| it.began);
        match (row, history) {
            (Some(row), Some(history)) => Some(row.min(history)),
            (one, other) => one.or(other),
        }
    }

    fn has_changes_behind(&self, position: Lsn) -> Result<bool, String> {
        let home = Home::single(self.opened.driver.data());
        divergence::first_change(home.log_folder(), position).map(|first| first.is_some())
    }

    fn has_record(&self, history: &History) -> bool {
        self.opened.driver.first_behind(history.fork, |payload| begins(payload, history.id))
    }

    fn drawn(&self) -> u64 {
        u64::from_le_bytes(towline_process::random::bytes())
    }

    fn percent_full(&self) -> u64 {
        let stats = self.opened.driver.log().stats();
        housekeeping::percent_full(stats.bytes_in_use, &stats, self.reserve_bytes)
    }

    fn wall(&self) -> Time {
        self.opened.clock.wall()
    }
}
