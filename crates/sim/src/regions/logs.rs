//! The logs of both regions, batch by batch: whatever one instance knows as committed is the same
//! for all, what leaves the live region is on the synced bytes of its majority, and so is, in the
//! recovery region, what that one reports.
//!
//! Not here: what the batches mean. Invariants: a batch is named by its index and its term, in both
//! regions and all histories; none of the locks here is held while a coroutine waits.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use towline_os::simulated::fs::FileSystem;
use towline_region::RecoveryPoint;
use towline_region::wire::{Batches, KIND_BATCHES, KIND_POINT};
use towline_types::{BATCH_HEADER_BYTES, Batch, BatchPlace, Lsn};

use super::wires::{MEMBERS_MAX, region_of};

/// Batches of which all is kept; of older ones the checksum is.
const NEWEST_MAX: usize = 2_000;

/// See the module.
pub(super) struct Logs {
    /// Of each end.
    disks: Vec<FileSystem>,
    members: [usize; 2],
    extent_bytes: u64,
    inner: Mutex<LogsState>,
}

#[derive(Default)]
struct LogsState {
    /// By index and term.
    batches: BTreeMap<(u64, u64), KnownBatch>,
    /// Those with their payloads.
    newest: VecDeque<(u64, u64)>,
    counts: LogCounts,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogCounts {
    pub(super) compared: u64,
    pub(super) shipped: u64,
    pub(super) points: u64,
}

struct KnownBatch {
    lsn: Lsn,
    sum: u32,
    /// As long as it is one of the newest.
    payload: Option<Bytes>,
    /// Term of the one before.
    before: Option<u64>,
}

impl Logs {
    pub(super) fn new(disks: Vec<FileSystem>, members: [usize; 2], extent_bytes: u64) -> Logs {
        Logs { disks, members, extent_bytes, inner: Mutex::default() }
    }

    pub(super) fn counts(&self) -> LogCounts {
        self.inner.lock().counts
    }

    /// An instance knows these batches as committed. `before`: the one before the first of them.
    pub(super) fn committed(
        &self,
        end: usize,
        mut before: BatchPlace,
        batches: &[Batch],
    ) -> Result<(), String> {
        for batch in batches {
            let follows = before.index + 1 == batch.index;
            let term = follows.then_some(before.term).filter(|_| before.index > 0);
            let is_new = self.note(batch, term, "is committed")?;
            if is_new && self.holders(region_of(end), batch).is_empty() {
                return Err(format!("{} is committed, and is on no disk there", named(batch)));
            }
            self.inner.lock().counts.compared += 1;
            before = batch.place();
        }
        Ok(())
    }

    /// Whether the batch is new; an error if it is another one than before.
    fn note(&self, batch: &Batch, before: Option<u64>, what: &str) -> Result<bool, String> {
        let sum = crc32c::crc32c(&batch.payload);
        let mut inner = self.inner.lock();
        let known = inner.batches.get_mut(&(batch.index, batch.term));
        let Some(known) = known else {
            // A copy: a part of what was read keeps all of it.
            let payload = Some(Bytes::copy_from_slice(&batch.payload));
            let known = KnownBatch { lsn: batch.lsn, sum, payload, before };
            inner.batches.insert((batch.index, batch.term), known);
            inner.newest.push_back((batch.index, batch.term));
            if inner.newest.len() > NEWEST_MAX
                && let Some(oldest) = inner.newest.pop_front()
                && let Some(known) = inner.batches.get_mut(&oldest)
            {
                known.payload = None;
            }
            return Ok(true);
        };
        if known.lsn != batch.lsn || known.sum != sum {
            return Err(format!("{} {what}, and is another one at {}", named(batch), known.lsn));
        }
        if let (Some(known), Some(before)) = (known.before, before)
            && known != before
        {
            return Err(format!(
                "{} {what} behind term {before}, and {known} before",
                named(batch)
            ));
        }
        known.before = known.before.or(before);
        Ok(false)
    }

    /// A frame leaves an instance.
    pub(super) fn leaves(&self, end: usize, kind: u8, body: &Bytes) -> Result<(), String> {
        match kind {
            KIND_BATCHES => self.ships(end, body),
            KIND_POINT => self.reports(end, body),
            _ => Ok(()),
        }
    }

    fn ships(&self, end: usize, body: &Bytes) -> Result<(), String> {
        let Ok(Batches { previous, batches, .. }) = Batches::decode(body) else {
            return Err(format!("instance {end} ships what cannot be read"));
        };
        let mut before = (previous.index > 0).then_some(previous.term);
        for batch in &batches {
            self.note(batch, before, "is shipped")?;
            let holders = self.holders(region_of(end), batch);
            if holders.len() <= self.members[region_of(end)] / 2 {
                let batch = named(batch);
                return Err(format!("{batch} is shipped, and on the disks {holders:?} there"));
            }
            before = Some(batch.term);
        }
        self.inner.lock().counts.shipped += batches.len() as u64;
        Ok(())
    }

    fn reports(&self, end: usize, body: &Bytes) -> Result<(), String> {
        let Ok(RecoveryPoint { place, .. }) = RecoveryPoint::decode(body) else {
            return Err(format!("instance {end} reports what cannot be read"));
        };
        let mut inner = self.inner.lock();
        inner.counts.points += 1;
        // One that came with a copy may never have been seen.
        let known = inner.batches.get(&(place.index, place.term));
        let known = known.and_then(|known| Some((known.lsn, known.payload.clone()?)));
        let Some((lsn, payload)) = known else { return Ok(()) };
        let batch = Batch { index: place.index, term: place.term, lsn, payload };
        drop(inner);
        if batch.place() != place {
            return Err(format!("instance {end} reports {place:?}, and that is {}", named(&batch)));
        }
        let holders = self.holders(region_of(end), &batch);
        match holders.len() > self.members[region_of(end)] / 2 {
            true => Ok(()),
            false => Err(format!(
                "instance {end} reports {}, and of the disks there {holders:?} have it",
                named(&batch)
            )),
        }
    }

    /// The members of a region whose disks have a batch synced.
    fn holders(&self, region: usize, batch: &Batch) -> Vec<usize> {
        let disk = |member: &usize| &self.disks[region * MEMBERS_MAX + member];
        let members = 0..self.members[region];
        members.filter(|member| self.has_synced(disk(member), batch)).collect()
    }

    /// Whether a batch would survive a power cut now, in the log or in the image that made its
    /// extent needless.
    fn has_synced(&self, disk: &FileSystem, batch: &Batch) -> bool {
        let at = batch.lsn.0 + BATCH_HEADER_BYTES;
        let name = format!("extent-{:016x}", batch.lsn.0 / self.extent_bytes);
        let oldest = disk.first_name("/qms/log", "extent-");
        let is_reclaimed = oldest.is_some_and(|oldest| oldest > name);
        let path = format!("/qms/log/{name}");
        is_reclaimed || disk.is_synced(path, at % self.extent_bytes, &batch.payload)
    }
}

fn named(batch: &Batch) -> String {
    format!("batch {} of term {} at {}", batch.index, batch.term, batch.lsn)
}
