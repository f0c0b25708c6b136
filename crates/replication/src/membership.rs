//! What a member of a group is by configuration: the id of the group's log, its options, its ticks.

use std::time::Duration;

use towline_config::GroupConfig;
use towline_group::{MemberId, Options};
use towline_link::Peer;
use towline_log::LogId;

use crate::frames::member_of;

/// Which member of its group an instance is, and how many the group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Which.
    pub member: MemberId,
    /// Members of the group, this one included.
    pub members_count: usize,
}

impl Membership {
    /// The member at this position of a group.
    #[must_use]
    pub fn of(group: &GroupConfig, this: Peer) -> Membership {
        Membership { member: member_of(this), members_count: group.member.len() }
    }

    /// Whether it is its group by itself: there is no other one that could know, or have, more.
    #[must_use]
    pub fn is_alone(self) -> bool {
        self.members_count == 1
    }
}

/// Ticks in a heartbeat interval.
const TICKS: u32 = 5;

/// Time between ticks.
#[must_use]
pub fn tick(group: &GroupConfig) -> Duration {
    (group.heartbeat_interval() / TICKS).max(Duration::from_millis(2))
}

/// The options of a member. `seed` is a random number.
#[must_use]
pub fn options(group: &GroupConfig, this: Peer, seed: u64) -> Options {
    Options {
        id: member_of(this),
        voters: (0..group.member.len()).map(member_of).collect(),
        tick: tick(group),
        heartbeat_interval: group.heartbeat_interval(),
        heartbeat_timeout: group.heartbeat_timeout(),
        seed,
        meets_first: false,
        lacks_batches: false,
    }
}

/// The id of a group's log: the same on all instances without a question, because their batches
/// are the same too. Made of the names, so that instances of different groups do not mix their
/// logs.
#[must_use]
pub fn log_id(queue_manager: &str, group: &str) -> LogId {
    let bytes = queue_manager.bytes().chain([0]).chain(group.bytes());
    let sum = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    LogId(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_other_names_have_other_logs() {
        assert_eq!(log_id("QM1", "G"), log_id("QM1", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM2", "G"));
        assert_ne!(log_id("QM1", "G"), log_id("QM", "1G"));
    }
}
