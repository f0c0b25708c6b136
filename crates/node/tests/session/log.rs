//! A log in memory, durable when the test says so.

use std::cell::{Cell, RefCell};

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Body, Durability, Fact, record};
use towline_node::{Journal, NotAppended};
use towline_types::{BodyLocation, Lsn, Time};

/// A log in memory.
#[derive(Default)]
pub(crate) struct MemoryLog {
    pub(crate) records: RefCell<Vec<(Lsn, Vec<u8>)>>,
    pub(crate) tail: Cell<u64>,
    pub(crate) durable: Cell<u64>,
    pub(crate) held: Cell<bool>,
    pub(crate) full: Cell<bool>,
    /// It takes no run until this is over.
    pub(crate) behind: Cell<bool>,
    /// Where the reserve begins.
    pub(crate) bytes_max: Cell<Option<u64>>,
    /// Nothing is in memory any more: what is read comes by a fetch.
    pub(crate) cold: Cell<bool>,
}

impl Journal for MemoryLog {
    fn append(&self, facts: &mut [Fact], _: Durability) -> Result<Lsn, NotAppended> {
        if self.full.get() {
            return Err(NotAppended::Full);
        }
        if self.behind.get() {
            return Err(NotAppended::Behind);
        }
        let count = facts.len();
        for (index, fact) in facts.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            let body_at = record::encode(fact, index + 1 == count, &mut bytes);
            let at = Lsn(self.tail.get());
            self.tail.set(at.0 + bytes.len() as u64);
            if let Some(range) = body_at {
                let bytes = u32::try_from(range.len()).unwrap();
                let place = BodyLocation { lsn: at.after(range.start as u64), bytes };
                match fact {
                    Fact::Put { message, .. } => message.body = Body::Log(place),
                    Fact::BodyChunk { chunk, .. } => *chunk = Body::Log(place),
                    _ => {}
                }
            }
            self.records.borrow_mut().push((at, bytes));
        }
        if !self.held.get() {
            self.durable.set(self.tail.get());
        }
        Ok(Lsn(self.tail.get()))
    }

    fn room_for_puts(&self) -> u64 {
        self.bytes_max.get().map_or(u64::MAX, |max| max.saturating_sub(self.tail.get()))
    }

    fn resident(&self, location: BodyLocation) -> Option<Bytes> {
        if self.cold.get() { None } else { self.read(location) }
    }

    fn surroundings(&self, _: Time) -> Status {
        Status::default()
    }
}

impl MemoryLog {
    /// As a disk would: whatever is in memory.
    pub(crate) fn read(&self, location: BodyLocation) -> Option<Bytes> {
        let records = self.records.borrow();
        let (at, bytes) = records.iter().rev().find(|(at, _)| *at <= location.lsn)?;
        let start = usize::try_from(location.lsn.0 - at.0).unwrap();
        bytes.get(start..start + location.bytes as usize).map(Bytes::copy_from_slice)
    }
}
