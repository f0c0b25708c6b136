//! Takes in what happened to a member: time passed, a message arrived, the log wrote a batch, a
//! link opened or closed. [`Member::step`] is the only entry; it has one arm for each input.
//!
//! Not here: what the driver has to do as a result (`out`).

use super::{
    Entry, Input, Member, MemberId, Message, MessageType, Output, ProgressState, Role,
    SnapshotStatus, Time,
};
use crate::mode::Mode;
use crate::relayed;
use raft::eraftpb::Message as RaftMessage;
use towline_types::{Batch, BatchPlace, Lsn};

impl Member {
    /// Takes in one input and adds to `out` what follows from it. The caller executes `out` and
    /// empties it.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Output) {
        if self.is_over {
            return;
        }
        self.now = self.now.max(now);
        if let Input::PeerOpened { peer, .. } = &input {
            self.meeting.met(*peer);
        }
        match input {
            Input::Tick => {
                self.tick(out);
                self.asks_for_what_it_lacks(out);
            }
            Input::Message(message) => self.message(message, out),
            Input::PeerOpened { peer, last_index, term } => {
                self.told_term(peer, term, out);
                self.heard_ends.entry(peer).or_insert(last_index);
                self.peer_opened(peer, last_index);
                self.relay_peer_opened(peer, last_index);
            }
            Input::PeerClosed(peer) => self.peer_closed(peer),
            Input::Left(batch) => self.propose(batch),
            Input::Leading(place) => self.raw.mut_store().table.set_last(place),
            Input::Durable(upto) => self.make_durable(upto),
            Input::Fetched(id, batches) => self.fetched(id, batches),
            Input::Transfer(_) if self.mode() == Mode::Recovery => {}
            Input::Transfer(to) => self.raw.transfer_leader(to.0),
            // That all are blank was said with the terms: it is known by now.
            Input::Form if !self.hard_state.knows_term || self.mode() == Mode::Recovery => {}
            Input::Form => self.allow_votes(out),
            Input::Seam(place) => {
                assert!(place.index <= self.committed, "what is kept as committed is committed");
                // A log that lost something still owes what was noted before.
                if place.index > self.hard_state.committed {
                    (self.hard_state.committed, self.hard_state.committed_end) =
                        (place.index, place.end);
                }
            }
            Input::Forget(lsn) => self.forget(lsn),
            Input::Shipped(shipment) => self.take_shipped(shipment, out),
            Input::ShippingEnded => self.end_relaying(),
            Input::Promote { history, stands } => self.promote(history, stands, out),
            Input::Become { mode, history, at } => self.becomes(mode, history, at, out),
        }
        self.ask_for_votes_if_due();
        self.carry_out(out);
        if self.recovery.is_some() {
            self.recover_on(out);
        }
    }

    /// What else a recovery member does after each step.
    fn recover_on(&mut self, out: &mut Output) {
        if self.mode() == Mode::Recovery {
            self.counts_again_if_caught_up(out);
        }
        self.relay_on(out);
        self.answer_sources(out);
        // What is committed now.
        self.carry_out(out);
    }

    fn tick(&mut self, out: &mut Output) {
        if self.ends {
            return self.begin_again(out);
        }
        self.raw.tick();
        if self.now.since(self.marked_at) >= self.options.heartbeat_interval {
            self.marked_at = self.now;
            self.marks = [self.marks[1], self.committed];
            self.leader_commit.mark();
            self.recovery.iter_mut().for_each(|recovery| recovery.mark());
        }
        self.relay_ticks(out);
        if self.role == Role::Leader && !self.hears_a_majority() {
            // At once, not when the library looks next: it counts in whole time-outs.
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
        self.ask_again_for_copies();
    }

    /// A member that needs a copy gets one message about it, and the library then waits for the
    /// copy's end; but the message may have been lost. A member that gets a copy does not answer:
    /// its process ended for it.
    fn ask_again_for_copies(&mut self) {
        for peer in self.peers.clone() {
            let progress = self.raw.raft.prs().get(peer.0);
            let copying = progress.is_some_and(|it| it.state == ProgressState::Snapshot);
            if self.role != Role::Leader || !copying || !self.is_heard(peer) {
                self.copying.remove(&peer);
                continue;
            }
            let since = *self.copying.entry(peer).or_insert(self.now);
            if self.now.since(since) >= self.options.heartbeat_timeout {
                self.copying.remove(&peer);
                self.raw.report_snapshot(peer.0, SnapshotStatus::Failure);
                if let Some(progress) = self.raw.raft.mut_prs().get_mut(peer.0) {
                    progress.resume();
                }
                self.raw.raft.send_append(peer.0);
            }
        }
    }

    fn hears_a_majority(&self) -> bool {
        let heard = self.peers.iter().filter(|peer| self.is_heard(**peer)).count() + 1;
        heard > self.options.voters.len() / 2
    }

    fn message(&mut self, message: Message, out: &mut Output) {
        let Message { mut inner } = message;
        let from = MemberId(inner.from);
        if inner.to != self.options.id.0 || !self.peers.contains(&from) {
            return;
        }
        if !self.hard_state.knows_term || self.meeting.goes_on(self.now) {
            // An answer would count for a term that may be older than one it took part in.
            return;
        }
        self.witnesses(&inner);
        let relayed = relayed::session_of(&inner);
        let last = self.last().index;
        if relayed.is_none() {
            self.leader_says(from, &inner, last);
        }
        self.heard.insert(from, self.now);
        self.gone.remove(&from);
        if self.ends {
            return;
        }
        if let Some(session) = relayed {
            return self.hear_relayed(session, inner, out);
        }
        if self.mode() == Mode::Recovery {
            if !self.takes_in_recovery(&inner) {
                return;
            }
            self.is_led(&inner, out);
        }
        if self.is_overtaken(&inner, out) || self.has_no_such_batch(&inner) {
            return;
        }
        match inner.msg_type {
            MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote
            | MessageType::MsgTimeoutNow
                if !self.hard_state.may_vote =>
            {
                return;
            }
            MessageType::MsgTimeoutNow if self.lacks_batches() || self.is_behind_other => return,
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                self.leaves_taken_terms();
            }
            MessageType::MsgSnapshot => {
                if inner.term >= self.raw.raft.term {
                    out.copy_from = Some(from);
                }
                return;
            }
            MessageType::MsgHeartbeat if inner.commit > last => {
                // The leader knows an acknowledgement of ours that our log does not know.
                inner.commit = last;
                self.doubt(out);
                if !self.hard_state.knows_term {
                    return;
                }
            }
            MessageType::MsgHeartbeat => {
                // What its leader counts as acknowledged may have been so by another log, of which
                // this one has as many batches, and others: an older one that was put back.
                inner.commit = inner.commit.min(self.agreed_with(inner.term));
            }
            MessageType::MsgAppend
                if !self.hard_state.may_vote && inner.term >= self.raw.raft.term =>
            {
                self.catch_up_to.get_or_insert((inner.commit, inner.term));
            }
            _ => {}
        }
        // What the library refuses is late or of no member: it has no effect.
        drop(self.raw.step(inner));
        self.votes_in_no_term_of_a_leader();
    }

    /// Up to where this process has acknowledged that its log is the one of this term's leader, or
    /// knows it to be committed.
    fn agreed_with(&self, term: u64) -> u64 {
        let (of, index) = self.agreed;
        if of == term { index.max(self.committed) } else { self.committed }
    }

    /// What a message says of the leader's commit index. Before it counts as heard.
    fn leader_says(&mut self, from: MemberId, inner: &RaftMessage, last: u64) {
        let timeout = self.options.heartbeat_timeout;
        match inner.msg_type {
            MessageType::MsgAppend | MessageType::MsgHeartbeat => {}
            _ => return,
        }
        if inner.term < self.raw.raft.term {
            // Of a leader that was replaced: it says nothing of this one.
            return;
        }
        if !self.is_heard(from) {
            self.leader_commit.silence_ends(self.now);
        }
        if inner.msg_type == MessageType::MsgAppend {
            self.leader_commit.heard(self.now, inner.term, inner.commit, timeout);
        } else if inner.commit >= last {
            self.leader_commit.commits_all(self.now, inner.term, timeout);
        }
    }

    /// A process that is back may have another log than it had when it acknowledged, shorter or
    /// not: what it acknowledges from now on counts. Whatever copy was on its way to it is over.
    fn peer_opened(&mut self, peer: MemberId, last_index: u64) {
        if self.role != Role::Leader {
            return;
        }
        let Some(progress) = self.raw.raft.mut_prs().get_mut(peer.0) else { return };
        let copying = progress.state == ProgressState::Snapshot;
        progress.matched = 0;
        if copying {
            self.raw.report_snapshot(peer.0, SnapshotStatus::Failure);
        } else {
            progress.become_probe();
        }
        let last = self.raw.raft.raft_log.last_index();
        self.opened_at.insert(peer, last);
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(peer.0) {
            // What it holds now is where to begin asking: one that got a copy is far ahead
            // of what it last acknowledged, and behind that its leader may have nothing to send.
            if progress.state == ProgressState::Probe {
                progress.next_idx = (last_index.min(last) + 1).max(progress.matched + 1);
            }
            progress.resume();
        }
        self.raw.raft.send_append(peer.0);
    }

    /// The leader's process may be gone: this member does not believe in it any more, until it is
    /// heard again, and so neither keeps others from asking for votes nor waits for the time-out.
    fn peer_closed(&mut self, peer: MemberId) {
        self.gone.insert(peer);
        if self.raw.raft.leader_id == peer.0 {
            self.raw.raft.leader_id = 0;
        }
    }

    /// The log made a batch. When the library does not take it (leadership was lost, or is being
    /// handed over), leadership is over: what is in the log then is as if it had never been sent.
    fn propose(&mut self, batch: Batch) {
        let place = batch.place();
        let raft = &self.raw.raft;
        let follows = place.index == raft.raft_log.last_index() + 1 && place.term == raft.term;
        let follows = follows && self.mode().elects();
        if self.role != Role::Leader || self.held.is_some() || !follows {
            return self.give_up();
        }
        let entry = Entry { data: batch.payload, ..Entry::default() };
        let proposal = RaftMessage {
            msg_type: MessageType::MsgPropose,
            from: self.options.id.0,
            entries: vec![entry].into(),
            ..RaftMessage::default()
        };
        match self.raw.raft.step(proposal) {
            Ok(()) => self.proposed.push_back(place),
            Err(_) => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        if self.raw.raft.state == raft::StateRole::Leader {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
    }

    fn make_durable(&mut self, upto: Lsn) {
        let durable = self.raw.store().table.ended_by(upto);
        self.durable = self.durable.max(durable);
    }

    fn fetched(&mut self, id: u64, batches: Vec<Batch>) {
        let Some(at) = self.fetching.iter().position(|(fetch, _)| *fetch == id) else { return };
        let (_, wanted) = self.fetching.swap_remove(at);
        let table = &self.raw.store().table;
        let mut batches = batches;
        // Its term and position say which batch it is. Where it ends in its last block its log may
        // have learned only now: a damaged length of a batch before the image is seen when it is
        // read.
        let is_of =
            |batch: &Batch, place: BatchPlace| (place.term, place.lsn) == (batch.term, batch.lsn);
        batches.retain(|batch| table.place(batch.index).is_some_and(|place| is_of(batch, place)));
        let found = batches.iter().any(|batch| batch.index == wanted.first);
        self.raw.mut_store().payloads.fetched(batches);
        if found {
            self.raw.on_entries_fetched(wanted.context);
        }
        let wanted = self.peers.iter().map(|peer| self.raft_progress(*peer).next_idx);
        if let Some(least) = self.relayed_next().or(wanted.min()) {
            self.raw.mut_store().payloads.drop_fetched_before(least);
        }
    }

    pub(super) fn allow_votes(&mut self, out: &mut Output) {
        if !self.hard_state.may_vote {
            assert!(self.hard_state.knows_term, "a vote is of a term that is known");
            self.hard_state.may_vote = true;
            self.catch_up_to = None;
            out.hard_state = Some(self.hard_state);
        }
    }

    fn forget(&mut self, lsn: Lsn) {
        // What is not committed may still be replaced, and the library wants what is not applied.
        let committed = self.committed_place().end;
        self.raw.mut_store().table.forget_before(lsn.min(committed));
    }

    fn ask_for_votes_if_due(&mut self) {
        let raft = &self.raw.raft;
        let leads = raft.state == raft::StateRole::Leader;
        let hears = raft.leader_id != 0 && raft.election_elapsed < raft.election_timeout();
        // The only member gives its vote to none, whatever was kept: it has no pause to make.
        let favours = raft.vote != 0 && raft.vote != raft.id && !self.peers.is_empty();
        let favoured_in = favours.then_some(raft.term);
        let lets_others = self.lets_others_lead(leads || hears);
        let may_lead = self.mode().elects() && !self.is_behind_other;
        let takes_part = self.hard_state.may_vote && may_lead && !self.meeting.goes_on(self.now);
        if leads || hears || lets_others || !takes_part {
            self.election.settled();
        } else if self.may_be_elected_at_once() && self.election.is_due(self.now, favoured_in) {
            self.leaves_taken_terms();
            // Refused only to what is no member.
            drop(self.raw.campaign());
        }
    }

    /// A member that lost its log has it again: all that a leader knew to be committed. A leader
    /// knows all of it only when it has committed a batch of its own term; what was acknowledged
    /// to others may stand behind what it says before that.
    pub(super) fn vote_again_if_caught_up(&mut self, out: &mut Output) {
        let Some((upto, term)) = self.catch_up_to else { return };
        if self.durable < upto || self.raw.raft.leader_id == 0 {
            return;
        }
        if self.place(upto).is_some_and(|place| place.term == term) {
            self.allow_votes(out);
        } else {
            // Its next batches will say more.
            self.catch_up_to = None;
        }
    }
}
