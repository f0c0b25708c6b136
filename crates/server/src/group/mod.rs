//! An instance of a group, with its sockets and its clients.
//!
//! Reading order: [`host`] (what its part in the group gets from here), [`active`] (it serves
//! clients), [`addresses`] (where else clients find the queue manager), [`listener_handover`] (its
//! listening sockets outlive a re-exec), [`region`] (the other region), [`region_reports`] (what
//! is said of both), [`region_orders`] (changes of roles), [`switch`] and [`control`] (what administrators ask for), [`status`], [`report`],
//! [`run`] (all of it in order).
//!
//! Not here: from its data folder to its door (`towline_replica`), its part in the group
//! (`towline_replication`), consensus (`towline_group`), the connections between instances
//! (`towline_link`).

mod active;
mod address_watch;
mod addresses;
mod control;
mod drill_return;
mod host;
mod listener_handover;
mod metrics_page;
mod order_reports;
mod region;
mod region_intervals;
mod region_orders;
mod region_reports;
mod region_tasks;
mod rehearsals;
mod report;
mod run;
mod status;
mod switch;

pub(crate) use addresses::ListenerAddresses;
pub use report::{Answer, Report, Stand, ask_group};
pub(crate) use run::run;
pub use towline_replication::hard_state_file::is_folder_of_group;
pub use towline_replication::vote::{HardStateReport, give_up_vote, hard_state, instance_position};

/// See [`towline_replication::vote::force_vote`].
///
/// # Errors
/// What the disk said.
pub fn force_vote(data: &std::path::Path, term: u64, members_count: usize) -> std::io::Result<()> {
    towline_replication::vote::force_vote(
        data,
        term,
        members_count,
        u64::from_le_bytes(towline_process::random::bytes()),
    )
}
