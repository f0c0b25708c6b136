//! How a connection that has more to do gives the others their turn, and the moment of a timer.
//!
//! A task that wakes itself goes to the end of the line of tasks that are ready. A new event on a
//! socket is not in that line: the sockets are asked only when the line was served some sixty times
//! over, which with turns of a millisecond is a wait that another client feels. So a connection
//! whose turn was a long one goes on only when the sockets were asked, and so does each one when
//! the turns of all connections of its thread have taken long together since then. To ask is a call
//! of the system and a look at all that came, so it is not done behind each short turn: streams
//! become slower by that.

use std::cell::Cell;
use std::pin::pin;
use std::task::Context;
use std::time::Duration;

use towline_process::Clock;
use towline_types::Time;

/// How long the connections of a thread work before its sockets are asked: a hundred times what
/// that costs, and a wait that no client feels.
const UNASKED_MAX: Duration = Duration::from_micros(500);

/// What the connections of one thread have done since its sockets were asked.
#[derive(Clone, Copy, Debug, Default)]
struct UnaskedWork {
    /// How often they were asked, as far as it is known.
    round: u64,
    took: Duration,
}

thread_local! {
    static UNASKED: Cell<UnaskedWork> = const {
        Cell::new(UnaskedWork { round: 0, took: Duration::ZERO })
    };
}

/// How one connection goes on after its turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// It waits until the sockets were asked in this round.
    waits_for: Option<u64>,
}

impl Turns {
    /// The next turn begins.
    pub(super) fn begins(&mut self) {
        let Some(round) = self.waits_for.take() else { return };
        let work = UNASKED.get();
        // Of several that waited the first one takes note.
        if work.round == round {
            UNASKED.set(UnaskedWork { round: round + 1, took: Duration::ZERO });
        }
    }

    /// It took so long, and there is more to do. `is_long`: a bound ended it.
    pub(super) fn goes_on(&mut self, context: &mut Context<'_>, took: Duration, is_long: bool) {
        let mut work = UNASKED.get();
        work.took += took;
        UNASKED.set(work);
        if is_long || work.took >= UNASKED_MAX {
            self.waits_for = Some(work.round);
            after_others(context);
        } else {
            soon(context);
        }
    }
}

/// The moment of a timer that is due at a time of [`Clock::now`].
pub(super) fn instant_of(clock: Clock, at: Time) -> tokio::time::Instant {
    // tokio refuses instants decades away.
    let wait = at.since(clock.now()).min(Duration::from_secs(86_400));
    tokio::time::Instant::now() + wait
}

/// Wakes the task of `context` again, at once.
fn soon(context: &Context<'_>) {
    context.waker().wake_by_ref();
}

/// Wakes it again when the sockets were asked for what has come.
fn after_others(context: &mut Context<'_>) {
    // It leaves its waker with the runtime when it is polled for the first time.
    if pin!(tokio::task::yield_now()).poll(context).is_ready() {
        soon(context);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::Poll;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// Turns of `tasks` that wake themselves between an event on a socket and the turn of the one
    /// that waits for it.
    fn turns_before_an_event(tasks: usize, wake: fn(&mut Turns, &mut Context<'_>)) -> usize {
        UNASKED.set(UnaskedWork::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let (ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
            let turns = Rc::new(Cell::new(0));
            let busy = (0..tasks).map(|_| {
                let (counted, mut own) = (Rc::clone(&turns), Turns::default());
                let mut ours = ours.try_clone().unwrap();
                spawn_local(poll_fn(move |context| {
                    own.begins();
                    if counted.get() == 0 {
                        ours.write_all(b"x").unwrap();
                    }
                    counted.set(counted.get() + 1);
                    wake(&mut own, context);
                    Poll::<()>::Pending
                }))
            });
            let busy: Vec<_> = busy.collect();
            theirs.readable().await.unwrap();
            busy.iter().for_each(|task| task.abort());
            turns.get()
        }))
    }

    #[test]
    fn an_event_on_a_socket_does_not_wait_for_many_turns_of_a_busy_connection() {
        let long = |turns: &mut Turns, context: &mut Context<'_>| {
            turns.goes_on(context, Duration::ZERO, true);
        };
        let turns = turns_before_an_event(1, long);
        assert!(turns <= 4, "{turns} turns");
        let turns = turns_before_an_event(1, |_, context| soon(context));
        assert!(turns > 20, "{turns} turns: the other way would do as well");
    }

    #[test]
    fn an_event_on_a_socket_waits_for_no_more_work_than_a_part_of_a_millisecond() {
        let takes = |turns: &mut Turns, context: &mut Context<'_>| {
            turns.goes_on(context, UNASKED_MAX / 4, false);
        };
        let turns = turns_before_an_event(1, takes);
        assert!(turns <= 8, "{turns} turns of one");
        let turns = turns_before_an_event(10, takes);
        assert!(turns <= 24, "{turns} turns of ten");
        let short = |turns: &mut Turns, context: &mut Context<'_>| {
            turns.goes_on(context, Duration::ZERO, false);
        };
        let turns = turns_before_an_event(1, short);
        assert!(turns > 20, "{turns} turns: streams pay for each look at the sockets");
    }
}
