//! The one thread that takes signals, and what they mean.
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
//! Not here: what is done on an event (`run`, `group`).

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

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// SIGTERM, SIGINT: to end in order; the second one at once.
    Stop,
    /// SIGHUP: to read again what can be read again while it runs.
    Reload,
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
    taken: Arc<Taken>,
    /// Until the thread is to end.
    running: Mutex<Option<(PipeWriter, JoinHandle<()>)>>,
}

struct Taken {
    state: Mutex<State>,
    news: Notify,
}

struct State {
    events: VecDeque<Event>,
    at_once: AtOnce,
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
        let state = State { events: VecDeque::new(), at_once: AtOnce::No };
        let taken = Arc::new(Taken { state: Mutex::new(state), news: Notify::new() });
        let told = Arc::clone(&taken);
        let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
            while is_next(&come, &stopped) {
                if let Ok(Some(signal)) = come.read_signal() {
                    told.signal(signal.ssi_signo);
                }
            }
        })?;
        Ok(Signals { taken, running: Mutex::new(Some((stop, thread))) })
    }

    /// From now on an end is carried out at once: nothing of this queue manager has begun.
    pub(crate) fn starting(&self, name: &str) {
        self.taken.set(AtOnce::Starting(name.to_owned()));
    }

    /// From now on events are kept for [`Signals::next`].
    pub(crate) fn serving(&self) {
        self.taken.set(AtOnce::No);
    }

    /// From now on another end is carried out at once: the first one is under way.
    pub(crate) fn ending(&self, name: &str) {
        self.taken.set(AtOnce::Ending(name.to_owned()));
    }

    /// Waits for the next event. Nothing is lost when this is dropped.
    pub(crate) async fn next(&self) -> Event {
        loop {
            if let Some(event) = self.taken.state.lock().events.pop_front() {
                return event;
            }
            self.taken.news.notified().await;
        }
    }

    /// Ends the thread. Yields whether an end was taken and not acted on; what comes from now
    /// on stays pending for the program that this process executes.
    pub(crate) fn stop(&self) -> bool {
        if let Some((stop, thread)) = self.running.lock().take() {
            drop(stop);
            // It does not panic, and if it did, it takes nothing any more.
            thread.join().ok();
        }
        self.taken.state.lock().events.contains(&Event::Stop)
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

impl Taken {
    fn signal(&self, number: u32) {
        let signal = i32::try_from(number).map(Signal::try_from);
        let event = match signal {
            Ok(Ok(Signal::SIGHUP)) => Event::Reload,
            Ok(Ok(_)) => Event::Stop,
            // Not one of those that are blocked.
            _ => return,
        };
        let mut state = self.state.lock();
        if event == Event::Stop {
            state.at_once.carry_out();
        }
        // One reload that was not begun reads all that a second one would.
        if event == Event::Stop || !state.events.contains(&event) {
            state.events.push_back(event);
        }
        drop(state);
        self.news.notify_one();
    }

    fn set(&self, at_once: AtOnce) {
        let mut state = self.state.lock();
        state.at_once = at_once;
        if state.events.contains(&Event::Stop) {
            state.at_once.carry_out();
        }
    }
}

impl AtOnce {
    /// Ends the process, unless an end is kept. Nothing of its memory matters: see the variants.
    fn carry_out(&self) {
        let (entry, name) = match self {
            AtOnce::No => return,
            AtOnce::Starting(name) => (&ENDED, name),
            AtOnce::Ending(name) => (&ENDING_NOW, name),
        };
        log(entry, &[name]);
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> Signals {
        let state = State { events: VecDeque::new(), at_once: AtOnce::No };
        let taken = Arc::new(Taken { state: Mutex::new(state), news: Notify::new() });
        Signals { taken, running: Mutex::new(None) }
    }

    fn number(signal: Signal) -> u32 {
        u32::try_from(signal as i32).unwrap()
    }

    #[tokio::test]
    async fn events_come_in_their_order_and_reloads_that_wait_are_one() {
        let signals = taken();
        for signal in [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT] {
            signals.taken.signal(number(signal));
        }
        signals.taken.signal(number(Signal::SIGUSR1) + 1_000);
        assert_eq!(signals.next().await, Event::Reload);
        signals.taken.signal(number(Signal::SIGHUP));
        assert_eq!(signals.next().await, Event::Stop);
        assert_eq!(signals.next().await, Event::Stop);
        assert_eq!(signals.next().await, Event::Reload);
        assert!(!signals.stop(), "all were acted on");
    }

    #[tokio::test]
    async fn an_end_that_nobody_acted_on_is_told_when_the_thread_stops_and_a_reload_is_not() {
        let signals = taken();
        signals.taken.signal(number(Signal::SIGHUP));
        assert!(!signals.stop());
        signals.taken.signal(number(Signal::SIGINT));
        assert!(signals.stop() && signals.stop());
    }

    #[tokio::test]
    async fn one_that_waited_is_woken_and_one_that_gave_up_took_nothing() {
        let signals = Arc::new(taken());
        let waits = Arc::clone(&signals);
        let waiting = tokio::spawn(async move { waits.next().await });
        tokio::task::yield_now().await;
        signals.taken.signal(number(Signal::SIGTERM));
        assert_eq!(waiting.await.unwrap(), Event::Stop);
        tokio::select! {
            biased;
            event = signals.next() => panic!("{event:?}"),
            () = std::future::ready(()) => {}
        }
        signals.taken.signal(number(Signal::SIGTERM));
        assert_eq!(signals.next().await, Event::Stop);
    }
}
