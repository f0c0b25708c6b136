//! Memory in pages of 4 KiB, in no huge ones from the start of `towline run` on.
//!
//! The allocator asks for transparent huge pages. The first write into one waits until the kernel
//! has cleared 2 MiB: a tenth of a millisecond on a machine of one's own, 6.5 ms on a virtual one
//! whose host has to find the memory first. All connections of an I/O thread wait with it (ADR
//! memory-in-small-pages). Some 6 MiB that were written before stay as they are.

/// For this process, and for the program that it executes instead of itself: from now on, so before
/// it has memory that counts. Where the kernel refuses, all works as before.
pub(crate) fn only() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory may come in huge pages");
    }
}
