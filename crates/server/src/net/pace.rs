//! How many connections of one thread begin, or end, between two moments at which its sockets are
//! asked for events (as in rate limiting: so many per round).
//!
//! Thousands of clients may come or go at once. What each of them costs is little (system calls of
//! its socket, memory that is taken or freed) and bounded; all of it in one go is a stall for every
//! other client of the thread. So they take turns: the next ones when the sockets were asked and
//! the others had theirs.
//!
//! Not here: how connections that live share the thread (the line of `turn`), how many may come
//! (`admission`).
//!
//! Invariants: turns are given in the order in which they were asked for; each request gets one,
//! unless it is given up before.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use towline_types::limits;

use super::turn::Line;

/// Milliseconds of one round: four times what its turns take, so that they never make the next one
/// longer.
const ROUND_MS: usize = 4;
/// As many turns as so many rounds have are given in a longer one.
const ROUNDS_MAX: usize = 16;

/// Those of one thread.
#[derive(Debug)]
pub(super) struct Paces {
    /// Connections that begin.
    pub(super) arrivals: Pace,
    /// Connections that have ended, whose sockets are closed.
    pub(super) ends: Pace,
    /// Connections that work.
    pub(super) line: Rc<Line>,
}

impl Default for Paces {
    fn default() -> Paces {
        Paces {
            arrivals: Pace::of(limits::ARRIVALS_PER_ROUND),
            ends: Pace::of(limits::ENDS_PER_ROUND),
            line: Rc::default(),
        }
    }
}

impl Paces {
    /// Gives turns; never ends.
    pub(super) async fn run(&self) {
        tokio::join!(self.arrivals.run(), self.ends.run());
    }
}

/// So many turns in each round.
#[derive(Debug)]
pub(super) struct Pace {
    per_round: usize,
    /// Turns of this round that are not taken. None, while any connection waits.
    left: Cell<usize>,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// A turn was taken, or is waited for.
    wanted: Notify,
}

impl Pace {
    fn of(per_round: usize) -> Pace {
        assert!(per_round > 0, "a round without turns gives none ever");
        Pace {
            per_round,
            left: Cell::new(per_round),
            waiting: RefCell::default(),
            wanted: Notify::new(),
        }
    }

    /// Waits for a turn. There is one at once, as long as few are wanted.
    pub(super) async fn turn(&self) {
        self.wanted.notify_one();
        if let Some(left) = self.left.get().checked_sub(1) {
            return self.left.set(left);
        }
        let (grant, granted) = oneshot::channel();
        self.waiting.borrow_mut().push_back(grant);
        // An error is the end of the thread: nothing else drops the other side.
        granted.await.ok();
    }

    async fn run(&self) {
        loop {
            self.wanted.notified().await;
            while self.left.get() < self.per_round {
                let began = Instant::now();
                // Goes on when the sockets were asked (see `turn`).
                tokio::task::yield_now().await;
                self.begin_round(began.elapsed());
            }
        }
    }

    /// The last round took so long. On a busy thread it is long whatever few begin or end, and more
    /// of them do: thousands would wait for each connection that lives again and again.
    fn begin_round(&self, last: Duration) {
        let parts = usize::try_from(last.as_millis()).unwrap_or(usize::MAX) / ROUND_MS;
        let mut left = self.per_round * parts.clamp(1, ROUNDS_MAX);
        let mut waiting = self.waiting.borrow_mut();
        while left > 0
            && let Some(first) = waiting.pop_front()
        {
            // One that gave up takes none.
            left -= usize::from(first.send(()).is_ok());
        }
        assert!(left == 0 || waiting.is_empty(), "a turn is left while others wait");
        self.left.set(left.min(self.per_round));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    const PER_ROUND: usize = 4;

    /// `wanted` turns are asked for at once; how many were had when an event on a socket was seen
    /// that came with the first one that was waited for, and in which order all of them were had.
    fn turns_before_an_event(wanted: usize) -> (usize, Vec<usize>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
            let pace = Rc::new(Pace::of(PER_ROUND));
            let order: Rc<RefCell<Vec<usize>>> = Rc::default();
            let giving = Rc::clone(&pace);
            spawn_local(async move { giving.run().await });
            let tasks: Vec<_> = (0..wanted)
                .map(|number| {
                    let (pace, order) = (Rc::clone(&pace), Rc::clone(&order));
                    let mut ours = ours.try_clone().unwrap();
                    spawn_local(async move {
                        pace.turn().await;
                        if number == PER_ROUND {
                            ours.write_all(b"x").unwrap();
                        }
                        order.borrow_mut().push(number);
                    })
                })
                .collect();
            theirs.readable().await.unwrap();
            let before = order.borrow().len();
            for task in tasks {
                task.await.unwrap();
            }
            (before, order.take())
        }))
    }

    #[test]
    fn an_event_on_a_socket_waits_for_the_turns_of_few_rounds_and_all_have_theirs_in_order() {
        let (before, order) = turns_before_an_event(200);
        assert!(before <= 3 * PER_ROUND, "{before} turns");
        assert_eq!(order, (0..200).collect::<Vec<_>>());
    }

    /// Turns that each of so many busy connections has until all of `wanted` had one, when theirs
    /// take a millisecond.
    fn turns_of_busy(busy: usize, wanted: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let pace = Rc::new(Pace::of(limits::ARRIVALS_PER_ROUND));
            let giving = Rc::clone(&pace);
            spawn_local(async move { giving.run().await });
            let turns = Rc::new(Cell::new(0));
            for _ in 0..busy {
                let turns = Rc::clone(&turns);
                spawn_local(async move {
                    loop {
                        turns.set(turns.get() + 1);
                        tokio::time::advance(Duration::from_millis(1)).await;
                    }
                });
            }
            let tasks: Vec<_> = (0..wanted)
                .map(|_| {
                    let pace = Rc::clone(&pace);
                    spawn_local(async move { pace.turn().await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            turns.get() / busy
        }))
    }

    #[test]
    fn many_that_come_do_not_wait_for_a_busy_thread_again_and_again() {
        let turns = turns_of_busy(100, 512);
        assert!(turns <= 8, "{turns} turns of a tenth of a second");
    }

    #[test]
    fn a_turn_is_had_at_once_until_those_of_the_round_are_taken() {
        let pace = Pace::of(PER_ROUND);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..PER_ROUND {
            assert!(pin!(pace.turn()).poll(&mut context).is_ready());
        }
        let (mut gives_up, mut waits) = (Box::pin(pace.turn()), pin!(pace.turn()));
        assert!(gives_up.as_mut().poll(&mut context).is_pending());
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Pending);
        drop(gives_up);
        pace.begin_round(Duration::ZERO);
        assert!(waits.poll(&mut context).is_ready());
        assert_eq!(pace.left.get(), PER_ROUND - 1, "one that gave up takes no turn");
        pace.begin_round(Duration::from_secs(1));
        assert_eq!(pace.left.get(), PER_ROUND);
    }
}
