//! Locks of files. They end with their handle and with their process.
//!
//! Not here: waiting for one.
//!
//! Invariant: a handle has one lock of a kind on its file at a time.

use std::mem;

use super::volume::InodeId;
use crate::simulated::schedule::{self, Process, TaskId};

/// The two kinds do not see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockKind {
    /// Of flock(2).
    Flock,
    /// Of fcntl(2), for the whole file.
    OpenFileDescription,
}

/// An open file: which one, its number, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) inode: InodeId,
    pub(super) handle: u64,
    pub(super) process: Process,
}

#[derive(Debug)]
struct Lock {
    kind: LockKind,
    holder: Holder,
    is_exclusive: bool,
}

#[derive(Debug, Default)]
pub(super) struct Locks {
    held: Vec<Lock>,
    pub(super) waiting: Vec<TaskId>,
}

impl Locks {
    /// Takes the lock; false when another handle has it.
    pub(super) fn take(&mut self, kind: LockKind, holder: Holder, is_exclusive: bool) -> bool {
        if self.is_held(kind, holder, is_exclusive) {
            return false;
        }
        self.give(kind, holder.handle);
        self.held.push(Lock { kind, holder, is_exclusive });
        true
    }

    /// Whether another handle has a lock that excludes this one.
    pub(super) fn is_held(&mut self, kind: LockKind, asks: Holder, is_exclusive: bool) -> bool {
        self.held.retain(|lock| !schedule::has_ended(lock.holder.process));
        self.held.iter().any(|lock| {
            let is_other = lock.holder.inode == asks.inode && lock.holder.handle != asks.handle;
            is_other && lock.kind == kind && (lock.is_exclusive || is_exclusive)
        })
    }

    /// Gives a lock back; those that wait for one look again.
    pub(super) fn give(&mut self, kind: LockKind, handle: u64) {
        let of_handle = |lock: &Lock| lock.kind == kind && lock.holder.handle == handle;
        let before = self.held.len();
        self.held.retain(|lock| !of_handle(lock));
        if self.held.len() < before && schedule::in_world() {
            mem::take(&mut self.waiting).into_iter().for_each(schedule::wake);
        }
    }

    /// All of it is gone.
    pub(super) fn forget(&mut self) {
        self.held.clear();
    }
}
