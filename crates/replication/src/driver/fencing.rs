//! A live group that is to serve no client ([`RegionFence`]), as the driver of one member knows it.
//!
//! A member that is fenced goes on in consensus: it votes, leads, and commits what was decided. It
//! lets no client in, and its queues decide nothing. Each member that has something says it to each
//! other one that votes, until that one has it too; on a new connection it comes first. So one that
//! is elected by a member that has it has heard of it before.
//!
//! Not here: the order of an operator (`towline_replica`), how it is found out that the group was
//! superseded (`region_part`). Invariants: no client is served here from the moment on at which
//! this member has a fence that counts, which is before it is durable; it is said to others only
//! when it is durable here.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_admin::catalogue::{
    REGION_FENCE_NOT_KEPT, REGION_FENCE_OVER, REGION_FENCED, REGION_SUPERSEDED,
};
use towline_group::Mode;
use towline_link::{Peer, Where};
use towline_logging::log as say;
use towline_os::sync::Mutex;
use towline_types::{HistoryId, Lsn, Time};

use super::{Driver, MemberStand};
use crate::fence::{
    BY_ITSELF, FenceMark, FenceOrder, NO_HISTORY, RegionFence, Supersession, newest_of,
};

/// A peer that has not answered hears it again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// Characters of the reason that clients get: a close frame must fit into 512 bytes.
const WHY_CHARACTERS_MAX: usize = 300;

/// See the module.
pub(crate) struct Fencing {
    /// Held by the thread that changes it, until what serves clients has heard.
    turn: Mutex<()>,
    /// A fence counts.
    is_on: AtomicBool,
    /// Some peer is not known to have what is kept.
    owes: AtomicBool,
    /// Clients are let in when the other region was heard.
    awaits_word: AtomicBool,
    state: Mutex<FencingState>,
}

struct FencingState {
    kept: RegionFence,
    /// Clients would be let in here.
    wants_clients: bool,
    owed: Vec<bool>,
    /// Of what is durable here; of a fence that is over also when that could not be kept.
    noted: FenceMark,
    /// By peer: it said that it has what is kept, durably, and that it was in no later term than
    /// this member then. Before it votes in one, the candidate hears of it.
    bound: Vec<bool>,
    said_at: Time,
}

impl FencingState {
    /// No peer is known to have what is kept from now on.
    fn keeps(&mut self, kept: RegionFence) {
        self.kept = kept;
        self.bound.fill(false);
    }
}

impl Fencing {
    /// As it is kept beside `file`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn beside(file: &Path, members: usize) -> io::Result<Fencing> {
        let kept = RegionFence::kept(file.parent().unwrap_or(file))?;
        let owes = AtomicBool::new(kept != RegionFence::default());
        let owed = vec![true; members];
        let state = FencingState {
            noted: kept.mark(),
            kept,
            wants_clients: false,
            bound: vec![false; members],
            owed,
            said_at: Time::ZERO,
        };
        let (turn, is_on) = (Mutex::default(), AtomicBool::new(false));
        let awaits_word = AtomicBool::new(false);
        Ok(Fencing { turn, is_on, owes, awaits_word, state: Mutex::new(state) })
    }
}

impl Driver {
    /// Whether this member is of a live group that is to serve no client.
    pub fn is_fenced(&self) -> bool {
        self.fencing.is_on.load(Ordering::SeqCst)
    }

    /// What is kept of it, whether or not it counts.
    pub fn kept_fence(&self) -> RegionFence {
        self.fencing.state.lock().kept.clone()
    }

    /// The fence that counts, if one does.
    pub fn fence(&self) -> Option<RegionFence> {
        self.is_fenced().then(|| self.kept_fence())
    }

    /// The fork at which this group was superseded, if it was.
    pub fn superseded(&self) -> Option<Supersession> {
        let (kept, begun) = (self.kept_fence(), self.begun());
        kept.superseded.filter(|it| self.is_fenced() && is_newest(&begun, it.of))
    }

    /// Why no client is served, for clients.
    pub fn fence_why(&self) -> String {
        let why = self.kept_fence().why(&self.begun());
        why.chars().take(WHY_CHARACTERS_MAX).collect()
    }

    /// The other group went on in a history that this log does not have.
    pub fn supersede(&self, superseded: Supersession) {
        self.joins_fence(RegionFence { superseded: Some(superseded), order: None });
    }

    /// An operator has this group stop, or go on.
    ///
    /// # Errors
    /// It cannot be kept: nothing was said to the others.
    pub fn order_fence(&self, order: FenceOrder) -> Result<(), String> {
        let newest = newest_of(&self.begun());
        if order.of == NO_HISTORY && newest != order.of {
            return Err("the first history of this log has begun".to_owned());
        }
        assert!(newest == order.of, "an order is of the history that goes on");
        match self.joins_fence(RegionFence { superseded: None, order: Some(order) }) {
            true => Ok(()),
            false => Err("it cannot be kept on the disk of this instance".to_owned()),
        }
    }

    /// A peer said what it has.
    pub(super) fn takes_fence(&self, fence: RegionFence) {
        self.joins_fence(fence);
    }

    /// Takes more of it. False: it could not be kept.
    fn joins_fence(&self, more: RegionFence) -> bool {
        let _turn = self.fencing.turn.lock();
        let (mode, begun) = (self.mode(), self.begun());
        if mode != Mode::Voting {
            return true;
        }
        let before = self.kept_fence();
        let now = before.clone().joined(more, &begun);
        if now == before {
            return true;
        }
        self.fencing.state.lock().keeps(now.clone());
        self.carry_out_fence(mode, &begun);
        let written = now.keep(self.folder());
        if let Err(error) = &written {
            say(&REGION_FENCE_NOT_KEPT, &[&error.to_string()]);
        }
        if written.is_ok() {
            self.fencing.state.lock().noted = now.mark();
            self.owe_fence();
            self.say_fence_at(self.now());
        }
        written.is_ok()
    }

    /// The part of this member, or the newest history of its log, may be another one.
    pub(super) fn settle_fence(&self) {
        let _turn = self.fencing.turn.lock();
        let (mode, begun) = (self.mode(), self.begun());
        let before = self.kept_fence();
        let now = match mode {
            Mode::Voting => before.clone().joined(RegionFence::default(), &begun),
            Mode::Recovery | Mode::Promoting => before.clone(),
        };
        if now != before {
            self.fencing.state.lock().keeps(now.clone());
            if let Err(error) = now.keep(self.folder()) {
                // What is kept is over, and known as that.
                tracing::warn!(%error, "a fence that is over is kept");
            }
            self.fencing.state.lock().noted = now.mark();
        }
        self.carry_out_fence(mode, &begun);
    }

    /// What serves clients hears of it. With the turn.
    fn carry_out_fence(&self, mode: Mode, begun: &[HistoryId]) {
        let kept = self.kept_fence();
        let is_on = mode == Mode::Voting && kept.is_on(begun);
        if is_on {
            // It is set by `lets_clients_in`, which looks at the same.
            if *self.place.borrow() == Where::Here {
                self.place.send_replace(Where::NoActive);
            }
            if let Some(active) = self.active() {
                active.fence(&self.fence_why());
            }
        }
        // Last: a caller that reads it as fenced is served no more.
        let was_on = self.fencing.is_on.swap(is_on, Ordering::SeqCst);
        match (was_on, is_on) {
            (false, true) => self.says_fence(&kept, begun),
            (true, false) => {
                say(&REGION_FENCE_OVER, &[]);
                // One that became a recovery member has another reason to serve no client.
                if let Some(active) = self.active().filter(|_| mode == Mode::Voting) {
                    active.lift_fence();
                    if self.fencing.state.lock().wants_clients {
                        self.place.send_replace(Where::Here);
                    }
                }
            }
            (true, true) | (false, false) => {}
        }
        self.turned.notify_all();
        self.changed.notify_all();
    }

    fn says_fence(&self, kept: &RegionFence, begun: &[HistoryId]) {
        match (&kept.superseded, kept.order_in_force(begun)) {
            (Some(it), _) if kept.is_superseded(begun) => {
                let history = HistoryId(it.fork.history).to_string();
                say(
                    &REGION_SUPERSEDED,
                    &[&it.fork.other, &history, &Lsn(it.fork.fork).to_string()],
                );
            }
            // It says so with what it heard.
            (_, Some(FenceOrder { by, .. })) if by == BY_ITSELF => {}
            (_, Some(FenceOrder { by, reason, .. })) => {
                let reason = if reason.is_empty() { "no reason was given" } else { reason };
                say(&REGION_FENCED, &[by, reason]);
            }
            (_, None) => {}
        }
    }

    /// Clients are let in here, from now on or again, unless this group is fenced.
    pub fn lets_clients_in(&self) {
        assert!(self.active.get().is_some(), "clients are let in by what serves them");
        let _turn = self.fencing.turn.lock();
        self.fencing.state.lock().wants_clients = true;
        if !self.is_fenced() {
            self.place.send_replace(Where::Here);
        }
    }

    /// Clients are let in here when the other region was heard, or does not answer: by
    /// [`Driver::lets_clients_in`] of the one that hears it.
    pub fn lets_clients_in_when_heard(&self) {
        self.fencing.awaits_word.store(true, Ordering::SeqCst);
    }

    /// Whether that is so; it is asked for once.
    pub(crate) fn takes_wait_for_word(&self) -> bool {
        self.fencing.awaits_word.swap(false, Ordering::SeqCst)
    }

    /// Clients are let in no more for the time being. Those that are here are closed by the caller.
    pub fn lets_no_client_in(&self) {
        let _turn = self.fencing.turn.lock();
        self.fencing.state.lock().wants_clients = false;
        self.place.send_replace(Where::NoActive);
    }

    /// This instance became active: a fence that was there before is its too.
    pub(super) fn fences_active(&self) {
        let _turn = self.fencing.turn.lock();
        if let (true, Some(active)) = (self.is_fenced(), self.active()) {
            active.fence(&self.fence_why());
        }
    }

    /// Whether this instance serves no client because of a fence, and nothing that was decided
    /// waits for the log or for the others. Of the active one: nor does another one serve any, now
    /// or later.
    pub fn is_still(&self) -> bool {
        self.is_fenced()
            && match self.active() {
                Some(active) => {
                    self.binds_majority()
                        && active.is_still()
                        && self.committed_end() >= self.log().tail()
                }
                None => !self.leads(),
            }
    }

    /// Whether a majority has the fence, and this member leads it: the fence of one that was cut
    /// off binds no other instance.
    fn binds_majority(&self) -> bool {
        let state = self.fencing.state.lock();
        let peers = state.bound.iter().filter(|is_bound| **is_bound).count();
        let has_it = state.noted == state.kept.mark() && peers + 1 > state.bound.len() / 2;
        drop(state);
        has_it && self.leads()
    }

    /// What is durable here, for others to count on.
    pub(super) fn fence_mark(&self) -> FenceMark {
        self.fencing.state.lock().noted
    }

    fn owe_fence(&self) {
        self.fencing.state.lock().owed.fill(true);
        self.fencing.owes.store(true, Ordering::SeqCst);
    }

    /// A peer said what it has, its mode, and its term.
    pub(super) fn notes_fence(&self, peer: Peer, stand: &MemberStand) {
        let term = self.look(|core| core.member.hard_state().term);
        let is_voting = stand.mode == "voting";
        let mut state = self.fencing.state.lock();
        let has_it = stand.fence == state.kept.mark();
        let is_bound = is_voting && has_it && stand.term <= term;
        let is_owed = is_voting && !is_bound;
        if let Some(owed) = state.owed.get_mut(peer) {
            *owed = is_owed;
        }
        if let Some(bound) = state.bound.get_mut(peer) {
            *bound = is_bound;
        }
        drop(state);
        if is_owed {
            self.fencing.owes.store(true, Ordering::SeqCst);
        }
    }

    /// A connection with a peer is new: it hears of a fence before anything else.
    pub(super) fn say_fence_first(&self, peer: Peer) {
        let mut state = self.fencing.state.lock();
        if state.kept == RegionFence::default() {
            return;
        }
        if let Some(owed) = state.owed.get_mut(peer) {
            *owed = true;
        }
        let kept = state.kept.clone();
        drop(state);
        self.fencing.owes.store(true, Ordering::SeqCst);
        if self.mode() == Mode::Voting {
            self.say_fence(peer, &kept);
        }
    }

    /// Says what is kept to those that are not known to have it.
    pub(super) fn say_fence_again(&self) {
        if !self.fencing.owes.load(Ordering::SeqCst) || self.mode() != Mode::Voting {
            return;
        }
        let now = self.now();
        if now.since(self.fencing.state.lock().said_at) >= AGAIN {
            self.say_fence_at(now);
        }
    }

    fn say_fence_at(&self, now: Time) {
        let this = self.this();
        let mut state = self.fencing.state.lock();
        state.said_at = now;
        let is_owed = |peer: &Peer| *peer != this && state.owed.get(*peer) == Some(&true);
        let owed: Vec<Peer> = (0..state.owed.len()).filter(is_owed).collect();
        let kept = state.kept.clone();
        drop(state);
        if owed.is_empty() || kept == RegionFence::default() {
            return self.fencing.owes.store(false, Ordering::SeqCst);
        }
        owed.into_iter().for_each(|peer| self.say_fence(peer, &kept));
    }
}

fn is_newest(begun: &[HistoryId], of: [u8; 16]) -> bool {
    begun.last().is_some_and(|newest| newest.0 == of)
}

#[cfg(test)]
mod tests;
