//! Large messages on their way out: what all connections together hold of them is bounded.
//!
//! A body is read whole before it is sent, so a hundred clients that ask for a message of 100 MB
//! and do not read their sockets would take 10 GB. Beyond the bound a connection does not begin
//! another large body before others have sent theirs; those that wait do so in the order in which
//! they came. One that holds some and goes on too slowly meanwhile is disconnected
//! ([`pace`](super::pace)). Bodies up to 4 MiB have a share of their own
//! ([`share`](super::share)): they do not wait for readers of longer ones.
//!
//! Not here: ordinary bodies, of which a connection holds little (`OUTPUT_BYTES_HIGH`); bodies that
//! are in memory anyway.
//!
//! Invariants: `bytes` of a share is the sum over its `held`, and passes the bound only while one
//! connection holds all of it; the first that waits is woken when memory was given back.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::{Instant, Sleep, sleep};
use towline_core::Body;
use towline_os::sync::Mutex;
use towline_types::limits;

use super::pace::{LOOK_INTERVAL, Pace};
use super::share::Share;

/// What a connection may hold without being counted: ordinary messages never wait.
const UNCOUNTED_BYTES: u64 = limits::BODY_CHUNK_BYTES as u64;

/// Shared by all connections.
#[derive(Debug, Default)]
pub struct Departures {
    state: Mutex<DepartureState>,
}

#[derive(Debug)]
struct DepartureState {
    next_number: u64,
    medium: DepartureShare,
    long: DepartureShare,
}

#[derive(Debug)]
struct DepartureShare {
    of: Share,
    bytes_max: u64,
    bytes: u64,
    held: BTreeMap<u64, DepartureClaim>,
    /// By number: the connection that came first comes first.
    waiting: BTreeMap<u64, Waker>,
}

/// Where a connection stands, among those that hold or those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DepartureTicket {
    share: Share,
    number: u64,
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
    ticket: Option<DepartureTicket>,
    /// Of what it waits for.
    turn: Option<DepartureTicket>,
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
        let state = self.state.lock();
        state.medium.bytes + state.long.bytes
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
        let of = self.ticket.map_or(Share::Medium, |ticket| ticket.share);
        let of = if of == Share::Long { of } else { Share::of(own + bytes) };
        if self.turn.is_some_and(|turn| turn.share != of) {
            self.stop_waiting(&mut state);
        }
        let place = self.turn.unwrap_or_else(|| state.ticket(of));
        let share = state.share(of);
        let ticket = self.ticket.filter(|ticket| ticket.share == of);
        if share.is_first(place.number) && share.has_room(ticket, own + bytes) {
            let ticket = ticket.unwrap_or(place);
            share.change(ticket.number, own + bytes, context.waker());
            if let Some(before) = self.ticket.replace(ticket).filter(|before| *before != ticket) {
                state.forget(before);
            }
            self.stop_waiting(&mut state);
            return true;
        }
        share.waiting.insert(place.number, context.waker().clone());
        self.turn = Some(place);
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK_INTERVAL)));
        while look.as_mut().poll(context).is_ready() {
            share.press(Instant::now());
            look.as_mut().reset(Instant::now() + LOOK_INTERVAL);
        }
        false
    }

    /// It does not want to begin another body any more.
    fn stop_waiting(&mut self, state: &mut DepartureState) {
        self.look = None;
        if let Some(turn) = self.turn.take() {
            let share = state.share(turn.share);
            share.waiting.remove(&turn.number);
            share.wake();
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
            let share = state.share(ticket.share);
            let Some(held) = share.held.get_mut(&ticket.number) else { return };
            let before = std::mem::replace(&mut held.bytes, bytes);
            share.bytes = share.bytes - before + bytes;
            if bytes < before {
                share.wake();
            }
        } else {
            state.forget(ticket);
            self.ticket = None;
        }
    }

    /// So many bytes went to the socket.
    pub fn moved(&self, bytes: u64) {
        let Some(ticket) = self.ticket else { return };
        if let Some(held) = self.all.state.lock().claim(ticket) {
            held.pace.moved(bytes);
        }
    }

    /// Whether it stood still for too long while others waited; the connection is woken when it
    /// has.
    pub fn is_over(&self) -> bool {
        let Some(ticket) = self.ticket else { return false };
        self.all.state.lock().claim(ticket).is_some_and(|held| held.is_over)
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

impl Default for DepartureState {
    fn default() -> DepartureState {
        DepartureState {
            next_number: 0,
            medium: DepartureShare::new(Share::Medium, limits::MEDIUM_MESSAGES_BYTES_MAX),
            long: DepartureShare::new(Share::Long, limits::DEPARTING_BYTES_MAX),
        }
    }
}

impl DepartureState {
    fn ticket(&mut self, share: Share) -> DepartureTicket {
        self.next_number += 1;
        DepartureTicket { share, number: self.next_number }
    }

    fn share(&mut self, share: Share) -> &mut DepartureShare {
        match share {
            Share::Medium => &mut self.medium,
            Share::Long => &mut self.long,
        }
    }

    fn claim(&mut self, ticket: DepartureTicket) -> Option<&mut DepartureClaim> {
        self.share(ticket.share).held.get_mut(&ticket.number)
    }

    fn forget(&mut self, ticket: DepartureTicket) {
        self.share(ticket.share).forget(ticket.number);
    }
}

impl DepartureShare {
    fn new(of: Share, bytes_max: u64) -> DepartureShare {
        let (held, waiting) = (BTreeMap::new(), BTreeMap::new());
        DepartureShare { of, bytes_max, bytes: 0, held, waiting }
    }

    /// Whether no other connection has waited for longer.
    fn is_first(&self, number: u64) -> bool {
        self.waiting.first_key_value().is_none_or(|(first, _)| *first >= number)
    }

    /// Whether the owner of `ticket` may hold so many bytes; one is served in any case.
    fn has_room(&self, ticket: Option<DepartureTicket>, bytes: u64) -> bool {
        let own = ticket.and_then(|ticket| self.held.get(&ticket.number));
        let others = self.bytes - own.map_or(0, |held| held.bytes);
        others == 0 || others.saturating_add(bytes) <= self.bytes_max
    }

    fn change(&mut self, number: u64, bytes: u64, task: &Waker) {
        let new = || DepartureClaim {
            bytes: 0,
            pace: Pace::default(),
            task: task.clone(),
            is_over: false,
        };
        let held = self.held.entry(number).or_insert_with(new);
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.bytes = self.bytes - before + bytes;
    }

    fn forget(&mut self, number: u64) {
        if let Some(held) = self.held.remove(&number) {
            self.bytes -= held.bytes;
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.wake_by_ref();
        }
    }

    /// Others wait: the connection that is behind most is disconnected, one at a time.
    fn press(&mut self, now: Instant) {
        let patience = self.of.patience();
        let stalled = self.held.values_mut().filter(|held| !held.is_over);
        let longest = stalled
            .filter_map(|held| held.pace.stalled(now, patience).map(|still| (still, held)))
            .max_by_key(|(still, _)| *still);
        if let Some((_, held)) = longest {
            held.is_over = true;
            held.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pace::testing::run;
    use super::*;

    const MOST: u64 = limits::DEPARTING_BYTES_MAX;
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

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
    fn slow_readers_of_long_messages_keep_nobody_from_shorter_ones() {
        run(async {
            let all = Arc::new(Departures::default());
            let mut clients: Vec<Departure> = (0..4).map(|_| all.join()).collect();
            assert!(may_begin(&mut clients[0], MOST) && !may_begin(&mut clients[1], MOST));
            let medium = limits::MEDIUM_MESSAGE_BYTES_MAX;
            assert!(may_begin(&mut clients[2], medium), "it waits for no long one");
            let fits = limits::MEDIUM_MESSAGES_BYTES_MAX / medium;
            let mut others: Vec<Departure> = (1..fits).map(|_| all.join()).collect();
            assert!(others.iter_mut().all(|client| may_begin(client, medium)));
            assert!(!may_begin(&mut clients[3], medium), "that is bounded as well");
            let begins = |departure: &mut Departure, own, bytes| {
                departure.may_begin(&mut Context::from_waker(Waker::noop()), own, bytes)
            };
            assert!(!begins(&mut clients[2], medium, medium), "it has become a long one");
            clients[0].holds(0);
            assert!(begins(&mut clients[1], 0, MOST / 2));
            assert!(begins(&mut clients[2], medium, medium));
            assert!(may_begin(&mut clients[3], medium), "that has left the share");
            clients.clear();
            others.clear();
            assert_eq!(all.bytes(), 0);
        });
    }

    #[test]
    fn who_goes_on_with_a_few_kilobytes_a_second_must_go_as_well() {
        run(async {
            let all = Arc::new(Departures::default());
            let mut clients: Vec<Departure> = (0..2).map(|_| all.join()).collect();
            assert!(may_begin(&mut clients[0], MOST));
            let waits = std::future::poll_fn(|context| {
                clients[0].moved(100_000);
                clients[1].may_begin(context, 0, MOST);
                match clients[0].is_over() {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            });
            tokio::time::timeout(2 * PATIENCE, waits).await.unwrap();
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
            sleep(3 * PATIENCE).await;
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
            tokio::time::timeout(2 * PATIENCE, waits).await.unwrap();
            assert!(!clients[1].is_over());
            assert_eq!(all.bytes(), MOST);
        });
    }
}
