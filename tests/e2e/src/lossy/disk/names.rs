//! The names in a folder, and the changes of them that are not durable yet.
//!
//! Not here: which changes a power cut leaves. Invariant: changes of all folders together are
//! numbered in their order; a rename across folders has one number, in both.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::chance::Chance;

pub(super) type Names = BTreeMap<OsString, u64>;

#[derive(Default)]
pub(super) struct Folder {
    pub(super) synced: Names,
    /// As programs see it.
    pub(super) names: Names,
    changes: Vec<Numbered>,
}

struct Numbered {
    number: u64,
    change: Change,
    /// Folders of which all changes up to this number are durable when this one is.
    before: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Add(OsString, u64),
    Remove(OsString),
    Rename(OsString, OsString),
}

impl Folder {
    pub(super) fn change(&mut self, number: u64, change: Change, before: Vec<u64>) {
        change.clone().done_to(&mut self.names);
        self.changes.push(Numbered { number, change, before });
    }

    /// How many changes up to this number are not durable.
    pub(super) fn changes_upto(&self, upto: u64) -> usize {
        self.changes.iter().take_while(|change| change.number <= upto).count()
    }

    /// Folders, and up to which number their changes are durable when the change at `at` is.
    pub(super) fn needs(&self, at: usize) -> impl Iterator<Item = (u64, u64)> {
        self.changes.get(at).into_iter().flat_map(Numbered::needs)
    }

    /// The changes up to this number cannot be lost any more; and what those need.
    pub(super) fn make_durable(&mut self, upto: u64) -> Vec<(u64, u64)> {
        let mut needs = Vec::new();
        for change in self.changes.drain(..self.changes_upto(upto)) {
            needs.extend(change.needs());
            change.change.done_to(&mut self.synced);
        }
        needs
    }

    /// How many of the oldest changes a power cut leaves.
    pub(super) fn kept_changes(&self, keep_percent: u64, chance: &mut Chance) -> usize {
        self.changes.iter().take_while(|_| chance.percent(keep_percent)).count()
    }

    pub(super) fn cut_power(&mut self, kept: usize) {
        for change in self.changes.drain(..).take(kept) {
            change.change.done_to(&mut self.synced);
        }
        self.names = self.synced.clone();
    }

    /// The changes that are not durable, for people.
    pub(super) fn journal(&self) -> impl Iterator<Item = String> {
        self.changes
            .iter()
            .map(|it| format!("{} {:?}, after {:?}", it.number, it.change, it.before))
    }
}

impl Numbered {
    fn needs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.before.iter().map(|folder| (*folder, self.number))
    }
}

impl Change {
    fn done_to(self, names: &mut Names) {
        match self {
            Change::Add(name, node) => {
                names.insert(name, node);
            }
            Change::Remove(name) => {
                names.remove(&name);
            }
            Change::Rename(name, new) => {
                if let Some(node) = names.remove(&name) {
                    names.insert(new, node);
                }
            }
        }
    }
}
