//! What goes wrong, and what is done to a group on purpose.
//!
//! Not here: how often (the plan).
//!
//! Invariant: a disk is lost or damaged only while both others have all that they ever
//! acknowledged: more than that no group of three survives.

use towline_group::{Input, Role};

use super::life::{ProcessEnd, member_id};
use super::{Event, Phase, World, tell};
use crate::disk::DiskPart;
use crate::network::{Link, Micros, Parcel, pairs};
use crate::plan::Fault;

impl World {
    pub(crate) fn fault(&mut self) {
        if self.phase != Phase::Safety || self.plan.faults.is_empty() {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.fault_every_us);
        self.plan_in(after, Event::Fault);
        let fault = self.plan.faults[self.dice.index(self.plan.faults.len())];
        let node = self.dice.index(3);
        let other = (node + 1 + self.dice.index(2)) % 3;
        tell!(self, "FAULT {fault:?} {node} {other}");
        self.counts.faults += 1;
        match fault {
            Fault::Kill => self.end_and_restart(node, ProcessEnd::Kill),
            Fault::PowerCut => self.end_and_restart(node, ProcessEnd::PowerCut),
            Fault::PowerCutOfAll => {
                (0..3).for_each(|node| self.end_and_restart(node, ProcessEnd::PowerCut));
            }
            Fault::Pause => self.pause(node),
            Fault::CutOneWay => self.network.cut(node, other),
            Fault::CutPair => self.cut_pair(node, other),
            Fault::Isolate => {
                self.cut_pair(node, (node + 1) % 3);
                self.cut_pair(node, (node + 2) % 3);
            }
            Fault::Heal => self.heal(),
            Fault::ResetConnection => self.reset(node, other),
            Fault::Flapping => {
                self.cut_pair(node, other);
                let after = self.dice.below(200_000);
                self.plan_in(after, Event::Heal);
            }
            Fault::SlowDisk => {
                self.nodes[node].slow_factor = self.dice.between(2, 60);
                let after = self.dice.below(2_000_000);
                self.plan_in(after, Event::Slow { node, factor: 1 });
            }
            Fault::DiskLoss => self.lose_disk(node),
            Fault::BitRot => self.rot(node),
            Fault::LogLoss => self.forget_some(node, None),
            Fault::OlderLog => self.forget_some(node, Some(DiskPart::Log)),
            Fault::OlderHardState => self.forget_some(node, Some(DiskPart::HardState)),
            Fault::OlderFolder => self.put_folder_back(node),
            Fault::ClonedFolder => self.start_clone(node),
            Fault::FolderOfAnother => self.take_folder_of(node, other),
            Fault::ClockJump => {
                let hour = 3_600_000_000;
                self.nodes[node].wall_us += self.dice.below(2 * hour);
                self.nodes[node].wall_us -= hour;
            }
            Fault::Upgrade => {
                self.nodes[node].version += 1;
                self.transfer(other);
                self.end_and_restart(node, ProcessEnd::Stop);
            }
            Fault::Transfer => self.transfer(node),
            Fault::LogFull => {
                let active = |node: &usize| {
                    self.nodes[*node].process.as_ref().is_some_and(|there| there.is_active())
                };
                if let Some(at) = (0..3).find(active).and_then(|node| self.at(node)) {
                    self.fill_log(at, true);
                    let after = self.dice.below(600_000);
                    self.plan_in(after, Event::LogRoom { at });
                }
            }
            Fault::LoseClients => {
                (0..self.clients.len()).for_each(|client| self.leave(client, true));
            }
        }
    }

    fn end_and_restart(&mut self, node: usize, ending: ProcessEnd) {
        if self.nodes[node].process.is_some() {
            self.restart(node, ending);
        } else if ending == ProcessEnd::PowerCut && !self.nodes[node].copying {
            // What a process that was killed before left in the memory of the system.
            self.nodes[node].disk.lose_unsynced(0, &mut self.dice);
        }
    }

    fn pause(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            let longest = 3 * self.plan.heartbeat_timeout.as_micros_u64();
            let until = self.now + 1 + self.dice.below(longest);
            self.nodes[node].paused_until = self.nodes[node].paused_until.max(until);
            self.plan_at(until, Event::Resume { node });
        }
    }

    fn cut_pair(&mut self, a: usize, b: usize) {
        self.network.cut(a, b);
        self.network.cut(b, a);
    }

    pub(crate) fn heal(&mut self) {
        for (time, link, parcel) in self.network.heal(self.now, &mut self.dice) {
            self.plan_at(time, Event::Arrives { link, parcel });
        }
    }

    fn reset(&mut self, a: usize, b: usize) {
        let links: Vec<Link> = self.network.reset(a, b);
        links.into_iter().for_each(|link| self.announce(link, Parcel::End));
    }

    fn transfer(&mut self, to: usize) {
        let leader = (0..3).find(|node| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| process.member.role() == Role::Leader)
        });
        let leader = leader.filter(|leader| *leader != to && !self.is_paused(*leader));
        if let Some(at) = leader.and_then(|leader| self.at(leader)) {
            self.input(at, Input::Transfer(member_id(to)));
        }
    }

    /// Whether a member has all that it ever acknowledged, as it says itself.
    fn is_sound(&self, node: usize) -> bool {
        let there = &self.nodes[node];
        let process = there.process.as_ref();
        let may_vote =
            process.map_or(there.disk.hard_state.may_vote, |there| there.member.may_vote());
        let is_another = there.disk.whose.is_some_and(|whose| whose != node);
        let forgot = process.is_none() && (is_another || there.disk.forgot());
        may_vote && !forgot && !there.disk.rotten && !there.copying && !there.put_back
    }

    pub(crate) fn others_are_sound(&self, node: usize) -> bool {
        (0..3).filter(|other| *other != node).all(|other| self.is_sound(other))
    }

    fn lose_disk(&mut self, node: usize) {
        if !self.others_are_sound(node) || self.nodes[node].copying {
            return;
        }
        let ran = self.nodes[node].process.is_some();
        self.end(node, ProcessEnd::PowerCut);
        self.nodes[node].disk.wipe(false);
        self.nodes[node].owes = Some(self.committed.len() as u64);
        tell!(self, "{node}: its disk is lost");
        if ran {
            let after = self.dice.below(self.plan.restart_after_us);
            self.plan_in(after, Event::Start { node });
        }
    }

    /// The log is lost and the hard state kept, or one of both is that of an older copy.
    fn forget_some(&mut self, node: usize, older: Option<DiskPart>) {
        if !self.others_are_sound(node) || self.nodes[node].copying {
            return;
        }
        // An older log and an older hard state of one copy, put back with no start between them,
        // are a whole data folder put back, which is a fault of its own.
        if self.nodes[node].process.is_none() && self.nodes[node].disk.forgot() {
            return;
        }
        let copy = self.nodes[node].older.clone();
        if older.is_some() && copy.is_none() {
            return;
        }
        let ran = self.nodes[node].process.is_some();
        self.end(node, ProcessEnd::PowerCut);
        match (older, copy) {
            (Some(part), Some(copy)) => self.nodes[node].disk.put_back(&copy, part),
            (_, _) => self.nodes[node].disk.lose_log(),
        }
        let owed = self.committed.len() as u64;
        if self.nodes[node].disk.forgot() {
            self.nodes[node].owes = Some(owed);
        }
        tell!(self, "{node}: forgets ({older:?}), owes {owed}");
        if ran {
            let after = self.dice.below(self.plan.restart_after_us);
            self.plan_in(after, Event::Start { node });
        }
    }

    fn rot(&mut self, node: usize) {
        if !self.others_are_sound(node) || self.nodes[node].copying {
            return;
        }
        self.nodes[node].disk.rotten = true;
        if self.dice.chance(700) {
            self.end_and_restart(node, ProcessEnd::Kill);
        }
    }

    /// No more faults from now on.
    pub(crate) fn peace(&mut self) {
        tell!(self, "PEACE");
        self.phase = Phase::Peace(self.now);
        self.heal();
        self.network.calm();
        (self.plan.disk.stall_per_mille, self.plan.disk.stall_us) = (0, 0);
        for node in 0..3 {
            self.nodes[node].slow_factor = 1;
            self.nodes[node].paused_until = self.nodes[node].paused_until.min(self.now);
            self.resume(node);
            if let Some(at) = self.at(node) {
                self.fill_log(at, false);
            }
        }
        assert!(pairs().all(|(from, to)| !self.network.is_cut(from, to)), "all cuts are healed");
        self.plan_in(super::LOOK_US, Event::Look);
    }
}
