//! Buffers at addresses that direct I/O takes, used again and again.
//!
//! A fresh buffer for each read would cost more than the read: its pages have to be found and
//! zeroed. The one that was given back last is given out first, and some are there beforehand.
//! Not here: any file. Invariant: a slice given out begins at a multiple of [`BLOCK`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What addresses, offsets and lengths of direct I/O are multiples of, at most.
pub(super) const BLOCK: usize = 4096;
/// Buffers that are there from the start, and their size: some large reads at once.
const READY: usize = 8;
const READY_BYTES: usize = 4 << 20;

/// See the module.
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// With some buffers ready.
    pub(super) fn new() -> Self {
        // Written to, not only asked for: then their pages are there.
        let ready = || vec![1; READY_BYTES + BLOCK];
        Self { free: Mutex::new(std::iter::repeat_with(ready).take(READY).collect()) }
    }

    /// Calls `act` with so many bytes; what they hold is left over from earlier.
    pub(super) fn with<T>(&self, bytes: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.free().pop().unwrap_or_default();
        let wanted = bytes.saturating_add(BLOCK);
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let start = buffer.as_ptr().align_offset(BLOCK);
        let slice = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..bytes));
        // At most BLOCK - 1 bytes are skipped, and BLOCK more than asked for are there.
        let done = act(slice.unwrap_or_default());
        self.free().push(buffer);
        done
    }

    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
