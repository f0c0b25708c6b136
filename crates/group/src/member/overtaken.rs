//! A recovery member that got a copy of the live group's log counts what is in it as committed: the
//! live group committed it. Until a majority of its own group has it too, the others may be
//! promoted without it, and their leader's log lacks it, or has other batches in its place.
//!
//! The library takes for granted that a leader has whatever is committed at a follower: it answers
//! batches from before that with what is committed, unseen. So this member would count towards a
//! majority for batches that it does not have. Here such batches are compared first. What is the
//! same is acknowledged as far as it was seen; a member that was overtaken gets a copy of its
//! leader's log.
//!
//! Not here: copies from the other region, and what is promotable before (the driver). Invariant:
//! what is acknowledged to the leader of a newer timeline than that of what is committed here was
//! compared with its batches.

use raft::eraftpb::{Message as RaftMessage, MessageType};

use super::{Member, MemberId, Output, Role};
use crate::timeline::timeline_of;

/// What of a leader's batches is known here.
enum Comparison {
    /// They are the same, up to this index.
    Same(u64),
    /// One of them is another one here.
    Differs,
    /// They are from before what is known of this log.
    Unknown,
}

impl Member {
    /// Whether batches of a leader are dealt with here: they are from before what is committed, and
    /// nothing says yet that it has that.
    pub(super) fn is_overtaken(&mut self, inner: &RaftMessage, out: &mut Output) -> bool {
        let raft = &self.raw.raft;
        if inner.msg_type != MessageType::MsgAppend || inner.term < raft.term {
            return false;
        }
        let committed = raft.raft_log.committed;
        let newer = timeline_of(inner.term);
        let concerns = inner.index < committed
            && self.place(committed).is_some_and(|place| timeline_of(place.term) < newer);
        if !concerns {
            self.overtaken_since = None;
            return false;
        }
        match self.compare_with_leader(inner, committed) {
            // It has all that is committed here.
            Comparison::Same(upto) if upto >= committed => false,
            Comparison::Same(upto) => {
                self.overtaken_since = None;
                self.acknowledge_compared(upto, inner, out);
                true
            }
            Comparison::Differs => {
                out.copy_from = Some(MemberId(inner.from));
                true
            }
            Comparison::Unknown => {
                // It may be late. A leader that lacks what is committed sends it again and again.
                let since = *self.overtaken_since.get_or_insert(self.now);
                if self.now.since(since) >= self.options.heartbeat_timeout {
                    out.copy_from = Some(MemberId(inner.from));
                }
                true
            }
        }
    }

    fn compare_with_leader(&self, inner: &RaftMessage, committed: u64) -> Comparison {
        let Some(behind) = self.place(inner.index) else { return Comparison::Unknown };
        let of_leader = inner.entries.iter().take_while(|entry| entry.index <= committed);
        let same = |index: u64, term: u64| self.place(index).is_some_and(|it| it.term == term);
        if behind.term != inner.log_term
            || of_leader.clone().any(|entry| !same(entry.index, entry.term))
        {
            return Comparison::Differs;
        }
        Comparison::Same(inner.index + of_leader.count() as u64)
    }

    /// It follows this leader, as far as its log was seen.
    fn acknowledge_compared(&mut self, upto: u64, inner: &RaftMessage, out: &mut Output) {
        if inner.term > self.raw.raft.term {
            self.raw.raft.become_follower(inner.term, inner.from);
            self.votes_in_no_term_of_a_leader();
        }
        let answer = RaftMessage {
            msg_type: MessageType::MsgAppendResponse,
            from: self.options.id.0,
            to: inner.from,
            term: inner.term,
            index: upto.min(self.durable),
            commit: self.committed,
            ..RaftMessage::default()
        };
        self.send(vec![answer], out);
    }

    /// Whether a member acknowledged what this leader does not have. One of an earlier version does
    /// so when it was overtaken.
    pub(super) fn has_no_such_batch(&self, inner: &RaftMessage) -> bool {
        self.role == Role::Leader
            && inner.msg_type == MessageType::MsgAppendResponse
            && !inner.reject
            && inner.index > self.raw.raft.raft_log.last_index()
    }
}
