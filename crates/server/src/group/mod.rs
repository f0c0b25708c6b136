//! An instance of a group: a replica that becomes active when the group says so.
//!
//! Reading order: [`start`] (from a folder to a replica), [`driver`] (the member of the group,
//! stepped; [`lifecycle`]: what its process is), [`replica`] (what is committed is applied),
//! [`inbox`] (what the links bring), [`active`] (this instance serves clients), [`reexec`] (it does
//! not any more: the process begins again), [`listener_handover`] (its listening sockets), [`copy`]
//! (a log that lags too far is replaced), [`retention`] (what is kept for it until it has caught
//! up), [`repair`], [`repair_at_start`] and [`batch`] (a damaged batch is fetched from another
//! instance), [`switch`] and [`socket`] (what administrators ask for), [`condition`] (disks that
//! hang or are full), [`preferred`] (who shall be active), [`agreement`] (what the instances must
//! have in common), [`missing`] (why no instance is active), [`redirect`] (where clients find it),
//! [`status`], [`run`] (all of it in order).
//!
//! Not here: consensus (`towline_group`), the connections between instances (`link`).

mod active;
mod active_instance;
mod agreement;
mod applicable;
mod batch;
mod copy;
mod copy_source;
mod disk_condition;
mod disk_watch;
mod driver;
mod frames;
mod hand_over;
mod hanging;
mod hard_state_file;
mod host;
mod inbox;
mod incarnation;
mod lifecycle;
mod listener_handover;
mod missing;
mod preferred;
mod redirect;
mod reexec;
mod repair;
mod repair_at_start;
mod repair_queue;
mod replica;
mod report;
mod retention;
mod retention_watch;
mod run;
mod socket;
mod start;
mod status;
mod swap;
mod switch;
mod ticker;
mod vote;

pub(crate) use repair_queue::Repairs;
pub use report::{Answer, Report, Stand, ask_group};
pub(crate) use run::run;
pub use vote::{HardStateReport, give_up_vote, hard_state};

/// See [`vote::force_vote`].
///
/// # Errors
/// What the disk said.
pub fn force_vote(data: &std::path::Path, term: u64) -> std::io::Result<()> {
    vote::force_vote(data, term, u64::from_le_bytes(crate::random::bytes()))
}
