//! The recovery member that the live group ships to relays: it sends what it took to the other
//! members of its group, and knows what each of them has on its disk.
//!
//! It is no leader: nothing is decided here, so none is elected, and two relays at once send the
//! same log. What a majority has durably, this member's own disk counted, is the recovery point: it
//! is what members commit and what the live group hears.
//!
//! Each connection with a peer is a session of its own: what a process acknowledged that is gone,
//! or to an earlier relay, does not count. Batches are sent ahead of answers, up to a bound; a peer
//! that misses some says from where it needs them.
//!
//! Not here: what a peer does with it (`recovery`). Invariants: only what was compared with the
//! live group's log is sent; what a peer has not acknowledged as durable in this session counts for
//! nothing; what is in flight to a peer is bounded in messages and bytes.

use std::collections::VecDeque;

use raft::GetEntriesContext;
use raft::eraftpb::{Entry, Message as RaftMessage, MessageType};
use towline_types::limits::RELAYED_BYTES_MAX;
use towline_types::{BatchPlace, Lsn, Time};

use super::{MESSAGE_BYTES_MAX, MESSAGES_IN_FLIGHT_MAX, Member, MemberId, Output};
use crate::progress::PeerProgress;
use crate::store::FetchRequest;
use crate::timeline::timeline_of;
use crate::{ShipmentRefusal, ShippedAnswer, relayed};

/// Heartbeat intervals after which what was sent and moved nothing is sent again.
const PATIENCE: u32 = 2;

/// What a relay knows of its group.
#[derive(Debug)]
pub(super) struct LogRelay {
    /// Up to here this log is the live group's: it was compared.
    pub(super) matched: u64,
    /// The timeline of what is shipped; all zero before anything was.
    pub(super) timeline: u64,
    pub(super) peers: Vec<RelayPeer>,
    said: ShippedAnswer,
    /// Whether the live group is to hear that it may go on.
    is_news: bool,
    /// Whether the others are to hear of this relay's term at once.
    calls: bool,
}

/// How a peer is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
    /// One message at a time, until the peer takes one.
    Probe,
    /// As many as the bounds allow.
    Stream,
    /// What it needs is not known here any more: it gets a copy.
    NeedsCopy,
    /// It takes nothing: it is of a newer timeline, or its log is another one.
    Stopped,
}

/// What a relay knows of a peer.
#[derive(Debug)]
pub(super) struct RelayPeer {
    pub(super) id: MemberId,
    session: u64,
    pub(super) stage: SendStage,
    /// Index of the batch to be sent next.
    next: u64,
    /// The timeline of the term that it keeps.
    timeline: u64,
    /// Up to here it has the log durably.
    pub(super) acknowledged: u64,
    /// Up to here it has the log.
    received: u64,
    /// Last index and bytes of each message that was sent and not received.
    in_flight: VecDeque<(u64, u64)>,
    in_flight_bytes: u64,
    /// Where the newest message began.
    sent_from: u64,
    sent_at: Time,
    moved_at: Time,
}

impl RelayPeer {
    fn new(id: MemberId, session: u64, next: u64, now: Time) -> RelayPeer {
        RelayPeer {
            id,
            session,
            stage: SendStage::Probe,
            next,
            timeline: 0,
            acknowledged: 0,
            received: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            sent_from: next,
            sent_at: Time::ZERO,
            moved_at: now,
        }
    }

    fn may_send(&self) -> bool {
        match self.stage {
            SendStage::Probe => self.in_flight.is_empty(),
            SendStage::Stream => {
                self.in_flight.len() < MESSAGES_IN_FLIGHT_MAX
                    && self.in_flight_bytes < RELAYED_BYTES_MAX
            }
            SendStage::NeedsCopy | SendStage::Stopped => false,
        }
    }

    fn sends(&mut self, last: u64, bytes: u64, now: Time) {
        self.sent_from = self.next;
        if self.in_flight.is_empty() {
            self.moved_at = now;
        }
        self.in_flight.push_back((last, bytes));
        self.in_flight_bytes += bytes;
        self.next = last + 1;
        self.sent_at = now;
    }

    /// What is in flight is lost, or not taken.
    fn goes_back_to(&mut self, next: u64, now: Time) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.next = next;
        self.stage = SendStage::Probe;
        self.moved_at = now;
    }

    fn takes(&mut self, acknowledged: u64, received: u64, now: Time) {
        self.acknowledged = self.acknowledged.max(acknowledged);
        if received > self.received {
            self.received = received;
            self.moved_at = now;
        }
        while let Some((_, bytes)) = self.in_flight.pop_front_if(|(last, _)| *last <= received) {
            self.in_flight_bytes -= bytes;
            self.moved_at = now;
            if self.stage == SendStage::Probe {
                self.stage = SendStage::Stream;
            }
        }
    }
}

impl LogRelay {
    /// Up to here this log stays as it is, also before anything of it was compared: one that goes
    /// on from there needs no copy, although nothing may be sent to it yet.
    fn kept_upto(&self, committed: u64) -> u64 {
        self.matched.max(committed)
    }
}

/// Whether a majority keeps a term of the timeline that is shipped.
fn has_entered(relay: &LogRelay) -> bool {
    let peers = relay.peers.iter().filter(|peer| peer.timeline == relay.timeline).count();
    let all = relay.peers.len() + 1;
    peers + 1 > all / 2
}

impl Member {
    /// The live group ships to this member.
    pub(super) fn begin_relaying(&mut self) {
        let (now, next) = (self.now, self.committed + 1);
        let timeline = timeline_of(self.raw.raft.term);
        let peers = self.peers.clone();
        let recovery = self.recovery_mut();
        if recovery.relay.is_none() {
            let random = &mut recovery.random;
            let peers = peers.into_iter();
            let peers = peers.map(|id| RelayPeer::new(id, random.next_u64(), next, now)).collect();
            let said = ShippedAnswer::default();
            let (is_news, calls) = (false, false);
            recovery.relay = Some(LogRelay { matched: 0, timeline, peers, said, is_news, calls });
        }
    }

    /// Whether a batch of this term may be taken: a majority of this group is in its timeline. As
    /// for a leader's batches, which come after a majority voted in its term: so each promotion,
    /// which has a majority behind it too, begins behind the timelines of all batches that any
    /// member has. If it may not be yet, the others are asked to enter it.
    pub(super) fn enters_timeline(&mut self, term: u64) -> bool {
        self.follow_outside(term);
        let timeline = timeline_of(self.raw.raft.term);
        let has_some = timeline_of(self.last().term) >= timeline;
        let Some(relay) = self.recovery.as_mut().and_then(|it| it.relay.as_mut()) else {
            return false;
        };
        if relay.timeline != timeline || relay.peers.iter().all(|peer| peer.timeline == 0) {
            relay.calls = !has_some;
        }
        relay.timeline = timeline;
        has_some || has_entered(relay)
    }

    /// The live group ships to this member no more.
    pub(super) fn end_relaying(&mut self) {
        if let Some(recovery) = self.recovery.as_mut() {
            recovery.relay = None;
        }
    }

    /// This member takes no more of what is shipped to it, and says so.
    pub(super) fn ends_relay(&mut self, out: &mut Output) {
        if self.recovery.as_ref().is_some_and(|recovery| recovery.relay.is_some()) {
            // With what it has: the last words of a relay are the acknowledgement of a switch.
            out.shipped = Some(self.shipped_answer(Some(ShipmentRefusal::Promoted)));
            self.end_relaying();
        }
    }

    /// What a process acknowledged that may be gone counts no more. What its log ends with now is
    /// where to begin asking.
    pub(super) fn relay_peer_opened(&mut self, peer: MemberId, last_index: u64) {
        let (now, committed) = (self.now, self.committed);
        let Some(recovery) = self.recovery.as_mut() else { return };
        let Some(relay) = recovery.relay.as_mut() else { return };
        let next = last_index.min(relay.kept_upto(committed)) + 1;
        if let Some(known) = relay.peers.iter_mut().find(|known| known.id == peer) {
            *known = RelayPeer::new(peer, recovery.random.next_u64(), next, now);
        }
    }

    /// A peer answered what this relay sent.
    pub(super) fn relay_is_answered(&mut self, session: u64, answer: &RaftMessage) {
        let (now, committed) = (self.now, self.committed);
        let own_term = self.raw.raft.term;
        let Some(relay) = self.recovery.as_mut().and_then(|it| it.relay.as_mut()) else { return };
        let (matched, kept_upto) = (relay.matched, relay.kept_upto(committed));
        let from = MemberId(answer.from);
        let is_of = |peer: &RelayPeer| (peer.id, peer.session) == (from, session);
        let Some(at) = relay.peers.iter().position(is_of) else { return };
        let peer = &mut relay.peers[at];
        if timeline_of(answer.term) > timeline_of(own_term) {
            peer.stage = SendStage::Stopped;
            return;
        }
        let had_entered = has_entered(relay);
        let peer = &mut relay.peers[at];
        peer.timeline = timeline_of(answer.term).max(peer.timeline);
        if answer.reject {
            let is_late = peer.stage == SendStage::Stream && answer.index <= peer.received;
            let is_on_its_way = peer.stage == SendStage::Probe
                && !peer.in_flight.is_empty()
                && peer.sent_from == answer.reject_hint;
            match answer.reject_hint {
                0 => peer.stage = SendStage::Stopped,
                // One gap has many messages refused.
                _ if is_late || is_on_its_way => {}
                hint => peer.goes_back_to(hint.min(kept_upto + 1), now),
            }
        } else {
            let acknowledged = answer.index.min(matched);
            peer.takes(acknowledged, answer.reject_hint.clamp(acknowledged, matched), now);
        }
        relay.is_news |= !had_entered && has_entered(relay);
        // It had more elections once, when this group was live: it hears no older term.
        self.follow_outside(answer.term);
    }

    /// Says to all that take it what is committed.
    pub(super) fn relay_says_commit(&mut self, out: &mut Output) {
        let Some(relay) = self.recovery.as_ref().and_then(|it| it.relay.as_ref()) else { return };
        let takers = relay.peers.iter().filter(|peer| peer.stage == SendStage::Stream);
        let takers: Vec<_> = takers.map(|peer| (peer.id, peer.session)).collect();
        for (peer, session) in takers {
            self.show_itself(peer, session, out);
        }
    }

    /// Time passed: says again what was lost, and that it lives.
    pub(super) fn relay_ticks(&mut self, out: &mut Output) {
        let now = self.now;
        let interval = self.options.heartbeat_interval;
        let timeout = self.options.heartbeat_timeout;
        let has_some = timeline_of(self.last().term) >= timeline_of(self.raw.raft.term);
        let Some(relay) = self.recovery.as_mut().and_then(|it| it.relay.as_mut()) else { return };
        let is_entering = !has_some && !has_entered(relay);
        let mut due = Vec::new();
        for peer in &mut relay.peers {
            if !peer.in_flight.is_empty() && now.since(peer.moved_at) >= interval * PATIENCE {
                let next = if peer.received > 0 { peer.received + 1 } else { peer.sent_from };
                peer.goes_back_to(next.min(relay.matched + 1), now);
            }
            let silent = now.since(peer.sent_at);
            match peer.stage {
                SendStage::Stream if silent >= interval => due.push((peer.id, peer.session)),
                SendStage::NeedsCopy if silent >= timeout => due.push((peer.id, peer.session)),
                SendStage::Stopped if silent >= timeout => peer.goes_back_to(peer.next, now),
                _ if silent >= interval && is_entering => due.push((peer.id, peer.session)),
                _ => {}
            }
        }
        for (peer, session) in due {
            self.show_itself(peer, session, out);
        }
    }

    /// A message without batches: with what is committed, or that a copy is needed.
    fn show_itself(&mut self, peer: MemberId, session: u64, out: &mut Output) {
        let now = self.now;
        let base = self.raw.raft.store().table.base().index;
        let has_some = timeline_of(self.last().term) >= timeline_of(self.raw.raft.term);
        let Some(relay) = self.recovery.as_mut().and_then(|it| it.relay.as_mut()) else { return };
        let is_entering = !has_some && !has_entered(relay);
        let Some(known) = relay.peers.iter_mut().find(|known| known.id == peer) else { return };
        known.sent_at = now;
        let message = match known.stage {
            SendStage::NeedsCopy if !is_entering => self.copy_offer(peer, session),
            _ => {
                // It overtakes batches, so it is not about those that are in flight.
                let behind = known.acknowledged.max(base);
                let Some(behind) = self.place(behind) else { return };
                self.append_to(peer, session, behind, Vec::new())
            }
        };
        self.send_relayed(message, out);
    }

    fn append_to(
        &self,
        peer: MemberId,
        session: u64,
        behind: BatchPlace,
        entries: Vec<Entry>,
    ) -> RaftMessage {
        RaftMessage {
            msg_type: MessageType::MsgAppend,
            from: self.options.id.0,
            to: peer.0,
            index: behind.index,
            log_term: behind.term,
            commit: self.raw.raft.raft_log.committed,
            entries: entries.into(),
            context: relayed::context(session),
            ..RaftMessage::default()
        }
    }

    /// After each step: counts what is durable at a majority, sends what peers lack, and answers
    /// the live group.
    pub(super) fn relay_on(&mut self, out: &mut Output) {
        let timeline = timeline_of(self.raw.raft.term);
        let is_relay = |relay: &LogRelay| relay.timeline == timeline;
        let relay = self.recovery.as_ref().and_then(|it| it.relay.as_ref());
        let Some(relay) = relay else { return };
        if !is_relay(relay) {
            // A newer history has begun, and this member has heard of it.
            return self.ends_relay(out);
        }
        let durable = self.durable_at_majority(relay);
        self.commit_upto(durable);
        self.call_all(out);
        for at in 0..self.peers.len() {
            while self.send_next(at, out) {}
        }
        let refused = out.shipped.take().map(|answer| answer.refused);
        let answer = self.shipped_answer(refused.flatten());
        let relay = self.recovery.as_mut().and_then(|it| it.relay.as_mut());
        let Some(relay) = relay else { return };
        let is_news = std::mem::take(&mut relay.is_news);
        if relay.said != answer || refused.is_some() || is_news {
            relay.said = ShippedAnswer { refused: None, ..answer };
            out.shipped = Some(answer);
        }
    }

    /// Says this relay's term to all others, if they are to enter its timeline.
    fn call_all(&mut self, out: &mut Output) {
        let Some(relay) = self.recovery.as_mut().and_then(|it| it.relay.as_mut()) else { return };
        if !std::mem::take(&mut relay.calls) {
            return;
        }
        let all: Vec<_> = relay.peers.iter().map(|peer| (peer.id, peer.session)).collect();
        for (peer, session) in all {
            self.show_itself(peer, session, out);
        }
    }

    /// Up to where a majority has the live group's log durably, as far as this relay knows.
    fn durable_at_majority(&self, relay: &LogRelay) -> u64 {
        let own = self.durable.min(relay.matched);
        let mut all: Vec<u64> = relay.peers.iter().map(|peer| peer.acknowledged).collect();
        all.push(own);
        all.sort_unstable_by(|a, b| b.cmp(a));
        let majority = self.options.voters.len() / 2;
        all.get(majority).copied().unwrap_or(0)
    }

    /// Sends a peer the next message with batches, if there is one and it may be sent.
    fn send_next(&mut self, at: usize, out: &mut Output) -> bool {
        let now = self.now;
        let store = self.raw.raft.store();
        let base = store.table.base().index;
        let Some(relay) = self.recovery.as_ref().and_then(|it| it.relay.as_ref()) else {
            return false;
        };
        let upto = relay.matched;
        let Some(peer) = relay.peers.get(at) else { return false };
        let is_probe = peer.stage == SendStage::Probe;
        if !peer.may_send() || upto == 0 || (peer.next > upto && !is_probe) {
            return false;
        }
        let (id, session, next) = (peer.id, peer.session, peer.next.min(upto + 1));
        if next <= base {
            let message = self.copy_offer(id, session);
            self.send_relayed(message, out);
            self.with_relay_peer(at, |peer| {
                peer.stage = SendStage::NeedsCopy;
                peer.sent_at = now;
            });
            return false;
        }
        let mut entries = store.with_payloads(next, upto + 1, MESSAGE_BYTES_MAX);
        if entries.is_empty() && next <= upto {
            // Not in memory: it is read, and the step with it goes on here.
            let context = GetEntriesContext::empty(true);
            store.wanted.borrow_mut().push(FetchRequest { first: next, context });
            return false;
        }
        let Some(behind) = self.place(next - 1) else { return false };
        let mut bytes = 0;
        for entry in &mut entries {
            let Some(lsn) = self.raw.raft.store().lsn(entry.index) else {
                unreachable!("batch {} is in the log, and its position is not", entry.index)
            };
            entry.context = bytes::Bytes::copy_from_slice(&lsn.0.to_le_bytes());
            bytes += entry.data.len() as u64;
        }
        let last = next - 1 + entries.len() as u64;
        let message = self.append_to(id, session, behind, entries);
        self.send_relayed(message, out);
        self.with_relay_peer(at, |peer| {
            peer.next = next;
            peer.sends(last, bytes, now);
        });
        true
    }

    fn with_relay_peer(&mut self, at: usize, change: impl FnOnce(&mut RelayPeer)) {
        let relay = self.recovery.as_mut().and_then(|it| it.relay.as_mut());
        if let Some(peer) = relay.and_then(|relay| relay.peers.get_mut(at)) {
            change(peer);
        }
    }

    /// The least index that a peer is still to be sent.
    pub(super) fn relayed_next(&self) -> Option<u64> {
        let relay = self.recovery.as_ref()?.relay.as_ref()?;
        relay.peers.iter().map(|peer| peer.next).min()
    }

    /// What a relay knows of a peer.
    pub(crate) fn relayed_progress(&self, id: MemberId) -> Option<PeerProgress> {
        let relay = self.recovery.as_ref()?.relay.as_ref()?;
        let peer = relay.peers.iter().find(|peer| peer.id == id)?;
        let end = |index: u64| self.place(index).map_or(Lsn::ZERO, |place| place.end);
        let acknowledged = end(peer.acknowledged);
        let is_heard = self.is_heard(id);
        Some(PeerProgress {
            id,
            acknowledged,
            backlog_bytes: end(relay.matched).0.saturating_sub(acknowledged.0),
            is_heard,
            is_in_sync: is_heard
                && !self.gone.contains(&id)
                && peer.stage == SendStage::Stream
                && peer.acknowledged >= self.committed_before(),
            needs_copy: peer.stage == SendStage::NeedsCopy,
        })
    }

    /// How far this group is.
    pub(super) fn shipped_answer(&self, refused: Option<ShipmentRefusal>) -> ShippedAnswer {
        let relay = self.recovery.as_ref().and_then(|it| it.relay.as_ref());
        let matched = relay.map_or(0, |relay| relay.matched);
        let place = |index: u64| self.place(index).unwrap_or_default();
        // Behind its last batch an old live group's leader knows as committed what is void.
        let committed = if self.ends { self.committed } else { self.raw.raft.raft_log.committed };
        // What a leader of its own group made known meanwhile is not of the log that is shipped: it
        // would acknowledge other batches of the live group.
        let committed = committed.min(matched);
        let majority = relay.map_or(0, |relay| self.durable_at_majority(relay)).min(matched);
        ShippedAnswer {
            received: place(matched),
            durable: place(matched.min(self.durable)),
            recovery_point: place(committed),
            majority: place(majority),
            refused,
        }
    }
}
