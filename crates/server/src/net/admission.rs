//! How many connections are admitted: bounds that hold before a client has logged in.
//!
//! A connection that has not logged in is *pending*. How many of them there are is bounded, in all
//! and for each address; each login allows its address one more, so that a balancer or a NAT behind
//! which a thousand clients work gets as many. What comes beyond the bounds is not refused but
//! *waits*, in a queue for each address; addresses take turns. While a connection waits, pending
//! connections that have been silent for a while give way, the oldest of the address that holds
//! most first: connections that say nothing cannot shut out those that do.
//!
//! Not here: the sockets; what a connection does when it gives way
//! (`ConnectionSlot::poll_gives_way` wakes its task).
//!
//! Invariants: pending and connected ones never pass their bounds; never more than `limits` say
//! wait; an address with a full queue keeps no other client from waiting.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use towline_config::{LimitsConfig, client_network};

/// Connections at once on the local socket. They have a count of their own: when clients have taken
/// every slot, the administrator must still get in.
pub(crate) const LOCAL_CONNECTIONS_MAX: usize = 64;
/// Connections that may wait, for each one that may be pending.
const WAITING_PER_PENDING: usize = 8;
/// How long a client that says nothing keeps others of its address waiting.
const SILENCE_MAX: Duration = Duration::from_millis(500);
/// Between two checks of a waiting connection whether a pending one gives way.
const PRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Addresses with logins that are remembered.
const EARNED_MAX: usize = 4_096;

/// Counts connections; shared by all listeners.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: LimitsConfig,
    /// Connections that there are file descriptors for.
    descriptors_max: usize,
    state: Mutex<AdmissionState>,
}

#[derive(Debug, Default)]
struct AdmissionState {
    local: usize,
    connections: usize,
    by_address: HashMap<IpAddr, usize>,
    /// By their number: the oldest comes first.
    pending: HashMap<IpAddr, VecDeque<Pending>>,
    pending_count: usize,
    next_number: u64,
    /// Logins of an address, which raise its bound.
    earned: HashMap<IpAddr, usize>,
    /// Never an empty queue.
    waiting: HashMap<IpAddr, VecDeque<oneshot::Sender<Ticket>>>,
    /// The addresses of `waiting`, the one whose turn it is first.
    turns: VecDeque<IpAddr>,
    waiting_count: usize,
}

#[derive(Debug)]
struct Pending {
    number: u64,
    /// Since when it is listened to; `None`: it waits for its turn.
    since: Option<Instant>,
    /// The client has sent its name.
    spoke: bool,
    /// `None`: its task was notified already.
    give_way: Option<oneshot::Sender<()>>,
}

/// What a pending connection holds.
#[derive(Debug)]
struct Ticket {
    number: u64,
    gives_way: oneshot::Receiver<()>,
}

/// The slot of one connection; freed when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    admission: Arc<Admission>,
    /// `None` on the local socket.
    address: Option<IpAddr>,
    /// Until the client has logged in.
    pending: Option<Ticket>,
}

/// What there is for a connection that comes.
#[derive(Debug)]
pub(crate) enum AdmissionAnswer {
    /// A slot.
    Now(ConnectionSlot),
    /// A position in the queue.
    Later(Waiting),
}

/// A connection that waits for its slot; gives up its turn when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    admission: Arc<Admission>,
    address: IpAddr,
    granted: oneshot::Receiver<Ticket>,
}

impl Admission {
    /// `descriptors_max`: so many connections there are file descriptors for.
    pub(crate) fn new(limits: LimitsConfig, descriptors_max: usize) -> Arc<Admission> {
        Arc::new(Admission { limits, descriptors_max, state: Mutex::default() })
    }

    /// A slot for a connection from `address` (`None`: the local socket), now or later, or why
    /// there is none.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
    ) -> Result<AdmissionAnswer, &'static str> {
        let mut state = self.state.lock();
        let admission = Arc::clone(self);
        let Some(address) = address else {
            if state.local >= LOCAL_CONNECTIONS_MAX {
                return Err("the bound of the local socket");
            }
            state.local += 1;
            return Ok(AdmissionAnswer::Now(ConnectionSlot {
                admission,
                address: None,
                pending: None,
            }));
        };
        let address = address.to_canonical();
        let sockets = state.connections + state.waiting_count;
        if sockets >= self.limits.connections_max {
            return Err("connections_max");
        }
        if sockets >= self.descriptors_max {
            return Err("the bound of file descriptors for clients");
        }
        let network = client_network(address);
        let own = state.waiting.get(&network).map_or(0, VecDeque::len);
        let count = own + state.by_address.get(&address).copied().unwrap_or_default();
        // Every local client has the same address: the bound would stop the wrong ones.
        if !address.is_loopback() && count >= self.limits.connections_per_address_max {
            return Err("connections_per_address_max");
        }
        if own == 0 && state.has_room(&self.limits, network) {
            let pending = Some(state.enter(network));
            state.connect(address);
            return Ok(AdmissionAnswer::Now(ConnectionSlot {
                admission,
                address: Some(address),
                pending,
            }));
        }
        let most = self.limits.logins_pending_max.saturating_mul(WAITING_PER_PENDING);
        // One address takes half of the queue at most.
        if state.waiting_count >= most || own >= most.div_ceil(2) {
            return Err("the bound of connections that wait to log in");
        }
        let granted = state.wait(network);
        state.press(&self.limits, network);
        Ok(AdmissionAnswer::Later(Waiting { admission, address, granted }))
    }

    /// Connections now, local ones too.
    pub(crate) fn connections(&self) -> usize {
        let state = self.state.lock();
        state.connections + state.local
    }

    /// Connections that wait for a slot.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting_count
    }

    /// Gives the free slots to connections that wait.
    fn grant(&self, state: &mut AdmissionState) {
        while let Some(address) = state.next_turn(&self.limits) {
            let Some(waits) = state.take_waiting(address) else { continue };
            let ticket = state.enter(address);
            let number = ticket.number;
            if waits.send(ticket).is_err() {
                // It was given up in this moment.
                state.leave_pending(address, number);
            }
        }
    }
}

impl AdmissionState {
    /// Pending connections that an address may have now.
    fn allowed(&self, limits: &LimitsConfig, address: IpAddr) -> usize {
        let all = limits.logins_pending_max;
        if address.is_loopback() {
            return all;
        }
        let base = limits.logins_pending_per_address_max;
        let earned = self.earned.get(&address).copied().unwrap_or_default();
        // Others must find some left.
        base.saturating_add(earned).min(base.max(all / 2)).min(all)
    }

    fn has_room(&self, limits: &LimitsConfig, address: IpAddr) -> bool {
        let own = self.pending.get(&address).map_or(0, VecDeque::len);
        self.pending_count < limits.logins_pending_max && own < self.allowed(limits, address)
    }

    fn enter(&mut self, address: IpAddr) -> Ticket {
        let number = self.next_number;
        self.next_number += 1;
        let (give_way, gives_way) = oneshot::channel();
        let (since, give_way) = (Some(Instant::now()), Some(give_way));
        let pending = Pending { number, since, spoke: false, give_way };
        self.pending.entry(address).or_default().push_back(pending);
        self.pending_count += 1;
        Ticket { number, gives_way }
    }

    fn connect(&mut self, address: IpAddr) {
        self.connections += 1;
        *self.by_address.entry(address).or_default() += 1;
    }

    fn leave_pending(&mut self, address: IpAddr, number: u64) {
        let Some(own) = self.pending.get_mut(&address) else { return };
        let Some(at) = own.iter().position(|one| one.number == number) else { return };
        own.remove(at);
        self.pending_count -= 1;
        if own.is_empty() {
            self.pending.remove(&address);
        }
    }

    fn leave(&mut self, address: IpAddr) {
        self.connections -= 1;
        let Some(count) = self.by_address.get_mut(&address) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_address.remove(&address);
        }
    }

    fn wait(&mut self, address: IpAddr) -> oneshot::Receiver<Ticket> {
        let (grant, granted) = oneshot::channel();
        let own = self.waiting.entry(address).or_default();
        if own.is_empty() {
            self.turns.push_back(address);
        }
        own.push_back(grant);
        self.waiting_count += 1;
        granted
    }

    /// The next address of which a waiting connection can have a slot.
    fn next_turn(&mut self, limits: &LimitsConfig) -> Option<IpAddr> {
        let at = self.turns.iter().position(|address| self.has_room(limits, *address))?;
        self.turns.get(at).copied()
    }

    /// Takes the first one of an address out of the queue; the others of the address go behind
    /// those of other addresses.
    fn take_waiting(&mut self, address: IpAddr) -> Option<oneshot::Sender<Ticket>> {
        let own = self.waiting.get_mut(&address)?;
        let first = own.pop_front();
        self.waiting_count -= usize::from(first.is_some());
        self.turns.retain(|other| *other != address);
        if own.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.turns.push_back(address);
        }
        first
    }

    /// Has pending connections give way to those of `address` that wait: its own, if it is at its
    /// bound, and else those of the address that has most.
    fn press(&mut self, limits: &LimitsConfig, address: IpAddr) {
        let wanted = self.waiting.get(&address).map_or(0, VecDeque::len);
        let own = self.pending.get(&address).map_or(0, VecDeque::len);
        let from = if own >= self.allowed(limits, address) {
            Some(address)
        } else {
            self.pending.iter().max_by_key(|(_, own)| own.len()).map(|(address, _)| *address)
        };
        let Some(pending) = from.and_then(|from| self.pending.get_mut(&from)) else { return };
        let now = Instant::now();
        let silent = SILENCE_MAX.min(limits.login_timeout() / 4);
        // One that waits for its turn is silent only for us.
        let age = |one: &Pending| Some(now.saturating_duration_since(one.since?));
        // Each of thousands that wait asks in its turn, and most often the oldest has not been here
        // for long either.
        if pending.iter().find_map(age).is_none_or(|oldest| oldest < silent) {
            return;
        }
        let told = pending.iter().filter(|one| one.give_way.is_none()).count();
        let due = pending.iter_mut().filter(|one| {
            // A login on its way may wait for its password to be compared.
            let patience = if one.spoke { limits.login_timeout() / 2 } else { silent };
            one.give_way.is_some() && age(one).is_some_and(|age| age >= patience)
        });
        for one in due.take(wanted.saturating_sub(told)) {
            if let Some(give_way) = one.give_way.take() {
                // Its task may be at its end anyway.
                give_way.send(()).ok();
            }
        }
    }

    /// A client of this address logged in.
    fn earn(&mut self, address: IpAddr) {
        if !self.earned.contains_key(&address) && self.earned.len() >= EARNED_MAX {
            // The one that earned least is that which misses it least.
            let least = self.earned.iter().min_by_key(|(_, count)| **count).map(|(one, _)| *one);
            if let Some(least) = least {
                self.earned.remove(&least);
            }
        }
        *self.earned.entry(address).or_default() += 1;
    }
}

impl Waiting {
    /// Waits for a slot. Time-outs are the matter of the client.
    pub(crate) async fn place(mut self) -> Option<ConnectionSlot> {
        loop {
            tokio::select! {
                granted = &mut self.granted => {
                    let pending = Some(granted.ok()?);
                    let (admission, address) = (Arc::clone(&self.admission), self.address);
                    admission.state.lock().connect(address);
                    return Some(ConnectionSlot { admission, address: Some(address), pending });
                }
                () = sleep(PRESS_INTERVAL) => {
                    let mut state = self.admission.state.lock();
                    state.press(&self.admission.limits, client_network(self.address));
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (admission, network) = (Arc::clone(&self.admission), client_network(self.address));
        let mut state = admission.state.lock();
        self.granted.close();
        if let Ok(ticket) = self.granted.try_recv() {
            // A slot was granted in the moment in which the wait was given up.
            state.leave_pending(network, ticket.number);
            admission.grant(&mut state);
            return;
        }
        let Some(own) = state.waiting.get_mut(&network) else { return };
        let before = own.len();
        own.retain(|grant| !grant.is_closed());
        let (gone, empty) = (before - own.len(), own.is_empty());
        state.waiting_count -= gone;
        if empty {
            state.waiting.remove(&network);
            state.turns.retain(|other| *other != network);
        }
    }
}

impl ConnectionSlot {
    /// The client has logged in.
    pub(crate) fn logged_in(&mut self) {
        self.not_pending(true);
    }

    /// The client logs in elsewhere: another instance watches that.
    pub(crate) fn passed_on(&mut self) {
        self.not_pending(false);
    }

    fn not_pending(&mut self, earns: bool) {
        let (Some(address), Some(ticket)) = (self.address, self.pending.take()) else { return };
        let mut state = self.admission.state.lock();
        state.leave_pending(client_network(address), ticket.number);
        if earns {
            state.earn(client_network(address));
        }
        self.admission.grant(&mut state);
    }

    /// It is of the local socket, here or of the instance that relays it.
    pub(super) fn is_local(&self) -> bool {
        self.address.is_none()
    }

    /// The client is not listened to before it has its turn: it is not to pass for silent.
    pub(super) fn waits_for_turn(&mut self) {
        self.note(|pending| pending.since = None);
    }

    /// It is listened to from now on.
    pub(super) fn has_turn(&mut self) {
        self.note(|pending| pending.since = Some(Instant::now()));
    }

    /// The client has sent its name.
    pub(crate) fn spoke(&mut self) {
        self.note(|pending| pending.spoke = true);
    }

    fn note(&mut self, note: impl FnOnce(&mut Pending)) {
        let (Some(address), Some(ticket)) = (self.address, &self.pending) else { return };
        let mut state = self.admission.state.lock();
        let mut own = state.pending.get_mut(&client_network(address)).into_iter().flatten();
        if let Some(one) = own.find(|one| one.number == ticket.number) {
            note(one);
        }
    }

    /// Whether the connection gives way to others that wait; if not, its task is woken when it
    /// does.
    pub(crate) fn poll_gives_way(&mut self, context: &mut Context<'_>) -> bool {
        let Some(ticket) = &mut self.pending else { return false };
        // An error would be that the sender is gone, which lives as long as the ticket.
        matches!(Pin::new(&mut ticket.gives_way).poll(context), Poll::Ready(Ok(())))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let Some(address) = self.address else {
            state.local -= 1;
            return;
        };
        if let Some(ticket) = self.pending.take() {
            state.leave_pending(client_network(address), ticket.number);
        }
        state.leave(address);
        self.admission.grant(&mut state);
    }
}
