//! A member that an operator started without a part of its log: batches before its image, in which
//! messages live that others have whole. For the algorithm it has them: it votes, and what it
//! acknowledges counts. As the leader it would lose those messages for the whole group.
//!
//! So it asks the leader for a copy, and until then it leads only when no other member does for
//! [`PATIENCE`]: then none of them can, and without it the group would stand still.
//!
//! Not here: which extents are missing, and whether an instance may start without them. Invariant:
//! a member that lacks nothing behaves as without this file.

use super::{Member, Output, Role};

/// In heartbeat time-outs. Others stand within a fraction of one.
const PATIENCE: u32 = 10;

impl Member {
    /// Whether it was started without a part of its log.
    #[must_use]
    pub fn lacks_batches(&self) -> bool {
        self.options.lacks_batches
    }

    /// Whether it is not its turn to stand yet; `is_led`: it leads, or hears a leader.
    pub(super) fn lets_others_lead(&mut self, is_led: bool) -> bool {
        if is_led {
            self.led_at = self.now;
        }
        let patience = self.options.heartbeat_timeout * PATIENCE;
        self.lacks_batches() && self.now.since(self.led_at) < patience
    }

    pub(super) fn asks_for_what_it_lacks(&self, out: &mut Output) {
        if self.lacks_batches() && self.role != Role::Leader {
            let from = self.leader().or(self.relay().filter(|relay| *relay != self.id()));
            out.copy_from = from.filter(|from| self.is_heard(*from)).or(out.copy_from);
        }
    }
}
