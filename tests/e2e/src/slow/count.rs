//! How often each operation was asked for, and the bytes read and written.
//!
//! Not here: times. Invariant: a count never falls.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of operation that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A name is looked up, or a node asked for its attributes.
    Look,
    /// A file is opened or made.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file or a folder is made durable.
    Sync,
    /// A folder is listed.
    List,
    /// Names, sizes, free space: all other changes and queries.
    Other,
}

impl Operation {
    /// All kinds, in the order of [`Counts::json`].
    pub const ALL: [Operation; 7] = [
        Operation::Look,
        Operation::Open,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::List,
        Operation::Other,
    ];

    const fn name(self) -> &'static str {
        match self {
            Operation::Look => "look",
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Sync => "sync",
            Operation::List => "list",
            Operation::Other => "other",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Counts {
    look: AtomicU64,
    open: AtomicU64,
    read: AtomicU64,
    write: AtomicU64,
    sync: AtomicU64,
    list: AtomicU64,
    other: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counts {
    fn cell(&self, operation: Operation) -> &AtomicU64 {
        match operation {
            Operation::Look => &self.look,
            Operation::Open => &self.open,
            Operation::Read => &self.read,
            Operation::Write => &self.write,
            Operation::Sync => &self.sync,
            Operation::List => &self.list,
            Operation::Other => &self.other,
        }
    }

    /// One more operation.
    pub(super) fn add(&self, operation: Operation) {
        self.cell(operation).fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that were given out.
    pub(super) fn add_read_bytes(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were taken.
    pub(super) fn add_written_bytes(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How often this was asked for.
    #[must_use]
    pub fn of(&self, operation: Operation) -> u64 {
        self.cell(operation).load(Ordering::Relaxed)
    }

    /// Everything, as one line of JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let kinds = Operation::ALL.map(|kind| format!("\"{}\":{}", kind.name(), self.of(kind)));
        let read = self.read_bytes.load(Ordering::Relaxed);
        let written = self.written_bytes.load(Ordering::Relaxed);
        format!("{{{},\"read_bytes\":{read},\"written_bytes\":{written}}}", kinds.join(","))
    }
}
