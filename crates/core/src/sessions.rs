//! The users of queues: connections, their consumers and their open units of work. All of it
//! is the active instance's memory; nothing here is logged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use towline_types::{Payload, Time};

use crate::hash::FastMap;
use crate::log_room::log_room_of;
use crate::message::Header;
use crate::principal::Principal;
use crate::queue::{Attention, KeyCursor, ScanCursor, Spot, Visitor};
use crate::request::{ConsumerMode, Filter, Outcome};
use crate::staged_puts::StagedPuts;
use crate::{BodyId, ConnectionId, ConsumerId, QueueId, Refusal, UnitId};

/// A connection, and what it has open.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// On behalf of which user its requests are decided.
    pub(crate) principal: Principal,
    /// Queues open for put, and how often.
    pub(crate) outputs: BTreeMap<QueueId, u32>,
    pub(crate) consumers: BTreeSet<ConsumerId>,
    pub(crate) units: BTreeSet<UnitId>,
    /// Puts of its units that are open.
    pub(crate) staged_puts: u64,
    /// TEMPDYN queues that go with it.
    pub(crate) temporary: BTreeSet<QueueId>,
}

/// A consumer or browser.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) connection: ConnectionId,
    pub(crate) queue: QueueId,
    pub(crate) mode: ConsumerMode,
    pub(crate) filter: Option<Arc<Filter>>,
    pub(crate) attention: Attention,
    pub(crate) credit: u32,
    pub(crate) drain: bool,
    /// It is in one of its queue's rings.
    pub(crate) waiting: bool,
    /// It is closing: it gets nothing more, but may still settle what it has.
    pub(crate) closing: bool,
    /// Messages that it has and did not settle.
    pub(crate) held: FastMap<u64, HeldMessage>,
    /// Messages that it does not get again.
    pub(crate) refused: BTreeSet<u64>,
    pub(crate) cursor: Cursor,
    /// The content of this message must come before it can look further.
    pub(crate) fetching: Option<u64>,
}

/// A message that a consumer has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldMessage {
    pub(crate) lane: u8,
    /// A unit of work in which it was settled was rolled back: a backout is counted when it comes
    /// back to its queue.
    pub(crate) failed: bool,
}

/// How far a consumer has looked.
#[derive(Debug)]
pub(crate) enum Cursor {
    /// Plain: the queue knows what is first.
    None,
    /// Looks at each message.
    Lanes(Box<ScanCursor>),
    /// Among the messages of its key.
    Key(KeyCursor),
}

impl Consumer {
    pub(crate) fn visitor(&self) -> Visitor {
        Visitor {
            connection: self.connection,
            consumer: self.id,
            attention: self.attention,
            browses: self.browses(),
        }
    }

    pub(crate) fn browses(&self) -> bool {
        self.mode == ConsumerMode::Browse
    }

    /// Whether it can be given a message.
    pub(crate) fn wants(&self) -> bool {
        self.credit > 0 && !self.closing && self.fetching.is_none()
    }
}

/// A put with a body that goes to the log in pieces before it is decided.
#[derive(Debug)]
pub(crate) struct LargePut {
    pub(crate) connection: ConnectionId,
    pub(crate) queue: QueueId,
    pub(crate) header: Header,
    /// The unit of work that it belongs to.
    pub(crate) unit: Option<UnitId>,
    pub(crate) body: BodyId,
    /// Bytes of the whole body.
    pub(crate) bytes: u64,
    /// Chunks that were given to the log.
    pub(crate) given: u32,
    /// The others.
    pub(crate) rest: VecDeque<Payload>,
}

impl LargePut {
    /// What it still needs of the log's space for puts.
    pub(crate) fn log_room(&self) -> u64 {
        let bytes = self.rest.iter().map(|chunk| chunk.len() as u64).sum();
        log_room_of(bytes, self.rest.len() as u64 + 1)
    }
}

/// A settlement that waits for its unit of work to commit. The message stays held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedGet {
    /// The consumer that had it.
    pub(crate) consumer: ConsumerId,
    /// The consumer has forgotten it: it cannot have it back after a rollback.
    pub(crate) settled: bool,
    pub(crate) queue: QueueId,
    pub(crate) spot: Spot,
    pub(crate) outcome: Outcome,
}

/// Which of the staged gets of a unit is that of a delivery: a client may say its outcome twice.
pub(crate) type GetPlaces = FastMap<(ConsumerId, u64), usize>;

/// A unit of work that the queue manager rolled back and that its connection has not discharged.
#[derive(Debug)]
pub(crate) struct EndedUnit {
    pub(crate) connection: ConnectionId,
    pub(crate) reason: Refusal,
    /// What was settled in it since: held until the discharge, which says that it failed.
    pub(crate) late: Vec<StagedGet>,
    pub(crate) late_places: GetPlaces,
}

impl EndedUnit {
    pub(crate) fn new(connection: ConnectionId, reason: Refusal) -> EndedUnit {
        EndedUnit { connection, reason, late: Vec::new(), late_places: GetPlaces::default() }
    }

    pub(crate) fn stage_get(&mut self, get: StagedGet) {
        push_get(&mut self.late, &mut self.late_places, get);
    }
}

/// An open unit of work.
#[derive(Debug)]
pub(crate) struct UnitOfWork {
    pub(crate) connection: ConnectionId,
    pub(crate) opened_at: Time,
    pub(crate) puts: StagedPuts,
    pub(crate) gets: Vec<StagedGet>,
    pub(crate) get_places: GetPlaces,
    /// Of all puts.
    pub(crate) bytes: u64,
    /// Of them: persistent bodies in memory.
    pub(crate) staged_bytes: u64,
    /// Puts before this one have no persistent body in memory, unless it is empty.
    pub(crate) spilled_puts: usize,
    /// Of them: bodies in the log, or on their way there.
    pub(crate) spilled_bytes: u64,
    /// The ids of its bodies in the log, as ranges: the first one, and how many.
    pub(crate) spilled_bodies: Vec<(BodyId, u64)>,
}

impl UnitOfWork {
    pub(crate) fn new(connection: ConnectionId, opened_at: Time) -> UnitOfWork {
        UnitOfWork {
            connection,
            opened_at,
            puts: StagedPuts::default(),
            gets: Vec::new(),
            get_places: GetPlaces::default(),
            bytes: 0,
            staged_bytes: 0,
            spilled_puts: 0,
            spilled_bytes: 0,
            spilled_bodies: Vec::new(),
        }
    }

    /// Puts and gets in it.
    pub(crate) fn messages(&self) -> usize {
        self.puts.len() + self.gets.len()
    }

    pub(crate) fn stage_get(&mut self, get: StagedGet) {
        push_get(&mut self.gets, &mut self.get_places, get);
    }
}

fn push_get(gets: &mut Vec<StagedGet>, places: &mut GetPlaces, get: StagedGet) {
    let before = places.insert((get.consumer, get.spot.sequence), gets.len());
    assert!(before.is_none(), "a delivery is in a unit once");
    gets.push(get);
}
