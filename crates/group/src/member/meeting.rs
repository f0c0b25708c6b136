//! What a member that starts must hear before it takes part, and what its peers can say of it.
//!
//! A data folder that was put back whole does not know that it was. Its peers do, and say so when a
//! connection is made. So a process that starts is silent until it has met each other member: it
//! has read what that one says, or HeartbeatTimeout has passed. Between members that run that is
//! one round trip. A member that refuses connections may be about to start, and is waited for like
//! any other.
//!
//! A [`Witness`] is what one member heard another one promise, while its own process ran: a folder
//! that was copied while its process ran, and put back, has the right starts (`starts`), and is
//! recognised by this.
//!
//! Not here: what a member does that was put back: its process re-executes itself without a vote
//! and without a term. Invariant: no member that holds all that it promised is contradicted.

use std::collections::HashSet;

use raft::eraftpb::{Message as RaftMessage, MessageType};
use towline_types::{BatchPlace, Time};

use super::{Member, MemberId, Options};

/// What one member heard another one promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// The newest term in which it said something; 0: none.
    pub term: u64,
    /// A committed batch that it acknowledged; 0: none.
    pub index: u64,
    /// Term of that batch.
    pub index_term: u64,
}

/// What was heard of one member since this process began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeardPromise {
    term: u64,
    acknowledged: u64,
}

/// Which members a process that starts has not met yet.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    unmet: HashSet<MemberId>,
    until: Time,
}

impl Meeting {
    pub(super) fn begun(options: &Options, now: Time) -> Meeting {
        let others = options.voters.iter().copied().filter(|voter| *voter != options.id);
        let unmet = if options.meets_first { others.collect() } else { HashSet::new() };
        Meeting { unmet, until: now + options.heartbeat_timeout }
    }

    /// Whether it is still to wait.
    pub(super) fn goes_on(&mut self, now: Time) -> bool {
        if now >= self.until {
            self.unmet.clear();
        }
        !self.unmet.is_empty()
    }

    pub(super) fn met(&mut self, peer: MemberId) {
        self.unmet.remove(&peer);
    }
}

impl Member {
    /// What this process heard `peer` promise.
    #[must_use]
    pub fn witness(&self, peer: MemberId) -> Witness {
        let Some(HeardPromise { term, acknowledged }) = self.promised.get(&peer).copied() else {
            return Witness::default();
        };
        // Only what is committed stays: behind it, the log of a member may be cut off.
        let place = self.place(acknowledged.min(self.committed));
        // Index 0: the position is forgotten, so no log can be measured by it.
        let BatchPlace { index, term: index_term, .. } = place.unwrap_or_default();
        // A term that this member did not follow it into was no promise to it, and could not be
        // learned from it either.
        Witness { term: term.min(self.hard_state.term), index, index_term }
    }

    /// Whether it trusts its own promises, and a peer has heard it promise more: what it has is
    /// older than what it had.
    #[must_use]
    pub fn is_contradicted_by(&self, witness: Witness) -> bool {
        let forgot_term = self.hard_state.knows_term && witness.term > self.hard_state.term;
        let base = self.raw.raft.store().table.base().index;
        let lacks = witness.index > base
            && self.place(witness.index).is_none_or(|place| place.term != witness.index_term);
        forgot_term || (self.hard_state.may_vote && lacks)
    }

    /// A member said this.
    pub(super) fn witnesses(&mut self, message: &RaftMessage) {
        let is_about_to_be = matches!(
            message.msg_type,
            MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse
        );
        if is_about_to_be {
            // Of a term in which it does not take part yet.
            return;
        }
        let own_term = self.raw.raft.term;
        let promised = self.promised.entry(MemberId(message.from)).or_default();
        promised.term = promised.term.max(message.term);
        let acknowledges = message.msg_type == MessageType::MsgAppendResponse && !message.reject;
        if acknowledges && message.term == own_term {
            promised.acknowledged = promised.acknowledged.max(message.index);
        }
    }
}
