//! Which connections of a thread go first, and the moment of a timer.
//!
//! The tasks of a thread that are ready stand in a queue. A new event on a socket is not in it: the
//! sockets are asked only after some sixty turns, or when it is empty, and what came then stands
//! behind all that were ready. With turns of a part of a millisecond, and a connection for each of
//! sixteen busy clients, another client waits ten milliseconds for a turn of twenty microseconds.
//!
//! So a connection whose last two turns were long, or that has not logged in yet, does not begin
//! its next one while others like it wait, or once all turns have taken [`UNASKED_MAX`] together
//! since the sockets were asked: it stands in a [`Line`] of its own. The first in that line goes on
//! when the sockets were asked, behind all whose turns are short (shortest job first, by what the
//! last ones took), and then the next ones until that time is used up again. So does one with a
//! short turn, without the line, when that time is used up and it has more to do. To ask is a call
//! of the system and a look at all that came, so it is not done behind each turn: streams become
//! slower by that.
//!
//! Invariants: the line is first in, first out, for those that have logged in and for the others,
//! which have half of its time; while anything stands in it one is called; in each round at least
//! one of it has its turn; a round begins only when the sockets were asked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use towline_os::sync::Mutex;
use towline_process::Clock;
use towline_types::Time;

/// How long the connections of a thread work before its sockets are asked: a hundred times what
/// that costs, and a wait that no client feels.
const UNASKED_MAX: Duration = Duration::from_micros(500);
/// How much more time either half of the line may have had while both waited.
const BALANCE_MAX_US: i64 = 10_000;
/// The least that a turn counts for that.
const TURN_LEAST: Duration = Duration::from_micros(5);
/// Turns that took less are short: a put of one message, or the answer to it, takes a third.
const SHORT_TURN_MAX: Duration = Duration::from_micros(100);

/// The connections of one thread that wait for those with short turns.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// What all connections have worked since the sockets were asked for one of them.
    unasked: Cell<Duration>,
    /// How often they were.
    round: Cell<u64>,
    /// Set by the runtime when they were asked.
    asked: Arc<Asked>,
    /// The runtime has it for that.
    awaits_asked: Cell<bool>,
    /// Those that have not logged in, and the others, which do not wait behind a crowd of them.
    waiting: RefCell<[VecDeque<Arc<LineTicket>>; 2]>,
    /// It has its turn, or is woken for it.
    called: RefCell<Option<Arc<LineTicket>>>,
    /// What those that have logged in worked more than the others, while both waited, microseconds.
    balance_us: Cell<i64>,
}

/// The part of one connection in the line.
#[derive(Debug, Default)]
struct LineTicket {
    /// It may begin its turn.
    is_called: AtomicBool,
    /// It left the line before its turn came.
    is_void: AtomicBool,
    /// It has not logged in.
    is_new: bool,
    /// Of its task.
    task: Mutex<Option<Waker>>,
}

/// Whether the sockets were asked since that was looked at.
#[derive(Debug, Default)]
struct Asked(AtomicBool);

impl Wake for Asked {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Wake for LineTicket {
    fn wake(self: Arc<Self>) {
        self.is_called.store(true, Ordering::Release);
        if let Some(task) = self.task.lock().as_ref() {
            task.wake_by_ref();
        }
    }
}

impl Line {
    fn join(&self, ticket: &Arc<LineTicket>) {
        let [known, new] = &mut *self.waiting.borrow_mut();
        if ticket.is_new { new } else { known }.push_back(Arc::clone(ticket));
    }

    /// Calls the next one, unless one is called already.
    fn call_next(&self) {
        if self.called.borrow().is_some() {
            return;
        }
        let Some(next) = self.take_next() else { return };
        *self.called.borrow_mut() = Some(Arc::clone(&next));
        if self.unasked.get() < UNASKED_MAX {
            Waker::from(next).wake();
        } else {
            self.wake_when_asked(&Waker::from(next));
        }
    }

    /// Wakes it when the sockets were asked for what has come. It may be woken before by other
    /// things: whether they were is seen by the round.
    fn wake_when_asked(&self, waker: &Waker) {
        if !self.awaits_asked.replace(true) {
            leave_until_asked(&Waker::from(Arc::clone(&self.asked)));
        }
        leave_until_asked(waker);
    }

    /// Begins the next round, if the sockets were asked.
    fn look(&self) {
        if self.awaits_asked.get() && self.asked.0.swap(false, Ordering::Acquire) {
            self.awaits_asked.set(false);
            self.unasked.set(Duration::ZERO);
            self.round.set(self.round.get() + 1);
        }
    }

    fn take_next(&self) -> Option<Arc<LineTicket>> {
        let mut waiting = self.waiting.borrow_mut();
        for line in &mut *waiting {
            while line.pop_front_if(|next| next.is_void.load(Ordering::Relaxed)).is_some() {}
        }
        let [known, new] = &mut *waiting;
        let is_new = known.is_empty() || (self.balance_us.get() > 0 && !new.is_empty());
        if is_new { new } else { known }.pop_front()
    }

    /// What one half worked while the other one did not wait gives the other one nothing.
    fn count(&self, is_new: bool, took: Duration) {
        let [known, new] = &*self.waiting.borrow();
        let other_waits = !if is_new { known } else { new }.is_empty();
        let took_us = i64::try_from(took.as_micros()).unwrap_or(BALANCE_MAX_US);
        let change_us = if is_new { -took_us } else { took_us };
        let balance_us = self.balance_us.get().saturating_add(change_us);
        let balance_us = balance_us.clamp(-BALANCE_MAX_US, BALANCE_MAX_US);
        self.balance_us.set(if other_waits { balance_us } else { 0 });
    }

    fn is_empty(&self) -> bool {
        let [known, new] = &*self.waiting.borrow();
        known.is_empty() && new.is_empty() && self.called.borrow().is_none()
    }

    /// It had its turn, which took so long, or is gone.
    fn leaves(&self, ticket: &Arc<LineTicket>, took: Duration) {
        let is_called = self.called.borrow_mut().take_if(|it| Arc::ptr_eq(it, ticket)).is_some();
        if is_called {
            self.count(ticket.is_new, took.max(TURN_LEAST));
            self.call_next();
            let is_called = self.called.borrow().is_some();
            assert!(is_called || self.is_empty(), "those in the line would wait for ever");
        } else {
            ticket.is_void.store(true, Ordering::Relaxed);
        }
    }
}

/// How one connection takes its turns.
#[derive(Debug)]
pub(super) struct Turns {
    line: Rc<Line>,
    /// While it stands in the line.
    ticket: Option<Arc<LineTicket>>,
    /// What it worked in this round without a pause.
    own: (u64, Duration),
    /// It has more to do after this turn.
    went_on: bool,
    /// It had a short turn, and goes on when the sockets were asked in this round.
    waits_for: Option<u64>,
    /// What this turn took, as far as it worked.
    took: Duration,
    /// How often that was long, one after the other. Once says nothing: the system may have taken
    /// the processor away.
    times_long: u8,
}

impl Turns {
    pub(super) fn of(line: &Rc<Line>) -> Turns {
        Turns {
            line: Rc::clone(line),
            ticket: None,
            own: (0, Duration::ZERO),
            went_on: false,
            waits_for: None,
            took: Duration::ZERO,
            times_long: 0,
        }
    }

    /// Whether the next turn begins now; otherwise the task is woken for it. `is_new`: it is not
    /// known yet what its turns are like.
    pub(super) fn begins(&mut self, context: &Context<'_>, is_new: bool) -> bool {
        self.line.look();
        if let Some(ticket) = &self.ticket {
            return self.is_called(ticket, context);
        }
        if self.waits_for == Some(self.line.round.get()) {
            // Woken by something else: it is woken again.
            return false;
        }
        self.waits_for = None;
        if self.times_long < 2 && !is_new {
            return true;
        }
        if self.line.is_empty() && self.line.unasked.get() < UNASKED_MAX {
            return true;
        }
        let task = Mutex::new(Some(context.waker().clone()));
        let ticket = Arc::new(LineTicket { task, is_new, ..LineTicket::default() });
        self.line.join(&ticket);
        self.line.call_next();
        self.ticket = Some(ticket);
        false
    }

    fn is_called(&self, ticket: &Arc<LineTicket>, context: &Context<'_>) -> bool {
        let mut task = ticket.task.lock();
        if task.as_ref().is_none_or(|known| !known.will_wake(context.waker())) {
            *task = Some(context.waker().clone());
        }
        drop(task);
        if !ticket.is_called.load(Ordering::Acquire) {
            return false;
        }
        if self.line.unasked.get() < UNASKED_MAX {
            return true;
        }
        // Others used the time up that was left when it was called.
        ticket.is_called.store(false, Ordering::Release);
        self.line.wake_when_asked(&Waker::from(Arc::clone(ticket)));
        false
    }

    /// It worked so long in this turn, and has more to do: its task is woken. `was_cut`: a bound
    /// ended the turn.
    pub(super) fn goes_on(&mut self, context: &Context<'_>, took: Duration, was_cut: bool) {
        let least = if was_cut { UNASKED_MAX } else { Duration::ZERO };
        let unasked = self.line.unasked.get().saturating_add(took).max(least);
        self.line.unasked.set(unasked);
        let round = self.line.round.get();
        let before = if self.own.0 == round { self.own.1 } else { Duration::ZERO };
        // Many short ones in a row are a long one; a long one counts once.
        let short = if took < SHORT_TURN_MAX { took } else { Duration::ZERO };
        self.own = (round, before.saturating_add(short));
        let is_long = took >= SHORT_TURN_MAX || self.own.1 >= SHORT_TURN_MAX || was_cut;
        (self.went_on, self.took) = (true, took);
        self.times_long = if is_long { self.times_long.saturating_add(1) } else { 0 };
        // One that stood in the line stands there again.
        let waits = self.times_long < 2 && self.ticket.is_none() && unasked >= UNASKED_MAX;
        self.waits_for = waits.then_some(round);
        match self.waits_for {
            Some(_) => self.line.wake_when_asked(context.waker()),
            None => context.waker().wake_by_ref(),
        }
    }

    /// The turn is over.
    pub(super) fn ends(&mut self) {
        if !std::mem::take(&mut self.went_on) {
            // It has had its answers, and waits for its client: thousands of such turns are short.
            self.own.1 = Duration::ZERO;
        }
        let took = std::mem::take(&mut self.took);
        if let Some(ticket) = self.ticket.take() {
            self.line.leaves(&ticket, took);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.ends();
    }
}

/// The runtime wakes it when it has asked the sockets.
fn leave_until_asked(waker: &Waker) {
    // `yield_now` leaves the waker with the runtime when it is polled for the first time.
    if pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker)).is_ready() {
        waker.wake_by_ref();
    }
}

/// The moment of a timer that is due at a time of [`Clock::now`].
pub(super) fn instant_of(clock: Clock, at: Time) -> tokio::time::Instant {
    // tokio refuses instants decades away.
    let wait = at.since(clock.now()).min(Duration::from_secs(86_400));
    tokio::time::Instant::now() + wait
}

#[cfg(test)]
mod tests;
