//! Wakes tasks at a time, to some tens of microseconds: one thread that waits for the next time.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The thread's list. Times are counted from its start.
pub(crate) struct Alarm {
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    stopped: bool,
}

impl Alarm {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Arc<Alarm>> {
        let (state, changed) = Default::default();
        let alarm = Arc::new(Alarm { began: Instant::now(), state, changed });
        let ringing = Arc::clone(&alarm);
        std::thread::Builder::new().name("slow-net-alarm".into()).spawn(move || ringing.run())?;
        Ok(alarm)
    }

    /// Ends the thread; waiting callers continue at once.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stopped = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// The time.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until `at`.
    pub(crate) async fn until(&self, at: Duration) {
        if self.now() >= at {
            return;
        }
        let (ring, rung) = oneshot::channel();
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.stopped {
                return;
            }
            let first = state.waiting.first_key_value().is_none_or(|((first, _), _)| at < *first);
            let ticket = state.next;
            state.next += 1;
            state.waiting.insert((at, ticket), ring);
            if first {
                self.changed.notify_all();
            }
        }
        // Only the end of the thread is an error, and then no caller needs to wait.
        rung.await.ok();
    }

    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.stopped {
            let now = self.now();
            while let Some(entry) = state.waiting.first_entry()
                && entry.key().0 <= now
            {
                // The waiting caller may be gone.
                entry.remove().send(()).ok();
            }
            let next = state.waiting.first_key_value().map(|((at, _), _)| *at);
            state = match next {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let wait = at.saturating_sub(now);
                    let waited = self.changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
