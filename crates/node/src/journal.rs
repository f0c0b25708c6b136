//! The recovery log as the instance sees it.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Durability, Fact};
use towline_types::{BodyLocation, Lsn, Time};

/// Why the log did not take a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAppended {
    /// It has no free space.
    Full,
    /// It would be waited for: it has taken more than its disk has written. The instance is stepped
    /// with [`Input::LogCaughtUp`](crate::Input) when that is over.
    Behind,
}

/// Takes runs of facts. The server puts the real log behind it, tests and the simulator a fake one.
pub trait Journal {
    /// Appends `facts` as one run, applied whole or not at all, and replaces every incoming body by
    /// its location in the log. The run is durable when the log is durable up to the returned
    /// position.
    ///
    /// `durability` is `Lazy` or `Forced`. Waits for nothing.
    ///
    /// # Errors
    /// Nothing was appended, and the facts are as they were.
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Result<Lsn, NotAppended>;

    /// Bytes that the log takes of a run that adds to what it must keep, now; what is appended
    /// counts at once. 0: the log is full for all that adds. Cheap: asked before each request.
    fn room_for_puts(&self) -> u64;

    /// Whether it has taken much more than its disk has written: what can wait should. Cheap.
    fn is_behind(&self) -> bool {
        false
    }

    /// The body when it is in memory; never waits for a disk.
    fn resident(&self, location: BodyLocation) -> Option<Bytes>;

    /// The part of the status that the instance cannot know: process, log, listeners.
    fn surroundings(&self, now: Time) -> Status;
}
