//! How a queue manager is administered: the MQSC language, what its commands mean as types, what is
//! answered, the catalogue of messages, and the status that `towline status --json` shows.
//!
//! Reading order: [`attributes`] (the one table of objects and attributes), [`mqsc`] (text to
//! commands), [`command`] (commands as types), [`target`] (what a queue manager must answer),
//! [`execute`] (a command carried out), [`reply`] (what comes back, and its text), [`catalogue`]
//! (every message by id), [`reference`] (help and reference pages from the tables), [`status`],
//! [`region_report`] (of changes of roles), [`metrics`] (for Prometheus).
//!
//! This crate knows no socket, no file and no clock, and it decides nothing: a [`Target`] does.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod catalogue;
pub mod command;
mod display;
pub mod execute;
pub mod metrics;
pub mod mqsc;
pub mod reference;
pub mod region_report;
pub mod reply;
pub mod status;
pub mod target;
mod text;

pub use catalogue::Message;
pub use command::Command;
pub use execute::{execute, run_script};
pub use reply::{Reply, ScriptReply};
pub use target::Target;
