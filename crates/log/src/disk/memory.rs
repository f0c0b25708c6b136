//! A disk in memory, for tests of any crate: it fails, fills up and holds syncs on command, and can
//! keep a [`Journal`] from which the state after a power cut at any moment is made.
//!
//! Not here: what a power cut loses (`crash`).
//!
//! Invariant: the journal is in the order in which operations took effect; a sync is entered when
//! it ends, with the operation number at which it began.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::journal::{Journal, Operation};
use super::{Disk, DiskFile, FileSystem};
use crate::format::BLOCK_BYTES;

/// On which call a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Writing to a file.
    Write,
    /// Reading from a file.
    Read,
    /// Syncing a file.
    Sync,
    /// Opening a file.
    Open,
    /// Creating a file.
    Create,
    /// Setting space aside.
    Reserve,
    /// Renaming or removing a file.
    Rename,
    /// Syncing the folder.
    SyncNames,
    /// Any call that changes something on the disk: all of the above but reading and opening.
    Change,
}

/// An error to be injected.
#[derive(Clone, Debug)]
pub struct Fault {
    /// On which call.
    pub on: FaultOn,
    /// Only for files with this prefix in their name; empty for all.
    pub prefix: String,
    /// Calls of that kind that still go well.
    pub after: u64,
    /// How many calls then fail.
    pub times: u64,
    /// With what.
    pub error: io::ErrorKind,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    shared: Arc<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    inner: Mutex<Inner>,
    gate: Condvar,
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<String, usize>,
    files: Vec<Vec<u8>>,
    faults: Vec<Fault>,
    capacity: Option<u64>,
    journal: Option<Journal>,
    gate: Gate,
    syncs: u64,
}

/// Holds syncs of extents until a test lets them go.
#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: usize,
    permits: usize,
}

impl MemoryDisk {
    /// An empty disk without bound that keeps no journal.
    #[must_use]
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// An empty disk that keeps a journal of all that is done to it.
    #[must_use]
    pub fn recording() -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.hold().journal = Some(Journal::default());
        disk
    }

    /// A disk that holds these files, all synced, and keeps a journal of what is done to it then.
    #[must_use]
    pub fn recording_with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> MemoryDisk {
        let found: Vec<_> = files.into_iter().collect();
        let disk = MemoryDisk::with_files(found.clone());
        disk.hold().journal = Some(Journal { found, operations: Vec::new() });
        disk
    }

    /// A disk that holds these files, all synced.
    #[must_use]
    pub fn with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> MemoryDisk {
        let disk = MemoryDisk::new();
        for (name, bytes) in files {
            let mut inner = disk.hold();
            let id = inner.files.len();
            inner.files.push(bytes);
            inner.names.insert(name, id);
        }
        disk
    }

    /// Names and bytes of all files.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.hold();
        inner.names.iter().map(|(name, id)| (name.clone(), inner.files[*id].clone())).collect()
    }

    /// What was done so far; empty unless the disk is a recording one.
    #[must_use]
    pub fn journal(&self) -> Journal {
        self.hold().journal.clone().unwrap_or_default()
    }

    /// Puts a mark of the test's own into the journal.
    pub fn note(&self, mark: u64) {
        self.hold().enter(Operation::Note(mark));
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.hold().faults.push(fault);
    }

    /// Takes all faults back.
    pub fn heal(&self) {
        self.hold().faults.clear();
    }

    /// Bounds the bytes of all files together; `None` lifts the bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.hold().capacity = bytes;
    }

    /// Changes a file's bytes behind the log's back. Does nothing when it is not there.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut inner = self.hold();
        if let Some(id) = inner.names.get(name).copied() {
            change(&mut inner.files[id]);
        }
    }

    /// Syncs of files so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.hold().syncs
    }

    /// From now on, syncs of extents wait for [`MemoryDisk::release_syncs`].
    pub fn hold_syncs(&self) {
        self.hold().gate.closed = true;
    }

    /// Waits until `count` syncs are held.
    pub fn wait_for_syncs(&self, count: usize) {
        let mut inner = self.hold();
        while inner.gate.waiting < count {
            inner = self.shared.gate.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many syncs are held now.
    #[must_use]
    pub fn syncs_held(&self) -> usize {
        self.hold().gate.waiting
    }

    /// Lets `count` held syncs go on.
    pub fn release_syncs(&self, count: usize) {
        self.hold().gate.permits += count;
        self.shared.gate.notify_all();
    }

    /// Lets all syncs go on, and later ones too.
    pub fn open_gate(&self) {
        self.hold().gate.closed = false;
        self.shared.gate.notify_all();
    }

    fn hold(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: usize) -> Arc<dyn DiskFile> {
        Arc::new(MemoryFile { disk: self.clone(), id })
    }
}

impl FaultOn {
    /// Whether a fault on this strikes a call of that kind.
    fn strikes(self, call: FaultOn) -> bool {
        let changes = !matches!(call, FaultOn::Read | FaultOn::Open);
        self == call || (self == FaultOn::Change && changes)
    }
}

impl Inner {
    fn enter(&mut self, operation: Operation) {
        if let Some(journal) = &mut self.journal {
            journal.operations.push(operation);
        }
    }

    fn strike(&mut self, on: FaultOn, name: &str) -> io::Result<()> {
        for fault in &mut self.faults {
            if !fault.on.strikes(on) || !name.starts_with(&fault.prefix) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                return Err(fault.error.into());
            }
        }
        Ok(())
    }

    fn name_of(&self, id: usize) -> String {
        let found = self.names.iter().find(|(_, named)| **named == id);
        found.map_or_else(String::new, |(name, _)| name.clone())
    }

    fn bytes_used(&self) -> u64 {
        self.names.values().map(|id| self.files[*id].len() as u64).sum()
    }

    fn check_room(&self, more: u64) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if self.bytes_used().saturating_add(more) > capacity => {
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.hold();
        inner.strike(FaultOn::Create, name)?;
        let id = inner.files.len();
        inner.files.push(Vec::new());
        inner.names.insert(name.to_owned(), id);
        inner.enter(Operation::Create { name: name.to_owned(), id });
        drop(inner);
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.hold();
        inner.strike(FaultOn::Open, name)?;
        let id = inner.names.get(name).copied();
        drop(inner);
        id.map(|id| self.file(id)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.hold();
        inner.strike(FaultOn::Rename, from)?;
        let id = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), id);
        inner.enter(Operation::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.hold();
        inner.strike(FaultOn::Rename, name)?;
        inner.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        inner.enter(Operation::Remove { name: name.to_owned() });
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.hold().names.keys().cloned().collect())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let inner = self.hold();
        let id = inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(inner.files[*id].len() as u64)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.hold();
        inner.strike(FaultOn::SyncNames, "")?;
        inner.enter(Operation::SyncNames);
        Ok(())
    }

    fn file_system(&self) -> Option<FileSystem> {
        let inner = self.hold();
        let bytes_max = inner.capacity?;
        Some(FileSystem { bytes_max, bytes_free: bytes_max.saturating_sub(inner.bytes_used()) })
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn is_buffered(&self) -> bool {
        false
    }
}

struct MemoryFile {
    disk: MemoryDisk,
    id: usize,
}

impl DiskFile for MemoryFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        check_aligned(bytes, offset);
        let mut inner = self.disk.hold();
        let name = inner.name_of(self.id);
        inner.strike(FaultOn::Write, &name)?;
        let start = crate::format::size(offset);
        let end = start + bytes.len();
        let length = inner.files[self.id].len();
        inner.check_room(end.saturating_sub(length) as u64)?;
        let file = &mut inner.files[self.id];
        file.resize(length.max(end), 0);
        file[start..end].copy_from_slice(bytes);
        if inner.journal.is_some() {
            inner.enter(Operation::Write { id: self.id, offset: start, bytes: bytes.to_vec() });
        }
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        check_aligned(bytes, offset);
        let mut inner = self.disk.hold();
        let name = inner.name_of(self.id);
        inner.strike(FaultOn::Read, &name)?;
        let file = &inner.files[self.id];
        let rest = file.get(crate::format::size(offset)..).unwrap_or(&[]);
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.disk.hold();
        let name = inner.name_of(self.id);
        let began = inner.journal.as_ref().map_or(0, |journal| journal.operations.len());
        if name.starts_with("extent-") {
            inner.gate.waiting += 1;
            self.disk.shared.gate.notify_all();
            while inner.gate.closed && inner.gate.permits == 0 {
                inner = self.disk.shared.gate.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            inner.gate.permits = inner.gate.permits.saturating_sub(1);
            inner.gate.waiting -= 1;
        }
        inner.strike(FaultOn::Sync, &name)?;
        inner.syncs += 1;
        inner.enter(Operation::Sync { id: self.id, began });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.hold().files[self.id].len() as u64)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut inner = self.disk.hold();
        let name = inner.name_of(self.id);
        inner.strike(FaultOn::Reserve, &name)?;
        let length = inner.files[self.id].len() as u64;
        inner.check_room(bytes.saturating_sub(length))
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        let mut inner = self.disk.hold();
        let name = inner.name_of(self.id);
        inner.strike(FaultOn::Write, &name)?;
        let bytes = crate::format::size(bytes);
        inner.files[self.id].truncate(bytes);
        inner.enter(Operation::Cut { id: self.id, bytes });
        Ok(())
    }
}

/// What direct I/O would refuse must not pass in tests either.
fn check_aligned(bytes: &[u8], offset: u64) {
    assert!(bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES), "the buffer is not aligned");
    assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "the length is not whole blocks");
    assert!(offset.is_multiple_of(BLOCK_BYTES as u64), "the offset is not a block's");
}
