//! Two regions, and one round on them.
//!
//! Not here: what can happen (`change`), how many rounds there are (`mod`). Invariant: before a
//! round, and after one that was judged well, one group is live, the other one follows it and has
//! all, and the queues are empty.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::chance::Chance;
use crate::history::{Contents, History, Tally};
use crate::peer::Peer;
use crate::regions::{EAST, LONG, Regions, RegionsDesign, WEST};
use crate::slow_net::command::{Command as Order, Ways};
use crate::workload::{Workload, drain_at};
use crate::{Try, fail, one_log, require, wait};

use super::change::{LinkFault, RoleChange, StrikePlace};
use super::tail::{LossNotice, Tail};

/// Small extents and early images, so that log is let go and copies are needed.
const CONFIG: &str = "[queue_manager]\nimglogln = 4\n[log]\nextent_bytes = 4194304\n";
/// So that the middle of a switch is hit: it takes a few round trips.
const ONE_WAY: Duration = Duration::from_millis(10);
/// Units committed before something happens, and after it.
const UNITS: usize = 5;
/// An order that is disturbed is given up after so long, in seconds.
const ORDER_MAX: &str = "10";

/// See the module.
pub(super) struct RegionStage {
    regions: Regions,
    size: usize,
    live: usize,
    /// What happened last.
    kind: &'static str,
}

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct RoundDone {
    pub(super) tally: Tally,
    /// Confirmed messages that a fail-over lost.
    pub(super) lost: usize,
    /// Messages of confirmed moves that are back after it.
    pub(super) came_back: usize,
    announced: Option<(LossNotice, u64)>,
}

impl fmt::Display for RoundDone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.tally)?;
        let Some((announced, bytes)) = &self.announced else { return Ok(()) };
        let known = announced.live.saturating_sub(announced.kept);
        write!(
            out,
            "; lost {}, back {}, in {bytes} bytes of log ({known} announced, and the last moment)",
            self.lost, self.came_back
        )
    }
}

impl RegionStage {
    pub(super) fn set(size: usize) -> Try<RegionStage> {
        let design = RegionsDesign { size, config: CONFIG.into(), ..RegionsDesign::default() };
        let regions = Regions::towed(&design)?;
        for group in [WEST, EAST] {
            regions.order(group, Order::Delay(Ways::Both, ONE_WAY));
        }
        Ok(RegionStage { regions, size, live: WEST, kind: "none" })
    }

    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// A round, judged.
    ///
    /// # Errors
    /// What went wrong, or the first broken promise.
    pub(super) fn round(
        &mut self,
        round: u32,
        chance: &mut Chance,
        told: &dyn Fn(&str),
    ) -> Try<RoundDone> {
        let change = RoleChange::draw(chance, self.size);
        self.kind = change.kind();
        let group = ["west", "east"][self.live];
        told(&format!("round {round} draws: {change}; {group} is live"));
        let load = Workload::start_returning(self.regions.urls(), round, chance);
        until_committed(&load)?;
        match change {
            RoleChange::FailOver { before, killed, rejoin_killed } => {
                let (announced, begun) = self.fail_over(&load, before, killed, chance)?;
                self.live = 1 - self.live;
                until_committed(&load)?;
                let history = load.finish()?;
                self.judge_lossy((&history, begun), announced, rejoin_killed, chance)
            }
            planned => {
                self.happen(planned)?;
                self.heal()?;
                self.live = self.until_one_is_live()?;
                until_committed(&load)?;
                let history = load.finish()?;
                self.live = self.until_one_is_live()?;
                let tally = history.judge(&self.drained()?)?;
                self.until_all_follow()?;
                Ok(RoundDone { tally, ..RoundDone::default() })
            }
        }
    }

    /// Does what loses nothing.
    fn happen(&mut self, change: RoleChange) -> Try {
        let other = 1 - self.live;
        match change {
            RoleChange::Switch => {
                let switched = self.switch(Some(LONG))?.wait()?;
                require!(switched.success(), "the switch gave {switched}");
            }
            RoleChange::SwitchKilled(struck, after) => {
                let mut switch = self.switch(None)?;
                wait::pause(after);
                self.strike(struck, Duration::ZERO)?;
                switch.wait()?;
            }
            RoleChange::SwitchBroken(broken, after) => {
                let mut switch = self.switch(None)?;
                wait::pause(after);
                self.break_link(broken, after + Duration::from_millis(300));
                switch.wait()?;
            }
            RoleChange::Link(broken, time) => self.break_link(broken, time),
            RoleChange::Restart(struck, time) => self.strike(struck, time)?,
            RoleChange::Rebase(after) => {
                self.empty(other)?;
                wait::pause(after);
                self.strike(StrikePlace::Relay, Duration::ZERO)?;
            }
            RoleChange::FailOver { .. } => fail!("that loses something"),
        }
        Ok(())
    }

    /// Orders a switch, which is going on; `whole`: nothing stands in its way.
    fn switch(&self, whole: Option<Duration>) -> Try<Child> {
        let active = self.regions.until_active(self.live)?;
        let site = self.regions.site(self.live, active);
        let is_fit = || site.runs(&["region", "switch", "--dry-run"], 0).is_ok();
        wait::until_true("nothing in the way of a switch", LONG, is_fit)?;
        let longest = whole.map_or(ORDER_MAX.to_owned(), |it| it.as_secs().to_string());
        let arguments = ["region", "switch", "--yes", "--json", "--timeout", &longest];
        let mut command = site.towline(&arguments)?;
        Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    /// Kills an instance, and starts it again after so long.
    fn strike(&mut self, struck: StrikePlace, away: Duration) -> Try {
        let (live, other) = (self.live, 1 - self.live);
        let (group, at) = match struck {
            StrikePlace::Active => (live, self.regions.active_of(live).unwrap_or(0)),
            StrikePlace::Relay => (other, self.regions.relay_of(other).unwrap_or(0)),
            StrikePlace::Live(at) => (live, at),
            StrikePlace::Recovery(at) => (other, at),
        };
        self.regions.kill(group, at)?;
        wait::pause(away);
        self.regions.start(group, at)
    }

    fn break_link(&self, broken: LinkFault, time: Duration) {
        let order = match broken {
            LinkFault::Cut(ways) => Order::Cut(ways),
            LinkFault::Stalled(ways) => Order::Stall(ways),
            LinkFault::Refused => Order::Refuse,
        };
        // Whichever group dials.
        for group in [WEST, EAST] {
            self.regions.order(group, order);
        }
        wait::pause(time);
        self.heal_link();
    }

    fn heal_link(&self) {
        for group in [WEST, EAST] {
            self.regions.order(group, Order::Heal(Ways::Both));
        }
    }

    fn heal(&mut self) -> Try {
        self.heal_link();
        for group in [WEST, EAST] {
            for at in 0..self.size {
                if self.regions.daemon(group, at).is_err() {
                    self.regions.start(group, at)?;
                }
            }
        }
        Ok(())
    }

    /// Live is lost, and the other group is promoted; what was announced before, and how many units
    /// of work had begun.
    fn fail_over(
        &mut self,
        load: &Workload,
        before: Option<(LinkFault, Duration)>,
        killed: Option<Duration>,
        chance: &mut Chance,
    ) -> Try<(LossNotice, usize)> {
        let (old, new) = (self.live, 1 - self.live);
        if let Some((broken, time)) = before {
            let order = match broken {
                LinkFault::Cut(ways) => Order::Cut(ways),
                LinkFault::Stalled(ways) => Order::Stall(ways),
                LinkFault::Refused => Order::Refuse,
            };
            self.regions.order(new, order);
            wait::pause(time);
        }
        for at in 0..self.size {
            self.regions.kill(old, at)?;
        }
        let begun = load.units_begun();
        let asked = chance.index(self.size);
        let site = self.regions.site(new, asked);
        let is_lost = || -> Option<(Value, u64)> {
            let said = site.runs(&["region", "failover", "--dry-run", "--json"], 0).ok()?;
            Some((serde_json::from_str(&said).ok()?, now_ms()))
        };
        let said = wait::until("the live group to be seen to be gone", LONG, is_lost);
        let (outlook, now) = said.map_err(|error| self.regions.explained(&error.to_string()))?;
        let announced = LossNotice::read(&outlook, now)?;
        let arguments = ["region", "failover", "--yes", "--json", "--timeout", ORDER_MAX];
        let mut command = site.towline(&arguments)?;
        let mut ordered = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(after) = killed {
            wait::pause(after);
            let at = chance.index(self.size);
            self.regions.kill(new, at)?;
            self.regions.start(new, at)?;
        }
        ordered.wait()?;
        // One that was killed before a majority was marked is ordered again, and goes on.
        let is_promoted = || {
            let active = self.regions.active_of(new);
            if active.is_none() {
                let asked = self.regions.site(new, asked);
                asked.runs(&["region", "failover", "--yes", "--json"], 0).ok();
            }
            active
        };
        wait::until("the promotion", LONG, is_promoted)
            .map_err(|error| self.regions.explained(&error.to_string()))?;
        Ok((announced, begun))
    }

    /// Judges what a fail-over left, and has the old live group return.
    fn judge_lossy(
        &mut self,
        (history, begun): (&History, usize),
        announced: LossNotice,
        rejoin_killed: Option<Duration>,
        chance: &mut Chance,
    ) -> Try<RoundDone> {
        let (old, found) = (1 - self.live, self.drained()?);
        self.heal()?;
        let tail = match self.until_partitioned(old)? {
            Some(said) => {
                let tail = Tail::read(&said, &announced)?;
                self.rejoin(old, rejoin_killed, chance)?;
                tail
            }
            // It had nothing behind the fork.
            None => Tail::default(),
        };
        self.until_all_follow()?;
        let excused = tail.excuse(history, begun, &found)?;
        let tally = excused.history.judge(&found)?;
        let announced = Some((announced, tail.bytes));
        Ok(RoundDone { tally, lost: excused.lost, came_back: excused.came_back, announced })
    }

    /// Waits until the old live group knows the fork; what it has behind it. `None`: nothing, and
    /// it follows by itself.
    fn until_partitioned(&self, old: usize) -> Try<Option<String>> {
        let list = ["region", "divergence", "--json"];
        let seen = wait::until("the old live group to meet the new one", LONG, || {
            if self.all_follow(old) {
                return Some(None);
            }
            let seen = self.regions.other_as_seen(1 - old);
            let is_partitioned = seen.is_ok_and(|seen| seen["status"] == "partitioned");
            // It serves no client, since it heard of the other one.
            let active = self.regions.leader_of_fenced(old).filter(|_| is_partitioned)?;
            self.regions.site(old, active).runs(&list, 0).ok().map(Some)
        });
        seen.map_err(|error| self.regions.explained(&error.to_string()))
    }

    /// Has the old live group return. It may do so by itself, when it has nothing that counts.
    fn rejoin(&mut self, old: usize, killed: Option<Duration>, chance: &mut Chance) -> Try {
        let longest = LONG.as_secs().to_string();
        let arguments =
            ["region", "rejoin", "--yes", "--discard-divergence", "--json", "--timeout"];
        let arguments = [&arguments[..], &[longest.as_str()]].concat();
        let active = self.regions.leader_of_fenced(old);
        if let (Some(after), Some(active)) = (killed, active) {
            let mut command = self.regions.site(old, active).towline(&arguments)?;
            let mut ordered = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            wait::pause(after);
            let at = chance.index(self.size);
            self.regions.kill(old, at)?;
            self.regions.start(old, at)?;
            ordered.kill().ok();
            ordered.wait()?;
        }
        // One that was killed may not have kept the order.
        let end = Instant::now() + LONG;
        while !self.all_follow(old) {
            if let Some(active) = self.regions.leader_of_fenced(old) {
                let said = self.regions.site(old, active).runs(&arguments, 0);
                if said.is_err_and(|why| why.to_string().contains("needs a copy")) {
                    // What was live at the fork is reclaimed: as its text says.
                    self.empty(old)?;
                }
            }
            let is_late = Instant::now() >= end;
            require!(!is_late, "{}", self.regions.explained("the old live group does not return"));
            wait::pause(Duration::from_millis(20));
        }
        Ok(())
    }

    /// A group loses its data, and starts as recovery.
    fn empty(&mut self, group: usize) -> Try {
        for at in 0..self.size {
            self.regions.kill(group, at)?;
            let site = self.regions.site_mut(group, at);
            fs::remove_dir_all(&site.data)?;
            // What it was first counts for a blank one.
            site.config = site.config.replace("role = \"live\"", "role = \"recovery\"");
        }
        for at in 0..self.size {
            self.regions.start(group, at)?;
        }
        Ok(())
    }

    fn all_follow(&self, group: usize) -> bool {
        (0..self.size).all(|at| {
            let status = self.regions.group_status(group, at);
            status.is_ok_and(|it| it["group_role"] == "recovery" && it["serving"] == false)
        })
    }

    /// Waits until no instance of the other group serves, and all that live has is there.
    fn until_all_follow(&self) -> Try {
        wait::until_true("one group alone to serve", LONG, || self.all_follow(1 - self.live))
            .map_err(|error| self.regions.explained(&error.to_string()))?;
        self.regions.until_towed_by(self.live).map(drop)
    }

    /// The group that is live, once the other one follows it and has all.
    fn until_one_is_live(&self) -> Try<usize> {
        let is_live = |group: usize| {
            let follows = |seen: Value| seen["connected"] == true;
            self.regions.active_of(1 - group).is_none()
                && self.regions.other_as_seen(group).is_ok_and(follows)
        };
        let found = wait::until("one group to be live", LONG, || {
            [WEST, EAST].into_iter().find(|at| is_live(*at))
        });
        found.map_err(|error| self.regions.explained(&error.to_string()))
    }

    /// Takes everything out of the queues of the live group, for good.
    fn drained(&self) -> Try<Contents> {
        let active = self.regions.until_active(self.live)?;
        let address = &self.regions.site(self.live, active).listen;
        let found = drain_at(address)?;
        // Its answer says that what was got before is gone.
        let mut peer = Peer::begun(address)?;
        peer.attach_sender(0, "DRAINED")?;
        peer.put(0, 0, b"what was got before is gone")?;
        Ok(found)
    }

    /// Stops both groups and compares their logs, and starts them `again`.
    pub(super) fn compare(&mut self, again: bool) -> Try {
        self.regions.stop_all()?;
        one_log::follows(&self.regions, self.live, self.size)?;
        if again {
            self.heal()?;
            self.until_all_follow()?;
        }
        Ok(())
    }

    /// Leaves everything behind for people to look at: where, and the reason with what instances
    /// say. No instance runs any more afterwards.
    pub(super) fn explained(&mut self, reason: &str) -> (Vec<PathBuf>, String) {
        let reason = match reason.contains("--- WEST") {
            true => reason.to_owned(),
            false => self.regions.explained(reason).to_string(),
        };
        let mut left = Vec::new();
        for group in [WEST, EAST] {
            for at in 0..self.size {
                self.regions.kill(group, at).ok();
                left.push(self.regions.site_mut(group, at).keep());
            }
        }
        (left, reason)
    }
}

fn until_committed(load: &Workload) -> Try {
    let wanted = load.units_committed() + UNITS;
    wait::until_true("clients get on", LONG, || load.units_committed() >= wanted)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
