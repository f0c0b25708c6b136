//! What serves clients while this instance is active, as its part in the group needs to know it.
//!
//! Not here: clients, queues, or how the instance is locked: the caller of [`crate::driver`]
//! provides all of that.

use towline_log::Space;
use towline_types::{LevelRaise, Lsn};

/// See the module. Calls come from any thread, and must not wait for the driver.
pub trait ActiveInstance: Send + Sync {
    /// The group has committed the log up to this position.
    fn committed(&self, upto: Lsn);

    /// The free space of the log changed.
    fn space(&self, space: Space);

    /// The disk of this instance has written more of the log.
    fn written(&self);

    /// The log took no run because it was behind, and does again.
    fn caught_up(&self);

    /// Closes all client connections, because another instance becomes active.
    fn close_clients(&self);

    /// Nobody is served any more, and nothing decided: this group is fenced, for this reason. Said
    /// again now and then.
    fn fence(&self, why: &str);

    /// That is over.
    fn lift_fence(&self);

    /// Whether nothing that was decided before a fence waits for the log.
    fn is_still(&self) -> bool;

    /// Runs of records that are decided and not committed yet.
    fn runs_pending(&self) -> usize;

    /// Raises the format level of the log to this one: all instances read it. Once it is on its way
    /// it is not decided again.
    fn raise_format_level(&self, to: u8) -> LevelRaise;

    /// Runs `act` while no client decides anything; yields what it yields.
    fn hold_still(&self, act: &mut dyn FnMut() -> bool) -> bool;
}
