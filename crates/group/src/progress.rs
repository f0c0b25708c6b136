//! What a member knows of the group, for a status.

use raft::ProgressState;
use towline_types::{BatchPlace, Lsn};

use crate::member::{Member, Role};
use crate::member_id::MemberId;
use crate::mode::Mode;

/// One member's view of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// The leader that it knows of, itself included; none in recovery.
    pub leader: Option<MemberId>,
    /// What part it has in its group.
    pub mode: Mode,
    /// In recovery, the member that relays the live group's log to the others, itself included.
    pub relay: Option<MemberId>,
    /// The last batch of which only the position is known: a member that has no more than what is
    /// before it needs a copy.
    pub base: BatchPlace,
    /// The newest batch of its log.
    pub last: BatchPlace,
    /// The newest batch that it knows to be committed and has on its disk.
    pub committed: BatchPlace,
    /// Up to where its log is on its disk.
    pub durable: Lsn,
    /// Whether it could take over without loss, as far as it knows: it votes, and has what its
    /// leader said is committed. In recovery, of what its relay said a majority has.
    pub is_in_sync: bool,
    /// Whether it leads, or heard its leader within the heartbeat time-out.
    pub hears_leader: bool,
    /// Whether it takes part in elections.
    pub may_vote: bool,
    /// Without these it does not know the newest term that it took part in: it takes part in
    /// nothing before each of them has said which term is its own.
    pub unheard: Vec<MemberId>,
    /// The others; known exactly to the leader only, and in recovery to the relay.
    pub peers: Vec<PeerProgress>,
}

/// What a leader, or a relay, knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgress {
    /// Which.
    pub id: MemberId,
    /// Up to where it has acknowledged the log (ACKLSN).
    pub acknowledged: Lsn,
    /// Bytes of log that it has not acknowledged.
    pub backlog_bytes: u64,
    /// Whether it answered within the heartbeat time-out.
    pub is_heard: bool,
    /// Whether it has all that was committed a heartbeat ago and all that there was when its
    /// connection came to stand, and is being sent what comes.
    pub is_in_sync: bool,
    /// Whether it lags so far behind that it needs a copy.
    pub needs_copy: bool,
}

impl Member {
    /// The group as this member sees it now.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let raft = &self.raw.raft;
        let table = &raft.store().table;
        let last = table.last();
        let leads = self.role == Role::Leader;
        let peers = self.peers.iter().map(|peer| self.peer_progress(*peer, last.end)).collect();
        Progress {
            role: self.role,
            term: raft.term,
            leader: self.leader(),
            mode: self.mode(),
            relay: self.relay(),
            base: table.base(),
            last,
            committed: self.committed_place(),
            // What is before the base is in a durable image.
            durable: table.place(self.durable).unwrap_or(table.base()).end,
            is_in_sync: self.may_vote()
                && !self.lacks_batches()
                && match self.mode() {
                    Mode::Recovery => self.has_relay_commit(),
                    Mode::Voting | Mode::Promoting => {
                        self.hears_leader() && (leads || self.has_leader_commit())
                    }
                },
            hears_leader: self.hears_leader(),
            may_vote: self.may_vote(),
            unheard: self.unheard(),
            peers,
        }
    }

    fn peer_progress(&self, id: MemberId, tail: Lsn) -> PeerProgress {
        if let Some(progress) = self.relayed_progress(id) {
            return progress;
        }
        let raft = &self.raw.raft;
        let progress = self.raft_progress(id);
        let matched = progress.matched;
        let table = &raft.store().table;
        // Zero: it has acknowledged nothing on this connection, or a position that is forgotten.
        let acknowledged = table.place(matched).map_or(Lsn::ZERO, |place| place.end);
        let leads = self.role == Role::Leader;
        let is_heard = leads && self.is_heard(id);
        // One that came back to a group in which nothing happens is not sent anything, so nothing
        // shows that it would take it; it has everything all the same.
        let takes_all = matched >= table.last().index || progress.state == ProgressState::Replicate;
        PeerProgress {
            id,
            acknowledged,
            backlog_bytes: if leads { tail.0.saturating_sub(acknowledged.0) } else { 0 },
            is_heard,
            is_in_sync: is_heard
                && !self.gone.contains(&id)
                && takes_all
                && self.commit_is_of_term()
                && matched >= self.committed_before()
                && matched >= self.opened_at.get(&id).copied().unwrap_or(0),
            needs_copy: progress.state == ProgressState::Snapshot,
        }
    }
}
