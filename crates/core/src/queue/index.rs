//! Finds the available messages of a key (correlation id or message id, hashed) without a scan.
//!
//! Made when the first consumer asks for a key, kept up from then on. Holds available messages
//! only, so that the first of a key is at hand however many of them are held. A hash may stand for
//! several ids: a caller that finds a message here still evaluates its filter.

use std::collections::BTreeSet;

use towline_types::fitting;

use super::entry::{Entry, Hashes};
use crate::hash::FastMap;
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

/// The available messages of one hash, in order.
#[derive(Debug)]
enum Ranks {
    /// The ordinary case: ids are unique.
    One(Rank),
    /// A million messages may share one, and come back in any order.
    Many(BTreeSet<Rank>),
}

/// One kind of key.
#[derive(Debug, Default)]
struct Keys(FastMap<u64, Ranks>);

impl Keys {
    fn add(&mut self, hash: u64, rank: Rank) {
        if hash == 0 {
            return; // It has no such id: no key can ask for it.
        }
        match self.0.get_mut(&hash) {
            None => {
                self.0.insert(hash, Ranks::One(rank));
            }
            Some(Ranks::One(other)) => {
                assert_ne!(*other, rank, "a message is indexed once");
                let pair = BTreeSet::from([rank, *other]);
                self.0.insert(hash, Ranks::Many(pair));
            }
            Some(Ranks::Many(ranks)) => {
                assert!(ranks.insert(rank), "a message is indexed once");
            }
        }
    }

    fn remove(&mut self, hash: u64, rank: Rank) {
        let empty = match self.0.get_mut(&hash) {
            None => false,
            Some(Ranks::One(only)) => *only == rank,
            Some(Ranks::Many(ranks)) => {
                ranks.remove(&rank);
                ranks.is_empty()
            }
        };
        if empty {
            self.0.remove(&hash);
        }
    }

    fn next(&self, hash: u64, from: Rank) -> Option<Rank> {
        match self.0.get(&hash)? {
            Ranks::One(rank) => (*rank >= from).then_some(*rank),
            Ranks::Many(ranks) => ranks.range(from..).next().copied(),
        }
    }

    fn len(&self) -> usize {
        let lengths = self.0.values().map(|ranks| match ranks {
            Ranks::One(_) => 1,
            Ranks::Many(ranks) => ranks.len(),
        });
        lengths.sum()
    }
}

/// Both kinds of keys of one queue.
#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    correlation: Option<Keys>,
    message_id: Option<Keys>,
}

impl KeyIndex {
    /// Whether this kind of key is indexed.
    pub(crate) fn covers(&self, key: FilterKey) -> bool {
        match key {
            FilterKey::Correlation(_) => self.correlation.is_some(),
            FilterKey::MessageId(_) => self.message_id.is_some(),
        }
    }

    /// One of no message, for the same kinds of keys.
    pub(crate) fn emptied(&self) -> KeyIndex {
        KeyIndex {
            correlation: self.correlation.as_ref().map(|_| Keys::default()),
            message_id: self.message_id.as_ref().map(|_| Keys::default()),
        }
    }

    /// Indexes this kind of key from now on. `available` are all available messages now.
    pub(crate) fn cover<'a>(
        &mut self,
        key: FilterKey,
        available: impl Iterator<Item = (u8, &'a Entry)>,
    ) {
        let mut keys = Keys::default();
        for (lane, entry) in available {
            let hash = match key {
                FilterKey::Correlation(_) => entry.correlation_hash,
                FilterKey::MessageId(_) => entry.message_id_hash,
            };
            keys.add(hash, Rank::new(lane, entry.sequence));
        }
        match key {
            FilterKey::Correlation(_) => self.correlation = Some(keys),
            FilterKey::MessageId(_) => self.message_id = Some(keys),
        }
    }

    /// A message became available.
    pub(crate) fn add(&mut self, rank: Rank, hashes: Hashes) {
        if let Some(keys) = &mut self.correlation {
            keys.add(hashes.correlation, rank);
        }
        if let Some(keys) = &mut self.message_id {
            keys.add(hashes.message_id, rank);
        }
    }

    /// A message is no longer available.
    pub(crate) fn remove(&mut self, rank: Rank, hashes: Hashes) {
        if let Some(keys) = &mut self.correlation {
            keys.remove(hashes.correlation, rank);
        }
        if let Some(keys) = &mut self.message_id {
            keys.remove(hashes.message_id, rank);
        }
    }

    /// The first available message of this key that is not before `from`.
    pub(crate) fn next(&self, key: FilterKey, from: Rank) -> Option<Rank> {
        match key {
            FilterKey::Correlation(hash) => self.correlation.as_ref()?.next(hash, from),
            FilterKey::MessageId(hash) => self.message_id.as_ref()?.next(hash, from),
        }
    }

    /// Panics unless it covers exactly these available messages.
    pub(crate) fn audit<'a>(&self, available: impl Iterator<Item = (u8, &'a Entry)>) {
        let mut correlations = 0;
        let mut message_ids = 0;
        for (lane, entry) in available {
            let rank = Rank::new(lane, entry.sequence);
            let found = |keys: &Option<Keys>, hash: u64| {
                keys.as_ref().is_none_or(|keys| hash == 0 || keys.next(hash, rank) == Some(rank))
            };
            assert!(found(&self.correlation, entry.correlation_hash), "missing in the index");
            assert!(found(&self.message_id, entry.message_id_hash), "missing in the index");
            correlations += usize::from(entry.correlation_hash != 0);
            message_ids += usize::from(entry.message_id_hash != 0);
        }
        let len = |keys: &Option<Keys>, all| keys.as_ref().map_or(all, Keys::len);
        assert_eq!(len(&self.correlation, correlations), correlations, "only what is available");
        assert_eq!(len(&self.message_id, message_ids), message_ids, "only what is available");
    }
}
