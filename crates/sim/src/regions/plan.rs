//! What a seed draws before a run of two regions begins. Times are in microseconds.
//!
//! Not here: what happens when (the run).

use std::time::Duration;

use towline_types::SeededRandom;

use super::wires::RegionLatency;
use crate::cluster::network::LatencyPlan;

/// Instances of the two groups, by the number of the seed.
const SIZES: [[usize; 2]; 4] = [[1, 1], [3, 1], [3, 3], [1, 3]];

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegionFault {
    Kill,
    PowerCut,
    PowerCutOfRegion,
    /// A direction of the link.
    CutOneWay,
    CutBoth,
    Stall,
    Reset,
    Heal,
    /// Within a group.
    CutPair,
    SlowDisk,
}

/// All of them, with how often they come when they come at all.
const FAULTS: &[(RegionFault, u64)] = &[
    (RegionFault::Kill, 6),
    (RegionFault::PowerCut, 5),
    (RegionFault::PowerCutOfRegion, 2),
    (RegionFault::CutOneWay, 3),
    (RegionFault::CutBoth, 3),
    (RegionFault::Stall, 3),
    (RegionFault::Reset, 3),
    (RegionFault::Heal, 6),
    (RegionFault::CutPair, 3),
    (RegionFault::SlowDisk, 3),
];

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct RegionsPlan {
    pub(super) members: [usize; 2],
    pub(super) heartbeat_interval: Duration,
    pub(super) heartbeat_timeout: Duration,
    pub(super) group_delay_us: (u64, u64),
    pub(super) link: RegionLatency,
    pub(super) sync_us: (u64, u64),
    /// So many of a million operations of a disk end their process.
    pub(super) kills_ppm: u64,
    pub(super) faults: Vec<RegionFault>,
    pub(super) fault_every_us: u64,
    pub(super) order_every_us: u64,
    pub(super) restart_after_us: u64,
    pub(super) safety_us: u64,
    pub(super) clients: usize,
    pub(super) queues: usize,
    pub(super) wake_us: u64,
    /// Behind so many acts clients act less often.
    pub(super) acts_max: u64,
    pub(super) body_bytes_max: u64,
    pub(super) timed_per_mille: u64,
    /// How far the wall clocks of each region are ahead.
    pub(super) ahead_us: [i64; 2],
    pub(super) extents: u64,
    /// Bytes of log that live keeps for recovery.
    pub(super) log_bytes_behind_max: u64,
    pub(super) window_bytes: u64,
    pub(super) status_interval_ms: u64,
}

impl RegionsPlan {
    pub(super) fn draw(seed: u64, dice: &mut SeededRandom, extent_bytes: u64) -> RegionsPlan {
        let at = usize::try_from(seed % SIZES.len() as u64).unwrap_or(0);
        let members = SIZES[at];
        let interval_ms = dice.between(20, 200);
        let timeout_ms = interval_ms * dice.between(4, 8);
        let faulty = dice.between(0, 800);
        let faults = FAULTS.iter().filter(|_| dice.chance(faulty));
        let faults = faults.flat_map(|(fault, weight)| (0..*weight).map(|_| *fault)).collect();
        let sync_us = dice.between(20, 2_000);
        // Extents are filled, and let go, several times in a run.
        let is_large = dice.chance(400);
        let ahead = |dice: &mut SeededRandom| {
            let us = i64::try_from(dice.below(30_000_000)).unwrap_or(0);
            if dice.chance(500) { us } else { -us }
        };
        RegionsPlan {
            members,
            heartbeat_interval: Duration::from_millis(interval_ms),
            heartbeat_timeout: Duration::from_millis(timeout_ms),
            group_delay_us: (dice.between(20, 1_000), dice.between(20, 2_000)),
            link: RegionLatency {
                delay_us: dice.between(50, 40_000),
                delay_more_us: dice.between(20, 5_000),
                timeout_us: dice.between(500_000, 3_000_000),
                retry: Duration::from_millis(dice.between(100, 800)),
                members,
            },
            sync_us: (sync_us, sync_us + dice.between(20, 4_000)),
            kills_ppm: if dice.chance(400) { dice.between(1, 2_000) } else { 0 },
            faults,
            fault_every_us: dice.between(50_000, 1_500_000),
            order_every_us: dice.between(300_000, 3_000_000),
            restart_after_us: dice.between(10_000, 1_500_000),
            safety_us: dice.between(4_000_000, 16_000_000),
            clients: usize::try_from(dice.between(2, 5)).unwrap_or(2),
            queues: usize::try_from(dice.between(1, 3)).unwrap_or(1),
            wake_us: dice.between(5_000, 100_000),
            acts_max: dice.between(50, 500),
            body_bytes_max: if is_large {
                dice.between(4_000, 40_000)
            } else {
                dice.between(1, 600)
            },
            timed_per_mille: if dice.chance(500) { dice.below(200) } else { 0 },
            ahead_us: [ahead(dice), ahead(dice)],
            extents: if is_large { dice.between(16, 32) } else { 64 },
            log_bytes_behind_max: extent_bytes * dice.between(1, 8),
            window_bytes: 64 * 1024 * dice.between(1, 32),
            status_interval_ms: if dice.chance(300) { dice.between(10, 1_000) } else { 0 },
        }
    }

    /// The network within each region.
    pub(super) fn within(&self, region: usize) -> LatencyPlan {
        LatencyPlan {
            delay_us: self.group_delay_us.0,
            delay_more_us: self.group_delay_us.1,
            slow_per_mille: 0,
            heartbeat_interval: self.heartbeat_interval,
            heartbeat_timeout: self.heartbeat_timeout,
            retry: Duration::from_millis(50),
            instances: self.members[region],
        }
    }
}
