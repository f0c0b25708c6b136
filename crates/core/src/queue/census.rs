//! How many blocks of all queues are in memory, and what their extras take, without asking each
//! queue.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Shared by all lanes of a queue manager; only its owner's thread changes it at a time.
#[derive(Debug, Default)]
pub(crate) struct Census {
    blocks: AtomicUsize,
    extra_bytes: AtomicU64,
}

impl Census {
    /// A block, with what its extras take.
    pub(crate) fn came(&self, extra_bytes: u64) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.extras_changed(0, extra_bytes);
    }

    /// The same.
    pub(crate) fn went(&self, extra_bytes: u64) {
        let before = self.blocks.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a block goes that never came");
        self.extras_changed(extra_bytes, 0);
    }

    /// The extras of a block take so much now.
    pub(crate) fn extras_changed(&self, before: u64, now: u64) {
        if before == now {
            return;
        }
        let all = self.extra_bytes.fetch_add(now, Ordering::Relaxed).saturating_add(now);
        assert!(all >= before, "extras go that never came");
        self.extra_bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Bytes of the extras of all blocks in memory.
    pub(crate) fn extra_bytes(&self) -> u64 {
        self.extra_bytes.load(Ordering::Relaxed)
    }

    /// Blocks in memory.
    pub(crate) fn here(&self) -> usize {
        self.blocks.load(Ordering::Relaxed)
    }
}
