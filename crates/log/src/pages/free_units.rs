//! Which units of the page file are free: first fit, lowest first.
//!
//! Not here: the file.
//!
//! Invariants: runs of free units neither touch nor overlap and end before `end`, behind which all
//! is free; `used` counts the units before `end` that are in no free run.

use std::collections::BTreeMap;

use towline_types::PageRef;

/// Lengths in units for which the search remembers where to begin; 1 MiB.
const REMEMBERED_MAX: u32 = 256;

/// The free units, as runs.
#[derive(Debug)]
pub(super) struct FreeUnits {
    /// Lengths by first unit.
    free: BTreeMap<u32, u32>,
    /// Behind the last unit in use.
    end: u32,
    used: u64,
    /// By length: no free run that is so long lies wholly before this unit. So a file full of short
    /// holes is not searched from its beginning for each long page.
    search_from: Vec<u32>,
}

/// Two pages that claim one unit, or a page without a length or beyond 2^32 units.
#[derive(Debug)]
pub(super) struct Overlap(pub(super) PageRef);

impl FreeUnits {
    /// All units but those of `pages` are free.
    ///
    /// # Errors
    /// [`Overlap`] with the page that cannot be.
    pub(super) fn new(mut pages: Vec<PageRef>) -> Result<FreeUnits, Overlap> {
        pages.sort_unstable();
        let mut runs = FreeUnits {
            free: BTreeMap::new(),
            end: 0,
            used: 0,
            search_from: vec![0; REMEMBERED_MAX as usize + 1],
        };
        for page in pages {
            let end = page.unit.checked_add(page.units());
            let (Some(end), true) = (end, page.unit >= runs.end && page.bytes > 0) else {
                return Err(Overlap(page));
            };
            if page.unit > runs.end {
                runs.free.insert(runs.end, page.unit - runs.end);
            }
            runs.end = end;
            runs.used += u64::from(page.units());
        }
        Ok(runs)
    }

    /// Behind the last unit in use.
    pub(super) fn end(&self) -> u32 {
        self.end
    }

    /// Units in use.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Takes `units` units at the lowest offset with so many free; `None` when the file would pass
    /// 2^32 units.
    pub(super) fn take(&mut self, units: u32) -> Option<u32> {
        assert!(units > 0, "a page takes a unit");
        let from = self.search_from.get(units as usize).copied().unwrap_or(0);
        let found = self.free.range(from..).find(|(_, length)| **length >= units);
        let unit = match found.map(|(unit, length)| (*unit, *length)) {
            Some((unit, length)) => {
                self.free.remove(&unit);
                if length > units {
                    self.free.insert(unit + units, length - units);
                }
                unit
            }
            None => {
                let unit = self.end;
                self.end = unit.checked_add(units)?;
                unit
            }
        };
        if let Some(from) = self.search_from.get_mut(units as usize) {
            *from = unit;
        }
        self.used += u64::from(units);
        Some(unit)
    }

    /// Gives units back.
    ///
    /// # Panics
    /// When one of them is free: a page that is in use would be given out twice.
    pub(super) fn give(&mut self, unit: u32, units: u32) {
        let (mut first, mut behind) = (unit, unit.saturating_add(units));
        assert!(units > 0 && behind <= self.end, "what is given back was taken");
        if let Some((&before, &length)) = self.free.range(..unit).next_back() {
            assert!(before + length <= unit, "a unit is given back once");
            if before + length == unit {
                first = before;
            }
        }
        if let Some((&next, &length)) = self.free.range(unit..).next() {
            assert!(next >= behind, "a unit is given back once");
            if next == behind {
                self.free.remove(&next);
                behind = next + length;
            }
        }
        self.used -= u64::from(units);
        for from in self.search_from.iter_mut().take((behind - first) as usize + 1) {
            *from = (*from).min(first);
        }
        if behind == self.end {
            self.free.remove(&first);
            self.end = first;
        } else {
            self.free.insert(first, behind - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_types::SeededRandom;

    fn page(unit: u32, units: u32) -> PageRef {
        PageRef { unit, bytes: units * 4_096, checksum: 0 }
    }

    #[test]
    fn pages_that_overlap_are_refused() {
        assert!(FreeUnits::new(vec![page(3, 2), page(5, 1), page(0, 3)]).is_ok());
        assert!(FreeUnits::new(vec![page(3, 2), page(4, 1)]).is_err());
        assert!(FreeUnits::new(vec![page(3, 2), page(3, 2)]).is_err());
        assert!(FreeUnits::new(vec![page(3, 0)]).is_err());
        assert!(FreeUnits::new(vec![page(u32::MAX, 1)]).is_err());
    }

    /// First fit over one flag for each unit.
    fn first_fit(taken: &[bool], units: usize) -> usize {
        let fits = |from: usize| taken[from..].iter().take(units).all(|taken| !taken);
        (0..=taken.len()).find(|from| fits(*from)).unwrap()
    }

    #[test]
    fn units_are_given_out_first_fit_as_a_bitmap_would() {
        let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(0x7061_6765);
        println!("TOWLINE_SEED={seed}");
        let mut random = SeededRandom::new(seed);
        for round in 0..20 {
            let mut runs = FreeUnits::new(Vec::new()).unwrap();
            let mut taken: Vec<bool> = Vec::new();
            let mut pages: Vec<PageRef> = Vec::new();
            let longest = if round % 2 == 0 { 8 } else { 300 };
            for _ in 0..500 {
                if pages.is_empty() || random.below(100) < 55 {
                    let units = 1 + u32::try_from(random.below(longest)).unwrap();
                    let expected = first_fit(&taken, units as usize);
                    let unit = runs.take(units).unwrap();
                    assert_eq!(unit as usize, expected, "seed {seed}");
                    let end = expected + units as usize;
                    taken.resize(taken.len().max(end), false);
                    taken[expected..end].fill(true);
                    pages.push(page(unit, units));
                } else {
                    let gone = usize::try_from(random.below(pages.len() as u64)).unwrap();
                    let gone = pages.swap_remove(gone);
                    let (unit, units) = (gone.unit as usize, gone.units() as usize);
                    taken[unit..unit + units].fill(false);
                    runs.give(gone.unit, gone.units());
                }
                while taken.last() == Some(&false) {
                    taken.pop();
                }
                assert_eq!(runs.end() as usize, taken.len(), "seed {seed}");
                let used = taken.iter().filter(|taken| **taken).count();
                assert_eq!(runs.used(), used as u64, "seed {seed}");
            }
            // A reopened page file allocates the same units.
            let mut opened = FreeUnits::new(pages).unwrap();
            assert_eq!((opened.end(), opened.used()), (runs.end(), runs.used()));
            for units in 1..=10 {
                assert_eq!(opened.take(units), runs.take(units), "seed {seed}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn a_unit_given_back_twice_is_our_fault() {
        let mut runs = FreeUnits::new(vec![page(0, 4)]).unwrap();
        runs.give(1, 2);
        runs.give(2, 1);
    }
}
