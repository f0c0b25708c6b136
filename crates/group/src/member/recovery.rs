//! A recovery member receives the live group's log: from outside, when the live group ships to it,
//! or from the member that it ships to, which relays. What a relay sends and what was shipped is
//! taken in the same way.
//!
//! What comes is given to the library as an append of [`MemberId::OUTSIDE`], after it was compared
//! with this log: it checks the batch before the first, cuts off a tail that conflicts, and hands
//! the batches to the log as always. Its answers to that sender go nowhere: what is acknowledged is
//! computed here, from what was compared on one session and what is durable.
//!
//! Messages of a real leader of its own group are taken too, if they are of a newer timeline than
//! what is committed here: then the others were promoted, and this one was not there. Older ones
//! may be of the time when this group was live.
//!
//! Equal terms in two groups do no harm here: see [`crate::timeline`].
//!
//! Not here: what a relay sends (`relay`), promotion (`promotion`). Invariants: in recovery a
//! member neither votes nor stands; what it acknowledges is durable here, compared with the
//! sender's log, and never cut off but by a newer timeline; nothing that is committed is ever
//! compared away; it commits what the relay said to be durable at a majority, and has compared
//! itself.

use raft::eraftpb::{Entry, Message as RaftMessage, MessageType, Snapshot};
use towline_types::{Batch, BatchPlace, SeededRandom, Time};

use super::relay::LogRelay;
use super::{HardState, Member, MemberId, Output, Role};
use crate::mode::Mode;
use crate::relayed;
use crate::timeline::{era_of, timeline_of};
use crate::wire::lsn_of;
use crate::{Shipment, ShipmentRefusal};
use bytes::Bytes;

/// One that sends the live group's log to this member.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogSource {
    pub(super) from: MemberId,
    /// Acknowledgements are of this session: a relay forgets what was said on others.
    session: u64,
    /// Up to here its log is the one here: both were compared.
    pub(super) matched: u64,
    /// What was acknowledged to it.
    said: u64,
    /// Whether it waits for an answer.
    is_asking: bool,
    /// What it said is durable at a majority.
    commit: u64,
    /// The same at the last two heartbeats.
    marks: [u64; 2],
    heard_at: Time,
}

/// What a recovery member has beside the others.
#[derive(Debug)]
pub(super) struct RecoveryState {
    /// One of each sender, at most.
    pub(super) sources: Vec<LogSource>,
    /// While the live group ships to this member.
    pub(super) relay: Option<LogRelay>,
    /// Of the numbers of sessions.
    pub(super) random: SeededRandom,
    /// Of this step: answers to what does not fit.
    refusals: Vec<RaftMessage>,
    /// Of this step: what of the log is about to be cut off is known here.
    is_cut: bool,
}

impl RecoveryState {
    pub(super) fn new(seed: u64) -> RecoveryState {
        let random = SeededRandom::mixed(seed ^ 0x7265_6c61_7965_6421);
        RecoveryState {
            sources: Vec::new(),
            relay: None,
            random,
            refusals: Vec::new(),
            is_cut: false,
        }
    }

    /// The log is cut off from `first` on, by a leader.
    pub(super) fn cut_by_leader(&mut self, first: u64) {
        if !self.is_cut {
            self.cut(first);
        }
    }

    fn cut(&mut self, first: u64) {
        let matched = self.sources.iter_mut().map(|source| &mut source.matched);
        let relayed = self.relay.iter_mut().map(|relay| &mut relay.matched);
        matched.chain(relayed).for_each(|matched| *matched = (*matched).min(first - 1));
    }

    /// A heartbeat interval passed.
    pub(super) fn mark(&mut self) {
        self.sources.iter_mut().for_each(|it| it.marks = [it.marks[1], it.commit]);
    }

    fn source(&mut self, from: MemberId, session: u64, now: Time) -> &mut LogSource {
        let new = LogSource {
            from,
            session,
            matched: 0,
            said: 0,
            is_asking: false,
            commit: 0,
            marks: [0; 2],
            heard_at: now,
        };
        let at = match self.sources.iter().position(|source| source.from == from) {
            Some(at) => at,
            None => {
                self.sources.push(new);
                self.sources.len() - 1
            }
        };
        if self.sources[at].session != session {
            self.sources[at] = new;
        }
        self.sources[at].heard_at = now;
        &mut self.sources[at]
    }
}

/// Why batches that were sent do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// They are to be sent from this index on.
    SendFrom(u64),
    /// This batch is another one here.
    Diverged(u64),
}

impl Member {
    /// What this member takes part in its group as.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.hard_state.mode
    }

    /// The member from which the live group's log came last, this one included; on a member
    /// that votes, `None`.
    #[must_use]
    pub fn relay(&self) -> Option<MemberId> {
        let recovery = self.recovery.as_ref().filter(|_| self.mode() == Mode::Recovery)?;
        if recovery.relay.is_some() {
            return Some(self.id());
        }
        let newest = recovery.sources.iter().max_by_key(|source| source.heard_at)?;
        Some(newest.from).filter(|from| *from != MemberId::OUTSIDE)
    }

    /// Whether it has on its disk what its relay said a heartbeat ago to be at a majority.
    pub(crate) fn has_relay_commit(&self) -> bool {
        let Some(recovery) = &self.recovery else { return false };
        let (now, timeout) = (self.now, self.options.heartbeat_timeout);
        recovery.relay.is_some()
            || recovery.sources.iter().any(|source| {
                now.since(source.heard_at) < timeout
                    && source.matched.min(self.durable) >= source.marks[0]
            })
    }

    /// Whether a recovery member takes a message that is no relay's. A leader's, if that one was
    /// elected since this group was live last: an older one's may come late. One that asks for
    /// votes gets none, but what it says is committed is so: the others vote since they know that a
    /// last batch is.
    pub(super) fn takes_in_recovery(&mut self, inner: &RaftMessage) -> bool {
        let timeline = timeline_of(inner.term);
        let is_newer = timeline > timeline_of(self.hard_state.left_term)
            && timeline >= timeline_of(self.raw.raft.term);
        match inner.msg_type {
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgSnapshot => {
                is_newer
            }
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                if is_newer {
                    self.raw.raft.raft_log.maybe_commit(inner.commit, inner.commit_term);
                }
                false
            }
            _ => false,
        }
    }

    /// It follows a leader of its own group: the others were promoted, and it was not there.
    pub(super) fn is_led(&mut self, inner: &RaftMessage, out: &mut Output) {
        let is_news = timeline_of(inner.term) > timeline_of(self.hard_state.led_term);
        if is_news && inner.msg_type == MessageType::MsgAppend && !inner.entries.is_empty() {
            self.hard_state.led_term = inner.term;
            out.hard_state = Some(self.hard_state);
        }
    }

    /// A message of a relay, or an answer to this one.
    pub(super) fn hear_relayed(&mut self, session: u64, mut inner: RaftMessage, out: &mut Output) {
        let from = MemberId(inner.from);
        match inner.msg_type {
            MessageType::MsgAppend => {
                let entries = std::mem::take(&mut inner.entries).into();
                self.take_relayed(session, &inner, entries, out);
            }
            MessageType::MsgSnapshot if self.may_take_relayed(inner.term) => {
                match self.goes_on_without(&inner) {
                    // A copy would take from its disk what the others count on.
                    Some(next) => {
                        self.refuse_relayed(session, &inner, Misfit::SendFrom(next));
                    }
                    None => out.copy_from = Some(from),
                }
            }
            MessageType::MsgAppendResponse => self.relay_is_answered(session, &inner),
            // No relay says anything else.
            _ => {}
        }
    }

    /// From which index on a recovery member takes the log of the relay that offers a copy, if it
    /// has the batch with which that copy begins, and so all before it.
    fn goes_on_without(&self, offer: &RaftMessage) -> Option<u64> {
        let begin = offer.get_snapshot().get_metadata();
        let has_it = self.mode() == Mode::Recovery
            && self.place(begin.index).is_some_and(|there| there.term == begin.term);
        has_it.then_some(begin.index + 1)
    }

    /// Whether a copy of the live group's log that ends with `last` may replace this log: what a
    /// relay would take of that group, and more than there is.
    #[must_use]
    pub fn may_be_rebased(&mut self, last: BatchPlace) -> bool {
        let takes_part = self.mode() == Mode::Recovery && !self.ends && self.may_vote();
        let knows = self.hard_state.knows_term && !self.meeting.goes_on(self.now);
        takes_part && knows && self.may_take_relayed(last.term) && last.index > self.last().index
    }

    /// Whether what a relay sends in this term is of the newest timeline that is known here.
    fn may_take_relayed(&self, term: u64) -> bool {
        let raft = &self.raw.raft;
        match self.mode() {
            Mode::Recovery => {
                timeline_of(term) >= timeline_of(raft.term) && self.is_not_led_beside(term)
            }
            // The others became recovery members, and this one was not there: another group is live
            // in a history behind the one that this member knows. A blank one has their term
            // already.
            Mode::Voting | Mode::Promoting => {
                era_of(term) > era_of(raft.term)
                    || (self.mode() == Mode::Voting
                        && !self.may_vote()
                        && timeline_of(term) == timeline_of(raft.term))
            }
        }
    }

    /// Whether what comes from outside in this term may be that of a live group although this
    /// member followed a leader of its own group: only behind a further promotion. The old live
    /// group may have had one that this group has not heard of, beside its own.
    fn is_not_led_beside(&self, term: u64) -> bool {
        let led_term = self.hard_state.led_term;
        led_term == 0 || era_of(term) > era_of(led_term)
    }

    /// A relay sends it the log of a timeline in which no member of this group is elected.
    fn becomes_relayed(&mut self, out: &mut Output) {
        let committed = self.committed_place().term;
        let voted = if self.may_vote() { self.raw.raft.term } else { 0 };
        let left_term = committed.max(voted);
        let (mode, promoted_to) = (Mode::Recovery, [0; 16]);
        let hard_state = HardState { mode, promoted_to, ..self.hard_state };
        self.hard_state = hard_state.leaves(left_term);
        out.hard_state = Some(self.hard_state);
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, 0);
    }

    fn take_relayed(
        &mut self,
        session: u64,
        inner: &RaftMessage,
        entries: Vec<Entry>,
        out: &mut Output,
    ) {
        let from = MemberId(inner.from);
        let behind = (inner.index, inner.log_term);
        if !self.may_take_relayed(inner.term) {
            // The term of the answer says why.
            return self.refuse_relayed(session, inner, Misfit::SendFrom(inner.index + 1));
        }
        if self.mode() != Mode::Recovery {
            if let Err(misfit @ Misfit::Diverged(_)) = self.compare(behind, &entries) {
                return self.refuse_relayed(session, inner, misfit);
            }
            self.becomes_relayed(out);
            if self.role == Role::Leader {
                return self.begin_again(out);
            }
        }
        let taken = self.take_in(inner.term, behind, entries);
        if !matches!(taken, Err(Misfit::Diverged(_))) {
            self.follow_outside(inner.term);
        }
        match taken {
            Ok(end) => {
                let now = self.now;
                let source = self.recovery_mut().source(from, session, now);
                source.matched = source.matched.max(end);
                source.commit = source.commit.max(inner.commit);
                source.is_asking = true;
                let upto = source.commit.min(source.matched);
                self.commit_upto(upto);
            }
            Err(misfit) => self.refuse_relayed(session, inner, misfit),
        }
    }

    /// Also when nothing was new: what follows is of that timeline, and a promotion begins behind
    /// it.
    pub(super) fn follow_outside(&mut self, term: u64) {
        if term > self.raw.raft.term {
            self.raw.raft.become_follower(term, MemberId::OUTSIDE.0);
            self.votes_in_no_term_of_a_leader();
        }
    }

    fn refuse_relayed(&mut self, session: u64, inner: &RaftMessage, misfit: Misfit) {
        let refusal = RaftMessage {
            msg_type: MessageType::MsgAppendResponse,
            from: self.options.id.0,
            to: inner.from,
            index: inner.index,
            commit: self.committed,
            reject: true,
            reject_hint: match misfit {
                Misfit::SendFrom(index) => index,
                Misfit::Diverged(_) => 0,
            },
            context: relayed::context(session),
            ..RaftMessage::default()
        };
        self.recovery_mut().refusals.push(refusal);
    }

    /// The live group shipped this.
    pub(super) fn take_shipped(&mut self, shipment: Shipment, out: &mut Output) {
        let refused = self.ship_in(shipment).err();
        out.shipped = Some(self.shipped_answer(refused));
    }

    fn ship_in(&mut self, shipment: Shipment) -> Result<(), ShipmentRefusal> {
        let Shipment { term, previous, batches } = shipment;
        if self.mode() != Mode::Recovery {
            return Err(ShipmentRefusal::Promoted);
        }
        if !self.hard_state.knows_term || self.ends || self.meeting.goes_on(self.now) {
            return Err(ShipmentRefusal::NotYet);
        }
        let is_older = timeline_of(term) < timeline_of(self.raw.raft.term);
        if is_older || !self.is_not_led_beside(term) {
            return Err(ShipmentRefusal::Promoted);
        }
        if let Some(later) = batches.iter().find(|batch| batch.term > term) {
            // No leader has batches of later terms than its own.
            return Err(ShipmentRefusal::Diverged { index: later.index });
        }
        self.begin_relaying();
        if !self.enters_timeline(term) {
            return Err(ShipmentRefusal::NotYet);
        }
        let taken = match self.place(previous.index) {
            // Positions too, not only terms: this is another group's log.
            Some(there) if there.term == previous.term && there != previous => {
                Err(Misfit::Diverged(previous.index))
            }
            _ => {
                let entries = batches.into_iter().map(entry_of).collect();
                self.take_in(term, (previous.index, previous.term), entries)
            }
        };
        match taken {
            Ok(end) => {
                if let Some(relay) = self.recovery_mut().relay.as_mut() {
                    relay.matched = relay.matched.max(end);
                }
                Ok(())
            }
            Err(Misfit::SendFrom(index)) => {
                Err(ShipmentRefusal::SendFrom { index, refused: previous.index })
            }
            Err(Misfit::Diverged(index)) => Err(ShipmentRefusal::Diverged { index }),
        }
    }

    /// Compares what was sent in `term`, behind a batch of this index and term, with the log, and
    /// gives to the library what is new. Yields up to where the logs are the same.
    fn take_in(
        &mut self,
        term: u64,
        behind: (u64, u64),
        entries: Vec<Entry>,
    ) -> Result<u64, Misfit> {
        let known = self.compare(behind, &entries)?;
        let end = behind.0 + entries.len() as u64;
        let mut entries = entries;
        let new = entries.split_off(known);
        let Some(first) = new.first() else { return Ok(end) };
        let before = first.index - 1;
        if before < self.last().index {
            let first = first.index;
            let recovery = self.recovery_mut();
            recovery.cut(first);
            recovery.is_cut = true;
        }
        let raft = &mut self.raw.raft;
        let append = RaftMessage {
            msg_type: MessageType::MsgAppend,
            from: MemberId::OUTSIDE.0,
            to: raft.id,
            term: term.max(raft.term),
            index: before,
            log_term: raft.raft_log.term(before).unwrap_or(behind.1),
            entries: new.into(),
            ..RaftMessage::default()
        };
        // Refused only what is late, and this is not: see below.
        drop(self.raw.step(append));
        self.votes_in_no_term_of_a_leader();
        let last = self.raw.raft.raft_log.last_index();
        assert_eq!(last, end, "what was compared and is new was taken");
        Ok(end)
    }

    /// How many of the batches this log has, all of them equal. What conflicts behind them was
    /// never committed: the library may cut it off.
    fn compare(&self, behind: (u64, u64), entries: &[Entry]) -> Result<usize, Misfit> {
        let (behind, behind_term) = behind;
        let committed = self.raw.raft.raft_log.committed;
        let base = self.raw.raft.store().table.base().index;
        if behind > self.last().index {
            return Err(Misfit::SendFrom(self.last().index + 1));
        }
        if behind + (entries.len() as u64) < base {
            // Nothing of it can be compared.
            return Err(Misfit::SendFrom(committed + 1));
        }
        // What this member has of a timeline in which it was in recovery came from the live group,
        // which ships what is committed: another batch of the same one is of another log. From the
        // time when this group was live it may have what its group never committed.
        // From a leader of its own group too, which it followed when the others were promoted.
        let HardState { left_term, led_term, .. } = self.hard_state;
        let differs = |there: BatchPlace, term: u64| {
            let timeline = timeline_of(there.term);
            let was_live = (left_term > 0 && timeline <= timeline_of(left_term))
                || (led_term > 0 && timeline == timeline_of(led_term));
            there.index <= committed || (timeline == timeline_of(term) && !was_live)
        };
        if let Some(there) = self.place(behind).filter(|there| there.term != behind_term) {
            let is_other_log = differs(there, behind_term);
            return Err(match is_other_log {
                true => Misfit::Diverged(behind),
                false => Misfit::SendFrom(committed + 1),
            });
        }
        let mut known = 0;
        for entry in entries {
            match self.place(entry.index) {
                None if entry.index < base => {}
                None => break,
                Some(there) if there == place_of(entry) => {}
                Some(there) if there.term != entry.term && !differs(there, entry.term) => break,
                Some(_) => return Err(Misfit::Diverged(entry.index)),
            }
            known += 1;
        }
        Ok(known)
    }

    /// A majority has this durably: what of it is durable here may be applied.
    pub(super) fn commit_upto(&mut self, index: u64) {
        let log = &mut self.raw.raft.raft_log;
        let index = index.min(log.last_index());
        log.commit_to(index);
    }

    /// Acknowledges what became durable, and answers what was asked.
    pub(super) fn answer_sources(&mut self, out: &mut Output) {
        let (durable, committed) = (self.durable, self.committed);
        let Some(recovery) = self.recovery.as_mut() else { return };
        recovery.is_cut = false;
        let mut answers = std::mem::take(&mut recovery.refusals);
        for source in &mut recovery.sources {
            let acknowledged = source.matched.min(durable);
            if !source.is_asking && acknowledged <= source.said {
                continue;
            }
            source.is_asking = false;
            source.said = acknowledged;
            answers.push(RaftMessage {
                msg_type: MessageType::MsgAppendResponse,
                from: self.options.id.0,
                to: source.from.0,
                index: acknowledged,
                reject_hint: source.matched,
                commit: committed,
                context: relayed::context(source.session),
                ..RaftMessage::default()
            });
        }
        for answer in answers {
            self.send_relayed(answer, out);
        }
    }

    /// The term is the one that this step makes durable.
    pub(super) fn send_relayed(&self, message: RaftMessage, out: &mut Output) {
        let message = RaftMessage { term: self.raw.raft.term, ..message };
        out.send.push((MemberId(message.to), crate::Message { inner: message }));
    }

    /// A recovery member that lost its log counts again when it has as much of the live group's log
    /// as each of the others had when this process first heard of it. What it acknowledged before,
    /// and a relay counted, was durable at one of those too: a majority is two.
    pub(super) fn counts_again_if_caught_up(&mut self, out: &mut Output) {
        let heard_all = self.peers.iter().all(|peer| self.heard_ends.contains_key(peer));
        if self.hard_state.may_vote || !self.hard_state.knows_term || !heard_all {
            return;
        }
        let upto = self.heard_ends.values().copied().max().unwrap_or(0);
        let recovery = self.recovery_mut();
        let matched = recovery.sources.iter().map(|source| source.matched);
        let matched = matched.chain(recovery.relay.as_ref().map(|relay| relay.matched)).max();
        if upto == 0 || matched.unwrap_or(0).min(self.durable) >= upto {
            self.allow_votes(out);
        }
    }

    pub(super) fn recovery_mut(&mut self) -> &mut RecoveryState {
        let seed = self.options.seed;
        self.recovery.get_or_insert_with(|| Box::new(RecoveryState::new(seed)))
    }

    /// The batches of a shipment that this member does not have, and the one that they follow in
    /// its log: what it would give to its log if it took the shipment. `None`: it would give none.
    #[must_use]
    pub fn new_shipped(&self, shipment: &Shipment) -> Option<(BatchPlace, Vec<Batch>)> {
        let Shipment { previous, batches, .. } = shipment;
        let mut behind = self.place(previous.index).filter(|place| place == previous)?;
        let mut batches = batches.iter().peekable();
        while let Some(batch) = batches.peek() {
            match self.place(batch.index) {
                Some(there) if there == batch.place() => behind = there,
                Some(_) | None => return Some((behind, batches.cloned().collect())),
            }
            batches.next();
        }
        None
    }

    /// A copy of this log is needed: the message that says so.
    pub(super) fn copy_offer(&self, to: MemberId, session: u64) -> RaftMessage {
        let base = self.raw.raft.store().table.base();
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (base.index.max(1), base.term.max(1));
        let mut message = RaftMessage {
            msg_type: MessageType::MsgSnapshot,
            from: self.options.id.0,
            to: to.0,
            context: relayed::context(session),
            ..RaftMessage::default()
        };
        message.set_snapshot(snapshot);
        message
    }
}

fn entry_of(batch: Batch) -> Entry {
    Entry {
        index: batch.index,
        term: batch.term,
        context: Bytes::copy_from_slice(&batch.lsn.0.to_le_bytes()),
        data: batch.payload,
        ..Entry::default()
    }
}

fn place_of(entry: &Entry) -> BatchPlace {
    let Entry { index, term, data, .. } = entry;
    let batch = Batch { index: *index, term: *term, lsn: lsn_of(entry), payload: data.clone() };
    batch.place()
}
