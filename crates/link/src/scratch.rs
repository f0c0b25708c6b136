//! One read buffer for each I/O thread: an idle connection owns none.

use std::cell::RefCell;

use bytes::BytesMut;

/// Bytes read at once. Large, because system calls are the larger part of a message's cost.
const READ_BYTES: usize = 128 * 1024;

thread_local! {
    static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Runs `read` with this thread's buffer, empty and with capacity for at least one full read.
/// `read` must split off what it filled.
pub fn with<R>(read: impl FnOnce(&mut BytesMut) -> R) -> R {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.reserve(READ_BYTES);
        let result = read(buffer);
        assert!(buffer.is_empty(), "bytes of one connection were left in the shared buffer");
        result
    })
}
