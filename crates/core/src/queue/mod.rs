//! One local queue: its messages in ten lanes, its counts, and who waits at it.
//!
//! Keeps counts, lanes and key index in step with each other. Decides nothing: which message goes
//! where, and why, is said by `decide` and `dispatch`. Knows consumers by id only.
//!
//! Invariants (`audit`): counts equal what the lanes hold; the index covers what is available;
//! `reserved >= in_flight`; an entry has `extra` set exactly when `extras` has it.

mod entry;
mod index;
mod lane;
#[cfg(test)]
mod tests;

use towline_types::{BodyLocation, Time};

use crate::fact::Body;
use crate::hash::FastMap;
use crate::message::{DeadLetter, Message};
use crate::object::{DeliverySequence, LocalQueue};
use crate::request::FilterKey;
use crate::{ConnectionId, ConsumerId, QueueId};

pub(crate) use entry::{Entry, Place, State};
use index::Hashes;
pub(crate) use index::{KeyIndex, Rank, SEQUENCE_END};
pub(crate) use lane::{Lane, Position};
pub(crate) use waiting::Waiting;

mod waiting;

/// Lanes: one for each priority.
pub(crate) const LANES: usize = 10;

/// Which message: its lane and place. Stays true while the message is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
}

/// What few messages have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) dead_letter: Option<Box<DeadLetter>>,
    pub(crate) chunks: Option<Box<[BodyLocation]>>,
}

/// Counts since the queue was defined; they survive a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages put (moves to this queue included).
    pub puts: u64,
    /// Messages got.
    pub gets: u64,
    /// Deliveries backed out, of persistent and (until a restart) of other messages.
    pub backouts: u64,
    /// Messages that expired.
    pub expired: u64,
    /// Messages that the queue manager moved away.
    pub moved: u64,
    /// Messages cleared by an operator.
    pub cleared: u64,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Its definition as decided: what counts for requests from now on.
    pub(crate) definition: LocalQueue,
    /// Its deletion is decided: nothing enters, and it goes when its last message is settled.
    pub(crate) deleting: bool,
    /// `dispatch` will look at it.
    pub(crate) changed: bool,
    /// The connection that a TEMPDYN queue belongs to.
    pub(crate) owner: Option<ConnectionId>,
    lanes: [Lane; LANES],
    /// Which lanes hold a message.
    occupied: u16,
    index: Option<KeyIndex>,
    extras: FastMap<u64, Extra>,
    /// Messages that it holds, in any state.
    pub(crate) live: u64,
    /// Of these: available.
    pub(crate) available: u64,
    /// Of these: with an expiry time.
    pub(crate) expiring: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Puts decided or staged in a unit of work, not applied.
    pub(crate) reserved: u64,
    /// Of these: decided, on their way.
    pub(crate) in_flight: u64,
    /// Gets staged in open units of work.
    pub(crate) uncommitted_gets: u64,
    /// The highest place that any message of it ever had.
    pub(crate) highest: u64,
    pub(crate) open_output: u32,
    pub(crate) open_input: u32,
    pub(crate) open_browse: u32,
    /// One consumer has it for itself.
    pub(crate) exclusive: bool,
    pub(crate) totals: Totals,
    pub(crate) last_put_at: Option<Time>,
    pub(crate) last_get_at: Option<Time>,
    pub(crate) waiting: Waiting,
}

impl Queue {
    pub(crate) fn new(definition: LocalQueue) -> Queue {
        Queue {
            definition,
            deleting: false,
            changed: false,
            owner: None,
            lanes: Default::default(),
            occupied: 0,
            index: None,
            extras: FastMap::default(),
            live: 0,
            available: 0,
            expiring: 0,
            bytes: 0,
            reserved: 0,
            in_flight: 0,
            uncommitted_gets: 0,
            highest: 0,
            open_output: 0,
            open_input: 0,
            open_browse: 0,
            exclusive: false,
            totals: Totals::default(),
            last_put_at: None,
            last_get_at: None,
            waiting: Waiting::default(),
        }
    }

    pub(crate) fn id(&self) -> QueueId {
        self.definition.id
    }

    /// Places that MAXDEPTH counts: messages held, and puts on their way or uncommitted.
    pub(crate) fn depth(&self) -> u64 {
        self.live + self.reserved
    }

    /// A put that was decided here is applied; replicas and replay decided nothing.
    pub(crate) fn arrived(&mut self) {
        if self.in_flight > 0 {
            self.in_flight -= 1;
            self.reserved -= 1;
        }
    }

    /// The lane for a message of this priority that arrives now.
    pub(crate) fn lane_for(&self, priority: u8) -> u8 {
        match self.definition.attributes.sequence {
            DeliverySequence::Priority => priority.min(9),
            DeliverySequence::Fifo => self.definition.attributes.default_priority.min(9),
        }
    }

    /// Adds a message, available.
    pub(crate) fn insert(&mut self, sequence: u64, message: Message) {
        let Message { header, body, backout_count, dead_letter } = message;
        let bytes = body_bytes(&body);
        let (place, chunks) = match body {
            Body::Memory(bytes) => (Place::Memory(bytes), None),
            Body::Log(location) => (Place::Log(location), None),
            Body::Chunks(chunks) => (Place::Log(BodyLocation::default()), Some(chunks)),
            Body::Incoming(_) | Body::Announced { .. } => {
                unreachable!("the body of an applied message is in memory or in the log")
            }
        };
        let extra = dead_letter.is_some() || chunks.is_some();
        if extra {
            self.extras.insert(sequence, Extra { dead_letter, chunks });
        }
        let entry = Entry {
            sequence,
            expires_at: header.expires_at.unwrap_or(Time::NEVER),
            put_at: header.put_at,
            correlation_hash: header.correlation_hash,
            message_id_hash: header.message_id_hash,
            place,
            backout_count,
            state: State::Available,
            priority: header.priority,
            persistent: header.persistent,
            extra,
        };
        self.highest = self.highest.max(sequence);
        self.live += 1;
        self.available += 1;
        self.expiring += u64::from(entry.expires());
        self.bytes += bytes;
        let lane = header.order.min(9);
        self.became_available(Spot { lane, sequence }, entry.hashes());
        self.occupied |= 1 << lane;
        self.lanes[usize::from(lane)].insert(entry);
    }

    fn became_available(&mut self, spot: Spot, hashes: Hashes) {
        if let Some(index) = &mut self.index {
            index.add(Rank::new(spot.lane, spot.sequence), hashes);
        }
        self.waiting.message_available(spot, hashes);
    }

    /// Where the message of this place is.
    pub(crate) fn spot_of(&self, sequence: u64) -> Option<Spot> {
        self.locate(sequence).map(|(lane, _)| Spot { lane, sequence })
    }

    /// Lanes are few and mostly empty: each is asked.
    fn locate(&self, sequence: u64) -> Option<(u8, Position)> {
        let mut rest = if sequence > self.highest { 0 } else { self.occupied };
        while rest != 0 {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            let lane = u8::try_from(lane).unwrap_or(0);
            if let Some(at) = self.lanes[usize::from(lane)].find(sequence) {
                return Some((lane, at));
            }
        }
        None
    }

    fn position(&self, spot: Spot) -> Option<Position> {
        self.lanes[usize::from(spot.lane)].find(spot.sequence)
    }

    /// The message there.
    pub(crate) fn entry(&self, spot: Spot) -> Option<&Entry> {
        self.position(spot).map(|at| self.lanes[usize::from(spot.lane)].entry(at))
    }

    /// The message there; its state must not be touched.
    pub(crate) fn entry_mut(&mut self, spot: Spot) -> Option<&mut Entry> {
        self.position(spot).map(|at| self.lanes[usize::from(spot.lane)].entry_mut(at))
    }

    /// Changes the state of a message that is in the queue.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn set_state(&mut self, spot: Spot, state: State) {
        let at = self.position(spot);
        assert!(at.is_some(), "the state of a message that is not there");
        let Some(at) = at else { return };
        let lane = &mut self.lanes[usize::from(spot.lane)];
        let (old, hashes) = (lane.entry(at).state, lane.entry(at).hashes());
        lane.set_state(at, state);
        if (old == State::Available) == (state == State::Available) {
            return;
        }
        if old == State::Available {
            self.available -= 1;
            if let Some(index) = &mut self.index {
                index.remove(Rank::new(spot.lane, spot.sequence), hashes);
            }
        } else {
            self.available += 1;
            self.became_available(spot, hashes);
        }
    }

    /// Takes a message out.
    ///
    /// # Panics
    /// When it is not there.
    pub(crate) fn remove(&mut self, spot: Spot) -> Removed {
        let Some(at) = self.position(spot) else {
            unreachable!("the end of a message that is not there")
        };
        self.remove_at(spot.lane, at)
    }

    /// Takes the message of this place out, if it is there.
    pub(crate) fn take(&mut self, sequence: u64) -> Option<Removed> {
        let (lane, at) = self.locate(sequence)?;
        Some(self.remove_at(lane, at))
    }

    fn remove_at(&mut self, number: u8, at: Position) -> Removed {
        let lane = &mut self.lanes[usize::from(number)];
        let entry = lane.remove(at);
        if lane.live() == 0 {
            self.occupied &= !(1 << number);
        }
        if entry.state == State::Available {
            self.available -= 1;
            if let Some(index) = &mut self.index {
                index.remove(Rank::new(number, entry.sequence), entry.hashes());
            }
        }
        let extra = if entry.extra { self.extras.remove(&entry.sequence) } else { None };
        let removed = Removed { entry, extra: extra.unwrap_or_default() };
        self.live -= 1;
        self.expiring -= u64::from(removed.entry.expires());
        self.bytes -= removed.bytes();
        removed
    }

    /// Gives a message another place for its body (it was carried forward); yields the old one.
    pub(crate) fn relocate(&mut self, spot: Spot, body: Body) -> Option<Body> {
        let old = self.body(spot)?;
        assert_eq!(body_bytes(&old), body_bytes(&body), "a body keeps its length");
        let chunks = match body {
            Body::Chunks(chunks) => Some(chunks),
            Body::Log(location) => {
                self.entry_mut(spot)?.place = Place::Log(location);
                None
            }
            Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => {
                unreachable!("only bodies in the log are carried forward")
            }
        };
        let known =
            self.extras.get(&spot.sequence).is_some_and(|extra| extra.dead_letter.is_some());
        if chunks.is_some() || known {
            self.extras.entry(spot.sequence).or_default().chunks = chunks;
        } else {
            self.extras.remove(&spot.sequence);
        }
        let extra = self.extras.contains_key(&spot.sequence);
        self.entry_mut(spot)?.extra = extra;
        Some(old)
    }

    /// Where the body of a message is.
    pub(crate) fn body(&self, spot: Spot) -> Option<Body> {
        self.entry(spot).map(|entry| self.body_of(entry))
    }

    pub(crate) fn body_of(&self, entry: &Entry) -> Body {
        let chunks = self.extra_of(entry).and_then(|extra| extra.chunks.as_ref());
        match (chunks, &entry.place) {
            (Some(chunks), _) => Body::Chunks(chunks.clone()),
            (None, Place::Memory(bytes)) => Body::Memory(bytes.clone()),
            (None, Place::Log(location)) => Body::Log(*location),
        }
    }

    /// Length of the body of a message of this queue.
    pub(crate) fn bytes_of(&self, entry: &Entry) -> u64 {
        match (self.extra_of(entry).and_then(|extra| extra.chunks.as_ref()), &entry.place) {
            (Some(chunks), _) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
            (None, Place::Memory(bytes)) => bytes.len() as u64,
            (None, Place::Log(location)) => u64::from(location.bytes),
        }
    }

    pub(crate) fn extra_of(&self, entry: &Entry) -> Option<&Extra> {
        if entry.extra { self.extras.get(&entry.sequence) } else { None }
    }

    /// The first available message in order of delivery.
    pub(crate) fn first_available(&mut self) -> Option<Spot> {
        let mut rest = self.occupied;
        while self.available > 0 && rest != 0 {
            let lane = rest.ilog2();
            rest &= !(1 << lane);
            let lane = u8::try_from(lane).unwrap_or(0);
            let entries = &mut self.lanes[usize::from(lane)];
            if let Some(at) = entries.first_available() {
                return Some(Spot { lane, sequence: entries.entry(at).sequence });
            }
        }
        None
    }

    /// The first available message in order of delivery of which none is before its lane's cursor.
    pub(crate) fn next_available(&self, cursor: &[u64; LANES]) -> Option<Spot> {
        let mut rest = self.occupied;
        while self.available > 0 && rest != 0 {
            let lane = rest.ilog2();
            rest &= !(1 << lane);
            let lane = u8::try_from(lane).unwrap_or(0);
            let entries = &self.lanes[usize::from(lane)];
            if let Some(at) = entries.next_available(cursor[usize::from(lane)]) {
                return Some(Spot { lane, sequence: entries.entry(at).sequence });
            }
        }
        None
    }

    /// The first message of a lane in any state whose sequence is not below this.
    pub(crate) fn next_live(&self, lane: u8, from: u64) -> Option<&Entry> {
        let lane = self.lanes.get(usize::from(lane))?;
        lane.next_live(from).map(|at| lane.entry(at))
    }

    /// The first available message of this key that is not before `from`.
    pub(crate) fn next_of_key(&self, key: FilterKey, from: Rank) -> Option<Rank> {
        self.index.as_ref().and_then(|index| index.next(key, from))
    }

    /// Indexes this kind of key from now on.
    pub(crate) fn index_key(&mut self, key: FilterKey) {
        let mut index = self.index.take().unwrap_or_default();
        if !index.covers(key) {
            index.cover(key, self.iter().filter(|(_, entry)| entry.state == State::Available));
        }
        self.index = Some(index);
    }

    /// All messages, highest lane first, each lane in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Entry)> {
        (0..10_u8)
            .rev()
            .flat_map(|lane| self.lanes[usize::from(lane)].iter().map(move |entry| (lane, entry)))
    }

    /// When the oldest message of those that will be delivered next in each lane was put.
    pub(crate) fn oldest_put_at(&self) -> Option<Time> {
        let first = |lane: &Lane| lane.next_live(0).map(|at| lane.entry(at).put_at);
        self.lanes.iter().filter_map(first).min()
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        for (number, lane) in self.lanes.iter().enumerate() {
            lane.audit();
            assert_eq!(lane.live() > 0, self.occupied >> number & 1 == 1, "occupied lanes");
        }
        let count = |wanted: &dyn Fn(&Entry) -> bool| {
            self.iter().filter(|(_, entry)| wanted(entry)).count() as u64
        };
        assert_eq!(self.live, count(&|_| true), "live");
        assert_eq!(self.available, count(&|entry| entry.state == State::Available), "available");
        assert_eq!(self.expiring, count(&Entry::expires), "expiring");
        assert!(self.reserved >= self.in_flight, "what is in flight is reserved");
        let bytes: u64 = self.iter().map(|(_, entry)| body_bytes(&self.body_of(entry))).sum();
        assert_eq!(self.bytes, bytes, "bytes");
        let extras = count(&|entry| entry.extra && self.extras.contains_key(&entry.sequence));
        assert_eq!((extras, count(&|entry| entry.extra)), (self.extras.len() as u64, extras));
        if let Some(index) = &self.index {
            index.audit(self.iter().filter(|(_, entry)| entry.state == State::Available));
        }
        self.waiting.audit();
    }
}

/// A message that was taken out of its queue.
#[derive(Debug)]
pub(crate) struct Removed {
    pub(crate) entry: Entry,
    pub(crate) extra: Extra,
}

impl Removed {
    pub(crate) fn bytes(&self) -> u64 {
        match (&self.extra.chunks, &self.entry.place) {
            (Some(chunks), _) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
            (None, Place::Memory(bytes)) => bytes.len() as u64,
            (None, Place::Log(location)) => u64::from(location.bytes),
        }
    }

    pub(crate) fn body(self) -> Body {
        match (self.extra.chunks, self.entry.place) {
            (Some(chunks), _) => Body::Chunks(chunks),
            (None, Place::Memory(bytes)) => Body::Memory(bytes),
            (None, Place::Log(location)) => Body::Log(location),
        }
    }

    /// The message, as one that stands in lane `order`.
    pub(crate) fn into_message(mut self, order: u8) -> Message {
        let header = self.entry.header(order);
        let backout_count = self.entry.backout_count;
        let dead_letter = self.extra.dead_letter.take();
        Message { header, body: self.body(), backout_count, dead_letter }
    }
}

/// Length of a body.
pub(crate) fn body_bytes(body: &Body) -> u64 {
    match body {
        Body::Incoming(payload) => payload.len() as u64,
        Body::Memory(bytes) => bytes.len() as u64,
        Body::Log(location) => u64::from(location.bytes),
        Body::Chunks(chunks) => chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum(),
        Body::Announced { bytes, .. } => *bytes,
    }
}

/// The consumers that a queue knows, by how they look for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// Takes whatever is first.
    Plain,
    /// Looks at each message: a filter without a key, or a browser.
    Scanner,
    /// Looks for one key.
    Keyed(FilterKey),
}

impl Attention {
    /// How a consumer with this mode and filter looks for messages.
    pub(crate) fn of(browses: bool, filter: Option<&crate::request::Filter>) -> Attention {
        match filter {
            Some(crate::request::Filter { key: Some(key), .. }) => Attention::Keyed(*key),
            Some(_) => Attention::Scanner,
            None if browses => Attention::Scanner,
            None => Attention::Plain,
        }
    }
}

/// A consumer as `waiting` sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) consumer: ConsumerId,
    pub(crate) attention: Attention,
}
