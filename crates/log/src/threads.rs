//! The threads of a running log, and the wait for their end.
//!
//! Not here: what tells them to end (`log`), what each of them does (`writer`, `preallocation`,
//! `space_notifier`). Invariant: none of them waits for the end of one of them: it may hold what
//! the others wait for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use towline_os::sync::{Condvar, Mutex};
use towline_os::thread::{self, JoinHandle, ThreadId};
use towline_os::time::Instant;

/// See the module.
#[derive(Default)]
pub(crate) struct LogThreads {
    alive: Arc<AliveThreads>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct AliveThreads {
    all: Mutex<Alive>,
    changed: Condvar,
}

#[derive(Default)]
struct Alive {
    count: usize,
    /// Those of them that have begun.
    ids: Vec<ThreadId>,
}

/// Counts one until it is dropped.
struct AliveThread(Arc<AliveThreads>);

impl Drop for AliveThread {
    fn drop(&mut self) {
        let mut all = self.0.all.lock();
        all.count -= 1;
        let this = thread::current_id();
        all.ids.retain(|id| *id != this);
        drop(all);
        self.0.changed.notify_all();
    }
}

impl LogThreads {
    /// Starts one.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.alive.all.lock().count += 1;
        let alive = AliveThread(Arc::clone(&self.alive));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let alive = alive;
            alive.0.all.lock().ids.push(thread::current_id());
            // What it holds, the disk among it, is let go before it counts as ended.
            body();
            drop(alive);
        })?;
        self.handles.lock().push(thread);
        Ok(())
    }

    /// Waits until all of them have ended. On one of them: not at all.
    pub(crate) fn join(&self) {
        if self.is_one_of_them() {
            return;
        }
        let threads = std::mem::take(&mut *self.handles.lock());
        for thread in threads {
            // A thread that panicked has said so itself.
            drop(thread.join());
        }
    }

    /// The same, but for so long at most. False when some are left: they end by themselves when
    /// their disk answers.
    pub(crate) fn join_within(&self, patience: Duration) -> bool {
        if self.is_one_of_them() {
            return true;
        }
        let deadline = Instant::now() + patience;
        let mut all = self.alive.all.lock();
        while all.count > 0 {
            if self.alive.changed.wait_until(&mut all, deadline).timed_out() && all.count > 0 {
                return false;
            }
        }
        drop(all);
        self.join();
        true
    }

    fn is_one_of_them(&self) -> bool {
        self.alive.all.lock().ids.contains(&thread::current_id())
    }
}
