//! Threads: coroutines of the process that runs, or threads of the operating system.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::schedule::{self, TaskId, create, with};
use super::sync::{Condvar, Mutex};

/// As [`std::thread::Builder`].
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

impl Builder {
    /// A thread without a name.
    #[must_use]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names it.
    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder { name: Some(name) }
    }

    /// Starts it.
    ///
    /// # Errors
    /// What the operating system says; none for a coroutine.
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let name = self.name.unwrap_or_default();
        if !schedule::in_world() {
            let thread = std::thread::Builder::new().name(name).spawn(body)?;
            return Ok(JoinHandle(Joint::Thread(thread)));
        }
        let process = with(|schedule| schedule.running_process());
        let Some(process) = process else { unreachable!("a coroutine runs") };
        let end = Arc::new(End { value: Mutex::new(EndValue::Runs), came: Condvar::new() });
        let handle = JoinHandle(Joint::Coroutine(Arc::clone(&end)));
        create(process, name, move || {
            // Also when it unwinds: others may wait for it.
            let mut at_end = AtEnd { end, value: None };
            at_end.value = Some(body());
        });
        Ok(handle)
    }
}

/// As [`std::thread::ThreadId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(Identity);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Thread(std::thread::ThreadId),
    Coroutine(TaskId),
}

/// The thread that runs.
#[must_use]
pub fn current_id() -> ThreadId {
    let coroutine = if schedule::in_world() { schedule::running() } else { None };
    let thread = || Identity::Thread(std::thread::current().id());
    ThreadId(coroutine.map_or_else(thread, Identity::Coroutine))
}

/// Lets time pass.
pub fn sleep(time: Duration) {
    if schedule::in_world() {
        schedule::sleep(time);
    } else {
        std::thread::sleep(time);
    }
}

/// What a thread takes to look around: one that does nothing else comes to its deadline.
const YIELD: Duration = Duration::from_micros(1);

/// Lets another thread go on, if one is ready.
pub fn yield_now() {
    if schedule::in_world() {
        schedule::sleep(YIELD);
    } else {
        std::thread::yield_now();
    }
}

/// Waits for so long: nothing unparks a thread here.
pub fn park_timeout(time: Duration) {
    if schedule::in_world() {
        schedule::sleep(time);
    } else {
        std::thread::park_timeout(time);
    }
}

/// Waits for the end of the process.
pub fn park() {
    park_timeout(Duration::MAX);
}

#[derive(Debug)]
enum EndValue<T> {
    Runs,
    Ended(Option<T>),
}

#[derive(Debug)]
struct End<T> {
    value: Mutex<EndValue<T>>,
    came: Condvar,
}

struct AtEnd<T> {
    end: Arc<End<T>>,
    value: Option<T>,
}

impl<T> Drop for AtEnd<T> {
    fn drop(&mut self) {
        *self.end.value.lock() = EndValue::Ended(self.value.take());
        self.end.came.notify_all();
    }
}

/// As [`std::thread::JoinHandle`].
#[derive(Debug)]
pub struct JoinHandle<T>(Joint<T>);

#[derive(Debug)]
enum Joint<T> {
    Thread(std::thread::JoinHandle<T>),
    Coroutine(Arc<End<T>>),
}

impl<T> JoinHandle<T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// It panicked, or its process was killed.
    pub fn join(self) -> std::thread::Result<T> {
        let end = match self.0 {
            Joint::Thread(thread) => return thread.join(),
            Joint::Coroutine(end) => end,
        };
        let mut value = end.value.lock();
        loop {
            match &mut *value {
                EndValue::Runs => end.came.wait(&mut value),
                EndValue::Ended(ended) => {
                    return ended.take().ok_or_else(|| Box::new("it unwound") as Box<_>);
                }
            }
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Joint::Thread(thread) => thread.is_finished(),
            Joint::Coroutine(end) => matches!(*end.value.lock(), EndValue::Ended(_)),
        }
    }
}
