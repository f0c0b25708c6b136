//! Machines, and the processes on them: how they begin and end.
//!
//! Not here: what goes wrong on purpose (`faults`). Invariants: a machine has one process at a
//! time; what is on its disk outlives it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use towline_config::{Config, FirstRole, GroupConfig, MemberConfig, RegionCiphers};
use towline_os::simulated::fs::{DiskTiming, FileSystem, Operation, OperationKind};
use towline_os::simulated::{Process, ProcessEnd};
use towline_types::SeededRandom;

use super::disk_faults::{BUFFERED_PER_MILLE, DiskFaults};
use super::process::{Before, Board, End, ProcessArgs};
use super::rot::RottenByte;
use super::{Cluster, ClusterEvent, DATA, EXTENT_BYTES, RunPhase, process, promises};
use crate::client::queue_name;
use crate::plan::Plan;
use crate::served::disk_faults::LetDown;
use crate::served::messages;
use crate::served::people::Connections;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Bytes of a disk.
pub(super) const DISK_BYTES: u64 = 1 << 40;
/// Extents of a log that is not drawn small.
pub(super) const EXTENTS_MAX: u64 = 64;
/// In what an instance says of bytes that are not as they were written.
pub(super) const DAMAGED: &str = "the log is damaged";
/// A process that ended by itself is there again so much later, at most.
const AGAIN_US: u64 = 50_000;

/// One machine with one instance.
pub(super) struct Machine {
    pub(super) disk: FileSystem,
    pub(super) live: Option<Live>,
    pub(super) before: Before,
    pub(super) is_paused: bool,
    /// Its disk takes longer than planned.
    pub(super) is_slow: bool,
    /// Processes for which an operation of its disk failed, or that found it full.
    pub(super) let_down: Arc<LetDown>,
    /// Its disk has little free space for a while.
    pub(super) is_full: bool,
    /// The process that has its log, 0: none; and whether one renamed the log that it had.
    has_log: Arc<AtomicU64>,
    renamed_log: Arc<AtomicBool>,
    /// It has less on its disk than it acknowledged, and not caught up yet.
    pub(super) is_impaired: bool,
    /// Its disk as it was when some process had ended.
    pub(super) older: Option<FileSystem>,
    /// That of its clone.
    pub(super) clone: Option<FileSystem>,
    /// Its folder was put back, and no process on it has met both others.
    pub(super) is_put_back: bool,
    /// It stays down until an operator has replaced it.
    pub(super) awaits_operator: bool,
    /// A byte of its disk that changed by itself.
    pub(super) rotten: Option<RottenByte>,
    /// Starts in a row that were refused for a damaged log.
    pub(super) refused: u32,
    /// Extents of its log, at most.
    extents_max: u64,
    /// What its operator has configured.
    sizes: ConfiguredSizes,
    node: usize,
}

/// What each instance has configured for itself; an operator may change it between two starts.
#[derive(Clone, Copy)]
struct ConfiguredSizes {
    reserve_bytes: u64,
    cache_bytes: u64,
    writes_in_flight_max: usize,
    memory_bytes_max: u64,
}

impl ConfiguredSizes {
    fn draw(dice: &mut SeededRandom) -> ConfiguredSizes {
        ConfiguredSizes {
            reserve_bytes: dice.between(4, 6) * EXTENT_BYTES,
            cache_bytes: (64 * 1024) << dice.below(5),
            writes_in_flight_max: 1 + dice.index(8),
            memory_bytes_max: (512 * 1024) << dice.below(3),
        }
    }
}

/// A process.
pub(super) struct Live {
    pub(super) process: Process,
    pub(super) board: Arc<Board>,
    pub(super) connections: Connections,
    was_active: bool,
    pub(super) was_opened: bool,
}

impl Machine {
    pub(super) fn new(node: usize, plan: &Plan, dice: &mut SeededRandom) -> Machine {
        let machine = Machine {
            disk: FileSystem::new(),
            live: None,
            before: Before::default(),
            is_paused: false,
            is_slow: false,
            let_down: Arc::default(),
            is_full: false,
            has_log: Arc::default(),
            renamed_log: Arc::default(),
            is_impaired: false,
            older: None,
            clone: None,
            is_put_back: false,
            awaits_operator: false,
            rotten: None,
            refused: 0,
            extents_max: if dice.chance(150) { dice.between(10, 16) } else { EXTENTS_MAX },
            sizes: ConfiguredSizes::draw(dice),
            node,
        };
        machine.disk.set_bytes_max(DISK_BYTES);
        machine.set_timing(plan, 1);
        machine.disk.set_takes_direct(!dice.chance(BUFFERED_PER_MILLE));
        let (has_log, renamed) = (Arc::clone(&machine.has_log), Arc::clone(&machine.renamed_log));
        let watch = move |operation: &Operation<'_>| {
            let is_log = operation.path == Path::new(DATA).join("log");
            let is_renamed = is_log && operation.kind == OperationKind::Rename;
            if is_renamed && operation.process.0 == has_log.load(Ordering::Relaxed) {
                renamed.store(true, Ordering::Relaxed);
            }
        };
        DiskFaults::draw(dice).begin(&machine.disk, &machine.let_down, dice, watch);
        if crate::trace::is_wanted() {
            machine.disk.start_trace();
        }
        machine
    }

    /// How long its disk takes; `factor` times as long as planned.
    pub(super) fn set_timing(&self, plan: &Plan, factor: u64) {
        let disk = &plan.disk;
        self.disk.set_timing(DiskTiming {
            sync_us: (disk.sync_us * factor, (disk.sync_us + disk.sync_more_us) * factor),
            stalls_per_mille: disk.stall_per_mille / 10,
            stall_us: (disk.stall_us / 2, disk.stall_us),
            ..DiskTiming::default()
        });
    }

    /// Makes a log larger, from the next start on. Whether it was smaller.
    pub(super) fn enlarge_log(&mut self, extents: u64) -> bool {
        let before = self.extents_max;
        self.extents_max = before.max(extents);
        before < extents
    }

    fn config(&self, plan: &Plan) -> (Config, GroupConfig) {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(1);
        let member = |name: &str| MemberConfig {
            name: name.to_owned(),
            address: format!("{name}:1"),
            clients: Vec::new(),
            region_address: None,
        };
        let group = GroupConfig {
            name: "G".to_owned(),
            instance: NAMES[self.node].to_owned(),
            member: NAMES.map(member).to_vec(),
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
            role: FirstRole::Live,
            region_certificate: None,
            region_private_key: None,
            region_authorities: None,
            region_ciphers: RegionCiphers::Any,
            recovery: None,
        };
        let mut config = Config::default();
        config.log.extent_bytes = EXTENT_BYTES;
        config.log.log_bytes_max = self.extents_max * EXTENT_BYTES;
        config.log.reserve_bytes = self.sizes.reserve_bytes;
        config.log.cache_bytes = self.sizes.cache_bytes;
        config.log.writes_in_flight_max = self.sizes.writes_in_flight_max;
        config.queue_manager.memory_bytes_max = self.sizes.memory_bytes_max;
        config.group = Some(group.clone());
        (config, group)
    }
}

/// How often a start is one with another configuration.
const CONFIGURED_ANEW_PER_MILLE: u64 = 100;

impl Cluster {
    /// The process of an instance begins, unless there is one.
    pub(super) fn start(&mut self, node: usize) {
        let reads_level = self.versions.level(node, self.now);
        let machine = &mut self.machines[node];
        if machine.live.is_some() || machine.awaits_operator {
            return;
        }
        if self.dice.chance(CONFIGURED_ANEW_PER_MILLE) {
            machine.sizes = ConfiguredSizes::draw(&mut self.dice);
        }
        self.processes += 1;
        self.counts.starts += 1;
        let process = Process(self.processes);
        let board = Arc::new(Board::default());
        let (config, group) = machine.config(&self.plan);
        let args = ProcessArgs {
            data: PathBuf::from(DATA),
            config,
            group,
            this: node,
            network: Arc::clone(&self.network),
            region: None,
            before: std::mem::take(&mut machine.before),
            reads_level,
            queues: (0..self.plan.queues).map(queue_name).collect(),
            board: Arc::clone(&board),
        };
        if machine.is_full {
            machine.let_down.note(process);
        }
        self.shared.starts(node);
        self.network.starts(node, reads_level);
        self.world.mount(process, &machine.disk);
        let ahead_us = i64::try_from(self.plan.clock_us[node]).unwrap_or(0);
        self.world.set_wall_clock(process, ahead_us);
        self.world.start(process, "main", move || process::run(&args));
        let connections = Connections::new();
        machine.live =
            Some(Live { process, board, connections, was_active: false, was_opened: false });
        if self.machines[node].is_put_back {
            let longest = self.plan.heartbeat_timeout.as_micros();
            let longest = u64::try_from(longest).unwrap_or(u64::MAX);
            self.plan_in(longest, ClusterEvent::Meets { node, process: process.0 });
        }
        self.tell(format_args!("instance {node} starts as process {}", process.0));
    }

    /// Whether processes have ended: they are started again.
    pub(super) fn look_for_ends(&mut self) -> bool {
        let mut any = false;
        // This is looked at after each turn of a coroutine: nearly always nothing has changed.
        let ends = self.world.ends();
        let is_same = std::mem::replace(&mut self.ends, ends) == ends;
        for node in 0..3 {
            let machine = &mut self.machines[node];
            let is_renamed = machine.renamed_log.load(Ordering::Relaxed);
            let Some(live) = &mut machine.live else { continue };
            if !live.was_active && live.board.served.lock().is_some() {
                live.was_active = true;
                self.counts.activations += 1;
            }
            if !live.was_opened
                && let Some(opened) = live.board.opened.lock().clone()
            {
                live.was_opened = true;
                machine.refused = 0;
                machine.has_log.store(live.process.0, Ordering::Relaxed);
                *self.shared.replicas[node].lock() = Some(opened);
            }
            if is_renamed {
                self.fail(format!("instance {node} renames its log while its threads use it"));
                return true;
            }
            if is_same {
                continue;
            }
            let Some(end) = self.world.ended(live.process) else { continue };
            any = true;
            self.ended(node, &end);
        }
        any
    }

    fn ended(&mut self, node: usize, how: &ProcessEnd) {
        let Some(live) = self.machines[node].live.take() else { return };
        let may_fail = self.may_fail(node, live.process);
        let end = live.board.end.lock().take();
        let gave_up_vote = promises::kept(&self.machines[node].disk).is_some_and(|it| !it.may_vote);
        if gave_up_vote && std::mem::take(&mut self.machines[node].is_put_back) {
            // It recognised that itself.
            self.count("folders put back that were recognised");
        }
        self.forget(node, live);
        self.tell(format_args!("instance {node} ends: {how:?} {end:?}"));
        self.keep_older(node);
        // Perhaps no other instance could send the damaged batch; of sound bytes it is not said.
        let is_of_rot = |it: &String| self.machines[node].rotten.is_some() && it.contains(DAMAGED);
        if let Some(message) = messages::broken().filter(|it| !is_of_rot(it)) {
            return self.fail(format!("instance {node}: {message}"));
        }
        let mut pause = 1_000 + self.dice.below(AGAIN_US);
        match (how, end) {
            (ProcessEnd::Panicked(why), _) => return self.fail(format!("instance {node}: {why}")),
            // At an operation of its disk; the power of its machine may go with it.
            (ProcessEnd::Killed, _) if self.dice.chance(500) => {
                self.machines[node].disk.power_cut(&mut self.dice);
            }
            (ProcessEnd::Killed, _) => {}
            (ProcessEnd::Exited(_), Some(End::Again(before))) => {
                self.counts.copies += u64::from(before.copies_failed == 0);
                self.machines[node].before = before;
            }
            (ProcessEnd::Exited(_), Some(End::Stopped)) => {}
            (ProcessEnd::Exited(_), Some(End::TooOld)) => self.is_too_old(node),
            (ProcessEnd::Exited(_), Some(End::Refused(why))) => {
                if !may_fail {
                    return self.fail(format!("instance {node} does not start: {why}"));
                }
                self.refused(node, &why);
                pause += 500_000;
            }
            (ProcessEnd::Exited(status), None) => {
                if !may_fail {
                    let what = format!("instance {node} exits with {status}, its disk is sound");
                    return self.fail(what);
                }
            }
        }
        if self.phase == RunPhase::Over {
            return;
        }
        self.plan_in(pause, ClusterEvent::Start { node });
    }

    /// Whether its disk failed this process, or is damaged, so that what follows from that is no
    /// fault of the instance.
    fn may_fail(&self, node: usize, process: Process) -> bool {
        let machine = &self.machines[node];
        machine.let_down.has(process) || machine.rotten.is_some()
    }

    /// What others know of a process that is gone.
    fn forget(&mut self, node: usize, live: Live) {
        *self.shared.replicas[node].lock() = None;
        self.network.ended(node, true);
        self.machines[node].is_paused = false;
        drop(live);
        let cut: Vec<usize> = self
            .clients
            .iter()
            .filter(|client| client.connection.as_ref().is_some_and(|there| there.node == node))
            .map(|client| client.number)
            .collect();
        for client in cut {
            self.clients[client].lose(&mut self.shared.history.lock());
        }
    }

    /// Kills the process of an instance, with or without the power of its machine.
    pub(super) fn kill(&mut self, node: usize, power: bool) {
        if let Some(live) = self.machines[node].live.take() {
            self.world.resume(live.process);
            self.world.kill(live.process);
            self.forget(node, live);
        }
        if power {
            self.machines[node].disk.power_cut(&mut self.dice);
        }
        self.machines[node].before = Before::default();
        let after = 1 + self.dice.below(self.plan.restart_after_us);
        self.plan_in(after, ClusterEvent::Start { node });
    }
}
