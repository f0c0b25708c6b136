//! Disks of a cluster that are lost, replaced, or as they were a while ago.
//!
//! Not here: calls that fail or hang (`served::disk_faults`), how often faults come (the plan),
//! what survives a power cut (`towline_os`).
//!
//! Invariant: what a member forgot, or has damaged, it has from the two others: only one machine at
//! a time has less on its disk than it acknowledged, and both others have all that is committed.

use std::path::Path;

use towline_os::simulated::Process;
use towline_os::simulated::fs::FileSystem;
use towline_replication::vote;

use super::machines::DATA;
use super::{Cluster, ClusterEvent};

/// Processes of operators.
const OPERATORS: u64 = 1 << 41;

/// What becomes of what a member has on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// An empty disk.
    Disk,
    /// The log is gone, its hard state is there.
    Log,
    /// An older log, beside the newest hard state.
    OlderLog,
    /// An older hard state, beside the newest log.
    OlderHardState,
    /// `towline instance replace`: the log is set aside, the vote given up.
    Replaced,
    /// A copy of the disk of another instance.
    OfAnother(usize),
}

impl Cluster {
    /// Keeps a copy of a disk for later, now and then.
    pub(super) fn keep_older(&mut self, node: usize) {
        if self.dice.chance(200) {
            self.machines[node].older = Some(self.machines[node].disk.synced());
        }
    }

    /// Something of a disk is lost, if the group survives that.
    pub(super) fn lose(&mut self, node: usize, loss: Loss) {
        let needs_older = matches!(loss, Loss::OlderLog | Loss::OlderHardState);
        if !self.others_have_all(node) || (needs_older && self.machines[node].older.is_none()) {
            self.counts.faults -= 1;
            return;
        }
        self.tell(format_args!("instance {node} loses: {loss:?}"));
        self.kill(node, true);
        self.machines[node].is_impaired = true;
        self.shared.loses(node);
        let disk = self.machines[node].disk.clone();
        let older = self.machines[node].older.clone().unwrap_or_default();
        match loss {
            Loss::Disk => disk.put_back(&FileSystem::new()),
            Loss::Log => remove_below(&disk, "log/"),
            Loss::OlderLog => {
                remove_below(&disk, "log/");
                copy_below(&older, &disk, "log/");
            }
            Loss::OlderHardState => {
                remove_below(&disk, "group-");
                copy_below(&older, &disk, "group-");
            }
            Loss::Replaced => self.replace(node),
            Loss::OfAnother(other) => disk.put_back(&self.machines[other].disk.synced()),
        }
    }

    /// As `towline instance replace` does.
    fn replace(&mut self, node: usize) {
        self.processes += 1;
        let operator = Process(OPERATORS + self.processes);
        self.world.mount(operator, &self.machines[node].disk);
        self.world.start(operator, "replace", || {
            let data = Path::new(DATA);
            if vote::give_up_vote(data).is_ok() {
                let log = data.join("log");
                towline_os::fs::rename(&log, data.join("log.set-aside")).ok();
            }
        });
        // The operator is done before the next start.
        let until = self.now + 10_000_000;
        while self.world.is_left(operator) && self.world.step(until) {}
        self.now = self.now.max(self.world.now_us());
        self.plan_in(0, ClusterEvent::Start { node });
    }

    /// Whether both others may vote, follow, and have what is committed.
    fn others_have_all(&self, node: usize) -> bool {
        let own = self.machines[node].live.as_ref();
        let own = own.and_then(|live| live.board.group.lock().clone());
        let Some((own, _)) = own else { return false };
        if self.machines.iter().any(|machine| machine.is_impaired) {
            return false;
        }
        (0..3).filter(|other| *other != node).all(|other| {
            let machine = &self.machines[other];
            let live = machine.live.as_ref().filter(|_| !machine.is_paused);
            let group = live.and_then(|live| live.board.group.lock().clone());
            group.is_some_and(|(group, _)| {
                group.may_vote
                    && group.unheard.is_empty()
                    && group.term == own.term
                    && group.committed.index >= own.last.index
            })
        })
    }

    /// A member has again what it lost.
    pub(super) fn look_for_recovered(&mut self) {
        for machine in self.machines.iter_mut().filter(|machine| machine.is_impaired) {
            let group = machine.live.as_ref().and_then(|live| live.board.group.lock().clone());
            machine.is_impaired = !group.is_some_and(|(group, _)| {
                group.may_vote && group.unheard.is_empty() && group.is_in_sync
            });
        }
    }
}

fn below(disk: &FileSystem, prefix: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let prefix = format!("{DATA}/{prefix}");
    let files = disk.tree().into_iter().filter_map(|(path, bytes)| Some((path, bytes?)));
    files.filter(|(path, _)| path.to_string_lossy().starts_with(&prefix)).collect()
}

fn remove_below(disk: &FileSystem, prefix: &str) {
    for (path, _) in below(disk, prefix) {
        disk.remove(path);
    }
}

fn copy_below(from: &FileSystem, to: &FileSystem, prefix: &str) {
    for (path, bytes) in below(from, prefix) {
        to.put(path, &bytes);
    }
}
