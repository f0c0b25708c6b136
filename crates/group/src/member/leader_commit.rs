//! The commit index that the leader announced, which may be ahead of this member's log: a follower
//! must not report itself in sync before it has that.
//!
//! Not here: what is committed *here*, and whether the leader could know what its predecessor had
//! committed ([`super::Member::commit_is_of_term`]). Invariant: the group decides nothing by it; an
//! operator does (`towline instance replace`).

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaderCommit {
    /// Of this term's leader.
    term: u64,
    /// The newest that it said.
    committed: u64,
    /// The same at the last two heartbeats.
    marks: [u64; 2],
}

impl LeaderCommit {
    /// The leader of `term` sent batches, or showed that there are none, and said how far the group
    /// is.
    pub(super) fn heard(&mut self, term: u64, committed: u64) {
        if term > self.term {
            *self = LeaderCommit { term, committed, marks: [committed; 2] };
        } else if term == self.term {
            self.committed = self.committed.max(committed);
        }
    }

    /// A heartbeat interval passed.
    pub(super) fn mark(&mut self) {
        self.marks = [self.marks[1], self.committed];
    }

    /// Whether a log that is durable up to `durable` has all that was committed one or two
    /// heartbeats ago, as the leader of `term` said: what came since is on its way. False before it
    /// said anything.
    pub(super) fn is_reached(&self, term: u64, durable: u64) -> bool {
        self.term == term && durable >= self.marks[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_in_sync_with_what_its_leader_said_a_heartbeat_ago_and_never_without_a_word() {
        let mut leader_commit = LeaderCommit::default();
        assert!(!leader_commit.is_reached(3, 900), "this leader said nothing yet");
        leader_commit.heard(3, 50);
        assert!(leader_commit.is_reached(3, 50) && !leader_commit.is_reached(3, 49));
        leader_commit.heard(3, 80);
        assert!(leader_commit.is_reached(3, 50), "it is on its way");
        leader_commit.mark();
        leader_commit.mark();
        assert!(!leader_commit.is_reached(3, 79) && leader_commit.is_reached(3, 80));
        leader_commit.heard(2, 200);
        assert!(leader_commit.is_reached(3, 80), "a late word of an older leader");
        leader_commit.heard(4, 100);
        assert!(!leader_commit.is_reached(4, 99), "a new one counts at once");
        assert!(!leader_commit.is_reached(5, 900));
    }
}
