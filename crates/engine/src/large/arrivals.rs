//! Large messages on their way in: what all connections together hold of messages whose end has not
//! come is bounded.
//!
//! A message is collected whole before the rules see it, so a hundred clients with a message of 100
//! MB each would take 10 GB. Beyond the bound only one of those connections is read, the one that
//! began first: it ends its message and gives its memory back, and so on. The others wait unread,
//! and their clients' windows fill up. So the bound may be passed by what one connection may hold
//! (two of the largest messages). When that one stands still while others wait it is disconnected
//! ([`pace`](super::pace)): it would keep them waiting for ever.
//!
//! Not here: what one connection may hold (`amqp`); messages that arrived and are not durable.
//!
//! Invariants: `bytes` is the sum over `held`; a connection that may read again is woken.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::{Instant, Sleep, sleep};
use towline_os::sync::Mutex;
use towline_types::limits;

use super::pace::{LOOK_INTERVAL, Pace};

/// What a connection may hold without being counted: ordinary messages never wait.
const UNCOUNTED_BYTES: u64 = 256 * 1024;

/// Shared by all connections.
#[derive(Debug, Default)]
pub struct Arrivals {
    state: Mutex<ArrivalState>,
}

#[derive(Debug, Default)]
struct ArrivalState {
    bytes: u64,
    next_ticket: u64,
    /// By ticket: the message that began first comes first.
    held: BTreeMap<u64, ArrivalClaim>,
}

#[derive(Debug, Default)]
struct ArrivalClaim {
    bytes: u64,
    waiting: Option<Waker>,
    pace: Pace,
    /// What to wake when it stood still for too long.
    task: Option<Waker>,
    is_over: bool,
}

/// What one connection holds; nothing any more once dropped.
#[derive(Debug)]
pub struct Arrival {
    all: Arc<Arrivals>,
    ticket: Option<u64>,
    /// While it waits: until it looks again whether the one that is read goes on.
    look: Option<Pin<Box<Sleep>>>,
}

impl Arrivals {
    /// What one more connection holds: nothing yet.
    pub fn join(self: &Arc<Self>) -> Arrival {
        Arrival { all: Arc::clone(self), ticket: None, look: None }
    }

    /// Bytes of unfinished large messages.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

impl Arrival {
    /// The connection holds so many bytes of unfinished messages now.
    pub fn holds(&mut self, bytes: u64) {
        match self.ticket {
            None if bytes <= UNCOUNTED_BYTES => {}
            None => {
                let mut state = self.all.state.lock();
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.held.insert(ticket, ArrivalClaim { bytes, ..ArrivalClaim::default() });
                state.bytes += bytes;
                self.ticket = Some(ticket);
            }
            Some(ticket) => {
                let mut state = self.all.state.lock();
                if bytes <= UNCOUNTED_BYTES {
                    state.forget(ticket);
                    self.ticket = None;
                } else {
                    state.change(ticket, bytes);
                }
            }
        }
    }

    /// Whether the connection may be read; if not, it is woken when it may. It is also woken when
    /// it [is over](Arrival::is_over).
    pub fn may_read(&mut self, context: &mut Context<'_>) -> bool {
        let Some(ticket) = self.ticket else {
            self.look = None;
            return true;
        };
        let mut state = self.all.state.lock();
        let may = state.may_read(ticket);
        if let Some(held) = state.held.get_mut(&ticket) {
            held.pace.pressed();
            let waker = if may { &mut held.task } else { &mut held.waiting };
            *waker = Some(context.waker().clone());
        }
        if may {
            self.look = None;
            return true;
        }
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK_INTERVAL)));
        while look.as_mut().poll(context).is_ready() {
            state.press(Instant::now());
            look.as_mut().reset(Instant::now() + LOOK_INTERVAL);
        }
        false
    }

    /// The connection is not read for another reason, which is not its client's.
    pub fn excused(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if let Some(held) = self.all.state.lock().held.get_mut(&ticket) {
            held.pace.excused();
        }
    }

    /// Whether it stood still for too long while others waited.
    pub fn is_over(&self) -> bool {
        let Some(ticket) = self.ticket else { return false };
        self.all.state.lock().held.get(&ticket).is_some_and(|held| held.is_over)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.all.state.lock().forget(ticket);
        }
    }
}

impl ArrivalState {
    fn may_read(&self, ticket: u64) -> bool {
        let first = self.held.first_key_value().map(|(first, _)| *first);
        self.bytes <= limits::ARRIVING_BYTES_MAX || first == Some(ticket)
    }

    fn change(&mut self, ticket: u64, bytes: u64) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
        held.pace.moved(bytes.saturating_sub(before));
        if bytes < before {
            self.wake();
        }
    }

    /// Others wait: a connection that may be read must make progress. Of those that do not, the one
    /// that holds most is disconnected, one at a time.
    fn press(&mut self, now: Instant) {
        let read = self.held.values_mut().filter(|held| held.waiting.is_none() && !held.is_over);
        let stalled = read.filter_map(|held| held.pace.stalled(now).map(|_| held));
        if let Some(held) = stalled.max_by_key(|held| held.bytes) {
            held.is_over = true;
            held.task.as_ref().into_iter().for_each(Waker::wake_by_ref);
        }
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(held) = self.held.remove(&ticket) {
            self.bytes -= held.bytes;
            self.wake();
        }
    }

    fn wake(&mut self) {
        let room = self.bytes <= limits::ARRIVING_BYTES_MAX;
        let count = if room { usize::MAX } else { 1 };
        for held in self.held.values_mut().take(count) {
            if let Some(waker) = held.waiting.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::testing::run;
    use super::*;

    const MOST: u64 = limits::ARRIVING_BYTES_MAX;

    fn may_read(arrival: &mut Arrival) -> bool {
        arrival.may_read(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn beyond_the_bound_only_who_began_first_is_read() {
        run(async {
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..3).map(|_| all.join()).collect();
            for client in &mut clients {
                client.holds(MOST / 3 + 1);
            }
            assert_eq!(clients.iter_mut().map(may_read).collect::<Vec<_>>(), [true, false, false]);
            assert!(may_read(&mut all.join()), "who holds nothing may begin");
            clients[0].holds(MOST);
            assert!(may_read(&mut clients[0]), "it must come to its end");
            clients[0].holds(0);
            assert_eq!(clients.iter_mut().map(may_read).collect::<Vec<_>>(), [true, true, true]);
            assert_eq!(all.bytes(), 2 * (MOST / 3 + 1));
            drop(clients);
            assert_eq!(all.bytes(), 0);
        });
    }

    #[test]
    fn who_waits_is_woken_by_who_ends() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        run(async {
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..4).map(|_| all.join()).collect();
            for client in &mut clients {
                client.holds(MOST);
            }
            assert!(clients.iter_mut().skip(1).all(|client| !client.may_read(&mut context)));
            drop(clients.remove(0));
            assert_eq!(count.0.load(Ordering::SeqCst), 1, "still too much: the next one only");
            drop(clients.remove(1));
            assert_eq!(count.0.load(Ordering::SeqCst), 1, "its turn came before");
            drop(clients.remove(0));
            assert_eq!(count.0.load(Ordering::SeqCst), 2, "the last one");
        });
    }

    #[test]
    fn who_stands_still_while_others_wait_must_go_and_who_goes_on_may_stay() {
        use super::super::pace::STALLED_MAX;
        use std::task::Poll;
        /// Until the last one may be read; the first one receives bytes at each look.
        async fn until_read(clients: &mut [Arrival], each: u64) -> bool {
            let [first, .., last] = clients else { return false };
            let mut held = MOST;
            let waits = std::future::poll_fn(|context| {
                held += each;
                first.holds(held);
                if last.may_read(context) { Poll::Ready(true) } else { Poll::Pending }
            });
            tokio::time::timeout(4 * STALLED_MAX, waits).await.unwrap_or(false)
        }
        run(async {
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..3).map(|_| all.join()).collect();
            clients.iter_mut().for_each(|client| client.holds(MOST));
            assert!(may_read(&mut clients[0]) && !may_read(&mut clients[1]));
            sleep(4 * STALLED_MAX).await;
            assert!(!clients[0].is_over(), "no connection looked");
            assert!(!until_read(&mut clients, 1024 * 1024).await);
            assert!(!clients[0].is_over(), "it went on");
            clients[0].excused();
            assert!(!until_read(&mut clients, 0).await);
            assert!(!clients[0].is_over(), "it was not read");
            assert!(may_read(&mut clients[0]));
            assert!(!until_read(&mut clients, 0).await);
            assert!(clients[0].is_over());
            assert!(!clients[1].is_over() && !clients[2].is_over(), "they are not read");
        });
    }

    #[test]
    fn ordinary_messages_are_not_counted() {
        let all = Arc::new(Arrivals::default());
        let mut client = all.join();
        client.holds(UNCOUNTED_BYTES);
        assert_eq!(all.bytes(), 0);
        client.holds(UNCOUNTED_BYTES + 1);
        assert_eq!(all.bytes(), UNCOUNTED_BYTES + 1);
    }
}
