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

/// The id of a new log: the same on all instances without a question, because their batches are the
/// same too; also on those of the other region, so that the group's name is no part of it. Which
/// group a log belongs to stands beside it (`log_identity`).
#[must_use]
pub fn log_id(queue_manager: &str) -> LogId {
    id_of(queue_manager.bytes())
}

/// The id that a version before this one gave a new log.
#[must_use]
pub fn log_id_before(queue_manager: &str, group: &str) -> LogId {
    id_of(queue_manager.bytes().chain([0]).chain(group.bytes()))
}

/// FNV-1a, 128 bits.
fn id_of(bytes: impl Iterator<Item = u8>) -> LogId {
    let sum = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |sum, byte| {
        (sum ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    LogId(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_managers_of_other_names_have_other_logs_and_so_had_their_groups() {
        assert_eq!(log_id("QM1"), log_id("QM1"));
        assert_ne!(log_id("QM1"), log_id("QM2"));
        let before = log_id_before("QM1", "G");
        // As that version made it.
        assert_eq!(before, LogId(0x7fd0_15be_3e83_d94f_7081_18db_9661_0ce7));
        assert_ne!(before, log_id_before("QM", "1G"));
        assert_ne!(before, log_id("QM1"));
    }
}
