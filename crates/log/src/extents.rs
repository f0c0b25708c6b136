//! Which files hold log, which are ready for more, and how much free space there is.
//!
//! Not here: making files (`preallocation`), recycling them (`reclaim`), reading them.
//!
//! Invariants: extents from `first` to `current` hold log, without gap, those in `ready` follow;
//! `current` is where batches are opened; `position` is a multiple of 4 KiB inside it, or its end;
//! at most one extent is not filled to its end, and it is the last of `current` and `ready`; an
//! extent that is being let go stays counted until its file is gone.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, io};

use towline_types::Lsn;

use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::folder::chain::ExtentOffset;
use crate::format::{BLOCK_BYTES, EXTENT_HEADER_BYTES, ExtentHeader, LogId, padded};

/// The last run of puts before the log is full may take one part in so many of the reserve.
const RESERVE_PART_OF_A_RUN: u64 = 4;
/// What relocates messages leaves one part in so many of the reserve to gets and ends of units.
/// That is little, because it frees at least twice what it takes, and gets alone may free nothing:
/// when they have used most of the reserve, it is what ends that.
const RESERVE_PART_FOR_GETS: u64 = 8;
const _: () = assert!(
    RESERVE_PART_OF_A_RUN + RESERVE_PART_FOR_GETS < RESERVE_PART_OF_A_RUN * RESERVE_PART_FOR_GETS,
    "the last run of puts leaves something to relocation"
);

/// How much free space the log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Enough.
    Ample,
    /// Fewer bytes than the reserve and one extent can be had.
    Low,
    /// Only the reserve: refuse what adds, allow what frees.
    Full,
}

/// An extent's file, open.
pub(crate) struct Extent {
    pub(crate) sequence: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Whether its header is known to be of the newest version, on disk.
    is_current: AtomicBool,
}

impl Extent {
    /// An extent that may have been made by an earlier version.
    pub(crate) fn found(sequence: u64, file: Arc<dyn DiskFile>) -> Extent {
        Extent { sequence, file, is_current: AtomicBool::new(false) }
    }

    /// One with a header of ours.
    pub(crate) fn made(sequence: u64, file: Arc<dyn DiskFile>) -> Extent {
        Extent { sequence, file, is_current: AtomicBool::new(true) }
    }

    /// Writes batches and syncs them; in an extent of an earlier version after a header of ours,
    /// so that an earlier program refuses the extent and does not take them for a torn tail. All
    /// that write beside each other do so until one sync has covered it: each batch is durable
    /// only with the header.
    pub(crate) fn write_batches(
        &self,
        bytes: &[u8],
        offset: u64,
        log_id: LogId,
        extent_bytes: u64,
    ) -> io::Result<()> {
        let was_current = self.is_current.load(Ordering::Acquire);
        if !was_current {
            self.renew_header(log_id, extent_bytes)?;
        }
        self.file.write_at(bytes, offset)?;
        self.file.sync_data()?;
        if !was_current {
            self.is_current.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// What changes of a header is in one sector, which is there whole or not at all.
    fn renew_header(&self, log_id: LogId, extent_bytes: u64) -> io::Result<()> {
        let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
        self.file.read_at(block.bytes_mut(), 0)?;
        let header = ExtentHeader { log_id, sequence: self.sequence, extent_bytes }.encode();
        if block.bytes() == header {
            return Ok(());
        }
        block.bytes_mut().copy_from_slice(&header);
        self.file.write_at(block.bytes(), 0)
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "extent {:x}", self.sequence)
    }
}

/// An extent behind the newest.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) extent: Arc<Extent>,
    /// Its end, but for one that was the newest when the end of the log was cut off.
    pub(crate) filled_to: u64,
}

/// All extents of a running log.
#[derive(Debug)]
pub(crate) struct Extents {
    pub(crate) extent_bytes: u64,
    /// The oldest that holds log.
    pub(crate) first: u64,
    /// Extents before a gap before `first`, which no image needs: let go when no body in them
    /// lives.
    pub(crate) below: BTreeSet<u64>,
    /// The one that is being let go.
    pub(crate) leaving: Option<u64>,
    /// The newest.
    pub(crate) current: Arc<Extent>,
    pub(crate) ready: VecDeque<Ready>,
    /// Names of files to be used again.
    pub(crate) spares: Vec<String>,
    /// Whether preallocation is giving a spare a new header.
    pub(crate) recycling: bool,
    /// Offset in the newest holding extent at which the next batch opens.
    pub(crate) position: u64,
    /// Up to where the newest holding extent was filled with zeros or written once.
    pub(crate) filled_to: u64,
    /// The disk has no space for the rest of the extent that is not filled.
    pub(crate) fill_refused: bool,
    /// How many extents `log_bytes_max` allows.
    pub(crate) count_max: u64,
    /// How many more files the disk had space for at the last look.
    pub(crate) disk_room: u64,
    pub(crate) reserve_bytes: u64,
}

/// Where a batch can be opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// In the newest extent, at its position; content up to `limit` bytes.
    Here { limit: u64 },
    /// At the beginning of the next extent, which is ready.
    Next,
    /// Preallocation is at work on it.
    Wait,
    /// Nowhere, unless extents are reclaimed or the disk gets free space.
    Nowhere,
}

/// An extent that is not filled with zeros to its end.
pub(crate) struct UnfilledExtent {
    pub(crate) extent: Arc<Extent>,
    /// Where the zeros end.
    pub(crate) filled_to: u64,
}

impl Extents {
    /// Where a batch of `need` bytes at least, header included, can be opened.
    pub(crate) fn room(&self, need: u64) -> Room {
        assert!(need <= self.extent_bytes - EXTENT_HEADER_BYTES as u64, "a batch fits an extent");
        assert!(self.position <= self.extent_bytes, "the position is inside the extent");
        if need <= self.extent_bytes - self.position {
            return match self.filled_to.checked_sub(self.position) {
                Some(limit) if limit >= need => Room::Here { limit },
                Some(_) | None => self.room_when_filled(),
            };
        }
        self.room_behind()
    }

    /// Whether the next extent can be gone on to.
    fn room_behind(&self) -> Room {
        if self.filled_to < self.extent_bytes {
            // An extent that is left has its full length: recovery counts on it.
            self.room_when_filled()
        } else if !self.ready.is_empty() {
            Room::Next
        } else if self.more_extents() > 0 {
            Room::Wait
        } else {
            Room::Nowhere
        }
    }

    /// What is to be done about an extent that is not filled yet.
    fn room_when_filled(&self) -> Room {
        if self.fill_refused { Room::Nowhere } else { Room::Wait }
    }

    /// Whether a batch of `bytes` bytes can be put at this offset, which lies at the position or at
    /// the beginning of the next extent.
    pub(crate) fn room_at(&self, place: ExtentOffset, bytes: u64) -> Room {
        let ExtentOffset { sequence, offset } = place;
        if sequence == self.current.sequence {
            assert_eq!(offset, self.position, "a batch goes where the one before it ends");
            return match self.filled_to.checked_sub(offset) {
                Some(limit) if limit >= bytes => Room::Here { limit },
                Some(_) | None => self.room_when_filled(),
            };
        }
        assert_eq!(sequence, self.current.sequence + 1, "{place:?} follows {self:?}");
        self.room_behind()
    }

    /// Goes back: to `position` of an earlier extent, which is whole, those behind it being ready
    /// again; or of this one.
    pub(crate) fn go_back(&mut self, to: Arc<Extent>, behind: Vec<Arc<Extent>>, position: u64) {
        assert!(position <= self.extent_bytes, "the position is inside the extent");
        assert!(to.sequence >= self.first, "the log is there from its first extent on");
        let left = self.current.sequence;
        if to.sequence < left {
            let left_filled_to = std::mem::replace(&mut self.filled_to, self.extent_bytes);
            for extent in behind.into_iter().rev() {
                // Only the newest may not be whole: preallocation continues with it.
                let is_newest = extent.sequence == left;
                let filled_to = if is_newest { left_filled_to } else { self.extent_bytes };
                self.ready.push_front(Ready { extent, filled_to });
            }
        }
        self.current = to;
        self.position = position;
        let next = self.ready.front().map_or(left + 1, |next| next.extent.sequence);
        assert_eq!(next, self.current.sequence + 1, "extents follow each other");
    }

    /// Goes on in the next extent.
    pub(crate) fn advance(&mut self) {
        assert_eq!(self.filled_to, self.extent_bytes, "an extent is left whole");
        let Some(next) = self.ready.pop_front() else { unreachable!("an extent is ready") };
        let sequence = next.extent.sequence;
        assert_eq!(sequence, self.current.sequence + 1, "extents follow each other: {self:?}");
        self.current = next.extent;
        self.position = EXTENT_HEADER_BYTES as u64;
        self.filled_to = next.filled_to;
    }

    /// The extent that is to be filled, and from where on.
    pub(crate) fn unfilled(&self) -> Option<UnfilledExtent> {
        let newest = self.ready.back().map(|ready| (&ready.extent, ready.filled_to));
        let (extent, filled_to) = newest.unwrap_or((&self.current, self.filled_to));
        let is_unfilled = filled_to < self.extent_bytes;
        is_unfilled.then(|| UnfilledExtent { extent: Arc::clone(extent), filled_to })
    }

    /// An extent was filled from `from` to `to`.
    pub(crate) fn filled(&mut self, sequence: u64, from: u64, to: u64) {
        let ready = self.ready.iter_mut().find(|ready| ready.extent.sequence == sequence);
        let filled_to = match ready {
            Some(ready) => &mut ready.filled_to,
            None => {
                assert_eq!(sequence, self.current.sequence, "what is filled is not let go");
                &mut self.filled_to
            }
        };
        assert_eq!(*filled_to, from, "only the preallocation thread fills");
        *filled_to = to;
        self.fill_refused = false;
    }

    /// The oldest extent, if it lies before `first_needed`: it counts as being let go until
    /// [`Extents::left`] or [`Extents::stays`], and is not read meanwhile.
    pub(crate) fn leave(&mut self, first_needed: u64) -> Option<u64> {
        assert!(self.leaving.is_none(), "extents go one after the other");
        let oldest = self.below.first().copied().unwrap_or(self.first);
        if oldest < first_needed && oldest < self.current.sequence {
            self.leaving = Some(oldest);
        }
        self.leaving
    }

    /// The extent that was being let go is gone; its file is `spare` if it was kept.
    pub(crate) fn left(&mut self, spare: Option<String>) {
        let Some(sequence) = self.leaving.take() else { return };
        if !self.below.remove(&sequence) {
            assert_eq!(sequence, self.first, "the oldest goes first");
            self.first += 1;
        }
        self.spares.extend(spare);
    }

    /// The extent that was to be let go is still there.
    pub(crate) fn stays(&mut self) {
        self.leaving = None;
    }

    /// Sequence of the extent that is made ready next.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.current.sequence + 1 + self.ready.len() as u64
    }

    /// Extents that hold log.
    pub(crate) fn holding(&self) -> u64 {
        self.current.sequence - self.first + 1
    }

    /// Whether an extent holds log.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        let is_there = (self.first..=self.current.sequence).contains(&sequence);
        (is_there || self.below.contains(&sequence)) && self.leaving != Some(sequence)
    }

    /// Files of extent size that are there.
    pub(crate) fn count(&self) -> u64 {
        self.holding() + (self.below.len() + self.ready.len()) as u64 + self.reusable()
    }

    fn reusable(&self) -> u64 {
        self.spares.len() as u64 + u64::from(self.recycling)
    }

    /// Extents that can still be made ready, from spares or new.
    pub(crate) fn more_extents(&self) -> u64 {
        let allowed = self.count_max.saturating_sub(self.count());
        self.reusable() + allowed.min(self.disk_room)
    }

    /// Bytes that are ready to be written.
    pub(crate) fn bytes_held(&self) -> u64 {
        if self.fill_refused && self.filled_to < self.extent_bytes {
            // What is ready behind it cannot be gone on to.
            return self.filled_to.saturating_sub(self.position);
        }
        let whole =
            |ready: &Ready| if self.fill_refused { ready.filled_to } else { self.extent_bytes };
        self.extent_bytes - self.position + self.ready.iter().map(whole).sum::<u64>()
    }

    /// Whether another extent should be made ready: the reserve and a whole extent are held.
    pub(crate) fn wants_ready(&self) -> bool {
        self.bytes_held() < self.reserve_bytes + self.extent_bytes && self.more_extents() > 0
    }

    /// Whether a run of `bytes` bytes, in records of `record_bytes_max` at most, finds no space in
    /// what is ready, but in what preallocation is at work on. `open_bytes` are in the open batch.
    pub(crate) fn comes_soon(&self, open_bytes: u64, bytes: u64, record_bytes_max: u64) -> bool {
        let is_filling = !self.fill_refused && self.unfilled().is_some();
        if !is_filling && !self.wants_ready() {
            return false;
        }
        // Headers, checks and padding are counted roughly.
        let need = bytes + bytes / 16 + 2 * BLOCK_BYTES as u64;
        let rest = self.filled_to.saturating_sub(self.position + open_bytes);
        if rest >= need {
            return false;
        }
        let is_left = self.filled_to == self.extent_bytes;
        let behind = self.ready.iter().filter(|_| is_left);
        let behind = behind.map(|ready| ready.filled_to - EXTENT_HEADER_BYTES as u64);
        if bytes <= record_bytes_max {
            return behind.max().is_none_or(|most| most < need);
        }
        // A batch does not cross the end of an extent.
        let usable = |bytes: u64| bytes.saturating_sub(record_bytes_max);
        usable(rest) + behind.map(usable).sum::<u64>() < need
    }

    /// Bytes that can still be written behind the position.
    fn bytes_to_come(&self) -> u64 {
        let more = if self.fill_refused { 0 } else { self.more_extents() };
        self.bytes_held().saturating_add(more.saturating_mul(self.extent_bytes))
    }

    /// Whether the log of a follower can come to end there, as far as is known.
    pub(crate) fn reaches(&self, end: Lsn) -> bool {
        let at = self.current.sequence * self.extent_bytes + self.position;
        padded(end.0.saturating_sub(at)) <= self.bytes_to_come()
    }

    /// Bytes that puts may still log, with so many in the open batch. Behind the last byte that is
    /// not reserve one run may reach a part into the reserve, so that the log comes to be full, and
    /// is reported as full, whatever the length of the messages.
    pub(crate) fn room_for_puts(&self, open_bytes: u64) -> u64 {
        let bytes = self.bytes_to_come().saturating_sub(open_bytes);
        match bytes.saturating_sub(self.reserve_bytes) {
            0 => 0,
            beside => beside.saturating_add(self.reserve_bytes / RESERVE_PART_OF_A_RUN),
        }
    }

    /// Bytes that relocation may still log, with so many in the open batch: some of the reserve
    /// too, because it frees more than it takes.
    pub(crate) fn room_for_relocation(&self, open_bytes: u64) -> u64 {
        let bytes = self.bytes_to_come().saturating_sub(open_bytes);
        bytes.saturating_sub(self.reserve_bytes / RESERVE_PART_FOR_GETS)
    }

    /// How much free space there is, with so many bytes in the open batch.
    pub(crate) fn space(&self, open_bytes: u64) -> Space {
        let bytes = self.bytes_to_come().saturating_sub(open_bytes);
        if bytes <= self.reserve_bytes {
            Space::Full
        } else if bytes < self.reserve_bytes + self.extent_bytes {
            Space::Low
        } else {
            Space::Ample
        }
    }
}
