//! Which format level the program of each instance reads: in half of the runs the newest one from
//! the beginning on; in the others instances get that program at some time, a few never, and some
//! go back to the earlier one for a while.
//!
//! An earlier program is this one, as far as levels go: it says, and hears, nothing of levels, and
//! ends at a start when its log has what it does not read. Not here: what is said (`network`), how
//! a process ends (`machines`).

use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_FIRST, SeededRandom};

use super::{Cluster, ClusterEvent};
use crate::plan::Plan;

/// Makes draws about format levels of a seed.
const FORMAT_LEVELS: u64 = 0x1e7e_1000;

/// See the module.
pub(super) struct ProgramVersions {
    /// Of each instance: from when on, and the level that its program reads from then on.
    changes: [Vec<(u64, u8)>; 3],
}

impl ProgramVersions {
    pub(super) fn draw(seed: u64, plan: &Plan) -> ProgramVersions {
        // No other draw depends on these.
        let mut dice = SeededRandom::mixed(seed ^ FORMAT_LEVELS);
        let is_mixed = dice.chance(500);
        let changes = std::array::from_fn(|_| {
            if !is_mixed {
                return vec![(0, FORMAT_LEVEL)];
            }
            let mut changes = vec![(0, FORMAT_LEVEL_FIRST)];
            if dice.chance(100) {
                return changes;
            }
            let updated = dice.below(plan.safety_us);
            changes.push((updated, FORMAT_LEVEL));
            if dice.chance(500) {
                let back = dice.between(updated, plan.safety_us);
                let again = dice.between(back, plan.safety_us);
                changes.extend([(back, FORMAT_LEVEL_FIRST), (again, FORMAT_LEVEL)]);
            }
            changes
        });
        ProgramVersions { changes }
    }

    /// The level that is read by a process that starts at this time.
    pub(super) fn level(&self, node: usize, time: u64) -> u8 {
        let known = self.changes[node].iter().rev().find(|(from, _)| *from <= time);
        known.map_or(FORMAT_LEVEL, |(_, level)| *level)
    }
}

impl Cluster {
    pub(super) fn plan_versions(&mut self) {
        for node in 0..3 {
            for (time, _) in self.versions.changes[node].clone().into_iter().skip(1) {
                self.plan_at(time, ClusterEvent::Version { node });
            }
        }
    }

    /// An operator gave an instance another program: it ends in order, and starts with that.
    pub(super) fn changes_version(&mut self, node: usize) {
        let reads = self.versions.level(node, self.now);
        self.tell(format_args!("instance {node} gets a program that reads format level {reads}"));
        if reads < FORMAT_LEVEL {
            self.count("programs that went back");
        }
        self.stop_in_order(node);
    }

    /// Its log has what its program does not read: the operator gives it the newer one.
    pub(super) fn is_too_old(&mut self, node: usize) {
        self.count("programs too old for their log");
        self.versions.changes[node] = vec![(0, FORMAT_LEVEL)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_updated_and_go_back_and_all_that_did_are_updated_in_the_end() {
        let mut went_back = 0;
        for seed in 0..200 {
            let plan = Plan::draw(&mut SeededRandom::mixed(seed));
            let versions = ProgramVersions::draw(seed, &plan);
            for node in 0..3 {
                let levels: Vec<u8> = versions.changes[node].iter().map(|it| it.1).collect();
                went_back += usize::from(levels.len() == 4);
                let last = versions.level(node, plan.safety_us);
                assert!(last == FORMAT_LEVEL || levels == [FORMAT_LEVEL_FIRST], "{levels:?}");
            }
        }
        assert!(went_back > 50, "{went_back}");
    }
}
