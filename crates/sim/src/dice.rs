//! Random numbers from a seed. Not for secrets.

/// A small generator (splitmix64): the seed decides everything.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        // Neighbouring seeds must not be neighbours in one sequence.
        let mut dice = Dice(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d);
        dice.draw();
        dice
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `most`; zero when that is zero.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.draw().checked_rem(most).unwrap_or(0)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// A position in a list of this length.
    pub(crate) fn position(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_its_neighbour_others() {
        let numbers = |seed| {
            let mut dice = Dice::new(seed);
            (0..50).map(|_| dice.draw()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert!(numbers(7).iter().all(|number| !numbers(8).contains(number)));
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut dice = Dice::new(1);
        assert!((0..1_000).all(|_| (3..=9).contains(&dice.between(3, 9))));
        assert_eq!((dice.below(0), dice.below(1)), (0, 0));
        assert!(!dice.chance(0) && dice.chance(1_000));
    }
}
