//! Positions where scanners have looked already, and where a message has become available since:
//! one that came back, or that was inserted out of order. Scanners look at those alone, and not
//! once more at everything behind them.
//!
//! One list for all scanners of a queue: each knows how much of it it has taken note of, and what
//! all have noted is dropped. A list that grows too long, because a scanner without credit takes no
//! note, is given up: those that had not noted it look again from the first of its positions on.
//!
//! Invariants: no scanner of the queue has passed `frontier`; what a cursor holds as returned is
//! behind it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use towline_types::limits;

use super::{LANES, Rank, Spot};
use crate::ConsumerId;

/// How far a scanner has looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanCursor {
    /// In each lane, the first position not looked at.
    pub(crate) lanes: [u64; LANES],
    /// Positions before those, where something is available again.
    pub(crate) returned: BTreeSet<Rank>,
}

impl ScanCursor {
    /// This message was looked at.
    pub(crate) fn pass(&mut self, spot: Spot) {
        let place = &mut self.lanes[usize::from(spot.lane)];
        if spot.sequence < *place {
            self.returned.remove(&Rank::new(spot.lane, spot.sequence));
        } else {
            *place = spot.sequence + 1;
        }
    }

    /// The same as far as the next few looks need it, to look ahead.
    pub(crate) fn ahead(&self, looks: usize) -> ScanCursor {
        let returned = self.returned.iter().copied().take(looks).collect();
        ScanCursor { lanes: self.lanes, returned }
    }

    fn note(&mut self, rank: Rank) {
        if rank.sequence() < self.lanes[usize::from(rank.lane())] {
            self.returned.insert(rank);
        }
        if self.returned.len() > limits::RETURNED_PER_SCANNER_MAX {
            let mut back = [u64::MAX; LANES];
            for rank in &self.returned {
                let place = &mut back[usize::from(rank.lane())];
                *place = rank.sequence().min(*place);
            }
            self.rewind(&back);
        }
    }

    /// Looks again at everything from these positions on.
    fn rewind(&mut self, back: &[u64; LANES]) {
        for (place, back) in self.lanes.iter_mut().zip(back) {
            *place = (*back).min(*place);
        }
        let lanes = &self.lanes;
        self.returned.retain(|rank| rank.sequence() < lanes[usize::from(rank.lane())]);
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct ReturnedPlaces {
    /// The scanners, and the number of the first position that each has not taken note of.
    scanners: BTreeMap<ConsumerId, u64>,
    places: VecDeque<Rank>,
    /// The number of the first of `places`.
    first: u64,
    frontier: [u64; LANES],
    /// At so many positions it is checked which all scanners have noted.
    trim_at: usize,
    /// For each lane, the first of the positions that were given up, and the number behind the
    /// last.
    given_up: [u64; LANES],
    given_up_upto: u64,
}

/// Fewer positions than this are kept though all may have noted them.
const TRIM_MIN: usize = 64;

impl Default for ReturnedPlaces {
    fn default() -> ReturnedPlaces {
        ReturnedPlaces {
            scanners: BTreeMap::new(),
            places: VecDeque::new(),
            first: 0,
            frontier: [0; LANES],
            trim_at: TRIM_MIN,
            given_up: [u64::MAX; LANES],
            given_up_upto: 0,
        }
    }
}

impl ReturnedPlaces {
    /// A scanner begins, before everything.
    pub(crate) fn open(&mut self, scanner: ConsumerId) {
        self.scanners.insert(scanner, self.next());
    }

    pub(crate) fn close(&mut self, scanner: ConsumerId) {
        self.scanners.remove(&scanner);
        if self.scanners.is_empty() {
            *self = ReturnedPlaces { first: self.next(), ..ReturnedPlaces::default() };
        }
    }

    fn next(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    /// A message became available.
    pub(crate) fn available(&mut self, spot: Spot) {
        if spot.sequence >= self.frontier[usize::from(spot.lane)] {
            return; // All scanners will come to it.
        }
        self.places.push_back(Rank::new(spot.lane, spot.sequence));
        if self.places.len() >= self.trim_at {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let noted = self.scanners.values().min().copied().unwrap_or_else(|| self.next());
        while self.first < noted && self.places.pop_front().is_some() {
            self.first += 1;
        }
        if self.places.len() >= limits::RETURNED_PLACES_MAX {
            self.give_up();
        }
        self.trim_at = (2 * self.places.len()).clamp(TRIM_MIN, limits::RETURNED_PLACES_MAX);
    }

    fn give_up(&mut self) {
        if self.scanners.values().all(|noted| *noted >= self.given_up_upto) {
            self.given_up = [u64::MAX; LANES];
        }
        self.given_up_upto = self.next();
        self.first = self.given_up_upto;
        for rank in self.places.drain(..) {
            let place = &mut self.given_up[usize::from(rank.lane())];
            *place = rank.sequence().min(*place);
        }
    }

    /// Adds to the cursor of a scanner what came back behind it: so many positions at most. True:
    /// that was all.
    pub(crate) fn take_note(
        &mut self,
        scanner: ConsumerId,
        cursor: &mut ScanCursor,
        places_max: usize,
    ) -> bool {
        // A browser sees each message once.
        let Some(noted) = self.scanners.get_mut(&scanner) else { return true };
        if *noted < self.given_up_upto {
            cursor.rewind(&self.given_up);
            *noted = self.given_up_upto;
        }
        let from = usize::try_from(*noted - self.first).unwrap_or(usize::MAX);
        let upto = self.places.len().min(from.saturating_add(places_max));
        for rank in self.places.range(from.min(upto)..upto) {
            cursor.note(*rank);
            *noted += 1;
        }
        upto == self.places.len()
    }

    /// A scanner has looked as far as this.
    pub(crate) fn passed(&mut self, scanner: ConsumerId, cursor: &ScanCursor) {
        if self.scanners.contains_key(&scanner) {
            for (frontier, place) in self.frontier.iter_mut().zip(&cursor.lanes) {
                *frontier = (*place).max(*frontier);
            }
        }
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self, scanner: ConsumerId, cursor: &ScanCursor) {
        if self.scanners.contains_key(&scanner) {
            let behind = cursor.lanes.iter().zip(&self.frontier).all(|(at, most)| at <= most);
            assert!(behind, "no scanner has passed the frontier");
        }
        for rank in &cursor.returned {
            let place = cursor.lanes[usize::from(rank.lane())];
            assert!(rank.sequence() < place, "what came back is behind the cursor");
        }
    }
}
