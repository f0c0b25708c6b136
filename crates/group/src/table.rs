//! Positions and terms of the batches of the log: what consensus must know of each.
//!
//! Invariants: batches follow each other by index without gap from the one behind `base` on; terms
//! never go down; positions ascend.

use std::collections::VecDeque;

use towline_types::{BatchPlace, Lsn};

/// The positions of the batches behind `base`.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The last batch of which only the position is known.
    base: BatchPlace,
    places: VecDeque<BatchPlace>,
}

impl Table {
    /// # Panics
    /// When the batches do not follow each other: the log gave them.
    pub(crate) fn new(base: BatchPlace, places: Vec<BatchPlace>) -> Table {
        let mut table = Table { base, places: VecDeque::with_capacity(places.len()) };
        places.into_iter().for_each(|place| table.push(place));
        table
    }

    pub(crate) fn base(&self) -> BatchPlace {
        self.base
    }

    /// The newest batch, or the base.
    pub(crate) fn last(&self) -> BatchPlace {
        self.places.back().copied().unwrap_or(self.base)
    }

    /// The position of a batch, the base included.
    pub(crate) fn place(&self, index: u64) -> Option<BatchPlace> {
        if index == self.base.index {
            return Some(self.base);
        }
        let at = index.checked_sub(self.base.index + 1)?;
        self.places.get(usize::try_from(at).ok()?).copied()
    }

    /// Adds the next batch.
    ///
    /// # Panics
    /// When it is not the next one.
    pub(crate) fn push(&mut self, place: BatchPlace) {
        let last = self.last();
        assert_eq!(place.index, last.index + 1, "batches follow each other");
        assert!(place.term >= last.term, "terms never go down");
        self.places.push_back(place);
    }

    /// Sets the position of a batch for which it was not known when it was pushed.
    ///
    /// # Panics
    /// When it is not the newest.
    pub(crate) fn set_last(&mut self, place: BatchPlace) {
        let last = self.places.pop_back();
        assert!(
            last.is_some_and(|last| (last.index, last.term) == (place.index, place.term)),
            "the place of the newest batch becomes known"
        );
        self.places.push_back(place);
    }

    /// Drops the batches from `index` on.
    pub(crate) fn cut(&mut self, index: u64) {
        assert!(index > self.base.index, "what is needed by an image is never cut off");
        while self.places.back().is_some_and(|last| last.index >= index) {
            self.places.pop_back();
        }
    }

    /// Forgets batches that end at or before `lsn`, but for the last of them, which becomes the
    /// base.
    pub(crate) fn forget_before(&mut self, lsn: Lsn) {
        while let Some(first) = self.places.pop_front_if(|first| first.end <= lsn) {
            self.base = first;
        }
    }

    /// Index of the last batch that ends at or before `lsn`; the base's when there is none.
    pub(crate) fn ended_by(&self, lsn: Lsn) -> u64 {
        // A batch without a known position ends nowhere.
        let ended = |place: &BatchPlace| place.end <= lsn && place.end > Lsn::ZERO;
        let count = self.places.partition_point(ended);
        self.base.index + count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u64) -> BatchPlace {
        BatchPlace { index, term: 1, lsn: Lsn(index * 100), end: Lsn(index * 100 + 50) }
    }

    #[test]
    fn places_are_found_cut_and_forgotten_by_index() {
        let mut table = Table::new(place(3), (4..10).map(place).collect());
        assert_eq!(table.place(3), Some(place(3)));
        assert_eq!(table.place(2), None);
        assert_eq!(table.place(9), Some(place(9)));
        assert_eq!(table.place(10), None);
        assert_eq!(table.ended_by(Lsn(549)), 4);
        assert_eq!(table.ended_by(Lsn(550)), 5);
        assert_eq!(table.ended_by(Lsn(0)), 3);
        table.cut(8);
        assert_eq!(table.last(), place(7));
        table.forget_before(Lsn(560));
        assert_eq!((table.base(), table.last()), (place(5), place(7)));
    }

    #[test]
    fn a_batch_without_a_position_is_not_durable() {
        let mut table = Table::new(BatchPlace::default(), Vec::new());
        table.push(BatchPlace { index: 1, term: 4, ..BatchPlace::default() });
        assert_eq!(table.ended_by(Lsn(1 << 40)), 0);
        table.set_last(BatchPlace { term: 4, ..place(1) });
        assert_eq!(table.ended_by(Lsn(150)), 1);
    }
}
