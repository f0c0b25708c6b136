//! How a member changes its part in its group: a recovery group is promoted, or what the log says
//! makes another group live.
//!
//! *Unplanned*: each member marks itself on request, durably. From then on it takes nothing of
//! the live group, from outside or through a relay, and takes part in elections. Members that are
//! not marked give no vote, so the one that is elected has a marked majority behind it, and with
//! that all that was ever acknowledged by a majority: at least one member of that acknowledged it
//! before it was marked, has it, and votes for none that has less. Its first batches say that the
//! history has begun; the others learn it from the log.
//!
//! *Planned*: the live group decides a last batch that says so. Each member changes its part when
//! it applies that batch. What an old live group's log holds behind it is void: the first batches
//! of leaders that were elected before they knew that the last one is committed. They are of an
//! older timeline than what the new live group decides, and are cut off by that; where such a batch
//! was committed in the old group, the process restarts without knowing so.
//!
//! A member that lost its disk meanwhile is not marked. It gets its vote back, and its log says
//! that the other group is live: it gives its vote, and does not stand, for as one that is not
//! marked it would begin no history. One that is elected before it has applied that much restarts,
//! and what its log says is its mode then ([`Mode::at_start`]).
//!
//! In both cases terms begin anew, above all that the other group can have elected in
//! ([`crate::timeline`]).
//!
//! Not here: when a group is promoted; what is in the log. Invariants: a part is
//! durable before anything is said in it; a promotion's mark is taken back by nothing but the log;
//! what is committed stays, but for what is void behind a last batch.

use raft::eraftpb::{Message as RaftMessage, MessageType};
use towline_types::BatchPlace;

use super::recovery::RecoveryState;
use super::{HardState, Member, Output, Role};
use crate::mode::Mode;
use crate::timeline;

impl Member {
    /// An administrator promotes this member's group: it marks itself. `stands`: it is the one that
    /// asks for votes at once.
    pub(super) fn promote(&mut self, history: [u8; 16], stands: bool, out: &mut Output) {
        let is_unmarked = match self.mode() {
            Mode::Recovery => true,
            // It was away when the others became recovery members, or is in their timeline and was
            // blank when they were marked. Or they have begun already.
            Mode::Voting => {
                let is_elsewhere = !timeline::is_of(self.raw.raft.term, &history);
                (is_elsewhere || self.is_behind_other) && !self.hears_leader()
            }
            Mode::Promoting => false,
        };
        if is_unmarked {
            let heard = self.heard_terms.values().copied().max().unwrap_or(0);
            let newest = self.raw.raft.term.max(heard).max(self.taken);
            // Nothing that comes in the old timeline counts from here on: neither shipments nor a
            // relay's messages, nor answers to this one.
            self.end_recovery(out);
            // One that hears of it late joins what the others have begun.
            self.begin_timeline(match timeline::is_of(newest, &history) {
                true => newest,
                false => timeline::begun_behind(newest, &history),
            });
            let mode = Mode::Promoting;
            self.is_behind_other = false;
            self.hard_state = HardState { mode, promoted_to: history, ..self.hard_state };
            out.hard_state = Some(self.hard_state);
        }
        // What is said again deposes none that is at it.
        if stands && self.mode() == Mode::Promoting && !self.hears_leader() {
            self.stand_at_once();
        }
    }

    /// The log says, in the committed batch at `at`, which part this member has from there on.
    pub(super) fn becomes(
        &mut self,
        mode: Mode,
        history: [u8; 16],
        at: BatchPlace,
        out: &mut Output,
    ) {
        assert!(at.index <= self.committed, "what says so is committed");
        // What is past is followed by another one, unless the promotion was not marked here.
        self.is_behind_other = mode == Mode::Recovery && self.mode() == Mode::Voting;
        match (self.mode(), mode) {
            (Mode::Voting, Mode::Voting)
            | (Mode::Recovery, Mode::Recovery)
            | (_, Mode::Promoting) => return,
            (Mode::Promoting, Mode::Voting) => {}
            (Mode::Recovery, Mode::Voting) if self.is_past(at, &history) => return,
            (Mode::Voting | Mode::Promoting, Mode::Recovery) if self.is_past(at, &history) => {
                return;
            }
            (Mode::Recovery, Mode::Voting) => {
                // The others become so when they hear that it is committed.
                self.relay_says_commit(out);
                self.end_recovery(out);
                // All that apply this batch begin at the same term. In a history that a leader of
                // this group has begun, that term is behind them already.
                if !timeline::is_of(at.term, &history) {
                    self.begin_timeline(timeline::begun_behind(at.term, &history));
                }
            }
            (Mode::Voting | Mode::Promoting, Mode::Recovery) => self.leave_elections(at, out),
        }
        if at.index > self.hard_state.committed {
            // A start that forgot it could not say so to those that wait for it.
            (self.hard_state.committed, self.hard_state.committed_end) = (at.index, at.end);
        }
        self.is_behind_other = false;
        self.hard_state = HardState { mode, promoted_to: [0; 16], ..self.hard_state };
        out.hard_state = Some(self.hard_state);
    }

    /// Whether the history that began at `at` is over, as far as a member that applies it again, or
    /// late, knows by now: it stopped voting later than that, or its term is of a later one. In
    /// recovery that is the term of what comes from outside, unless it hears a leader.
    fn is_past(&self, at: BatchPlace, history: &[u8; 16]) -> bool {
        let left_term = match self.mode() {
            // Of this log: what was cut off with a return says nothing of what came since.
            Mode::Recovery => self.hard_state.last_live_term(),
            Mode::Voting | Mode::Promoting => 0,
        };
        if left_term > 0 && timeline::timeline_of(at.term) <= timeline::timeline_of(left_term) {
            return true;
        }
        let begun = match timeline::is_of(at.term, history) {
            true => at.term,
            false => timeline::begun_behind(at.term, history),
        };
        let raft = &self.raw.raft;
        let hears_leader =
            self.mode() == Mode::Recovery && self.peers.iter().any(|peer| peer.0 == raft.leader_id);
        let is_other = timeline::timeline_of(raft.term) != timeline::timeline_of(begun);
        !hears_leader && is_other && timeline::era_of(raft.term) >= timeline::era_of(begun)
    }

    /// It was a member of the live group until `at`.
    fn leave_elections(&mut self, at: BatchPlace, out: &mut Output) {
        let (committed, committed_end, left_term) = (at.index, at.end, at.term);
        let hard_state = HardState { committed, committed_end, ..self.hard_state };
        self.hard_state = hard_state.leaves(left_term);
        let has_void = self.has_committed_void(at);
        self.ends = self.role == Role::Leader || has_void;
        if self.ends {
            self.committed = at.index;
        }
        self.recovery = Some(Box::new(RecoveryState::new(self.options.seed)));
        if self.role == Role::Leader {
            // The others do not know yet that it is committed, and none says so later.
            self.peers.clone().iter().for_each(|peer| self.raw.raft.send_append(peer.0));
        } else if has_void {
            self.begin_again(out);
        } else {
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, 0);
        }
    }

    /// Whether a leader of the old live group committed something behind its last batch. What a new
    /// live group committed there is of another timeline.
    fn has_committed_void(&self, last: BatchPlace) -> bool {
        let next = last.index + 1;
        let is_old =
            |next: BatchPlace| timeline::timeline_of(next.term) == timeline::timeline_of(last.term);
        self.raw.raft.raft_log.committed >= next && self.place(next).is_some_and(is_old)
    }

    /// A former leader's last words have left; or it has committed what is void.
    pub(super) fn begin_again(&mut self, out: &mut Output) {
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, 0);
        self.is_over = true;
        out.begins_again = true;
    }

    /// It receives nothing of a live group any more.
    fn end_recovery(&mut self, out: &mut Output) {
        self.ends_relay(out);
        self.recovery = None;
    }

    fn begin_timeline(&mut self, term: u64) {
        let raft = &mut self.raw.raft;
        if term > raft.term {
            raft.become_follower(term, 0);
        } else {
            raft.leader_id = 0;
        }
    }

    /// The last batch before the timeline of this history: what a leader of that timeline goes on
    /// from. All zero: there is none, or it is not known any more.
    #[must_use]
    pub fn last_before(&self, history: &[u8; 16]) -> BatchPlace {
        let of_before = |place: &BatchPlace| !timeline::is_of(place.term, history);
        let newest = self.last().index;
        let base = self.raw.raft.store().table.base().index;
        let places = (base..=newest).rev().map_while(|index| self.place(index));
        places.into_iter().find(of_before).unwrap_or_default()
    }

    /// As a successor does that its leader asked to campaign.
    fn stand_at_once(&mut self) {
        assert!(!self.is_behind_other, "one that is marked begins a history");
        if self.hard_state.may_vote && !self.meeting.goes_on(self.now) && self.has_all_persisted() {
            self.leaves_taken_terms();
            let raft = &self.raw.raft;
            let (from, term) = (raft.id, raft.term);
            let now = RaftMessage {
                msg_type: MessageType::MsgTimeoutNow,
                from,
                to: from,
                term,
                ..RaftMessage::default()
            };
            // Refused only to what is no member.
            drop(self.raw.step(now));
        }
        // If not: it does so soon, as any member that hears no leader.
    }

    /// A member without others is elected in the moment in which it stands: then all of its log is
    /// on the disk. With others, their votes come after that.
    pub(super) fn may_be_elected_at_once(&self) -> bool {
        !self.peers.is_empty() || self.has_all_persisted()
    }

    /// Whether the library knows all of the log to be on the disk.
    fn has_all_persisted(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        log.persisted == log.last_index()
    }
}
