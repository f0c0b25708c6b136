//! The commit index that the leader announced, which may be ahead of this member's log: a follower
//! must not report itself in sync before it has that.
//!
//! What a leader said is out of date once it was not heard for a while: it went on with the others.
//! It counts again a heartbeat time-out later: until then, batches may be on their way, and what
//! comes may have waited in a socket while this process, or the link, stood still. From then on
//! batches count, as the leader sends them on each new connection. On one that lasted it has none
//! to send when nothing is missing; then a heartbeat counts that commits all that this member has.
//!
//! Not here: what is committed *here*, and whether the leader could know what its predecessor had
//! committed ([`super::Member::commit_is_of_term`]). Invariant: the group decides nothing by it; an
//! operator does (`towline instance replace`).

use std::time::Duration;

use towline_types::Time;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaderCommit {
    /// Of this term's leader.
    term: u64,
    /// The newest that it said.
    committed: u64,
    /// The same at the last two heartbeats.
    marks: [u64; 2],
    /// When the leader was heard again after a silence, and has not sent batches since.
    doubted_at: Option<Time>,
}

impl LeaderCommit {
    /// The leader of `term` sent batches, or showed that there are none, and said how far the group
    /// is.
    pub(super) fn heard(&mut self, now: Time, term: u64, committed: u64, timeout: Duration) {
        if term > self.term {
            // What a process hears first waited in no socket of its own.
            let doubted_at = self.doubted_at.filter(|_| self.term > 0);
            *self = LeaderCommit { term, committed, marks: [committed; 2], doubted_at };
        } else if term == self.term {
            self.committed = self.committed.max(committed);
            self.believe_again(now, timeout);
        }
    }

    /// The leader is heard again, after it was not for a heartbeat time-out.
    pub(super) fn silence_ends(&mut self, now: Time) {
        self.doubted_at = Some(now);
    }

    /// The leader of `term` commits all that this log has.
    pub(super) fn commits_all(&mut self, now: Time, term: u64, timeout: Duration) {
        if term == self.term {
            self.believe_again(now, timeout);
        }
    }

    fn believe_again(&mut self, now: Time, timeout: Duration) {
        if self.doubted_at.take_if(|at| now.since(*at) >= timeout).is_some() {
            // What was on its way before the silence is no excuse any more.
            self.marks = [self.committed; 2];
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
        self.term == term && self.doubted_at.is_none() && durable >= self.marks[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);

    #[test]
    fn a_follower_is_in_sync_with_what_its_leader_said_a_heartbeat_ago_and_never_without_a_word() {
        let mut leader_commit = LeaderCommit::default();
        assert!(!leader_commit.is_reached(3, 900), "this leader said nothing yet");
        leader_commit.heard(Time(1), 3, 50, TIMEOUT);
        assert!(leader_commit.is_reached(3, 50) && !leader_commit.is_reached(3, 49));
        leader_commit.heard(Time(1), 3, 80, TIMEOUT);
        assert!(leader_commit.is_reached(3, 50), "it is on its way");
        leader_commit.mark();
        leader_commit.mark();
        assert!(!leader_commit.is_reached(3, 79) && leader_commit.is_reached(3, 80));
        leader_commit.heard(Time(1), 2, 200, TIMEOUT);
        assert!(leader_commit.is_reached(3, 80), "a late word of an older leader");
        leader_commit.heard(Time(1), 4, 100, TIMEOUT);
        assert!(!leader_commit.is_reached(4, 99), "a new one counts at once");
        assert!(!leader_commit.is_reached(5, 900));
    }

    #[test]
    fn what_a_leader_said_before_a_silence_does_not_count_until_it_sends_batches_again() {
        let mut leader_commit = LeaderCommit::default();
        leader_commit.heard(Time(0), 3, 50, TIMEOUT);
        leader_commit.silence_ends(Time(1_000_000));
        assert!(!leader_commit.is_reached(3, 50), "it went on with the others");
        leader_commit.heard(Time(1_099_999), 3, 70, TIMEOUT);
        assert!(!leader_commit.is_reached(3, 70), "it may have waited as long as this process");
        leader_commit.heard(Time(1_100_000), 3, 80, TIMEOUT);
        assert!(!leader_commit.is_reached(3, 79) && leader_commit.is_reached(3, 80));

        leader_commit.silence_ends(Time(2_000_000));
        leader_commit.commits_all(Time(2_099_999), 3, TIMEOUT);
        assert!(!leader_commit.is_reached(3, 80), "batches may be on their way");
        leader_commit.commits_all(Time(2_100_000), 2, TIMEOUT);
        assert!(!leader_commit.is_reached(3, 80), "a late word of an older leader");
        leader_commit.commits_all(Time(2_100_000), 3, TIMEOUT);
        assert!(leader_commit.is_reached(3, 80));
        leader_commit.silence_ends(Time(3_000_000));
        leader_commit.heard(Time(3_000_001), 4, 90, TIMEOUT);
        assert!(!leader_commit.is_reached(4, 90), "the first word of a new one may be as old");
        leader_commit.heard(Time(3_100_000), 4, 95, TIMEOUT);
        assert!(!leader_commit.is_reached(4, 94) && leader_commit.is_reached(4, 95));

        let mut started = LeaderCommit::default();
        started.silence_ends(Time(3_000_000));
        started.heard(Time(3_000_001), 4, 90, TIMEOUT);
        assert!(started.is_reached(4, 90), "a process that starts has heard nothing before");
    }
}
