//! Finds the available messages of a key (correlation id or message id, hashed) without a scan.
//!
//! Begun when the first consumer asks for a key, filled block by block as far as searches for keys
//! come (`keyed_walk`), and kept up for the blocks that are in it. Holds available messages only,
//! so that the first of a key is at hand however many of them are held. A hash may stand for
//! several ids: a caller that finds a message here still evaluates its filter.

use std::collections::BTreeSet;

use towline_types::fitting;

use super::entry::Hashes;
use crate::request::FilterKey;

/// Order of delivery in one number: higher lanes first, then lower sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u64);

const LANE_SHIFT: u32 = 60;
/// No sequence reaches this.
pub(crate) const SEQUENCE_END: u64 = 1 << LANE_SHIFT;

impl Rank {
    /// Before every message.
    pub(crate) const FIRST: Rank = Rank(0);

    /// # Panics
    /// When a lane is above 9, or 2^60 messages were put (a million a second for 36,000 years).
    pub(crate) fn new(lane: u8, sequence: u64) -> Rank {
        assert!(lane <= 9 && sequence >> LANE_SHIFT == 0, "out of the range of ranks");
        Rank((u64::from(9 - lane) << LANE_SHIFT) | sequence)
    }

    /// The next position after this one.
    pub(crate) fn after(self) -> Rank {
        Rank(self.0 + 1)
    }

    pub(crate) fn lane(self) -> u8 {
        let above: u8 = fitting(self.0 >> LANE_SHIFT);
        assert!(above <= 9, "a rank of none of the ten lanes");
        9 - above
    }

    pub(crate) fn sequence(self) -> u64 {
        self.0 & ((1 << LANE_SHIFT) - 1)
    }
}

/// One kind of key: each available message once, by hash and then in order of delivery.
///
/// A tree, and not a table: it never grows by copying all that it holds, which all clients would
/// wait for, and a million messages may share one hash. About 30 bytes for each message.
#[derive(Debug, Default)]
struct Keys(BTreeSet<(u64, Rank)>);

impl Keys {
    fn add(&mut self, hash: u64, rank: Rank) {
        if hash == 0 {
            return; // It has no such id: no key can ask for it.
        }
        assert!(self.0.insert((hash, rank)), "a message is indexed once");
    }

    fn remove(&mut self, hash: u64, rank: Rank) {
        if hash != 0 {
            assert!(self.0.remove(&(hash, rank)), "a message in an indexed block is indexed");
        }
    }

    fn next(&self, hash: u64, from: Rank) -> Option<Rank> {
        let (found, rank) = self.0.range((hash, from)..).next()?;
        (*found == hash).then_some(*rank)
    }

    /// Drops so many at most; yields how many there were of them.
    fn give_up(&mut self, most: usize) -> usize {
        (0..most).take_while(|_| self.0.pop_first().is_some()).count()
    }
}

/// Some of the two kinds of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyKinds {
    pub(crate) correlation: bool,
    pub(crate) message_id: bool,
}

impl KeyKinds {
    /// That of one key.
    pub(crate) fn of(key: FilterKey) -> KeyKinds {
        let correlation = matches!(key, FilterKey::Correlation(_));
        KeyKinds { correlation, message_id: !correlation }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == KeyKinds::default()
    }

    pub(crate) fn contains(self, key: FilterKey) -> bool {
        match key {
            FilterKey::Correlation(_) => self.correlation,
            FilterKey::MessageId(_) => self.message_id,
        }
    }

    /// Those of either.
    pub(crate) fn with(self, other: KeyKinds) -> KeyKinds {
        KeyKinds {
            correlation: self.correlation || other.correlation,
            message_id: self.message_id || other.message_id,
        }
    }

    /// Those of this one only.
    pub(crate) fn without(self, other: KeyKinds) -> KeyKinds {
        KeyKinds {
            correlation: self.correlation && !other.correlation,
            message_id: self.message_id && !other.message_id,
        }
    }
}

/// Both kinds of keys of one queue. Which blocks are in it, and for which kinds, is known by the
/// blocks.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    correlation: Keys,
    message_id: Keys,
}

impl KeyIndex {
    /// A message of a block that is indexed for these kinds became available.
    pub(crate) fn add(&mut self, rank: Rank, hashes: Hashes, kinds: KeyKinds) {
        if kinds.correlation {
            self.correlation.add(hashes.correlation, rank);
        }
        if kinds.message_id {
            self.message_id.add(hashes.message_id, rank);
        }
    }

    /// A message of a block that is indexed for these kinds is no longer available.
    pub(crate) fn remove(&mut self, rank: Rank, hashes: Hashes, kinds: KeyKinds) {
        if kinds.correlation {
            self.correlation.remove(hashes.correlation, rank);
        }
        if kinds.message_id {
            self.message_id.remove(hashes.message_id, rank);
        }
    }

    /// The first available message of this key, of those in indexed blocks, that is not before
    /// `from`.
    pub(crate) fn next(&self, key: FilterKey, from: Rank) -> Option<Rank> {
        match key {
            FilterKey::Correlation(hash) => self.correlation.next(hash, from),
            FilterKey::MessageId(hash) => self.message_id.next(hash, from),
        }
    }

    /// Drops so many keys at most; yields how many there were of them.
    pub(crate) fn give_up(&mut self, most: usize) -> usize {
        let correlations = self.correlation.give_up(most);
        correlations + self.message_id.give_up(most - correlations)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.correlation.0.len() + self.message_id.0.len()
    }

    /// Panics unless it covers exactly these available messages of blocks that are indexed.
    pub(crate) fn audit(&self, available: impl Iterator<Item = (Rank, Hashes, KeyKinds)>) {
        let mut correlations = 0;
        let mut message_ids = 0;
        for (rank, hashes, kinds) in available {
            let found = |keys: &Keys, hash: u64| hash == 0 || keys.0.contains(&(hash, rank));
            if kinds.correlation {
                assert!(found(&self.correlation, hashes.correlation), "missing in the index");
                correlations += usize::from(hashes.correlation != 0);
            }
            if kinds.message_id {
                assert!(found(&self.message_id, hashes.message_id), "missing in the index");
                message_ids += usize::from(hashes.message_id != 0);
            }
        }
        assert_eq!(self.correlation.0.len(), correlations, "only what is available");
        assert_eq!(self.message_id.0.len(), message_ids, "only what is available");
    }
}
