//! (first interface commit)
use super::{Disk, DiskFile, Journal};
use std::io;
use std::sync::Arc;

/// On which call a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Writing to a file.
    Write,
    /// Reading from a file.
    Read,
    /// Syncing a file.
    Sync,
    /// Creating a file.
    Create,
    /// Setting space aside.
    Reserve,
    /// Renaming or removing a file.
    Rename,
    /// Syncing the folder.
    SyncNames,
}

/// An error to be injected.
#[derive(Clone, Debug)]
pub struct Fault {
    /// On which call.
    pub on: FaultOn,
    /// Only for files whose name begins so; empty for all.
    pub prefix: String,
    /// Calls of that kind that still go well.
    pub after: u64,
    /// How many calls then fail.
    pub times: u64,
    /// With what.
    pub error: io::ErrorKind,
}

/// A disk in memory for tests.
#[derive(Clone)]
pub struct MemoryDisk {}

impl MemoryDisk {
    /// An empty disk without bound that keeps no journal.
    #[must_use]
    pub fn new() -> MemoryDisk {
        todo!()
    }
    /// An empty disk that keeps a journal of all that is done to it.
    #[must_use]
    pub fn recording() -> MemoryDisk {
        todo!()
    }
    /// What was done so far.
    #[must_use]
    pub fn journal(&self) -> Journal {
        todo!()
    }
    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        todo!("{fault:?}")
    }
    /// Bounds the bytes of all files together.
    pub fn set_capacity(&self, bytes: u64) {
        todo!("{bytes}")
    }
    /// Changes a file's bytes behind the log's back.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        todo!("{name}");
    }
}

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::new()
    }
}

impl Disk for MemoryDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        todo!("{name}")
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        todo!("{name}")
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        todo!("{from}{to}")
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        todo!("{name}")
    }
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        todo!()
    }
    fn sync_names(&self) -> io::Result<()> {
        todo!()
    }
    fn free_bytes(&self) -> u64 {
        todo!()
    }
    fn name(&self) -> String {
        todo!()
    }
}
