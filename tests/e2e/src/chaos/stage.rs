//! A group, its disks and clocks, and one round of faults on it.
//!
//! Not here: what can happen (`fault`), how many rounds there are (`mod`). Invariant: before a
//! round and after one that was judged well, the group is whole and its queues are empty.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::chance::Chance;
use crate::group::{Design, Group, NAMES, Pace, SAYS, THREE, WHOLE_MAX};
use crate::history::Tally;
use crate::wait;
use crate::workload::Workload;
use crate::{Try, paths};

use super::Report;
use super::disk::ChaosDisk;
use super::fault::{Fault, Possible};
use super::trace::Trace;
use super::weather::Weather;

/// Small extents and early images, so that logs are reused and copies are needed.
const CONFIG: &str = "[queue_manager]\nimglogln = 4\n[log]\nextent_bytes = 4194304\n";
/// How long until instances miss each other. Shorter than in other tests: a round is for the most
/// part waiting for this, and it is welcome here that instances on a busy machine miss each other's
/// heartbeats.
const MISSED_AFTER: Duration = Duration::from_millis(700);
/// File in the folder of the first instance that says which round is under way, and its faults.
const ROUND: &str = "round.txt";
/// Units committed before the faults, and after them.
const UNITS: usize = 5;

/// See the module.
pub(super) struct Stage {
    // Before the disks: what runs on them ends first.
    group: Group,
    disks: Vec<ChaosDisk>,
    possible: Possible,
}

impl Stage {
    /// A new group that is whole. `power`: its disks forget what was not synced.
    ///
    /// # Errors
    /// When it does not become whole.
    pub(super) fn set(power: bool, told: Report<'_>) -> Try<Stage> {
        let clocks = paths::faketime().map_err(|why| told(&format!("clocks stay right: {why}")));
        let design = Design {
            net: true,
            config: CONFIG.into(),
            clocks: clocks.is_ok(),
            missed_after: Some(MISSED_AFTER),
        };
        let mut group = Group::plan(&design)?;
        let disks = THREE.into_iter().map(|at| match power {
            true => ChaosDisk::forgetful(group.site_mut(at)),
            false => ChaosDisk::plain(group.site(at)),
        });
        let disks = match disks.collect::<Try<Vec<ChaosDisk>>>() {
            Ok(disks) => disks,
            // The caller must not get the answer that it was proven.
            Err(why) if power => return Err(why),
            Err(why) => {
                told(&format!("no disk becomes full, because none can be mounted: {why}"));
                Vec::new()
            }
        };
        let possible = Possible { full: !disks.is_empty(), power, clocks: clocks.is_ok() };
        let mut stage = Stage { group, disks, possible };
        for at in THREE {
            stage.group.start(at)?;
        }
        stage.group.until_whole()?;
        Ok(stage)
    }

    /// A round, judged.
    ///
    /// # Errors
    /// What went wrong, or the first broken promise.
    pub(super) fn round(
        &mut self,
        round: u32,
        chance: &mut Chance,
        trace: &mut Trace,
        told: Report<'_>,
    ) -> Try<Tally> {
        let faults = self.draw(chance);
        // Before anything happens: it may hang.
        let drawn = faults.iter().map(Fault::to_string).collect::<Vec<_>>().join(", ");
        told(&format!("round {round} draws: {drawn}"));
        fs::write(self.group.site(0).scratch().join(ROUND), format!("{round}: {drawn}\n"))?;
        let load = Workload::start_returning(self.group.urls(), round, chance);
        until_committed(&load, UNITS)?;
        trace.step("begun");
        let was_full = faults.iter().any(|fault| matches!(fault, Fault::Full(..)));
        let mut weather = Weather::over(&mut self.group, &self.disks, chance);
        let happened = weather.happen(&faults, trace);
        // An instance with a full disk may have ended before it was to be killed.
        if !was_full {
            happened?;
        }
        weather.calm(was_full)?;
        self.heal()?;
        trace.step("faults");
        self.group.until_whole()?;
        trace.step("whole");
        until_committed(&load, UNITS)?;
        trace.step("going on");
        let history = load.finish()?;
        trace.step("clients gone");
        let mut at = self.group.until_whole()?;
        if chance.percent(50) {
            // As another one has it.
            at = self.group.switch(at, None)?;
            self.group.until_whole()?;
        }
        trace.step("switched");
        let tally = self.group.judge(at, &history)?;
        trace.step("judged");
        Ok(tally)
    }

    /// Leaves everything behind for people to look at, what is on the disks too: where, and the
    /// reason with what instances say. No instance runs any more afterwards.
    pub(super) fn explained(&mut self, reason: &str) -> (Vec<PathBuf>, String) {
        let mut reason = match reason.contains(SAYS) {
            true => reason.to_owned(),
            false => self.group.explained(reason),
        };
        for at in THREE {
            // One that has ended need not be killed.
            self.group.kill(at).ok();
        }
        let mut left = self.group.keep();
        for (at, disk) in self.disks.iter().enumerate() {
            match disk.keep_in(self.group.site(at).scratch()) {
                Ok(kept) => left.push(kept),
                Err(why) => reason += &format!("\nthe disk of {} is not kept: {why}", NAMES[at]),
            }
        }
        (left, reason)
    }

    fn draw(&self, chance: &mut Chance) -> Vec<Fault> {
        let mut whole = true;
        let count = 1 + chance.index(3);
        let faults = (0..count).map(|_| {
            let fault = Fault::draw(chance, whole, self.possible);
            // After the first one it may not be whole any more.
            whole = false;
            fault
        });
        faults.collect()
    }

    fn heal(&mut self) -> Try {
        self.group.net()?.heal_all();
        self.group.net()?.delay_all(Duration::ZERO);
        for disk in &self.disks {
            disk.free()?;
        }
        for at in THREE {
            self.group.set_pace(at, Pace::Even);
            if self.group.is_paused(at) {
                self.group.resume(at)?;
            }
            if !self.group.runs(at) {
                self.group.start(at)?;
            }
        }
        Ok(())
    }
}

fn until_committed(load: &Workload, more: usize) -> Try {
    let wanted = load.units_committed() + more;
    wait::until_true("clients get on", WHOLE_MAX, || load.units_committed() >= wanted)
}
