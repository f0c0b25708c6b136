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

mod check;
mod control;
mod descriptors;
mod group;
mod hint;
mod net;
mod refused;
mod reload;
mod run;
mod signals;

pub use check::{Checked, Verdict, check, check_listeners};
pub use control::names::control_sockets;
pub use group::{
    Answer, HardStateReport, Report, Stand, ask_group, force_vote, give_up_vote, hard_state,
};
pub use refused::RunError;
pub use run::{RunArgs, run};
pub use towline_engine::{backup, inspection, missing_extents};
pub use towline_link::check as check_group;
pub use towline_standby::log_folder;
