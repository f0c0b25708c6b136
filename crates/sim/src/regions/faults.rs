//! What goes wrong in one region, or between both.
//!
//! Not here: how often (the plan); changes of roles, and what is lost on purpose with them
//! (`operators`). Invariant: no disk loses what it has, but for what an operator empties.

use super::plan::RegionFault;
use super::wires::{MEMBERS_MAX, region_of};
use super::{Regions, RegionsEvent, RunStage};

/// What small logs are enlarged to.
const EXTENTS_AT_PEACE: u64 = 128;
/// How long the link is cut, at most, when that is shorter than the time-outs.
const STALL_US: u64 = 400_000;
/// The same when it is longer.
const CUT_US: u64 = 6_000_000;

impl Regions {
    pub(super) fn fault(&mut self) {
        if self.stage != RunStage::Safety || self.plan.faults.is_empty() {
            return;
        }
        let after = 1 + self.dice.below(2 * self.plan.fault_every_us);
        self.plan_in(after, RegionsEvent::Fault);
        let fault = self.plan.faults[self.dice.index(self.plan.faults.len())];
        let ends: Vec<usize> = self.all_ends().collect();
        let end = ends[self.dice.index(ends.len())];
        self.tell(format_args!("FAULT {fault:?} {end}"));
        self.counts.faults += 1;
        self.does(fault, end);
    }

    fn does(&mut self, fault: RegionFault, end: usize) {
        let region = region_of(end);
        match fault {
            RegionFault::Kill => self.kill(end, false, 0),
            RegionFault::PowerCut => self.kill(end, true, 0),
            RegionFault::PowerCutOfRegion => {
                self.ends(region).for_each(|end| self.kill(end, true, 0));
            }
            RegionFault::CutOneWay => self.cut_for(&[region], CUT_US),
            RegionFault::CutBoth => self.cut_for(&[0, 1], CUT_US),
            RegionFault::Stall => self.cut_for(&[0, 1], STALL_US),
            RegionFault::Reset => self.wires.reset(),
            RegionFault::Heal => self.heal(),
            RegionFault::CutPair => {
                let other = (end + 1) % MEMBERS_MAX;
                self.within[region].cut(end % MEMBERS_MAX, other, true);
                self.within[region].cut(other, end % MEMBERS_MAX, true);
                let after = self.dice.below(CUT_US);
                self.plan_in(after, RegionsEvent::HealGroup { region });
            }
            RegionFault::SlowDisk => {
                let factor = self.dice.between(2, 40);
                self.machines[end].set_timing(&self.plan, factor);
                let after = self.dice.below(2_000_000);
                self.plan_in(after, RegionsEvent::Quick { end });
            }
        }
    }

    /// Cuts directions of the link for a while.
    pub(super) fn cut_for(&mut self, from: &[usize], most_us: u64) {
        from.iter().for_each(|region| self.wires.cut(*region, true));
        let after = self.dice.below(most_us);
        self.plan_in(after, RegionsEvent::Heal);
    }

    pub(super) fn heal(&self) {
        [0, 1].iter().for_each(|region| self.wires.cut(*region, false));
    }

    pub(super) fn heal_group(&self, region: usize) {
        for from in 0..MEMBERS_MAX {
            (0..MEMBERS_MAX).for_each(|to| self.within[region].cut(from, to, false));
        }
    }

    /// Faults have stopped: everything must come back.
    pub(super) fn peace(&mut self) {
        self.tell(format_args!("peace"));
        self.stage = RunStage::Peace(self.now);
        self.heal();
        [0, 1].iter().for_each(|region| self.heal_group(*region));
        if self.plan.extents < EXTENTS_AT_PEACE {
            // An operator makes small logs larger, which needs a start.
            self.plan.extents = EXTENTS_AT_PEACE;
            for end in self.all_ends() {
                self.kill(end, false, 0);
            }
        }
        for end in self.all_ends() {
            let machine = &mut self.machines[end];
            machine.set_timing(&self.plan, 1);
            machine.disk.clear_faults();
            machine.off_until_us = 0;
            self.plan_in(0, RegionsEvent::Start { end });
        }
        self.plan_in(0, RegionsEvent::Operator);
    }
}
