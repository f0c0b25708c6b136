//! What a seed draws before a run of a queue manager that is no group begins.
//!
//! Times are in microseconds.

use towline_types::SeededRandom;

use super::weather::{Crash, CrashPoint};
use crate::plan::Plan;
use crate::served::disk_faults::DiskFaults;

/// Bytes of an extent of the log: the least there is.
pub(super) const EXTENT_BYTES: u64 = 256 * 1024;
/// Bytes of a body, at most.
const BODY_BYTES_MAX: u64 = 40_000;
/// Seeds of one load in which a process crashes: operations, each in so many ways.
const CRASHES_OF_A_LOAD: u64 = 1_000_000;
/// Before and after it; killed, and three draws of a power cut.
const WAYS: u64 = 8;

/// One thing that goes wrong, or is done to the queue manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Kill,
    PowerCut,
    Pause,
    SlowDisk,
    ClockJump,
    LoseClients,
    /// An operator ends a process in order.
    Stop,
    /// No free space on the disk for a while.
    FullDisk,
    /// An operator has the queues rebuilt from the log.
    Rebuild,
    /// A bit of the page file flips.
    PageRot,
    /// For one machine the file system does not answer for a while.
    Away,
    /// For one machine every call fails for a while.
    Failing,
    /// The server of the file system forgets who has which lock.
    ForgetLocks,
    /// The hard state of the only instance of a group is lost, or what it noted as committed is.
    LoseHardState,
}

const TROUBLES: &[(Trouble, usize)] = &[
    (Trouble::Kill, 6),
    (Trouble::PowerCut, 4),
    (Trouble::Pause, 5),
    (Trouble::SlowDisk, 3),
    (Trouble::ClockJump, 2),
    (Trouble::LoseClients, 2),
    (Trouble::Stop, 4),
    (Trouble::FullDisk, 3),
    (Trouble::Rebuild, 2),
    (Trouble::PageRot, 1),
    (Trouble::Away, 3),
    (Trouble::Failing, 2),
    (Trouble::ForgetLocks, 1),
];

/// Everything that is drawn beforehand.
#[derive(Clone, Debug)]
pub(super) struct AlonePlan {
    pub(super) base: Plan,
    /// It is a group of one instance.
    pub(super) is_group: bool,
    /// Several machines with one file system, of which one is active at a time.
    pub(super) is_shared: bool,
    pub(super) machines: usize,
    pub(super) lease_us: u64,
    pub(super) takeover_by_lock: bool,
    pub(super) log_bytes_max: u64,
    pub(super) index_bytes_max: u64,
    pub(super) writes_in_flight_max: usize,
    pub(super) troubles: Vec<Trouble>,
    pub(super) disk_faults: DiskFaults,
    /// Zero: none.
    pub(super) image_every_us: u64,
    pub(super) backup_every_us: u64,
    /// The load is a short one, with a script, and one crash.
    pub(super) script: Option<Script>,
    pub(super) overtaken_per_mille: u64,
}

/// A run of which one operation of the file system is the last one of its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    pub(super) crash: Option<Crash>,
}

impl AlonePlan {
    pub(super) fn draw(dice: &mut SeededRandom) -> AlonePlan {
        let mut base = Plan::draw(dice);
        let is_shared = dice.chance(400);
        base.body_bytes_max =
            if dice.chance(500) { dice.between(1, 400) } else { dice.between(400, BODY_BYTES_MAX) };
        let faulty = dice.between(100, 900);
        let takeover_by_lock = dice.chance(500);
        let known: Vec<(Trouble, usize)> =
            TROUBLES.iter().filter(|_| dice.chance(faulty)).copied().collect();
        // A lock that its file system forgets proves nothing: the option is not for such ones.
        let known = known.into_iter().filter(|(trouble, _)| match trouble {
            Trouble::ForgetLocks => is_shared && !takeover_by_lock,
            Trouble::Away => is_shared,
            _ => true,
        });
        let troubles = known.flat_map(|(trouble, weight)| vec![trouble; weight]).collect();
        let every = |dice: &mut SeededRandom, often: u64, least: u64, most: u64| {
            if dice.chance(often) { dice.between(least, most) } else { 0 }
        };
        AlonePlan {
            is_group: false,
            is_shared,
            machines: if is_shared { usize::try_from(dice.between(2, 3)).unwrap_or(2) } else { 1 },
            lease_us: dice.between(200, 2_000) * 1_000,
            takeover_by_lock,
            log_bytes_max: EXTENT_BYTES * if dice.chance(400) { dice.between(6, 12) } else { 64 },
            index_bytes_max: dice.between(16, 1_024) * 1_024,
            writes_in_flight_max: dice.index(8) + 1,
            troubles,
            disk_faults: if dice.chance(500) {
                DiskFaults::draw(dice)
            } else {
                DiskFaults::default()
            },
            image_every_us: every(dice, 600, 50_000, 1_000_000),
            backup_every_us: every(dice, 500, 100_000, 1_500_000),
            script: None,
            overtaken_per_mille: if dice.chance(300) { dice.below(50) } else { 0 },
            base,
        }
    }

    /// The same for a group of one instance.
    pub(super) fn of_one(mut self) -> AlonePlan {
        (self.is_group, self.is_shared, self.machines) = (true, false, 1);
        let is_of_shared =
            |trouble: &Trouble| matches!(trouble, Trouble::Away | Trouble::ForgetLocks);
        self.troubles.retain(|trouble| !is_of_shared(trouble));
        if !self.troubles.is_empty() {
            self.troubles.extend([Trouble::LoseHardState; 2]);
        }
        self
    }

    /// The plan of one of the seeds that name a load and a crash in it.
    pub(super) fn of_crash(seed: u64) -> (u64, AlonePlan) {
        let (load, crash) = (seed / CRASHES_OF_A_LOAD, seed % CRASHES_OF_A_LOAD);
        let mut dice = SeededRandom::mixed(load);
        let mut plan = AlonePlan::draw(&mut dice);
        plan.is_shared = load % 2 == 1;
        plan.machines = if plan.is_shared { 2 } else { 1 };
        plan.lease_us = 400_000;
        plan.takeover_by_lock = load % 4 == 1;
        plan.log_bytes_max = 64 * EXTENT_BYTES;
        plan.troubles = Vec::new();
        plan.disk_faults = DiskFaults::default();
        plan.overtaken_per_mille = 0;
        (plan.image_every_us, plan.backup_every_us) = (0, 0);
        plan.base.disk.stall_per_mille = 0;
        plan.base.disk.sync_us = 200;
        plan.base.disk.sync_more_us = 400;
        plan.base.clients = 2;
        plan.base.wake_us = 20_000;
        plan.base.acts_max = 60;
        plan.base.restart_after_us = 20_000;
        plan.base.body_bytes_max = BODY_BYTES_MAX;
        plan.base.safety_us = if plan.is_shared { 6_000_000 } else { 3_000_000 };
        let way = crash % WAYS;
        let point = if way < WAYS / 2 { CrashPoint::Before } else { CrashPoint::After };
        let draw = way % (WAYS / 2);
        let number = crash / WAYS;
        let crash = Crash { operation: number, point, power_cut: (draw > 0).then_some(draw) };
        // The operation of number 0 never comes: the load runs to its end.
        plan.script = Some(Script { crash: (number > 0).then_some(crash) });
        (load, plan)
    }
}

/// The seed of a crash of a load.
pub(crate) fn crash_seed(load: u64, operation: u64, way: u64) -> u64 {
    load * CRASHES_OF_A_LOAD + operation * WAYS + way % WAYS
}
