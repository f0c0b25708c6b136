//! How many blocks of all queues are in memory, without asking each queue.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Shared by all lanes of a queue manager; only its owner's thread changes it at a time.
#[derive(Debug, Default)]
pub(crate) struct Census(AtomicUsize);

impl Census {
    pub(crate) fn came(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn went(&self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a block goes that never came");
    }

    /// Blocks in memory.
    pub(crate) fn here(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
