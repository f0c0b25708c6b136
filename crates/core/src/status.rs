//! What operators may ask about: exact at the moment of asking.

use std::collections::BTreeMap;

use towline_types::Time;

use crate::message::Body;
use crate::object::{Definition, LocalQueue};
use crate::queue::{Queue, Totals};
use crate::{ConnectionId, MessageSequence, QueueId, QueueManager, UnitId};

/// One queue at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub queue: QueueId,
    /// CURDEPTH: messages that it holds, delivered but unsettled ones included, and puts that are
    /// uncommitted or on their way to the log. MAXDEPTH bounds it.
    pub depth: u64,
    /// Of these: free to be got.
    pub available: u64,
    /// Of these: puts on their way to the log.
    pub in_flight: u64,
    /// UNCOM: puts and gets in open units of work.
    pub uncommitted: u64,
    /// Bytes of the bodies that it holds.
    pub bytes: u64,
    /// IPPROCS: consumers.
    pub open_input: u32,
    /// Browsers.
    pub open_browse: u32,
    /// OPPROCS: open for put.
    pub open_output: u32,
    /// Since it was defined.
    pub totals: Totals,
    /// When the oldest message that it holds was put (MSGAGE).
    pub oldest_put_at: Option<Time>,
    /// LPUTDATE, LPUTTIME.
    pub last_put_at: Option<Time>,
    /// LGETDATE, LGETTIME; since the start of the process.
    pub last_get_at: Option<Time>,
}

/// A queue that a connection has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    /// Which connection.
    pub connection: ConnectionId,
    /// Name of the local queue.
    pub queue: String,
    /// Its consumers on it.
    pub consumers: u32,
    /// No other connection may get from it meanwhile.
    pub exclusive: bool,
    /// Its browsers on it.
    pub browsers: u32,
    /// How often it has it open for put.
    pub producers: u32,
}

/// What one connection has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// Which.
    pub connection: ConnectionId,
    /// Open units of work.
    pub units: usize,
    /// Consumers and browsers.
    pub consumers: usize,
    /// Opens for put.
    pub producers: usize,
}

impl QueueManager {
    /// All objects as they count for requests, by name.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.catalogue.iter().filter(|definition| definition.object_type().is_some())
    }

    /// The object of this name.
    #[must_use]
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.catalogue.get(name).filter(|definition| definition.object_type().is_some())
    }

    /// Where a name leads: the local queue, through an alias if need be.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<&LocalQueue> {
        self.catalogue.resolve(name).ok().map(|resolved| resolved.queue)
    }

    /// A local queue at this moment.
    #[must_use]
    pub fn queue_status(&self, name: &str) -> Option<QueueStatus> {
        let id = self.catalogue.local(name).ok()?.id;
        self.queues.get(&id).map(|queue| status(queue))
    }

    /// All objects as they count for requests whose names come after this one, by name.
    pub fn definitions_after(&self, name: Option<&str>) -> impl Iterator<Item = &Definition> {
        self.catalogue.after(name).filter(|definition| definition.object_type().is_some())
    }

    /// All local queues at this moment, by name.
    pub fn queue_statuses(&self) -> impl Iterator<Item = QueueStatus> {
        self.queue_statuses_after(None)
    }

    /// Those whose names come after this one.
    pub fn queue_statuses_after(&self, name: Option<&str>) -> impl Iterator<Item = QueueStatus> {
        self.catalogue.after(name).filter_map(|definition| match definition {
            Definition::Local(local) => self.queues.get(&local.id).map(|queue| status(queue)),
            Definition::Alias(_) | Definition::Model(_) | Definition::QueueManager(_) => None,
        })
    }

    /// All connections that have begun, or had something open.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let ids = self.connections.keys();
        let mut rows: Vec<_> = ids.filter_map(|id| self.connection_status(*id)).collect();
        rows.sort_unstable_by_key(|row| row.connection);
        rows
    }

    /// What a connection has open; `None`: it has not begun.
    #[must_use]
    pub fn connection_status(&self, id: ConnectionId) -> Option<ConnectionStatus> {
        let connection = self.connections.get(&id)?;
        Some(ConnectionStatus {
            connection: id,
            units: connection.units.len(),
            consumers: connection.consumers.len(),
            producers: connection.outputs.values().map(|count| *count as usize).sum(),
        })
    }

    /// Which queues a connection has open, by id.
    #[must_use]
    pub fn handles_of(&self, id: ConnectionId) -> Vec<HandleStatus> {
        let Some(connection) = self.connections.get(&id) else { return Vec::new() };
        let mut open: BTreeMap<QueueId, (u32, u32, u32)> = BTreeMap::new();
        for (queue, count) in &connection.outputs {
            open.entry(*queue).or_default().2 += count;
        }
        let consumers = connection.consumers.iter().filter_map(|id| self.consumers.get(id));
        for consumer in consumers {
            let (consumers, browsers, _) = open.entry(consumer.queue).or_default();
            *(if consumer.browses() { browsers } else { consumers }) += 1;
        }
        let rows = open.into_iter().filter_map(|(queue, (consumers, browsers, producers))| {
            let queue = self.queues.get(&queue)?;
            let exclusive = queue.exclusive && consumers > 0;
            let queue = queue.definition.name.clone();
            Some(HandleStatus { connection: id, queue, consumers, exclusive, browsers, producers })
        });
        rows.collect()
    }

    /// Open units of work.
    #[must_use]
    pub fn open_units(&self) -> usize {
        self.units.len()
    }

    /// Bytes that open units of work have in the log ahead of their commits.
    #[must_use]
    pub fn bytes_ahead(&self) -> u64 {
        self.units.values().map(|unit| unit.spilled_bytes).sum()
    }

    /// Whether there are bodies in the log to which no put refers yet.
    #[must_use]
    pub fn has_bodies_ahead(&self) -> bool {
        self.spilled_bodies.len() > 0
    }

    /// Whether a definition or a deletion was decided that is not applied yet: it counts for
    /// requests, is shown, and could still be lost.
    #[must_use]
    pub fn has_definitions_on_their_way(&self) -> bool {
        self.catalogue.is_ahead()
    }

    /// Bytes of persistent bodies that open units of work keep in memory.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// Whether this unit of work is open and was declared by this connection.
    #[must_use]
    pub fn has_unit(&self, connection: ConnectionId, unit: UnitId) -> bool {
        self.units.get(&unit).is_some_and(|found| found.connection == connection)
    }

    /// Where the content of a message is now: a message that was carried forward has another
    /// location than its delivery said. `None`: it is gone from this queue.
    #[must_use]
    pub fn body_of(&self, queue: QueueId, sequence: MessageSequence) -> Option<Body> {
        let found = self.queues.get(&queue)?;
        found.spot_of(sequence.0).and_then(|spot| found.body(spot))
    }

    /// Bytes that non-persistent bodies and open units of work take. `memory_bytes_max` bounds it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

fn status(queue: &Queue) -> QueueStatus {
    QueueStatus {
        name: queue.definition.name.clone(),
        queue: queue.id(),
        depth: queue.depth(),
        available: if queue.clearing > 0 { 0 } else { queue.available },
        in_flight: queue.in_flight,
        uncommitted: queue.reserved - queue.in_flight + queue.uncommitted_gets,
        bytes: queue.bytes,
        open_input: queue.open_input,
        open_browse: queue.open_browse,
        open_output: queue.open_output,
        totals: queue.totals,
        oldest_put_at: queue.oldest_put_at(),
        last_put_at: queue.last_put_at,
        last_get_at: queue.last_get_at,
    }
}
