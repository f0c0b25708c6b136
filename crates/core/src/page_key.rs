//! Names of pages: which block of which queue, and which page of the page file holds it.

use towline_types::PageRef;

use crate::QueueId;

/// Which block of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageKey {
    /// Of which queue.
    pub queue: QueueId,
    /// Of which lane, 0 to 9.
    pub lane: u8,
    /// The first sequence in it.
    pub first: u64,
}

/// A page to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageRequest {
    /// For which block.
    pub key: PageKey,
    /// Which page.
    pub page: PageRef,
}
