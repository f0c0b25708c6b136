//! What a following log knows of its newest batches, and those that wait for a writer.
//!
//! Not here: whether what arrives fits (`receive`), the disk (`writer`, `cut`).
//!
//! Invariants: `known` is never empty, indexes in it follow each other, its last is the log's
//! newest batch; batches in `waiting` are its last ones.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_types::{Batch, BatchPlace, Lsn, fitting};

use crate::extents::Extent;
use crate::format::{BatchHeader, padded, size};
use crate::mark::Seam;

/// Batches that are remembered, and so can be cut off: far more than a leader without followers
/// writes before it notices (ten thousand in a second, for a few seconds). About 3 MiB.
const KNOWN_MAX: usize = 65_536;

/// A batch of the log, or (index 0) its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownBatch {
    pub(crate) index: u64,
    pub(crate) term: u32,
    pub(crate) lsn: Lsn,
    /// Without padding.
    pub(crate) end: Lsn,
    /// Zero until it is written.
    pub(crate) checksum: u32,
    /// Whether no run is unfinished at its end.
    pub(crate) is_seam: bool,
}

/// A batch that came and waits for a writer.
#[derive(Debug)]
pub(crate) struct ReceivedBatch {
    pub(crate) batch: Batch,
    pub(crate) term: u32,
    pub(crate) extent: Arc<Extent>,
    /// Of the batch in the extent's file.
    pub(crate) offset: u64,
    pub(crate) is_seam: bool,
}

/// Batches that go to the disk with one write: they lie one behind the other.
#[derive(Debug)]
pub(crate) struct ReceivedBatches {
    pub(crate) batches: Vec<ReceivedBatch>,
    /// Of the first; one more for each further.
    pub(crate) unsynced: u32,
    /// Memory to be used again.
    pub(crate) memory: Option<Vec<u8>>,
}

/// The state of a following log.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(super) known: VecDeque<KnownBatch>,
    waiting: VecDeque<ReceivedBatch>,
    waiting_bytes: usize,
}

/// Batches that wait for a writer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitingBatches {
    pub(crate) bytes: usize,
    pub(crate) count: u64,
}

impl KnownBatch {
    pub(crate) fn of(header: &BatchHeader, is_seam: bool) -> KnownBatch {
        let &BatchHeader { index, term, lsn, checksum, .. } = header;
        KnownBatch { index, term, lsn, end: lsn.after(header.batch_bytes()), checksum, is_seam }
    }

    pub(crate) fn of_seam(seam: Seam) -> KnownBatch {
        let Seam { end, index, checksum, term, bytes } = seam;
        let lsn = Lsn(end.0.saturating_sub(u64::from(bytes)));
        KnownBatch { index, term, lsn, end, checksum, is_seam: true }
    }

    pub(crate) fn seam(&self) -> Seam {
        let KnownBatch { index, term, lsn, end, checksum, .. } = *self;
        let bytes = fitting(end.0 - lsn.0);
        Seam { end, index, checksum, term, bytes }
    }

    /// As the group names it: the beginning of a log has no position.
    pub(crate) fn place(&self) -> BatchPlace {
        let KnownBatch { index, term, lsn, end, .. } = *self;
        if index == 0 {
            return BatchPlace::default();
        }
        BatchPlace { index, term: u64::from(term), lsn, end }
    }
}

impl Follower {
    /// `known` are the log's newest batches, the last of them the newest; not empty.
    pub(crate) fn new(known: impl DoubleEndedIterator<Item = KnownBatch>) -> Follower {
        let mut follower =
            Follower { known: VecDeque::new(), waiting: VecDeque::new(), waiting_bytes: 0 };
        known.rev().take(KNOWN_MAX).for_each(|batch| follower.known.push_front(batch));
        assert!(!follower.known.is_empty(), "a log has a beginning");
        follower
    }

    /// The newest batch.
    pub(super) fn last(&self) -> Option<KnownBatch> {
        self.known.back().copied()
    }

    /// The batch of an index, if it is remembered.
    pub(super) fn find(&self, index: u64) -> Option<KnownBatch> {
        let place = index.checked_sub(self.known.front()?.index)?;
        self.known.get(usize::try_from(place).ok()?).copied()
    }

    /// The batches that wait for a writer.
    pub(super) fn waiting(&self) -> WaitingBatches {
        WaitingBatches { bytes: self.waiting_bytes, count: self.waiting.len() as u64 }
    }

    pub(super) fn written(&mut self, index: u64, checksum: u32) {
        let Some(first) = self.known.front().map(|batch| batch.index) else { return };
        let place = index.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        if let Some(known) = place.and_then(|place| self.known.get_mut(place)) {
            known.checksum = checksum;
        }
    }

    /// Adds a batch behind the newest.
    pub(super) fn push(&mut self, received: ReceivedBatch) {
        let (index, lsn, end) = (received.batch.index, received.batch.lsn, received.batch.end());
        let (term, is_seam) = (received.term, received.is_seam);
        assert!(
            self.last().is_none_or(|last| last.index + 1 == index),
            "batches follow each other"
        );
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(KnownBatch { index, term, lsn, end, checksum: 0, is_seam });
        self.waiting_bytes += size(end.0 - lsn.0);
        self.waiting.push_back(received);
    }

    /// Forgets all behind batch `index`.
    pub(super) fn cut(&mut self, index: u64) {
        assert!(self.waiting.is_empty(), "what is cut off was written");
        while self.known.pop_back_if(|batch| batch.index > index).is_some() {}
        assert!(self.last().is_some_and(|last| last.index == index), "what is cut at is known");
    }

    /// Takes what one write of at most `bytes_max` bytes, padded, can take: one batch at least.
    pub(super) fn take(&mut self, bytes_max: usize) -> Vec<ReceivedBatch> {
        let mut taken: Vec<ReceivedBatch> = Vec::new();
        let (mut bytes, mut next) = (0, None);
        loop {
            let fits = |received: &mut ReceivedBatch| {
                let place = (received.extent.sequence, received.offset);
                let padded = size(padded(received.bytes()));
                next.is_none_or(|next| next == place) && (bytes == 0 || bytes + padded <= bytes_max)
            };
            let Some(received) = self.waiting.pop_front_if(fits) else { return taken };
            let padded = padded(received.bytes());
            next = Some((received.extent.sequence, received.offset + padded));
            bytes += size(padded);
            self.waiting_bytes -= size(received.bytes());
            taken.push(received);
        }
    }
}

impl ReceivedBatches {
    /// The first of them: a writer takes at least one.
    pub(crate) fn first(&self) -> &ReceivedBatch {
        let Some(first) = self.batches.first() else { unreachable!("a writer takes a batch") };
        first
    }
}

impl ReceivedBatch {
    /// Header and payload.
    pub(crate) fn bytes(&self) -> u64 {
        self.batch.end().0 - self.batch.lsn.0
    }
}
