//! A cluster: three instances with their whole code below the sockets, on simulated machines.
//!
//! Reading order: [`Cluster::run`] (the phases), `process` (what a process does), `network`,
//! `people` (clients; they and their connections are those of `served`), `machines` (processes
//! begin and end), `versions` (their programs), `faults`, `rot`, `operators` (what the guides say),
//! `shared` (what is seen), `verdict` (what is compared with what).
//!
//! Invariants: events of the run happen in the order of their times, and between two of them the
//! coroutines of all processes run; the same seed gives the same run.

mod disks;
mod faults;
mod machines;
pub(crate) mod network;
mod operators;
mod people;
pub(crate) mod process;
mod promises;
mod rot;
mod shared;
mod status;
mod verdict;
mod versions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towline_os::simulated::World;
use towline_types::{FORMAT_LEVEL_UNASKED, SeededRandom};

use crate::agenda::Agenda;
use crate::client::Client;
use crate::plan::{Fault, Plan};
use crate::served::connection::Witness;
use crate::served::people::{ClientEvent, People};
use crate::served::{connection, disk_faults, look, messages};
use crate::{Report, trace};
use machines::Machine;
use network::{LatencyPlan, Wires};
use shared::Shared;

/// The group must serve again, and all must have caught up, so long after faults have stopped.
const PEACE_US: u64 = 20_000_000;
/// How often peace is looked at.
const LOOK_US: u64 = 100_000;
/// Coroutines that are resumed without any time passing, at most: more is a loop.
const STEPS_MAX: u64 = 20_000_000;
/// Bytes of a body, at most.
const BODY_BYTES_MAX: u64 = 100_000;
/// The same in runs that fill many extents.
const LARGE_BODY_BYTES: u64 = 40_000;
/// Bytes of an extent of the log.
const EXTENT_BYTES: u64 = 256 * 1024;
/// The data folder of an instance.
const DATA: &str = "/qms";

/// What happens.
enum ClusterEvent {
    Start { node: usize },
    Client(ClientEvent),
    Fault,
    Drawn { fault: Fault, node: usize, other: usize, tries: u32 },
    Heal,
    Resume { node: usize },
    Quick { node: usize },
    Space { node: usize },
    Operator { node: usize },
    Meets { node: usize, process: u64 },
    Version { node: usize },
    Peace,
    Look,
    Recovered,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    /// Faults come.
    Safety,
    /// No more faults, since then: everything must come back.
    Peace(u64),
    /// Clients leave, since then.
    Leaving(u64),
    /// All is compared, since then.
    Verdict(u64),
    Over,
}

/// What happened how often.
#[derive(Clone, Copy, Debug, Default)]
struct RunCounts {
    events: u64,
    faults: u64,
    starts: u64,
    activations: u64,
    copies: u64,
    peace_us: u64,
    compared: u64,
}

/// See the module.
struct Cluster {
    world: World,
    now: u64,
    events: Agenda<ClusterEvent>,
    dice: SeededRandom,
    plan: Plan,
    network: Arc<Wires>,
    versions: versions::ProgramVersions,
    machines: [Machine; 3],
    clients: Vec<Client>,
    shared: Arc<Shared>,
    processes: u64,
    connections: u64,
    phase: RunPhase,
    counts: RunCounts,
    happened: BTreeMap<&'static str, u64>,
    looks: verdict::Looks,
    statuses: status::Statuses,
    steps: u64,
    /// Processes that had ended at the last look.
    ends: usize,
}

/// Runs one seed.
pub(crate) fn run(seed: u64) -> Report {
    // Where lines for people are wanted, they are not heard here.
    let _heard = std::env::var_os("TOWLINE_LOG").is_none().then(messages::listen);
    let mut cluster = Cluster::new(seed);
    trace::write(0, format_args!("{:?}", cluster.plan));
    cluster.run();
    if cluster.has_failed() {
        cluster.leave_disks();
        if std::env::var_os("SIM_OPERATIONS").is_some() {
            cluster.show();
        }
    }
    cluster.report(seed)
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let world = World::new(seed);
        if std::env::var_os("SIM_WAITS").is_some() {
            world.set_traced();
        }
        let mut dice = SeededRandom::mixed(seed);
        let mut plan = Plan::draw(&mut dice);
        plan.body_bytes_max = if dice.chance(300) {
            // Extents are filled, and let go, several times in a run.
            dice.between(400, LARGE_BODY_BYTES)
        } else {
            // A record fits an extent.
            plan.body_bytes_max.min(BODY_BYTES_MAX)
        };
        world.set_overtaken(if dice.chance(300) { dice.below(50) } else { 0 });
        let machines = std::array::from_fn(|node| Machine::new(node, &plan, &mut dice));
        let disks = std::array::from_fn(|node: usize| {
            let machines: &[Machine; 3] = &machines;
            machines[node].disk.clone()
        });
        let clients = (0..plan.clients).map(|number| Client::new(number, &mut dice)).collect();
        let wires_dice = SeededRandom::mixed(dice.next_u64());
        let network = Wires::new(network_plan(&plan), wires_dice);
        let shared = Arc::new(Shared::new(disks, EXTENT_BYTES));
        // What is shared has the replicas, which have the network.
        let witness = Arc::downgrade(&shared);
        network.watch(move |from, head| {
            if let Some(witness) = witness.upgrade() {
                witness.promises(from, head);
            }
        });
        let versions = versions::ProgramVersions::draw(seed, &plan);
        Cluster {
            world,
            now: 0,
            events: Agenda::default(),
            plan,
            network,
            versions,
            machines,
            clients,
            shared,
            processes: 0,
            connections: 0,
            phase: RunPhase::Safety,
            counts: RunCounts::default(),
            happened: BTreeMap::new(),
            looks: verdict::Looks::default(),
            statuses: status::Statuses::default(),
            steps: 0,
            ends: 0,
            dice,
        }
    }

    /// Runs to the end, or to the first broken rule.
    fn run(&mut self) {
        for node in 0..3 {
            let after = self.dice.below(200_000);
            self.plan_in(after, ClusterEvent::Start { node });
        }
        for client in 0..self.clients.len() {
            let after = self.dice.below(400_000);
            self.plan_in(after, ClusterEvent::Client(ClientEvent::Wakes { client }));
        }
        let first = 500_000 + self.dice.below(self.plan.fault_every_us);
        self.plan_in(first, ClusterEvent::Fault);
        self.plan_in(self.plan.safety_us, ClusterEvent::Peace);
        self.plan_in(LOOK_US, ClusterEvent::Recovered);
        self.plan_versions();
        while !self.has_failed() && self.phase != RunPhase::Over {
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

    fn happen(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Start { node } => self.start(node),
            ClusterEvent::Client(event) => self.client_event(event),
            ClusterEvent::Fault => self.fault(),
            ClusterEvent::Drawn { fault, node, other, tries } => {
                self.draw(fault, node, other, tries);
            }
            ClusterEvent::Heal => self.heal(),
            ClusterEvent::Resume { node } => self.resume(node),
            ClusterEvent::Quick { node } => {
                self.machines[node].set_timing(&self.plan, 1);
                self.machines[node].is_slow = false;
            }
            ClusterEvent::Space { node } => self.empty(node),
            ClusterEvent::Operator { node } => self.operate(node),
            ClusterEvent::Meets { node, process } => self.meets(node, process),
            ClusterEvent::Version { node } => self.changes_version(node),
            ClusterEvent::Peace => self.peace(),
            ClusterEvent::Look => self.look(),
            ClusterEvent::Recovered => {
                self.look_for_rot();
                self.look_for_recovered();
                self.look_at_statuses();
                self.enlarge_full_logs();
                self.plan_in(LOOK_US, ClusterEvent::Recovered);
            }
        }
    }

    fn plan_at(&mut self, time: u64, event: ClusterEvent) {
        self.events.plan(time, event);
    }

    fn plan_in(&mut self, after: u64, event: ClusterEvent) {
        self.plan_at(self.now + after, event);
    }

    /// Counts something that the summary names.
    fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    fn fail(&self, what: String) {
        self.shared.fail(what);
    }

    fn has_failed(&self) -> bool {
        self.shared.failure.lock().is_some()
    }

    fn report(mut self, seed: u64) -> Report {
        let live = self.machines.iter().filter_map(|machine| machine.live.as_ref());
        let levels = live.filter_map(|live| {
            let opened = live.board.opened.lock();
            opened.as_ref().map(|opened| opened.driver.levels().in_force)
        });
        let raised = levels.filter(|level| *level == FORMAT_LEVEL_UNASKED).count() as u64;
        *self.happened.entry("instances with format level 2").or_default() += raised;
        let promises = self.shared.kept_promises.load(std::sync::atomic::Ordering::Relaxed);
        *self.happened.entry("terms and votes found synced").or_default() += promises;
        let history = self.shared.history.lock();
        Report {
            seed,
            failure: self.shared.failure.lock().clone(),
            fingerprint: self.world.switches() ^ history.acknowledged.rotate_left(32),
            simulated_us: self.now,
            peace_us: self.counts.peace_us,
            events: self.world.switches(),
            messages: history.puts.len() as u64,
            acknowledged: history.acknowledged,
            faults: self.counts.faults,
            starts: self.counts.starts,
            activations: self.counts.activations,
            copies: self.counts.copies,
            images: self.shared.compared_batches.load(std::sync::atomic::Ordering::Relaxed),
            compared: self.counts.compared,
            happened: self.happened,
        }
    }

    /// Writes a line of the trace, when it is read.
    fn tell(&self, line: std::fmt::Arguments<'_>) {
        trace::write(self.now, line);
    }
}

fn network_plan(plan: &Plan) -> LatencyPlan {
    LatencyPlan {
        delay_us: plan.network.delay_us,
        delay_more_us: plan.network.delay_more_us,
        slow_per_mille: plan.network.slow_per_mille,
        heartbeat_interval: plan.heartbeat_interval,
        heartbeat_timeout: plan.heartbeat_timeout,
        retry: Duration::from_millis(50),
        instances: 3,
    }
}

#[cfg(test)]
mod tests;
