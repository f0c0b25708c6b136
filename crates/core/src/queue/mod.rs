//! One local queue: its messages in ten lanes, its counts, and the consumers that wait at it.
//!
//! Keeps counts, lanes and key index in step with each other. Decides nothing: which message goes
//! where, and why, is said by `decide` and `dispatch`. Knows consumers by id only.
//!
//! Invariants (`audit`): counts equal what the lanes hold; the index covers what is available in
//! blocks that are indexed; `reserved >= in_flight`.

mod block;
mod census;
mod entry;
mod extras;
mod index;
mod keyed_walk;
mod keys;
mod lane;
pub(crate) mod page;
mod paged_blocks;
mod removed;
mod returned;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use towline_types::{BodyLocation, Time, fitting};

use crate::hash::FastMap;
use crate::message::{Body, Header, Message};
use crate::object::{DeliverySequence, LocalQueue};
use crate::page_key::PageKey;
use crate::{ConnectionId, ConsumerId, QueueId};

pub(crate) use block::{Block, Sheet};
pub use block::{ExtentShare, Outline};
pub(crate) use census::Census;
use entry::Hashes;
pub(crate) use entry::{Entry, EntryBody, EntryState, Extra, LANES, Marks, Spot};
use index::{KeyIndex, KeyKinds};
pub(crate) use index::{Rank, SEQUENCE_END};
pub(crate) use keyed_walk::{KeyCursor, KeySearch};
pub(crate) use lane::{Lane, LanePosition, Walk};
pub(crate) use paged_blocks::{BLOCKS_AHEAD, PagedBlock, Search};
pub(crate) use removed::{
    Attention, RemovedBlock, RemovedMessage, RemovedQueue, Visitor, body_bytes,
};
pub(crate) use returned::ScanCursor;
pub(crate) use waiting::{WaitingConsumers, WokenConsumer};

mod turns;
mod waiting;

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
    /// `work` will look at it.
    pub(crate) unserved: bool,
    /// The connection that a TEMPDYN queue belongs to.
    pub(crate) owner: Option<ConnectionId>,
    /// Only its owner may consume from it.
    pub(crate) private: bool,
    lanes: [Lane; LANES],
    /// Which lanes hold a message.
    occupied: u16,
    index: KeyIndex,
    /// The kinds of keys that are indexed, as far as searches came.
    indexed: KeyKinds,
    /// Clears that are decided and not applied: nothing of it is delivered until they are.
    pub(crate) clearing: u32,
    /// The consumers that wait for a page, by lane and the block's first sequence.
    loading: FastMap<(u8, u64), Vec<ConsumerId>>,
    /// All that are open: consumers and browsers.
    pub(crate) consumers: BTreeSet<ConsumerId>,
    /// Messages that it holds, in any state.
    pub(crate) live: u64,
    /// Of these: available.
    pub(crate) available: u64,
    /// Of these: with an expiry time.
    pub(crate) expiring: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Of these: of messages that are not persistent.
    pub(crate) memory_bytes: u64,
    /// Messages that it holds and that are not persistent.
    pub(crate) memory_live: u64,
    /// Puts decided or staged in a unit of work, not applied.
    pub(crate) reserved: u64,
    /// Of these: decided, on their way.
    pub(crate) in_flight: u64,
    /// Gets staged in open units of work.
    pub(crate) uncommitted_gets: u64,
    /// Messages that come back to it in slices: until then it gives none to consumers.
    pub(crate) returning: u64,
    /// Operations of commits in parts that are completed, as decided, and not carried out.
    pub(crate) completing: u64,
    /// Of these: of commits with a completion that is applied. Until all are carried out it gives
    /// nothing to consumers.
    pub(crate) arriving: u64,
    /// The highest sequence that any message of it ever had.
    pub(crate) highest: u64,
    pub(crate) open_output: u32,
    pub(crate) open_input: u32,
    pub(crate) open_browse: u32,
    /// One consumer has it for itself.
    pub(crate) exclusive: bool,
    pub(crate) totals: Totals,
    pub(crate) last_put_at: Option<Time>,
    pub(crate) last_get_at: Option<Time>,
    pub(crate) waiting: WaitingConsumers,
}

/// A message in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredMessage<'a> {
    pub(crate) entry: &'a Entry,
    /// What few messages have.
    pub(crate) extra: Option<&'a Extra>,
}

impl StoredMessage<'_> {
    /// Where its body is.
    pub(crate) fn body(&self) -> Body {
        let chunks = self.extra.and_then(|extra| extra.chunks.as_ref());
        match (chunks, &self.entry.place) {
            (Some(chunks), _) => Body::Chunks(chunks.clone()),
            (None, EntryBody::Memory(bytes)) => Body::Memory(Bytes::clone(bytes)),
            (None, EntryBody::Log { bytes, lsn }) => {
                Body::Log(BodyLocation { lsn: *lsn, bytes: *bytes })
            }
        }
    }
}

impl Queue {
    pub(crate) fn new(definition: LocalQueue, census: &Arc<Census>) -> Queue {
        Queue {
            definition,
            deleting: false,
            changed: false,
            unserved: false,
            owner: None,
            private: false,
            lanes: std::array::from_fn(|_| Lane::new(Arc::clone(census))),
            occupied: 0,
            index: KeyIndex::default(),
            indexed: KeyKinds::default(),
            clearing: 0,
            loading: FastMap::default(),
            consumers: BTreeSet::new(),
            live: 0,
            available: 0,
            expiring: 0,
            bytes: 0,
            memory_bytes: 0,
            memory_live: 0,
            reserved: 0,
            in_flight: 0,
            uncommitted_gets: 0,
            returning: 0,
            completing: 0,
            arriving: 0,
            highest: 0,
            open_output: 0,
            open_input: 0,
            open_browse: 0,
            exclusive: false,
            totals: Totals::default(),
            last_put_at: None,
            last_get_at: None,
            waiting: WaitingConsumers::default(),
        }
    }

    pub(crate) fn id(&self) -> QueueId {
        self.definition.id
    }

    /// The depth that MAXDEPTH limits: messages held, and puts on their way or uncommitted.
    pub(crate) fn depth(&self) -> u64 {
        self.live + self.reserved
    }

    /// Whether a message that is not logged must come behind what is on its way to the log.
    pub(crate) fn must_wait_its_turn(&self) -> bool {
        self.in_flight > 0 || self.clearing > 0
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

    /// Adds a message, available. Yields the blocks that may leave from now on.
    pub(crate) fn insert(&mut self, sequence: u64, message: Message) -> [Option<PageKey>; 2] {
        let Message { header, body, backout_count, dead_letter } = message;
        let bytes = body_bytes(&body);
        let (place, chunks) = match body {
            Body::Memory(bytes) => (EntryBody::Memory(Box::new(bytes)), None),
            Body::Log(location) => (EntryBody::at(location), None),
            Body::Chunks(chunks) => (EntryBody::NOWHERE, Some(chunks)),
            Body::Incoming(_) | Body::Announced { .. } => {
                unreachable!("the body of an applied message is in memory or in the log")
            }
        };
        let Header { deliver_at, group_sequence, .. } = header;
        let extra = Extra { dead_letter, chunks, deliver_at, group_sequence }.kept();
        let entry = Entry {
            sequence,
            expires_at: header.expires_at.unwrap_or(Time::NEVER),
            put_at: header.put_at,
            correlation_hash: header.correlation_hash,
            message_id_hash: header.message_id_hash,
            group: header.group,
            place,
            backout_count,
            state: EntryState::Available,
            priority: header.priority,
            persistent: header.persistent,
            marks: Marks::of(extra.is_some()),
        };
        self.highest = self.highest.max(sequence);
        self.live += 1;
        self.available += 1;
        self.expiring += u64::from(entry.expires());
        self.bytes += bytes;
        self.memory_bytes += if entry.persistent { 0 } else { bytes };
        self.memory_live += u64::from(!entry.persistent);
        let lane = header.order.min(9);
        let hashes = entry.hashes();
        self.occupied |= 1 << lane;
        let queue = self.id();
        let first = self.lanes[usize::from(lane)].insert(entry, extra);
        self.became_available(Spot { lane, sequence }, hashes);
        first.map(|first| Some(PageKey { queue, lane, first: first? }))
    }

    fn became_available(&mut self, spot: Spot, hashes: Hashes) {
        let kinds = self.indexed_with(spot);
        self.index.add(Rank::new(spot.lane, spot.sequence), hashes, kinds);
        self.waiting.message_available(spot, hashes);
    }

    /// Where the message of this sequence is. One that is away is not found.
    pub(crate) fn spot_of(&self, sequence: u64) -> Option<Spot> {
        self.locate(sequence).map(|(lane, _)| Spot { lane, sequence })
    }

    /// Lanes are few and mostly empty: each is asked.
    fn locate(&self, sequence: u64) -> Option<(u8, LanePosition)> {
        let mut rest = if sequence > self.highest { 0 } else { self.occupied };
        while rest != 0 {
            let lane: u8 = fitting(rest.trailing_zeros());
            rest &= rest - 1;
            if let Some(at) = self.lanes[usize::from(lane)].find(sequence).found() {
                return Some((lane, at));
            }
        }
        None
    }

    fn position(&self, spot: Spot) -> Option<LanePosition> {
        self.lanes[usize::from(spot.lane)].find(spot.sequence).found()
    }

    /// The message there, unless it is away.
    pub(crate) fn entry(&self, spot: Spot) -> Option<&Entry> {
        self.position(spot).map(|at| self.lanes[usize::from(spot.lane)].entry(at))
    }

    /// Sets how often deliveries of a message were backed out. One that is away has its count on
    /// its page: it was set when the backout was decided.
    pub(crate) fn set_backouts(&mut self, spot: Spot, count: u32) {
        if let Some(at) = self.position(spot) {
            let lane = &mut self.lanes[usize::from(spot.lane)];
            if lane.entry(at).backout_count != count {
                lane.change(at, |entry| entry.backout_count = count);
            }
        }
    }

    /// Changes the state of a message that is in the queue.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn set_state(&mut self, spot: Spot, state: EntryState) {
        let at = self.position(spot);
        assert!(at.is_some(), "the state of a message that is not there");
        let Some(at) = at else { return };
        let lane = &mut self.lanes[usize::from(spot.lane)];
        let (old, hashes) = (lane.entry(at).state, lane.entry(at).hashes());
        lane.set_state(at, state);
        if (old == EntryState::Available) == (state == EntryState::Available) {
            return;
        }
        if old == EntryState::Available {
            self.available -= 1;
            let kinds = self.indexed_with(spot);
            self.index.remove(Rank::new(spot.lane, spot.sequence), hashes, kinds);
        } else {
            self.available += 1;
            self.became_available(spot, hashes);
        }
    }

    /// A consumer had this message, perhaps at another position.
    pub(crate) fn note_acquired(&mut self, sequence: u64) {
        if let Some((lane, at)) = self.locate(sequence) {
            self.lanes[usize::from(lane)].note_acquired(at);
        }
    }

    /// Takes a message out.
    ///
    /// # Panics
    /// When it is not there.
    pub(crate) fn remove(&mut self, spot: Spot) -> RemovedMessage {
        let Some(at) = self.position(spot) else {
            unreachable!("the end of a message that is not there")
        };
        self.remove_at(spot.lane, at)
    }

    /// Takes the message of this sequence out, if it is there.
    pub(crate) fn take(&mut self, sequence: u64) -> Option<RemovedMessage> {
        let (lane, at) = self.locate(sequence)?;
        Some(self.remove_at(lane, at))
    }

    fn remove_at(&mut self, number: u8, at: LanePosition) -> RemovedMessage {
        let lane = &mut self.lanes[usize::from(number)];
        let kinds = lane.blocks()[at.block].indexed;
        let (entry, extra) = lane.remove(at);
        if lane.live() == 0 {
            self.occupied &= !(1 << number);
        }
        if entry.state == EntryState::Available {
            self.available -= 1;
            self.index.remove(Rank::new(number, entry.sequence), entry.hashes(), kinds);
        }
        let removed = RemovedMessage { entry, extra };
        self.live -= 1;
        self.expiring -= u64::from(removed.entry.expires());
        let bytes = removed.bytes();
        self.bytes -= bytes;
        self.memory_bytes -= if removed.entry.persistent { 0 } else { bytes };
        self.memory_live -= u64::from(!removed.entry.persistent);
        removed
    }

    /// Messages that it holds and that are not persistent.
    pub(crate) fn non_persistent_live(&self) -> u64 {
        self.memory_live
    }

    /// Messages that it holds and that are persistent.
    pub(crate) fn persistent_live(&self) -> u64 {
        self.live - self.memory_live
    }

    /// Takes all messages out, which are in memory.
    pub(crate) fn take_all(&mut self) -> RemovedQueue {
        let lanes = self.lanes.iter_mut();
        let blocks = lanes.flat_map(Lane::take_all).map(RemovedBlock).collect();
        let index = std::mem::take(&mut self.index);
        (self.occupied, self.live, self.available) = (0, 0, 0);
        (self.expiring, self.bytes, self.memory_bytes, self.memory_live) = (0, 0, 0, 0);
        RemovedQueue { blocks, index }
    }

    /// Takes the messages before this sequence out; those on pages stay.
    pub(crate) fn take_before(&mut self, upto: u64) -> Vec<RemovedMessage> {
        let before = self.iter().filter(|(_, entry)| entry.sequence < upto);
        let spots: Vec<Spot> =
            before.map(|(lane, entry)| Spot { lane, sequence: entry.sequence }).collect();
        spots.into_iter().map(|spot| self.remove(spot)).collect()
    }

    /// Gives a message another location for its body (it was carried forward); yields the old one.
    pub(crate) fn relocate(&mut self, spot: Spot, body: Body) -> Option<Body> {
        let at = self.position(spot)?;
        let old = self.body(spot)?;
        assert_eq!(body_bytes(&old), body_bytes(&body), "a body keeps its length");
        let lane = &mut self.lanes[usize::from(spot.lane)];
        let kept = lane.extra(at).cloned().unwrap_or_default();
        let chunks = match body {
            Body::Chunks(chunks) => Some(chunks),
            Body::Log(location) => {
                lane.change(at, |entry| entry.place = EntryBody::at(location));
                None
            }
            Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => {
                unreachable!("only bodies in the log are carried forward")
            }
        };
        lane.set_extra(at, Extra { chunks, ..kept }.kept());
        Some(old)
    }

    /// All of a message, found once.
    pub(crate) fn stored(&self, spot: Spot) -> Option<StoredMessage<'_>> {
        let at = self.position(spot)?;
        let lane = &self.lanes[usize::from(spot.lane)];
        Some(StoredMessage { entry: lane.entry(at), extra: lane.extra(at) })
    }

    /// Whether a message has expired. Few queues have any that can: others are not searched.
    pub(crate) fn is_expired(&self, spot: Spot, now: Time) -> bool {
        self.expiring > 0 && self.entry(spot).is_some_and(|entry| entry.is_expired(now))
    }

    /// Where the body of a message is.
    pub(crate) fn body(&self, spot: Spot) -> Option<Body> {
        self.stored(spot).map(|message| message.body())
    }

    /// Bytes of the body of the message there.
    ///
    /// # Panics
    /// When there is none in memory: the caller found its entry.
    pub(crate) fn body_bytes(&self, spot: Spot) -> u64 {
        match self.body(spot) {
            Some(body) => body_bytes(&body),
            None => unreachable!("no message {} in memory in lane {}", spot.sequence, spot.lane),
        }
    }

    /// What few messages have, of the message there.
    pub(crate) fn extra(&self, spot: Spot) -> Option<&Extra> {
        let at = self.position(spot)?;
        self.lanes[usize::from(spot.lane)].extra(at)
    }

    /// All messages, highest lane first, each lane in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Entry)> {
        (0..10_u8)
            .rev()
            .flat_map(|lane| self.lanes[usize::from(lane)].iter().map(move |entry| (lane, entry)))
    }

    /// When the oldest message of those that will be delivered next in each lane was put.
    pub(crate) fn oldest_put_at(&self) -> Option<Time> {
        let first = |lane: &Lane| match lane.next_live(0) {
            Walk::At(at) => Some(lane.entry(at).put_at),
            Walk::OnPage(block) => {
                lane.blocks().get(block)?.stored.as_ref().map(|outline| outline.put_at)
            }
            Walk::End => None,
        };
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
        let away = |of: &dyn Fn(&Outline) -> u64| -> u64 {
            let blocks = self.lanes.iter().flat_map(Lane::blocks);
            let outlines =
                blocks.filter(|block| !block.is_here()).filter_map(|b| b.stored.as_ref());
            outlines.map(|outline| of(outline)).sum()
        };
        let live = |outline: &Outline| u64::from(outline.live);
        assert_eq!(self.live, count(&|_| true) + away(&live), "live");
        let available = count(&|entry| entry.state == EntryState::Available);
        assert_eq!(self.available, available + away(&live), "available");
        let expiring = away(&|outline| u64::from(outline.expiring));
        assert_eq!(self.expiring, count(&Entry::expires) + expiring, "expiring");
        assert!(self.reserved >= self.in_flight, "what is in flight is reserved");
        assert!(self.completing >= self.arriving, "what arrives is decided");
        let here: u64 = self
            .iter()
            .map(|(lane, entry)| self.body_bytes(Spot { lane, sequence: entry.sequence }))
            .sum();
        assert_eq!(self.bytes, here + away(&|outline| outline.bytes), "bytes");
        let memory = self.iter().filter(|(_, entry)| !entry.persistent);
        let memory: u64 = memory.map(|(_, entry)| entry.memory_bytes()).sum();
        assert_eq!(self.memory_bytes, memory, "bytes that are not in the log");
        let memory = self.iter().filter(|(_, entry)| !entry.persistent).count() as u64;
        assert_eq!(self.memory_live, memory, "messages that are not in the log");
        self.audit_index();
        self.waiting.audit();
    }
}
