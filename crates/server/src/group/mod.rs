//! An instance of a group: a replica that becomes active when the group says so.
//!
//! Reading order: [`start`] (from a folder to a replica), [`driver`] (the member of the group,
//! stepped; [`life`]: what its process is), [`replica`] (what is committed is applied), [`inbox`]
//! (what the links bring), [`active`] (this instance serves clients), [`again`] (it does not any
//! more: the process begins again), [`handed`] (its listening sockets), [`copy`] (a log that lags
//! too far is replaced), [`holds`] (what is kept for it until it has caught up), [`repair`],
//! [`repair_at_start`] and [`batch`] (a damaged batch is fetched from another instance), [`switch`]
//! and [`socket`] (what administrators ask for), [`condition`] (disks that hang or are full),
//! [`preferred`] (who shall be active), [`agreement`] (what the instances must have in common),
//! [`missing`] (why no instance is active), [`elsewhere`] (where clients find it), [`status`],
//! [`run`] (all of it in order).
//!
//! Not here: consensus (`towline_group`), the connections between instances (`link`).

mod active;
mod again;
mod agreement;
mod applicable;
mod batch;
mod condition;
mod copy;
mod driver;
mod elsewhere;
mod handed;
mod hanging;
mod holds;
mod inbox;
mod incarnation;
mod kept_file;
mod life;
mod missing;
mod preferred;
mod repair;
mod repair_at_start;
mod replica;
mod report;
mod run;
mod socket;
mod start;
mod status;
mod swap;
mod switch;
mod vote;

pub(crate) use repair::Repairs;
pub use report::{Answer, Report, Stand, ask_group};
pub(crate) use run::run;
pub use vote::{HardState, force_vote, give_up_vote, hard_state};

use towline_group::MemberId;

use towline_link::Peer;
pub(crate) use towline_link::Where;

/// Frames that carry a message of the group.
const KIND_CONSENSUS: u8 = 1;
/// Frames that carry a wish of an administrator to the active instance, as JSON.
const KIND_WISH: u8 = 2;

/// Frames in which the active instance tells what it knows of each instance, as JSON.
const KIND_ROWS: u8 = 3;

/// Frames in which an instance tells the condition of its disk, as JSON.
const KIND_CONDITION: u8 = 4;

/// Frames in which an instance tells what it knows of starts, as in a hello.
const KIND_KNOWN: u8 = 5;

/// A member's name in consensus: its position in the list of all, ordered by name, from 1.
fn member_of(peer: Peer) -> MemberId {
    MemberId(peer as u64 + 1)
}

/// The position of a member in that list.
fn peer_of(member: MemberId) -> Peer {
    usize::try_from(member.0.saturating_sub(1)).unwrap_or(usize::MAX)
}
