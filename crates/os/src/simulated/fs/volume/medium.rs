//! What is on the medium, and what of the rest a power cut leaves.
//!
//! Not here: what readers see, and the bytes of one file.
//!
//! Invariant: changes become durable in their order, each after those that it needs.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use towline_types::SeededRandom;

use super::{Change, Inode, InodeId, Kind, ROOT, Volume};

impl Volume {
    /// Makes one change durable.
    fn apply(&mut self, change: Change) {
        for (folder, name, id) in change.names {
            let Some(Inode { kind: Kind::Folder { durable, .. }, .. }) =
                self.inodes.get_mut(&folder)
            else {
                continue;
            };
            let before = match id {
                Some(id) => durable.insert(name, id),
                None => durable.remove(&name),
            };
            if let Some(inode) = id.and_then(|id| self.inodes.get_mut(&id)) {
                inode.kept += 1;
            }
            self.let_go(before.into_iter());
        }
        self.let_go(change.inodes.into_iter());
    }

    fn let_go(&mut self, ids: impl Iterator<Item = InodeId>) {
        for id in ids {
            if let Some(inode) = self.inodes.get_mut(&id) {
                inode.kept -= 1;
                self.collect(id, false);
            }
        }
    }

    /// Makes the chosen changes durable, and those that they need. The others stay.
    pub(super) fn apply_chosen(&mut self, mut chosen: Vec<bool>) {
        for later in (0..self.changes.len()).rev() {
            if chosen[later] {
                for (earlier, chosen) in self.changes.iter().zip(&mut chosen).take(later) {
                    *chosen |= self.changes[later].needs(earlier);
                }
            }
        }
        for (change, is_chosen) in std::mem::take(&mut self.changes).into_iter().zip(chosen) {
            if is_chosen {
                self.apply(change);
            } else {
                self.changes.push(change);
            }
        }
    }

    /// The power goes. Of the changes of names either the first ones are there, as a journal has
    /// it, or any that do not contradict each other. No handle is valid any more.
    pub(in super::super) fn power_cut(&mut self, dice: &mut SeededRandom) {
        let count = self.changes.len();
        let chosen = if dice.chance(500) {
            let first = dice.index(count + 1);
            (0..count).map(|at| at < first).collect()
        } else {
            let per_mille = [100, 500, 900][dice.index(3)];
            (0..count).map(|_| dice.chance(per_mille)).collect()
        };
        self.apply_chosen(chosen);
        for inode in self.inodes.values_mut() {
            if let Kind::File(content) = &mut inode.kind
                && !content.is_synced()
            {
                Arc::make_mut(content).power_cut(dice);
            }
        }
        self.begin_from_medium();
    }

    /// Changes that are not durable.
    pub(in super::super) fn unsynced_names(&self) -> usize {
        self.changes.len()
    }

    /// The power goes, and nothing of what was not synced is there.
    pub(in super::super) fn lose_unsynced(&mut self) {
        for inode in self.inodes.values_mut() {
            if let Kind::File(content) = &mut inode.kind
                && !content.is_synced()
            {
                Arc::make_mut(content).lose_unsynced();
            }
        }
        self.begin_from_medium();
    }

    /// All that is there is durable.
    pub(in super::super) fn sync_all(&mut self) {
        self.apply_chosen(vec![true; self.changes.len()]);
        for inode in self.inodes.values_mut() {
            if let Kind::File(content) = &mut inode.kind
                && !content.is_synced()
            {
                Arc::make_mut(content).sync();
            }
        }
    }

    fn begin_from_medium(&mut self) {
        self.changes.clear();
        for inode in self.inodes.values_mut() {
            (inode.links, inode.handles, inode.kept) = (0, 0, 0);
            if let Kind::Folder { now, durable } = &mut inode.kind {
                now.clone_from(durable);
            }
        }
        let mut found = Vec::from([ROOT]);
        let mut kept = BTreeMap::new();
        while let Some(id) = found.pop() {
            let inode = self.inodes.remove(&id).or_else(|| kept.remove(&id));
            let Some(mut inode) = inode else { continue };
            (inode.links, inode.kept) = (inode.links + 1, inode.kept + 1);
            if let Kind::Folder { now, .. } = &inode.kind {
                found.extend(now.values());
            }
            kept.insert(id, inode);
        }
        self.inodes = kept;
        let contents = self.inodes.values().filter_map(|inode| match &inode.kind {
            Kind::File(content) => Some(content.allocated()),
            Kind::Folder { .. } => None,
        });
        self.blocks_used = contents.sum();
    }

    /// Whether these bytes of a file are there after any power cut, under this name.
    pub(in super::super) fn has_synced(&self, path: &Path, bytes: &[u8], offset: u64) -> bool {
        let Ok(id) = self.resolve(path) else { return false };
        self.resolve_durable(path) == Some(id)
            && self.content(id).is_ok_and(|content| content.has_synced(bytes, offset))
    }

    /// What has this path, without `..`, on the medium.
    fn resolve_durable(&self, path: &Path) -> Option<InodeId> {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        names.into_iter().try_fold(ROOT, |folder, name| match &self.inodes.get(&folder)?.kind {
            Kind::Folder { durable, .. } => durable.get(name).copied(),
            Kind::File(_) => None,
        })
    }
}
