//! Acting on the verdict: what a crash left is put away, and the state of a running log is made.
//!
//! Not here: any judgement. Called only when the whole log was found sound.
//!
//! Invariants: of batches only the first block is erased, and only of those behind the tail, which
//! were never reported durable; what the running log calls durable was synced by this process,
//! content and names: the one before may have died between a write and its sync.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use towline_os::sync::{Condvar, Mutex};

use towline_delegation::DelegationLock;
use towline_types::Lsn;

use super::{Recovery, Tail};
use crate::block::Aligned;
use crate::cache::Cache;
use crate::error::{LogError, is_full};
use crate::extents::{Extent, Extents, Ready, Space};
use crate::folder::chain::{ExtentOffset, Link};
use crate::folder::images;
use crate::folder::names::{extent_name, image_name};
use crate::format::{BLOCK_BYTES, EXTENT_HEADER_BYTES, size};
use crate::histogram::WriteFigures;
use crate::listener::Listener;
use crate::mark::{Seam, Seams};
use crate::member::{Follower, KnownBatch, Member, Replicator, Role};
use crate::needs::{ImagePlace, Needs};
use crate::rule::{TypicalCompany, TypicalWrite};
use crate::shared::{Chain, Housekeeping, LogState, Phase, ReportPosition, Shared};

/// How much is written again at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// As what a log begins.
pub(super) enum Begins {
    /// It appends, with a term of its own.
    Writing,
    /// It takes what a leader sends.
    Following(Arc<dyn Replicator>),
}

impl Begins {
    /// What depends on it: `known` are the batches that replay read, `last` is the newest.
    fn state(
        self,
        known: Vec<KnownBatch>,
        last: Seam,
    ) -> Result<(Role, Option<Member>, u32, Seams), LogError> {
        match self {
            Begins::Writing => {
                let term = last.term.checked_add(1);
                let term = term.ok_or(LogError::Options { what: "the log has no terms left" })?;
                Ok((Role::Writing, None, term, Seams::new(last)))
            }
            Begins::Following(replicator) => {
                let known = if known.is_empty() { vec![KnownBatch::of_seam(last)] } else { known };
                let seams =
                    Seams::of(known.iter().filter(|batch| batch.is_seam).map(KnownBatch::seam));
                let role = Role::Following(Box::new(Follower::new(known.into_iter())));
                Ok((role, Some(Member::new(&replicator)), last.term, seams))
            }
        }
    }
}

impl Recovery {
    /// Erases batches behind the tail, makes durable what was found, and puts useless files away.
    /// `from` is the first extent that was read. Returns how many syncs that took.
    ///
    /// A process that is killed leaves its writes with the kernel or in the cache of the disk: they
    /// are read back as if they were safe, and a power cut takes them. So all that was read is
    /// synced here before any listener learns that it is durable. That an erased batch is zeros may
    /// be such a write too (of a process that died while it cut off the end of the log), and the
    /// batch would come back: so the extents behind the tail are synced as well. What lies before
    /// the first extent that was read was durable when the image was taken.
    pub(super) fn repair(
        &mut self,
        from: u64,
        tail: ExtentOffset,
        ghosts: &[ExtentOffset],
    ) -> Result<u64, LogError> {
        for place in ghosts.iter().chain([&tail]) {
            let name = extent_name(place.sequence);
            self.erase(*place).map_err(|e| LogError::io("cut the torn tail off", &name, e))?;
        }
        if self.disk.is_buffered() {
            self.write_again(from, tail)?;
        }
        let mut syncs = 0;
        for &sequence in self.files.lengths.range(from..).map(|(sequence, _)| sequence) {
            let synced = self.files.file(sequence).and_then(|file| file.sync_data());
            synced.map_err(|e| LogError::io("sync what was read", &extent_name(sequence), e))?;
            syncs += 1;
        }
        let folder = self.disk.name();
        self.put_files_away(tail).map_err(|e| LogError::io("tidy the log folder", &folder, e))?;
        // Also when nothing was put away: a name that the process before gave may not be safe yet.
        self.disk.sync_names().map_err(|e| LogError::io("sync the log folder", &folder, e))?;
        Ok(syncs + 1)
    }

    /// Writes the bytes around the tail anew, so that the sync covers them. The process before may
    /// have ended because a sync failed: then the system's memory may hold batches, and zeros over
    /// batches, that are not on the medium and that no sync would write. They lie no farther from
    /// the tail than what is in flight at a time, and in a file's header.
    fn write_again(&self, from: u64, tail: ExtentOffset) -> Result<(), LogError> {
        let reach = self.options.stray_bytes();
        let mut before = reach.saturating_sub(tail.offset);
        let mut ranges = Vec::new();
        for (&sequence, &length) in self.files.lengths.range(from..).rev() {
            let range = match sequence.cmp(&tail.sequence) {
                Ordering::Greater => 0..reach.min(length),
                Ordering::Equal => {
                    tail.offset.saturating_sub(reach)..length.min(tail.offset + reach)
                }
                Ordering::Less => {
                    let taken = before.min(length);
                    before -= taken;
                    length - taken..length
                }
            };
            ranges.push((sequence, 0..(EXTENT_HEADER_BYTES as u64).min(length)));
            ranges.push((sequence, range));
        }
        for (sequence, range) in ranges {
            match self.write_range_again(sequence, range) {
                // Where even the same bytes need free space. What is there can still be got.
                Err(error) if is_full(&error) => {}
                written => {
                    let name = extent_name(sequence);
                    written.map_err(|e| LogError::io("write what was read again", &name, e))?;
                }
            }
        }
        Ok(())
    }

    fn write_range_again(&self, sequence: u64, range: Range<u64>) -> io::Result<()> {
        let file = self.files.file(sequence)?;
        let mut at = range.start - range.start % BLOCK_BYTES as u64;
        let mut buffer = Aligned::zeroed(REWRITE_BYTES);
        while at < range.end {
            let wanted = size((range.end - at).min(REWRITE_BYTES as u64));
            let found = file.read_at(&mut buffer.bytes_mut()[..wanted], at)?;
            if found == 0 {
                break;
            }
            file.write_at(buffer.first(found), at)?;
            at += found as u64;
        }
        Ok(())
    }

    /// Writes zeros over the first block at a location, unless zeros are there.
    fn erase(&self, place: ExtentOffset) -> io::Result<()> {
        let Some(length) = self.files.length(place.sequence) else {
            unreachable!("the scan stopped in an extent that is there")
        };
        if place.offset >= length {
            return Ok(());
        }
        let file = self.files.file(place.sequence)?;
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        file.read_at(block.bytes_mut(), place.offset)?;
        if block.bytes().iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        block.bytes_mut().fill(0);
        file.write_at(block.bytes(), place.offset)
    }

    fn put_files_away(&mut self, tail: ExtentOffset) -> io::Result<()> {
        for name in self.folder.leftovers.drain(..) {
            self.disk.remove(&name)?;
        }
        for at in self.damaged_images.drain(..) {
            // Kept under another name, as evidence of what happened to it.
            let name = image_name(at);
            self.disk.rename(&name, &format!("damaged-{name}"))?;
            self.folder.images.retain(|image| *image != at);
        }
        // Only spares of full length are of use.
        let extent_bytes = self.options.extent_bytes;
        let useless = |length: u64| length != extent_bytes;
        for (name, _) in self.folder.spares.extract_if(.., |spare| useless(spare.1)) {
            self.disk.remove(&name)?;
        }
        // An extent made ready has its full length; one behind the tail that has not is no use.
        let mut behind = self.files.lengths.range(tail.sequence + 1..);
        if let Some(first_short) = behind.find(|(_, length)| useless(**length)) {
            let first_short = *first_short.0;
            for (sequence, _) in self.files.lengths.split_off(&first_short).iter().rev() {
                self.files.handles.forget(*sequence);
                self.disk.remove(&extent_name(*sequence))?;
            }
        }
        Ok(())
    }

    /// The state of the running log.
    pub(super) fn into_shared(
        mut self,
        listener: Arc<dyn Listener>,
        begins: Begins,
    ) -> Result<Shared, LogError> {
        assert!(!self.looks_only, "a log that was only looked at is not whole on the disk");
        let known = self.seen.take();
        let tail = self.tail.as_ref();
        assert!(tail.is_some(), "a log is started after replay");
        let Some(tail) = tail else { return Err(LogError::Stopped) };
        let (link, end) = (tail.link, tail.end);
        let extents = self.extents_of(tail)?;
        let images = self.image_places()?;
        let Link { checksum, index, term } = link;
        let seam = Seam { end, index, checksum, term, bytes: tail.batch_bytes };
        let (role, member, term, seams) = begins.state(known, seam)?;
        let log_id = self.files.identity().log_id;
        let first = Lsn(self.files.first() * self.options.extent_bytes);
        let state = LogState {
            phase: Phase::Running,
            role,
            term,
            appending: false,
            given_up: false,
            open: None,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            flights: VecDeque::new(),
            uncommitted: None,
            typical_write: TypicalWrite::default(),
            typical_company: TypicalCompany::default(),
            reporting: 0,
            next_index: link.index + 1,
            durable: end,
            seams,
            sealed_end: end,
            tail: end,
            commits: 0,
            writers_idle: 0,
            writer_looks: false,
            waits_for_extent: None,
            appenders_waiting: 0,
            behind: false,
            caught_up: false,
            extents,
            space: Space::Ample,
            hindrance: None,
            pool: Vec::new(),
        };
        Ok(Shared {
            cache: Mutex::new(Cache::new(self.options.cache_bytes)),
            disk: self.disk,
            options: self.options,
            log_id,
            listener: Arc::downgrade(&listener),
            member,
            state: Mutex::new(state),
            writers: Condvar::new(),
            appenders: Condvar::new(),
            preallocation: Condvar::new(),
            space_notifier: Condvar::new(),
            handles: self.files.handles,
            chain: Chain::new(link.index + 1, link.checksum),
            written: Mutex::new(WriteFigures::default()),
            reported: DelegationLock::new(ReportPosition { upto: end, failed: false }),
            needs: Mutex::new(Needs::new(first, &images)),
            holds: Arc::default(),
            housekeeping: Mutex::new(Housekeeping { images }),
            durable: AtomicU64::new(end.0),
            tail: AtomicU64::new(end.0),
            unsynced: AtomicU64::new(0),
            // The preallocation thread knows it as soon as it has asked the disk.
            room_for_puts: AtomicU64::new(u64::MAX),
        })
    }

    /// The images that are kept, and what they need of the log.
    fn image_places(&self) -> Result<Vec<ImagePlace>, LogError> {
        let mut places = Vec::new();
        for &at in &self.folder.images {
            let known = self.image.as_ref().map(|(header, _)| *header);
            let header = match known.filter(|header| header.at == at) {
                Some(header) => Some(header),
                // It may be unreadable: it is only the next one that may be needed.
                None => images::load_header(self.disk.as_ref(), at).ok().flatten(),
            };
            let needs = header.map_or(Lsn(at.0.saturating_sub(1)), |header| header.needs());
            places.push(ImagePlace { at, needs });
        }
        Ok(places)
    }

    fn extents_of(&self, tail: &Tail) -> Result<Extents, LogError> {
        let extent_bytes = self.options.extent_bytes;
        let open = |sequence: u64| -> Result<Arc<Extent>, LogError> {
            Ok(Arc::new(Extent::found(sequence, self.files.handles.get(sequence)?)))
        };
        let current = open(tail.place.sequence)?;
        let behind = self.files.lengths.range(tail.place.sequence + 1..);
        let ready = |sequence| Ok(Ready { extent: open(sequence)?, filled_to: extent_bytes });
        let ready: Result<_, LogError> = behind.map(|(sequence, _)| ready(*sequence)).collect();
        let Some(length) = self.files.length(current.sequence) else {
            unreachable!("the log ends in an extent that is there")
        };
        Ok(Extents {
            extent_bytes,
            first: self.files.first(),
            below: self.files.below.keys().copied().collect(),
            leaving: None,
            current,
            ready: ready?,
            spares: self.folder.spares.iter().map(|(name, _)| name.clone()).collect(),
            recycling: false,
            position: tail.place.offset,
            filled_to: length.max(tail.place.offset).min(extent_bytes),
            fill_refused: false,
            count_max: self.options.log_bytes_max / extent_bytes,
            disk_room: self.disk.free_bytes() / extent_bytes,
            reserve_bytes: self.options.reserve_bytes,
        })
    }
}
