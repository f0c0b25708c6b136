//! What goes wrong, and what is done to a queue manager on purpose.
//!
//! Not here: how often (the plan); single operations (`weather`).

use super::plan::Trouble;
use super::weather::Away;
use super::{Alone, AloneEvent, AlonePhase, DATA, DISK_BYTES};
use crate::served::people::People;

impl Alone {
    pub(super) fn trouble(&mut self) {
        if self.phase != AlonePhase::Safety {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.base.fault_every_us);
        self.plan_in(after, AloneEvent::Trouble);
        let trouble = self.plan.troubles[self.dice.index(self.plan.troubles.len())];
        let node = self.dice.index(self.machines.len());
        self.tell(format_args!("TROUBLE {trouble:?} {node}"));
        self.counts.faults += 1;
        match trouble {
            Trouble::Kill => self.kill(node),
            Trouble::PowerCut => self.power_cut(),
            Trouble::Pause => self.pause(node),
            Trouble::SlowDisk => {
                let factor = self.dice.between(2, 60);
                self.set_timing(factor);
                let after = self.dice.below(2_000_000);
                self.plan_in(after, AloneEvent::Quick);
            }
            Trouble::ClockJump => self.jump(node),
            Trouble::LoseClients => {
                (0..self.clients.len()).for_each(|client| self.leave(client, true));
            }
            Trouble::Stop => self.stop(node),
            Trouble::FullDisk => self.fill(),
            Trouble::Rebuild => self.rebuild(),
            Trouble::PageRot => self.rot(),
            Trouble::Away => {
                let after = self.dice.below(3 * self.plan.lease_us);
                self.set_away(node, Away::Until(self.now + after), after);
            }
            Trouble::Failing => {
                let after = self.dice.below(3 * self.plan.lease_us);
                self.set_away(node, Away::Fails, after);
            }
            Trouble::ForgetLocks => self.disk.forget_locks(),
            Trouble::LoseHardState => self.lose_hard_state(node),
        }
    }

    fn jump(&mut self, node: usize) {
        let ahead_us = self.dice.below(3_600_000_000);
        self.machines[node].ahead_us = ahead_us;
        if let Some(live) = &self.machines[node].live {
            self.world.set_wall_clock(live.process, i64::try_from(ahead_us).unwrap_or(0));
        }
    }

    /// An operator ends a process in order.
    pub(super) fn stop(&mut self, node: usize) {
        if let Some(live) = &self.machines[node].live {
            live.board.stop.notify_one();
        }
    }

    fn pause(&mut self, node: usize) {
        let after = self.dice.below(4 * self.plan.lease_us);
        let Some(live) = &self.machines[node].live else { return };
        self.world.pause(live.process);
        self.machines[node].is_paused = true;
        if self.plan.is_shared {
            self.disturb(node);
        }
        self.plan_in(after, AloneEvent::Resume { node });
    }

    pub(super) fn resume(&mut self, node: usize) {
        if let Some(live) = &self.machines[node].live {
            self.world.resume(live.process);
        }
        self.machines[node].is_paused = false;
    }

    fn set_away(&mut self, node: usize, away: Away, after: u64) {
        let Some(live) = &self.machines[node].live else { return };
        let process = live.process;
        self.weather.away(process, Some(away));
        self.plan_in(after, AloneEvent::Back { process: process.0 });
    }

    pub(super) fn back(&mut self, process: u64) {
        self.weather.away(towline_os::simulated::Process(process), None);
    }

    /// Little free space is left, or none.
    fn fill(&mut self) {
        let left = if self.dice.chance(500) { 0 } else { self.dice.below(1 << 20) };
        self.disk.set_bytes_max(self.disk.bytes_used() + left);
        self.machines.iter_mut().filter_map(|machine| machine.live.as_mut()).for_each(|live| {
            live.space_was_short = true;
        });
        let after = self.dice.below(3_000_000);
        self.plan_in(after, AloneEvent::Space);
    }

    /// An operator has the queues rebuilt from the log at the next start.
    pub(super) fn rebuild(&mut self) {
        (0..self.machines.len()).for_each(|node| self.kill(node));
        if let Some(folder) = self.marker_folder() {
            self.disk.put(format!("{folder}/{}", towline_log::REBUILD_MARKER), b"");
        }
    }

    /// Its log is all that a group of one instance needs.
    fn lose_hard_state(&mut self, node: usize) {
        self.kill(node);
        let lost: &[&str] = match self.dice.below(3) {
            0 => &["group-state"],
            1 => &["group-committed"],
            _ => &["group-state", "group-committed"],
        };
        for name in lost {
            // It is not there before the first start has made it.
            self.disk.remove(format!("{DATA}/{name}"));
        }
    }

    /// Where the rebuild marker is looked for.
    fn marker_folder(&self) -> Option<String> {
        if !self.plan.is_shared {
            return Some(DATA.to_owned()).filter(|data| self.disk.has(data));
        }
        self.log_folder()
    }

    /// The folder of the newest log.
    fn log_folder(&self) -> Option<String> {
        let wanted = if self.plan.is_shared { "log-" } else { "log" };
        let names = self.disk.names(DATA);
        let newest = names.iter().filter(|name| name.starts_with(wanted)).max()?;
        Some(format!("{DATA}/{newest}"))
    }

    /// A bit of the page file flips: the log has what the pages have.
    fn rot(&mut self) {
        let Some(folder) = self.log_folder() else { return };
        let pages = format!("{folder}/{}", towline_log::folder::names::PAGES_NAME);
        let bits = self.disk.bytes(&pages).map_or(0, |bytes| bytes.len() as u64 * 8);
        if bits > 0 && self.disk.flip_bit(&pages, self.dice.below(bits)) {
            self.machines.iter_mut().for_each(|machine| machine.may_exit = true);
        }
    }

    /// Nothing goes wrong any more: it must serve again.
    pub(super) fn peace(&mut self) {
        if self.phase != AlonePhase::Safety {
            return;
        }
        self.tell(format_args!("peace"));
        self.phase = AlonePhase::Peace(self.now);
        self.plan.base.disk.stall_per_mille = 0;
        self.set_timing(1);
        self.weather.clear();
        self.disk.set_bytes_max(DISK_BYTES);
        for node in 0..self.machines.len() {
            self.resume(node);
            // A process may wait for a call that never ends.
            self.kill(node);
            self.plan_in(0, AloneEvent::Start { node });
        }
    }
}
