//! The shared state of a log, as long as it follows.
//!
//! Not here: what a following log knows of its batches (`follower`), entering and cutting them
//! (`receive`, `cut`).

use towline_os::time::Instant;

use super::follower::{KnownBatch, ReceivedBatches};
use super::{Follower, Role};
use crate::error::LogError;
use crate::folder::chain::ExtentOffset;
use crate::format::{EXTENT_HEADER_BYTES, padded};
use crate::shared::{Flight, LogState, Phase};

/// Whether the log is used still.
pub(super) fn check_phase(state: &LogState) -> Result<(), LogError> {
    match state.phase {
        Phase::Running => Ok(()),
        Phase::Closing | Phase::Stopped => Err(LogError::Stopped),
        Phase::Failed => Err(LogError::Failed),
    }
}

/// Does something with the state of a log that follows.
pub(super) fn with_follower<T>(
    state: &mut LogState,
    with: impl FnOnce(&mut Follower) -> Result<T, LogError>,
) -> Result<T, LogError> {
    check_phase(state)?;
    match &mut state.role {
        Role::Writing => Err(LogError::Leading),
        Role::Following(follower) => with(follower),
    }
}

/// Extent and offset at which a batch goes that follows this one in its extent.
pub(super) fn next_place(behind: KnownBatch, extent_bytes: u64) -> ExtentOffset {
    // A batch may end with its extent.
    let sequence = behind.end.0.saturating_sub(1) / extent_bytes;
    let offset = padded(behind.end.0 - sequence * extent_bytes);
    ExtentOffset { sequence, offset: offset.max(EXTENT_HEADER_BYTES as u64) }
}

impl LogState {
    /// Takes what came and lies together, for one write.
    pub(crate) fn take_received(&mut self, bytes_max: usize, now: Instant) -> ReceivedBatches {
        let batches = match &mut self.role {
            Role::Writing => Vec::new(),
            Role::Following(follower) => follower.take(bytes_max),
        };
        let mut unsynced = None;
        for received in &batches {
            let before = self.take_off(Flight {
                index: received.batch.index,
                term: received.term,
                end: received.batch.end(),
                bytes: received.bytes(),
                forced: 1,
                is_seam: received.is_seam,
                since: now,
                done: None,
            });
            unsynced.get_or_insert(before);
        }
        let Some(unsynced) = unsynced else { unreachable!("a writer takes at least one batch") };
        ReceivedBatches { batches, unsynced, memory: self.pool.pop() }
    }
}
