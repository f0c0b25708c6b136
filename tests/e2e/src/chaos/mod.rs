//! Random rounds of faults on a group of real processes while model clients work; after each the
//! judgement of `history` over everything that is there.
//!
//! A round: clients begin, one to three faults happen, overlapping, everything is healed, the group must
//! become whole, clients must get on, and then what they were told must be what is found. The next round
//! goes on with the same group, so what was there before a round may not come back in a later one. Each
//! round is drawn from the seed and its number. Not here: clocks that jump, because nothing on this
//! machine can shift the clock of one process alone.

mod disk;
mod fault;

use std::time::{Duration, Instant};

use crate::Try;
use crate::chance::Chance;
use crate::group::{Design, Group, SAYS, THREE, WHOLE_MAX};
use crate::history::Tally;
use crate::wait;
use crate::workload::Workload;

use disk::Disk;
use fault::{Fault, Weather};

/// Small extents and early images, so that logs are reused and copies are needed.
const CONFIG: &str = "[queue_manager]\nimglogln = 4\n[log]\nextent_bytes = 4194304\n";
/// Units committed before the faults, and after them.
const UNITS: usize = 5;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Rounds.
    pub rounds: u32,
    /// Number of the first one.
    pub first: u32,
    /// Of everything that is random.
    pub seed: u64,
    /// No round begins after so long.
    pub time: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Findings {
    /// Rounds done.
    pub rounds: u32,
    /// Faults done.
    pub faults: usize,
    /// What the clients were told and what was found, of all rounds that were judged well.
    pub tally: Tally,
    /// Numbers of rounds that failed.
    pub failed: Vec<u32>,
}

/// Does the rounds; after one that failed, with a new group. `told` hears of each.
///
/// # Errors
/// When no group can be made.
pub fn run(wanted: Wanted, told: &mut dyn FnMut(&str)) -> Try<Findings> {
    let began = Instant::now();
    let mut findings = Findings::default();
    let mut stage = None;
    for round in wanted.first..wanted.first.saturating_add(wanted.rounds) {
        if began.elapsed() >= wanted.time {
            break;
        }
        let mut on = match stage.take() {
            Some(stage) => stage,
            None => Stage::set(told)?,
        };
        let (begun, mut trace) = (Instant::now(), Vec::new());
        let mut chance = Chance::of(wanted.seed.wrapping_add(u64::from(round) << 32));
        let mut note = |text: &str| {
            trace.push(format!("{:>6} ms {text}", begun.elapsed().as_millis()));
        };
        let judged = on.round(round, &mut chance, &mut note);
        let happened = trace.iter().filter(|line| !line.contains("over: ")).cloned();
        let happened: Vec<String> = happened.map(|line| line.trim().to_owned()).collect();
        findings.faults += happened.len();
        findings.rounds += 1;
        let took = begun.elapsed().as_secs_f64();
        match judged {
            Ok(tally) => {
                told(&format!("round {round}: {took:.1} s, {}; {tally:?}", happened.join(", ")));
                findings.tally.add(tally);
                stage = Some(on);
            }
            Err(error) => {
                let (kept, trace) = (on.group.keep(), trace.join("\n"));
                let mut reason = error.to_string();
                if !reason.contains(SAYS) {
                    reason = on.group.explained(&reason);
                }
                told(&format!("round {round} FAILED after {took:.1} s: {reason}\n{trace}"));
                told(&format!(
                    "left in {kept:?}; again with --seed {} --first {round} --rounds 1",
                    wanted.seed
                ));
                findings.failed.push(round);
            }
        }
    }
    Ok(findings)
}

/// A group and its disks.
struct Stage {
    // Before the disks: what runs on them ends first.
    group: Group,
    disks: Vec<Disk>,
}

impl Stage {
    fn set(told: &mut dyn FnMut(&str)) -> Try<Stage> {
        let design = Design { net: true, config: CONFIG.into() };
        let mut group = Group::plan(&design)?;
        let disks = THREE.iter().map(|at| Disk::mount(&group.site(*at).data));
        let disks = match disks.collect::<Try<Vec<Disk>>>() {
            Ok(disks) => disks,
            Err(why) => {
                told(&format!("no disk becomes full, because none can be mounted: {why}"));
                Vec::new()
            }
        };
        for at in THREE {
            group.start(at)?;
        }
        group.until_whole()?;
        Ok(Stage { group, disks })
    }

    fn round(&mut self, round: u32, chance: &mut Chance, note: &mut dyn FnMut(&str)) -> Try<Tally> {
        let load = Workload::start_returning(self.group.urls(), round, chance);
        until_committed(&load, UNITS)?;
        let faults = self.draw(chance);
        let was_full = faults.iter().any(|fault| matches!(fault, Fault::Full(..)));
        let mut weather = Weather::over(&mut self.group, &self.disks);
        let happened = weather.happen(&faults, note);
        // An instance whose disk is full may have ended before it was to be killed.
        if !was_full {
            happened?;
        }
        let mut weather = Weather::over(&mut self.group, &self.disks);
        weather.calm(was_full)?;
        self.heal()?;
        self.group.until_whole()?;
        until_committed(&load, UNITS)?;
        let history = load.finish()?;
        let mut at = self.group.until_whole()?;
        if chance.percent(50) {
            // As another one has it.
            at = self.group.switch(at, None)?;
            self.group.until_whole()?;
        }
        self.group.judge(at, &history)
    }

    fn draw(&self, chance: &mut Chance) -> Vec<Fault> {
        let mut whole = true;
        let count = 1 + chance.index(3);
        let faults = (0..count).map(|_| {
            let fault = Fault::draw(chance, whole, !self.disks.is_empty());
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
