//! Large messages on their way in: what all connections together hold of messages whose end has not
//! come is bounded.
//!
//! A message is collected whole before the rules see it, so a hundred clients with a message of
//! 100 MB each would take 10 GB. Beyond the bound only one of those connections is read, the one
//! that began first: it ends its message and gives its memory back, and so on. The others wait
//! unread, and their clients' windows fill up. So the bound may be passed by what one connection may
//! hold (two of the largest messages).
//!
//! Not here: what one connection may hold (`amqp`); messages that arrived and are not durable.
//!
//! Invariants: `bytes` is the sum over `held`; who may read again is woken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;
use towline_types::limits;

/// What a connection may hold without being counted: ordinary messages never wait.
const UNCOUNTED_BYTES: u64 = 256 * 1024;

/// Shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    next_ticket: u64,
    /// By ticket: who began first comes first.
    held: BTreeMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    bytes: u64,
    waiting: Option<Waker>,
}

/// What one connection holds; nothing any more once dropped.
#[derive(Debug)]
pub(crate) struct Arrival {
    all: Arc<Arrivals>,
    ticket: Option<u64>,
}

impl Arrivals {
    /// What one more connection holds: nothing yet.
    pub(crate) fn join(self: &Arc<Self>) -> Arrival {
        Arrival { all: Arc::clone(self), ticket: None }
    }

    /// Bytes of unfinished large messages.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

impl Arrival {
    /// The connection holds so many bytes of unfinished messages now.
    pub(crate) fn holds(&mut self, bytes: u64) {
        match self.ticket {
            None if bytes <= UNCOUNTED_BYTES => {}
            None => {
                let mut state = self.all.state.lock();
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.held.insert(ticket, Held { bytes, waiting: None });
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

    /// Whether the connection may be read; if not, it is woken when it may.
    pub(crate) fn may_read(&self, context: &Context<'_>) -> bool {
        let Some(ticket) = self.ticket else { return true };
        let mut state = self.all.state.lock();
        if state.may_read(ticket) {
            return true;
        }
        if let Some(held) = state.held.get_mut(&ticket) {
            held.waiting = Some(context.waker().clone());
        }
        false
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.all.state.lock().forget(ticket);
        }
    }
}

impl State {
    fn may_read(&self, ticket: u64) -> bool {
        let first = self.held.first_key_value().map(|(first, _)| *first);
        self.bytes <= limits::ARRIVING_BYTES_MAX || first == Some(ticket)
    }

    fn change(&mut self, ticket: u64, bytes: u64) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
        if bytes < before {
            self.wake();
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
    use super::*;

    const MOST: u64 = limits::ARRIVING_BYTES_MAX;

    fn may_read(arrival: &Arrival) -> bool {
        arrival.may_read(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn beyond_the_bound_only_who_began_first_is_read() {
        let all = Arc::new(Arrivals::default());
        let mut clients: Vec<Arrival> = (0..3).map(|_| all.join()).collect();
        for client in &mut clients {
            client.holds(MOST / 3 + 1);
        }
        assert_eq!(clients.iter().map(may_read).collect::<Vec<_>>(), [true, false, false]);
        assert!(may_read(&all.join()), "who holds nothing may begin");
        clients[0].holds(MOST);
        assert!(may_read(&clients[0]), "it must come to its end");
        clients[0].holds(0);
        assert_eq!(clients.iter().map(may_read).collect::<Vec<_>>(), [true, true, true]);
        assert_eq!(all.bytes(), 2 * (MOST / 3 + 1));
        drop(clients);
        assert_eq!(all.bytes(), 0);
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
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let context = Context::from_waker(&waker);
        let all = Arc::new(Arrivals::default());
        let mut clients: Vec<Arrival> = (0..4).map(|_| all.join()).collect();
        for client in &mut clients {
            client.holds(MOST);
        }
        assert!(clients.iter().skip(1).all(|client| !client.may_read(&context)));
        drop(clients.remove(0));
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "still too much: the next one only");
        drop(clients.remove(1));
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "its turn came before");
        drop(clients.remove(0));
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "the last one");
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
