//! Figures of a running log: exact, cheap to take, never reset while it runs.
//!
//! Not here: names of metrics and units of display (room `admin`).

/// Write latency since start, in microseconds: from handing a batch to the disk to its sync's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Batches measured.
    pub count: u64,
    /// Shortest.
    pub min_us: u64,
    /// Mean, rounded down.
    pub avg_us: u64,
    /// Median, to within an eighth.
    pub p50_us: u64,
    /// 99th percentile, to within an eighth.
    pub p99_us: u64,
    /// Longest.
    pub max_us: u64,
    /// The newest.
    pub last_us: u64,
}

/// A picture of the log at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batch headers and records written since start, without padding, in bytes.
    pub logical_bytes_written: u64,
    /// Bytes written since start with padding to 4 KiB.
    pub physical_bytes_written: u64,
    /// Batches written since start.
    pub writes: u64,
    /// Syncs of batches since start.
    pub syncs: u64,
    /// Runs committed since start, forced and lazy.
    pub commits: u64,
    /// How long batches took.
    pub write_latency: LatencySummary,
    /// Bytes of extents that hold log (from the oldest kept to the tail).
    pub bytes_in_use: u64,
    /// `log_bytes_max`.
    pub bytes_max: u64,
    /// Bytes of extents that are there and hold no log: ready or spare.
    pub bytes_reusable: u64,
    /// Extents that hold log.
    pub extents: u64,
    /// Bytes of memory in the cache.
    pub cache_bytes: u64,
    /// Bodies found in memory.
    pub cache_hits: u64,
    /// Bodies that had to be read from disk.
    pub cache_misses: u64,
}
