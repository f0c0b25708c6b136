//! Operators that change roles: a planned switch, a fail-over because a region is lost or cut off,
//! the return of an old live group, with an export or without, or with empty folders when its log
//! cannot be cut back.
//!
//! Not here: how that is done (`towline_replica`); each order runs in the process of its instance,
//! and ends with it. Invariants: an operator empties only folders of a group that another one has
//! taken over from, when its return was refused; what is decided here is drawn from the run's dice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towline_config::{FirstRole, GroupConfig};
use towline_group::Mode;
use towline_os::simulated::fs::FileSystem;
use towline_replica::failover::{self, FailoverEnd};
use towline_replica::region_switch::{self, SwitchEnd};
use towline_replica::{OpenReplica, returning};
use towline_replication::region_part::RegionPart;
use towline_types::{ChangeCause, ChangeKind, HistoryId};

use super::machines::NAMES;
use super::observer::EMPTY_IT;
use super::wires::region_of;
use super::{GROUPS, Regions, RegionsEvent, RunStage};
use crate::trace::{self, now_us};

/// A group that lost its live one is promoted after this, at most.
const PROMOTES_US: u64 = 2_000_000;
/// A region that is lost stays off for so long, at most.
const LOST_US: u64 = 8_000_000;
/// An order may take so long.
const ORDER_MAX_MS: u64 = 6_000;
/// The last switch of a run.
const LAST_SWITCH: Duration = Duration::from_secs(20);
/// A switch is disturbed within this.
const DISTURBED_US: u64 = 1_500_000;

/// What orders leave for the run.
#[derive(Default)]
pub(super) struct OrderDesk {
    happened: Mutex<BTreeMap<&'static str, u64>>,
    /// Regions with folders that must be emptied.
    to_empty: Mutex<Vec<usize>>,
}

impl OrderDesk {
    fn count(&self, what: &'static str) {
        *self.happened.lock().entry(what).or_default() += 1;
    }

    pub(super) fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.happened.lock().clone()
    }
}

/// What an order is given.
struct OrderParts {
    opened: Arc<OpenReplica>,
    part: Arc<RegionPart>,
    group: GroupConfig,
    desk: Arc<OrderDesk>,
    most: Duration,
}

fn said(what: &str) {
    trace::write(now_us(), format_args!("{what}"));
}

fn cause(kind: ChangeKind, group: &GroupConfig) -> ChangeCause {
    ChangeCause { kind, by: "sim".to_owned(), instance: group.instance.clone() }
}

/// Orders a switch, and steps down behind it.
fn switch(parts: &OrderParts) {
    let OrderParts { opened, part, group, desk, most } = parts;
    match region_switch::switch(opened, part, group, (&cause(ChangeKind::Switch, group), *most)) {
        SwitchEnd::Refused(why) | SwitchEnd::TakenBack(_, why) => {
            said(&format!("switch refused: {why}"));
            desk.count("switches refused, or taken back");
        }
        SwitchEnd::Done(history, course) => {
            said(&format!("switch done: {history}, {course:?}"));
            desk.count("switches");
            region_switch::step_down(opened, history);
        }
        SwitchEnd::InDoubt(history, _, why) => {
            said(&format!("switch in doubt: {why}"));
            desk.count("switches in doubt");
            region_switch::step_down(opened, history);
        }
    }
}

fn fail_over(parts: &OrderParts, force: bool) {
    let OrderParts { opened, group, desk, most, .. } = parts;
    match failover::fail_over(opened, group, "sim", (*most, force)) {
        FailoverEnd::Done(course) => {
            said(&format!("fail-over done: {course:?}"));
            desk.count("fail-overs");
        }
        FailoverEnd::Refused(why) | FailoverEnd::InDoubt(_, why) => {
            said(&format!("fail-over: {why}"));
            desk.count("fail-overs refused, or late");
        }
    }
}

fn rejoin(parts: &OrderParts, region: usize) {
    let OrderParts { opened, part, desk, .. } = parts;
    let id = towline_process::random::bytes();
    match returning::order(opened, part, true, ("sim", id)) {
        Ok(order) => {
            said(&format!("return ordered: {order:?}"));
            desk.count("returns ordered");
            opened.driver.begins_return_with_others();
        }
        Err(why) => {
            said(&format!("return refused: {why}"));
            if why.contains(EMPTY_IT) {
                desk.to_empty.lock().push(region);
            }
        }
    }
}

impl Regions {
    fn longest(&mut self) -> Duration {
        Duration::from_millis(self.dice.between(200, ORDER_MAX_MS))
    }

    fn start_order(
        &mut self,
        end: usize,
        name: &str,
        most: Duration,
        order: impl FnOnce(&OrderParts) + Send + 'static,
    ) {
        let Some(live) = &self.machines[end].live else { return };
        let opened = live.board.opened.lock().clone();
        let part = live.board.region.lock().clone();
        let (Some(opened), Some(part)) = (opened, part) else { return };
        let group = self.group(end);
        let desk = Arc::clone(&self.desk);
        let parts = OrderParts { opened, part, group, desk, most };
        let process = live.process;
        self.tell(format_args!("order {name} at {}", NAMES[end]));
        self.world.start(process, name, move || order(&parts));
    }

    /// The instance of a region that serves.
    pub(super) fn serving(&self, region: usize) -> Option<usize> {
        self.ends(region).find(|end| self.sight(*end).is_some_and(|sight| sight.serves))
    }

    /// Whether all instances of a region that run are in recovery, and one does.
    fn is_recovery(&self, region: usize) -> bool {
        let modes: Vec<Mode> =
            self.ends(region).filter_map(|end| Some(self.sight(end)?.mode)).collect();
        !modes.is_empty() && modes.iter().all(|mode| *mode == Mode::Recovery)
    }

    /// An operator looks at both regions.
    pub(super) fn operate(&mut self) {
        if matches!(self.stage, RunStage::Over | RunStage::Leaving(_) | RunStage::Verdict(_)) {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.order_every_us);
        self.plan_in(after, RegionsEvent::Operator);
        self.empties();
        self.empties_refused();
        let serving = [self.serving(0), self.serving(1)];
        if self.returns() || self.goes_on_with_promotion() {
            return;
        }
        match serving {
            [Some(active), None] if self.stage == RunStage::Safety => self.changes(0, active),
            [None, Some(active)] if self.stage == RunStage::Safety => self.changes(1, active),
            _ => {}
        }
    }

    /// The group that was live before the newest history began, if it goes on as though it were,
    /// and its instances that know where the other one went on.
    fn old_live(&self) -> Option<(usize, Vec<usize>)> {
        let old = 1 - self.newest?.1;
        let knows = |end: &usize| {
            self.sight(*end).is_some_and(|it| it.mode == Mode::Voting && it.fork.is_some())
        };
        let knowing: Vec<usize> = self.ends(old).filter(knows).collect();
        (!knowing.is_empty()).then_some((old, knowing))
    }

    /// Notes which history began last: operators know that, whatever the instances say.
    pub(super) fn look_for_histories(&mut self) {
        for (region, group) in GROUPS.iter().enumerate() {
            let Some(sight) = self.serving(region).and_then(|end| self.sight(end)) else {
                continue;
            };
            let chain: Vec<_> = sight.histories.iter().map(|it| (it.id, &it.live)).collect();
            let Some(own) = chain.iter().rposition(|(_, live)| *live == group) else { continue };
            let upto: Vec<HistoryId> = chain.iter().take(own + 1).map(|(id, _)| *id).collect();
            let id = chain[own].0;
            // Those before it are no news, when a group that began one of them, and was away since,
            // serves for the moment until it hears of this one.
            let is_new = !self.known.contains(&id);
            self.known.extend(upto);
            if is_new {
                self.newest = Some((id, region));
            }
        }
    }

    /// Whether the return of an old live group was ordered.
    fn returns(&mut self) -> bool {
        let Some((region, ends)) = self.old_live() else { return false };
        if self.stage == RunStage::Safety && !self.dice.chance(400) {
            return false;
        }
        let end = ends[self.dice.index(ends.len())];
        let most = self.longest();
        self.start_order(end, "rejoin", most, move |parts| rejoin(parts, region));
        if self.stage == RunStage::Safety && self.dice.chance(300) {
            self.disturbs(region);
        }
        true
    }

    /// In peace: whether a fail-over was ordered again of which some are marked only, as the guide
    /// says: what is marked takes nothing of the live group, and a process that was started since
    /// says it to no other.
    fn goes_on_with_promotion(&mut self) -> bool {
        let is_marked = |end: &usize| self.sight(*end).is_some_and(|it| it.mode == Mode::Promoting);
        let marked: Vec<usize> = self.all_ends().filter(is_marked).collect();
        let Some(region) = marked.first().map(|end| region_of(*end)) else { return false };
        if self.stage == RunStage::Safety || self.serving(region).is_some() {
            return false;
        }
        let end = marked[self.dice.index(marked.len())];
        self.count("fail-overs ordered again");
        self.start_order(end, "fail-over", LAST_SWITCH, move |parts| fail_over(parts, true));
        true
    }

    /// Folders of a group that was refused its return for good.
    fn empties(&mut self) {
        let regions = std::mem::take(&mut *self.desk.to_empty.lock());
        for region in regions {
            let is_other_live = self.serving(1 - region).is_some();
            let is_old = self.old_live().is_some_and(|(old, _)| old == region);
            if !is_other_live || !is_old {
                continue;
            }
            self.tell(format_args!("the folders of {} are emptied", GROUPS[region]));
            self.count("regions emptied");
            self.roles[region] = FirstRole::Recovery;
            self.roles[1 - region] = FirstRole::Live;
            for end in self.ends(region) {
                self.kill(end, true, 0);
                self.machines[end].disk.put_back(&FileSystem::new());
            }
        }
    }

    /// Instances of an old live group that took an order to return, and found at their start that
    /// their log cannot be cut back: the message says to empty the folder of each, and nothing else
    /// goes on, as the others have returned already, or wait for it.
    fn empties_refused(&mut self) {
        let Some((_, live)) = self.newest else { return };
        let old = 1 - live;
        if self.serving(live).is_none() || self.serving(old).is_some() {
            return;
        }
        let refused = |end: &usize| self.sight(*end).is_some_and(|it| it.needs_empty_folder);
        let refused: Vec<usize> = self.ends(old).filter(refused).collect();
        for end in refused {
            self.tell(format_args!("the folder of {} is emptied", NAMES[end]));
            self.count("instances emptied");
            self.roles[old] = FirstRole::Recovery;
            self.roles[live] = FirstRole::Live;
            self.kill(end, true, 0);
            self.machines[end].disk.put_back(&FileSystem::new());
        }
    }

    /// One group is live, and the other one may be in recovery.
    fn changes(&mut self, live: usize, active: usize) {
        let other = 1 - live;
        if !self.is_recovery(other) {
            return;
        }
        match self.dice.below(10) {
            0..4 => {
                let most = self.longest();
                self.start_order(active, "switch", most, switch);
                if self.dice.chance(400) {
                    self.disturbs(live);
                }
                if self.dice.chance(300) {
                    self.disturbs(other);
                }
            }
            4..6 => {
                self.count("regions lost");
                self.counts.faults += 1;
                for end in self.ends(live) {
                    let off_us = self.dice.below(LOST_US);
                    self.kill(end, true, off_us);
                }
                self.plan_fail_over(other, false);
            }
            6..8 => {
                self.count("regions cut off");
                self.counts.faults += 1;
                self.cut_for(&[0, 1], LOST_US);
                self.plan_fail_over(other, false);
            }
            8 => {
                let force = self.dice.chance(500);
                self.plan_fail_over(other, force);
            }
            _ => {}
        }
    }

    /// A copy began to go to the other region: now and then that is the moment at which the live
    /// one is lost, or a machine of either.
    pub(super) fn look_for_copies(&mut self) {
        let goes = self.all_ends().any(|end| self.sight(end).is_some_and(|it| it.rebases));
        let began = goes && !std::mem::replace(&mut self.copies_go, goes);
        self.copies_go = goes;
        if !began {
            return;
        }
        self.count("copies between regions");
        if self.stage != RunStage::Safety {
            return;
        }
        let live = usize::from(self.serving(1).is_some());
        match self.dice.below(10) {
            0..2 => {
                for end in self.ends(live) {
                    let off_us = self.dice.below(LOST_US);
                    self.kill(end, true, off_us);
                }
                self.plan_fail_over(1 - live, false);
            }
            2..4 => self.plan_fail_over(1 - live, true),
            4..7 => {
                let region = self.dice.index(2);
                self.disturbs(region);
            }
            _ => {}
        }
    }

    fn plan_fail_over(&mut self, region: usize, force: bool) {
        let after = self.dice.below(PROMOTES_US);
        self.plan_in(after, RegionsEvent::FailOver { region, force });
    }

    /// Something of a region ends in the middle of a change.
    fn disturbs(&mut self, region: usize) {
        let power = self.dice.chance(500);
        let all = self.dice.chance(300);
        for end in self.ends(region) {
            let is_it = all || self.dice.chance(400);
            let after = self.dice.below(DISTURBED_US);
            let Some(live) = self.machines[end].live.as_ref().filter(|_| is_it) else { continue };
            let process = live.process.0;
            self.plan_in(after, RegionsEvent::KillAt { end, process, power });
        }
        if self.dice.chance(300) {
            self.cut_for(&[0, 1], DISTURBED_US);
        }
    }

    /// A fail-over is ordered at some instance of a group.
    pub(super) fn fail_over(&mut self, region: usize, force: bool) {
        if self.stage != RunStage::Safety {
            return;
        }
        let ends: Vec<usize> = self.ends(region).filter(|end| self.sight(*end).is_some()).collect();
        if ends.is_empty() {
            return;
        }
        let end = ends[self.dice.index(ends.len())];
        let most = self.longest();
        self.start_order(end, "fail-over", most, move |parts| fail_over(parts, force));
        if self.stage == RunStage::Safety && self.dice.chance(300) {
            self.disturbs(region);
        }
    }

    /// A switch at the end of the run, with all the time that it needs.
    pub(super) fn order_last_switch(&mut self, active: usize) {
        self.start_order(active, "switch", LAST_SWITCH, switch);
    }
}
