//! Which term is the newest that this member took part in, when it may have forgotten that.
//!
//! A member without the hard state of its last process (an empty disk, an older copy, another log
//! than the one that it was kept for) may have voted, or acknowledged batches, in a term that it
//! does not know any more. If it then helped the leader of an older term, which has not noticed yet
//! that it was deposed, two leaders would commit different batches at one index. So it says nothing
//! at all, to no member, before each of the others has sent it its own term on a connection opened
//! since this start; it takes the highest of them for its own, durably, and refuses older ones from
//! then on.
//!
//! Why that is enough: what it promised in term T, it promised to the leader or a candidate of T.
//! That is one of the others, had T on its disk before it asked, and is asked after the promise.
//! Which one it was is not known, so all are asked. A crash before the term is durable leaves a
//! member that asks again.
//!
//! Not here: when a hard state is not to be trusted (the driver says so with
//! [`HardState::forgotten`]); how others send it. Invariants: a member that does not know its term
//! sends nothing, and does not vote.

use towline_types::BatchPlace;

use crate::timeline::era_of;

use super::{HardState, Member, MemberId, Options, Output, RecoveredLog, StateRole};

impl HardState {
    /// The same for a log that is replaced on purpose: the promises stand, but nothing bears them
    /// out.
    #[must_use]
    pub fn without_vote(self) -> HardState {
        HardState { knows_term: self.has_newest_term(), may_vote: false, ..self }
    }

    /// The same when it may not be the newest that was kept: what was promised since is not known.
    #[must_use]
    pub fn forgotten(self) -> HardState {
        HardState { knows_term: false, may_vote: false, ..self }
    }

    /// Whether `term` is the newest one that the member took part in.
    #[must_use]
    pub fn has_newest_term(&self) -> bool {
        // What a version before this one kept says only that it votes.
        self.knows_term || self.may_vote
    }

    /// What a member begins with that finds this log.
    pub(super) fn at_start(self, options: &Options, held: &RecoveredLog) -> HardState {
        // A log without what was once known to be committed has lost something, or the hard state
        // has.
        let forgets = self.may_vote && !held.has(&self);
        let is_alone = options.voters.iter().all(|voter| *voter == options.id);
        let is_older = self.is_older_than(held.last()) && !is_alone;
        let hard_state = if forgets || is_older { self.forgotten() } else { self };
        let newest = held.last().term;
        HardState {
            knows_term: hard_state.has_newest_term() || is_alone,
            term: hard_state.term.max(newest),
            // That term had a leader.
            vote: if hard_state.term >= newest {
                hard_state.vote
            } else {
                Some(MemberId::NONE_OF_THEM)
            },
            ..hard_state
        }
    }

    /// Whether a log that ends with `last` shows that this is an older copy of a hard state: a term
    /// is kept before a batch of it is received, or written.
    #[must_use]
    pub fn is_older_than(&self, last: BatchPlace) -> bool {
        self.term < last.term
    }

    /// The same beside a copy of a leader's log, which ends with `last`: it takes part in that
    /// term, in which there was a leader.
    #[must_use]
    pub fn with_copy(self, last: BatchPlace) -> HardState {
        match self.is_older_than(last) {
            true => HardState { term: last.term, vote: Some(MemberId::NONE_OF_THEM), ..self },
            false => self,
        }
    }
}

impl Member {
    /// Whether it knows the newest term that it took part in: it is silent until then.
    #[must_use]
    pub fn knows_term(&self) -> bool {
        self.hard_state.knows_term
    }

    /// The members that must send their terms before this one takes part; empty when it knows its
    /// own.
    #[must_use]
    pub fn unheard(&self) -> Vec<MemberId> {
        if self.hard_state.knows_term {
            return Vec::new();
        }
        let unheard = self.peers.iter().filter(|peer| !self.heard_terms.contains_key(peer));
        unheard.copied().collect()
    }

    /// A member sent its term, on a connection that this process has seen open.
    pub(super) fn told_term(&mut self, peer: MemberId, term: u64, out: &mut Output) {
        if self.peers.contains(&peer) {
            if !self.heard_terms.contains_key(&peer) {
                self.taken = self.taken.max(term);
            }
            let newest = self.heard_terms.entry(peer).or_default();
            *newest = term.max(*newest);
            self.adopt_newest_term(out);
        }
    }

    /// No leader is heard, and it is about to vote or to stand: not in a term that another one knew
    /// when this process met it. A folder that was put back, and that none of those recognised, may
    /// have given its vote there. Terms of a later era are another group's, which others follow in
    /// recovery: no member is elected there ([`crate::timeline`]).
    pub(super) fn leaves_taken_terms(&mut self) {
        let taken = self.taken;
        let raft = &mut self.raw.raft;
        if era_of(taken) > era_of(raft.term) {
            return;
        }
        let hears = raft.leader_id != 0 && raft.election_elapsed < raft.election_timeout();
        if taken > raft.term && raft.state != StateRole::Leader && !hears {
            raft.become_follower(taken, 0);
            raft.vote = MemberId::NONE_OF_THEM.0;
        }
    }

    /// The term of a leader that is heard has no vote left to be given: a member that asks for one
    /// forgot that term.
    pub(super) fn votes_in_no_term_of_a_leader(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.leader_id != 0 && raft.leader_id != raft.id && raft.vote == 0 {
            raft.vote = MemberId::NONE_OF_THEM.0;
        }
    }

    /// What came shows that something was forgotten: also a term, perhaps.
    pub(super) fn doubt(&mut self, out: &mut Output) {
        self.catch_up_to = None;
        self.heard_ends.clear();
        if self.hard_state.may_vote {
            self.hard_state = self.hard_state.forgotten();
            out.hard_state = Some(self.hard_state);
            self.adopt_newest_term(out);
        }
    }

    fn adopt_newest_term(&mut self, out: &mut Output) {
        if self.hard_state.knows_term || !self.unheard().is_empty() {
            return;
        }
        // 0: there is no other member that could know a term.
        let newest = self.heard_terms.values().copied().max().unwrap_or(0);
        let raft = &mut self.raw.raft;
        if newest > raft.term {
            raft.become_follower(newest, 0);
        }
        // In that term it may have given its vote; in term 0 there was none to give.
        raft.vote = if raft.term > 0 { MemberId::NONE_OF_THEM.0 } else { 0 };
        let vote = (raft.vote != 0).then_some(MemberId::NONE_OF_THEM);
        self.hard_state = HardState { term: raft.term, vote, knows_term: true, ..self.hard_state };
        out.hard_state = Some(self.hard_state);
    }
}
