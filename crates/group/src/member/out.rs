//! Translates the results of the Raft library into an [`Output`]: hard state to store, batches for
//! the log, messages to peers, batches to read from the log. The driver executes it.
//!
//! Invariant: a message that acknowledges a batch leaves when that batch is durable, not before.

use bytes::Bytes;
use towline_types::Lsn;

use super::{
    Awaiting, Batch, BatchPlace, FETCH_BATCHES_MAX, FETCH_BYTES_MAX, FetchOrder, Member, MemberId,
    Message, Output, RaftMessage, Role, StateRole, lsn_of,
};
use raft::eraftpb::{Entry, MessageType};

/// From this size on a payload is most of what was read with it.
const SLICE_BYTES_MIN: usize = 64 * 1024;

impl Member {
    pub(super) fn carry_out(&mut self, out: &mut Output) {
        loop {
            self.release_durable(out);
            if self.raw.has_ready() {
                self.take_ready(out);
            } else if !self.send_own_commit() {
                break;
            }
        }
        self.vote_again_if_caught_up(out);
        self.order_fetches(out);
        let role = match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        };
        if role != self.role {
            self.role = role;
            out.role = Some(role);
            if role == Role::Leader {
                self.own_commit_sent = false;
                // Each member that voted was heard; its answers will say what it has.
                let now = self.now;
                let last = self.last().index;
                self.peers.iter().for_each(|peer| {
                    self.heard.insert(*peer, now);
                    self.opened_at.insert(*peer, last);
                });
            } else {
                self.held = None;
                self.proposed.clear();
            }
        }
    }

    /// Says once, in a message of its own, that a batch of this leader's own term is committed: a
    /// blank member votes when it has heard that, and in a group in which nothing happens nothing
    /// else would say it. True when there is something to send.
    fn send_own_commit(&mut self) -> bool {
        let term = self.raw.raft.term;
        let is_own = self.place(self.committed).is_some_and(|place| place.term == term);
        if self.role != Role::Leader || self.own_commit_sent || !is_own {
            return false;
        }
        self.own_commit_sent = true;
        for peer in self.peers.clone() {
            self.raw.raft.send_append(peer.0);
        }
        true
    }

    fn take_ready(&mut self, out: &mut Output) {
        let mut ready = self.raw.ready();
        if let Some(hard) = ready.hs() {
            let vote = (hard.vote != 0).then_some(MemberId(hard.vote));
            if (hard.term, vote) != (self.hard_state.term, self.hard_state.vote) {
                (self.hard_state.term, self.hard_state.vote) = (hard.term, vote);
                out.hard_state = Some(self.hard_state);
            }
        }
        let entries = ready.take_entries();
        // 0: messages without batches wait for no batch.
        let last = entries.last().map_or(0, |entry| entry.index);
        if self.raw.raft.state == StateRole::Leader {
            self.lead_with(&entries, out);
        } else {
            self.take_entries(entries, out);
        }
        // Behind its last batch an old live group's leader commits only what is void.
        let committed = ready.take_committed_entries();
        if let Some(newest) = committed.last().filter(|_| !self.ends) {
            assert!(newest.index >= self.committed, "what is committed stays so");
            self.committed = newest.index;
        }
        let messages = ready.take_messages();
        self.send(messages, out);
        let mut messages = ready.take_persisted_messages();
        if self.recovery.is_some() {
            // What the library says to a sender outside the group: see `recovery`.
            messages.retain(|message| message.to != MemberId::OUTSIDE.0);
        }
        // A reply may speak of batches that came earlier and are not durable yet.
        let replies = messages.iter().filter(|message| is_acknowledgement(message));
        let last = replies.map(|reply| reply.index).fold(last, u64::max);
        self.awaiting.push_back(Awaiting { number: ready.number(), last, messages });
        self.raw.advance_append_async(ready);
        if !self.ends {
            self.raw.advance_apply_to(self.committed);
        }
    }

    /// A leader's own batches are in its log already, but for the first of its term.
    fn lead_with(&mut self, entries: &[Entry], out: &mut Output) {
        for entry in entries {
            let index = entry.index;
            let term = entry.term;
            let place = match self.proposed.pop_front() {
                Some(place) => place,
                None => {
                    assert!(entry.data.is_empty(), "what a leader proposes is in its log");
                    out.lead = Some(term);
                    self.held = Some(Vec::new());
                    BatchPlace { index, term, ..BatchPlace::default() }
                }
            };
            assert_eq!((place.index, place.term), (index, term), "proposals keep their order");
            let store = self.raw.mut_store();
            store.table.push(place);
            store.payloads.push(index, entry.data.clone());
        }
    }

    fn take_entries(&mut self, entries: Vec<Entry>, out: &mut Output) {
        let Some(first) = entries.first().map(|entry| entry.index) else { return };
        if first <= self.last().index {
            assert!(first > self.committed, "what is committed is never cut off");
            let store = self.raw.mut_store();
            store.table.cut(first);
            store.payloads.cut(first);
            self.durable = self.durable.min(first - 1);
            for awaiting in self.awaiting.iter_mut().filter(|awaiting| awaiting.last >= first) {
                // Nothing of it is to be acknowledged any more.
                awaiting.last = 0;
                awaiting.messages.clear();
            }
            out.receive.retain(|batch| batch.index < first);
            if let Some(recovery) = &mut self.recovery {
                recovery.cut_by_leader(first);
            }
        }
        for entry in entries {
            let lsn = lsn_of(&entry);
            // What came is a slice of what was read with it, and this stays for a while: a small
            // one is copied so that it does not keep alive more than itself.
            let payload = match entry.data.len() {
                SLICE_BYTES_MIN.. => entry.data,
                _ => Bytes::copy_from_slice(&entry.data),
            };
            let batch = Batch { index: entry.index, term: entry.term, lsn, payload };
            let store = self.raw.mut_store();
            store.table.push(batch.place());
            store.payloads.push(batch.index, batch.payload.clone());
            out.receive.push(batch);
        }
    }

    /// What was to be done when the log is durable so far.
    fn release_durable(&mut self, out: &mut Output) {
        let mut number = None;
        let durable = self.durable;
        while let Some(done) = self.awaiting.pop_front_if(|awaiting| awaiting.last <= durable) {
            number = Some(done.number);
            self.send(done.messages, out);
        }
        if let Some(number) = number {
            self.raw.on_persist_ready(number);
        }
        if self.last().end > Lsn::ZERO
            && let Some(held) = self.held.take()
        {
            self.send(held, out);
        }
    }

    pub(super) fn send(&mut self, messages: Vec<RaftMessage>, out: &mut Output) {
        if let Some(held) = &mut self.held {
            return held.extend(messages);
        }
        for mut message in messages {
            assert!(
                !is_acknowledgement(&message) || message.index <= self.durable || message.term == 0,
                "what is acknowledged is durable"
            );
            if is_acknowledgement(&message) {
                self.agrees(message.term, message.index);
            }
            for entry in message.entries.iter_mut() {
                // One that is not known yet is held back, one that is forgotten is not sent.
                let lsn = self.raw.store().lsn(entry.index).filter(|lsn| *lsn > Lsn::ZERO);
                let Some(lsn) = lsn else {
                    unreachable!("the position of batch {} is not known", entry.index)
                };
                entry.context = Bytes::copy_from_slice(&lsn.0.to_le_bytes());
            }
            out.send.push((MemberId(message.to), Message { inner: message }));
        }
    }

    /// What is acknowledged here is the leader's, batch by batch.
    fn agrees(&mut self, term: u64, index: u64) {
        let (of, before) = self.agreed;
        self.agreed = if of == term { (of, before.max(index)) } else { (term, index) };
    }

    fn order_fetches(&mut self, out: &mut Output) {
        let wanted = std::mem::take(&mut *self.raw.mut_store().wanted.borrow_mut());
        for wanted in wanted {
            // The library asks with each proposal and each answer to a heartbeat until it has it.
            // Read once is enough: the others find it in memory when they ask next.
            if self.fetching.iter().any(|(_, on_its_way)| on_its_way.first == wanted.first) {
                continue;
            }
            let id = self.next_fetch;
            self.next_fetch += 1;
            let upto = wanted.first.saturating_add(FETCH_BATCHES_MAX);
            let mut bytes = 0;
            let places: Vec<BatchPlace> = (wanted.first..upto)
                .map_while(|index| self.place(index))
                .take_while(|place| {
                    let fits = bytes < FETCH_BYTES_MAX;
                    bytes += place.end.0.saturating_sub(place.lsn.0);
                    fits
                })
                .collect();
            out.fetch.push(FetchOrder { id, places });
            self.fetching.push((id, wanted));
        }
    }
}

/// A rejection says what this member has not; all other replies are of what is durable here.
fn is_acknowledgement(message: &RaftMessage) -> bool {
    message.msg_type == MessageType::MsgAppendResponse && !message.reject
}
