//! What the log reports to its user, and how soon the user wants a run durable.
//!
//! Not here: when the listener is called (`writer`, `space_notifier`).

use towline_types::Lsn;

use crate::error::LogError;
use crate::extents::Space;

/// How soon a run must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Now: a caller waits for it.
    Forced,
    /// With the next forced run, or after `lazy_delay`.
    Lazy,
}

/// Is notified by the log. Called on the log's threads (`cut`, and `durable` beside it, on that of
/// [`crate::Log::receive`]), outside its lock, one call at a time for
/// `durable` and `failed`, and one for `space`; must return quickly and must not call
/// [`crate::Log::shutdown`]. `durable` and `space` may append, and
/// may wait for a thread that appends, but not for anything to become durable. What is appended
/// while all writers are in `durable` may pass the bound of what waits for them (16 MiB).
pub trait Listener: Send + Sync {
    /// All that ends at or before `upto` is durable. Ascends from call to call (but see `cut`).
    fn durable(&self, upto: Lsn);
    /// Some of the log was cut off, because the group decided otherwise: from now on `durable` is
    /// about what replaced the part behind `upto`, and continues from there. Called by
    /// [`crate::Log::receive`], between two calls of `durable`; must not wait for the caller of
    /// that.
    fn cut(&self, _upto: Lsn) {}
    /// A write or a sync failed. Called once; `durable` is never called after it.
    fn failed(&self, error: &LogError);
    /// The free space changed. The log begins as [`Space::Ample`]. A change that is over before it
    /// could be reported is not reported.
    fn space(&self, space: Space);
    /// No further extent can be made, for another reason than a full disk; it is tried again five
    /// times a second, and nothing is lost. Called once until a try succeeds, and on the thread
    /// that calls `space`.
    fn hindered(&self, _error: &LogError) {}
    /// The header of this file, an extent, was damaged and has been written again. Called on a
    /// thread that reads the log.
    fn header_repaired(&self, _file: &str) {}
    /// A run that [`crate::Log::try_appender`] did not take would be taken now, or may be. Called
    /// on the thread that calls `space`.
    fn caught_up(&self) {}
}
