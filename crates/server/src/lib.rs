//! The daemon: one instance of a queue manager with real sockets, threads, disks and clocks.
//!
//! Reading order: [`run`] (start to end), `group` (an instance of a group, from replica to active),
//! `door` (the one lock around the node), `net` (listeners and connections), `journal` and `bodies`
//! (the log as node and connections see it), `pager` (pages of deep queues), `images`,
//! `housekeeping` (when images are due, reclaim, time), `clerk` (what administrators ask for),
//! `check` (whether a start would be refused), `backup` (copies, and the way back), `shared_folder`
//! (several processes, one of them active), `identity`, `users`, `attempts` (who comes in).
//!
//! It knows no queue rules and no protocol: it moves bytes and time between rooms that know them.

#![forbid(unsafe_code)]

mod attempts;
pub mod backup;
mod bodies;
mod check;
mod clerk;
mod clock;
mod defaults;
mod descriptors;
mod door;
mod fetcher;
mod group;
mod hint;
mod housekeeping;
mod identity;
mod images;
mod journal;
pub mod lacking;
mod name;
mod net;
mod outbox;
mod owners;
mod pager;
mod random;
mod refused;
mod reload;
mod run;
mod shared_folder;
mod signals;
mod start;
mod status;
mod users;

pub use check::{Checked, Verdict, check, check_listeners};
pub use group::{
    Answer, HardStateReport, Report, Stand, ask_group, force_vote, give_up_vote, hard_state,
};
pub use refused::RunError;
pub use run::{RunArgs, run};
pub use shared_folder::log_folder;
pub use towline_link::check as check_group;

/// Exit status when the recovery log failed: what is acknowledged is safe, a restart will tell.
pub const EXIT_LOG_FAILED: i32 = 70;

/// Exit status of an instance of a group that must begin again and cannot do so by itself: start
/// it.
pub const EXIT_REEXEC_FAILED: i32 = 75;

/// Exit status when the lease of a shared data folder was lost: another instance may be active.
/// Nothing was acknowledged since.
pub const EXIT_LEASE_LOST: i32 = 71;
