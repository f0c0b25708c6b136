//! Which keys are certainly not on a page: a Bloom filter for each block that is away.
//!
//! A block's filter is made when it leaves, if a consumer asked for a key of that kind before. A
//! block without one (or that does not know this kind) may hold any key: its page must be read.

use super::entry::Entry;
use super::index::KeyIndex;
use crate::request::FilterKey;

/// Bits for each key: with four probes about one page in four hundred is read in vain.
const BITS_PER_KEY: usize = 16;
const PROBES: u32 = 4;

/// See the module's description.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    correlation: bool,
    message_id: bool,
    words: Box<[u64]>,
}

impl KeyFilter {
    /// The filter of these messages for the kinds of keys that are indexed; `None` when none is.
    pub(crate) fn of(entries: &[Entry], index: &KeyIndex) -> Option<KeyFilter> {
        let correlation = index.covers(FilterKey::Correlation(0));
        let message_id = index.covers(FilterKey::MessageId(0));
        let kinds = usize::from(correlation) + usize::from(message_id);
        if kinds == 0 {
            return None;
        }
        let words = (entries.len() * kinds * BITS_PER_KEY).div_ceil(64).next_power_of_two();
        let mut filter =
            KeyFilter { correlation, message_id, words: vec![0; words].into_boxed_slice() };
        for entry in entries {
            if correlation {
                filter.add(entry.correlation_hash);
            }
            if message_id {
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
        let (known, hash) = match key {
            FilterKey::Correlation(hash) => (self.correlation, hash),
            FilterKey::MessageId(hash) => (self.message_id, hash),
        };
        known
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
