//! The log of one instance of a group: batches come from the leader, or go to the others.
//!
//! Such a log is *following* at first: it takes batches of a leader as they are, at the same
//! positions ([`crate::Log::receive`]), cuts off what conflicts with them, and appends none of its
//! own. When its instance leads ([`crate::Log::lead`]) it appends as any other log does, and passes
//! each batch to the [`Replicator`]. It never follows again: an instance that lost leadership
//! re-executes.
//!
//! Not here: which instance leads, what the group committed, how batches travel. A batch that is
//! durable here may be cut off later; the group decides, the log obeys.
//!
//! Invariants: what is cut off is erased durably before anything is written over it, and in such an
//! order that a crash in between leaves a log that recovery takes; `previous`, `unsynced` and the
//! checksum of a batch are this instance's own, index, term, position and payload the group's.

mod batches;
mod cut;
mod follower;
mod following;
mod lead;
mod receive;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use towline_os::sync::Mutex;

use towline_types::{Batch, Lsn};

pub(crate) use batches::read_batches;
pub(crate) use follower::{Follower, KnownBatch, ReceivedBatches, WaitingBatches};
pub(crate) use lead::lead;
pub(crate) use receive::{check, receive};
pub use stream::{FeedError, RunStream};

/// Receives each batch that this instance, as leader, closes.
pub trait Replicator: Send + Sync {
    /// The batch is about to be written. Called in order of indexes, on the threads that write,
    /// under a lock of the log: must not call the log, must not wait.
    fn leaves(&self, batch: Batch);
}

/// What a log of a group has besides.
pub(crate) struct Member {
    /// Weak, because it has the log.
    replicator: Weak<dyn Replicator>,
    /// Batches that are not durable yet, in order: they cannot be read from disk.
    young: Mutex<VecDeque<Batch>>,
    /// How often some of the log was cut off.
    cuts: AtomicU64,
}

impl Member {
    pub(crate) fn new(replicator: &Arc<dyn Replicator>) -> Member {
        let replicator = Arc::downgrade(replicator);
        Member { replicator, young: Mutex::default(), cuts: AtomicU64::new(0) }
    }

    /// A batch of our own is about to be written.
    pub(crate) fn leaves(&self, batch: Batch) {
        self.came(&batch);
        if let Some(replicator) = self.replicator.upgrade() {
            replicator.leaves(batch);
        }
    }

    /// A batch of which the group knows is on its way to the disk.
    fn came(&self, batch: &Batch) {
        self.young.lock().push_back(batch.clone());
    }

    /// All before `upto` can be read from disk.
    pub(crate) fn durable(&self, upto: Lsn) {
        let mut young = self.young.lock();
        while young.pop_front_if(|batch| batch.end() <= upto).is_some() {}
    }

    fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }
}

/// Whether a log appends.
#[derive(Debug)]
pub(crate) enum Role {
    /// It does: a single instance, or a leader.
    Writing,
    /// It takes what a leader sends.
    Following(Box<Follower>),
}

impl Role {
    pub(crate) fn is_following(&self) -> bool {
        match self {
            Role::Writing => false,
            Role::Following(_) => true,
        }
    }

    /// The batches that came and wait for a writer.
    pub(crate) fn waiting(&self) -> WaitingBatches {
        match self {
            Role::Writing => WaitingBatches::default(),
            Role::Following(follower) => follower.waiting(),
        }
    }

    /// A batch was written with this checksum.
    pub(crate) fn written(&mut self, index: u64, checksum: u32) {
        match self {
            Role::Writing => {}
            Role::Following(follower) => follower.written(index, checksum),
        }
    }
}
