//! Start of the log of an instance of a group.
//!
//! Not here: what the group decided. The log of such an instance may go on with the term it has:
//! its leader wrote on while it was away. What recovery cuts off is erased, so nothing of it can
//! pass for what comes instead.

use std::sync::Arc;

use towline_types::{BatchPlace, Lsn};

use super::{Recovery, earlier, repair};
use crate::error::LogError;
use crate::format::BatchHeader;
use crate::listener::Listener;
use crate::log::Log;
use crate::mark::Seam;
use crate::member::{KnownBatch, Replicator, RunStream};
use crate::record::RunAssembler;

/// Positions of the batches that a start knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlaces {
    /// The batch behind which reading began: with index and term 0 and no position at the beginning
    /// of a log. When what is before the first batch is not known (reading began at the oldest
    /// extent, or with an image of format version 1), that one is the base.
    pub base: BatchPlace,
    /// The batches behind it, in order.
    pub batches: Vec<BatchPlace>,
}

/// Where the runs go on that replay yielded.
#[derive(Clone, Debug)]
pub struct ResumedStream {
    /// Index of the last batch of which replay yielded runs; that of the base when there was none.
    pub fed: u64,
    /// Takes the next batch.
    pub stream: RunStream,
}

/// What replay remembers for an instance of a group.
#[derive(Debug)]
pub(super) struct ReplayMemory {
    /// Whether it remembers anything.
    keeps: bool,
    /// Runs that end in a batch behind this one are not yielded.
    committed: u64,
    /// But those that the image covers, also when it is not used: it was made of what was
    /// committed, and the next image that is taken may be the same position again.
    covered: Lsn,
    /// The batches that replay read, the position where it began before them.
    known: Vec<KnownBatch>,
    /// Index of the last batch that was not held back, and what was unfinished there.
    fed: u64,
    stream: RunStream,
}

impl Default for ReplayMemory {
    fn default() -> ReplayMemory {
        let (committed, covered) = (u64::MAX, Lsn::ZERO);
        let (known, stream) = (Vec::new(), RunStream::new());
        ReplayMemory { keeps: false, committed, covered, known, fed: 0, stream }
    }
}

impl ReplayMemory {
    /// The same wishes, nothing read but the batch before the position where reading begins; with
    /// an image that covers the log up to `covered`.
    pub(super) fn begin(&self, begun: Option<Seam>, covered: Lsn) -> ReplayMemory {
        let ReplayMemory { keeps, committed, .. } = *self;
        let known = begun.into_iter().filter(|_| keeps).map(KnownBatch::of_seam).collect();
        let fed = begun.map_or(0, |begun| begun.index);
        ReplayMemory { keeps, committed, covered, known, fed, stream: RunStream::new() }
    }

    /// How much of an unfinished run is to be held, if `bytes` are enough for replay itself.
    pub(super) fn run_bytes_max(&self, bytes: usize) -> usize {
        if self.keeps { usize::MAX } else { bytes }
    }

    /// Whether nothing in a batch is to be yielded: it was not known to be committed.
    pub(super) fn holds_back(&self, header: &BatchHeader) -> bool {
        header.index > self.committed && header.lsn >= self.covered
    }

    pub(super) fn add(&mut self, header: &BatchHeader, is_seam: bool) {
        if self.keeps {
            self.known.push(KnownBatch::of(header, is_seam));
        }
    }

    /// A batch was not held back.
    pub(super) fn fed(&mut self, header: &BatchHeader, is_seam: bool) {
        self.fed = header.index;
        self.add(header, is_seam);
    }

    /// Replay is through: this is left of the unfinished run.
    pub(super) fn end(&mut self, runs: RunAssembler) {
        if self.keeps {
            self.stream = RunStream::behind(runs.into_waiting());
        }
    }

    pub(super) fn take(&mut self) -> Vec<KnownBatch> {
        std::mem::take(&mut self.known)
    }
}

impl Recovery {
    /// Has replay remember the batches that it reads, 48 bytes for each, and hold a run that is
    /// unfinished at the end, however long: for [`Recovery::places`], [`Recovery::stream`] and
    /// [`Recovery::start_following`]. To be called before replay.
    ///
    /// # Panics
    /// When replay went well already.
    pub fn keep_places(&mut self) {
        assert!(self.tail.is_none(), "places are kept from the beginning of replay on");
        self.seen.keeps = true;
    }

    /// Has replay yield only what the group had committed: runs that end in a batch up to this
    /// index (or that the image covers). The batches behind it are read and judged, and not
    /// yielded: they may be cut off. Remembers batches too. To be called before replay.
    ///
    /// # Panics
    /// When replay went well already.
    pub fn yield_upto(&mut self, committed: u64) {
        self.keep_places();
        self.seen.committed = committed;
    }

    /// The stream of runs behind those that replay yielded.
    ///
    /// # Panics
    /// Before replay, or without [`Recovery::keep_places`].
    #[must_use]
    pub fn stream(&self) -> ResumedStream {
        assert!(self.tail.is_some(), "what is unfinished is known after replay");
        assert!(self.seen.keeps, "what is unfinished is known when it was asked for");
        ResumedStream { fed: self.seen.fed, stream: self.seen.stream.clone() }
    }

    /// Whether replay read batches that it did not yield: what they take away is still there.
    ///
    /// # Panics
    /// Before replay.
    #[must_use]
    pub fn held_back(&self) -> bool {
        assert!(self.tail.is_some(), "what was held back is known after replay");
        self.seen.known.last().is_some_and(|last| last.index > self.seen.fed)
    }

    /// The batches that replay read, with their positions.
    ///
    /// # Panics
    /// Before replay, or without [`Recovery::keep_places`].
    #[must_use]
    pub fn places(&self) -> BatchPlaces {
        assert!(self.tail.is_some(), "places are known after replay");
        assert!(self.seen.keeps, "places are known when they were asked for");
        let Some((base, batches)) = self.seen.known.split_first() else {
            unreachable!("replay knows the batch before its first one, or reads one")
        };
        let batches = batches.iter().map(KnownBatch::place).collect();
        BatchPlaces { base: base.place(), batches }
    }

    /// The same with the batches before them, as far back as headers lead that are there: what an
    /// image covers may be wanted by another instance, or by another region, which has nothing yet.
    /// Their content is checked when it is read. At most 64 MiB are read for that.
    ///
    /// # Panics
    /// As [`Recovery::places`].
    #[must_use]
    pub fn places_from_earlier(&self) -> BatchPlaces {
        let places = self.places();
        let Some(known) = self.seen.known.first() else { return places };
        // A new log had no extent when its folder was listed.
        let Some(&first) = self.folder.extents.first() else { return places };
        let log = (self.log_id(), self.extent_bytes());
        let earlier = earlier::earlier(self.disk.as_ref(), log, first, *known);
        let Some((oldest, others)) = earlier.split_first() else { return places };
        let BatchPlaces { base, batches } = places;
        // Nothing lies before the first batch of a log.
        let (before, others) = match oldest.index {
            1 => (BatchPlace::default(), &earlier[..]),
            _ => (oldest.place(), others),
        };
        let others = others.iter().map(KnownBatch::place);
        let batches = others.chain([base]).chain(batches).collect();
        BatchPlaces { base: before, batches }
    }

    /// Starts the log *following*: it takes batches by [`Log::receive`] alone, until [`Log::lead`].
    /// `replicator` hears of what it writes from then on. Replays into nothing when that was not
    /// done. The listener is the caller's, as in [`Recovery::start`].
    ///
    /// # Errors
    /// [`LogError`].
    ///
    /// # Panics
    /// When replay was done without [`Recovery::keep_places`].
    pub fn start_following(
        mut self,
        listener: Arc<dyn Listener>,
        replicator: Arc<dyn Replicator>,
    ) -> Result<Log, LogError> {
        if self.tail.is_none() {
            self.keep_places();
        }
        self.replay_into_nothing()?;
        assert!(self.seen.keeps, "a member's log knows its batches");
        let begins = repair::Begins::Following(replicator);
        Log::run(Arc::new(self.into_shared(listener, begins)?))
    }
}
