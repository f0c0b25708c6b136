//! The recovery log as the instance sees it.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Durability, Fact};
use towline_types::{BodyLocation, Lsn, Time};

/// Takes runs of facts. The server puts the real log behind it, tests and the simulator a fake one.
pub trait Journal {
    /// Appends `facts` as one run, applied whole or not at all, and replaces every incoming body by
    /// its place in the log. The run is durable when the log is durable up to the returned position.
    ///
    /// `durability` is `Lazy` or `Forced`. `None`: the log has no room; nothing was appended and the
    /// facts are as they were.
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Option<Lsn>;

    /// The body when it is in memory; never waits for a disk.
    fn resident(&self, location: BodyLocation) -> Option<Bytes>;

    /// The part of the status that the instance cannot know: process, log, listeners.
    fn surroundings(&self, now: Time) -> Status;
}
