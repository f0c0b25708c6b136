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
//! last ones took), and with it the next ones whose turns fit into that time. So does one with a
//! short turn, without the line, when that time is used up and it has more to do. To ask is a call
//! of the system and a look at all that came, so it is not done behind each turn: streams become
//! slower by that. And where all are busy, that time is longer ([`UNASKED_ALONE_MAX`]): what those
//! that produce have put is then sent to those that consume in fewer and larger pieces.
//!
//! Before a connection has logged in nothing is known of its turns: the handshake of TLS, which is
//! the larger part of a login, has its turns there too ([`in_turns`]).
//!
//! Invariants: those in the line are called first in, first out, for those that have logged in and
//! for the others, which have half of its time; while anything stands in it one is called; one that
//! is called has its turn when the sockets were next asked, whatever those with short turns do; a
//! round begins only when the sockets were asked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use towline_os::sync::Mutex;
use towline_process::Clock;
use towline_types::Time;

/// How long the connections of a thread work before its sockets are asked: a hundred times what
/// that costs, and a wait that no client feels.
const UNASKED_MAX: Duration = Duration::from_micros(500);
/// The same on a thread that serves no light connection: the first event of one waits that long.
const UNASKED_ALONE_MAX: Duration = Duration::from_millis(2);
/// For so long after a turn of a light connection the thread counts as one that serves some.
const LIGHT_FOR: Duration = Duration::from_millis(50);
/// A connection is light if it had at most [`LIGHT_WORK_MAX`] of such a stretch of time: 3 %.
const STRETCH_MS: u64 = 16;
const LIGHT_WORK_MAX: Duration = Duration::from_micros(500);
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
    /// It serves none that is light, as far as is known.
    is_alone: Cell<bool>,
    /// When a light one had a turn.
    light_at: Cell<Option<Time>>,
    /// How often they were.
    round: Cell<u64>,
    /// Set by the runtime when they were asked.
    asked: Arc<Asked>,
    /// The runtime has it for that.
    awaits_asked: Cell<bool>,
    /// Those that have not logged in, and the others, which do not wait behind a crowd of them.
    waiting: RefCell<[VecDeque<Arc<LineTicket>>; 2]>,
    /// They have their turns, or are woken for them.
    called: RefCell<Vec<Arc<LineTicket>>>,
    /// What these will take, by their last turns.
    expected: Cell<Duration>,
    /// What those that have logged in worked more than the others, while both waited, microseconds.
    balance_us: Cell<i64>,
}

/// The part of one connection in the line.
#[derive(Debug, Default)]
struct LineTicket {
    /// It may begin its turn.
    is_called: AtomicBool,
    /// It is woken when the sockets were asked, and has its turn then even if others used the time
    /// up.
    is_put_off: AtomicBool,
    /// It left the line before its turn came.
    is_void: AtomicBool,
    /// It has not logged in.
    is_new: bool,
    /// What its last turn took.
    expected: Duration,
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

    /// How long may be worked before the sockets are asked.
    fn unasked_max(&self) -> Duration {
        if self.is_alone.get() { UNASKED_ALONE_MAX } else { UNASKED_MAX }
    }

    /// Whether they are to be asked before anything else of the line.
    fn is_used_up(&self) -> bool {
        self.unasked.get() >= self.unasked_max()
    }

    /// Calls the next ones: as many as will have their turns before the sockets are asked, by what
    /// their last ones took, and one at least.
    fn call_next(&self) {
        loop {
            let due = self.unasked.get().saturating_add(self.expected.get());
            let is_due = due >= self.unasked_max();
            if is_due && !self.called.borrow().is_empty() {
                return;
            }
            let Some(next) = self.take_next() else { return };
            self.expected.set(self.expected.get().saturating_add(next.expected));
            self.called.borrow_mut().push(Arc::clone(&next));
            if is_due {
                self.puts_off(&next);
            } else {
                Waker::from(next).wake();
            }
        }
    }

    /// A turn of one that has this weight is over.
    fn weighs(&self, now: Time, is_light: bool) {
        if is_light {
            self.light_at.set(Some(now));
        }
        let is_served = self.light_at.get().is_some_and(|at| now.since(at) < LIGHT_FOR);
        self.is_alone.set(!is_served);
    }

    /// Wakes it when the sockets were asked for what has come. It may be woken before by other
    /// things: whether they were is seen by the round.
    fn wake_when_asked(&self, waker: &Waker) {
        if !self.awaits_asked.replace(true) {
            leave_until_asked(&Waker::from(Arc::clone(&self.asked)));
        }
        leave_until_asked(waker);
    }

    /// Its turn comes when the sockets were asked, and then for certain: those with short turns go
    /// before it then, and would use the time up again, for as long as they have much to do.
    fn puts_off(&self, ticket: &Arc<LineTicket>) {
        ticket.is_put_off.store(true, Ordering::Relaxed);
        self.wake_when_asked(&Waker::from(Arc::clone(ticket)));
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
        known.is_empty() && new.is_empty() && self.called.borrow().is_empty()
    }

    /// It had its turn, which took so long, or is gone.
    fn leaves(&self, ticket: &Arc<LineTicket>, took: Duration) {
        let mut called = self.called.borrow_mut();
        let place = called.iter().position(|it| Arc::ptr_eq(it, ticket));
        if let Some(place) = place {
            called.remove(place);
            drop(called);
            self.expected.set(self.expected.get().saturating_sub(ticket.expected));
            self.count(ticket.is_new, took.max(TURN_LEAST));
            self.call_next();
            let is_called = !self.called.borrow().is_empty();
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
    /// What the last one took that worked.
    last: Duration,
    /// What it worked in a stretch of time, by the number of that, and whether it was light before.
    stretch: (u64, Duration, bool),
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
            last: Duration::ZERO,
            stretch: (0, Duration::ZERO, true),
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
        if self.line.is_empty() && !self.line.is_used_up() {
            return true;
        }
        let task = Mutex::new(Some(context.waker().clone()));
        // What those that come will take is not known, and there may be thousands: one at a time.
        let expected = if is_new { UNASKED_ALONE_MAX } else { self.last.max(TURN_LEAST) };
        let ticket = Arc::new(LineTicket { task, is_new, expected, ..LineTicket::default() });
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
        if !self.line.is_used_up() || ticket.is_put_off.load(Ordering::Relaxed) {
            return true;
        }
        // Others used the time up that was left when it was called.
        ticket.is_called.store(false, Ordering::Release);
        self.line.puts_off(ticket);
        false
    }

    /// It worked so long in this turn, until `now`, and has more to do: its task is woken.
    /// `was_cut`: a bound ended the turn.
    pub(super) fn goes_on(
        &mut self,
        context: &Context<'_>,
        now: Time,
        took: Duration,
        was_cut: bool,
    ) {
        let is_light = self.is_light(now, took);
        self.line.weighs(now, is_light);
        let least = if was_cut { UNASKED_MAX } else { Duration::ZERO };
        let unasked = self.line.unasked.get().saturating_add(took).max(least);
        self.line.unasked.set(unasked);
        let round = self.line.round.get();
        let before = if self.own.0 == round { self.own.1 } else { Duration::ZERO };
        // Many short ones in a row are a long one; a long one counts once.
        let short = if took < SHORT_TURN_MAX { took } else { Duration::ZERO };
        self.own = (round, before.saturating_add(short));
        let is_long = took >= SHORT_TURN_MAX || self.own.1 >= SHORT_TURN_MAX || was_cut;
        (self.went_on, self.took, self.last) = (true, took, took.max(least));
        self.times_long = if is_long { self.times_long.saturating_add(1) } else { 0 };
        // One that stood in the line stands there again.
        let waits = self.times_long < 2 && self.ticket.is_none() && self.line.is_used_up();
        self.waits_for = waits.then_some(round);
        match self.waits_for {
            Some(_) => self.line.wake_when_asked(context.waker()),
            None => context.waker().wake_by_ref(),
        }
    }

    /// It worked so long in its turn, and has no more to do: it waits for its client, or is over.
    pub(super) fn worked(&mut self, took: Duration) {
        self.line.unasked.set(self.line.unasked.get().saturating_add(took));
        self.took = took;
    }

    /// Whether it is light with this turn. It counts as it was until a stretch of time is over.
    fn is_light(&mut self, now: Time, took: Duration) -> bool {
        let number = now.as_millis() / STRETCH_MS;
        let (at, worked, was_light) = self.stretch;
        let fits = |worked: Duration| worked <= LIGHT_WORK_MAX;
        self.stretch = match number == at {
            true => (at, worked.saturating_add(took), was_light),
            false => (number, took, number > at + 1 || fits(worked)),
        };
        self.stretch.2 && fits(self.stretch.1)
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

/// Runs what one does before its turns are known, such as the handshake of TLS, in the turns of one
/// that has not logged in. `now`: the time of the thread.
pub(super) async fn in_turns<F: Future>(
    line: &Rc<Line>,
    now: impl Fn() -> Time,
    work: F,
) -> F::Output {
    let mut turns = Turns::of(line);
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        if !turns.begins(context, true) {
            return Poll::Pending;
        }
        let began = now();
        let done = work.as_mut().poll(context);
        turns.worked(now().since(began));
        turns.ends();
        done
    })
    .await
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
