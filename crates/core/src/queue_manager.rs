//! The queue manager: one value that owns all queues, units of work, consumers and definitions.
//!
//! It opens nothing, reads no clock and starts no thread. Deciding calls (`decide/`) check, reserve
//! and fill a [`Decision`](crate::Decision); `apply` carries facts out and cannot fail; `dispatch`
//! hands available messages to consumers; `tick` does what is due with time. What each needs of the
//! others is in this file.
//!
//! Invariants (`audit`): every consumer, unit and temporary queue belongs to a known connection; a
//! held message belongs to exactly one consumer or open unit; sums over queues equal the totals
//! here.

use std::collections::{BTreeMap, VecDeque};

use towline_types::FORMAT_LEVEL_FIRST;

use crate::catalogue::Catalogue;
use crate::decide::parts::CommitInParts;
use crate::expiry::Scan;
use crate::garbage::Garbage;
use crate::ghosts::Ghosts;
use crate::hash::FastMap;
use crate::log_room::log_room_of;
use crate::log_wait::LogWait;
use crate::object::{Definition, LocalQueue};
use crate::page_cache::PageCache;
use crate::parts::Parts;
use crate::queue::Queue;
use crate::region::Region;
use crate::request::Limits;
use crate::returns::Returns;
use crate::sessions::{Connection, Consumer, EndedUnit, LargePut, UnitOfWork};
use crate::spilled_bodies::SpilledBodies;
use crate::{
    CommitId, ConnectionId, ConsumerId, Effect, LargePutId, MessageSequence, Outputs, QueueId,
    Refusal, UnitId,
};

/// See the module's description.
#[derive(Debug)]
pub struct QueueManager {
    pub(crate) limits: Limits,
    /// The format level of the log: what is decided says nothing that came with a later one.
    pub(crate) level: u8,
    /// To which it was decided to raise it, applied or not; the first level: to none.
    pub(crate) level_on_its_way: u8,
    /// The histories of the log, and whether another group is live.
    pub(crate) region: Region,
    pub(crate) catalogue: Catalogue,
    pub(crate) queues: FastMap<QueueId, Box<Queue>>,
    pub(crate) consumers: FastMap<ConsumerId, Consumer>,
    pub(crate) connections: FastMap<ConnectionId, Connection>,
    /// Open units; ids ascend, so the first is the oldest.
    pub(crate) units: BTreeMap<UnitId, UnitOfWork>,
    /// Units that the queue manager rolled back without their connections' knowledge so far.
    pub(crate) ended_units: BTreeMap<UnitId, EndedUnit>,
    /// Puts with bodies on their way to the log; ids are those of the bodies.
    pub(crate) large_puts: BTreeMap<LargePutId, LargePut>,
    /// Commits of large units of work, on their way to the log part by part.
    pub(crate) commits: BTreeMap<CommitId, CommitInParts>,
    /// What both still need of `log_room`.
    pub(crate) large_room: u64,
    /// What is kept aside for commits, or is to be carried out.
    pub(crate) parts: Parts,
    /// Messages that left their queues, and with bodies that are not given up yet.
    pub(crate) garbage: Garbage,
    /// Messages that come back to their queues in slices.
    pub(crate) returns: Returns,
    /// Bodies in the log that no put refers to yet.
    pub(crate) spilled_bodies: SpilledBodies,
    pub(crate) next: Counters,
    /// Bytes in memory: non-persistent bodies, and what open units of work staged.
    pub(crate) memory_bytes: u64,
    /// Of these: persistent bodies that open units of work staged.
    pub(crate) staged_bytes: u64,
    /// Queues that `dispatch` must look at; each has its flag set once.
    pub(crate) changed: VecDeque<QueueId>,
    /// Queues that need more than `dispatch` may spend; each has its flag set once.
    pub(crate) unserved: VecDeque<QueueId>,
    /// Effects that wait for the next call with outputs.
    pub(crate) effects: Vec<Effect>,
    pub(crate) scan: Scan,
    pub(crate) page_cache: PageCache,
    /// Why puts are refused at present, if they are.
    pub(crate) refusing: Option<Refusal>,
    /// Bytes that the log takes of a decision that adds.
    pub(crate) log_room: u64,
    pub(crate) log_wait: LogWait,
    /// Before this sequence the image, not the log, knows what was (replay only).
    pub(crate) image_sequence: u64,
    /// The image has its messages: one that is not known has ended (replay only).
    pub(crate) image_whole: bool,
    /// Messages before this one were there when this process took the log over: whether a consumer
    /// had them is not known.
    pub(crate) known_from: u64,
    /// Messages of queues that the image does not know (replay only).
    pub(crate) ghosts: Ghosts,
}

/// The next of everything that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) sequence: u64,
    pub(crate) queue: u32,
    pub(crate) body: u64,
    pub(crate) consumer: u64,
    pub(crate) unit: u64,
}

impl QueueManager {
    /// A queue manager without any object.
    #[must_use]
    pub fn new(limits: Limits) -> QueueManager {
        QueueManager {
            limits,
            level: FORMAT_LEVEL_FIRST,
            level_on_its_way: FORMAT_LEVEL_FIRST,
            region: Region::default(),
            catalogue: Catalogue::default(),
            queues: FastMap::default(),
            consumers: FastMap::default(),
            connections: FastMap::default(),
            units: BTreeMap::new(),
            ended_units: BTreeMap::new(),
            large_puts: BTreeMap::new(),
            commits: BTreeMap::new(),
            large_room: 0,
            parts: Parts::default(),
            garbage: Garbage::default(),
            returns: Returns::default(),
            spilled_bodies: SpilledBodies::default(),
            next: Counters { sequence: 1, queue: 1, body: 1, consumer: 1, unit: 1 },
            memory_bytes: 0,
            staged_bytes: 0,
            changed: VecDeque::new(),
            unserved: VecDeque::new(),
            effects: Vec::new(),
            scan: Scan::default(),
            page_cache: PageCache::default(),
            refusing: None,
            log_room: u64::MAX,
            log_wait: LogWait::default(),
            image_sequence: 0,
            image_whole: false,
            known_from: 0,
            ghosts: Ghosts::default(),
        }
    }

    /// The bounds that count: the configured ones, with what ALTER QMGR changed.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Refuses puts, commits with puts in them, and definitions from now on (`None`: no longer),
    /// for this reason: the log is full, or the queue manager is ending. Gets go on.
    pub fn refuse_puts(&mut self, reason: Option<Refusal>) {
        self.refusing = reason;
    }

    /// The log takes so many bytes of the next decision if it adds to what must be kept (0: such a
    /// decision is refused as for a full log). What removes is decided in any case.
    pub fn set_log_room(&mut self, bytes: u64) {
        self.log_room = bytes;
    }

    /// Bytes of the log that large puts which have begun still need, as their pieces come.
    #[must_use]
    pub fn log_room_promised(&self) -> u64 {
        self.large_room
    }

    pub(crate) fn check_accepting(&self) -> Result<(), Refusal> {
        match &self.refusing {
            None if self.log_room == 0 => Err(Refusal::LogFull),
            None => Ok(()),
            Some(reason) => Err(reason.clone()),
        }
    }

    /// Whether the log has space for `puts` persistent messages with bodies of `bytes` together.
    pub(crate) fn check_log_room(&self, bytes: u64, puts: u64) -> Result<(), Refusal> {
        if self.has_log_room(log_room_of(bytes, puts)) { Ok(()) } else { Err(Refusal::LogFull) }
    }

    /// Whether the log has so many bytes that are promised to nothing else.
    pub(crate) fn has_log_room(&self, bytes: u64) -> bool {
        bytes <= self.log_room.saturating_sub(self.large_room)
    }

    pub(crate) fn next_sequence(&mut self) -> MessageSequence {
        let sequence = self.next.sequence;
        self.next.sequence += 1;
        MessageSequence(sequence)
    }

    pub(crate) fn next_queue_id(&mut self) -> QueueId {
        let id = self.next.queue;
        assert!(id < u32::MAX, "four thousand million queues were defined");
        self.next.queue += 1;
        QueueId(id)
    }

    /// The queue, which must exist.
    pub(crate) fn queue(&self, id: QueueId) -> &Queue {
        match self.queues.get(&id) {
            Some(queue) => queue,
            None => unreachable!("queue {id:?} is referred to and does not exist"),
        }
    }

    pub(crate) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        match self.queues.get_mut(&id) {
            Some(queue) => queue,
            None => unreachable!("queue {id:?} is referred to and does not exist"),
        }
    }

    /// Has `dispatch` look at this queue.
    pub(crate) fn mark_changed(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id)
            && !queue.changed
        {
            queue.changed = true;
            self.changed.push_back(id);
        }
    }

    /// Has `work` look at this queue.
    pub(crate) fn mark_unserved(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(&id)
            && !queue.unserved
        {
            queue.unserved = true;
            self.unserved.push_back(id);
        }
    }

    /// Makes what a definition says count for requests.
    pub(crate) fn adopt(&mut self, definition: &Definition) {
        match definition {
            Definition::Local(local) => self.adopt_local(local),
            Definition::Alias(_) | Definition::Model(_) => {}
            Definition::QueueManager(attributes) => {
                self.limits.dead_letter_queue.clone_from(&attributes.dead_letter_queue);
                self.limits.message_bytes_max = attributes.message_bytes_max;
                self.limits.unit_messages_max = attributes.unit_messages_max;
            }
        }
    }

    fn adopt_local(&mut self, local: &LocalQueue) {
        self.next.queue = self.next.queue.max(local.id.0.saturating_add(1));
        match self.queues.get_mut(&local.id) {
            Some(queue) => queue.definition.clone_from(local),
            None => {
                let queue = Queue::new(local.clone(), &self.page_cache.census);
                self.queues.insert(local.id, Box::new(queue));
            }
        }
    }

    /// Removes a queue that is to be deleted, once nothing refers to its messages any more.
    /// Only for TEMPDYN queues: others go by a fact.
    pub(crate) fn reap(&mut self, id: QueueId) {
        let done = self
            .queues
            .get(&id)
            .is_some_and(|queue| queue.deleting && queue.owner.is_some() && queue.depth() == 0);
        if done {
            self.queues.remove(&id);
        }
    }

    /// Hands over effects that came up where no outputs were at hand.
    pub(crate) fn flush_effects(&mut self, outputs: &mut Outputs) {
        outputs.effects.append(&mut self.effects);
    }
}
