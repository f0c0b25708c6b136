//! The part of `towline status` that only the process knows: itself, its listeners, its log.

use std::sync::OnceLock;

use towline_admin::status::{LogStatus, MemoryStatus, Space, Status, WriteLatency};
use towline_log::{Log, Stats};
use towline_types::Time;

/// What the node is surrounded by.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// When the process started.
    pub(crate) started_at: Time,
    /// Bound of the log's cache of bodies.
    pub(crate) cache_bytes_max: u64,
    /// Bytes of the log beyond which its own limit, and not the disk, is what bounds it.
    pub(crate) log_bytes_nearly_max: u64,
    /// URLs of the listeners, once they listen.
    pub(crate) listeners: OnceLock<Vec<String>>,
}

impl Surroundings {
    /// Whether `log_bytes_max` leaves the log no room, rather than the disk.
    pub(crate) fn is_at_its_limit(&self, stats: &Stats) -> bool {
        stats.bytes_in_use.saturating_add(stats.bytes_reusable) >= self.log_bytes_nearly_max
    }

    pub(crate) fn status(&self, log: &Log, now: Time) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at: self.started_at.as_millis(),
            uptime_s: now.since(self.started_at).as_secs(),
            listeners: self.listeners.get().cloned().unwrap_or_default(),
            log: log_status(log),
            memory: MemoryStatus {
                resident_bytes: resident_bytes(),
                cache_bytes_max: self.cache_bytes_max,
                ..MemoryStatus::default()
            },
            ..Status::default()
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
        bytes_max: stats.bytes_max,
        bytes_reusable: stats.bytes_reusable,
        extents: stats.extents,
        current_lsn: log.tail().to_string(),
        durable_lsn: log.durable().to_string(),
        space: match log.space() {
            towline_log::Space::Ample => Space::Ok,
            towline_log::Space::Low => Space::Low,
            towline_log::Space::Full => Space::Full,
        },
    }
}

/// From /proc/self/statm, second field, in pages of 4 KiB; 0 where there is no /proc.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}
