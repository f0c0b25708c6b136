//! What goes wrong, and what is done to a group on purpose.
//!
//! Not here: how often (the plan). Invariant: a disk is lost only while both others have all that the
//! group committed: more than that no group of three survives.

use towline_os::simulated::fs::FileSystem;

use super::{Cluster, Event, Phase};
use crate::plan::Fault;

impl Cluster {
    pub(super) fn fault(&mut self) {
        if self.phase != Phase::Safety || self.plan.faults.is_empty() {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.fault_every_us);
        self.plan_in(after, Event::Fault);
        let fault = self.plan.faults[self.dice.index(self.plan.faults.len())];
        let node = self.dice.index(3);
        let other = (node + 1 + self.dice.index(2)) % 3;
        self.tell(format_args!("FAULT {fault:?} {node} {other}"));
        self.counts.faults += 1;
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
                self.plan_in(after, Event::Heal);
            }
            Fault::SlowDisk => {
                let factor = self.dice.between(2, 60);
                self.machines[node].set_timing(&self.plan, factor);
                let after = self.dice.below(2_000_000);
                self.plan_in(after, Event::Quick { node });
            }
            Fault::ClockJump => {
                self.plan.clock_us[node] = self.dice.below(3_600_000_000);
            }
            Fault::LoseClients => {
                (0..self.clients.len()).for_each(|client| self.leave(client, true));
            }
            Fault::DiskLoss => self.lose_disk(node),
            _ => self.counts.faults -= 1,
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
        self.plan_in(after, Event::Resume { node });
    }

    pub(super) fn resume(&mut self, node: usize) {
        if let Some(live) = &self.machines[node].live {
            self.world.resume(live.process);
        }
        self.machines[node].is_paused = false;
    }

    /// The disk of a machine is replaced by an empty one, while both others are sound and have all.
    fn lose_disk(&mut self, node: usize) {
        if !self.others_have_all(node) {
            self.counts.faults -= 1;
            return;
        }
        self.kill(node, true);
        self.machines[node].disk.put_back(&FileSystem::new());
    }

    /// Whether both others may vote, follow, and have what is committed.
    fn others_have_all(&self, node: usize) -> bool {
        let pictures: Vec<_> = (0..3)
            .filter(|other| *other != node)
            .filter_map(|other| {
                let machine = &self.machines[other];
                let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
                live.board.group.lock().clone()
            })
            .collect();
        let own = self.machines[node].live.as_ref();
        let own = own.and_then(|live| live.board.group.lock().clone());
        let Some((own, _)) = own else { return false };
        pictures.len() == 2
            && pictures.iter().all(|(group, _)| group.may_vote && group.unheard.is_empty())
            && pictures.iter().all(|(group, _)| group.committed.index >= own.last.index)
            && pictures.iter().all(|(group, _)| group.term == own.term)
    }

    /// Faults have stopped: everything must come back.
    pub(super) fn peace(&mut self) {
        self.tell(format_args!("peace"));
        self.phase = Phase::Peace(self.now);
        self.heal();
        for node in 0..3 {
            self.resume(node);
            self.machines[node].set_timing(&self.plan, 1);
            self.machines[node].disk.clear_faults();
            self.machines[node].has_disk_faults = false;
            self.plan_in(0, Event::Start { node });
        }
        self.plan_in(0, Event::Look);
    }
}
