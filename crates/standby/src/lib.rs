//! Multi-instance mode: several processes with one data folder, on a file system that they share.
//! One is active, the others stand by.
//!
//! Reading order: `epochs` (the names in the folder), `record` and `lock` (a lease in bytes),
//! `watch` (when a standby may take over), `takeover` (how), [`lease`] and `guard` (why a stopped
//! instance that wakes does no harm), `home` ([`Home`]: the log folder, and the right to write it),
//! `entry` ([`Entry`]: a process waits until it may be active). Why it is so: docs/adr, fencing by
//! folder.
//!
//! It knows no queue, no client and no instance. Not here: how a log folder is made from another
//! one (`towline_log::succession`). A folder that is not shared is served by the same type,
//! [`Home`], and asks nothing of its file system that a single instance does not need.

#![forbid(unsafe_code)]

mod entry;
mod epochs;
mod error;
mod guard;
mod home;
pub mod lease;
mod lock;
mod record;
mod takeover;
#[cfg(test)]
mod testing;
mod watch;

pub use entry::{Entry, EntryStep, process_name, reserve_bytes};
pub use epochs::{is_shared, log_folder};
pub use error::{EntryError, FolderError};
pub use home::Home;
pub use lease::Lease;
