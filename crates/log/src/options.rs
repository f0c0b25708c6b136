//! What can be chosen about a log. No reading of configuration files: the server does that.

use std::time::Duration;

use crate::error::LogError;
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, EXTENT_HEADER_BYTES, size};
use crate::record::{CHECK_BYTES, PREFIX_BYTES_MAX};

/// Smallest extent: space for a few records, used in tests.
pub const EXTENT_BYTES_MIN: u64 = 256 * 1024;
/// Largest extent: an offset in it must fit 32 bits with a margin.
pub const EXTENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Longest record that any log takes: a chunk of a body (512 KiB), or a fact with an ordinary body
/// of 1 MiB, and what stands around it.
pub const RECORD_BYTES_MAX: usize = 1024 * 1024 + 64 * 1024;
/// Most batches in flight at a time.
pub(crate) const WRITES_IN_FLIGHT_MAX: usize = 64;

/// The choices. `Options::default()` is what a server uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of one extent, a multiple of 4 KiB, 256 KiB to 1 GiB. Fixed when the log is made: an
    /// existing log keeps its own.
    pub extent_bytes: u64,
    /// A batch that holds this many bytes is written without waiting for the one before it.
    pub batch_bytes_target: usize,
    /// Batches being written and synced at a time, 1 to 64; as many writer threads.
    pub writes_in_flight_max: usize,
    /// Typical time of a write and its sync from which on a disk counts as slow, so that further
    /// batches are written beside the one in flight. Zero: always.
    pub slow_write: Duration,
    /// Bound of the cache of recent batches and read-ahead blocks, in bytes.
    pub cache_bytes: usize,
    /// Bound of all extents together, in bytes.
    pub log_bytes_max: u64,
    /// The part of the log that is kept for what frees space (gets): [`crate::Space::Full`] is said
    /// when only this much is left.
    pub reserve_bytes: u64,
    /// How long a lazy run waits for a forced one to ride with; 20 times as long while the log is
    /// [`crate::Space::Full`], where each batch costs at least 4 KiB of the reserve.
    pub lazy_delay: Duration,
    /// Whether a file that held log is used again for new log. Not where another folder may have
    /// links to it ([`crate::succession`]): then it is removed, and a new one is made.
    pub recycle_extents: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            extent_bytes: 64 * 1024 * 1024,
            batch_bytes_target: 1024 * 1024,
            writes_in_flight_max: 4,
            slow_write: Duration::from_millis(1),
            cache_bytes: 64 * 1024 * 1024,
            log_bytes_max: 8 * 1024 * 1024 * 1024,
            reserve_bytes: 16 * 1024 * 1024,
            lazy_delay: Duration::from_millis(1),
            recycle_extents: true,
        }
    }
}

impl Options {
    /// Small extents and cache: for tests that want many extents and little disk.
    #[must_use]
    pub fn small() -> Options {
        Options {
            extent_bytes: EXTENT_BYTES_MIN,
            batch_bytes_target: 32 * 1024,
            slow_write: Duration::ZERO,
            cache_bytes: 1024 * 1024,
            log_bytes_max: 64 * 1024 * 1024,
            reserve_bytes: EXTENT_BYTES_MIN,
            ..Options::default()
        }
    }

    /// Checks the options against their bounds and each other.
    ///
    /// # Errors
    /// [`LogError::Options`] with the first thing that is wrong.
    pub fn check(&self) -> Result<(), LogError> {
        let wrong = |what| Err(LogError::Options { what });
        if !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&self.extent_bytes) {
            return wrong("extent_bytes must be 256 KiB to 1 GiB");
        }
        if !self.extent_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return wrong("extent_bytes must be a multiple of 4 KiB");
        }
        if !(1..=WRITES_IN_FLIGHT_MAX).contains(&self.writes_in_flight_max) {
            return wrong("writes_in_flight_max must be 1 to 64");
        }
        if !(BLOCK_BYTES..=64 * 1024 * 1024).contains(&self.batch_bytes_target) {
            return wrong("batch_bytes_target must be 4 KiB to 64 MiB");
        }
        // One extent in use, one ready behind it, and the reserve.
        let least = self.reserve_bytes.checked_add(self.extent_bytes.saturating_mul(3));
        if least.is_none_or(|least| least > self.log_bytes_max) {
            return wrong("log_bytes_max must hold three extents and the reserve");
        }
        Ok(())
    }

    /// Longest record for extents of this size.
    pub(crate) fn record_bytes_max(&self) -> usize {
        let room = size(self.extent_bytes) - EXTENT_HEADER_BYTES;
        // A mark for a run that was given up may stand before it.
        RECORD_BYTES_MAX.min(room - BATCH_HEADER_BYTES - PREFIX_BYTES_MAX - CHECK_BYTES - 1)
    }

    /// How far behind the end of the log whole batches may lie after a crash: as many writes as may
    /// be unfinished at a time lie between.
    #[must_use]
    pub fn stray_bytes(&self) -> u64 {
        let writes = self.writes_in_flight_max.max(4) as u64;
        writes * self.batch_bytes_hard_max() as u64
    }

    /// Longest batch, header included: one that is nearly full may still take one longest record.
    pub(crate) fn batch_bytes_hard_max(&self) -> usize {
        let room = size(self.extent_bytes) - EXTENT_HEADER_BYTES;
        let most = self.batch_bytes_target + RECORD_BYTES_MAX + BLOCK_BYTES;
        most.next_multiple_of(BLOCK_BYTES).min(room)
    }
}
