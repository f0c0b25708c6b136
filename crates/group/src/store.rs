//! The log as the library `raft` sees it: terms and entries by index.
//!
//! Entries for others to read carry their payload; entries that are only counted (committed ones,
//! for which the driver has its own way) do not.

use std::cell::RefCell;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use towline_types::{BatchPlace, Lsn};

use crate::payloads::Payloads;
use crate::table::Table;

/// Entries that the library gets at once, at most.
const ENTRIES_MAX: u64 = 4_096;

/// What the library wants to read and is not in memory.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    pub(crate) first: u64,
    pub(crate) context: GetEntriesContext,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) table: Table,
    pub(crate) payloads: Payloads,
    /// As of the start; the library keeps its own after it.
    pub(crate) hard: HardState,
    pub(crate) voters: Vec<u64>,
    /// Filled by `entries`, emptied by the member.
    pub(crate) wanted: RefCell<Vec<FetchRequest>>,
}

impl Store {
    /// Where the batch of an entry is, as the entry carries it.
    pub(crate) fn lsn(&self, index: u64) -> Option<Lsn> {
        self.table.place(index).map(|place| place.lsn)
    }

    fn entry(place: BatchPlace) -> Entry {
        Entry { index: place.index, term: place.term, ..Entry::default() }
    }

    fn counted(&self, low: u64, high: u64) -> Vec<Entry> {
        let high = high.min(low.saturating_add(ENTRIES_MAX));
        (low..high).map_while(|index| self.table.place(index)).map(Store::entry).collect()
    }

    /// Entries from `low` to before `high` with what is in memory of them, of about `bytes_max`
    /// bytes; at least one, if the first one is.
    pub(crate) fn with_payloads(&self, low: u64, high: u64, bytes_max: u64) -> Vec<Entry> {
        let mut bytes = 0;
        let mut entries = Vec::new();
        for index in low..high {
            let (Some(place), Some(payload)) = (self.table.place(index), self.payloads.get(index))
            else {
                break;
            };
            bytes += payload.len() as u64;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(Entry { data: payload.clone(), ..Store::entry(place) });
        }
        entries
    }
}

impl Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let voters = ConfState { voters: self.voters.clone(), ..ConfState::default() };
        Ok(RaftState::new(self.hard.clone(), voters))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.table.base().index {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        if !context.can_async() {
            return Ok(self.counted(low, high));
        }
        let entries = self.with_payloads(low, high, max_size.into().unwrap_or(u64::MAX));
        if entries.is_empty() && low < high {
            self.wanted.borrow_mut().push(FetchRequest { first: low, context });
            return Err(raft::Error::Store(StorageError::LogTemporarilyUnavailable));
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.table.base().index {
            StorageError::Compacted
        } else {
            StorageError::Unavailable
        };
        self.table.place(index).map(|place| place.term).ok_or(raft::Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.table.base().index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.table.last().index)
    }

    /// Says only up to which batch a copy must take a member: the copy itself takes another way.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let base = self.table.base();
        let metadata = snapshot.mut_metadata();
        metadata.index = base.index.max(1);
        metadata.term = base.term.max(1);
        Ok(snapshot)
    }
}
