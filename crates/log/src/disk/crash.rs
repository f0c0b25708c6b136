//! Power cuts: from the journal of a [`MemoryDisk`], the disk as it would be found afterwards.
//!
//! The faults are fair: a sync that ended keeps every write that had ended when it began; of other
//! writes any sector or page may be there or not, each by itself; of unsynced creations, renames
//! and removals some first ones are there (most file systems order them), or any. Not here: faults
//! of a disk that lies about syncs.

use std::collections::BTreeMap;

use super::journal::{Journal, Operation};
use super::memory::MemoryDisk;
use towline_types::SeededRandom;

/// When the power goes: after so many operations of the journal.
#[derive(Clone, Copy, Debug)]
pub struct CrashPoint(pub usize);

/// What a power cut keeps of the bytes that were not synced.
#[derive(Clone, Copy, Debug)]
pub struct CrashRule {
    /// Chance of each unit to be there, 0 to 100.
    pub keep_percent: u8,
    /// Unit of loss in bytes: 512 (a sector) or 4096 (a page).
    pub unit_bytes: usize,
    /// Of the random choices.
    pub seed: u64,
}

#[derive(Default)]
struct Replayed {
    names: BTreeMap<String, usize>,
    name_changes: Vec<Operation>,
    files: BTreeMap<usize, FileState>,
}

#[derive(Default)]
struct FileState {
    synced: Vec<u8>,
    /// With operation numbers.
    unsynced: Vec<(usize, Change)>,
}

enum Change {
    /// Offset and bytes.
    Write(usize, Vec<u8>),
    /// The new length.
    Cut(usize),
}

impl Journal {
    /// How many operations there are: crash points go from 0 to this.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The marks that the test made before `point`, in order.
    #[must_use]
    pub fn notes_before(&self, point: CrashPoint) -> Vec<u64> {
        let done = self.operations.iter().take(point.0);
        let mark = |operation: &Operation| match operation {
            Operation::Note(mark) => Some(*mark),
            Operation::Create { .. }
            | Operation::Rename { .. }
            | Operation::Remove { .. }
            | Operation::SyncNames
            | Operation::Write { .. }
            | Operation::Cut { .. }
            | Operation::Sync { .. } => None,
        };
        done.filter_map(mark).collect()
    }

    /// The disk as it would be found after a power cut at `point`.
    #[must_use]
    pub fn crash(&self, point: CrashPoint, rule: CrashRule) -> MemoryDisk {
        self.crash_with(point, rule, |changes, random| {
            let kept = random.below(changes.len() as u64 + 1);
            changes.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
        })
    }

    /// The same where the file system does not order unsynced changes of names: each is there or
    /// not, by itself.
    #[must_use]
    pub fn crash_with_names_in_any_order(&self, point: CrashPoint, rule: CrashRule) -> MemoryDisk {
        self.crash_with(point, rule, |changes, random| changes.retain(|_| random.below(2) == 0))
    }

    fn crash_with(
        &self,
        point: CrashPoint,
        rule: CrashRule,
        lose_names: impl FnOnce(&mut Vec<Operation>, &mut SeededRandom),
    ) -> MemoryDisk {
        let mut random = SeededRandom::new(rule.seed);
        let mut state = Replayed::default();
        for (id, (name, bytes)) in self.found.iter().enumerate() {
            state.names.insert(name.clone(), id);
            let file = FileState { synced: bytes.clone(), unsynced: Vec::new() };
            state.files.insert(id, file);
        }
        for (number, operation) in self.operations.iter().take(point.0).enumerate() {
            state.enter(number, operation);
        }
        let mut changes = std::mem::take(&mut state.name_changes);
        lose_names(&mut changes, &mut random);
        changes.iter().for_each(|change| state.rename(change));
        let mut found = Vec::new();
        for (name, id) in &state.names {
            let file = state.files.remove(id).unwrap_or_default();
            found.push((name.clone(), file.after_power_cut(rule, &mut random)));
        }
        MemoryDisk::with_files(found)
    }
}

impl Replayed {
    fn enter(&mut self, number: usize, operation: &Operation) {
        match operation {
            Operation::Create { .. } | Operation::Rename { .. } | Operation::Remove { .. } => {
                self.name_changes.push(operation.clone());
            }
            Operation::SyncNames => {
                for change in std::mem::take(&mut self.name_changes) {
                    self.rename(&change);
                }
            }
            Operation::Write { id, offset, bytes } => {
                let file = self.files.entry(*id).or_default();
                file.unsynced.push((number, Change::Write(*offset, bytes.clone())));
            }
            Operation::Cut { id, bytes } => {
                self.files.entry(*id).or_default().unsynced.push((number, Change::Cut(*bytes)));
            }
            Operation::Sync { id, began } => self.files.entry(*id).or_default().sync(*began),
            Operation::Note(_) => {}
        }
    }

    fn rename(&mut self, change: &Operation) {
        match change {
            Operation::Create { name, id } => {
                self.names.insert(name.clone(), *id);
            }
            Operation::Rename { from, to } => {
                if let Some(id) = self.names.remove(from) {
                    self.names.insert(to.clone(), id);
                }
            }
            Operation::Remove { name } => {
                self.names.remove(name);
            }
            Operation::SyncNames
            | Operation::Write { .. }
            | Operation::Cut { .. }
            | Operation::Sync { .. }
            | Operation::Note(_) => {}
        }
    }
}

impl FileState {
    fn sync(&mut self, began: usize) {
        let (covered, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unsynced).into_iter().partition(|(number, _)| *number < began);
        self.unsynced = later;
        for (_, change) in covered {
            match change {
                Change::Write(offset, bytes) => put(&mut self.synced, offset, &bytes),
                Change::Cut(bytes) => self.synced.truncate(bytes),
            }
        }
    }

    fn after_power_cut(mut self, rule: CrashRule, random: &mut SeededRandom) -> Vec<u8> {
        let mut keeps = || random.below(100) < u64::from(rule.keep_percent);
        for (_, change) in self.unsynced {
            match change {
                Change::Write(offset, bytes) => {
                    for (number, unit) in bytes.chunks(rule.unit_bytes).enumerate() {
                        if keeps() {
                            put(&mut self.synced, offset + number * rule.unit_bytes, unit);
                        }
                    }
                }
                Change::Cut(bytes) if keeps() => self.synced.truncate(bytes),
                Change::Cut(_) => {}
            }
        }
        self.synced
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Aligned;
    use crate::disk::{Disk, DiskFile};

    fn write(file: &dyn DiskFile, value: u8, offset: u64) {
        let mut block = Aligned::zeroed(4096);
        block.bytes_mut().fill(value);
        file.write_at(block.bytes(), offset).unwrap();
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_only_parts_of_the_rest() {
        let disk = MemoryDisk::recording();
        let file = disk.create("a").unwrap();
        write(file.as_ref(), 1, 0);
        file.sync_data().unwrap();
        disk.sync_names().unwrap();
        write(file.as_ref(), 2, 0);
        let journal = disk.journal();
        let point = CrashPoint(journal.len());
        let rule = |keep_percent| CrashRule { keep_percent, unit_bytes: 512, seed: 7 };
        assert!(journal.crash(point, rule(0)).files()["a"].iter().all(|byte| *byte == 1));
        assert!(journal.crash(point, rule(100)).files()["a"].iter().all(|byte| *byte == 2));
        let torn = journal.crash(point, rule(50)).files()["a"].clone();
        assert!(torn.contains(&1) && torn.contains(&2));
        assert!(torn.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_gone() {
        let disk = MemoryDisk::recording();
        let file = disk.create("a").unwrap();
        write(file.as_ref(), 1, 0);
        file.sync_data().unwrap();
        let journal = disk.journal();
        let there = |seed| {
            let rule = CrashRule { keep_percent: 0, unit_bytes: 512, seed };
            journal.crash(CrashPoint(journal.len()), rule).files().contains_key("a")
        };
        assert!((0..20).any(there) && !(0..20).all(there));
    }

    #[test]
    fn of_two_removals_that_were_not_synced_the_first_may_come_back_alone_in_any_order_only() {
        let disk = MemoryDisk::recording();
        for name in ["a", "b"] {
            disk.create(name).unwrap();
        }
        disk.sync_names().unwrap();
        for name in ["a", "b"] {
            disk.remove(name).unwrap();
        }
        let journal = disk.journal();
        let rule = |seed| CrashRule { keep_percent: 0, unit_bytes: 512, seed };
        let point = CrashPoint(journal.len());
        let only_the_first = |found: MemoryDisk| {
            let files = found.files();
            files.contains_key("a") && !files.contains_key("b")
        };
        assert!((0..50).all(|seed| !only_the_first(journal.crash(point, rule(seed)))));
        let any_order = |seed| journal.crash_with_names_in_any_order(point, rule(seed));
        assert!((0..50).any(|seed| only_the_first(any_order(seed))));
    }
}
