//! What goes wrong, and what is done to a group on purpose.
//!
//! Not here: how often (the plan); what goes wrong with disks (`disks`, `rot`).

use super::disks::Loss;
use super::machines::EXTENTS_MAX;
use super::{Cluster, ClusterEvent, RunPhase};
use crate::plan::Fault;
use crate::served::people::People;

/// How often a loss is tried that the group would not survive at once, and how long between two.
const DRAWS_MAX: u32 = 8;
const DRAWN_AGAIN_US: u64 = 60_000;

impl Cluster {
    pub(super) fn fault(&mut self) {
        if self.phase != RunPhase::Safety || self.plan.faults.is_empty() {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.fault_every_us);
        self.plan_in(after, ClusterEvent::Fault);
        let fault = self.plan.faults[self.dice.index(self.plan.faults.len())];
        let node = self.dice.index(3);
        let other = (node + 1 + self.dice.index(2)) % 3;
        self.draw(fault, node, other, DRAWS_MAX);
    }

    /// Does it, or tries again a little later when the group would not survive it now.
    pub(super) fn draw(&mut self, fault: Fault, node: usize, other: usize, tries: u32) {
        if self.phase != RunPhase::Safety {
            return;
        }
        self.tell(format_args!("FAULT {fault:?} {node} {other}"));
        if self.is_done(fault, node, other) {
            self.counts.faults += 1;
        } else if let Some(tries) = tries.checked_sub(1) {
            self.plan_in(DRAWN_AGAIN_US, ClusterEvent::Drawn { fault, node, other, tries });
        }
    }

    /// Whether it was done.
    fn is_done(&mut self, fault: Fault, node: usize, other: usize) -> bool {
        match fault {
            Fault::Kill => self.kill(node, false),
            Fault::PowerCut => self.kill(node, true),
            Fault::PowerCutOfAll => (0..3).for_each(|node| self.kill(node, true)),
            Fault::Pause => self.pause(node),
            Fault::CutOneWay => self.network.cut(node, other, true),
            Fault::CutPair => self.cut_pair(node, other),
            Fault::Isolate => {
                self.cut_pair(node, (node + 1) % 3);
                self.cut_pair(node, (node + 2) % 3);
            }
            Fault::Heal => self.heal(),
            Fault::ResetConnection => self.network.reset(node, other),
            Fault::Flapping => {
                self.cut_pair(node, other);
                let after = self.dice.below(200_000);
                self.plan_in(after, ClusterEvent::Heal);
            }
            Fault::SlowDisk => {
                let factor = self.dice.between(2, 60);
                self.machines[node].set_timing(&self.plan, factor);
                self.machines[node].is_slow = true;
                let after = self.dice.below(2_000_000);
                self.plan_in(after, ClusterEvent::Quick { node });
            }
            Fault::ClockJump => {
                self.plan.clock_us[node] = self.dice.below(3_600_000_000);
            }
            Fault::LoseClients => {
                (0..self.clients.len()).for_each(|client| self.leave(client, true));
            }
            Fault::DiskLoss => return self.lose(node, Loss::Disk),
            Fault::LogLoss => return self.lose(node, Loss::Log),
            Fault::OlderLog => return self.lose(node, Loss::OlderLog),
            Fault::OlderHardState => return self.lose(node, Loss::OlderHardState),
            Fault::FolderOfAnother => return self.lose(node, Loss::OfAnother(other)),
            Fault::OlderFolder => return self.lose(node, Loss::OlderFolder),
            Fault::ClonedFolder => return self.lose(node, Loss::Clone),
            Fault::LogFull => self.fill(node),
            Fault::Upgrade => return self.lose(node, Loss::Replaced),
            Fault::Transfer => self.stop_in_order(node),
            Fault::BitRot => return self.rot(node),
        }
        true
    }

    /// An operator ends a process in order: an active one hands over before.
    pub(super) fn stop_in_order(&mut self, node: usize) {
        if let Some(live) = &self.machines[node].live {
            live.board.stop.notify_one();
        }
    }

    fn cut_pair(&mut self, one: usize, other: usize) {
        self.network.cut(one, other, true);
        self.network.cut(other, one, true);
    }

    pub(super) fn heal(&mut self) {
        for from in 0..3 {
            (0..3).for_each(|to| self.network.cut(from, to, false));
        }
    }

    fn pause(&mut self, node: usize) {
        let longest = u64::try_from(self.plan.heartbeat_timeout.as_micros()).unwrap_or(0) * 3;
        let after = self.dice.below(longest);
        let Some(live) = &self.machines[node].live else { return };
        self.world.pause(live.process);
        self.machines[node].is_paused = true;
        self.plan_in(after, ClusterEvent::Resume { node });
    }

    pub(super) fn resume(&mut self, node: usize) {
        if let Some(live) = &self.machines[node].live {
            self.world.resume(live.process);
        }
        self.machines[node].is_paused = false;
    }

    /// Faults have stopped: everything must come back.
    pub(super) fn peace(&mut self) {
        self.tell(format_args!("peace"));
        self.phase = RunPhase::Peace(self.now);
        self.heal();
        if u128::from(self.plan.disk.stall_us) >= self.plan.heartbeat_timeout.as_micros() {
            // A disk that stalls so long takes the group from its leader: a fault as others are.
            self.plan.disk.stall_per_mille = 0;
        }
        for node in 0..3 {
            self.resume(node);
            self.machines[node].set_timing(&self.plan, 1);
            self.machines[node].is_slow = false;
            self.machines[node].disk.clear_faults();
            self.empty(node);
            if self.machines[node].enlarge_log(EXTENTS_MAX) {
                // An operator makes a small log larger, which needs a start.
                self.count("small logs");
                self.kill(node, false);
            }
            self.plan_in(0, ClusterEvent::Start { node });
        }
        self.plan_in(0, ClusterEvent::Look);
    }
}
