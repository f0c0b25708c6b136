//! The part of `towline status` that only the process knows: itself, its listeners, its log.
//!
//! Not here: the queues and units of work of the instance (`towline_node`).

use std::sync::Arc;
use towline_os::fs;
use towline_os::sync::OnceLock;

use towline_admin::status::{
    GroupStatus, ImageStatus, IndexStatus, LogStatus, MemoryStatus, RestartStatus, Space, Status,
    WriteLatency,
};
use towline_log::{Log, Pages, Stats};
use towline_os::sync::Mutex;
use towline_process::Clock;
use towline_standby::Lease;
use towline_types::{Time, limits};

use crate::connection_accounts::ConnectionAccounts;
use crate::images::ImageReport;
use crate::large::{Arrivals, Departures};

/// The group that this instance belongs to, for a status.
pub trait GroupView: Send + Sync {
    /// The group now.
    fn group(&self) -> GroupStatus;
}

/// What the process knows of itself.
pub(crate) struct ProcessStatus {
    pub(crate) clock: Clock,
    /// Bound of the log's cache of bodies.
    pub(crate) cache_bytes_max: u64,
    /// Beyond so many bytes its own limit, and not the disk, bounds the log.
    pub(crate) log_bytes_nearly_max: u64,
    /// URLs of the listeners, once they listen.
    pub(crate) listeners: OnceLock<Vec<String>>,
    /// The times of the restart.
    pub(crate) restart: RestartStatus,
    /// The newest image that this process took.
    pub(crate) image: Mutex<ImageStatus>,
    /// Large messages on their way in.
    pub(crate) arrivals: Arc<Arrivals>,
    /// Large messages on their way out.
    pub(crate) departures: Arc<Departures>,
    /// What connections hold.
    pub(crate) connections: Arc<ConnectionAccounts>,
    /// The group, when this is an instance of one.
    pub(crate) group: OnceLock<Arc<dyn GroupView>>,
    /// The lease of a shared data folder.
    pub(crate) lease: Option<Arc<Lease>>,
    /// The page file.
    pub(crate) pages: Pages,
}

impl ProcessStatus {
    pub(crate) fn new(clock: Clock, pages: Pages) -> ProcessStatus {
        ProcessStatus {
            clock,
            cache_bytes_max: 0,
            log_bytes_nearly_max: u64::MAX,
            listeners: OnceLock::new(),
            restart: RestartStatus::default(),
            image: Mutex::default(),
            arrivals: Arc::default(),
            departures: Arc::default(),
            connections: Arc::default(),
            group: OnceLock::new(),
            lease: None,
            pages,
        }
    }

    /// Whether `log_bytes_max`, and not the disk, leaves the log no free space.
    pub(crate) fn is_at_its_limit(&self, stats: &Stats) -> bool {
        stats.bytes_in_use.saturating_add(stats.bytes_reusable) >= self.log_bytes_nearly_max
    }

    pub(crate) fn status(&self, log: &Log, now: Time) -> Status {
        let uptime = self.clock.uptime();
        Status {
            version: towline_types::program_version().to_owned(),
            pid: std::process::id(),
            // By the clock as it is now.
            started_at: (now - uptime).as_millis(),
            uptime_s: uptime.as_secs(),
            listeners: self.listeners.get().cloned().unwrap_or_default(),
            log: log_status(log),
            restart: self.restart.clone(),
            shared: self.lease.as_ref().map(|lease| lease.status()),
            image: self.image(log),
            index: self.index(),
            group: self.group.get().map(|view| view.group()),
            memory: MemoryStatus {
                resident_bytes: resident_bytes(),
                cache_bytes_max: self.cache_bytes_max,
                arriving_bytes: self.arrivals.bytes(),
                arriving_bytes_max: limits::ARRIVING_BYTES_MAX + limits::MEDIUM_MESSAGES_BYTES_MAX,
                departing_bytes: self.departures.bytes(),
                departing_bytes_max: limits::DEPARTING_BYTES_MAX
                    + limits::MEDIUM_MESSAGES_BYTES_MAX,
                connection_bytes: self.connections.bytes(),
                connection_bytes_max: limits::CONNECTIONS_BYTES_MAX,
                ..MemoryStatus::default()
            },
            ..Status::default()
        }
    }

    /// An image was taken.
    pub(crate) fn image_taken(&self, taken: &ImageReport, now: Time) {
        let mut image = self.image.lock();
        image.taken += 1;
        image.taken_at = now.as_millis();
        image.took_ms = u64::try_from(taken.took.as_millis()).unwrap_or(u64::MAX);
        image.bytes = taken.bytes;
        image.pages = taken.pages;
    }

    fn image(&self, log: &Log) -> ImageStatus {
        let lsn = log.image_at().map(|at| at.to_string()).unwrap_or_default();
        ImageStatus { lsn, ..self.image.lock().clone() }
    }

    fn index(&self) -> IndexStatus {
        let stats = self.pages.stats();
        IndexStatus {
            page_file_bytes: stats.file_bytes,
            page_bytes: stats.used_bytes,
            page_reads: stats.reads,
            page_writes: stats.writes,
            ..IndexStatus::default()
        }
    }
}

fn log_status(log: &Log) -> LogStatus {
    let stats = log.stats();
    let latency = stats.write_latency;
    LogStatus {
        logical_bytes_written: stats.logical_bytes_written,
        physical_bytes_written: stats.physical_bytes_written,
        writes: stats.writes,
        syncs: stats.syncs,
        commits: stats.commits,
        write_latency_us: WriteLatency {
            last: latency.last_us,
            min: latency.min_us,
            mean: f64::from(u32::try_from(latency.avg_us).unwrap_or(u32::MAX)),
            p50: latency.p50_us,
            p99: latency.p99_us,
            max: latency.max_us,
        },
        bytes_in_use: stats.bytes_in_use,
        bytes_max: (stats.bytes_max != u64::MAX).then_some(stats.bytes_max),
        bytes_reusable: stats.bytes_reusable,
        extents: stats.extents,
        current_lsn: log.tail().to_string(),
        durable_lsn: log.durable().to_string(),
        space: match log.space() {
            towline_log::Space::Ample => Space::Ok,
            towline_log::Space::Low => Space::Low,
            towline_log::Space::Full => Space::Full,
        },
        write_size_bytes: stats.write_bytes_avg,
        write_waiting_us: stats.write_waiting_us,
        file_system_bytes_in_use: stats.file_system_bytes_in_use,
        file_system_bytes_max: stats.file_system_bytes_max,
        primary_space_in_use_percent: stats.in_use_percent,
        workload_space_percent: stats.workload_percent,
        restart_bytes: stats.bytes_for_restart,
        media_recovery_bytes: stats.bytes_for_media,
    }
}

/// From /proc/self/status, which counts in KiB whatever the size of a page is; 0 without /proc.
fn resident_bytes() -> u64 {
    resident_in(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn resident_in(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes_whatever_the_size_of_a_page_is() {
        let text = "VmHWM:\t  999999 kB\nVmRSS:\t   20480 kB\nRssAnon:\t    1 kB\n";
        assert_eq!(resident_in(text), 20 << 20);
        assert_eq!((resident_in(""), resident_in("VmRSS:\t7 pages\n")), (0, 0));
        assert!(resident_bytes() > 1 << 20, "this process");
    }
}
