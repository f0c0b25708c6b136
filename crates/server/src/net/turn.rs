//! How a connection that has more to do gives the others their turn, and the moment of a timer.
//!
//! A task that wakes itself goes to the end of the line of tasks that are ready. A new event on a
//! socket is not in that line: the sockets are asked only when the line was served some sixty times
//! over, which with turns of a millisecond is a wait that another client feels. So a connection
//! whose turn was a long one goes on only when the sockets were asked.

use std::pin::pin;
use std::task::Context;
use std::time::Duration;

use towline_process::Clock;
use towline_types::Time;

/// The moment of a timer that is due at a time of [`Clock::now`].
pub(super) fn instant_of(clock: Clock, at: Time) -> tokio::time::Instant {
    // tokio refuses instants decades away.
    let wait = at.since(clock.now()).min(Duration::from_secs(86_400));
    tokio::time::Instant::now() + wait
}

/// Wakes the task of `context` again, at once.
pub(super) fn soon(context: &Context<'_>) {
    context.waker().wake_by_ref();
}

/// Wakes it again when the sockets were asked for what has come.
pub(super) fn after_others(context: &mut Context<'_>) {
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

    /// Turns of a task that wakes itself between an event on a socket and the turn of the one that
    /// waits for it.
    fn turns_before_an_event(wake: fn(&mut Context<'_>)) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(async move {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
            let turns = Rc::new(Cell::new(0));
            let counted = Rc::clone(&turns);
            let busy = spawn_local(poll_fn(move |context| {
                if counted.get() == 0 {
                    ours.write_all(b"x").unwrap();
                }
                counted.set(counted.get() + 1);
                wake(context);
                Poll::<()>::Pending
            }));
            theirs.readable().await.unwrap();
            busy.abort();
            turns.get()
        }))
    }

    #[test]
    fn an_event_on_a_socket_does_not_wait_for_many_turns_of_a_busy_connection() {
        let turns = turns_before_an_event(after_others);
        assert!(turns <= 4, "{turns} turns");
        let turns = turns_before_an_event(|context| soon(context));
        assert!(turns > 20, "{turns} turns: the other way would do as well");
    }
}
