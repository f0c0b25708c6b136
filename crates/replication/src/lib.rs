//! One instance's part in a group, with a real log, real files and real links: it steps the member
//! of the group, keeps its hard state, and keeps the log complete.
//!
//! Reading order: [`frames`] (what instances send each other), [`hard_state_file`] and
//! [`incarnation`] (what outlives the process beside the log, and for which log), [`log_identity`]
//! (of which group), [`trusted_log`] (how far a start believes both), [`membership`],
//! [`lifecycle`], [`driver`] (the member, stepped), [`ticker`], [`inbox`] (what comes over the
//! links); [`hand_over`] and [`preferred`] (leadership changes on purpose); [`disk_condition`],
//! [`disk_watch`] and [`disk_probe`] (disks that are full or do not answer); [`retention`],
//! [`retention_watch`], [`copy`] and [`log_swap`] (a replica that lags); [`repair_queue`],
//! [`repair`], [`repair_at_start`] and `batch` (a damaged batch); [`no_active`], [`agreement`],
//! [`redirect`], [`vote`], [`reexec`]; [`region_agreement`] and [`region_differences`] (the
//! configuration of the other region), [`region_clients`] (where clients find a group),
//! [`region_position`] and [`region_meeting`] (whether its log and this one are one),
//! [`region_shipping`] and [`region_receiving`] (both ends of a link between regions),
//! [`region_condition`] (what they say beside the log), [`region_intervals`], `region_giving` and
//! `region_taking` (a copy of the log, where recovery lacks what live no longer has;
//! `rebase_folder`, `rebase_state`), [`return_order`] (an old live group comes back),
//! [`region_part`] (all of that on one instance).
//!
//! Not here: consensus (`towline_group`), connections (`towline_link`), the bytes of the log
//! (`towline_log`); clients, queues, what a record means: the caller provides
//! [`active_instance::ActiveInstance`], [`inbox::InboxHost`] and [`copy::CopySource`].
//!
//! Invariants: what must be kept is durable before a message leaves; a log that led takes nothing
//! from others; the log that is replaced stays until the copy is whole.

#![forbid(unsafe_code)]

pub mod active_instance;
pub mod agreement;
pub mod applicable;
mod batch;
pub mod batch_marks;
pub mod copy;
pub mod disk_condition;
pub mod disk_probe;
pub mod disk_watch;
pub mod driver;
pub mod fence;
mod followed_histories;
pub mod frames;
pub mod hand_over;
pub mod hard_state_file;
pub mod inbox;
pub mod incarnation;
pub mod lifecycle;
mod log_comparison;
pub mod log_identity;
pub mod log_swap;
pub mod membership;
pub mod no_active;
pub mod preferred;
mod rebase_folder;
pub mod rebase_progress;
mod rebase_state;
mod rebase_wire;
pub mod redirect;
pub mod reexec;
pub mod region_agreement;
pub mod region_clients;
pub mod region_condition;
pub mod region_differences;
mod region_giving;
mod region_hand_over;
pub mod region_intervals;
pub mod region_meeting;
mod region_odds;
pub mod region_part;
pub mod region_position;
pub mod region_receiving;
pub mod region_shipping;
mod region_taking;
mod region_watch;
pub mod repair;
pub mod repair_at_start;
pub mod repair_queue;
pub mod retention;
pub mod retention_watch;
pub mod return_order;
pub mod said_times;
pub mod ticker;
pub mod trusted_log;
pub mod vote;
