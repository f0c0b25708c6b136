//! Acting on the verdict: what a crash left is put away, and the state of a running log is made.
//!
//! Not here: any judgement. Called only when the whole log was found sound.
//!
//! Invariant: of batches only the first block is erased, and only of those behind the tail, which
//! were never reported durable.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex};

use super::scan::Place;
use super::{Recovery, Tail};
use crate::block::Aligned;
use crate::cache::Cache;
use crate::error::LogError;
use crate::extents::{Extent, Extents, Space};
use crate::format::{BLOCK_BYTES, extent_name, image_name};
use crate::histogram::Written;
use crate::log::Listener;
use crate::rule::TypicalWrite;
use crate::shared::{Chain, Housekeeping, Phase, Reported, Shared, State};

impl Recovery {
    /// Erases batches behind the tail and puts useless files away.
    pub(super) fn repair(&mut self, tail: Place, ghosts: &[Place]) -> Result<(), LogError> {
        for place in ghosts.iter().chain([&tail]) {
            let name = extent_name(place.sequence);
            self.erase(*place).map_err(|e| LogError::io("cut the torn tail off", &name, e))?;
        }
        let folder = self.disk.name();
        self.put_files_away(tail).map_err(|e| LogError::io("tidy the log folder", &folder, e))
    }

    /// Writes zeros over the first block at a place, unless zeros are there.
    fn erase(&self, place: Place) -> io::Result<()> {
        let Some(found) = self.extents.get(&place.sequence) else { return Ok(()) };
        if place.offset >= found.length {
            return Ok(());
        }
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        found.file.read_at(block.bytes_mut(), place.offset)?;
        if block.bytes().iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        block.bytes_mut().fill(0);
        found.file.write_at(block.bytes(), place.offset)?;
        found.file.sync_data()
    }

    fn put_files_away(&mut self, tail: Place) -> io::Result<()> {
        let mut changed = false;
        for name in self.folder.leftovers.drain(..) {
            self.disk.remove(&name)?;
            changed = true;
        }
        for at in self.damaged_images.drain(..) {
            // Kept under another name, for whoever wants to know what happened to it.
            let name = image_name(at);
            self.disk.rename(&name, &format!("damaged-{name}"))?;
            self.folder.images.retain(|image| *image != at);
            changed = true;
        }
        // Only spares of full length are of use.
        let extent_bytes = self.options.extent_bytes;
        let useless = |length: u64| length != extent_bytes;
        for (name, _) in self.folder.spares.extract_if(.., |spare| useless(spare.1)) {
            self.disk.remove(&name)?;
            changed = true;
        }
        // An extent made ready has its full length; one behind the tail that has not is no use.
        let short = |(sequence, length): (u64, u64)| sequence > tail.sequence && useless(length);
        let files = self.extents.iter().map(|(sequence, found)| (*sequence, found.length));
        if let Some((first_short, _)) = files.clone().find(|file| short(*file)) {
            for (sequence, _) in self.extents.split_off(&first_short).iter().rev() {
                self.disk.remove(&extent_name(*sequence))?;
                changed = true;
            }
        }
        if changed { self.disk.sync_names() } else { Ok(()) }
    }

    /// The state of the running log.
    pub(super) fn into_shared(self, listener: Arc<dyn Listener>) -> Result<Shared, LogError> {
        let tail = self.tail.as_ref();
        assert!(tail.is_some(), "a log is started after replay");
        let Some(tail) = tail else { return Err(LogError::Stopped) };
        let term = tail.link.term.checked_add(1);
        let term = term.ok_or(LogError::Options { what: "the log has no terms left" })?;
        let (link, end) = (tail.link, tail.end);
        let extents = self.extents_of(tail)?;
        let images = self.folder.images;
        let state = State {
            phase: Phase::Running,
            appending: false,
            given_up: false,
            open: None,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            flights: VecDeque::new(),
            typical_write: TypicalWrite::default(),
            reporting: 0,
            next_index: link.index + 1,
            durable: end,
            sealed_end: end,
            tail: end,
            commits: 0,
            writers_idle: 0,
            appenders_waiting: 0,
            extents,
            space: Space::Ample,
            pool: Vec::new(),
        };
        Ok(Shared {
            cache: Mutex::new(Cache::new(self.options.cache_bytes)),
            disk: self.disk,
            options: self.options,
            log_id: self.log_id,
            term,
            listener,
            state: Mutex::new(state),
            writers: Condvar::new(),
            appenders: Condvar::new(),
            keeper: Condvar::new(),
            teller: Condvar::new(),
            chain: Chain::new(link.index + 1, link.checksum),
            written: Mutex::new(Written::default()),
            reported: Mutex::new(Reported { upto: end, failed: false }),
            housekeeping: Mutex::new(Housekeeping { images }),
            durable: AtomicU64::new(end.0),
            tail: AtomicU64::new(end.0),
            unsynced: AtomicU64::new(0),
        })
    }

    fn extents_of(&self, tail: &Tail) -> Result<Extents, LogError> {
        let extent_bytes = self.options.extent_bytes;
        let all = self.extents.iter().map(|(&sequence, found)| {
            (sequence, Arc::new(Extent { sequence, file: Arc::clone(&found.file) }))
        });
        let (holding, ready): (Vec<_>, Vec<_>) =
            all.partition(|(sequence, _)| *sequence <= tail.place.sequence);
        let current = holding.last().map(|(_, extent)| Arc::clone(extent));
        assert!(current.is_some(), "the tail lies in an extent");
        let Some(current) = current else { return Err(LogError::Stopped) };
        let length = self.extents.get(&current.sequence).map_or(0, |found| found.length);
        Ok(Extents {
            extent_bytes,
            holding: holding.into_iter().collect(),
            current,
            ready: ready.into_iter().map(|(_, extent)| extent).collect(),
            spares: self.folder.spares.iter().map(|(name, _)| name.clone()).collect(),
            recycling: false,
            position: tail.place.offset,
            filled_to: length.max(tail.place.offset).min(extent_bytes),
            count_max: self.options.log_bytes_max / extent_bytes,
            disk_room: self.disk.free_bytes() / extent_bytes,
            reserve_bytes: self.options.reserve_bytes,
        })
    }
}
