//! Taking a mutex and waiting on a condition variable.
//!
//! Not here: what the locks protect, and in which order they are taken (`shared`).
//!
//! Invariant: a poisoned lock is taken as it is. In release builds a panic ends the process; in
//! tests the value is used as the panicking thread left it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condvar`.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
