//! The simulator: whole queue managers in one thread, with their disks, their network, their clocks
//! and their clients, everything decided by a seed.
//!
//! There are two kinds of simulation. The model ([`run`]) has the real rules (`core`, `node`) and
//! the real consensus (`group`) over stand-ins for all that waits for a disk: `plan` (what a seed
//! draws beforehand), `world` (what happens), `process`, `disk`, `network`, `journal` (the parts).
//! The whole ([`run_cluster`], [`run_alone`], [`run_crash`]: `cluster`, `alone`) has everything
//! below the sockets as it is, on the threads and files of `towline_os::simulated`; `served` is
//! what both have before their doors. `client`, `history` (what was promised) and `view` (what an
//! instance holds) belong to all.
//!
//! Not here: AMQP, sockets, signals.

#![forbid(unsafe_code)]

mod agenda;
mod alone;
mod client;
mod cluster;
mod disk;
pub mod file_operations;
mod history;
mod journal;
mod network;
mod plan;
mod process;
mod regions;
mod runs;
mod served;
mod trace;
mod view;
mod world;

pub use trace::last_events;

use std::collections::BTreeMap;

use world::World;

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Repeats it.
    pub seed: u64,
    /// The rule that was broken, in words; `None`: none.
    pub failure: Option<String>,
    /// The same for every run of the seed.
    pub fingerprint: u64,
    /// Simulated time, in microseconds.
    pub simulated_us: u64,
    /// Time that the group needed to come back after the last fault, in microseconds.
    pub peace_us: u64,
    /// Things that happened.
    pub events: u64,
    /// Messages that clients put.
    pub messages: u64,
    /// Puts, gets and commits that were acknowledged.
    pub acknowledged: u64,
    /// Faults.
    pub faults: u64,
    /// Processes that were started.
    pub starts: u64,
    /// How often an instance became active.
    pub activations: u64,
    /// Copies of a disk that a member got.
    pub copies: u64,
    /// Images taken.
    pub images: u64,
    /// Replicas that were compared with the log.
    pub compared: u64,
    /// What happened how often, by name: faults that had their effect, and what operators did.
    pub happened: BTreeMap<&'static str, u64>,
}

/// In [`Report::happened`]: the log of an active took no run for a while.
pub const LOG_BEHIND: &str = "a log was behind";

/// Runs one seed. `traced`: [`last_events`] says what happened, at some cost.
///
/// # Panics
/// When an assertion of the code under test is broken.
#[must_use]
pub fn run(seed: u64, traced: bool) -> Report {
    trace::begin(traced);
    let mut world = World::new(seed);
    trace::write(0, format_args!("{:?}", world.plan));
    world.run();
    let counts = world.counts;
    Report {
        seed,
        failure: world.failure,
        fingerprint: world.fingerprint,
        simulated_us: world.now,
        peace_us: counts.peace_us,
        events: counts.events,
        messages: world.history.puts.len() as u64,
        acknowledged: world.history.acknowledged,
        faults: counts.faults,
        starts: counts.starts,
        activations: counts.activations,
        copies: counts.copies,
        images: counts.images,
        compared: counts.compared,
        happened: BTreeMap::from([(LOG_BEHIND, counts.logs_behind)]),
    }
}

/// Runs one seed of the cluster: the same with the whole code below the sockets.
#[must_use]
pub fn run_cluster(seed: u64, traced: bool) -> Report {
    begin(traced);
    cluster::run(seed)
}

/// Runs one seed of two regions, each with a group, whole.
#[must_use]
pub fn run_regions(seed: u64, traced: bool) -> Report {
    begin(traced);
    regions::run(seed)
}

/// Runs one seed of a queue manager that is no group: one instance, or several processes with one
/// file system; with backups and restores.
#[must_use]
pub fn run_alone(seed: u64, traced: bool) -> Report {
    begin(traced);
    alone::run(seed)
}

/// Runs a short load of such a queue manager, which crashes at one operation of a file; the seed
/// names load, operation, and how (see [`crash_seed`]).
#[must_use]
pub fn run_crash(seed: u64, traced: bool) -> Report {
    begin(traced);
    alone::run_crash(seed)
}

/// Runs one seed of a group of one instance.
#[must_use]
pub fn run_one(seed: u64, traced: bool) -> Report {
    begin(traced);
    alone::run_one(seed)
}

/// Runs a short load of a group of one instance with a crash, as [`run_crash`].
#[must_use]
pub fn run_one_crash(seed: u64, traced: bool) -> Report {
    begin(traced);
    alone::run_one_crash(seed)
}

/// The seed of [`run_crash`] for a load, an operation (from 1; 0: no crash) and one of 8 ways.
#[must_use]
pub fn crash_seed(load: u64, operation: u64, way: u64) -> u64 {
    alone::crash_seed(load, operation, way)
}

fn begin(traced: bool) {
    trace::begin(traced);
    if traced {
        // Messages of the instances, when TOWLINE_LOG says so.
        towline_logging::start().ok();
    }
}

#[cfg(test)]
mod tests;
