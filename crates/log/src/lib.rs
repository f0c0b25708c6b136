//! The recovery log: what was acknowledged is here, and comes back after any crash.
//!
//! In: opaque records in runs (a unit of work is one run). Out: the word that a run is durable,
//! bodies read back by position, and after a restart the newest image and all runs since.
//!
//! This crate knows nothing of the meaning of its bytes, of queues, of AMQP, of which instance
//! leads a group; it has no async code. The files of the log are used through [`Disk`] only.
//!
//! Reading order: [`disk`] (the seam), `format` (the bytes), `log` (the handle); on the way in
//! `append`, `batch`, `record`, `shared` (the state), `rule` (when to write), `writer`, `extents`
//! and `preallocation` (where to write), `listener` and `space_notifier` (what is reported),
//! `needs`; on the way back `cache`, `read`; `image`, `reclaim`, `hold`; `pages` (content rewritten
//! beside the log); `recover` (start); `member` (the log of an instance of a group); [`offline`]
//! (looking at a log at rest); [`mend`] (replacing what is damaged in it, from another log);
//! [`succession`] (a new folder from that of a predecessor); [`cut_back`] (the end of a log at rest
//! is given up); `stats`, `histogram`.

#![forbid(unsafe_code)]

mod append;
mod batch;
pub mod block;
mod cache;
mod coverage;
pub mod cut_back;
pub mod disk;
mod error;
mod extents;
pub mod folder;
pub mod format;
mod histogram;
mod hold;
mod image;
mod listener;
mod log;
pub mod mark;
mod member;
pub mod mend;
mod needs;
pub mod offline;
mod options;
mod overdue;
mod pages;
mod preallocation;
mod read;
mod rebuild_marker;
mod reclaim;
pub mod record;
mod recover;
mod rule;
mod shared;
mod space_notifier;
mod stats;
pub mod succession;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod threads;
pub mod time_index;
mod writer;

pub use append::Appender;
pub use coverage::Coverage;
pub use disk::{
    DelayDisk, Disk, DiskFile, FileSystem, LinuxDisk, MemoryDisk, ScratchDisk, SharedFile,
};
pub use error::{Damage, Finding, LogError, is_unreadable};
pub use extents::Space;
pub use format::{FORMAT_VERSION, LogId};
pub use histogram::LatencySummary;
pub use hold::Hold;
pub use listener::{Listener, Urgency};
pub use log::Log;
pub use mark::Mark;
pub use member::{FeedError, Replicator, RunStream};
pub use options::{EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, Options, RECORD_BYTES_MAX};
pub use overdue::Overdue;
pub use pages::{PageStats, Pages};
pub use rebuild_marker::{REBUILD_MARKER, mark_rebuild};
pub use recover::{
    BatchPlaces, Begin, Image, Recovery, ReplayError, ReplayItem, Report, ResumedStream,
};
pub use stats::Stats;
