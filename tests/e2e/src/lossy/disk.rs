//! Pages and names in memory, each known twice: as programs see it, and as a power cut leaves it.
//!
//! A page becomes durable by a sync of its file; a name by a sync of its folder. A power cut keeps
//! a random share of the pages and, folder by folder, a random number of the oldest name changes.
//! A rename across folders is one change, kept or lost in both, and durable by a sync of either: a
//! file system's journal has it in one transaction.
//! Not here: permissions, links, times, and anything below a page. Invariant: every name leads to
//! a node that exists.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};

use crate::chance::Chance;

mod file;

use file::File;

/// Bytes of one page: what is kept or lost as a whole.
pub const PAGE_BYTES: usize = 4096;
/// Number of the folder that everything is in.
pub const ROOT: u64 = 1;

type Names = BTreeMap<OsString, u64>;

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

#[derive(Default)]
struct Folder {
    synced: Names,
    names: Names,
    changes: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Add(OsString, u64),
    Remove(OsString),
    Rename(OsString, OsString),
    /// A name came from another folder, or went to one: one change with that of the other folder.
    Came(OsString, u64, Move),
    Went(OsString, Move),
}

/// A rename across folders, as one of the two folders knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Move {
    number: u64,
    other: u64,
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
    next_move: u64,
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
            next_move: 0,
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
        let folder = self.folder_mut(at)?;
        if folder.names.contains_key(name) {
            return Err(No::Exists);
        }
        folder.change(Change::Add(name.into(), node));
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
        self.folder_mut(at)?.change(Change::Remove(name.into()));
        Ok(())
    }

    /// Renames, over what has the new name.
    ///
    /// # Errors
    /// [`No::Entry`].
    pub fn rename(&mut self, at: u64, name: &OsStr, to: u64, new: &OsStr) -> Result<(), No> {
        let found = self.find(at, name)?;
        self.folder(to)?;
        if at == to {
            self.folder_mut(at)?.change(Change::Rename(name.into(), new.into()));
        } else {
            let number = self.next_move;
            self.next_move += 1;
            let (came, went) = (Move { number, other: at }, Move { number, other: to });
            self.folder_mut(to)?.change(Change::Came(new.into(), found.node, came));
            self.folder_mut(at)?.change(Change::Went(name.into(), went));
        }
        Ok(())
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
        let all = self.folder(number)?.changes.len();
        let mut due = vec![(number, all)];
        while let Some((number, count)) = due.pop() {
            for moved in self.folder_mut(number)?.make_durable(count) {
                let mut other = self.folder(moved.other)?.changes.iter();
                if let Some(at) = other.position(|change| change.is(moved.number)) {
                    due.push((moved.other, at + 1));
                }
            }
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
        self.lose_moves_of_one_side(&mut kept);
        for (number, count) in kept {
            if let Ok(folder) = self.folder_mut(number) {
                folder.cut_power(count);
            }
        }
        let kept = self.reachable(true);
        self.nodes.retain(|number, _| kept.contains(number));
    }

    /// Takes from the number of changes that each folder keeps until every rename across folders is
    /// kept by both of its folders or by none.
    fn lose_moves_of_one_side(&self, kept: &mut BTreeMap<u64, usize>) {
        loop {
            let mut torn = None;
            for (number, count) in &*kept {
                let changes = self.folder(*number).map_or(&[][..], |folder| &folder.changes);
                for (at, change) in changes.iter().take(*count).enumerate() {
                    let Some(moved) = change.moved() else { continue };
                    let other = self.folder(moved.other).map_or(&[][..], |other| &other.changes);
                    let there = kept.get(&moved.other).copied().unwrap_or(0);
                    if !other.iter().take(there).any(|change| change.is(moved.number)) {
                        torn = Some((*number, at));
                        break;
                    }
                }
            }
            match torn {
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

impl Folder {
    fn change(&mut self, change: Change) {
        change.clone().done_to(&mut self.names);
        self.changes.push(change);
    }

    /// The oldest `count` changes cannot be lost any more; the renames across folders among them.
    fn make_durable(&mut self, count: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        for change in self.changes.drain(..count.min(self.changes.len())) {
            moves.extend(change.moved());
            change.done_to(&mut self.synced);
        }
        moves
    }

    /// How many of the oldest changes a power cut leaves.
    fn kept_changes(&self, keep_percent: u64, chance: &mut Chance) -> usize {
        self.changes.iter().take_while(|_| chance.percent(keep_percent)).count()
    }

    fn cut_power(&mut self, kept: usize) {
        self.make_durable(kept);
        self.changes.clear();
        self.names = self.synced.clone();
    }
}

impl Change {
    /// The rename across folders that this is one side of.
    fn moved(&self) -> Option<Move> {
        match self {
            Change::Came(_, _, moved) | Change::Went(_, moved) => Some(*moved),
            Change::Add(..) | Change::Remove(_) | Change::Rename(..) => None,
        }
    }

    fn is(&self, number: u64) -> bool {
        self.moved().is_some_and(|moved| moved.number == number)
    }

    fn done_to(self, names: &mut Names) {
        match self {
            Change::Add(name, node) | Change::Came(name, node, _) => {
                names.insert(name, node);
            }
            Change::Remove(name) | Change::Went(name, _) => {
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

#[cfg(test)]
mod tests;
