//! A queue manager that is no group, with its whole code below the sockets: one instance, or
//! several processes on machines with one file system, of which one is active at a time.
//!
//! It may also be a group of one instance, which has the same promises to keep: [`run_one`].
//!
//! Reading order: [`Alone::run`] (the phases), `plan`, `process` (what a process does), `one` (what
//! one of a group of one instance does), `machines`
//! (processes begin and end), `troubles` and `weather` (what goes wrong), `script` (a load that is
//! repeated with a crash at each operation), `backups` and `restored`, `ledger` (what is noted),
//! `verdict`.
//!
//! Invariants: events of the run happen in the order of their times, and between two of them the
//! coroutines of all processes run; the same seed gives the same run.

mod backups;
mod ledger;
mod machines;
mod one;
mod people;
mod plan;
mod process;
mod restored;
mod script;
mod troubles;
mod verdict;
mod weather;

use std::collections::BTreeMap;
use std::sync::Arc;

use towline_os::simulated::World;
use towline_os::simulated::fs::FileSystem;
use towline_types::SeededRandom;

use crate::agenda::Agenda;
use crate::client::Client;
use crate::served::connection::Witness;
use crate::served::disk_faults::BUFFERED_PER_MILLE;
use crate::served::people::{ClientEvent, People};
use crate::{Report, trace};
use backups::Backups;
use ledger::Ledger;
use machines::AloneMachine;
use plan::AlonePlan;
pub(crate) use plan::crash_seed;
use weather::Weather;

/// It must serve again so long after faults have stopped.
const PEACE_US: u64 = 20_000_000;
/// How often peace, and backups, are looked at.
const LOOK_US: u64 = 20_000;
/// Coroutines that are resumed without any time passing, at most: more is a loop.
const STEPS_MAX: u64 = 20_000_000;
/// The data folder.
const DATA: &str = "/qms";

/// What happens.
enum AloneEvent {
    Start {
        node: usize,
    },
    Client(ClientEvent),
    Trouble,
    Resume {
        node: usize,
    },
    Quick,
    /// The file system is there again, for a process.
    Back {
        process: u64,
    },
    /// There is free space again.
    Space,
    Image,
    Backup,
    Step(script::ScriptStep),
    Peace,
    Look,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlonePhase {
    /// Things go wrong.
    Safety,
    /// Nothing does any more, since then: it must serve again.
    Peace(u64),
    /// Clients leave, since then.
    Leaving(u64),
    /// All is compared, since then.
    Verdict(u64),
    Over,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
struct AloneCounts {
    events: u64,
    faults: u64,
    starts: u64,
    activations: u64,
    restores: u64,
    images: u64,
    peace_us: u64,
    compared: u64,
}

/// See the module.
struct Alone {
    world: World,
    now: u64,
    events: Agenda<AloneEvent>,
    dice: SeededRandom,
    plan: AlonePlan,
    disk: FileSystem,
    weather: Weather,
    machines: Vec<AloneMachine>,
    clients: Vec<Client>,
    ledger: Arc<Ledger>,
    processes: u64,
    operators: u64,
    connections: u64,
    phase: AlonePhase,
    counts: AloneCounts,
    backups: Backups,
    looks: verdict::AloneLooks,
    steps: u64,
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Report {
    let mut dice = SeededRandom::mixed(seed);
    let plan = AlonePlan::draw(&mut dice);
    run_plan(seed, seed, plan)
}

/// Runs the load of a seed with the crash of that seed. The report counts the operations that
/// change something as images.
pub(crate) fn run_crash(seed: u64) -> Report {
    let (load, plan) = AlonePlan::of_crash(seed);
    run_plan(seed, load, plan)
}

/// Runs one seed as a group of one instance.
pub(crate) fn run_one(seed: u64) -> Report {
    let mut dice = SeededRandom::mixed(seed);
    let plan = AlonePlan::draw(&mut dice);
    run_plan(seed, seed, plan.of_one())
}

/// The same for a load with a crash.
pub(crate) fn run_one_crash(seed: u64) -> Report {
    let (load, plan) = AlonePlan::of_crash(seed);
    run_plan(seed, load, plan.of_one())
}

fn run_plan(seed: u64, load: u64, plan: AlonePlan) -> Report {
    let mut alone = Alone::new(load, plan);
    trace::write(0, format_args!("{:?}", alone.plan));
    alone.run();
    alone.report(seed)
}

impl Alone {
    fn new(seed: u64, plan: AlonePlan) -> Alone {
        let world = World::new(seed);
        if std::env::var_os("SIM_WAITS").is_some() {
            world.set_traced();
        }
        let mut dice = SeededRandom::mixed(seed ^ 0x5851_f42d_4c95_7f2d);
        world.set_overtaken(plan.overtaken_per_mille);
        let disk = FileSystem::new();
        disk.set_takes_direct(!dice.chance(BUFFERED_PER_MILLE));
        if trace::is_wanted() {
            disk.start_trace();
        }
        let crash = plan.script.and_then(|script| script.crash);
        let weather = Weather::begin(&disk, plan.disk_faults, crash, dice.next_u64());
        let clients = (0..plan.base.clients).map(|number| Client::new(number, &mut dice)).collect();
        let ledger = Arc::new(Ledger::new(plan.machines));
        let mut alone = Alone {
            world,
            now: 0,
            events: Agenda::default(),
            dice,
            machines: (0..plan.machines).map(|_| AloneMachine::default()).collect(),
            plan,
            disk,
            weather,
            clients,
            ledger,
            processes: 0,
            operators: 0,
            connections: 0,
            phase: AlonePhase::Safety,
            counts: AloneCounts::default(),
            backups: Backups::default(),
            looks: verdict::AloneLooks::default(),
            steps: 0,
        };
        alone.set_timing(1);
        alone
    }

    /// Runs to the end, or to the first broken rule.
    fn run(&mut self) {
        for node in 0..self.machines.len() {
            let after = self.dice.below(200_000);
            self.plan_in(after, AloneEvent::Start { node });
        }
        for client in 0..self.clients.len() {
            let after = self.dice.below(400_000);
            self.plan_in(after, AloneEvent::Client(ClientEvent::Wakes { client }));
        }
        if !self.plan.troubles.is_empty() {
            let first = 300_000 + self.dice.below(self.plan.base.fault_every_us);
            self.plan_in(first, AloneEvent::Trouble);
        }
        self.plan_script();
        self.plan_in(self.plan.image_every_us, AloneEvent::Image);
        self.plan_in(self.plan.backup_every_us, AloneEvent::Backup);
        self.plan_in(self.plan.base.safety_us, AloneEvent::Peace);
        self.plan_in(LOOK_US, AloneEvent::Look);
        while !self.has_failed() && self.phase != AlonePhase::Over {
            let Some(time) = self.events.next_time() else {
                return self.fail("nothing is planned any more".into());
            };
            // What the processes do may be answered before.
            if self.run_processes(time) {
                continue;
            }
            let Some((time, event)) = self.events.next() else { continue };
            self.now = time;
            self.counts.events += 1;
            self.happen(event);
        }
    }

    /// Runs the processes up to a time. True when something came of it before.
    fn run_processes(&mut self, until: u64) -> bool {
        while self.world.step(until) {
            self.steps += 1;
            let now = self.world.now_us();
            if now > self.now {
                (self.now, self.steps) = (now, 0);
            }
            if self.steps > STEPS_MAX {
                self.fail(format!("time stands still: {:?}", self.world.left()));
            }
            let answered = self.take_answers();
            let ended = self.look_for_ends();
            if answered || ended || self.has_failed() {
                return true;
            }
        }
        false
    }

    fn happen(&mut self, event: AloneEvent) {
        match event {
            AloneEvent::Start { node } => self.start(node),
            AloneEvent::Client(event) => self.client_event(event),
            AloneEvent::Trouble => self.trouble(),
            AloneEvent::Resume { node } => self.resume(node),
            AloneEvent::Quick => self.set_timing(1),
            AloneEvent::Back { process } => self.back(process),
            AloneEvent::Space => self.disk.set_bytes_max(DISK_BYTES),
            AloneEvent::Image => self.image(),
            AloneEvent::Backup => self.backup(),
            AloneEvent::Step(step) => self.script_step(step),
            AloneEvent::Peace => self.peace(),
            AloneEvent::Look => {
                self.look_at_backups();
                self.look();
                self.plan_in(LOOK_US, AloneEvent::Look);
            }
        }
    }

    fn plan_at(&mut self, time: u64, event: AloneEvent) {
        self.events.plan(time, event);
    }

    fn plan_in(&mut self, after: u64, event: AloneEvent) {
        self.plan_at(self.now + after, event);
    }

    fn fail(&self, what: String) {
        self.ledger.fail(what);
    }

    fn has_failed(&self) -> bool {
        self.ledger.failure.lock().is_some()
    }

    fn report(self, seed: u64) -> Report {
        let history = self.ledger.history.lock();
        let is_script = self.plan.script.is_some();
        Report {
            seed,
            failure: self.ledger.failure.lock().clone(),
            fingerprint: self.world.switches() ^ history.acknowledged.rotate_left(32),
            simulated_us: self.now,
            peace_us: self.counts.peace_us,
            events: self.world.switches(),
            messages: history.puts.len() as u64,
            acknowledged: history.acknowledged,
            faults: self.counts.faults,
            starts: self.counts.starts,
            activations: self.counts.activations,
            copies: self.counts.restores,
            images: if is_script { self.weather.changes() } else { self.counts.images },
            compared: self.counts.compared,
            happened: BTreeMap::new(),
        }
    }

    /// Writes a line of the trace, when it is read.
    fn tell(&self, line: std::fmt::Arguments<'_>) {
        trace::write(self.now, line);
    }
}

/// What the disk holds when it is not full.
const DISK_BYTES: u64 = 1 << 40;

#[cfg(test)]
mod tests;
