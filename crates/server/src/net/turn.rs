//! Which connections of a thread go first, and the moment of a timer.
//!
//! The tasks of a thread that are ready stand in a queue. A new event on a socket is not in it: the
//! sockets are asked only after some sixty turns, or when it is empty, and what came then stands
//! behind all that were ready. With turns of a part of a millisecond, and a
//! connection for each of sixteen busy clients, another client waits ten milliseconds for a turn of
//! twenty microseconds.
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
//! one of it has its turn.

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
    /// What all connections have worked since the sockets were asked, as far as it is known.
    unasked: Cell<Duration>,
    /// How often they were asked, as far as it is known.
    round: Cell<u64>,
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
    /// It is called when the sockets were asked, and not at once.
    is_deferred: AtomicBool,
    /// It has not logged in.
    is_new: bool,
    /// Of its task.
    task: Mutex<Option<Waker>>,
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
            next.is_deferred.store(true, Ordering::Relaxed);
            wake_when_asked(&Waker::from(next));
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

    /// The sockets were asked.
    fn begin_round(&self) {
        self.unasked.set(Duration::ZERO);
        self.round.set(self.round.get() + 1);
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
        if let Some(ticket) = &self.ticket {
            return self.is_called(ticket, context);
        }
        // Of several that waited the first one takes note.
        if self.waits_for.take().is_some_and(|round| round == self.line.round.get()) {
            self.line.begin_round();
        }
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
        if ticket.is_deferred.swap(true, Ordering::Relaxed) {
            self.line.begin_round();
        } else if self.line.unasked.get() >= UNASKED_MAX {
            // Others used the time up that was left when it was called at once.
            ticket.is_called.store(false, Ordering::Release);
            wake_when_asked(&Waker::from(Arc::clone(ticket)));
            return false;
        }
        true
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
        self.waits_for = (self.times_long < 2 && unasked >= UNASKED_MAX).then_some(round);
        match self.waits_for {
            Some(_) => wake_when_asked(context.waker()),
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

/// Wakes it when the sockets were asked for what has come.
fn wake_when_asked(waker: &Waker) {
    // It leaves the waker with the runtime when it is polled for the first time.
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
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::task::Poll;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// What a task does in its turn: how long it took, and whether it was cut.
    type Work = (Duration, bool);

    /// Turns of `tasks` that go on for ever, between an event on a socket and the turn of the one
    /// that waits for it.
    fn turns_before_an_event(tasks: usize, work: Work) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
            let (line, turns) = (Rc::new(Line::default()), Rc::new(Cell::new(0)));
            let busy = (0..tasks).map(|_| {
                let (counted, mut own) = (Rc::clone(&turns), Turns::of(&line));
                let mut ours = ours.try_clone().unwrap();
                spawn_local(poll_fn(move |context| {
                    if own.begins(context, false) {
                        // When each of them had some turns.
                        if counted.get() == 3 * tasks {
                            ours.write_all(b"x").unwrap();
                        }
                        counted.set(counted.get() + 1);
                        own.goes_on(context, work.0, work.1);
                        own.ends();
                    }
                    Poll::<()>::Pending
                }))
            });
            let busy: Vec<_> = busy.collect();
            theirs.readable().await.unwrap();
            busy.iter().for_each(|task| task.abort());
            turns.get() - 3 * tasks
        }))
    }

    #[test]
    fn an_event_on_a_socket_waits_for_one_long_turn_however_many_are_busy() {
        for tasks in [1, 10, 100] {
            let turns = turns_before_an_event(tasks, (Duration::ZERO, true));
            assert!(turns <= 3, "{turns} turns of {tasks} connections");
        }
    }

    #[test]
    fn an_event_on_a_socket_waits_for_no_more_work_than_a_part_of_a_millisecond() {
        for tasks in [1, 10, 100] {
            let turns = turns_before_an_event(tasks, (UNASKED_MAX / 4, false));
            assert!(turns <= 9, "{turns} turns of {tasks} connections");
        }
        // Also of those that are short: each of them may have one turn.
        for tasks in [1, 10, 30] {
            let turns = turns_before_an_event(tasks, (SHORT_TURN_MAX * 9 / 10, false));
            assert!(turns <= tasks + 9, "{turns} turns of {tasks} connections");
        }
        let turns = turns_before_an_event(1, (Duration::ZERO, false));
        assert!(turns > 20, "{turns} turns: streams pay for each look at the sockets");
    }

    /// The order in which tasks have their turns: each of `works` is one, until all had `most`.
    fn order(works: &'static [Work], most: usize) -> Vec<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let (line, order) = (Rc::new(Line::default()), Rc::new(RefCell::new(Vec::new())));
            let tasks = works.iter().enumerate().map(|(number, &(took, was_cut))| {
                let (order, mut own) = (Rc::clone(&order), Turns::of(&line));
                let mut left = most;
                spawn_local(poll_fn(move |context| {
                    if !own.begins(context, false) {
                        return Poll::Pending;
                    }
                    order.borrow_mut().push(number);
                    left -= 1;
                    if left > 0 {
                        own.goes_on(context, took, was_cut);
                    }
                    own.ends();
                    if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                }))
            });
            let tasks: Vec<_> = tasks.collect();
            for task in tasks {
                task.await.unwrap();
            }
            order.take()
        }))
    }

    #[test]
    fn those_with_long_turns_have_them_in_order_and_as_often_as_each_other() {
        let order = order(&[(UNASKED_MAX, true); 7], 20);
        // Before it is known that they have long ones, the runtime says which is first.
        let (_, rounds) = order.split_at(7);
        for round in rounds.chunks(7) {
            assert_eq!(round, &rounds[..7], "{order:?}");
        }
        let each: std::collections::BTreeSet<_> = rounds[..7].iter().collect();
        assert_eq!(each.len(), 7, "{order:?}");
    }

    #[test]
    fn short_turns_go_before_long_ones_and_do_not_keep_them_from_theirs() {
        const LONG: Work = (UNASKED_MAX, false);
        let order = order(&[LONG, LONG, LONG, (Duration::ZERO, false)], 50);
        let ended = order.iter().rposition(|number| *number == 3).unwrap();
        let meanwhile = order[..ended].iter().filter(|number| **number < 3).count();
        assert!((2..=60).contains(&meanwhile), "{meanwhile} long turns in {order:?}");
    }

    #[test]
    fn one_long_turn_alone_makes_no_connection_wait() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let (mut busy, mut other) = (Turns::of(&line), Turns::of(&line));
        (0..2).for_each(|_| busy.goes_on(&context, UNASKED_MAX, true));
        assert!(!busy.begins(&context, false));
        other.goes_on(&context, UNASKED_MAX, false);
        assert!(other.begins(&context, false));
        other.goes_on(&context, UNASKED_MAX, false);
        assert!(!other.begins(&context, false), "twice in a row it is its way");
    }

    #[test]
    fn many_short_turns_are_a_long_one_only_without_a_pause() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let mut turns = Turns::of(&line);
        for (pauses, begins) in [(true, true), (false, false)] {
            for _ in 0..20 {
                turns.goes_on(&context, SHORT_TURN_MAX / 2, false);
                turns.ends();
                if pauses {
                    turns.ends();
                }
            }
            assert_eq!(turns.begins(&context, false), begins);
        }
    }

    #[test]
    fn those_that_had_less_time_are_next() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let mut all: Vec<_> = (0..6).map(|_| Turns::of(&line)).collect();
        (0..2).for_each(|_| all[0].goes_on(&context, UNASKED_MAX, true));
        (0..2).for_each(|_| all[5].goes_on(&context, UNASKED_MAX, true));
        for (number, turns) in all.iter_mut().enumerate() {
            assert!(!turns.begins(&context, (1..5).contains(&number)));
        }
        let mut order = Vec::new();
        while !line.is_empty() {
            let called = all
                .iter_mut()
                .position(|turns| turns.ticket.is_some() && turns.begins(&context, false));
            let called = called.expect("one is called while any waits");
            all[called].ends();
            order.push(called);
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5], "the first one had more time than the next four");
    }

    #[test]
    fn those_that_log_in_have_half_of_the_time_and_not_every_other_turn() {
        const TURNS: usize = 256 * 5;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let busy_turns = runtime.block_on(LocalSet::new().run_until(async move {
            let (line, busy_turns) = (Rc::new(Line::default()), Rc::new(Cell::new(0)));
            let (counted, mut own) = (Rc::clone(&busy_turns), Turns::of(&line));
            let busy = spawn_local(poll_fn(move |context| {
                if own.begins(context, false) {
                    counted.set(counted.get() + 1);
                    own.goes_on(context, Duration::from_millis(1), true);
                    own.ends();
                }
                Poll::<()>::Pending
            }));
            let logins: Vec<_> = (0..TURNS / 5)
                .map(|_| {
                    let (mut own, mut left) = (Turns::of(&line), 5);
                    spawn_local(poll_fn(move |context| {
                        if own.begins(context, true) {
                            left -= 1;
                            own.goes_on(context, Duration::from_micros(20), false);
                            own.ends();
                        }
                        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
                    }))
                })
                .collect();
            for login in logins {
                login.await.unwrap();
            }
            busy.abort();
            busy_turns.get()
        }));
        let logins_ms = TURNS * 20 / 1_000;
        assert!(busy_turns <= logins_ms + 15, "{busy_turns} ms for {logins_ms} ms of logins");
        assert!(busy_turns >= logins_ms / 2, "{busy_turns} ms for {logins_ms} ms of logins");
    }

    #[test]
    fn one_that_is_called_at_once_waits_when_others_use_the_time_up() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let mut all: Vec<_> = (0..2).map(|_| Turns::of(&line)).collect();
        for turns in &mut all {
            (0..2).for_each(|_| turns.goes_on(&context, SHORT_TURN_MAX, true));
            turns.ends();
            assert!(!turns.begins(&context, false));
        }
        assert!(all[0].begins(&context, false));
        all[0].goes_on(&context, SHORT_TURN_MAX, false);
        let round = line.round.get();
        all[0].ends();
        line.unasked.set(UNASKED_MAX);
        assert!(!all[1].begins(&context, false), "the sockets were not asked");
        assert_eq!(line.round.get(), round);
        assert!(all[1].begins(&context, false));
        assert_eq!((line.round.get(), line.unasked.get()), (round + 1, Duration::ZERO));
    }

    #[test]
    fn a_long_turn_and_a_short_one_behind_it_are_not_two_long_ones() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let mut small = Turns::of(&line);
        for took in [10 * UNASKED_MAX, Duration::from_micros(20)] {
            small.goes_on(&context, took, false);
            small.ends();
            assert!(small.begins(&context, false), "one turn was long");
        }
    }

    #[test]
    fn one_that_leaves_the_line_holds_up_no_other() {
        let line = Rc::new(Line::default());
        let context = Context::from_waker(Waker::noop());
        let mut of_line: Vec<_> = (0..4).map(|_| Turns::of(&line)).collect();
        let mut began = of_line.iter_mut().map(|turns| {
            (0..2).for_each(|_| turns.goes_on(&context, UNASKED_MAX, true));
            turns.begins(&context, false)
        });
        assert!(began.all(|began| !began), "all stand in the line");
        drop(began);
        // One in the middle, then the first one.
        of_line.remove(1);
        of_line.remove(0);
        assert!(of_line[0].begins(&context, false) && !of_line[1].begins(&context, false));
        of_line[0].ends();
        assert!(of_line[1].begins(&context, false));
        of_line[1].ends();
        assert!(line.is_empty());
    }
}
