//! A file system as a state: names, files, what of it survives a power cut.
//!
//! Not here: time, faults, processes, locks; the bytes of a file (`content`).
//!
//! Names that are added, removed or renamed are *changes*, durable when a folder that they touch is
//! synced. A change needs the earlier ones of the same name and of the same file, and a rename is
//! one change; so a power cut leaves no file under two names, and none without a name, because of
//! one rename.
//!
//! Invariant: a file is kept as long as a name, a handle, the medium or a change needs it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use towline_types::SeededRandom;

use super::content::{BLOCK_BYTES, Content};

mod medium;

/// Of a file or a folder, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InodeId(u64);

impl InodeId {
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

const ROOT: InodeId = InodeId(0);

#[derive(Clone, Debug)]
enum Kind {
    File(Arc<Content>),
    Folder { now: Names, durable: Names },
}

type Names = BTreeMap<OsString, InodeId>;

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    mode: u32,
    /// Names that a process sees.
    links: u64,
    handles: u64,
    /// Names on the medium, and changes that are not.
    kept: u64,
}

/// One change of names.
#[derive(Clone, Debug)]
struct Change {
    /// A name in a folder, and what it stands for from now on. Two for a rename.
    names: Vec<(InodeId, OsString, Option<InodeId>)>,
    /// Whose names they are or were.
    inodes: Vec<InodeId>,
}

impl Change {
    fn needs(&self, earlier: &Change) -> bool {
        let same_name = |(folder, name, _): &(InodeId, OsString, Option<InodeId>)| {
            earlier.names.iter().any(|other| other.0 == *folder && other.1 == *name)
        };
        // A folder goes when all that was in it has gone.
        let is_removal = self.names.iter().all(|(.., id)| id.is_none());
        self.names.iter().any(same_name)
            || self.inodes.iter().any(|inode| earlier.inodes.contains(inode))
            || (is_removal && self.inodes.iter().any(|folder| earlier.touches(*folder)))
    }

    fn touches(&self, folder: InodeId) -> bool {
        self.names.iter().any(|(of, ..)| *of == folder)
    }
}

/// What is known of a file or a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) inode: InodeId,
    pub(super) is_folder: bool,
    pub(super) length: u64,
    pub(super) mode: u32,
    pub(super) links: u64,
    pub(super) blocks: u64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    pub(super) writes: bool,
    pub(super) creates: bool,
    pub(super) creates_new: bool,
    pub(super) truncates: bool,
    pub(super) mode: u32,
}

/// The state of one file system.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    inodes: BTreeMap<InodeId, Inode>,
    changes: Vec<Change>,
    inodes_made: u64,
    blocks_max: usize,
    blocks_used: usize,
}

impl Volume {
    pub(super) fn new() -> Volume {
        let kind = Kind::Folder { now: Names::new(), durable: Names::new() };
        let root = Inode { kind, mode: 0o755, links: 1, handles: 0, kept: 1 };
        Volume {
            inodes: BTreeMap::from([(ROOT, root)]),
            changes: Vec::new(),
            inodes_made: 0,
            // 1 TiB.
            blocks_max: 1 << 28,
            blocks_used: 0,
        }
    }

    pub(super) fn set_bytes_max(&mut self, bytes: u64) {
        self.blocks_max = usize::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(usize::MAX);
    }

    pub(super) fn bytes_used(&self) -> u64 {
        (self.blocks_used * BLOCK_BYTES) as u64
    }

    /// All that it can hold, and what is free, in bytes.
    pub(super) fn space(&self) -> (u64, u64) {
        let free = self.blocks_max.saturating_sub(self.blocks_used);
        ((self.blocks_max * BLOCK_BYTES) as u64, (free * BLOCK_BYTES) as u64)
    }

    fn inode(&self, id: InodeId) -> Result<&Inode, Errno> {
        self.inodes.get(&id).ok_or(Errno::IO)
    }

    fn inode_mut(&mut self, id: InodeId) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&id).ok_or(Errno::IO)
    }

    fn content(&self, id: InodeId) -> Result<&Content, Errno> {
        match &self.inode(id)?.kind {
            Kind::File(content) => Ok(content),
            Kind::Folder { .. } => Err(Errno::ISDIR),
        }
    }

    fn content_mut(&mut self, id: InodeId) -> Result<&mut Content, Errno> {
        match &mut self.inode_mut(id)?.kind {
            Kind::File(content) => Ok(Arc::make_mut(content)),
            Kind::Folder { .. } => Err(Errno::ISDIR),
        }
    }

    fn names(&self, id: InodeId) -> Result<&Names, Errno> {
        match &self.inode(id)?.kind {
            Kind::Folder { now, .. } => Ok(now),
            Kind::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// Finds what has this path; the folder in which all paths begin is the root.
    pub(super) fn resolve(&self, path: &Path) -> Result<InodeId, Errno> {
        let mut passed = vec![ROOT];
        for part in path.components() {
            let here = passed.last().copied().unwrap_or(ROOT);
            match part {
                Component::Normal(name) => {
                    passed.push(*self.names(here)?.get(name).ok_or(Errno::NOENT)?);
                }
                Component::ParentDir if passed.len() > 1 => drop(passed.pop()),
                Component::ParentDir | Component::CurDir => drop(self.names(here)?),
                Component::RootDir | Component::Prefix(_) => passed.truncate(1),
            }
        }
        Ok(passed.last().copied().unwrap_or(ROOT))
    }

    /// The folder of a path, and the name in it.
    fn slot<'a>(&self, path: &'a Path) -> Result<(InodeId, &'a OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::EXIST)?;
        let folder = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        self.names(folder)?;
        Ok((folder, name))
    }

    pub(super) fn look(&self, id: InodeId) -> Result<Attributes, Errno> {
        let inode = self.inode(id)?;
        let (is_folder, length, blocks) = match &inode.kind {
            Kind::File(content) => (false, content.length(), content.allocated()),
            Kind::Folder { .. } => (true, BLOCK_BYTES as u64, 1),
        };
        let (mode, links) = (inode.mode, inode.links);
        Ok(Attributes { inode: id, is_folder, length, mode, links, blocks: blocks as u64 })
    }

    /// Names in a folder, sorted, and what they are.
    pub(super) fn list(&self, folder: InodeId) -> Result<Vec<(OsString, Attributes)>, Errno> {
        let names = self.names(folder)?.iter();
        names.map(|(name, id)| Ok((name.clone(), self.look(*id)?))).collect()
    }

    /// The first name in a folder that begins so.
    pub(super) fn first_name(&self, folder: &Path, prefix: &str) -> Option<String> {
        let names = self.names(self.resolve(folder).ok()?).ok()?;
        let mut from =
            names.range::<OsStr, _>((Bound::Included(OsStr::new(prefix)), Bound::Unbounded));
        let name = from.next()?.0.to_string_lossy();
        name.starts_with(prefix).then(|| name.into_owned())
    }

    /// Opens a file or a folder: the handle is to be closed.
    pub(super) fn open(&mut self, path: &Path, how: Opening) -> Result<InodeId, Errno> {
        let id = match self.resolve(path) {
            Ok(_) if how.creates_new => return Err(Errno::EXIST),
            Ok(id) => id,
            Err(Errno::NOENT) if how.creates || how.creates_new => {
                let (folder, name) = self.slot(path)?;
                let kind = Kind::File(Arc::default());
                self.make(folder, name, kind, how.mode)
            }
            Err(error) => return Err(error),
        };
        let is_folder = matches!(self.inode(id)?.kind, Kind::Folder { .. });
        if is_folder && (how.writes || how.creates || how.truncates) {
            return Err(Errno::ISDIR);
        }
        if how.truncates {
            self.set_length(id, 0)?;
        }
        self.inode_mut(id)?.handles += 1;
        Ok(id)
    }

    pub(super) fn close(&mut self, id: InodeId) {
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        inode.handles = inode.handles.saturating_sub(1);
        self.collect(id, true);
    }

    pub(super) fn make_folder(&mut self, path: &Path, mode: u32) -> Result<(), Errno> {
        if self.resolve(path).is_ok() {
            return Err(Errno::EXIST);
        }
        let (folder, name) = self.slot(path)?;
        let kind = Kind::Folder { now: Names::new(), durable: Names::new() };
        self.make(folder, name, kind, mode);
        Ok(())
    }

    fn make(&mut self, folder: InodeId, name: &OsStr, kind: Kind, mode: u32) -> InodeId {
        self.inodes_made += 1;
        let id = InodeId(self.inodes_made);
        self.inodes.insert(id, Inode { kind, mode, links: 0, handles: 0, kept: 0 });
        self.change(vec![(folder, name.to_owned(), Some(id))], vec![id]);
        id
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let id = self.resolve(from)?;
        if self.resolve(to).is_ok() {
            return Err(Errno::EXIST);
        }
        let (folder, name) = self.slot(to)?;
        if self.look(id)?.is_folder {
            return Err(Errno::PERM);
        }
        self.change(vec![(folder, name.to_owned(), Some(id))], vec![id]);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (old, old_name) = self.slot(from)?;
        let (new, new_name) = self.slot(to)?;
        let id = self.resolve(from)?;
        let is_folder = self.look(id)?.is_folder;
        if is_folder && to != from && to.starts_with(from) {
            return Err(Errno::INVAL);
        }
        if to != from && from.starts_with(to) {
            return Err(Errno::NOTEMPTY);
        }
        let mut inodes = vec![id];
        if let Some(replaced) = self.names(new)?.get(new_name).copied() {
            if replaced == id {
                return Ok(());
            }
            match &self.inode(replaced)?.kind {
                Kind::Folder { .. } if !is_folder => return Err(Errno::ISDIR),
                Kind::Folder { now, .. } if !now.is_empty() => return Err(Errno::NOTEMPTY),
                Kind::File(_) if is_folder => return Err(Errno::NOTDIR),
                Kind::Folder { .. } | Kind::File(_) => inodes.push(replaced),
            }
        }
        let gone = (old, old_name.to_owned(), None);
        self.change(vec![gone, (new, new_name.to_owned(), Some(id))], inodes);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> Result<(), Errno> {
        let id = self.resolve(path)?;
        if self.look(id)?.is_folder {
            return Err(Errno::ISDIR);
        }
        let (folder, name) = self.slot(path)?;
        self.change(vec![(folder, name.to_owned(), None)], vec![id]);
        Ok(())
    }

    pub(super) fn remove_folder(&mut self, path: &Path) -> Result<(), Errno> {
        let id = self.resolve(path)?;
        if !self.names(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let (folder, name) = self.slot(path)?;
        self.change(vec![(folder, name.to_owned(), None)], vec![id]);
        Ok(())
    }

    /// Makes a change that readers see from now on.
    fn change(&mut self, names: Vec<(InodeId, OsString, Option<InodeId>)>, inodes: Vec<InodeId>) {
        for id in &inodes {
            if let Some(inode) = self.inodes.get_mut(id) {
                inode.kept += 1;
            }
        }
        for (folder, name, id) in &names {
            let Some(Inode { kind: Kind::Folder { now, .. }, .. }) = self.inodes.get_mut(folder)
            else {
                continue;
            };
            let before = match id {
                Some(id) => now.insert(name.clone(), *id),
                None => now.remove(name),
            };
            if let Some(inode) = id.and_then(|id| self.inodes.get_mut(&id)) {
                inode.links += 1;
            }
            if let Some(inode) = before.and_then(|id| self.inodes.get_mut(&id)) {
                inode.links -= 1;
            }
        }
        for id in &inodes {
            self.collect(*id, true);
        }
        self.changes.push(Change { names, inodes });
    }

    /// Gives back what nothing needs any more.
    fn collect(&mut self, id: InodeId, was_seen: bool) {
        let Some(inode) = self.inodes.get(&id) else { return };
        if inode.links > 0 || inode.handles > 0 {
            return;
        }
        if was_seen && let Kind::File(content) = &inode.kind {
            self.blocks_used = self.blocks_used.saturating_sub(content.allocated());
        }
        if inode.kept == 0 {
            self.inodes.remove(&id);
        }
    }

    /// How many syncs of a file have failed.
    pub(super) fn failed_syncs(&self, id: InodeId) -> u64 {
        self.content(id).map_or(0, Content::failed_syncs)
    }

    /// Syncs a file or a folder: the bytes, or the names in it. Partly: the sync fails. Direct: the
    /// file is written past the memory of the system.
    pub(super) fn sync(
        &mut self,
        id: InodeId,
        is_direct: bool,
        partly: Option<&mut SeededRandom>,
    ) -> Result<(), Errno> {
        let is_folder = self.look(id)?.is_folder;
        match (is_folder, partly) {
            (false, None) => {
                if !self.content(id)?.is_synced() {
                    self.content_mut(id)?.sync();
                }
            }
            (false, Some(dice)) => {
                let content = self.content_mut(id)?;
                let before = content.allocated();
                content.sync_partly(is_direct, dice);
                let after = content.allocated();
                self.blocks_used = (self.blocks_used + after).saturating_sub(before);
            }
            (true, partly) => {
                let touched = self.changes.iter().map(|change| change.touches(id));
                let mut chosen: Vec<_> = touched.collect();
                if let Some(dice) = partly {
                    chosen.iter_mut().for_each(|chosen| *chosen &= dice.chance(500));
                }
                self.apply_chosen(chosen);
            }
        }
        Ok(())
    }

    pub(super) fn read(&self, id: InodeId, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        Ok(self.content(id)?.read(buffer, offset))
    }

    /// Writes as much as there is space for. How much that is.
    pub(super) fn write(&mut self, id: InodeId, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let free = self.blocks_max.saturating_sub(self.blocks_used);
        let (fits, taken) = self.content(id)?.fitting(bytes.len(), offset, free);
        if fits == 0 && !bytes.is_empty() {
            return Err(Errno::NOSPC);
        }
        self.content_mut(id)?.write(&bytes[..fits], offset);
        self.blocks_used += taken;
        Ok(fits)
    }

    pub(super) fn set_length(&mut self, id: InodeId, length: u64) -> Result<(), Errno> {
        let content = self.content_mut(id)?;
        let before = content.allocated();
        content.set_length(length);
        let after = content.allocated();
        self.blocks_used = (self.blocks_used + after).saturating_sub(before);
        Ok(())
    }

    pub(super) fn reserve(&mut self, id: InodeId, bytes: u64) -> Result<(), Errno> {
        let missing = self.content(id)?.missing(bytes);
        if missing > self.blocks_max.saturating_sub(self.blocks_used) {
            return Err(Errno::NOSPC);
        }
        self.content_mut(id)?.reserve(bytes);
        self.blocks_used += missing;
        Ok(())
    }

    pub(super) fn flip_bit(&mut self, id: InodeId, bit: u64) -> Result<bool, Errno> {
        Ok(self.content_mut(id)?.flip_bit(bit))
    }

    /// All files by their paths, and folders with `None`.
    pub(super) fn tree(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut tree = BTreeMap::new();
        let mut folders = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, folder)) = folders.pop() {
            for (name, id) in self.names(folder).into_iter().flatten() {
                let path = path.join(name);
                let bytes = self.bytes(*id).ok();
                if bytes.is_none() {
                    folders.push((path.clone(), *id));
                }
                tree.insert(path, bytes);
            }
        }
        tree
    }

    /// Makes a folder, and those above it; it may be there.
    pub(super) fn make_folders(&mut self, path: &Path) -> Result<(), Errno> {
        let whole: Vec<_> = path.ancestors().collect();
        for folder in whole.into_iter().rev() {
            match self.make_folder(folder, 0o755) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        self.names(self.resolve(path)?).map(|_| ())
    }

    /// Replaces a file, and makes the folders above it.
    pub(super) fn put(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Errno> {
        self.make_folders(path.parent().unwrap_or(Path::new("")))?;
        let how = Opening { writes: true, creates: true, truncates: true, ..Opening::default() };
        let id = self.open(path, Opening { mode: 0o644, ..how })?;
        let written = self.write(id, bytes, 0);
        self.close(id);
        written.map(drop)
    }

    /// All of a file.
    pub(super) fn bytes(&self, id: InodeId) -> Result<Vec<u8>, Errno> {
        let content = self.content(id)?;
        let mut bytes = vec![0; usize::try_from(content.length()).unwrap_or(usize::MAX)];
        content.read(&mut bytes, 0);
        Ok(bytes)
    }
}
