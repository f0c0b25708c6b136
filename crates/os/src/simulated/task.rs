//! Tasks and timers. In a world each task is a coroutine, which waits where the task would; outside
//! of one, all of it is tokio's.
//!
//! Not here: input and output. What is awaited in a world must be woken by a coroutine (the
//! channels, locks and notices of `tokio::sync`, a `tokio::io::duplex`), or be a timer of this
//! module.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::schedule::{self, TaskId, create, in_world, with};

thread_local! {
    /// The earliest timer that the task which is being polled waits for.
    static DEADLINE_US: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Wakes the coroutine in which a task is awaited.
struct CoroutineWaker {
    id: TaskId,
    is_woken: AtomicBool,
}

impl Wake for CoroutineWaker {
    fn wake(self: Arc<CoroutineWaker>) {
        self.is_woken.store(true, Ordering::Relaxed);
        // Its world may be gone.
        if in_world() {
            schedule::wake(self.id);
        }
    }
}

/// Runs a future in the coroutine of the caller; `None`: it was aborted.
fn run<F: Future>(future: F, is_aborted: &AtomicBool) -> Option<F::Output> {
    let mut future = pin!(future);
    let Some(id) = schedule::running() else {
        unreachable!("the test itself waits for a task: nothing could go on")
    };
    let of_coroutine = Arc::new(CoroutineWaker { id, is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&of_coroutine));
    let mut context = Context::from_waker(&waker);
    loop {
        if is_aborted.load(Ordering::Relaxed) {
            return None;
        }
        DEADLINE_US.set(u64::MAX);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if !of_coroutine.is_woken.swap(false, Ordering::Relaxed) {
            let deadline_us = DEADLINE_US.get();
            schedule::wait((deadline_us < u64::MAX).then_some(deadline_us));
            of_coroutine.is_woken.store(false, Ordering::Relaxed);
        }
    }
}

/// As [`tokio::runtime::Handle`].
#[derive(Clone, Debug)]
pub struct Handle(Option<tokio::runtime::Handle>);

impl Handle {
    /// That of the caller's runtime, or of its world.
    ///
    /// # Panics
    /// When there is neither.
    #[must_use]
    pub fn current() -> Handle {
        Handle((!in_world()).then(tokio::runtime::Handle::current))
    }

    pub(crate) fn real(handle: tokio::runtime::Handle) -> Handle {
        Handle(Some(handle))
    }

    /// Runs a future to its end.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        if let Some(handle) = &self.0 {
            return handle.block_on(future);
        }
        match run(future, &AtomicBool::new(false)) {
            Some(output) => output,
            None => unreachable!("it was not aborted"),
        }
    }
}

/// A timer that did not wait for what it limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutError;

impl fmt::Display for TimeoutError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("deadline has elapsed")
    }
}

impl std::error::Error for TimeoutError {}

async fn until(deadline_us: u64) {
    poll_fn(|_| {
        if with(|schedule| schedule.now_us) >= deadline_us {
            return Poll::Ready(());
        }
        DEADLINE_US.set(DEADLINE_US.get().min(deadline_us));
        Poll::Pending
    })
    .await;
}

fn deadline_us(time: Duration) -> u64 {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    with(|schedule| schedule.now_us.saturating_add(us))
}

/// As [`tokio::time::sleep`].
pub async fn sleep(time: Duration) {
    if in_world() {
        until(deadline_us(time)).await;
    } else {
        tokio::time::sleep(time).await;
    }
}

/// As [`tokio::time::timeout`].
///
/// # Errors
/// The time is over.
pub async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, TimeoutError> {
    if !in_world() {
        return tokio::time::timeout(time, future).await.map_err(|_| TimeoutError);
    }
    let mut future = pin!(future);
    let mut late = pin!(until(deadline_us(time)));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        late.as_mut().poll(context).map(|()| Err(TimeoutError))
    })
    .await
}

/// As [`tokio::time::Interval`].
#[derive(Debug)]
pub struct Interval(Ticks);

#[derive(Debug)]
enum Ticks {
    Tokio(tokio::time::Interval),
    Simulated { period: Duration, next_us: u64 },
}

/// As [`tokio::time::interval`].
#[must_use]
pub fn interval(period: Duration) -> Interval {
    if in_world() {
        return Interval(Ticks::Simulated { period, next_us: deadline_us(Duration::ZERO) });
    }
    Interval(Ticks::Tokio(tokio::time::interval(period)))
}

impl Interval {
    /// The next tick; the first is there at once.
    pub async fn tick(&mut self) {
        match &mut self.0 {
            Ticks::Tokio(interval) => drop(interval.tick().await),
            Ticks::Simulated { period, next_us } => {
                until(*next_us).await;
                *next_us = deadline_us(*period);
            }
        }
    }

    /// What becomes of missed ticks; in a world they are always delayed.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        if let Ticks::Tokio(interval) = &mut self.0 {
            interval.set_missed_tick_behavior(behavior);
        }
    }
}

/// As [`tokio::task::spawn_blocking`], but that it starts when it is awaited.
///
/// # Errors
/// It panicked.
pub async fn spawn_blocking<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    if !in_world() {
        return tokio::task::spawn_blocking(body).await.map_err(|error| error.to_string());
    }
    let (done, result) = tokio::sync::oneshot::channel();
    let process = with(|schedule| schedule.running_process());
    let Some(process) = process else { unreachable!("a coroutine runs") };
    create(process, "blocking".to_owned(), move || drop(done.send(body())));
    result.await.map_err(|error| error.to_string())
}

/// As [`tokio::task::JoinSet`], of tasks that yield nothing.
#[derive(Debug, Default)]
pub struct JoinSet<T: 'static> {
    tasks: tokio::task::JoinSet<T>,
    coroutines: Vec<Abort>,
}

#[derive(Debug)]
struct Abort {
    is_aborted: Arc<AtomicBool>,
    /// Wakes the task, so that it notices.
    notice: Arc<tokio::sync::Notify>,
}

impl JoinSet<()> {
    /// An empty set.
    #[must_use]
    pub fn new() -> JoinSet<()> {
        JoinSet { tasks: tokio::task::JoinSet::new(), coroutines: Vec::new() }
    }

    /// Starts a task in the caller's runtime, or world.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(task, &Handle::current());
    }

    /// Starts a task.
    pub fn spawn_on(&mut self, task: impl Future<Output = ()> + Send + 'static, on: &Handle) {
        if let Some(handle) = &on.0 {
            self.tasks.spawn_on(task, handle);
            return;
        }
        let abort = Abort { is_aborted: Arc::default(), notice: Arc::default() };
        let (is_aborted, notice) = (Arc::clone(&abort.is_aborted), Arc::clone(&abort.notice));
        self.coroutines.push(abort);
        let process = with(|schedule| schedule.running_process());
        let Some(process) = process else { unreachable!("a coroutine runs") };
        create(process, "task".to_owned(), move || {
            let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
            let mut aborts = pin!(notice.notified());
            let until_aborted = poll_fn(|context| match aborts.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => task.as_mut().poll(context),
            });
            run(until_aborted, &is_aborted);
        });
    }

    /// Ends all tasks where they wait.
    pub fn abort_all(&mut self) {
        self.tasks.abort_all();
        for abort in self.coroutines.drain(..) {
            abort.is_aborted.store(true, Ordering::Relaxed);
            abort.notice.notify_one();
        }
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        for abort in self.coroutines.drain(..) {
            abort.is_aborted.store(true, Ordering::Relaxed);
            abort.notice.notify_one();
        }
    }
}
