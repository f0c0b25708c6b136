//! Two regions: two groups of one instance or three, with their whole code below the sockets, a
//! link between them, clients at whichever is live, and operators that change roles.
//!
//! Reading order: [`Regions::run`] (the phases), `plan`, `machines` (processes begin and end),
//! `wires`, `ports` and `pipes` (the link), `clients`, `faults`, `operators` (roles), `observer`
//! (what is seen), `logs`, `ledger` and `exposures` (what must be so), `verdict` (peace, and the
//! end).
//!
//! Not here: groups, which `cluster` has with many more faults. Invariants: events happen in the
//! order of their times, and between two of them the coroutines of all processes run; the same seed
//! gives the same run.

mod clients;
mod exposures;
mod faults;
mod ledger;
mod logs;
mod machines;
mod observer;
mod operators;
mod pipes;
mod plan;
mod ports;
#[cfg(test)]
mod tests;
mod verdict;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use towline_config::FirstRole;
use towline_os::simulated::World;
use towline_types::{HistoryId, SeededRandom};

use crate::agenda::Agenda;
use crate::cluster::network::Wires;
use crate::served::messages;
use crate::{Report, trace};
use clients::{ClientAct, Counter};
use exposures::ExposureSample;
use ledger::DeedLedger;
use logs::Logs;
use machines::RegionMachine;
use operators::OrderDesk;
use plan::RegionsPlan;
use wires::{RegionWires, region_of};

/// Names of the two groups; the first one begins as live.
const GROUPS: [&str; 2] = ["WEST", "EAST"];
/// Bytes of an extent of the log.
const EXTENT_BYTES: u64 = 256 * 1024;
/// How often peace is looked at.
const LOOK_US: u64 = 100_000;
/// Coroutines that are resumed without any time passing, at most: more is a loop.
const STEPS_MAX: u64 = 20_000_000;

/// What happens.
enum RegionsEvent {
    Start { end: usize },
    Client { client: usize },
    Fault,
    Heal,
    HealGroup { region: usize },
    Quick { end: usize },
    Operator,
    FailOver { region: usize, force: bool },
    KillAt { end: usize, process: u64, power: bool },
    Peace,
    Look,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    /// Faults come.
    Safety,
    /// No more faults, since then: one group must serve, and the other one follow.
    Peace(u64),
    /// Clients leave, since then.
    Leaving(u64),
    /// What the live group holds is compared, since then; then roles are switched, and what the
    /// other one holds.
    Verdict(u64),
    Over,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
struct RegionsCounts {
    events: u64,
    faults: u64,
    starts: u64,
    activations: u64,
    peace_us: u64,
    compared: u64,
}

/// See the module.
struct Regions {
    world: World,
    now: u64,
    events: Agenda<RegionsEvent>,
    dice: SeededRandom,
    plan: RegionsPlan,
    within: [Arc<Wires>; 2],
    wires: Arc<RegionWires>,
    machines: Vec<RegionMachine>,
    /// What each group is configured to begin as.
    roles: [FirstRole; 2],
    logs: Arc<Logs>,
    counter: Arc<Counter>,
    samples: Arc<Mutex<Vec<ExposureSample>>>,
    desk: Arc<OrderDesk>,
    processes: u64,
    acts: u64,
    stage: RunStage,
    counts: RegionsCounts,
    happened: BTreeMap<&'static str, u64>,
    verdict: verdict::RegionsVerdict,
    /// Histories that a group was seen to serve in, and the newest of them with its region.
    known: BTreeSet<HistoryId>,
    newest: Option<(HistoryId, usize)>,
    /// Whether a copy went from one region to the other at the last look.
    copies_go: bool,
    steps: u64,
    ends_seen: usize,
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Report {
    let _heard = std::env::var_os("TOWLINE_LOG").is_none().then(messages::listen);
    let mut regions = Regions::new(seed);
    trace::write(0, format_args!("{:?}", regions.plan));
    regions.run();
    regions.report(seed)
}

impl Regions {
    fn new(seed: u64) -> Regions {
        let world = World::new(seed);
        if std::env::var_os("SIM_WAITS").is_some() {
            world.set_traced();
        }
        let mut dice = SeededRandom::mixed(seed);
        let plan = RegionsPlan::draw(seed, &mut dice, EXTENT_BYTES);
        world.set_overtaken(if dice.chance(300) { dice.below(50) } else { 0 });
        let machines: Vec<RegionMachine> =
            (0..wires::ENDS).map(|_| RegionMachine::new(&plan, &mut dice)).collect();
        let within = [0, 1].map(|region| {
            let dice = SeededRandom::mixed(dice.next_u64());
            Wires::new(plan.within(region), dice)
        });
        let wires = RegionWires::new(plan.link, SeededRandom::mixed(dice.next_u64()));
        let disks = machines.iter().map(|machine| machine.disk.clone()).collect();
        let logs = Arc::new(Logs::new(disks, plan.members, EXTENT_BYTES));
        let counter = Arc::new(Counter {
            ledger: Mutex::new(DeedLedger::default()),
            failure: Mutex::default(),
            asked_late: AtomicU64::new(0),
        });
        let (seen, told) = (Arc::clone(&logs), Arc::clone(&counter));
        wires.watch(move |end, kind, body| {
            if let Err(broken) = seen.leaves(end, kind, body) {
                told.fail(broken);
            }
        });
        Regions {
            world,
            now: 0,
            events: Agenda::default(),
            dice,
            plan,
            within,
            wires,
            machines,
            roles: [FirstRole::Live, FirstRole::Recovery],
            logs,
            counter,
            samples: Arc::default(),
            desk: Arc::default(),
            processes: 0,
            acts: 0,
            stage: RunStage::Safety,
            counts: RegionsCounts::default(),
            happened: BTreeMap::new(),
            verdict: verdict::RegionsVerdict::default(),
            known: BTreeSet::new(),
            newest: None,
            copies_go: false,
            steps: 0,
            ends_seen: 0,
        }
    }

    /// Runs to the end, or to the first broken rule.
    fn run(&mut self) {
        for end in self.all_ends() {
            let after = self.dice.below(200_000);
            self.plan_in(after, RegionsEvent::Start { end });
        }
        for client in 0..self.plan.clients {
            let after = self.dice.below(400_000);
            self.plan_in(after, RegionsEvent::Client { client });
        }
        let first = 1_000_000 + self.dice.below(self.plan.fault_every_us);
        self.plan_in(first, RegionsEvent::Fault);
        let first = 2_000_000 + self.dice.below(self.plan.order_every_us);
        self.plan_in(first, RegionsEvent::Operator);
        self.plan_in(self.plan.safety_us, RegionsEvent::Peace);
        self.plan_in(LOOK_US, RegionsEvent::Look);
        while !self.has_failed() && self.stage != RunStage::Over {
            let Some(time) = self.events.next_time() else {
                return self.fail("nothing is planned any more".into());
            };
            if self.run_processes(time) {
                continue;
            }
            let Some((time, event)) = self.events.next() else { continue };
            self.now = time;
            self.counts.events += 1;
            self.happen(event);
        }
    }

    /// Runs the processes up to a time. True when one ended before.
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
            if self.look_for_ends() || self.has_failed() {
                return true;
            }
        }
        false
    }

    fn happen(&mut self, event: RegionsEvent) {
        match event {
            RegionsEvent::Start { end } => self.start(end),
            RegionsEvent::Client { client } => self.acts(client),
            RegionsEvent::Fault => self.fault(),
            RegionsEvent::Heal => self.heal(),
            RegionsEvent::HealGroup { region } => self.heal_group(region),
            RegionsEvent::Quick { end } => self.machines[end].set_timing(&self.plan, 1),
            RegionsEvent::Operator => self.operate(),
            RegionsEvent::FailOver { region, force } => self.fail_over(region, force),
            RegionsEvent::KillAt { end, process, power } => {
                let live = self.machines[end].live.as_ref();
                if live.is_some_and(|live| live.process.0 == process)
                    && self.stage == RunStage::Safety
                {
                    self.counts.faults += 1;
                    self.kill(end, power, 0);
                }
            }
            RegionsEvent::Peace => self.peace(),
            RegionsEvent::Look => {
                self.look_for_histories();
                self.look();
                self.look_for_copies();
                self.plan_in(LOOK_US, RegionsEvent::Look);
            }
        }
    }

    /// A client does something at an instance that says that it is active, or that was superseded
    /// and is to refuse it.
    fn acts(&mut self, client: usize) {
        let rest = if self.acts > self.plan.acts_max { 20 } else { 1 };
        let after = (1 + self.dice.below(self.plan.wake_us)) * rest;
        if matches!(self.stage, RunStage::Safety | RunStage::Peace(_)) {
            self.plan_in(after, RegionsEvent::Client { client });
        } else {
            return;
        }
        self.acts += 1;
        let actives: Vec<usize> = self
            .all_ends()
            .filter(|end| self.sight(*end).is_some_and(|it| it.serves || it.fork.is_some()))
            .collect();
        if actives.is_empty() {
            return;
        }
        let end = actives[self.dice.index(actives.len())];
        let Some(live) = &self.machines[end].live else { return };
        let (door, opened) = (live.board.served.lock().clone(), live.board.opened.lock().clone());
        let (Some((door, _)), Some(opened)) = (door, opened) else { return };
        let act = ClientAct {
            opened,
            door,
            group: GROUPS[region_of(end)],
            counter: Arc::clone(&self.counter),
            dice: SeededRandom::mixed(self.dice.next_u64()),
            queues: self.plan.queues,
            body_bytes_max: self.plan.body_bytes_max,
            timed_per_mille: self.plan.timed_per_mille,
        };
        self.world.start(live.process, "client", move || act.run());
    }

    fn plan_at(&mut self, time: u64, event: RegionsEvent) {
        self.events.plan(time, event);
    }

    fn plan_in(&mut self, after: u64, event: RegionsEvent) {
        self.plan_at(self.now + after, event);
    }

    /// Counts something that the summary names.
    fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    fn fail(&self, what: String) {
        self.counter.fail(what);
    }

    fn has_failed(&self) -> bool {
        self.counter.failure.lock().is_some()
    }

    fn report(mut self, seed: u64) -> Report {
        let logs = self.logs.counts();
        for (what, times) in self.desk.happened() {
            *self.happened.entry(what).or_default() += times;
        }
        let late = self.counter.asked_late.load(Ordering::Relaxed);
        *self.happened.entry("refused by an old live group that had heard").or_default() += late;
        *self.happened.entry("batches shipped").or_default() += logs.shipped;
        *self.happened.entry("recovery points reported").or_default() += logs.points;
        let ledger = self.counter.ledger.lock();
        Report {
            seed,
            failure: self.counter.failure.lock().clone(),
            fingerprint: self.world.switches() ^ ledger.acknowledged.rotate_left(32),
            simulated_us: self.now,
            peace_us: self.counts.peace_us,
            events: self.world.switches(),
            messages: ledger.messages.len() as u64,
            acknowledged: ledger.acknowledged,
            faults: self.counts.faults,
            starts: self.counts.starts,
            activations: self.counts.activations,
            copies: self.happened.get("copies between regions").copied().unwrap_or_default(),
            images: logs.compared,
            compared: self.counts.compared,
            happened: self.happened.clone(),
        }
    }

    /// Writes a line of the trace, when it is read.
    fn tell(&self, line: std::fmt::Arguments<'_>) {
        trace::write(self.now, line);
    }
}
