//! A lock for threads that must not wait: a thread that has news posts it and, when another thread
//! holds the lock, leaves the work to that thread. The literature calls this a delegation lock.
//!
//! The threads of the recovery log need it. They report how far the log is durable to an instance
//! whose lock holder may itself wait for the log, so a log thread that waited for that lock could
//! deadlock; and it would write nothing meanwhile.
//!
//! Not here: the news itself. The owner keeps it in atomics of its own (or behind a lock of its
//! own), so that a thousand posts between two looks cost one look.
//!
//! Invariant: no post is lost. When [`DelegationLock::take_posted`] has returned in the thread that
//! posted, the news was taken, or a thread holds the lock that takes it once it releases the lock.
//! For that, each thread calls `take_posted` after it released the lock. Loom checks it over all
//! interleavings (`make loom`), and checks that it finds the two faults that one can build in.

#![forbid(unsafe_code)]

#[cfg(all(test, loom))]
mod interleavings;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use towline_os::sync::{Mutex, MutexGuard};

/// See the crate.
#[derive(Debug, Default)]
pub struct DelegationLock<T> {
    value: Mutex<T>,
    /// News was posted that no holder of the lock has taken yet.
    is_posted: AtomicBool,
}

impl<T> DelegationLock<T> {
    /// A lock that no thread holds, with nothing posted.
    pub fn new(value: T) -> DelegationLock<T> {
        DelegationLock { value: Mutex::new(value), is_posted: AtomicBool::new(false) }
    }

    /// Waits for the lock. The caller releases it and then calls
    /// [`take_posted`](DelegationLock::take_posted): news may have been left to it.
    #[cfg(not(loom))]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock()
    }

    /// Releases the lock; a thread that waits for it has it next, even if this one wants it again
    /// at once. As with [`lock`](DelegationLock::lock), the caller takes what was posted.
    #[cfg(not(loom))]
    pub fn release_fairly(guard: MutexGuard<'_, T>) {
        MutexGuard::unlock_fair(guard);
    }

    /// Waits for the lock, at most for `patience`; none when it was held for so long. As with
    /// [`lock`](DelegationLock::lock), the caller takes what was posted afterwards.
    #[cfg(not(loom))]
    pub fn try_lock_for(&self, patience: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock_for(patience)
    }

    /// Says that there is news, which the caller has stored before. It never waits. The caller goes
    /// on with [`take_posted`](DelegationLock::take_posted).
    pub fn post(&self) {
        // A swap, not a store: a thread that sees only the last of several posts must see the news
        // of all of them.
        self.is_posted.swap(true, Ordering::SeqCst);
    }

    /// Takes what was posted, unless another thread holds the lock: that one takes it when it has
    /// released the lock. It never waits.
    ///
    /// `take` reads the news, under the lock; it may be called more than once, also for news that
    /// an earlier call has read. `after` gets what `take` yields once the lock is released.
    ///
    /// Why nothing is lost: say that A stored its news, set the flag, passed its fence and found
    /// the lock held by B. Had B passed the fence that follows its release before A passed its own,
    /// A would have found the lock free. So B passes its fence later than A, sees the flag, and
    /// takes the news, or finds the lock held in its turn, and the same holds for that holder.
    pub fn take_posted<R>(&self, mut take: impl FnMut(&mut T) -> R, mut after: impl FnMut(R)) {
        loop {
            // Pairs with the fence of the other side: either this thread sees the flag that the
            // other one set, or the other one finds the lock free.
            fence(Ordering::SeqCst);
            if !self.is_posted.load(Ordering::SeqCst) {
                return;
            }
            let Some(mut value) = self.try_lock() else { return };
            // Before the news is read: what is posted from here on sets the flag again. A swap, not
            // a store, because it must see what was written before the flag was set.
            self.is_posted.swap(false, Ordering::SeqCst);
            let taken = take(&mut value);
            drop(value);
            after(taken);
        }
    }

    #[cfg(not(loom))]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock()
    }

    #[cfg(loom)]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock().ok()
    }
}
