//! One message as a queue keeps it: 72 bytes, no allocation of its own beyond a body in memory.
//!
//! What few messages have (a dead-letter reason, a body in chunks, a delivery time, a number in a
//! group) is kept beside the queue, in its `extras`.

use bytes::Bytes;
use towline_types::{BodyLocation, Lsn, Time};

use crate::message::{DeadLetter, Header};

/// Lanes: one for each priority.
pub(crate) const LANES: usize = 10;

/// Which message: its lane and sequence. Stays true while the message is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) lane: u8,
    pub(crate) sequence: u64,
}

/// What few messages have: the reason for which one is a dead letter, a body in chunks, and what
/// its producer said beside the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) dead_letter: Option<Box<DeadLetter>>,
    pub(crate) chunks: Option<Box<[BodyLocation]>>,
    /// See [`Header::deliver_at`].
    pub(crate) deliver_at: Option<Time>,
    /// See [`Header::group_sequence`].
    pub(crate) group_sequence: u32,
}

impl Extra {
    /// Itself; `None` when it says nothing: an entry without more has no extra.
    pub(crate) fn kept(self) -> Option<Extra> {
        (self != Extra::default()).then_some(self)
    }
}

/// A message in a lane.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its sequence, unique in the queue manager.
    pub(crate) sequence: u64,
    /// [`Time::NEVER`]: it does not expire.
    pub(crate) expires_at: Time,
    pub(crate) put_at: Time,
    pub(crate) correlation_hash: u64,
    pub(crate) message_id_hash: u64,
    /// 0: it belongs to none.
    pub(crate) group: u64,
    pub(crate) place: EntryBody,
    pub(crate) backout_count: u32,
    pub(crate) state: EntryState,
    /// As the producer wanted it; the lane says where the message stands.
    pub(crate) priority: u8,
    pub(crate) persistent: bool,
    pub(crate) marks: Marks,
}

const _: () =
    assert!(size_of::<Entry>() <= 72, "an entry must stay small: a deep queue has millions");

/// What is true or not of a message, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

/// There is more about it in the queue's `extras`.
const EXTRA: u8 = 1;
/// A consumer has, or had, it (AMQP 3.2.1, first-acquirer). Not on pages, nor in the log.
const ACQUIRED: u8 = 1 << 1;

impl Marks {
    pub(crate) fn of(extra: bool) -> Marks {
        Marks(u8::from(extra))
    }

    pub(crate) fn has_extra(self) -> bool {
        self.0 & EXTRA != 0
    }

    pub(crate) fn set_extra(&mut self, extra: bool) {
        self.0 = self.0 & !EXTRA | u8::from(extra);
    }

    pub(crate) fn was_acquired(self) -> bool {
        self.0 & ACQUIRED != 0
    }

    pub(crate) fn set_acquired(&mut self) {
        self.0 |= ACQUIRED;
    }
}

/// The keys of one message; 0: it has no such id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashes {
    pub(crate) correlation: u64,
    pub(crate) message_id: u64,
}

/// Where the body is. Chunks are an extra; `Log` is then empty.
///
/// 16 bytes: what is in the log, which is most of a deep queue, sets the size. So the bytes of what
/// is in memory stand elsewhere, for one allocation more.
#[derive(Clone, Debug)]
pub(crate) enum EntryBody {
    Memory(Box<Bytes>),
    /// The fields of a [`BodyLocation`]: as one value in here it would take 24 bytes.
    Log {
        bytes: u32,
        lsn: Lsn,
    },
}

const _: () = assert!(size_of::<EntryBody>() <= 16);

impl EntryBody {
    /// Of a tombstone, or of a message with chunks, which are an extra.
    pub(crate) const NOWHERE: EntryBody = EntryBody::Log { bytes: 0, lsn: Lsn(0) };

    pub(crate) fn at(location: BodyLocation) -> EntryBody {
        let BodyLocation { lsn, bytes } = location;
        EntryBody::Log { bytes, lsn }
    }
}

/// Where a message is in its life.
///
/// | from      | to        | when                                                          |
/// |-----------|-----------|---------------------------------------------------------------|
/// | Available | Held      | delivered to a consumer                                       |
/// | Held      | Available | released, backed out, consumer closed                         |
/// | any live  | Leaving   | its end is decided (got, expired, moved) and on its way        |
/// | any live  | Gone      | its end is applied                                            |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// Any consumer may have it.
    Available,
    /// A consumer has it, or an open unit of work got it.
    Held,
    /// Hidden until the fact that ends it is applied.
    Leaving,
    /// A tombstone.
    Gone,
}

impl Entry {
    /// Whether it may no longer be delivered.
    pub(crate) fn is_expired(&self, now: Time) -> bool {
        self.expires_at <= now
    }

    pub(crate) fn expires(&self) -> bool {
        self.expires_at != Time::NEVER
    }

    /// Bytes of a body in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.place {
            EntryBody::Memory(bytes) => bytes.len() as u64,
            EntryBody::Log { .. } => 0,
        }
    }

    pub(crate) fn hashes(&self) -> Hashes {
        Hashes { correlation: self.correlation_hash, message_id: self.message_id_hash }
    }

    /// The header as producers and filters know it; `order` is the lane that it stands in, `extra`
    /// what the queue has of it besides.
    pub(crate) fn header(&self, order: u8, extra: Option<&Extra>) -> Header {
        Header {
            persistent: self.persistent,
            priority: self.priority,
            order,
            expires_at: self.expires().then_some(self.expires_at),
            put_at: self.put_at,
            correlation_hash: self.correlation_hash,
            message_id_hash: self.message_id_hash,
            group: self.group,
            group_sequence: extra.map_or(0, |extra| extra.group_sequence),
            deliver_at: extra.and_then(|extra| extra.deliver_at),
        }
    }
}
