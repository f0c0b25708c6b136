//! Large messages on their way in: what all connections together hold of messages whose end has not
//! come is bounded.
//!
//! A message is collected whole before the rules see it, so a hundred clients with a message of 100
//! MB each would take 10 GB. Beyond the bound only one of those connections is read, the one that
//! began first: it ends its message and gives its memory back, and so on. The others wait unread,
//! and their clients' windows fill up. So the bound may be passed by what one connection may hold
//! (two of the largest messages). When that one goes on too slowly while others wait it is
//! disconnected ([`pace`](super::pace)): it would keep them waiting for ever. If it is this side
//! that does not read it, since too many of its requests wait, it is read on to the end of its
//! message all the same ([`Arrival::holds_up_others`]).
//!
//! How long a message becomes is not known when it begins. Up to 4 MiB it is in a share of its own
//! ([`share`](super::share)), which is bounded in the same way; where it would become longer it
//! waits until the long ones have free memory. So a few clients with long messages stop each
//! other; to stop those with shorter ones takes as many as fill the share with beginnings.
//!
//! Not here: what one connection may hold (`amqp`); messages that arrived and are not durable.
//!
//! Invariants: `bytes` of a share is the sum over its `held`; a connection that may read again is
//! woken.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::time::{Instant, Sleep, sleep};
use towline_os::sync::Mutex;
use towline_types::limits;

use super::pace::{LOOK_INTERVAL, Pace};
use super::share::Share;

/// What a connection may hold without being counted: ordinary messages never wait.
const UNCOUNTED_BYTES: u64 = 256 * 1024;

/// Shared by all connections.
#[derive(Debug, Default)]
pub struct Arrivals {
    state: Mutex<ArrivalState>,
}

#[derive(Debug)]
struct ArrivalState {
    next_number: u64,
    medium: ArrivalShare,
    long: ArrivalShare,
}

#[derive(Debug)]
struct ArrivalShare {
    of: Share,
    bytes_max: u64,
    bytes: u64,
    /// By number: the message that came into it first comes first.
    held: BTreeMap<u64, ArrivalClaim>,
}

/// Where the claim of a connection is.
#[derive(Clone, Copy, Debug)]
struct ArrivalTicket {
    share: Share,
    number: u64,
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
    ticket: Option<ArrivalTicket>,
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
        let state = self.state.lock();
        state.medium.bytes + state.long.bytes
    }
}

impl Arrival {
    /// The connection holds so many bytes of unfinished messages now.
    pub fn holds(&mut self, bytes: u64) {
        match self.ticket {
            None if bytes <= UNCOUNTED_BYTES => {}
            None => {
                let claim = ArrivalClaim { bytes, ..ArrivalClaim::default() };
                self.ticket = Some(self.all.state.lock().enter(Share::Medium, claim));
            }
            Some(ticket) => {
                let mut state = self.all.state.lock();
                if bytes <= UNCOUNTED_BYTES {
                    state.leave(ticket);
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
        let Some(before) = self.ticket else {
            self.look = None;
            return true;
        };
        let mut state = self.all.state.lock();
        let ticket = state.lengthened(before);
        self.ticket = Some(ticket);
        let may = state.share(ticket.share).may_read(ticket.number);
        if let Some(held) = state.claim(ticket) {
            held.pace.pressed();
            let waker = Some(context.waker().clone());
            (held.task, held.waiting) = if may { (waker, None) } else { (held.task.take(), waker) };
        }
        if may {
            self.look = None;
            return true;
        }
        // The first one may not be read for another reason, and does not know that it is waited
        // for.
        state.waited_for(ticket).wake();
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK_INTERVAL)));
        while look.as_mut().poll(context).is_ready() {
            state.waited_for(ticket).press(Instant::now());
            look.as_mut().reset(Instant::now() + LOOK_INTERVAL);
        }
        false
    }

    /// Whether others wait until this connection is read, because its message has the memory: there
    /// is too little, and it began first. If not, it is woken when that may be so.
    pub fn holds_up_others(&mut self, context: &mut Context<'_>) -> bool {
        let Some(before) = self.ticket else { return false };
        let mut state = self.all.state.lock();
        let ticket = state.lengthened(before);
        self.ticket = Some(ticket);
        let holds_up = state.holds_up_others(ticket);
        if let Some(held) = state.claim(ticket) {
            held.waiting = (!holds_up).then(|| context.waker().clone());
        }
        holds_up
    }

    /// The connection is not read for another reason, which is not its client's.
    pub fn excused(&mut self) {
        let Some(ticket) = self.ticket else { return };
        if let Some(held) = self.all.state.lock().claim(ticket) {
            held.pace.excused();
        }
    }

    /// Whether it stood still for too long while others waited.
    pub fn is_over(&self) -> bool {
        let Some(ticket) = self.ticket else { return false };
        self.all.state.lock().claim(ticket).is_some_and(|held| held.is_over)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.all.state.lock().leave(ticket);
        }
    }
}

impl Default for ArrivalState {
    fn default() -> ArrivalState {
        ArrivalState {
            next_number: 0,
            medium: ArrivalShare::new(Share::Medium, limits::MEDIUM_MESSAGES_BYTES_MAX),
            long: ArrivalShare::new(Share::Long, limits::ARRIVING_BYTES_MAX),
        }
    }
}

impl ArrivalState {
    fn share(&mut self, share: Share) -> &mut ArrivalShare {
        match share {
            Share::Medium => &mut self.medium,
            Share::Long => &mut self.long,
        }
    }

    fn claim(&mut self, ticket: ArrivalTicket) -> Option<&mut ArrivalClaim> {
        self.share(ticket.share).held.get_mut(&ticket.number)
    }

    fn enter(&mut self, share: Share, claim: ArrivalClaim) -> ArrivalTicket {
        let number = self.next_number;
        self.next_number += 1;
        let state = self.share(share);
        state.bytes += claim.bytes;
        state.held.insert(number, claim);
        ArrivalTicket { share, number }
    }

    fn leave(&mut self, ticket: ArrivalTicket) -> Option<ArrivalClaim> {
        let claim = self.share(ticket.share).leave(ticket.number)?;
        self.wake(ticket.share);
        Some(claim)
    }

    fn change(&mut self, ticket: ArrivalTicket, bytes: u64) {
        let share = self.share(ticket.share);
        let Some(held) = share.held.get_mut(&ticket.number) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        held.pace.moved(bytes.saturating_sub(before));
        share.bytes = share.bytes - before + bytes;
        if bytes < before {
            self.wake(ticket.share);
        }
    }

    /// A message that has outgrown its share goes to the other one, if that has free memory.
    fn lengthened(&mut self, ticket: ArrivalTicket) -> ArrivalTicket {
        let has_outgrown = self.share(ticket.share).has_outgrown(ticket.number);
        if !has_outgrown || !self.long.has_room() {
            return ticket;
        }
        let Some(claim) = self.leave(ticket) else { return ticket };
        self.enter(Share::Long, claim)
    }

    /// The share that has the memory for which the owner of this ticket waits.
    fn waited_for(&mut self, ticket: ArrivalTicket) -> &mut ArrivalShare {
        match self.share(ticket.share).has_outgrown(ticket.number) {
            true => &mut self.long,
            false => self.share(ticket.share),
        }
    }

    fn holds_up_others(&mut self, ticket: ArrivalTicket) -> bool {
        let mut outgrown = self.medium.held.values().filter(|held| is_too_long(held));
        let for_long = ticket.share == Share::Long && outgrown.any(|held| held.waiting.is_some());
        let share = self.share(ticket.share);
        let mut others = share.held.iter().filter(|(number, _)| **number != ticket.number);
        !share.has_room()
            && share.may_read(ticket.number)
            && (for_long || others.any(|(_, held)| held.waiting.is_some()))
    }

    /// Something was given back.
    fn wake(&mut self, share: Share) {
        self.share(share).wake();
        if share == Share::Long && self.long.has_room() {
            let outgrown = self.medium.held.values_mut().filter(|held| is_too_long(held));
            outgrown.filter_map(|held| held.waiting.take()).for_each(Waker::wake);
        }
    }
}

impl ArrivalShare {
    fn new(of: Share, bytes_max: u64) -> ArrivalShare {
        ArrivalShare { of, bytes_max, bytes: 0, held: BTreeMap::new() }
    }

    fn has_room(&self) -> bool {
        self.bytes <= self.bytes_max
    }

    /// Whether this message is too long for this share, and waits for the other one.
    fn has_outgrown(&self, number: u64) -> bool {
        self.of == Share::Medium && self.held.get(&number).is_some_and(is_too_long)
    }

    fn may_read(&self, number: u64) -> bool {
        if self.has_outgrown(number) {
            return false;
        }
        let mut others = self.held.keys().copied().filter(|other| !self.has_outgrown(*other));
        self.has_room() || others.next() == Some(number)
    }

    fn leave(&mut self, number: u64) -> Option<ArrivalClaim> {
        let claim = self.held.remove(&number)?;
        assert!(self.bytes >= claim.bytes, "the sum is that of the claims");
        self.bytes -= claim.bytes;
        Some(claim)
    }

    /// Others wait: a connection that may be read must make progress. Of those that do not, the one
    /// that holds most is disconnected, one at a time.
    fn press(&mut self, now: Instant) {
        let patience = self.of.patience();
        let read = self.held.values_mut().filter(|held| held.waiting.is_none() && !held.is_over);
        let stalled = read.filter_map(|held| held.pace.stalled(now, patience).map(|_| held));
        if let Some(held) = stalled.max_by_key(|held| held.bytes) {
            held.is_over = true;
            held.task.as_ref().into_iter().for_each(Waker::wake_by_ref);
        }
    }

    fn wake(&mut self) {
        let count = if self.has_room() { usize::MAX } else { 1 };
        let of = self.of;
        let here = self.held.values_mut().filter(|held| of == Share::Long || !is_too_long(held));
        here.take(count).filter_map(|held| held.waiting.take()).for_each(Waker::wake);
    }
}

fn is_too_long(held: &ArrivalClaim) -> bool {
    Share::of(held.bytes) == Share::Long
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::pace::testing::run;
    use super::*;

    const MOST: u64 = limits::ARRIVING_BYTES_MAX;

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

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
                assert!(may_read(client) || all.bytes() > MOST);
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
        run(async {
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..4).map(|_| all.join()).collect();
            for client in &mut clients {
                client.holds(MOST / 4);
                assert!(may_read(client));
            }
            clients.iter_mut().for_each(|client| client.holds(MOST));
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
    fn who_is_not_read_for_another_reason_goes_on_as_soon_as_others_wait_for_its_memory() {
        run(async {
            const MEDIUM: u64 = limits::MEDIUM_MESSAGE_BYTES_MAX;
            let count = Arc::new(Count(AtomicUsize::new(0)));
            let waker = Waker::from(Arc::clone(&count));
            let mut context = Context::from_waker(&waker);
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..3).map(|_| all.join()).collect();
            clients[0].holds(MOST);
            assert!(may_read(&mut clients[0]));
            clients[0].holds(MOST + 1);
            assert!(!clients[0].holds_up_others(&mut context), "none of the others waits");
            for waits in [1, 2] {
                clients[waits].holds(MOST);
                assert!(!may_read(&mut clients[waits]));
                assert_eq!(count.0.load(Ordering::SeqCst), 1, "it is woken once");
                assert!(clients[0].holds_up_others(&mut context));
            }
            assert!(!clients[1].holds_up_others(&mut context), "it is no long one yet");
            clients[0].holds(0);
            assert!(!clients[0].holds_up_others(&mut context), "it has ended its message");
            assert!(may_read(&mut clients[1]) && !clients[1].holds_up_others(&mut context));
            // The same among shorter ones, where the first one is not read before others come.
            let fits = limits::MEDIUM_MESSAGES_BYTES_MAX / MEDIUM;
            let mut others: Vec<Arrival> = (0..=fits).map(|_| all.join()).collect();
            others.iter_mut().for_each(|client| client.holds(MEDIUM));
            assert!(!others[0].holds_up_others(&mut context));
            assert!(!may_read(&mut others[1]) && others[0].holds_up_others(&mut context));
            assert!(!others[2].holds_up_others(&mut context), "it is not the first one");
        });
    }

    #[test]
    fn who_stands_still_while_others_wait_must_go_and_who_goes_on_may_stay() {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);
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
            tokio::time::timeout(4 * PATIENCE, waits).await.unwrap_or(false)
        }
        run(async {
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..3).map(|_| all.join()).collect();
            clients.iter_mut().for_each(|client| client.holds(MOST));
            assert!(may_read(&mut clients[0]) && !may_read(&mut clients[1]));
            sleep(4 * PATIENCE).await;
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
    fn clients_with_long_messages_keep_nobody_from_shorter_ones() {
        run(async {
            const MEDIUM: u64 = limits::MEDIUM_MESSAGE_BYTES_MAX;
            let all = Arc::new(Arrivals::default());
            let mut clients: Vec<Arrival> = (0..4).map(|_| all.join()).collect();
            clients.iter_mut().take(2).for_each(|client| client.holds(MOST));
            assert!(may_read(&mut clients[0]));
            clients[0].holds(MOST + 1);
            assert!(!may_read(&mut clients[1]), "a long one");
            clients[1].holds(MEDIUM);
            assert!(all.bytes() > limits::ARRIVING_BYTES_MAX);
            clients[2].holds(MEDIUM);
            assert!(may_read(&mut clients[1]) && may_read(&mut clients[2]), "no long ones yet");
            clients[1].holds(MEDIUM + 1);
            assert!(!may_read(&mut clients[1]), "there is no room for it among the long ones");
            let fits = limits::MEDIUM_MESSAGES_BYTES_MAX / MEDIUM;
            let mut others: Vec<Arrival> = (2..fits).map(|_| all.join()).collect();
            others.iter_mut().for_each(|client| client.holds(MEDIUM));
            clients[3].holds(UNCOUNTED_BYTES + 1);
            assert!(may_read(&mut clients[2]), "the first of those that are no long ones");
            assert!(!may_read(&mut clients[3]), "their share is bounded as well");
            clients[0].holds(MOST / 2);
            assert!(may_read(&mut clients[1]), "it goes among the long ones");
            assert!(may_read(&mut clients[3]), "and has left the share");
            clients.clear();
            others.clear();
            assert_eq!(all.bytes(), 0);
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
