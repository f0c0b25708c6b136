//! Random numbers from a seed that is printed before the first draw.
//!
//! Not for anything secret. The same seed gives the same draws on every machine.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The stream of one seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The stream of `TOWLINE_SEED`, or of the clock; prints the seed with the test's name.
    #[must_use]
    pub fn announced(test: &str) -> Self {
        let given = env::var("TOWLINE_SEED").ok().and_then(|text| text.parse().ok());
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = given.unwrap_or_else(|| clock.as_secs() ^ u64::from(clock.subsec_nanos()) << 20);
        println!("{test}: run again with TOWLINE_SEED={seed}");
        Self::of(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `from..to`; `from` when the range is empty.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        if to <= from { from } else { from + self.bits() % (to - from) }
    }

    /// An index in `0..count`; 0 when there is none.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0, count as u64)).unwrap_or(0)
    }

    /// True in `percent` of 100 draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 100) < percent
    }
}
