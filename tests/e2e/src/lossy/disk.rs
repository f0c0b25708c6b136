//! Pages and names in memory, each known twice: as programs see it, and as a power cut leaves it.
//!
//! A page becomes durable by a sync of its file; a name by a sync of its folder. A power cut keeps
//! a random share of the pages and, folder by folder, a random number of the oldest name changes.
//! A rename across folders is one change, kept or lost in both, and durable by a sync of either: a
//! file system's journal has it in one transaction, behind those that made the folders that it
//! leads to. A folder is not gone before what moved out of it is elsewhere.
//! Not here: permissions, links, times, and anything below a page. Invariant: every name leads to
//! a node that exists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};

use crate::chance::Chance;

mod file;
mod keeping;
mod names;

use file::File;
use names::{Change, Folder};

/// Bytes of one page: what is kept or lost as a whole.
pub const PAGE_BYTES: usize = 4096;
/// Number of the folder that everything is in.
pub const ROOT: u64 = 1;

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum No {
    /// There is no such name or node.
    Entry,
    /// The name is taken.
    Exists,
    /// The folder is not empty.
    NotEmpty,
    /// Not possible with this kind of node.
    Kind,
    /// No free space is left.
    Space,
    /// The disk is broken.
    Broken,
}

/// What kind of node to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Folder,
    /// A local socket or another special file: a name without content.
    Special,
}

/// What is known of a node without reading it.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Number of the node.
    pub node: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its size in bytes, as programs see it.
    pub bytes: u64,
    /// Mode bits, type included.
    pub mode: u32,
}

enum Body {
    File(File),
    Folder(Folder),
    Special,
}

struct Node {
    body: Body,
    mode: u32,
}

/// The disk.
pub struct Disk {
    nodes: HashMap<u64, Node>,
    next: u64,
    next_change: u64,
    bytes_max: u64,
    syncs_fail: bool,
    unreadable: HashSet<u64>,
    syncs_lie: bool,
    syncs: u64,
}

impl Disk {
    /// An empty disk that holds at most `bytes_max` bytes of files.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let root = Node { body: Body::Folder(Folder::default()), mode: 0o040_755 };
        let nodes = HashMap::from([(ROOT, root)]);
        Self {
            nodes,
            next: ROOT + 1,
            next_change: 0,
            bytes_max,
            syncs_fail: false,
            unreadable: HashSet::new(),
            syncs_lie: false,
            syncs: 0,
        }
    }

    /// Changes the size of the disk; files keep what they have.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Lets every sync fail from now on, or work again.
    pub fn set_syncs_fail(&mut self, fail: bool) {
        self.syncs_fail = fail;
    }

    /// Lets every read of the file at this path fail from now on, or work again.
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn set_unreadable(&mut self, path: &[&str], unreadable: bool) -> Result<(), No> {
        let mut node = ROOT;
        for name in path {
            node = self.find(node, OsStr::new(name))?.node;
        }
        self.unreadable.remove(&node);
        self.unreadable.extend(unreadable.then_some(node));
        Ok(())
    }

    /// Lets every sync do nothing and report success from now on: what no program can survive.
    pub fn set_syncs_lie(&mut self, lie: bool) {
        self.syncs_lie = lie;
    }

    /// Size of the disk and bytes used by files.
    #[must_use]
    pub fn room(&self) -> (u64, u64) {
        let used = self.reachable(false).iter().map(|node| self.file_bytes(*node)).sum();
        (self.bytes_max, used)
    }

    /// Syncs of files that were asked for.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Finds a name.
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn find(&self, folder: u64, name: &OsStr) -> Result<Look, No> {
        let node = self.folder(folder)?.names.get(name).ok_or(No::Entry)?;
        self.look(*node)
    }

    /// The attributes of a node.
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn look(&self, number: u64) -> Result<Look, No> {
        let node = self.nodes.get(&number).ok_or(No::Entry)?;
        let kind = match node.body {
            Body::File(_) => Kind::File,
            Body::Folder(_) => Kind::Folder,
            Body::Special => Kind::Special,
        };
        Ok(Look { node: number, kind, bytes: self.file_bytes(number), mode: node.mode })
    }

    /// The names in a folder.
    ///
    /// # Errors
    /// [`No::Entry`] or [`No::Kind`].
    pub fn list(&self, folder: u64) -> Result<Vec<(OsString, Look)>, No> {
        let names = &self.folder(folder)?.names;
        names.iter().map(|(name, node)| Ok((name.clone(), self.look(*node)?))).collect()
    }

    /// Makes a node.
    ///
    /// # Errors
    /// [`No::Exists`] when the name is taken.
    pub fn make(&mut self, at: u64, name: &OsStr, kind: Kind, mode: u32) -> Result<Look, No> {
        let node = self.next;
        if self.folder(at)?.names.contains_key(name) {
            return Err(No::Exists);
        }
        self.change(at, Change::Add(name.into(), node), Vec::new())?;
        let body = match kind {
            Kind::File => Body::File(File::default()),
            Kind::Folder => Body::Folder(Folder::default()),
            Kind::Special => Body::Special,
        };
        self.next += 1;
        self.nodes.insert(node, Node { body, mode });
        self.look(node)
    }

    /// Takes a name away. The node stays until the next power cut, for processes that have it open.
    ///
    /// # Errors
    /// [`No::Entry`], or [`No::NotEmpty`] for a folder with names in it.
    pub fn remove(&mut self, at: u64, name: &OsStr) -> Result<(), No> {
        let found = self.find(at, name)?;
        if found.kind == Kind::Folder && !self.folder(found.node)?.names.is_empty() {
            return Err(No::NotEmpty);
        }
        let emptied = if found.kind == Kind::Folder { vec![found.node] } else { Vec::new() };
        self.change(at, Change::Remove(name.into()), emptied)
    }

    /// Renames, over what has the new name.
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn rename(&mut self, at: u64, name: &OsStr, to: u64, new: &OsStr) -> Result<(), No> {
        let found = self.find(at, name)?;
        let mut before = match self.find(to, new) {
            Ok(replaced) if replaced.kind == Kind::Folder => vec![replaced.node],
            Ok(_) | Err(_) => Vec::new(),
        };
        if at == to {
            return self.change(at, Change::Rename(name.into(), new.into()), before);
        }
        before.push(at);
        before.extend(self.way_to(to));
        self.change(to, Change::Add(new.into(), found.node), before)?;
        // The same change: it has the same number.
        self.next_change -= 1;
        self.change(at, Change::Remove(name.into()), vec![to])
    }

    fn change(&mut self, at: u64, change: Change, before: Vec<u64>) -> Result<(), No> {
        let number = self.next_change;
        self.folder_mut(at)?.change(number, change, before);
        self.next_change += 1;
        Ok(())
    }

    /// The folders that a folder is in.
    fn way_to(&self, folder: u64) -> Vec<u64> {
        let mut way = Vec::new();
        let mut at = folder;
        let holds = |number: u64, node: u64| {
            self.folder(number).is_ok_and(|folder| folder.names.values().any(|it| *it == node))
        };
        while let Some(parent) = self.nodes.keys().copied().find(|parent| holds(*parent, at)) {
            way.push(parent);
            at = parent;
        }
        way
    }

    /// Sets the mode bits (kept at once: nothing depends on them).
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn set_mode(&mut self, number: u64, mode: u32) -> Result<(), No> {
        let node = self.nodes.get_mut(&number).ok_or(No::Entry)?;
        node.mode = (node.mode & 0o170_000) | (mode & 0o7777);
        Ok(())
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// [`No::Space`] when it would not fit, [`No::Kind`] when it is no file.
    pub fn resize(&mut self, number: u64, bytes: u64) -> Result<(), No> {
        self.reserve(number, bytes)?;
        self.file_mut(number)?.resize(bytes);
        Ok(())
    }

    /// Extends a file to at least `bytes`.
    ///
    /// # Errors
    /// As [`Disk::resize`].
    pub fn extend(&mut self, number: u64, bytes: u64) -> Result<(), No> {
        if self.look(number)?.bytes < bytes { self.resize(number, bytes) } else { Ok(()) }
    }

    /// Reads at most `count` bytes.
    ///
    /// # Errors
    /// [`No::Kind`] when it is no file, [`No::Broken`] when it is unreadable.
    pub fn read(&self, number: u64, offset: u64, count: u32) -> Result<Vec<u8>, No> {
        if self.unreadable.contains(&number) {
            return Err(No::Broken);
        }
        Ok(self.file(number)?.read(offset, u64::from(count)))
    }

    /// Writes.
    ///
    /// # Errors
    /// [`No::Space`] when the file would outgrow the disk; nothing is written then.
    pub fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) -> Result<(), No> {
        let end = offset + bytes.len() as u64;
        self.reserve(number, end)?;
        self.file_mut(number)?.write(offset, bytes);
        Ok(())
    }

    /// Makes a file's bytes durable.
    ///
    /// # Errors
    /// [`No::Broken`] while syncs are set to fail.
    pub fn sync_file(&mut self, number: u64) -> Result<(), No> {
        self.syncs += 1;
        if self.syncs_fail {
            return Err(No::Broken);
        }
        if self.syncs_lie {
            return Ok(());
        }
        if let Ok(file) = self.file_mut(number) {
            file.sync();
        }
        Ok(())
    }

    /// Makes a folder's names durable.
    ///
    /// # Errors
    /// [`No::Broken`] while syncs are set to fail.
    pub fn sync_folder(&mut self, number: u64) -> Result<(), No> {
        if self.syncs_fail {
            return Err(No::Broken);
        }
        self.folder(number)?;
        let mut due = vec![(number, u64::MAX)];
        while let Some((number, upto)) = due.pop() {
            due.extend(self.folder_mut(number)?.make_durable(upto));
        }
        Ok(())
    }

    /// The power goes: of what was not synced, about `keep_percent` stays.
    pub fn cut_power(&mut self, keep_percent: u64, chance: &mut Chance) {
        let mut numbers: Vec<u64> = self.nodes.keys().copied().collect();
        numbers.sort_unstable();
        let mut kept = BTreeMap::new();
        for number in numbers {
            match self.nodes.get_mut(&number).map(|node| &mut node.body) {
                Some(Body::File(file)) => file.cut_power(keep_percent, chance),
                Some(Body::Folder(folder)) => {
                    kept.insert(number, folder.kept_changes(keep_percent, chance));
                }
                Some(Body::Special) | None => {}
            }
        }
        self.lose_what_lacks_something(&mut kept);
        for (number, count) in kept {
            if let Ok(folder) = self.folder_mut(number) {
                folder.cut_power(count);
            }
        }
        let kept = self.reachable(true);
        self.nodes.retain(|number, _| kept.contains(number));
    }

    /// Takes from the number of changes that each folder keeps until every change that is kept has
    /// all that it needs.
    fn lose_what_lacks_something(&self, kept: &mut BTreeMap<u64, usize>) {
        let has = |kept: &BTreeMap<u64, usize>, (number, upto): (u64, u64)| {
            let needed = self.folder(number).map_or(0, |folder| folder.changes_upto(upto));
            needed <= kept.get(&number).copied().unwrap_or(0)
        };
        loop {
            let lacking = kept.iter().find_map(|(number, count)| {
                let folder = self.folder(*number).ok()?;
                let lacks = |at: &usize| folder.needs(*at).any(|need| !has(kept, need));
                Some((*number, (0..*count).find(lacks)?))
            });
            match lacking {
                Some((number, at)) => kept.insert(number, at),
                None => return,
            };
        }
    }

    fn reserve(&self, number: u64, bytes: u64) -> Result<(), No> {
        let grown = bytes.saturating_sub(self.look(number)?.bytes);
        let (bytes_max, used) = self.room();
        if grown > 0 && used + grown > bytes_max { Err(No::Space) } else { Ok(()) }
    }

    fn reachable(&self, synced: bool) -> HashSet<u64> {
        let mut seen = HashSet::from([ROOT]);
        let mut left = vec![ROOT];
        while let Some(number) = left.pop() {
            if let Ok(folder) = self.folder(number) {
                let names = if synced { &folder.synced } else { &folder.names };
                left.extend(names.values().filter(|node| seen.insert(**node)));
            }
        }
        seen
    }

    fn file_bytes(&self, number: u64) -> u64 {
        self.file(number).map_or(0, |file| file.bytes)
    }

    fn folder(&self, number: u64) -> Result<&Folder, No> {
        match &self.nodes.get(&number).ok_or(No::Entry)?.body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) | Body::Special => Err(No::Kind),
        }
    }

    fn folder_mut(&mut self, number: u64) -> Result<&mut Folder, No> {
        match &mut self.nodes.get_mut(&number).ok_or(No::Entry)?.body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) | Body::Special => Err(No::Kind),
        }
    }

    fn file(&self, number: u64) -> Result<&File, No> {
        match &self.nodes.get(&number).ok_or(No::Entry)?.body {
            Body::File(file) => Ok(file),
            Body::Folder(_) | Body::Special => Err(No::Kind),
        }
    }

    fn file_mut(&mut self, number: u64) -> Result<&mut File, No> {
        match &mut self.nodes.get_mut(&number).ok_or(No::Entry)?.body {
            Body::File(file) => Ok(file),
            Body::Folder(_) | Body::Special => Err(No::Kind),
        }
    }
}

#[cfg(test)]
mod tests;
