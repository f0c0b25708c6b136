//! One instance behind its door, over the real log: what steps it, and what reads and writes for
//! it.
//!
//! Reading order: [`door`] (the one lock around the instance), [`journal`] (the log as the instance
//! sees it), [`backlog`] (tasks that wait for the log), [`outbox`] (responses on their way to a
//! connection), [`bodies`] (the content of a delivery), [`workers`] with `fetcher`, `pager` and
//! [`admin_jobs`] (threads that wait for the disk in its stead), `slices` (what takes longer than a
//! step may), [`images`], [`housekeeping`] and `relocation` (images, reclaim, time), [`backup`]
//! (copies, and restores), `connection_accounts` (what connections hold), [`replay`] (from a data
//! folder to an instance) with [`start_error`], [`missing_extents`], `name_file` and [`settings`],
//! [`inspection`] (the same without a start), `shared_log` (a start with the log of a running one),
//! [`divergence`] (what a log did behind a fork), [`running`] (an instance is open: start its
//! threads).
//!
//! It knows no socket, no AMQP, no user and no consensus: a connection is an id and an outbox, and
//! a group is a log that becomes durable by other means, a source of [`repairs`] and a line in the
//! status ([`GroupView`]).

#![forbid(unsafe_code)]

pub mod admin_jobs;
mod administration;
mod backlog;
pub mod backup;
mod backup_folders;
pub mod bodies;
mod connection_accounts;
pub mod defaults;
pub mod divergence;
mod door;
mod fetcher;
pub mod housekeeping;
pub mod images;
pub mod inspection;
mod journal;
mod large;
mod list_pieces;
pub mod missing_extents;
pub mod name_file;
mod outbox;
mod owners;
mod page_writer;
mod pager;
mod process_status;
mod relocation;
mod repairs;
mod replay;
mod running;
pub mod settings;
mod shared_log;
mod slices;
mod start_error;
mod wake_ups;
mod workers;

pub use admin_jobs::AdminJobs;
pub use backlog::LogShare;
pub use backup_folders::BackupFolders;
pub use connection_accounts::{AccountShare, ConnectionAccounts};
pub use door::Door;
pub use images::{ImageReport, ImageSource, Images, PagesHold, SharedPagesHold};
pub use large::{Arrival, Arrivals, Departure, Departures, bytes_of, is_large};
pub use missing_extents::{Doubt, MissingExtents};
pub use outbox::Outbox;
pub use page_writer::evict;
pub use process_status::GroupView;
pub use repairs::{RepairDone, Repairs};
pub use replay::{ReplayTarget, ReplayedLog, StartOptions, replay};
pub use running::{LogContext, OpenInstance, RunningInstance};
pub use shared_log::{SHARED_LOG_NAME, SharedLog};
pub use start_error::StartError;
