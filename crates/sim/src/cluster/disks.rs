//! Disks of a cluster that are lost, replaced, or as they were a while ago.
//!
//! Not here: calls that fail or hang (`served::disk_faults`), how often faults come (the plan),
//! what survives a power cut (`towline_os`).
//!
//! Invariant: what a member forgot, or has damaged, it has from the two others: only one machine at
//! a time has less on its disk than it acknowledged, and both others have all that is committed.

use towline_os::simulated::fs::FileSystem;

use super::machines::DISK_BYTES;
use super::{Cluster, ClusterEvent, DATA, promises};

/// Free space of one that is called full, at most.
const FULL_BYTES: u64 = 1 << 20;
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
        if !self.others_have_all(node) || (needs_older && self.machines[node].older.is_none()) {
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
        true
    }

    /// A disk has little free space for a while, or none.
    pub(super) fn fill(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        let used = DISK_BYTES.saturating_sub(machine.disk.bytes_free());
        let left = if self.dice.chance(500) { 0 } else { self.dice.below(FULL_BYTES) };
        machine.disk.set_bytes_max(used + left);
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

    /// Whether both others may vote, follow, and have what is committed.
    pub(super) fn others_have_all(&self, node: usize) -> bool {
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
