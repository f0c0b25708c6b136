//! Disks of a cluster that are lost, replaced, or as they were a while ago.
//!
//! Not here: calls that fail or hang (`served::disk_faults`), how often faults come (the plan),
//! what survives a power cut (`towline_os`).
//!
//! Invariant: only one machine at a time has less on its disk than it acknowledged. What an
//! operator does, or a disk that shows old content, needs both others with all that was
//! acknowledged; what is gone, and is seen to be gone, one of them.

use towline_os::simulated::fs::FileSystem;

use super::machines::DISK_BYTES;
use super::{Cluster, ClusterEvent, DATA, promises};

/// Free space of one that is called full, at most.
const FULL_BYTES: u64 = 1 << 20;
/// How long the only one that has all is out of reach, at least.
const HIDDEN_US: u64 = 1_000_000;
/// How long it is full, at most.
const FULL_US: u64 = 3_000_000;

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
    /// An older copy of the whole folder.
    OlderFolder,
    /// The folder of a clone of the machine, which goes on where it ended; the one that was used
    /// until now is the clone then.
    Clone,
}

impl Loss {
    fn name(self) -> &'static str {
        match self {
            Loss::Disk => "disks lost",
            Loss::Log => "logs lost",
            Loss::OlderLog => "older logs",
            Loss::OlderHardState => "older hard states",
            Loss::Replaced => "instances replaced",
            Loss::OfAnother(_) => "folders of others",
            Loss::OlderFolder => "older folders",
            Loss::Clone => "clones started",
        }
    }
}

impl Cluster {
    /// Keeps a copy of a disk for later, now and then; not one with a flipped bit, which would come
    /// back when nothing expects it.
    pub(super) fn keep_older(&mut self, node: usize) {
        let is_kept = self.dice.chance(200);
        let machine = &mut self.machines[node];
        if is_kept && machine.rotten.is_none() {
            machine.older = Some(machine.disk.synced());
        }
    }

    /// Something of a disk is lost, if the group survives that. Whether it was.
    pub(super) fn lose(&mut self, node: usize, loss: Loss) -> bool {
        let needs_older =
            matches!(loss, Loss::OlderLog | Loss::OlderHardState | Loss::OlderFolder | Loss::Clone);
        let holders = self.others_with_all(node);
        let needed = if matches!(loss, Loss::Disk | Loss::Log) { 1 } else { 2 };
        if holders.len() < needed || (needs_older && self.machines[node].older.is_none()) {
            return false;
        }
        self.tell(format_args!("instance {node} loses: {loss:?}"));
        self.count(loss.name());
        self.kill(node, true);
        // An operator frees space before a restore: half of a copy is no log.
        self.empty(node);
        self.machines[node].is_impaired = true;
        self.shared.loses(node);
        let state = promises::kept(&self.machines[node].disk);
        self.tell(format_args!("instance {node} had {state:?}"));
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
            Loss::OlderFolder => {
                disk.put_back(&older);
                self.machines[node].is_put_back = true;
            }
            Loss::Clone => {
                // Cloned when a process of it had ended.
                let clone = self.machines[node].clone.take().unwrap_or(older);
                self.machines[node].clone = Some(disk.synced());
                disk.put_back(&clone);
                self.machines[node].is_put_back = true;
            }
        }
        if let &[holder] = holders.as_slice() {
            self.count("disks lost of the last two with all");
            self.hide(holder, node);
        }
        true
    }

    /// The only one that has all that was acknowledged is out of reach for a while, and the two
    /// others hear each other: neither may be elected, nor both together.
    fn hide(&mut self, holder: usize, lost: usize) {
        let third = 3 - holder - lost;
        self.resume(third);
        self.plan_in(0, ClusterEvent::Start { node: third });
        for other in [lost, third] {
            self.network.cut(holder, other, true);
            self.network.cut(other, holder, true);
            self.network.cut(other, lost + third - other, false);
        }
        let after = HIDDEN_US + self.dice.below(HIDDEN_US);
        self.plan_in(after, ClusterEvent::Heal);
    }

    /// A disk has little free space for a while, or none.
    pub(super) fn fill(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        let left = if self.dice.chance(500) { 0 } else { self.dice.below(FULL_BYTES) };
        machine.disk.set_bytes_max(machine.disk.bytes_used() + left);
        machine.is_full = true;
        // What follows from that is no fault of the instance.
        if let Some(live) = &machine.live {
            machine.let_down.note(live.process);
        }
        self.count("full disks");
        let after = self.dice.below(FULL_US);
        self.plan_in(after, ClusterEvent::Space { node });
    }

    /// A disk has free space again.
    pub(super) fn empty(&mut self, node: usize) {
        self.machines[node].disk.set_bytes_max(DISK_BYTES);
        self.machines[node].is_full = false;
    }

    /// Those of the two others that may vote, are in its term, and have all that this member has.
    pub(super) fn others_with_all(&self, node: usize) -> Vec<usize> {
        let own = self.machines[node].live.as_ref();
        let own = own.and_then(|live| live.board.group.lock().clone());
        let Some((own, _)) = own else { return Vec::new() };
        if self.machines.iter().any(|machine| machine.is_impaired) {
            return Vec::new();
        }
        let of_other = |other: usize| {
            let machine = &self.machines[other];
            let group = machine.live.as_ref()?.board.group.lock().clone();
            Some((group?.0, machine.is_paused))
        };
        let others: Vec<usize> = (0..3).filter(|other| *other != node).collect();
        // Two without a vote need an operator.
        let votes = |other: &usize| {
            of_other(*other).is_some_and(|(group, _)| group.may_vote && group.unheard.is_empty())
        };
        if !others.iter().all(votes) {
            return Vec::new();
        }
        let has_all = |other: &usize| {
            of_other(*other).is_some_and(|(group, is_paused)| {
                !is_paused && group.term == own.term && group.committed.index >= own.last.index
            })
        };
        others.into_iter().filter(has_all).collect()
    }

    /// A member has again what it lost.
    pub(super) fn look_for_recovered(&mut self) {
        for machine in self.machines.iter_mut().filter(|machine| machine.is_impaired) {
            let group = machine.live.as_ref().and_then(|live| live.board.group.lock().clone());
            machine.is_impaired = !group.is_some_and(|(group, _)| {
                group.may_vote
                    && group.unheard.is_empty()
                    && group.is_in_sync
                    && !machine.is_put_back
                    && machine.rotten.is_none()
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
        assert!(to.put(path, &bytes), "a file is put back whole");
    }
}
