//! Changes of roles, as the driver of one member knows them: what a batch that was applied says of
//! the part of this group, and the mark for a promotion.
//!
//! A promotion is said to each of the other members until it has answered, by every instance that
//! was marked itself: also one that did not run takes nothing of the old live group then. For some
//! minutes, and not by one that was started since: days later the live group of that time may have
//! come back, or the roles have changed twice, and no promotion is expected any more. Its operator
//! orders it again.
//!
//! Not here: the order of an operator, and what it waits for (`towline_replica`); what a member
//! does in each part (`towline_group`). Invariants: the member hears of a history before a later
//! batch is applied; what was marked is durable before it is answered; no member is marked for a
//! history that is known here to be over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towline_admin::catalogue::{REGION_FOLLOWS_NOW, REGION_LIVE_NOW, REGION_MARKED};
use towline_group::{HardState, Input, Mode, Role};
use towline_link::{FrameBody, Peer, Where};
use towline_logging::log as say;
use towline_os::sync::Mutex;
use towline_types::limits::HISTORY_CAUSE_BYTES_MAX;
use towline_types::{BatchPlace, HistoryId, Lsn, Time};

use super::heard_live::{HeardLive, LiveSync, ToldLive};
use super::{Core, Driver};
use crate::fence::{FenceMark, RegionFence};
use crate::frames::KIND_ROLE;
use crate::lifecycle::{EndReason, Lifecycle};
use crate::return_order::ReturnOrder;
use crate::said_times::SaidTime;

/// What a peer has not answered is said again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// A promotion is said to others for so long.
const SAID_MAX: Duration = Duration::from_secs(600);
/// Histories that are known to have begun, the newest.
const BEGUN_MAX: usize = 1_024;

/// The promotion that this instance was marked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotionOrder {
    /// The history that begins.
    pub history: HistoryId,
    /// Why, and the user that ordered it: it is in the history then.
    pub cause: String,
}

/// Where a member stands, as it answers another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct MemberStand {
    /// `voting`, `recovery` or `promoting`.
    pub mode: String,
    /// The history that it is marked for; all zero: for none.
    pub marked_for: [u8; 16],
    /// Its newest term.
    pub term: u64,
    /// Term and index of the last batch of its log.
    pub last: (u64, u64),
    /// End of that batch.
    pub last_end: u64,
    /// Whether it gives votes.
    pub may_vote: bool,
    /// Whether it serves clients.
    pub serves: bool,
    /// Whether the live group ships to it now.
    #[serde(default)]
    pub hears_live: bool,
    /// An order to return is kept, and its next start looks at it.
    #[serde(default)]
    pub returns: bool,
    /// It is in recovery since it carried out an order to return, which named this history; all
    /// zero: it is not. One that lost its disk says none.
    #[serde(default)]
    pub returned: [u8; 16],
    /// What it heard of the live group.
    pub live: HeardLive,
    /// The newest history that has begun in its log, as applied; all zero: none.
    pub newest: [u8; 16],
    /// What another instance, to which the live group shipped, reported to it of that; `None`:
    /// none did, or it is of an older version.
    #[serde(default)]
    pub told: Option<ToldLive>,
    /// What it has of a fence.
    pub fence: FenceMark,
    /// Whether it serves no client because of that, and nothing that was decided waits.
    pub is_still: bool,
}

impl MemberStand {
    /// Whether it takes part in the promotion to this history, or in what came of it: one that
    /// votes has learned it from the log. One that was away since this group was live before votes
    /// too, and knows of none.
    #[must_use]
    pub fn has_heard(&self, history: HistoryId) -> bool {
        let learned = self.mode == "voting" && self.newest == history.0;
        self.marked_for == history.0 || learned
    }
}

/// What members say to each other about roles, as JSON. A kind that is not known is not answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", tag = "say")]
enum RoleFrame {
    /// Where do you stand?
    Ask { question: u64 },
    /// Mark yourself. `behind`: the newest history that the sender knows to have begun; all zero:
    /// none.
    Promote {
        question: u64,
        history: [u8; 16],
        #[serde(default)]
        behind: [u8; 16],
        cause: String,
        stands: bool,
    },
    /// I have returned as one of a recovery group: so are you to.
    Return { question: u64, order: ReturnOrder },
    /// This group is to serve no client, or again: what is known of that here.
    Fence { question: u64, fence: RegionFence },
    /// The answer to any of them.
    Stand { question: u64, stand: MemberStand },
}

/// See the module.
pub(crate) struct RoleOrders {
    /// Some peer has not answered yet.
    owes: AtomicBool,
    state: Mutex<RoleState>,
}

struct RoleState {
    order: Option<PromotionOrder>,
    /// By peer: it has not answered the order.
    owed: Vec<bool>,
    said_at: Time,
    /// When this process was marked.
    ordered_at: Time,
    /// The newest that began, as far as is known here, in order.
    begun: Vec<HistoryId>,
    live: (Lsn, SaidTime),
    live_is_still: bool,
    live_still_at: Time,
    sync: Option<(LiveSync, SaidTime)>,
    /// Number of the newest question, and the answers to it by peer.
    question: u64,
    answers: Vec<Option<MemberStand>>,
}

impl RoleState {
    /// What a live group said of an earlier history counts no more: two changes of roles later it
    /// was called the end of a log that had long gone on.
    fn forgets_live(&mut self) {
        (self.live, self.live_is_still) = (Default::default(), false);
        (self.live_still_at, self.sync) = (Time::ZERO, None);
    }
}

impl RoleOrders {
    /// One that starts with a mark takes part in its promotion, and says it to none.
    pub(crate) fn new(kept: &HardState, members: usize) -> RoleOrders {
        let order = (kept.mode == Mode::Promoting).then(|| PromotionOrder {
            history: HistoryId(kept.promoted_to),
            cause: "a fail-over was ordered".to_owned(),
        });
        let owes = AtomicBool::new(false);
        let state = RoleState {
            order,
            owed: vec![true; members],
            said_at: Time::ZERO,
            ordered_at: Time::ZERO,
            begun: Vec::new(),
            live: (Lsn::ZERO, SaidTime::default()),
            live_is_still: false,
            live_still_at: Time::ZERO,
            sync: None,
            question: 0,
            answers: vec![None; members],
        };
        RoleOrders { owes, state: Mutex::new(state) }
    }
}

impl Driver {
    /// These histories have begun in this log, from the oldest to the newest: said before anything
    /// is applied. The newest may be said again, when a start marks its part once more.
    pub fn histories_begun(&self, ids: impl Iterator<Item = HistoryId>) {
        let mut role = self.role.state.lock();
        for id in ids {
            // Twice, it would be taken for one that another has followed.
            if !role.begun.contains(&id) {
                if !role.begun.is_empty() {
                    role.forgets_live();
                    self.told_live.forget();
                }
                role.begun.push(id);
            }
        }
        let over = role.begun.len().saturating_sub(BEGUN_MAX);
        role.begun.drain(..over);
        drop(role);
        self.settle_fence();
    }

    /// The newest histories that have begun in this log, in order.
    pub(super) fn begun(&self) -> Vec<HistoryId> {
        self.role.state.lock().begun.clone()
    }

    /// The newest of them.
    pub fn newest_begun(&self) -> Option<HistoryId> {
        self.role.state.lock().begun.last().copied()
    }

    /// The batch at `at` is applied, and with it a history begins in which this group is live
    /// (`lives`), or not. To be called before a later batch is applied. False: none may be.
    ///
    /// One that follows does not become live in a history of which the live group has said that
    /// another one went on from it: that one is on its way, and this group would serve beside it.
    pub fn becomes(&self, lives: bool, history: HistoryId, at: BatchPlace) -> bool {
        let mode = if lives { Mode::Voting } else { Mode::Recovery };
        let changes_part = self.region.changes_part();
        let mut core = self.core.lock();
        let before = core.member.mode();
        let is_past = lives && before == Mode::Recovery && self.region.is_over(history);
        if !is_past {
            self.run(&mut core, Input::Become { mode, history: history.0, at });
        }
        let after = core.member.mode();
        let is_over = after == Mode::Recovery && core.member.role() == Role::Leader;
        let goes_on = core.lifecycle.goes_on() && !(is_over && before != Mode::Recovery);
        drop(core);
        if lives && after == Mode::Voting {
            let begun = self.begun();
            self.region.follows_no_more(|id| id == history || begun.contains(&id));
        }
        drop(changes_part);
        match (before == after, after) {
            (true, _) | (_, Mode::Promoting) => {}
            (false, Mode::Voting) => say(&REGION_LIVE_NOW, &[&history.to_string()]),
            (false, Mode::Recovery) => say(&REGION_FOLLOWS_NOW, &[&history.to_string()]),
        }
        self.histories_begun(std::iter::once(history));
        let mut role = self.role.state.lock();
        if role.order.as_ref().is_some_and(|order| order.history != history) {
            role.order = None;
        }
        drop(role);
        self.after();
        goes_on
    }

    /// The member restarts, as a recovery member.
    pub(super) fn begins_again(&self, core: &mut Core) {
        self.ends(core, EndReason::ChangesPart);
    }

    /// Whether the member ended at its start, before anything could hear of that.
    pub(super) fn is_over(&self) -> bool {
        self.look(|core| core.lifecycle == Lifecycle::Ended)
    }

    /// The history that this instance is marked for, and that it begins when it leads.
    pub fn marked_for(&self) -> Option<HistoryId> {
        let kept = self.look(|core| core.member.hard_state());
        (kept.mode == Mode::Promoting).then_some(HistoryId(kept.promoted_to))
    }

    /// The order by which this instance was marked, if it is known to this process.
    pub fn promotion_order(&self) -> Option<PromotionOrder> {
        self.role.state.lock().order.clone()
    }

    /// The last batch of this log before the timeline of a history: behind it that history parts
    /// from the one before. On a leader of that timeline.
    pub fn last_before(&self, history: HistoryId) -> BatchPlace {
        self.look(|core| core.member.last_before(&history.0))
    }

    /// Marks this instance, durably. `stands`: it asks for votes at once. False: it is of another
    /// part, and stays in it.
    pub fn mark(&self, order: PromotionOrder, stands: bool) -> bool {
        let mut role = self.role.state.lock();
        let is_over = role.begun.split_last().is_some_and(|(newest, older)| {
            *newest != order.history && older.contains(&order.history)
        });
        if is_over {
            return false;
        }
        let was = self.marked_for();
        let history = order.history.0;
        // Under the lock: one that is elected at once asks for the cause.
        let is_new = role.order.as_ref().is_none_or(|known| known.history != order.history);
        let before = is_new.then(|| role.order.replace(order.clone()));
        self.step(Input::Promote { history, stands });
        let is_marked = self.marked_for().is_some_and(|marked| marked.0 == history);
        if let Some(before) = before {
            if is_marked {
                role.owed.fill(true);
                role.ordered_at = self.now();
                self.role.owes.store(true, Ordering::SeqCst);
            } else {
                role.order = before;
            }
        }
        drop(role);
        if is_marked && was != Some(HistoryId(history)) {
            say(&REGION_MARKED, &[&order.history.to_string(), &order.cause]);
        }
        is_marked
    }

    /// Says what was ordered to those that have not answered.
    pub(super) fn say_roles_again(&self) {
        self.say_promotion_again();
        self.say_return_again();
        self.say_fence_again();
    }

    /// Says the promotion to those that have not answered.
    fn say_promotion_again(&self) {
        if self.role.owes.load(Ordering::SeqCst) {
            self.say_promotion_at(self.now());
        }
    }

    fn say_promotion_at(&self, now: Time) {
        let mut role = self.role.state.lock();
        if now.since(role.said_at) < AGAIN {
            return;
        }
        role.said_at = now;
        let this = self.this();
        let owed: Vec<Peer> = (0..role.owed.len())
            .filter(|peer| *peer != this && role.owed.get(*peer) == Some(&true))
            .collect();
        let is_over = owed.is_empty() || now.since(role.ordered_at) > SAID_MAX;
        let Some(order) = role.order.clone().filter(|_| !is_over) else {
            self.role.owes.store(false, Ordering::SeqCst);
            return;
        };
        drop(role);
        owed.into_iter().for_each(|peer| self.say_promotion(peer, &order, false));
    }

    /// Asks a peer to mark itself. What is lost is said again.
    pub fn say_promotion(&self, peer: Peer, order: &PromotionOrder, stands: bool) {
        let role = self.role.state.lock();
        let question = role.question;
        let behind = role.begun.last().map_or([0; 16], |newest| newest.0);
        drop(role);
        let (history, cause) = (order.history.0, order.cause.clone());
        self.say_of_roles(peer, &RoleFrame::Promote { question, history, behind, cause, stands });
    }

    /// Orders a peer to return. What is lost is said again.
    pub(super) fn say_return(&self, peer: Peer, order: &ReturnOrder) {
        let question = self.role.state.lock().question;
        self.say_of_roles(peer, &RoleFrame::Return { question, order: order.clone() });
    }

    /// Says to a peer what is known here of a fence. What is lost is said again.
    pub(super) fn say_fence(&self, peer: Peer, fence: &RegionFence) {
        let question = self.role.state.lock().question;
        self.say_of_roles(peer, &RoleFrame::Fence { question, fence: fence.clone() });
    }

    /// Whether a history has begun in this log, as far as it is applied.
    pub fn knows_history(&self, history: HistoryId) -> bool {
        self.role.state.lock().begun.contains(&history)
    }

    /// Asks all others where they stand; what they answer is in [`Driver::stands`].
    pub fn ask_for_stands(&self) {
        let mut role = self.role.state.lock();
        role.question += 1;
        role.answers.fill(None);
        let question = role.question;
        drop(role);
        let this = self.this();
        for peer in (0..self.names().len()).filter(|peer| *peer != this) {
            self.say_of_roles(peer, &RoleFrame::Ask { question });
        }
    }

    /// Where each member stands: this one now, the others as they answered since
    /// [`Driver::ask_for_stands`].
    pub fn stands(&self) -> Vec<Option<MemberStand>> {
        let mut stands = self.role.state.lock().answers.clone();
        if let Some(own) = stands.get_mut(self.this()) {
            *own = Some(self.stand());
        }
        stands
    }

    /// The live group said how far it is; `said`: and whether it is fenced, so that this is the end
    /// of its log, and when. `None`: with its log, which may have waited for any time; what it said
    /// beside that counts while its log is the same.
    pub(crate) fn heard_live(&self, committed: Lsn, said: Option<(bool, SaidTime)>) {
        let now = self.now();
        let mut role = self.role.state.lock();
        let (known, before) = role.live;
        let was_still = role.live_is_still && committed <= known;
        // What goes on behind the end that was said was committed since that was said.
        let is_news = committed > known || before.earliest.is_none();
        let of_log = if is_news { SaidTime { latest: now, ..before } } else { before };
        let (is_still, at) = said.unwrap_or((was_still, of_log));
        if is_still && !role.live_is_still {
            role.live_still_at = at.oldest();
        }
        role.live_is_still = is_still;
        role.live = (committed.max(known), at);
    }

    /// The live group said at a time whether this one has all that it answered.
    pub(crate) fn heard_sync(&self, sync: LiveSync, at: SaidTime) {
        self.role.state.lock().sync = Some((sync, at));
    }

    /// What the live group said last of itself to this process.
    pub fn live_heard(&self) -> HeardLive {
        let role = self.role.state.lock();
        let ((live, heard_at), is_still, said) = (role.live, role.live_is_still, role.sync);
        let still_at = role.live_still_at;
        drop(role);
        let now = self.now();
        let ms = |at: Time| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        // Nothing is called younger than it is.
        let most_ms =
            |at: SaidTime| at.earliest.map(|at| now.0.saturating_sub(at.0).div_ceil(1_000));
        let (sync, said_at) = said.unzip();
        HeardLive {
            committed: live.0,
            age_ms: ms(heard_at.latest),
            age_most_ms: most_ms(heard_at),
            is_still,
            still_ms: if is_still { ms(still_at) } else { 0 },
            sync: sync.unwrap_or_default(),
            sync_age_ms: said_at.map(|at| ms(at.latest)),
            sync_age_most_ms: said_at.and_then(most_ms),
        }
    }

    pub(super) fn stand(&self) -> MemberStand {
        // Before its term: what it votes in a later one is said behind that.
        let fence = self.fence_mark();
        let (kept, last) = self.look(|core| (core.member.hard_state(), core.member.last()));
        let newest = self.role.state.lock().begun.last().map(|newest| newest.0).unwrap_or_default();
        let mode = match kept.mode {
            Mode::Voting => "voting",
            Mode::Recovery => "recovery",
            Mode::Promoting => "promoting",
        };
        // A guard of it within the value below would be held while that waits for other locks.
        let serves = *self.place.borrow() == Where::Here;
        MemberStand {
            mode: mode.to_owned(),
            marked_for: kept.promoted_to,
            term: kept.term,
            last: (last.term, last.index),
            last_end: last.end.0,
            may_vote: kept.may_vote,
            serves,
            hears_live: self.relays(),
            returns: self.is_to_return(),
            returned: self.returned_for(kept.mode),
            newest,
            told: self.told_live(),
            fence,
            is_still: self.is_still(),
            live: self.live_heard(),
        }
    }

    fn say_of_roles(&self, peer: Peer, frame: &RoleFrame) {
        let Some(links) = self.links() else { return };
        let Ok(head) = serde_json::to_vec(frame) else { return };
        // What is lost is asked again.
        links.send(peer, KIND_ROLE, true, FrameBody { head, parts: Vec::new() });
    }

    /// A peer said something about roles.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn takes_role_frame(&self, peer: Peer, body: &Bytes) -> Result<(), String> {
        let frame = serde_json::from_slice(body);
        match frame.map_err(|error| format!("what it says of roles: {error}"))? {
            RoleFrame::Ask { question } => self.answers_stand(peer, question),
            RoleFrame::Promote { cause, .. } if cause.len() > HISTORY_CAUSE_BYTES_MAX => {
                return Err("the cause of a promotion is too long".to_owned());
            }
            RoleFrame::Promote { question, history, behind, cause, stands } => {
                let order = PromotionOrder { history: HistoryId(history), cause };
                if self.is_newest_begun(HistoryId(behind)) {
                    self.mark(order, stands);
                }
                self.answers_stand(peer, question);
            }
            RoleFrame::Return { question, order } => {
                self.takes_return(order);
                self.answers_stand(peer, question);
            }
            RoleFrame::Fence { question, fence } => {
                self.takes_fence(fence);
                self.answers_stand(peer, question);
            }
            RoleFrame::Stand { question, stand } => {
                self.notes_fence(peer, &stand);
                self.notes_return(peer, &stand);
                self.takes_stand(peer, question, stand);
            }
        }
        Ok(())
    }

    /// False: it is known here that roles have changed since that history. The order of one that
    /// knows no more than that is of another time.
    fn is_newest_begun(&self, history: HistoryId) -> bool {
        let role = self.role.state.lock();
        role.begun.split_last().is_none_or(|(_, older)| !older.contains(&history))
    }

    fn answers_stand(&self, peer: Peer, question: u64) {
        let stand = self.stand();
        self.say_of_roles(peer, &RoleFrame::Stand { question, stand });
    }

    fn takes_stand(&self, peer: Peer, question: u64, stand: MemberStand) {
        let mut role = self.role.state.lock();
        let has_heard = match &role.order {
            Some(order) => stand.has_heard(order.history),
            None => false,
        };
        if let Some(owed) = role.owed.get_mut(peer).filter(|_| has_heard) {
            *owed = false;
        }
        if question == role.question
            && let Some(answer) = role.answers.get_mut(peer)
        {
            *answer = Some(stand);
        }
        drop(role);
        // One that waits for answers looks.
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
