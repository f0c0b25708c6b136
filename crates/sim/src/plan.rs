//! What a seed draws before a run begins: how slow, how lossy, how faulty.
//!
//! Every run draws its own ranges, and leaves some faults out altogether: a run with all faults at
//! once hides what one fault alone would show.
//!
//! Times are in microseconds.

use std::time::Duration;

use towline_types::SeededRandom;

/// How the network is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkPlan {
    pub(crate) delay_us: u64,
    pub(crate) delay_more_us: u64,
    /// So many of a thousand messages take far longer.
    pub(crate) slow_per_mille: u64,
    pub(crate) loss_per_mille: u64,
    pub(crate) duplicate_per_mille: u64,
    /// As on one TCP connection; otherwise messages overtake each other.
    pub(crate) ordered: bool,
    /// What is sent into a cut arrives when it heals, rather than being lost.
    pub(crate) cuts_hold: bool,
}

/// How the disks are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskPlan {
    pub(crate) sync_us: u64,
    pub(crate) sync_more_us: u64,
    pub(crate) stall_per_mille: u64,
    pub(crate) stall_us: u64,
    /// A batch is closed at once, not when the disk is free.
    pub(crate) eager: bool,
}

/// One thing that goes wrong, or is done to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    PowerCut,
    PowerCutOfAll,
    Pause,
    CutOneWay,
    CutPair,
    Isolate,
    Heal,
    ResetConnection,
    Flapping,
    SlowDisk,
    DiskLoss,
    BitRot,
    ClockJump,
    Upgrade,
    Transfer,
    LoseClients,
    LogFull,
    LogLoss,
    OlderLog,
    OlderHardState,
    OlderFolder,
    ClonedFolder,
    FolderOfAnother,
}

/// All of them, with how often they come when they come at all.
const FAULTS: &[(Fault, u64)] = &[
    (Fault::Kill, 6),
    (Fault::PowerCut, 4),
    (Fault::PowerCutOfAll, 1),
    (Fault::Pause, 5),
    (Fault::CutOneWay, 4),
    (Fault::CutPair, 4),
    (Fault::Isolate, 5),
    (Fault::Heal, 8),
    (Fault::ResetConnection, 3),
    (Fault::Flapping, 2),
    (Fault::SlowDisk, 4),
    (Fault::DiskLoss, 2),
    (Fault::BitRot, 2),
    (Fault::ClockJump, 2),
    (Fault::Upgrade, 2),
    (Fault::Transfer, 4),
    (Fault::LoseClients, 2),
    (Fault::LogFull, 2),
    (Fault::LogLoss, 2),
    (Fault::OlderLog, 2),
    (Fault::OlderHardState, 1),
    (Fault::OlderFolder, 3),
    (Fault::ClonedFolder, 4),
    (Fault::FolderOfAnother, 1),
];

/// Everything that is drawn beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) tick: Duration,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) network: NetworkPlan,
    pub(crate) disk: DiskPlan,
    /// Those that this run knows; a fault is one of them.
    pub(crate) faults: Vec<Fault>,
    pub(crate) fault_every_us: u64,
    pub(crate) restart_after_us: u64,
    pub(crate) safety_us: u64,
    pub(crate) clients: usize,
    pub(crate) queues: usize,
    pub(crate) wake_us: u64,
    pub(crate) client_delay_us: u64,
    pub(crate) acts_max: u64,
    pub(crate) body_bytes_max: u64,
    pub(crate) unit_staged_bytes_max: u64,
    pub(crate) batch_bytes: usize,
    /// Bytes that wait for the disk of an active, beyond which its log takes no run.
    pub(crate) log_waiting_bytes_max: usize,
    pub(crate) extent_bytes: u64,
    /// Zero: no images.
    pub(crate) image_every_us: u64,
    /// So many of a thousand images let the log before them be forgotten.
    pub(crate) forget_per_mille: u64,
    /// Parts per million by which each clock is off, and its distance from the others at start.
    pub(crate) drift_ppm: [i64; 3],
    pub(crate) clock_us: [u64; 3],
    /// A copy begins with emptying the disk.
    pub(crate) copy_wipes_first: bool,
    pub(crate) reconnect_us: u64,
}

impl Plan {
    pub(crate) fn draw(dice: &mut SeededRandom) -> Plan {
        let interval_ms = dice.between(20, 250);
        let timeout_ms = interval_ms * dice.between(4, 8);
        let faulty = dice.between(100, 900);
        let faults = FAULTS.iter().filter(|_| dice.chance(faulty));
        let faults: Vec<(Fault, u64)> = faults.copied().collect();
        let weighted = faults.iter().flat_map(|(fault, weight)| (0..*weight).map(|_| *fault));
        let drift = |dice: &mut SeededRandom| {
            let ppm = i64::try_from(dice.below(20_000)).unwrap_or(0);
            if dice.chance(500) { ppm } else { -ppm }
        };
        let rare = |dice: &mut SeededRandom, most: u64| {
            if dice.chance(400) { dice.below(most) } else { 0 }
        };
        let mut plan = Plan {
            tick: Duration::from_millis((interval_ms / 4).max(5)),
            heartbeat_interval: Duration::from_millis(interval_ms),
            heartbeat_timeout: Duration::from_millis(timeout_ms),
            network: NetworkPlan {
                delay_us: dice.between(20, 1_000),
                delay_more_us: dice.between(20, 3_000),
                slow_per_mille: rare(dice, 50),
                loss_per_mille: rare(dice, 100),
                duplicate_per_mille: rare(dice, 200),
                ordered: dice.chance(700),
                cuts_hold: dice.chance(500),
            },
            disk: DiskPlan {
                sync_us: dice.between(20, 2_000),
                sync_more_us: dice.between(20, 5_000),
                stall_per_mille: rare(dice, 20),
                stall_us: dice.between(10_000, 800_000),
                eager: dice.chance(300),
            },
            faults: weighted.collect(),
            fault_every_us: dice.between(20_000, 600_000),
            restart_after_us: dice.between(10_000, 1_500_000),
            safety_us: dice.between(1_000_000, 8_000_000),
            clients: usize::try_from(dice.between(2, 6)).unwrap_or(2),
            queues: usize::try_from(dice.between(1, 3)).unwrap_or(1),
            wake_us: dice.between(1_000, 40_000),
            client_delay_us: dice.between(20, 2_000),
            acts_max: dice.between(20, 200),
            // Seldom so large that bodies go in chunks, and that one message does not hold a
            // backlog.
            body_bytes_max: if dice.chance(10) { 600_000 } else { dice.between(1, 400) },
            unit_staged_bytes_max: if dice.chance(500) { dice.below(300) } else { 1 << 20 },
            batch_bytes: usize::try_from(dice.between(64, 4_096)).unwrap_or(64),
            log_waiting_bytes_max: usize::MAX,
            extent_bytes: 1 << dice.between(12, 16),
            image_every_us: if dice.chance(700) { dice.between(50_000, 1_000_000) } else { 0 },
            forget_per_mille: dice.below(1_000),
            drift_ppm: [drift(dice), drift(dice), drift(dice)],
            clock_us: std::array::from_fn(|_| dice.below(3_600_000_000)),
            copy_wipes_first: dice.chance(500),
            reconnect_us: dice.between(20_000, 200_000),
        };
        // By what is drawn already: one more draw would change what each seed means.
        if plan.batch_bytes.is_multiple_of(4) {
            plan.log_waiting_bytes_max = plan.batch_bytes / 2;
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_comes_in_some_run_and_none_in_all() {
        let plans: Vec<Plan> =
            (0..200).map(|seed| Plan::draw(&mut SeededRandom::mixed(seed))).collect();
        for (fault, _) in FAULTS {
            let with = plans.iter().filter(|plan| plan.faults.contains(fault)).count();
            assert!((20..180).contains(&with), "{fault:?} in {with} of 200 runs");
        }
    }
}
