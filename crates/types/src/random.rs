//! Pseudo-random numbers from a seed (splitmix64), for simulation, tests, load and back-off.
//!
//! Not for secrets: two outputs give the state away. Keys, nonces and salts come from the operating
//! system.
//!
//! Not here: where a seed comes from. A test prints it before the first draw.
//!
//! Invariants: one seed gives one sequence, on every machine and in every version. Seeds that once
//! failed are tests by name, so the sequence must not change (a test holds its first numbers).

/// A small seeded generator (splitmix64). Not for secrets.
///
/// The bounded draws take a remainder: values below `bound` are even to within `bound / 2^64`.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    state: u64,
}

/// The increment of splitmix64: 2^64 divided by the golden ratio, made odd.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl SeededRandom {
    /// The sequence of this seed: splitmix64 with the seed as its state.
    ///
    /// The sequences of two seeds overlap when the seeds differ by a multiple of the increment;
    /// consecutive seeds do not.
    #[must_use]
    pub const fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: seed }
    }

    /// The sequence of this seed after one mixing step: for seeds that are computed from each other
    /// and could lie on one sequence of [`SeededRandom::new`].
    #[must_use]
    pub fn mixed(seed: u64) -> SeededRandom {
        let state = seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d;
        let mut random = SeededRandom { state };
        random.next_u64();
        random
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        let mixed = self.state;
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero when the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included; `low` when `high` is less.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        // The count of values is 2^64, one more than a u64 holds, only for the full range.
        match high.saturating_sub(low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.next_u64(),
        }
    }

    /// True in `per_mille` of 1,000 draws.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// An index into a list of this length; zero when the list is empty.
    pub fn index(&mut self, length: usize) -> usize {
        // Never cut: the number drawn is less than the length, which is a usize.
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Fills a buffer, eight bytes for each draw, little endian.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.next_u64().to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(drawn) {
                *byte = random;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mut random: SeededRandom, count: usize) -> Vec<u64> {
        (0..count).map(|_| random.next_u64()).collect()
    }

    #[test]
    fn the_sequence_is_the_one_of_splitmix64() {
        // The numbers of the reference implementation (prng.di.unimi.it/splitmix64.c).
        let reference =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first(SeededRandom::new(1_234_567), 3), reference);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_and_its_neighbour_others() {
        for start in [SeededRandom::new, SeededRandom::mixed] {
            assert_eq!(first(start(7), 50), first(start(7), 50));
            assert!(first(start(7), 50).iter().all(|n| !first(start(8), 50).contains(n)));
        }
    }

    #[test]
    fn the_mixing_step_separates_seeds_that_lie_on_one_sequence() {
        let neighbour = 7_u64.wrapping_add(INCREMENT);
        let shared = |one: Vec<u64>, other: Vec<u64>| one.iter().any(|n| other.contains(n));
        assert!(shared(first(SeededRandom::new(7), 50), first(SeededRandom::new(neighbour), 50)));
        let mixed = |seed| first(SeededRandom::mixed(seed), 50);
        assert!(!shared(mixed(7), mixed(neighbour)));
    }

    #[test]
    fn draws_stay_within_their_bounds() {
        let mut random = SeededRandom::new(1);
        assert!((0..1_000).all(|_| (3..=9).contains(&random.between(3, 9))));
        assert!((0..1_000).all(|_| random.below(10) < 10 && random.index(5) < 5));
        assert_eq!((random.below(0), random.below(1), random.index(0)), (0, 0, 0));
        assert_eq!((random.between(9, 3), random.between(u64::MAX, u64::MAX)), (9, u64::MAX));
        assert!(!random.chance(0) && random.chance(1_000));
        random.between(0, u64::MAX);
    }

    #[test]
    fn a_buffer_is_filled_to_its_end() {
        let (mut long, mut short) = ([0_u8; 16], [0_u8; 11]);
        SeededRandom::new(3).fill(&mut long);
        SeededRandom::new(3).fill(&mut short);
        assert_eq!(long[..11], short);
        assert_eq!(long[..8], SeededRandom::new(3).next_u64().to_le_bytes());
    }
}
