//! A fast map for keys that we number ourselves, also those of `node`. Not for keys that clients
//! choose: those live in ordered maps, where no client can cause collisions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from counted ids, iterated only where order does not matter.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by a large odd constant and folds the product: one multiplication for each word.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

/// 2^64 divided by the golden ratio: spreads neighbours far apart.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ SPREAD).wrapping_mul(u128::from(SPREAD));
        let folded = (product >> 64) ^ (product & u128::from(u64::MAX));
        self.0 = u64::try_from(folded).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_ids_differ_in_their_low_and_high_bits() {
        let hash = |word: u64| {
            let mut hasher = IdHasher::default();
            hasher.write_u64(word);
            hasher.finish()
        };
        let low: std::collections::BTreeSet<u64> = (0..1024).map(|id| hash(id) & 0xffff).collect();
        let high: std::collections::BTreeSet<u64> = (0..1024).map(|id| hash(id) >> 48).collect();
        assert!(low.len() > 950 && high.len() > 950, "{} {}", low.len(), high.len());
    }
}
