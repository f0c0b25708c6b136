//! (first interface commit)
use super::MemoryDisk;

/// What was done to a [`MemoryDisk`], in order.
#[derive(Clone, Default)]
pub struct Journal {}

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

impl Journal {
    /// The disk as it would be found after a power cut at `point`.
    #[must_use]
    pub fn crash(&self, point: CrashPoint, rule: CrashRule) -> MemoryDisk {
        todo!("{point:?}{rule:?}")
    }
}
