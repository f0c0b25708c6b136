//! What operators do, as the guides say: `towline instance replace` for an instance with a
//! damaged log, or with a data folder that was put back while others could not be asked; a larger
//! log for one with a full log.
//!
//! Not here: what the command asks the other instances over sockets; the run looks instead.
//!
//! Invariants: an operator replaces one instance at a time, and only while both others may vote,
//! are in sync and follow one leader; a process on a folder that was put back goes on only when it
//! met both others in time.

use std::io;
use std::path::Path;

use towline_log::{REBUILD_MARKER, Space};
use towline_os::fs::{self, File};
use towline_os::simulated::Process;
use towline_replication::vote;

use super::machines::{DAMAGED, Machine};
use super::{Cluster, ClusterEvent, DATA, RunPhase};
use crate::served::disk_faults::OPERATORS;

/// What a full log is enlarged to.
const EXTENTS_WHEN_FULL: u64 = 512;
/// How long one works, at most.
const WORKS_US: u64 = 10_000_000;
/// A start that is refused so often for a damaged log is refused for good.
const REFUSED_MAX: u32 = 3;
/// An operator comes so much later, at most.
const COMES_US: u64 = 1_000_000;

impl Cluster {
    /// A start was refused. Others may give an instance what it needs to start; when they do not,
    /// an operator comes.
    pub(super) fn refused(&mut self, node: usize, why: &str) {
        let machine = &mut self.machines[node];
        if !why.contains(DAMAGED) {
            machine.refused = 0;
            return;
        }
        machine.refused += 1;
        if machine.refused >= REFUSED_MAX {
            let after = self.dice.below(COMES_US);
            self.plan_in(after, ClusterEvent::Operator { node });
        }
    }

    /// An operator looks at an instance with a damaged log, or with a folder that was put back.
    pub(super) fn operate(&mut self, node: usize) {
        let machine = &self.machines[node];
        if machine.awaits_operator && self.phase != RunPhase::Over {
            if self.others_can_do_without(node) {
                self.machines[node].awaits_operator = false;
                self.shared.loses(node);
                self.count("folders put back that were replaced");
                self.replace(node);
            } else {
                // The command says which of them is not in sync.
                self.plan_in(COMES_US, ClusterEvent::Operator { node });
            }
            return;
        }
        let has_started = machine.live.as_ref().is_some_and(|live| live.was_opened);
        let is_damaged = machine.refused >= REFUSED_MAX && !has_started;
        if !is_damaged || self.phase == RunPhase::Over || !self.others_can_do_without(node) {
            // Otherwise the next refused start calls for one again.
            return;
        }
        self.replace_damaged(node);
    }

    /// An operator sets a damaged log aside.
    pub(super) fn replace_damaged(&mut self, node: usize) {
        self.tell(format_args!("an operator replaces instance {node}"));
        self.kill(node, false);
        self.shared.loses(node);
        let machine = &mut self.machines[node];
        (machine.is_impaired, machine.refused) = (true, 0);
        self.count("damaged logs replaced");
        self.replace(node);
    }

    /// When nothing disturbs them any more, an operator raises `log_bytes_max` of one instance
    /// after the other with a full log: gets may have used its reserve, and then nothing but that
    /// gives it free space.
    pub(super) fn enlarge_full_logs(&mut self) {
        let is_full = |machine: &Machine| {
            let live = machine.live.as_ref().filter(|_| !machine.is_paused)?;
            let opened = live.board.opened.lock().clone()?;
            Some(opened.driver.log().space() == Space::Full)
        };
        let full = self.machines.iter().position(|machine| is_full(machine) == Some(true));
        let disturbed = matches!(self.phase, RunPhase::Safety | RunPhase::Over);
        let Some(node) = full.filter(|_| !disturbed) else { return };
        if self.machines[node].enlarge_log(EXTENTS_WHEN_FULL) {
            self.tell(format_args!("an operator enlarges the log of instance {node}"));
            self.count("full logs enlarged");
            self.kill(node, false);
            self.plan_in(0, ClusterEvent::Start { node });
        }
    }

    /// As `towline instance replace` does.
    pub(super) fn replace(&mut self, node: usize) {
        self.processes += 1;
        let number = self.processes;
        let operator = Process(OPERATORS + number);
        self.world.mount(operator, &self.machines[node].disk);
        self.world.start(operator, "replace", move || {
            // When it fails, the instance is as it was, or without a vote.
            set_log_aside(Path::new(DATA), number).ok();
        });
        // The operator is done, or has given up, before the next start.
        let until = self.now + WORKS_US;
        while self.world.is_left(operator) && self.world.step(until) {}
        self.world.kill(operator);
        self.now = self.now.max(self.world.now_us());
        self.plan_in(0, ClusterEvent::Start { node });
    }

    /// A process runs on a folder that was put back: when the time is over in which it waits for
    /// the others, it must have met them.
    pub(super) fn meets(&mut self, node: usize, process: u64) {
        let machine = &mut self.machines[node];
        let Some(live) = machine.live.as_ref().filter(|live| live.process.0 == process) else {
            return;
        };
        if !machine.is_put_back {
            return;
        }
        machine.is_put_back = false;
        let met = *live.board.met.lock();
        if (0..3).all(|other| other == node || met[other]) {
            self.tell(format_args!("instance {node} met both others"));
            self.count("folders put back that met both others");
            return;
        }
        // Only the operator knows that it was put back. It is stopped until the others can do
        // without it: one of them may lack what this one acknowledged since it started.
        self.tell(format_args!("instance {node} is to be replaced: it did not meet the others"));
        self.kill(node, false);
        self.machines[node].awaits_operator = true;
        self.plan_in(0, ClusterEvent::Operator { node });
    }

    /// Whether both others serve without it, as the command asks them.
    pub(super) fn others_can_do_without(&self, node: usize) -> bool {
        let others = (0..3).filter(|other| *other != node);
        let mut terms = Vec::new();
        let do_well = others.clone().all(|other| {
            let machine = &self.machines[other];
            let live = machine.live.as_ref().filter(|_| !machine.is_paused && !machine.is_impaired);
            let group = live.and_then(|live| live.board.group.lock().clone());
            group.is_some_and(|(group, _)| {
                terms.push(group.term);
                group.may_vote
                    && group.unheard.is_empty()
                    && group.is_in_sync
                    && group.leader.is_some()
            })
        });
        do_well && terms.windows(2).all(|terms| terms[0] == terms[1])
    }
}

/// What the command does with a data folder when it has asked all that it asks.
fn set_log_aside(data: &Path, number: u64) -> io::Result<()> {
    vote::give_up_vote(data)?;
    let aside = data.join(format!("log.lost-{number}"));
    fs::rename(data.join("log"), &aside)?;
    let marker = data.join(REBUILD_MARKER);
    if fs::exists(&marker) {
        fs::rename(&marker, aside.join(REBUILD_MARKER))?;
    }
    File::open(data)?.sync_all()
}
