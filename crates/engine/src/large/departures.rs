//! Large messages on their way out: what all connections together hold of them is bounded.
//!
//! A body is read whole before it is sent, so a hundred clients that ask for a message of 100 MB
//! and do not read their sockets would take 10 GB. Beyond the bound a connection does not begin
//! another large body before others have sent theirs; those that wait do so in the order in which
//! they came. One that holds some and stands still meanwhile is disconnected
//! ([`pace`](super::pace)).
//!
//! Not here: ordinary bodies, of which a connection holds little (`OUTPUT_BYTES_HIGH`); bodies that
//! are in memory anyway.
//!
//! Invariants: `bytes` is the sum over `held`, and passes the bound only while one connection holds
//! all of it; the first that waits is woken when memory was given back.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::{Instant, Sleep, sleep};
use towline_core::Body;
use towline_os::sync::Mutex;
use towline_types::limits;

use super::pace::{LOOK_INTERVAL, Pace};

/// What a connection may hold without being counted: ordinary messages never wait.
const UNCOUNTED_BYTES: u64 = limits::BODY_CHUNK_BYTES as u64;

/// Shared by all connections.
#[derive(Debug, Default)]
pub struct Departures {
    state: Mutex<DepartureState>,
}

#[derive(Debug, Default)]
struct DepartureState {
    bytes: u64,
    next_ticket: u64,
    held: BTreeMap<u64, DepartureClaim>,
    /// By ticket: the connection that came first comes first.
    waiting: BTreeMap<u64, Waker>,
}

#[derive(Debug)]
struct DepartureClaim {
    bytes: u64,
    pace: Pace,
    task: Waker,
    /// It stood still for too long.
    is_over: bool,
}

/// What one connection holds; nothing any more once dropped.
#[derive(Debug)]
pub struct Departure {
    all: Arc<Departures>,
    /// Of what it holds.
    ticket: Option<u64>,
    /// Of what it waits for.
    turn: Option<u64>,
    /// Until it looks again whether others go on.
    look: Option<Pin<Box<Sleep>>>,
}

/// Bytes that `body` takes beside those that are in memory for good.
pub fn bytes_of(body: &Body) -> u64 {
    match body {
        Body::Memory(_) => 0,
        body => body.bytes(),
    }
}

/// Whether a body of so many bytes is counted.
pub fn is_large(bytes: u64) -> bool {
    bytes > UNCOUNTED_BYTES
}

impl Departures {
    /// What one more connection holds: nothing yet.
    pub fn join(self: &Arc<Self>) -> Departure {
        Departure { all: Arc::clone(self), ticket: None, turn: None, look: None }
    }

    /// Bytes of large messages that are being sent.
    pub fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

impl Departure {
    /// Whether the connection, which holds `own` bytes, may begin a body of `bytes`; if not, it is
    /// woken when it should ask again.
    pub fn may_begin(&mut self, context: &mut Context<'_>, own: u64, bytes: u64) -> bool {
        if !is_large(bytes) {
            return true;
        }
        let all = Arc::clone(&self.all);
        let mut state = all.state.lock();
        let turn = self.turn.unwrap_or(u64::MAX);
        let is_first = state.waiting.first_key_value().is_none_or(|(first, _)| *first >= turn);
        if is_first && state.has_room(self.ticket, own + bytes) {
            let ticket = *self.ticket.get_or_insert_with(|| state.ticket());
            state.change(ticket, own + bytes, context.waker());
            self.stop_waiting(&mut state);
            return true;
        }
        let turn = *self.turn.get_or_insert_with(|| state.ticket());
        state.waiting.insert(turn, context.waker().clone());
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK_INTERVAL)));
        while look.as_mut().poll(context).is_ready() {
            state.press(Instant::now());
            look.as_mut().reset(Instant::now() + LOOK_INTERVAL);
        }
        false
    }

    /// It does not want to begin another body any more.
    fn stop_waiting(&mut self, state: &mut DepartureState) {
        self.look = None;
        if let Some(turn) = self.turn.take() {
            state.waiting.remove(&turn);
            state.wake();
        }
    }

    /// Whether what the connection holds is counted.
    pub fn is_counted(&self) -> bool {
        self.ticket.is_some()
    }

    /// The connection holds so many bytes now.
    pub fn holds(&mut self, bytes: u64) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.all.state.lock();
        if bytes > UNCOUNTED_BYTES {
            let Some(held) = state.held.get_mut(&ticket) else { return };
            let before = std::mem::replace(&mut held.bytes, bytes);
            state.bytes = state.bytes - before + bytes;
            if bytes < before {
                state.wake();
            }
        } else {
            state.forget(ticket);
            self.ticket = None;
        }
    }

    /// So many bytes went to the socket.
    pub fn moved(&self, bytes: u64) {
        let Some(ticket) = self.ticket else { return };
        if let Some(held) = self.all.state.lock().held.get_mut(&ticket) {
            held.pace.moved(bytes);
        }
    }

    /// Whether it stood still for too long while others waited; the connection is woken when it
    /// has.
    pub fn is_over(&self) -> bool {
        let Some(ticket) = self.ticket else { return false };
        self.all.state.lock().held.get(&ticket).is_some_and(|held| held.is_over)
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let all = Arc::clone(&self.all);
        let mut state = all.state.lock();
        if let Some(ticket) = self.ticket.take() {
            state.forget(ticket);
        }
        self.stop_waiting(&mut state);
    }
}

impl DepartureState {
    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Whether the owner of `ticket` may hold so many bytes; one is served in any case.
    fn has_room(&self, ticket: Option<u64>, bytes: u64) -> bool {
        let own = ticket.and_then(|ticket| self.held.get(&ticket)).map_or(0, |held| held.bytes);
        let others = self.bytes - own;
        others == 0 || others.saturating_add(bytes) <= limits::DEPARTING_BYTES_MAX
    }

    fn change(&mut self, ticket: u64, bytes: u64, task: &Waker) {
        let new = || DepartureClaim {
            bytes: 0,
            pace: Pace::default(),
            task: task.clone(),
            is_over: false,
        };
        let held = self.held.entry(ticket).or_insert_with(new);
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
    }

    fn forget(&mut self, ticket: u64) {
        if let Some(held) = self.held.remove(&ticket) {
            self.bytes -= held.bytes;
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.wake_by_ref();
        }
    }

    /// Others wait: the connection that stood still longest is disconnected, one at a time.
    fn press(&mut self, now: Instant) {
        let stalled = self.held.values_mut().filter(|held| !held.is_over);
        let longest = stalled
            .filter_map(|held| held.pace.stalled(now).map(|still| (still, held)))
            .max_by_key(|(still, _)| *still);
        if let Some((_, held)) = longest {
            held.is_over = true;
            held.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::STALLED_MAX;
    use super::super::pace::testing::run;
    use super::*;

    const MOST: u64 = limits::DEPARTING_BYTES_MAX;

    fn may_begin(departure: &mut Departure, bytes: u64) -> bool {
        departure.may_begin(&mut Context::from_waker(Waker::noop()), 0, bytes)
    }

    #[test]
    fn beyond_the_bound_none_begins_and_the_first_that_came_is_next() {
        run(async {
            let all = Arc::new(Departures::default());
            let mut clients: Vec<Departure> = (0..5).map(|_| all.join()).collect();
            assert!(may_begin(&mut clients[0], MOST / 2) && may_begin(&mut clients[1], MOST / 2));
            assert!(!may_begin(&mut clients[2], MOST) && !may_begin(&mut clients[3], MOST / 4));
            assert!(may_begin(&mut clients[4], UNCOUNTED_BYTES), "an ordinary message");
            clients[0].holds(0);
            assert!(!may_begin(&mut clients[3], MOST / 4), "it would overtake");
            assert!(!may_begin(&mut clients[2], MOST), "there is space for half of it");
            clients[1].holds(0);
            assert!(may_begin(&mut clients[2], MOST));
            clients.remove(2);
            assert!(may_begin(&mut clients[2], MOST / 4));
            drop(clients);
            assert_eq!(all.bytes(), 0);
        });
    }

    #[test]
    fn one_that_waits_and_goes_away_does_not_stop_those_behind_it() {
        run(async {
            let all = Arc::new(Departures::default());
            let mut clients: Vec<Departure> = (0..3).map(|_| all.join()).collect();
            assert!(may_begin(&mut clients[0], MOST / 2));
            assert!(!may_begin(&mut clients[1], MOST) && !may_begin(&mut clients[2], MOST / 2));
            clients.remove(1);
            assert!(may_begin(&mut clients[1], MOST / 2));
        });
    }

    #[test]
    fn who_stands_still_while_others_wait_must_go_and_who_goes_on_may_stay() {
        run(async {
            let all = Arc::new(Departures::default());
            let mut clients: Vec<Departure> = (0..3).map(|_| all.join()).collect();
            assert!(may_begin(&mut clients[0], MOST / 2) && may_begin(&mut clients[1], MOST / 2));
            sleep(3 * STALLED_MAX).await;
            assert!(!clients[0].is_over() && !clients[1].is_over(), "none waits");
            let waits = async {
                std::future::poll_fn(|context| {
                    // The socket takes what the second one has, little by little.
                    clients[1].moved(1024 * 1024);
                    let may = clients[2].may_begin(context, 0, MOST / 2);
                    if clients[0].is_over() {
                        clients[0].holds(0);
                    }
                    if may { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
                })
                .await;
            };
            tokio::time::timeout(2 * STALLED_MAX, waits).await.unwrap();
            assert!(!clients[1].is_over());
            assert_eq!(all.bytes(), MOST);
        });
    }
}
