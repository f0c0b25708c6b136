//! Locks and waits. In a world, a lock that is held makes its caller wait for the schedule; outside
//! of one, all of it is parking_lot's.
//!
//! Invariant: in a world the inner lock is only ever tried, so the one real thread never blocks.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::schedule::{self, TaskId, hasten, in_world, may_be_overtaken, running, wake, with};
use super::time::Instant;

/// Coroutines that wait for the same thing.
#[derive(Default)]
struct Waiters {
    ids: parking_lot::Mutex<VecDeque<TaskId>>,
    /// How many there are: nearly always none, which is known without the lock.
    count: AtomicUsize,
}

impl Waiters {
    const fn new() -> Waiters {
        Waiters { ids: parking_lot::Mutex::new(VecDeque::new()), count: AtomicUsize::new(0) }
    }

    /// Acts on them, if there are any.
    fn with_some<T>(&self, act: impl FnOnce(&mut VecDeque<TaskId>) -> T) -> Option<T> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut ids = self.ids.lock();
        let acted = act(&mut ids);
        self.count.store(ids.len(), Ordering::Relaxed);
        Some(acted)
    }

    /// Waits to be woken, until the deadline at most. False when that came first.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let id = running();
        {
            let mut ids = self.ids.lock();
            ids.extend(id);
            self.count.store(ids.len(), Ordering::Relaxed);
        }
        // Also when the wait unwinds: a waker must not choose one that is gone.
        let enlisted = Enlisted { waiters: self, id };
        let is_woken = schedule::wait(deadline.map(Instant::us));
        drop(enlisted);
        is_woken
    }

    /// Wakes one, drawn. False when none waits.
    fn wake_one(&self) -> bool {
        let woken = self.with_some(|ids| {
            let at = with(|schedule| schedule.dice.index(ids.len()));
            ids.remove(at).into_iter().for_each(wake);
        });
        woken.is_some()
    }

    fn wake_all(&self) -> usize {
        let woken = self.with_some(|ids| {
            let count = ids.len();
            ids.drain(..).for_each(wake);
            count
        });
        woken.unwrap_or(0)
    }
}

struct Enlisted<'a> {
    waiters: &'a Waiters,
    id: Option<TaskId>,
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        self.waiters.with_some(|ids| ids.retain(|waiter| Some(*waiter) != self.id));
    }
}

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    waiters: Waiters,
    inner: parking_lot::Mutex<T>,
}

/// As `parking_lot::MutexGuard`.
pub struct MutexGuard<'a, T: ?Sized> {
    /// `None` while a [`Condvar`] has released it.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// As `parking_lot::MutexGuard::unlock_fair`. In a world, who is next is drawn.
    pub fn unlock_fair(guard: MutexGuard<'a, T>) {
        drop(guard);
    }
}

impl<T> Mutex<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { waiters: Waiters::new(), inner: parking_lot::Mutex::new(value) }
    }

    /// The value, of which there is no other user.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !in_world() {
            return self.guard(self.inner.lock());
        }
        may_be_overtaken();
        loop {
            if let Some(inner) = self.inner.try_lock() {
                return self.guard(inner);
            }
            self.waiters.wait(None);
        }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock().map(|inner| self.guard(inner))
    }

    /// Waits for the lock, at most so long.
    pub fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        if !in_world() {
            return self.inner.try_lock_for(patience).map(|inner| self.guard(inner));
        }
        let deadline = Instant::now() + patience;
        loop {
            if let Some(inner) = self.inner.try_lock() {
                return Some(self.guard(inner));
            }
            if patience.is_zero() || !self.waiters.wait(Some(deadline)) {
                return None;
            }
        }
    }

    /// The value, of which there is no other user.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    fn guard<'a>(&'a self, inner: parking_lot::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { inner: Some(inner), mutex: self }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard is used by the thread that has it"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard is used by the thread that has it"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.inner.take().is_some() && in_world() {
            self.mutex.waiters.wake_one();
        }
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar {
    waiters: Waiters,
    inner: parking_lot::Condvar,
}

/// As `parking_lot::WaitTimeoutResult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait ended by its deadline.
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that no thread waits for.
    #[must_use]
    pub const fn new() -> Condvar {
        Condvar { waiters: Waiters::new(), inner: parking_lot::Condvar::new() }
    }

    /// Releases the lock until this is notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match &mut guard.inner {
            Some(inner) if !in_world() => self.inner.wait(inner),
            _ => drop(self.release(guard, None)),
        }
    }

    /// Releases the lock until this is notified, or until the deadline.
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        match &mut guard.inner {
            Some(inner) if !in_world() => {
                WaitTimeoutResult(self.inner.wait_until(inner, deadline.real()).timed_out())
            }
            _ => self.release(guard, Some(deadline)),
        }
    }

    /// Releases the lock until this is notified, at most so long.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        match Instant::now().checked_add(time) {
            Some(deadline) => self.wait_until(guard, deadline),
            None => {
                self.wait(guard);
                WaitTimeoutResult(false)
            }
        }
    }

    fn release<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        drop(guard.inner.take());
        guard.mutex.waiters.wake_one();
        let is_notified = self.waiters.wait(deadline);
        let mut again = guard.mutex.lock();
        guard.inner = again.inner.take();
        WaitTimeoutResult(!is_notified)
    }

    /// Wakes all coroutines that wait, later: what they wait for is on its way until then. Their
    /// waits end as by a deadline.
    pub fn notify_all_at(&self, time: Instant) {
        if in_world() {
            self.waiters.with_some(|ids| ids.iter().for_each(|id| hasten(*id, time.us())));
        }
    }

    /// Wakes one that waits, drawn. Whether one did.
    pub fn notify_one(&self) -> bool {
        let woke_coroutine = in_world() && self.waiters.wake_one();
        woke_coroutine || self.inner.notify_one()
    }

    /// Wakes all that wait. How many did.
    pub fn notify_all(&self) -> usize {
        let coroutines = if in_world() { self.waiters.wake_all() } else { 0 };
        coroutines + self.inner.notify_all()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Condvar")
    }
}

/// As [`std::sync::OnceLock`].
pub struct OnceLock<T> {
    inner: std::sync::OnceLock<T>,
    waiters: Waiters,
}

impl<T> OnceLock<T> {
    /// One without a value.
    #[must_use]
    pub const fn new() -> OnceLock<T> {
        OnceLock { inner: std::sync::OnceLock::new(), waiters: Waiters::new() }
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        self.inner.get()
    }

    /// The value; waits until it is set.
    pub fn wait(&self) -> &T {
        if !in_world() {
            return self.inner.wait();
        }
        loop {
            if let Some(value) = self.inner.get() {
                return value;
            }
            self.waiters.wait(None);
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// It was set before.
    pub fn set(&self, value: T) -> Result<(), T> {
        let set = self.inner.set(value);
        if in_world() {
            self.waiters.wake_all();
        }
        set
    }

    /// The value, set by `make` if it is not.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.inner.get_or_init(make);
        if in_world() {
            self.waiters.wake_all();
        }
        value
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}
