//! The daemon: one queue manager, or one instance of a group, with its sockets, threads and
//! signals.
//!
//! Reading order: [`run`] (from start to end, alone or on a shared folder), `group` (an instance of
//! a group, from replica to active), `run_args`, `endpoints` and `process` (what both use), `net`
//! (listeners, admission, connections), `control` (the control socket), [`region_reports`],
//! `reload`, `signals`, `descriptors`, `hint` (what is printed after `ready`), `check` (whether a
//! start would be refused).
//!
//! Not here: the instance and what steps it (`engine`), its part in a group (`replication`), logins
//! (`access`), queue rules (`core`) and the protocol (`amqp`).

#![forbid(unsafe_code)]

mod check;
mod control;
mod descriptors;
mod endpoints;
mod group;
mod hint;
mod net;
mod process;
mod quiesce;
mod refused;
pub mod region_reports;
mod reload;
mod run;
mod run_args;
mod shell;
mod signals;
mod small_pages;

pub use check::{CheckResult, Verdict, check, check_listeners};
pub use control::names::control_sockets;
pub use group::{
    Answer, HardStateReport, Report, Stand, ask_group, force_vote, give_up_vote, hard_state,
    instance_position, is_folder_of_group,
};
pub use refused::RunError;
pub use run::run;
pub use run_args::RunArgs;
pub use shell::shell_word;
pub use towline_engine::SHARED_LOG_NAME;
pub use towline_engine::{backup, divergence, inspection, missing_extents};
pub use towline_link::{check as check_group, check_region};
pub use towline_replica::rehearsal_folder::REHEARSAL_FOLDER;
pub use towline_replication::return_order;
pub use towline_standby::log_folder;
