//! The machines of both regions, and the processes on them: how they begin and end.
//!
//! Not here: what goes wrong on purpose (`faults`), roles (`operators`). Invariants: a machine has
//! one process at a time; what is on its disk outlives it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use towline_config::{Config, FirstRole, GroupConfig, MemberConfig, RecoveryConfig, RegionCiphers};
use towline_link::{RegionDialler, RegionInbox};
use towline_os::simulated::fs::{DiskTiming, FileSystem, Verdict};
use towline_os::simulated::{Process, ProcessEnd};
use towline_types::{FORMAT_LEVEL, SeededRandom};

use super::observer::{RegionSight, Sights};
use super::plan::RegionsPlan;
use super::ports::RegionPorts;
use super::wires::{MEMBERS_MAX, region_of};
use super::{EXTENT_BYTES, GROUPS, Regions, RegionsEvent, RunStage, observer};
use crate::client::queue_name;
use crate::cluster::process::{self, Before, Board, End, ProcessArgs, RegionPlug};
use crate::served::messages;

/// Names of the instances, by end.
pub(super) const NAMES: [&str; 2 * MEMBERS_MAX] = ["a", "b", "c", "x", "y", "z"];
const DATA: &str = "/qms";
const DISK_BYTES: u64 = 1 << 40;
/// A process that ended by itself is there again so much later, at most.
const AGAIN_US: u64 = 50_000;

/// One machine with one instance.
pub(super) struct RegionMachine {
    pub(super) disk: FileSystem,
    pub(super) live: Option<RegionProcess>,
    before: Before,
    /// It stays off until then.
    pub(super) off_until_us: u64,
}

/// A process.
pub(super) struct RegionProcess {
    pub(super) process: Process,
    pub(super) board: Arc<Board>,
    pub(super) sight: Arc<Mutex<Option<RegionSight>>>,
    is_observed: bool,
    was_active: bool,
}

impl RegionMachine {
    pub(super) fn new(plan: &RegionsPlan, dice: &mut SeededRandom) -> RegionMachine {
        let disk = FileSystem::new();
        disk.set_bytes_max(DISK_BYTES);
        let machine =
            RegionMachine { disk, live: None, before: Before::default(), off_until_us: 0 };
        machine.set_timing(plan, 1);
        let (kills_ppm, mut dice) = (plan.kills_ppm, SeededRandom::mixed(dice.next_u64()));
        machine.disk.set_faults(move |_| match dice.below(1_000_000) {
            drawn if drawn >= kills_ppm => Verdict::Goes,
            drawn if drawn % 2 == 0 => Verdict::KillsBefore,
            _ => Verdict::KillsAfter,
        });
        machine
    }

    /// How long its disk takes; `factor` times as long as planned.
    pub(super) fn set_timing(&self, plan: &RegionsPlan, factor: u64) {
        let (least, most) = plan.sync_us;
        let sync_us = (least * factor, most * factor);
        self.disk.set_timing(DiskTiming { sync_us, ..DiskTiming::default() });
    }
}

fn address(end: usize) -> String {
    format!("{}:2", NAMES[end])
}

fn ends_of(plan: &RegionsPlan, region: usize) -> impl Iterator<Item = usize> + use<> {
    let first = region * MEMBERS_MAX;
    first..first + plan.members[region]
}

/// The configuration of an instance; `role` is that of an empty log.
fn config(plan: &RegionsPlan, end: usize, role: FirstRole) -> (Config, GroupConfig) {
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(1);
    let region = region_of(end);
    let member = |end: usize| MemberConfig {
        name: NAMES[end].to_owned(),
        address: format!("{}:1", NAMES[end]),
        clients: Vec::new(),
        region_address: Some(address(end)),
    };
    let recovery = RecoveryConfig {
        name: GROUPS[1 - region].to_owned(),
        addresses: ends_of(plan, 1 - region).map(address).collect(),
        log_bytes_behind_max: plan.log_bytes_behind_max,
        window_bytes: plan.window_bytes,
        status_interval_ms: plan.status_interval_ms,
        short_retry_timer_ms: millis(plan.link.retry),
        ..RecoveryConfig::default()
    };
    let group = GroupConfig {
        name: GROUPS[region].to_owned(),
        instance: NAMES[end].to_owned(),
        member: ends_of(plan, region).map(member).collect(),
        certificate: PathBuf::new(),
        private_key: PathBuf::new(),
        authorities: PathBuf::new(),
        heartbeat_interval_ms: millis(plan.heartbeat_interval),
        heartbeat_timeout_ms: millis(plan.heartbeat_timeout),
        retry_interval_ms: 50,
        compression_threshold: 0,
        preferred_location: String::new(),
        preferred_delay_ms: 30_000,
        floating: None,
        role,
        region_certificate: None,
        region_private_key: None,
        region_authorities: None,
        region_ciphers: RegionCiphers::Any,
        recovery: Some(recovery),
    };
    let mut config = Config::default();
    config.log.extent_bytes = EXTENT_BYTES;
    config.log.log_bytes_max = plan.extents * EXTENT_BYTES;
    config.log.reserve_bytes = 4 * EXTENT_BYTES;
    config.log.cache_bytes = 1024 * 1024;
    config.log.writes_in_flight_max = 2;
    config.group = Some(group.clone());
    (config, group)
}

impl Regions {
    /// The ends of a region.
    pub(super) fn ends(&self, region: usize) -> impl Iterator<Item = usize> + use<> {
        ends_of(&self.plan, region)
    }

    /// The ends of both.
    pub(super) fn all_ends(&self) -> impl Iterator<Item = usize> + use<> {
        self.ends(0).chain(self.ends(1))
    }

    /// What was last seen of an instance that runs.
    pub(super) fn sight(&self, end: usize) -> Option<RegionSight> {
        self.machines[end].live.as_ref()?.sight.lock().clone()
    }

    /// The process of an instance begins, unless there is one.
    pub(super) fn start(&mut self, end: usize) {
        let region = region_of(end);
        let (now, plug) = (self.now, self.plug(end));
        let machine = &mut self.machines[end];
        if machine.live.is_some() {
            return;
        }
        if machine.off_until_us > now {
            let then = machine.off_until_us;
            return self.plan_at(then, RegionsEvent::Start { end });
        }
        self.processes += 1;
        self.counts.starts += 1;
        let process = Process(self.processes);
        let board = Arc::new(Board::default());
        let (config, group) = config(&self.plan, end, self.roles[region]);
        let this = end % MEMBERS_MAX;
        let args = ProcessArgs {
            data: PathBuf::from(DATA),
            config,
            group,
            this,
            network: Arc::clone(&self.within[region]),
            region: Some(plug),
            before: std::mem::take(&mut machine.before),
            reads_level: FORMAT_LEVEL,
            queues: (0..self.plan.queues).map(queue_name).collect(),
            board: Arc::clone(&board),
        };
        self.within[region].starts(this, FORMAT_LEVEL);
        self.world.mount(process, &machine.disk);
        self.world.set_wall_clock(process, self.plan.ahead_us[region]);
        self.world.start(process, "main", move || process::run(&args));
        let sight = Arc::default();
        machine.live =
            Some(RegionProcess { process, board, sight, is_observed: false, was_active: false });
        self.tell(format_args!("instance {} starts as process {}", NAMES[end], process.0));
    }

    /// The configuration of its group.
    pub(super) fn group(&self, end: usize) -> GroupConfig {
        config(&self.plan, end, self.roles[region_of(end)]).1
    }

    fn plug(&self, end: usize) -> RegionPlug {
        let wires = Arc::clone(&self.wires);
        Box::new(move |inbox: Arc<dyn RegionInbox>| {
            let ports = RegionPorts::start(&wires, (end, NAMES[end].to_owned()), inbox);
            Arc::new(ports) as Arc<dyn RegionDialler>
        })
    }

    /// Whether processes have ended, or opened: the ones are started again, the others looked at.
    pub(super) fn look_for_ends(&mut self) -> bool {
        let mut any = false;
        let ends = self.world.ends();
        let is_same = std::mem::replace(&mut self.ends_seen, ends) == ends;
        for end in self.all_ends() {
            let Some(live) = &mut self.machines[end].live else { continue };
            if !live.was_active && live.board.served.lock().is_some() {
                live.was_active = true;
                self.counts.activations += 1;
            }
            if !live.is_observed
                && let Some(opened) = live.board.opened.lock().clone()
                && let Some(part) = live.board.region.lock().clone()
            {
                live.is_observed = true;
                let sights = Sights {
                    end,
                    opened,
                    part,
                    board: Arc::clone(&live.board),
                    sight: Arc::clone(&live.sight),
                    logs: Arc::clone(&self.logs),
                    samples: Arc::clone(&self.samples),
                    counter: Arc::clone(&self.counter),
                };
                self.world.start(live.process, "observer", move || observer::look(&sights));
            }
            if is_same {
                continue;
            }
            let Some(how) = self.world.ended(live.process) else { continue };
            any = true;
            self.ended(end, &how);
        }
        any
    }

    fn ended(&mut self, end: usize, how: &ProcessEnd) {
        let Some(live) = self.machines[end].live.take() else { return };
        let verdict = live.board.end.lock().take();
        self.forget(end, true);
        self.tell(format_args!("instance {} ends: {how:?} {verdict:?}", NAMES[end]));
        if let Some(message) = messages::broken() {
            return self.fail(format!("instance {}: {message}", NAMES[end]));
        }
        match (how, verdict) {
            (ProcessEnd::Panicked(why), _) => {
                return self.fail(format!("instance {}: {why}", NAMES[end]));
            }
            (ProcessEnd::Killed, _) if self.dice.chance(500) => {
                self.machines[end].disk.power_cut(&mut self.dice);
            }
            (ProcessEnd::Killed, _) => {}
            (ProcessEnd::Exited(_), Some(End::Again(before))) => {
                self.machines[end].before = before;
            }
            (ProcessEnd::Exited(_), Some(End::Stopped)) => {}
            (ProcessEnd::Exited(_), Some(End::Refused(why))) => {
                return self.fail(format!("instance {} does not start: {why}", NAMES[end]));
            }
            (ProcessEnd::Exited(status), Some(End::TooOld) | None) => {
                let what = format!("instance {} exits with {status}", NAMES[end]);
                return self.fail(what);
            }
        }
        if self.stage != RunStage::Over {
            let pause = 1_000 + self.dice.below(AGAIN_US);
            self.plan_in(pause, RegionsEvent::Start { end });
        }
    }

    fn forget(&mut self, end: usize, notice: bool) {
        self.within[region_of(end)].ended(end % MEMBERS_MAX, notice);
        self.wires.ended(end, notice);
    }

    /// Kills the process of an instance, with or without the power of its machine; it is there
    /// again after a while, or when it is switched on.
    pub(super) fn kill(&mut self, end: usize, power: bool, off_us: u64) {
        self.tell(format_args!("instance {} is killed, power {power}, {off_us}", NAMES[end]));
        if let Some(live) = self.machines[end].live.take() {
            self.world.kill(live.process);
            self.forget(end, !power);
        }
        if power {
            self.machines[end].disk.power_cut(&mut self.dice);
        }
        let machine = &mut self.machines[end];
        machine.before = Before::default();
        machine.off_until_us = machine.off_until_us.max(self.now + off_us);
        let after = 1 + self.dice.below(self.plan.restart_after_us);
        self.plan_in(after, RegionsEvent::Start { end });
    }
}
