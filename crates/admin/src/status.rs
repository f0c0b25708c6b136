//! The status of a queue manager, as `towline status --json` gives it, and as a table of 80
//! columns. Only words and layout: the node fills it in.

use serde::{Deserialize, Serialize};

mod group;
mod instances;
mod process;
mod region;
mod region_check;
mod regions_table;
mod shared;
mod table;

pub use group::{GroupRole, GroupStatus, InstanceState, InstanceStatus};
pub use instances::group_table;
pub use process::{ProcessMode, ProcessPhase, ProcessReport, process_table};
pub use region::{
    HistoryRow, OtherRegionState, OtherRegionStatus, RegionConditionStatus, RegionFenceStatus,
    RegionIntervalStatus, RegionStatus, RoleChangeRow,
};
pub use region_check::{
    FindingWeight, RegionFinding, nothing_stands, region_findings, region_findings_table,
};
pub use regions_table::regions_table;
pub use shared::{InstanceRole, SharedStatus};
pub use table::table;

/// All that `towline status --json` says. Names of fields are part of the product's interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Name of the queue manager.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// What it is doing.
    pub state: QueueManagerState,
    /// Process id.
    pub pid: u32,
    /// Start of the process, milliseconds since the Unix epoch.
    pub started_at: u64,
    /// Seconds since then.
    pub uptime_s: u64,
    /// Addresses that accept clients.
    pub listeners: Vec<String>,
    /// Clients that are connected.
    pub connections: u64,
    /// The recovery log.
    pub log: LogStatus,
    /// What the start of this process took.
    pub restart: RestartStatus,
    /// The newest image.
    pub image: ImageStatus,
    /// Indexes of queues, in memory and on pages.
    pub index: IndexStatus,
    /// Memory.
    pub memory: MemoryStatus,
    /// Open units of work.
    pub units: UnitsStatus,
    /// The group, when this is an instance of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupStatus>,
    /// The shared data folder, when this is one of several processes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedStatus>,
    /// The histories of the log, when this is one of two regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionStatus>,
    /// Local queues, by name.
    pub queues: Vec<QueueStatus>,
}

/// What a queue manager is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueManagerState {
    /// Recovering.
    #[default]
    Starting,
    /// Accepting clients.
    Running,
    /// Shutting down; units of work may end.
    Quiescing,
}

/// The recovery log. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Bytes of records, before padding and compression.
    pub logical_bytes_written: u64,
    /// Bytes given to the disk.
    pub physical_bytes_written: u64,
    /// Batches written.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Commits: units of work, and puts and gets outside them, that a client waited for.
    pub commits: u64,
    /// From a batch's submission to its durability, microseconds.
    pub write_latency_us: WriteLatency,
    /// Bytes of extents that hold what is needed.
    pub bytes_in_use: u64,
    /// Bytes that the log may have (`log_bytes_max`); none when only the disk bounds it.
    pub bytes_max: Option<u64>,
    /// Bytes of extents that can be reused.
    pub bytes_reusable: u64,
    /// Extents there are.
    pub extents: u64,
    /// Where the next record goes, as `<a:b:c:d>`.
    pub current_lsn: String,
    /// Up to where the log is durable, as `<a:b:c:d>`.
    pub durable_lsn: String,
    /// Whether there is free space.
    pub space: Space,
    /// Mean size of a write, bytes.
    pub write_size_bytes: u64,
    /// Age of the oldest write that is not back, microseconds: grows while the disk stalls.
    pub write_waiting_us: u64,
    /// Bytes in use of the file system that the log is in; 0 when not known.
    pub file_system_bytes_in_use: u64,
    /// Bytes that it has; 0 when not known.
    pub file_system_bytes_max: u64,
    /// Current primary space in use (LOGINUSE): the part of the log's space that a restart reads.
    pub primary_space_in_use_percent: u64,
    /// Workload primary space utilization (LOGUTIL): the most that was lately needed at a time.
    pub workload_space_percent: u64,
    /// Bytes that a restart reads (RECSZ).
    pub restart_bytes: u64,
    /// Bytes required for media recovery (MEDIASZ).
    pub media_recovery_bytes: u64,
}

/// What the start of a process took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RestartStatus {
    /// The queues were rebuilt from the whole log, because pages or the newest image were damaged.
    pub rebuilt: bool,
    /// Records replayed.
    pub records: u64,
    /// Bytes of log replayed.
    pub bytes: u64,
    /// Reads of extents.
    pub reads: u64,
    /// Listing files and reading the image, microseconds.
    pub opening_us: u64,
    /// Making the queues of the image, microseconds.
    pub image_us: u64,
    /// Reading and replaying the log, microseconds.
    pub replaying_us: u64,
    /// Of this: waiting for the disk, microseconds.
    pub waiting_us: u64,
    /// Looking behind the end of the log, microseconds.
    pub judging_us: u64,
    /// All of it, until the log could be written again, microseconds.
    pub total_us: u64,
}

/// The newest image of this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageStatus {
    /// Where a restart would begin, as `<a:b:c:d>`; empty without an image.
    pub lsn: String,
    /// Images taken by this process.
    pub taken: u64,
    /// When the last of them was taken, milliseconds since the Unix epoch; 0 for none.
    pub taken_at: u64,
    /// How long that took, milliseconds.
    pub took_ms: u64,
    /// Its length, without pages.
    pub bytes: u64,
    /// Pages that were written for it.
    pub pages: u64,
}

/// Indexes of queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexStatus {
    /// Bytes in memory, about.
    pub bytes: u64,
    /// Bytes that may be in memory (`index_bytes_max`).
    pub bytes_max: u64,
    /// Length of the page file.
    pub page_file_bytes: u64,
    /// Bytes of it that hold pages.
    pub page_bytes: u64,
    /// Reads of the page file.
    pub page_reads: u64,
    /// Writes of the page file.
    pub page_writes: u64,
}

/// Microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WriteLatency {
    /// Of the last write.
    pub last: u64,
    /// Least.
    pub min: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 99 of 100 are below.
    pub p99: u64,
    /// Greatest.
    pub max: u64,
}

/// Whether the log has free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// Enough.
    #[default]
    Ok,
    /// Little is left.
    Low,
    /// None: puts are refused.
    Full,
}

/// Memory of the process, bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryStatus {
    /// Resident set.
    pub resident_bytes: u64,
    /// Bodies of non-persistent messages, and what open units of work keep in memory.
    pub message_bytes: u64,
    /// What those may have.
    pub message_bytes_max: u64,
    /// Large messages that are still incomplete.
    pub arriving_bytes: u64,
    /// What those may have, beside the one that is read in any case.
    pub arriving_bytes_max: u64,
    /// Large messages that are being sent.
    pub departing_bytes: u64,
    /// What those may have, unless one alone has more.
    pub departing_bytes_max: u64,
    /// What connections make the process hold: links, deliveries that are not settled, and what is
    /// on its way.
    pub connection_bytes: u64,
    /// Beyond it each connection may have its part of it only, and not what is configured.
    pub connection_bytes_max: u64,
    /// Messages that lost the annotations of a `modified` outcome since the start, because too many
    /// messages had some.
    pub annotations_forgotten: u64,
    /// Bodies of persistent messages that are kept at hand.
    pub cache_bytes: u64,
    /// What those may have.
    pub cache_bytes_max: u64,
}

/// Open units of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitsStatus {
    /// How many there are.
    pub open: u64,
    /// Bytes of persistent messages that they keep in memory.
    pub memory_bytes: u64,
    /// Bytes of messages that they have in the log ahead of their commits.
    pub log_bytes: u64,
    /// Where the oldest of those is: the log cannot be reused from there on. Empty: none is there.
    pub oldest_lsn: String,
    /// Units that were rolled back because the log was nearly full, since the process started.
    pub ended_for_log: u64,
}

/// One local queue. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// Messages in it, those of uncommitted gets counted.
    pub depth: u64,
    /// Puts and gets that are not committed or not settled yet.
    pub uncommitted: u64,
    /// Messages put.
    pub puts: u64,
    /// Messages got.
    pub gets: u64,
    /// Deliveries that were backed out.
    pub backouts: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Messages that this process could not read from the log; they are on the dead-letter queue,
    /// or here still when that could not take them.
    pub damaged: u64,
    /// Messages of it that this process moved to the dead-letter queue because they are damaged.
    #[serde(default)]
    pub set_aside: u64,
    /// Open consumers and browsers.
    pub consumers: u64,
    /// Open producers.
    pub producers: u64,
    /// Seconds since the oldest message was put; `None` when there is none.
    pub oldest_message_age_s: Option<u64>,
}
