//! What a test sees of each operation, and what it may do to it.
//!
//! Not here: the operations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::simulated::schedule::Process;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// Opens a file or a folder that is there.
    Open,
    /// Opens a file, and may make or empty it.
    Create,
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Cuts a file, or makes it longer.
    SetLength,
    /// Sets space aside.
    Reserve,
    /// Syncs a file, or the names in a folder.
    Sync,
    /// Renames a file or a folder.
    Rename,
    /// Gives a file a second name.
    Link,
    /// Removes a file.
    Remove,
    /// Makes a folder.
    MakeFolder,
    /// Removes an empty folder.
    RemoveFolder,
    /// Lists a folder.
    List,
    /// Asks for length, kind and times, or for free space.
    Look,
    /// Takes, asks for or gives back a lock.
    Lock,
}

impl OperationKind {
    /// Whether it can change what is on the medium.
    #[must_use]
    pub fn changes(self) -> bool {
        match self {
            OperationKind::Create
            | OperationKind::Write
            | OperationKind::SetLength
            | OperationKind::Reserve
            | OperationKind::Sync
            | OperationKind::Rename
            | OperationKind::Link
            | OperationKind::Remove
            | OperationKind::MakeFolder
            | OperationKind::RemoveFolder => true,
            OperationKind::Open
            | OperationKind::Read
            | OperationKind::List
            | OperationKind::Look
            | OperationKind::Lock => false,
        }
    }
}

/// An operation that is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Counts the operations of this file system, from 1.
    pub number: u64,
    /// What it does.
    pub kind: OperationKind,
    /// Which process asks.
    pub process: Process,
    /// Its file: the path that it was opened by.
    pub path: &'a Path,
    /// The second path of a rename or a link.
    pub to: Option<&'a Path>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes; the new length.
    pub length: u64,
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It happens, and takes the usual time.
    #[default]
    Goes,
    /// It happens, and takes so long.
    Takes(Duration),
    /// It does not end, and has no effect, until faults are cleared; then it happens.
    Hangs,
    /// It fails with this error number, without effect.
    Fails(i32),
    /// It happens, and its caller gets this error number. Of what a sync should make durable some
    /// is; the rest is given up, or comes with the next sync.
    FailsAfter(i32),
    /// The process ends just before it.
    KillsBefore,
    /// The process ends just after it.
    KillsAfter,
    /// A read gives this bit of what it reads the wrong way round.
    FlipsBit(u64),
}

/// An operation that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedOperation {
    /// See [`Operation::number`].
    pub number: u64,
    /// When it ended, in microseconds of the world.
    pub at_us: u64,
    /// What it did.
    pub kind: OperationKind,
    /// Which process asked.
    pub process: Process,
    /// Its file.
    pub path: PathBuf,
    /// The second path of a rename or a link.
    pub to: Option<PathBuf>,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes; the new length.
    pub length: u64,
    /// The error number, if it failed.
    pub error: Option<i32>,
}

/// How long operations take, in microseconds: from, to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTiming {
    /// A read.
    pub read_us: (u64, u64),
    /// A write, or a change of the length.
    pub write_us: (u64, u64),
    /// A sync of a file or a folder.
    pub sync_us: (u64, u64),
    /// All that has to do with names.
    pub name_us: (u64, u64),
    /// How often in 1,000 times an operation stalls, and for how long.
    pub stalls_per_mille: u64,
    /// See there.
    pub stall_us: (u64, u64),
}

impl Default for DiskTiming {
    /// A good disk.
    fn default() -> DiskTiming {
        DiskTiming {
            read_us: (10, 40),
            write_us: (10, 40),
            sync_us: (50, 400),
            name_us: (5, 20),
            stalls_per_mille: 0,
            stall_us: (0, 0),
        }
    }
}

impl DiskTiming {
    /// Of a kind of operation, without stalls.
    #[must_use]
    pub fn of(&self, kind: OperationKind) -> (u64, u64) {
        match kind {
            OperationKind::Read => self.read_us,
            OperationKind::Write | OperationKind::SetLength | OperationKind::Reserve => {
                self.write_us
            }
            OperationKind::Sync => self.sync_us,
            OperationKind::Open
            | OperationKind::Create
            | OperationKind::Rename
            | OperationKind::Link
            | OperationKind::Remove
            | OperationKind::MakeFolder
            | OperationKind::RemoveFolder
            | OperationKind::List
            | OperationKind::Look
            | OperationKind::Lock => self.name_us,
        }
    }
}
