//! What the process as a whole is asked for: by signals, which one thread takes, and on the control
//! socket. Both end in the same events.
//!
//! SIGTERM, SIGINT and SIGHUP are blocked in every thread of the process, from before there is a
//! second one; a thread of its own reads them from a descriptor (signalfd(2)) and keeps what they
//! mean until the one that serves asks for it. While nothing can be left unfinished (a start, and
//! an end that does not come) an end is carried out by that thread, at once.
//!
//! Nothing is lost when a process executes itself: [`Signals::stop`] waits until the thread took
//! its last one, and says whether an end is among the signals that were not acted on. What comes
//! later stays pending under the mask; both outlive execve(2), and the thread of the next program
//! takes it.
//!
//! An event of the control socket is promised first, then its client gets the answer, then the
//! promise is kept: the client has its answer before the process ends, and a promised end is not
//! forgotten by a re-exec in between.
//!
//! Not here: what is done on an event (`run`, `group`), and which requests are refused (`control`).

use std::collections::VecDeque;
use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use parking_lot::Mutex;
use tokio::sync::Notify;
use towline_admin::catalogue::{ENDED, ENDING_NOW};

use towline_logging::log;

/// What the process is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalEvent {
    /// SIGTERM, SIGINT: to end in order; the second signal at once. `towline stop`: to end in
    /// order, however often it is asked for.
    Stop,
    /// SIGHUP: to read again what can be read again while it runs.
    Reload,
    /// To execute the program again, an instance of a group only.
    Restart,
}

/// What the thread does with an end instead of keeping it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AtOnce {
    /// It keeps it.
    No,
    /// Nothing began yet: the process of this queue manager ends.
    Starting(String),
    /// An end in order was under way: the process of this queue manager ends without its rest.
    Ending(String),
}

/// See the module.
pub(crate) struct Signals {
    queue: Arc<EventQueue>,
    /// Until the thread is to end.
    running: Mutex<Option<(PipeWriter, JoinHandle<()>)>>,
}

struct EventQueue {
    state: Mutex<QueueState>,
    news: Notify,
}

struct QueueState {
    events: VecDeque<LocalEvent>,
    at_once: AtOnce,
    /// An end was asked for, by whichever way.
    is_stopping: bool,
    /// Ends that a client of the control socket was promised, and that are not in the queue yet.
    stops_promised: usize,
    /// The process executes its program again: nothing is promised any more.
    is_closed: bool,
    /// Carried out before the process ends at once.
    before_exit: Option<Box<dyn Fn() + Send>>,
}

impl EventQueue {
    fn new() -> EventQueue {
        let state = QueueState {
            events: VecDeque::new(),
            at_once: AtOnce::No,
            is_stopping: false,
            stops_promised: 0,
            is_closed: false,
            before_exit: None,
        };
        EventQueue { state: Mutex::new(state), news: Notify::new() }
    }
}

impl Signals {
    /// Blocks the signals in this thread, and so in each that it starts, and starts the one that
    /// takes them. To be called while there is no other thread.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn take() -> std::io::Result<Signals> {
        let all: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        all.thread_block()?;
        let come = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let (stopped, stop) = std::io::pipe()?;
        let queue = Arc::new(EventQueue::new());
        let of_thread = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
            while is_next(&come, &stopped) {
                if let Ok(Some(signal)) = come.read_signal() {
                    of_thread.signal(signal.ssi_signo);
                }
            }
        })?;
        Ok(Signals { queue, running: Mutex::new(Some((stop, thread))) })
    }

    /// From now on an end is carried out at once: nothing of this queue manager has begun.
    pub(crate) fn starting(&self, name: &str) {
        self.queue.set(AtOnce::Starting(name.to_owned()));
    }

    /// From now on events are kept for [`Signals::next`].
    pub(crate) fn serving(&self) {
        self.queue.set(AtOnce::No);
    }

    /// From now on another end is carried out at once: the first one is under way.
    pub(crate) fn ending(&self, name: &str) {
        self.queue.set(AtOnce::Ending(name.to_owned()));
    }

    /// Waits for the next event. Nothing is lost when this is dropped.
    pub(crate) async fn next(&self) -> LocalEvent {
        loop {
            if let Some(event) = self.queue.state.lock().events.pop_front() {
                return event;
            }
            self.queue.news.notified().await;
        }
    }

    /// Without a thread that takes signals.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Signals {
        Signals { queue: Arc::new(EventQueue::new()), running: Mutex::new(None) }
    }

    /// The way into the queue for the control socket.
    pub(crate) fn events(&self) -> LocalEvents {
        LocalEvents(Arc::clone(&self.queue))
    }

    /// Before the process ends at once, this is carried out; it must not wait for long.
    pub(crate) fn before_exit(&self, clean_up: Box<dyn Fn() + Send>) {
        self.queue.state.lock().before_exit = Some(clean_up);
    }

    /// Ends the thread. Yields whether an end was taken or promised and not acted on; what comes
    /// from now on stays pending for the program that this process executes.
    pub(crate) fn stop(&self) -> bool {
        if let Some((stop, thread)) = self.running.lock().take() {
            drop(stop);
            // It does not panic, and if it did, it takes nothing any more.
            thread.join().ok();
        }
        let mut state = self.queue.state.lock();
        state.is_closed = true;
        state.stops_promised > 0 || state.events.contains(&LocalEvent::Stop)
    }
}

/// Events that do not come from a signal.
#[derive(Clone)]
pub(crate) struct LocalEvents(Arc<EventQueue>);

impl LocalEvents {
    /// Promises an event; `None`: this process executes its program again, and an event would be
    /// lost.
    pub(crate) fn promise(&self, event: LocalEvent) -> Option<Promise> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return None;
        }
        if event == LocalEvent::Stop {
            state.stops_promised += 1;
        }
        Some(Promise { queue: Arc::clone(&self.0), event })
    }
}

/// An event that a client of the control socket gets its answer for. Dropped without being kept, it
/// is withdrawn.
pub(crate) struct Promise {
    queue: Arc<EventQueue>,
    event: LocalEvent,
}

impl Promise {
    /// The client has its answer.
    pub(crate) fn keep(self) {
        let mut state = self.queue.state.lock();
        // A second signal ends the process at once. A second client waits for the same end.
        if self.event == LocalEvent::Stop && state.is_stopping {
            return;
        }
        state.push(self.event);
        drop(state);
        self.queue.news.notify_one();
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.event == LocalEvent::Stop {
            self.queue.state.lock().stops_promised -= 1;
        }
    }
}

/// Waits for a signal; false when the thread is to end.
fn is_next(come: &SignalFd, stopped: &std::io::PipeReader) -> bool {
    let wanted = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut both = [wanted(come.as_fd()), wanted(stopped.as_fd())];
    match poll(&mut both, PollTimeout::NONE) {
        // The other end of the pipe is closed, and nothing else ever comes from it.
        Ok(_) => !both[1].any().unwrap_or(true),
        Err(error) => error == Errno::EINTR,
    }
}

impl EventQueue {
    fn signal(&self, number: u32) {
        let signal = i32::try_from(number).map(Signal::try_from);
        let event = match signal {
            Ok(Ok(Signal::SIGHUP)) => LocalEvent::Reload,
            Ok(Ok(_)) => LocalEvent::Stop,
            // Not one of those that are blocked.
            _ => return,
        };
        self.state.lock().push(event);
        self.news.notify_one();
    }

    fn set(&self, at_once: AtOnce) {
        let mut state = self.state.lock();
        state.at_once = at_once;
        if state.events.contains(&LocalEvent::Stop) {
            state.carry_out();
        }
    }
}

impl QueueState {
    fn push(&mut self, event: LocalEvent) {
        if event == LocalEvent::Stop {
            self.is_stopping = true;
            self.carry_out();
        }
        // One reload, or one re-exec, that was not begun does all that a second one would.
        if event == LocalEvent::Stop || !self.events.contains(&event) {
            self.events.push_back(event);
        }
    }

    /// Ends the process, unless an end is kept. Nothing of its memory matters: see the variants.
    fn carry_out(&self) {
        let (entry, name) = match &self.at_once {
            AtOnce::No => return,
            AtOnce::Starting(name) => (&ENDED, name),
            AtOnce::Ending(name) => (&ENDING_NOW, name),
        };
        if let Some(clean_up) = &self.before_exit {
            clean_up();
        }
        log(entry, &[name]);
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(signal: Signal) -> u32 {
        u32::try_from(signal as i32).unwrap()
    }

    #[tokio::test]
    async fn events_come_in_their_order_and_reloads_that_wait_are_one() {
        let signals = Signals::of_tests();
        for signal in [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT] {
            signals.queue.signal(number(signal));
        }
        signals.queue.signal(number(Signal::SIGUSR1) + 1_000);
        assert_eq!(signals.next().await, LocalEvent::Reload);
        signals.queue.signal(number(Signal::SIGHUP));
        assert_eq!(signals.next().await, LocalEvent::Stop);
        assert_eq!(signals.next().await, LocalEvent::Stop);
        assert_eq!(signals.next().await, LocalEvent::Reload);
        assert!(!signals.stop(), "all were acted on");
    }

    #[tokio::test]
    async fn an_end_that_nobody_acted_on_is_told_when_the_thread_stops_and_a_reload_is_not() {
        let signals = Signals::of_tests();
        signals.queue.signal(number(Signal::SIGHUP));
        assert!(!signals.stop());
        signals.queue.signal(number(Signal::SIGINT));
        assert!(signals.stop() && signals.stop());
    }

    #[tokio::test]
    async fn a_promised_end_comes_when_it_is_kept_and_once_however_often_it_is_asked_for() {
        let signals = Signals::of_tests();
        let events = signals.events();
        let promise = |event| events.promise(event).unwrap();
        drop(promise(LocalEvent::Stop));
        promise(LocalEvent::Restart).keep();
        let first = promise(LocalEvent::Stop);
        let second = promise(LocalEvent::Stop);
        first.keep();
        second.keep();
        promise(LocalEvent::Restart).keep();
        assert_eq!(signals.next().await, LocalEvent::Restart);
        assert_eq!(signals.next().await, LocalEvent::Stop);
        promise(LocalEvent::Stop).keep();
        signals.queue.signal(number(Signal::SIGTERM));
        assert_eq!(signals.next().await, LocalEvent::Stop, "a signal is an end each time");
        assert!(signals.queue.state.lock().events.is_empty());
    }

    #[test]
    fn an_end_that_was_promised_is_not_lost_when_the_program_is_executed_again() {
        let signals = Signals::of_tests();
        let events = signals.events();
        drop(events.promise(LocalEvent::Stop));
        let promise = events.promise(LocalEvent::Stop);
        assert!(signals.stop(), "its client has its answer, or is about to");
        assert!(events.promise(LocalEvent::Stop).is_none(), "nothing is promised any more");
        drop(promise);
        assert!(!signals.stop());
    }

    #[tokio::test]
    async fn one_that_waited_is_woken_and_one_that_gave_up_took_nothing() {
        let signals = Arc::new(Signals::of_tests());
        let waits = Arc::clone(&signals);
        let waiting = tokio::spawn(async move { waits.next().await });
        tokio::task::yield_now().await;
        signals.queue.signal(number(Signal::SIGTERM));
        assert_eq!(waiting.await.unwrap(), LocalEvent::Stop);
        tokio::select! {
            biased;
            event = signals.next() => panic!("{event:?}"),
            () = std::future::ready(()) => {}
        }
        signals.queue.signal(number(Signal::SIGTERM));
        assert_eq!(signals.next().await, LocalEvent::Stop);
    }
}
