//! Figures of a running log: exact, cheap to take, never reset while it runs.
//!
//! Not here: names of metrics and units of display (crate `admin`).

use std::time::Duration;

use crate::histogram::LatencySummary;
use crate::shared::Shared;

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
    /// Mean size of a write in bytes, with padding; 0 before the first.
    pub write_bytes_avg: u64,
    /// Age of the oldest write that is not back, in microseconds; 0 when none is out. While a disk
    /// stalls it grows, all callers wait, and nothing is acknowledged.
    pub write_waiting_us: u64,
    /// Bytes in use and bytes in all of the file system that the log is in; both 0 when not known.
    pub file_system_bytes_in_use: u64,
    /// See there.
    pub file_system_bytes_max: u64,
    /// Log from the newest image on: what a start reads (RECSZ of IBM MQ, which counts in MB).
    pub bytes_for_restart: u64,
    /// Log that the older of the kept images or a live body needs, up to the tail: what media
    /// recovery needs (MEDIASZ).
    pub bytes_for_media: u64,
    /// `bytes_for_restart` as a part of the space that the log may have (LOGINUSE).
    pub in_use_percent: u64,
    /// The most that was lately needed at a time, `bytes_for_media` before extents were let go, as
    /// a part of that space (LOGUTIL): near 100 the log is too small for its work.
    pub workload_percent: u64,
    /// Bytes of memory in the cache.
    pub cache_bytes: u64,
    /// Bodies found in memory.
    pub cache_hits: u64,
    /// Bodies that had to be read from disk.
    pub cache_misses: u64,
}

/// Takes the picture.
pub(crate) fn collect(shared: &Shared) -> Stats {
    let mut stats = Stats { bytes_max: shared.options.log_bytes_max, ..Stats::default() };
    if let Some(found) = shared.disk.file_system() {
        stats.file_system_bytes_max = found.bytes_max;
        stats.file_system_bytes_in_use = found.bytes_max.saturating_sub(found.bytes_free);
    }
    let tail = {
        let state = shared.state();
        let extents = &state.extents;
        stats.commits = state.commits;
        stats.extents = extents.holding();
        stats.bytes_in_use = (stats.extents - 1) * extents.extent_bytes + extents.position;
        stats.bytes_reusable = (extents.count() - stats.extents) * extents.extent_bytes;
        let oldest = state.flights.iter().find(|flight| flight.done.is_none());
        let age = oldest.map_or(Duration::ZERO, |flight| flight.since.elapsed());
        stats.write_waiting_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        state.tail
    };
    let needs = shared.needs.lock().clone();
    stats.bytes_for_restart = tail.0.saturating_sub(needs.restart_from.0);
    stats.bytes_for_media = needs.media_bytes(tail);
    let room = match stats.file_system_bytes_max {
        0 => stats.bytes_max,
        disk => stats.bytes_max.min(disk),
    };
    let percent = |bytes: u64| bytes.saturating_mul(100).div_ceil(room.max(1));
    stats.in_use_percent = percent(stats.bytes_for_restart);
    stats.workload_percent = percent(needs.workload_bytes.max(stats.bytes_for_media));
    {
        let written = shared.written.lock();
        stats.logical_bytes_written = written.logical_bytes;
        stats.physical_bytes_written = written.physical_bytes;
        stats.writes = written.batches;
        stats.syncs = written.batches;
        stats.write_bytes_avg = written.physical_bytes / written.batches.max(1);
        stats.write_latency = written.summary();
    }
    let cache = shared.cache.lock();
    stats.cache_bytes = cache.bytes() as u64;
    Stats { cache_hits: cache.hits, cache_misses: cache.misses, ..stats }
}
