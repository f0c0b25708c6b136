//! Random numbers from a seed, for the pauses before elections. Not for secrets.

use std::time::Duration;

/// A small generator (xorshift64*): a seed decides everything.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        // Neighbouring seeds must not look alike (splitmix64), and zero would stay zero.
        let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Dice((mixed ^ (mixed >> 31)).max(1))
    }

    /// A time below `most`; zero when that is zero.
    pub(crate) fn below(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(drawn.checked_rem(most).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_give_different_pauses() {
        let most = Duration::from_secs(1);
        let first: Vec<_> = (0..100).map(|seed| Dice::new(seed).below(most)).collect();
        assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_pauses_below_the_bound() {
        let most = Duration::from_millis(20);
        let (mut one, mut other) = (Dice::new(7), Dice::new(7));
        for _ in 0..1_000 {
            let pause = one.below(most);
            assert_eq!(pause, other.below(most));
            assert!(pause < most);
        }
        assert_eq!(one.below(Duration::ZERO), Duration::ZERO);
    }
}
