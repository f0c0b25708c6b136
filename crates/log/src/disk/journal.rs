//! The journal of a disk in memory: each operation, in order.
//!
//! Not here: what a power cut makes of it (`crash`).

/// What was done to a [`super::MemoryDisk`], in order.
#[derive(Clone, Default)]
pub struct Journal {
    /// What was there, synced, before all of it; a file's id is its index.
    pub(super) found: Vec<(String, Vec<u8>)>,
    pub(super) operations: Vec<Operation>,
}

#[derive(Clone)]
pub(super) enum Operation {
    Create {
        name: String,
        id: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncNames,
    Write {
        id: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// The file ends here now.
    Cut {
        id: usize,
        bytes: usize,
    },
    /// Ended here; covers writes before operation `began`.
    Sync {
        id: usize,
        began: usize,
    },
    Note(u64),
}
