//! The order to return as a recovery group, as the driver of one member knows it: kept in the data
//! folder, said to each other member until it has returned too, and taken from one that has.
//!
//! An instance refuses if its tail was not looked at. When a majority has returned, what it has
//! behind the fork was never acknowledged, unless that was looked at in another log: so it is
//! ordered then to give up all of that. Else it and those that returned would wait for each other.
//!
//! A recovery member takes an order as well if its log ends with the switch that the order names:
//! its group handed over to one that went on without that. Of such an order a peer is known to have
//! returned by what its log has, and not by its mode.
//!
//! Not here: what an order does (the next start), whether a group has something to return from
//! (`region_part`). Invariants: an order is durable before the process ends for it; one that is
//! refused is taken again only when a majority has returned, whatever came in between; a log that
//! has the history of an order takes no such order.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towline_admin::catalogue::REGION_RETURN_ORDERED;
use towline_group::Mode;
use towline_link::Peer;
use towline_logging::log as say;
use towline_os::sync::Mutex;
use towline_types::{HistoryId, Lsn, Time};

use super::{Driver, MemberStand};
use crate::lifecycle::EndReason;
use crate::return_order::{self, KeptReturn, ReturnOrder, ReturnStage, TailEnd};

/// A peer that has not answered is asked again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// The others have so long to keep the order.
const OTHERS_MAX: Duration = Duration::from_secs(2);
/// The user of an order for a tail that was not looked at, and was never acknowledged.
const MAJORITY: &str = "a majority of this group, which has returned";

/// See the module.
pub(crate) struct ReturnOrders {
    /// Some peer is not known to have returned.
    owes: AtomicBool,
    state: Mutex<ReturnState>,
}

struct ReturnState {
    kept: Option<KeptReturn>,
    /// By peer: it is not known to have returned.
    owed: Vec<bool>,
    /// By peer: the history of the order with which it returned, as it said last; all zero: of
    /// none.
    returned: Vec<[u8; 16]>,
    said_at: Time,
}

impl ReturnState {
    /// What is said to the others. A member that returned had nothing behind the fork that was not
    /// looked at, and takes nothing of that any more. So when a majority has, of members that had
    /// lost nothing, nothing else there can have been acknowledged, in whichever log it is.
    fn order_for_others(&self) -> Option<ReturnOrder> {
        let KeptReturn { order, had_all, .. } = self.kept.clone()?;
        let others = self.returned.iter().filter(|history| **history == order.history).count();
        Some(match had_all && others + 1 > self.owed.len() / 2 {
            true => {
                let (tail, common) = (TailEnd::all(), Vec::new());
                ReturnOrder { tail, common, by: MAJORITY.to_owned(), ..order }
            }
            false => order,
        })
    }
}

/// Whether an order is the one that is kept here, or was refused here and says no more than then.
fn is_known(kept: &KeptReturn, order: &ReturnOrder) -> bool {
    let is_refused = matches!(kept.stage, ReturnStage::Refused(_));
    (kept.order.id == order.id && !is_refused) || kept.has_refused(order)
}

/// Whether a peer that is no member of a live group still has the history that is to be given up,
/// or has not said yet what its log has. One with an empty log has nothing.
fn has_void(stand: &MemberStand, order: &ReturnOrder) -> bool {
    let is_starting = stand.newest == [0; 16] && stand.last.1 > 0;
    let may_have_it = stand.newest == order.void || is_starting && stand.returned != order.history;
    order.void != [0; 16] && may_have_it
}

/// Whether the log of a peer has the history of an order: its newest one is that, or one of those
/// that began behind it in this log.
fn has_followed(begun: &[HistoryId], stand: &MemberStand, order: &ReturnOrder) -> bool {
    let at = |id: [u8; 16]| begun.iter().position(|begun| begun.0 == id);
    at(order.history).zip(at(stand.newest)).is_some_and(|(order, newest)| newest >= order)
}

impl ReturnOrders {
    /// As it is kept beside `file`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn beside(file: &Path, members: usize) -> io::Result<ReturnOrders> {
        let kept = return_order::kept(file.parent().unwrap_or(file))?;
        let owes =
            AtomicBool::new(kept.as_ref().is_some_and(|kept| kept.stage == ReturnStage::Done));
        let (owed, returned) = (vec![true; members], vec![[0; 16]; members]);
        let state = ReturnState { kept, owed, returned, said_at: Time::ZERO };
        Ok(ReturnOrders { owes, state: Mutex::new(state) })
    }
}

impl Driver {
    /// Keeps the order to return, durably. [`Driver::begins_return_with_others`] has it carried
    /// out.
    ///
    /// # Errors
    /// This member is of no live group, and its log does not end with the switch that the order
    /// names; its log has the history of the order; or the disk failed.
    pub fn order_return(&self, order: ReturnOrder) -> Result<(), String> {
        let mode = self.mode();
        if !self.is_to_return_by(mode, &order) {
            let why = "this instance is not one of a live group, nor of one whose switch came to \
                       nothing";
            return Err(why.to_owned());
        }
        if self.knows_history(HistoryId(order.history)) {
            return Err("the log of this instance has the history of the other group".to_owned());
        }
        let mut state = self.region.returning.state.lock();
        let in_recovery = mode == Mode::Recovery;
        let refused = state.kept.as_ref().map(KeptReturn::refused_before).unwrap_or_default();
        let kept = KeptReturn { order, in_recovery, refused, ..KeptReturn::default() };
        let written = return_order::keep(self.folder(), &kept);
        written.map_err(|error| format!("the order cannot be kept: {error}"))?;
        let fork = Lsn(kept.order.fork).to_string();
        let by = kept.order.by.clone();
        state.kept = Some(kept);
        drop(state);
        say(&REGION_RETURN_ORDERED, &[&fork, &by]);
        Ok(())
    }

    /// Whether an order is for a member in this mode: of a live group, or of one in recovery whose
    /// log ends with the switch that came to nothing. Another one follows, or has returned.
    fn is_to_return_by(&self, mode: Mode, order: &ReturnOrder) -> bool {
        let ends_with_switch =
            || order.void != [0; 16] && self.newest_begun() == Some(HistoryId(order.void));
        match mode {
            Mode::Voting => true,
            Mode::Recovery => ends_with_switch(),
            Mode::Promoting => false,
        }
    }

    /// The same, once the others that are connected have the order too: they would elect one that
    /// serves clients meanwhile.
    pub fn begins_return_with_others(&self) {
        let order = self.kept_return().map(|kept| kept.order);
        let this = self.this();
        let others: Vec<Peer> = (0..self.names().len()).filter(|peer| *peer != this).collect();
        self.ask_for_stands();
        if let Some(order) = &order {
            others.iter().for_each(|peer| self.say_return(*peer, order));
        }
        let has_it = |peer: &Peer| {
            let stands = self.stands();
            let stand = stands.get(*peer).and_then(Option::as_ref);
            !self.is_connected(*peer) || stand.is_some_and(|it| it.returns || it.mode != "voting")
        };
        self.wait_until(OTHERS_MAX, || others.iter().all(has_it));
        self.begins_return();
    }

    /// Whether the next start is to look at an order.
    pub(super) fn is_to_return(&self) -> bool {
        self.kept_return().is_some_and(|kept| kept.stage == ReturnStage::Ordered)
    }

    /// The process ends, so that the next start carries out the order that was kept.
    fn begins_return(&self) {
        let mut core = self.core.lock();
        self.ends(&mut core, EndReason::ChangesPart);
        drop(core);
        self.after();
    }

    /// The order that is kept here, if one is.
    pub fn kept_return(&self) -> Option<KeptReturn> {
        self.region.returning.state.lock().kept.clone()
    }

    /// A peer that has returned says so, and that this one is to.
    pub(super) fn takes_return(&self, order: ReturnOrder) {
        let known = self.kept_return();
        if known.is_some_and(|known| is_known(&known, &order))
            || !self.is_to_return_by(self.mode(), &order)
        {
            return;
        }
        match self.order_return(order) {
            Ok(()) => self.begins_return(),
            Err(why) => tracing::warn!(why, "an order to return was not taken"),
        }
    }

    /// Says the order to those that are not known to have returned.
    pub(super) fn say_return_again(&self) {
        if !self.region.returning.owes.load(Ordering::SeqCst) || self.mode() != Mode::Recovery {
            return;
        }
        let now = self.now();
        let mut state = self.region.returning.state.lock();
        if now.since(state.said_at) < AGAIN {
            return;
        }
        state.said_at = now;
        let this = self.this();
        let is_owed = |peer: &Peer| *peer != this && state.owed.get(*peer) == Some(&true);
        let owed: Vec<Peer> = (0..state.owed.len()).filter(is_owed).collect();
        let order = state.order_for_others();
        drop(state);
        let Some(order) = order.filter(|_| !owed.is_empty()) else {
            return self.region.returning.owes.store(false, Ordering::SeqCst);
        };
        owed.into_iter().for_each(|peer| self.say_return(peer, &order));
    }

    /// A connection with a peer is new: it hears the order before anything else, if it is not known
    /// to have returned.
    pub(super) fn say_return_first(&self, peer: Peer) {
        if !self.region.returning.owes.load(Ordering::SeqCst) || self.mode() != Mode::Recovery {
            return;
        }
        let state = self.region.returning.state.lock();
        let is_owed = state.owed.get(peer) == Some(&true);
        let order = state.order_for_others().filter(|_| is_owed);
        drop(state);
        if let Some(order) = order {
            self.say_return(peer, &order);
        }
    }

    /// A peer said where it stands.
    pub(super) fn notes_return(&self, peer: Peer, stand: &MemberStand) {
        let begun = self.begun();
        let mut state = self.region.returning.state.lock();
        let order = state.kept.as_ref().map(|kept| &kept.order);
        // Of a group that was live again since, one may vote that was away when it was no more.
        let votes =
            stand.mode == "voting" && !order.is_some_and(|it| has_followed(&begun, stand, it));
        let is_owed = votes || order.is_some_and(|it| has_void(stand, it));
        if let Some(owed) = state.owed.get_mut(peer) {
            *owed = is_owed;
        }
        if let Some(returned) = state.returned.get_mut(peer) {
            *returned = stand.returned;
        }
    }

    /// The history of the order with which this instance returned, while it is in recovery; all
    /// zero: of none, or its log lacked something then that the others counted on.
    pub(super) fn returned_for(&self, mode: Mode) -> [u8; 16] {
        let counts = |kept: &KeptReturn| kept.stage == ReturnStage::Done && kept.had_all;
        let kept = self.kept_return().filter(|kept| mode == Mode::Recovery && counts(kept));
        kept.map(|kept| kept.order.history).unwrap_or_default()
    }

    /// Whether this instance returned, and it is not known yet that the others that are connected,
    /// and a majority, did: until then it takes nothing of the live group, whose log would have
    /// them give up what they have without a look. An instance of a group that is live again awaits
    /// none: it must hear of the group that goes on without it the next time.
    pub(crate) fn awaits_returns(&self) -> bool {
        let owes = self.region.returning.owes.load(Ordering::SeqCst);
        if !owes || self.is_alone() || self.mode() == Mode::Voting {
            return false;
        }
        let state = self.region.returning.state.lock();
        let this = self.this();
        let others = (0..state.owed.len()).filter(|peer| *peer != this);
        let (owed, returned): (Vec<Peer>, Vec<Peer>) =
            others.partition(|peer| state.owed.get(*peer) == Some(&true));
        let majority = state.owed.len() / 2 + 1;
        drop(state);
        returned.len() + 1 < majority || owed.iter().any(|peer| self.is_connected(*peer))
    }
}

#[cfg(test)]
mod tests;
