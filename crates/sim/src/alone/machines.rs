//! Machines, and the processes on them: how they begin and end.
//!
//! Not here: what goes wrong on purpose (`troubles`). Invariant: a machine has one process at a
//! time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use towline_config::Config;
use towline_os::simulated::fs::DiskTiming;
use towline_os::simulated::{Process, ProcessEnd};
use towline_process::EXIT_LEASE_LOST;
use towline_types::SeededRandom;

use super::one;
use super::plan::EXTENT_BYTES;
use super::process::{self, AloneArgs, AloneBoard, ProcessVerdict};
use super::{Alone, AloneEvent, AlonePhase, DATA};
use crate::client::queue_name;
use crate::served::people::Connections;

/// A process that ended by itself is there again so much later, at most.
const AGAIN_US: u64 = 50_000;
/// How long clients go on after a crash of a load.
const AFTER_CRASH_US: u64 = 400_000;
/// And one whose start was refused.
const REFUSED_US: u64 = 500_000;

/// One machine.
#[derive(Default)]
pub(super) struct AloneMachine {
    pub(super) live: Option<LiveProcess>,
    pub(super) is_paused: bool,
    /// Its process may end by itself once: pages are damaged.
    pub(super) may_exit: bool,
    /// How far its wall clock is ahead.
    pub(super) ahead_us: u64,
}

/// A process.
pub(super) struct LiveProcess {
    pub(super) process: Process,
    pub(super) board: Arc<AloneBoard>,
    pub(super) connections: Connections,
    /// The disk was full, or nearly, while it ran.
    pub(super) space_was_short: bool,
    was_active: bool,
}

impl Alone {
    /// How long the disk takes; `factor` times as long as planned.
    pub(super) fn set_timing(&mut self, factor: u64) {
        let disk = &self.plan.base.disk;
        let (slowest, stalls) = ((disk.sync_us + disk.sync_more_us) * factor, disk.stall_per_mille);
        self.disk.set_timing(DiskTiming {
            sync_us: (disk.sync_us * factor, slowest),
            stalls_per_mille: stalls / 10,
            stall_us: (disk.stall_us / 2, disk.stall_us),
            ..DiskTiming::default()
        });
        // A lease is renewed by a few operations, one behind the other.
        let slow = (slowest + if stalls >= 10 { 2 * disk.stall_us } else { 0 }) * 8;
        if slow > self.plan.lease_us {
            (0..self.machines.len()).for_each(|node| self.disturb(node));
        }
    }

    /// From now on the process of a machine may end, and its start be refused.
    pub(super) fn disturb(&self, node: usize) {
        self.ledger.disturbed[node].store(true, Ordering::Relaxed);
    }

    pub(super) fn is_disturbed(&self, node: usize) -> bool {
        self.ledger.disturbed[node].load(Ordering::Relaxed)
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::default();
        config.log.extent_bytes = EXTENT_BYTES;
        // An operator makes a log larger that is full.
        let is_safe = self.phase == AlonePhase::Safety;
        config.log.log_bytes_max =
            if is_safe { self.plan.log_bytes_max } else { 1_024 * EXTENT_BYTES };
        config.log.reserve_bytes = EXTENT_BYTES;
        config.log.cache_bytes = 256 * 1024;
        config.log.writes_in_flight_max = self.plan.writes_in_flight_max;
        config.queue_manager.memory_bytes_max = 1024 * 1024;
        config.queue_manager.index_bytes_max = self.plan.index_bytes_max;
        config.shared.lease_ms = u32::try_from(self.plan.lease_us / 1_000).unwrap_or(u32::MAX);
        config.shared.takeover_by_lock = self.plan.takeover_by_lock;
        config
    }

    pub(super) fn queues(&self) -> Vec<String> {
        (0..self.plan.base.queues).map(queue_name).collect()
    }

    /// The process of a machine begins, unless there is one.
    pub(super) fn start(&mut self, node: usize) {
        if self.machines[node].live.is_some() {
            return;
        }
        self.processes += 1;
        self.counts.starts += 1;
        let process = Process(self.processes);
        let board = Arc::new(AloneBoard::default());
        let args = AloneArgs {
            data: PathBuf::from(DATA),
            config: self.config(),
            shared_name: self.plan.is_shared.then(|| format!("machine-{node}:{}", process.0)),
            number: process.0,
            queues: self.queues(),
            board: Arc::clone(&board),
        };
        self.world.mount(process, &self.disk);
        self.weather.watch(process, &self.ledger.disturbed[node]);
        let ahead_us = i64::try_from(self.machines[node].ahead_us).unwrap_or(0);
        self.world.set_wall_clock(process, ahead_us);
        let run = if self.plan.is_group { one::run } else { process::run };
        self.world.start(process, "main", move || run(&args));
        let connections = Connections::new();
        let space_was_short = self.disk.bytes_free() < super::DISK_BYTES / 2;
        self.machines[node].live =
            Some(LiveProcess { process, board, connections, space_was_short, was_active: false });
        self.tell(format_args!("machine {node} starts process {}", process.0));
    }

    /// Whether processes have ended: they are started again.
    pub(super) fn look_for_ends(&mut self) -> bool {
        let mut any = false;
        for node in 0..self.machines.len() {
            let Some(live) = &mut self.machines[node].live else { continue };
            if !live.was_active && live.board.served.lock().is_some() {
                live.was_active = true;
                self.counts.activations += 1;
                let process = live.process.0;
                self.tell(format_args!("machine {node} serves, process {process}"));
            }
            let process = self.machines[node].live.as_ref().map(|live| live.process);
            let end = process.and_then(|process| self.world.ended(process));
            if let Some(end) = end {
                any = true;
                self.ended(node, &end);
            }
        }
        any
    }

    fn ended(&mut self, node: usize, how: &ProcessEnd) {
        let Some(live) = self.machines[node].live.take() else { return };
        let was_short = live.space_was_short;
        let end = live.board.end.lock().take();
        self.forget(node, live);
        self.tell(format_args!("machine {node}: its process ends: {how:?} {end:?}"));
        let mut pause = 1_000 + self.dice.below(AGAIN_US);
        match (how, &end) {
            (ProcessEnd::Panicked(why), _) => return self.fail(format!("machine {node}: {why}")),
            // By its disk.
            (ProcessEnd::Killed, _) => self.crashed(),
            (ProcessEnd::Exited(_), Some(ProcessVerdict::Stopped)) => {}
            (ProcessEnd::Exited(_), Some(ProcessVerdict::Refused(why))) => {
                // What others left of the disk does not hold what a takeover copies.
                let may_be = self.is_disturbed(node) || (was_short && why.contains("No space"));
                if !may_be {
                    return self.fail(format!("machine {node} does not start: {why}"));
                }
                pause += REFUSED_US;
            }
            (ProcessEnd::Exited(status), None) => {
                let may_exit = std::mem::take(&mut self.machines[node].may_exit);
                if !may_exit && !self.is_disturbed(node) {
                    let lease = if *status == EXIT_LEASE_LOST { " (lease)" } else { "" };
                    let what = format!("machine {node} exits with {status}{lease}, without cause");
                    return self.fail(what);
                }
            }
        }
        if self.phase != AlonePhase::Over {
            self.plan_in(pause, AloneEvent::Start { node });
        }
    }

    /// A process crashed at one of its operations.
    fn crashed(&mut self) {
        let Some(crash) = self.weather.take_crash() else {
            // At an operation of its disk; the power of its machine may go with it.
            if self.dice.chance(500) {
                self.power_cut();
            }
            return;
        };
        self.tell(format_args!("{crash:?}"));
        self.counts.faults += 1;
        // What comes after it is not the load any more.
        self.plan_in(AFTER_CRASH_US, AloneEvent::Peace);
        if let Some(draw) = crash.power_cut {
            (0..self.machines.len()).for_each(|node| self.kill(node));
            self.disk.power_cut(&mut SeededRandom::mixed(draw));
        }
    }

    /// What others know of a process that is gone.
    fn forget(&mut self, node: usize, live: LiveProcess) {
        self.machines[node].is_paused = false;
        self.weather.away(live.process, None);
        drop(live);
        for client in &mut self.clients {
            if client.connection.as_ref().is_some_and(|there| there.node == node) {
                client.lose(&mut self.ledger.history.lock());
            }
        }
    }

    /// Kills the process of a machine.
    pub(super) fn kill(&mut self, node: usize) {
        if let Some(live) = self.machines[node].live.take() {
            self.world.resume(live.process);
            self.world.kill(live.process);
            self.forget(node, live);
        }
        let after = 1 + self.dice.below(self.plan.base.restart_after_us);
        self.plan_in(after, AloneEvent::Start { node });
    }

    /// The power of all goes, that of the disk too.
    pub(super) fn power_cut(&mut self) {
        (0..self.machines.len()).for_each(|node| self.kill(node));
        self.disk.power_cut(&mut self.dice);
    }
}
