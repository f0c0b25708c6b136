//! One process of an instance: a member of the group, and a replica's restart or an active's
//! instance beside it.
//!
//! Not here: what its outputs lead to (`world`).
//!
//! Invariants: time never goes back within a process; it begins as a replica, and what it knew as
//! an active ends with it.

use std::collections::BTreeMap;

use towline_core::ConnectionId;
use towline_group::{Member, Start};
use towline_node::{Instance, Outbound, Restart};
use towline_types::{BatchPlace, Time};

use crate::journal::SimulatedJournal;
use crate::runs::Runs;

/// See the module.
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) clock: Clock,
    pub(crate) member: Member,
    pub(crate) stage: Stage,
    pub(crate) runs: Runs,
    /// Index of the next committed batch to apply.
    pub(crate) next: u64,
    /// The newest batch with which no run was unfinished.
    pub(crate) seam: Option<BatchPlace>,
    /// Up to here what is committed was compared with what all saw.
    pub(crate) compared: u64,
    /// First batch of its term, when it leads.
    pub(crate) leading: Option<BatchPlace>,
    pub(crate) has_led: bool,
    pub(crate) blank_peers: [bool; 3],
    /// Of each peer, the start that it says, which connection it said that on, and whether it is
    /// noted.
    pub(crate) peer_starts: [(Start, u64, bool); 3],
    /// When it asked to be woken.
    pub(crate) try_at: Option<Time>,
    pub(crate) image_at: u64,
    pub(crate) image_under_way: bool,
    /// Of each connection: which client, and the queue that it gets from.
    pub(crate) connections: BTreeMap<ConnectionId, (usize, usize)>,
}

/// What the process is besides a member.
pub(crate) enum Stage {
    /// Applies what is committed to a restart that does not end.
    Warm(Box<Restart>),
    Active(Box<Active>),
    /// On the way from one to the other.
    Between,
}

/// What serves clients.
pub(crate) struct Active {
    pub(crate) instance: Instance,
    pub(crate) journal: SimulatedJournal,
    pub(crate) out: Outbound,
    /// The commit of what no client waits for is scheduled.
    pub(crate) flush_planned: bool,
    /// The newest format level was decided, or is in force.
    pub(crate) is_level_raised: bool,
}

/// A clock that is off and runs too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When the process began, by the true clock and by its own.
    pub(crate) began: u64,
    pub(crate) began_local: u64,
    pub(crate) drift_ppm: i64,
}

const MILLION: u64 = 1_000_000;

impl Clock {
    fn speed(self) -> u64 {
        MILLION.saturating_add_signed(self.drift_ppm)
    }

    /// The process's time.
    pub(crate) fn local(self, now: u64) -> Time {
        Time(self.began_local + (now - self.began) * self.speed() / MILLION)
    }

    /// When the process's clock will show this time.
    pub(crate) fn true_time(self, local: Time) -> u64 {
        let since = local.0.saturating_sub(self.began_local);
        self.began + (since * MILLION).div_ceil(self.speed())
    }
}

impl Process {
    pub(crate) fn active(&mut self) -> Option<&mut Active> {
        match &mut self.stage {
            Stage::Active(active) => Some(active),
            Stage::Warm(_) | Stage::Between => None,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_is_read_back_to_the_true_time() {
        for drift_ppm in [-20_000, 0, 17_003] {
            let clock = Clock { began: 5_000, began_local: 77_000, drift_ppm };
            for now in [5_000, 5_001, 1_005_000, 90_000_000] {
                let local = clock.local(now);
                assert!(clock.local(clock.true_time(local)) >= local, "{drift_ppm} {now}");
                assert!(clock.true_time(local) <= now, "{drift_ppm} {now}");
            }
        }
    }
}
