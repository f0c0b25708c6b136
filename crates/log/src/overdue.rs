//! What the disk has not answered yet, and for how long: of the log's batches, and of the extent
//! that one of them waits for.
//!
//! Not here: how long is too long, and what follows (an instance of a group gives up the active
//! part). Other files (images, pages) do not count: nothing that is acknowledged waits for them.

use std::time::Duration;
use towline_os::time::Instant;

use crate::folder::names::extent_name;
use crate::shared::Shared;

/// The oldest thing that the log waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// Name of the file.
    pub file: String,
    /// For how long.
    pub since: Duration,
}

/// See the module; `None` when nothing is on its way to the disk.
pub(crate) fn look(shared: &Shared, now: Instant) -> Option<Overdue> {
    let state = shared.state();
    let extent = |lsn: u64| extent_name(lsn / shared.options.extent_bytes);
    let flight = state.flights.iter().find(|flight| flight.done.is_none());
    // A batch may end with its extent.
    let flight = flight.map(|flight| (flight.since, extent(flight.end.0.saturating_sub(1))));
    let next = || extent_name(state.extents.next_sequence());
    let waits = state.waits_for_extent.map(|since| (since, next()));
    let oldest = flight.into_iter().chain(waits).min_by_key(|(since, _)| *since);
    oldest.map(|(since, file)| Overdue { file, since: now.saturating_duration_since(since) })
}
