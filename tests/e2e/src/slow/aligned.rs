//! One buffer for each thread, at an address that direct I/O takes.
//!
//! A fresh buffer for each read would cost more than the read: its pages have to be found and
//! zeroed. Not here: any file. Invariant: the slice given out begins at a multiple of [`BLOCK`].

use std::cell::RefCell;

/// What addresses, offsets and lengths of direct I/O are multiples of, at most.
pub(super) const BLOCK: usize = 4096;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `act` with so many bytes of this thread's buffer; what they hold is left over.
pub(super) fn with<T>(bytes: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        let wanted = bytes.saturating_add(BLOCK);
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let start = buffer.as_ptr().align_offset(BLOCK);
        let slice = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..bytes));
        // At most BLOCK - 1 bytes are skipped, and BLOCK more than asked for are there.
        act(slice.unwrap_or_default())
    })
}
