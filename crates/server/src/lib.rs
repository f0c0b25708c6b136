//! The daemon: one instance of a queue manager with real sockets, threads, disks and clocks.
//!
//! Reading order: [`run`] (start to end), `door` (the one lock around the node), `net` (listeners and
//! connections), `journal` and `bodies` (the log as node and connections see it), `housekeeping`
//! (images, reclaim, time), `config`, `identity`, `users`, `attempts` (who comes in).
//!
//! It knows no queue rules and no protocol: it moves bytes and time between rooms that know them.

#![forbid(unsafe_code)]

mod attempts;
mod bodies;
mod clock;
pub mod config;
mod defaults;
mod door;
mod fetcher;
mod hint;
mod housekeeping;
mod identity;
mod journal;
mod logging;
mod net;
mod outbox;
mod random;
mod refused;
mod run;
mod start;
mod status;
mod users;

pub use refused::RunError;
pub use run::{RunArgs, run};

/// Exit status when the recovery log failed: what is acknowledged is safe, a restart will tell.
pub const EXIT_LOG_FAILED: i32 = 70;
