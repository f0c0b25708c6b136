//! Which keys are certainly not on a page: a Bloom filter for each block that is away.
//!
//! A block's filter is made when it leaves, if a consumer asked for a key of that kind before, or
//! when its page is read for the sake of a key. A block without one (or that does not know this
//! kind) may hold any key: its page must be read.

use super::entry::{Entry, EntryState};
use super::index::KeyKinds;
use crate::request::FilterKey;

/// Bits for each key: with four probes about one page in four hundred is read in vain.
const BITS_PER_KEY: usize = 16;
const PROBES: u32 = 4;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    kinds: KeyKinds,
    words: Box<[u64]>,
}

impl KeyFilter {
    /// The filter of what a block holds, for these kinds of keys; `None` when there is none.
    pub(crate) fn of(entries: &[Entry], kinds: KeyKinds) -> Option<KeyFilter> {
        let live = || entries.iter().filter(|entry| entry.state != EntryState::Gone);
        let count = usize::from(kinds.correlation) + usize::from(kinds.message_id);
        if count == 0 {
            return None;
        }
        let words = (live().count() * count * BITS_PER_KEY).div_ceil(64).next_power_of_two();
        let mut filter = KeyFilter { kinds, words: vec![0; words].into_boxed_slice() };
        for entry in live() {
            if kinds.correlation {
                filter.add(entry.correlation_hash);
            }
            if kinds.message_id {
                filter.add(entry.message_id_hash);
            }
        }
        Some(filter)
    }

    fn add(&mut self, hash: u64) {
        for probe in 0..PROBES {
            let (word, bit) = self.place(hash, probe);
            if let Some(word) = self.words.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Whether no message of this key can be on the page.
    pub(crate) fn excludes(&self, key: FilterKey) -> bool {
        let (FilterKey::Correlation(hash) | FilterKey::MessageId(hash)) = key;
        self.kinds.contains(key)
            && (0..PROBES).any(|probe| {
                let (word, bit) = self.place(hash, probe);
                self.words.get(word).is_none_or(|word| word & bit == 0)
            })
    }

    /// The hashes are good ones: each probe takes other bits of it.
    fn place(&self, hash: u64, probe: u32) -> (usize, u64) {
        let bits = hash.rotate_right(probe * 16);
        let word = usize::try_from(bits & 0x3ff).unwrap_or(0) & (self.words.len() - 1);
        (word, 1 << (bits >> 10 & 63))
    }
}
