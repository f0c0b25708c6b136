//! Which extents of the log still hold bodies of live messages, so that the others can be reused.

use std::collections::BTreeMap;

use towline_core::ExtentShare;
use towline_types::{BodyLocation, Lsn};

/// What logging a message takes beside its body, in bytes, at most: the fields of its record, the
/// texts of a dead letter, the frame of the record.
pub const MESSAGE_OVERHEAD_BYTES: u64 = 128;

/// The oldest extents, while few live bodies are in them: logging those again frees the extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparseExtents {
    /// All of them lie before this position.
    pub before: Lsn,
    /// Bytes that logging their live bodies again takes.
    pub cost_bytes: u64,
    /// Bytes of log that no live body is in afterwards.
    pub freed_bytes: u64,
}

/// Live bodies and their bytes, extent by extent.
#[derive(Debug)]
pub(crate) struct LiveExtents {
    extent_bytes: u64,
    live: BTreeMap<u64, Live>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Live {
    bodies: u64,
    bytes: u64,
}

impl LiveExtents {
    pub(crate) fn new(extent_bytes: u64) -> LiveExtents {
        assert!(extent_bytes > 0, "an extent has bytes");
        LiveExtents { extent_bytes, live: BTreeMap::new() }
    }

    pub(crate) fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    pub(crate) fn stored(&mut self, location: BodyLocation) {
        let live = self.live.entry(location.lsn.0 / self.extent_bytes).or_default();
        live.bodies += 1;
        live.bytes += u64::from(location.bytes);
    }

    /// # Panics
    /// When the body was not stored: the accounts would never be right again.
    pub(crate) fn removed(&mut self, location: BodyLocation) {
        let extent = location.lsn.0 / self.extent_bytes;
        let Some(live) = self.live.get_mut(&extent) else {
            assert!(self.live.contains_key(&extent), "a body was removed that was not stored");
            return;
        };
        assert!(live.bodies > 0, "a body was removed that was not stored");
        // Too few bytes would let the log take an extent for nearly empty.
        assert!(live.bytes >= u64::from(location.bytes), "more bytes are removed than were stored");
        live.bodies -= 1;
        live.bytes -= u64::from(location.bytes);
        if live.bodies == 0 {
            assert_eq!(live.bytes, 0, "bytes of an extent without bodies");
            self.live.remove(&extent);
        }
    }

    /// Bodies that an image knows of.
    pub(crate) fn stored_share(&mut self, share: ExtentShare) {
        let live = self.live.entry(share.extent).or_default();
        live.bodies += share.bodies;
        live.bytes += share.bytes;
    }

    /// Bodies that left together.
    ///
    /// # Panics
    /// As [`LiveExtents::removed`].
    pub(crate) fn removed_share(&mut self, share: ExtentShare) {
        // One that is not known has nothing that could be removed: see below.
        let known = self.live.get(&share.extent).copied().unwrap_or_default();
        let bodies = known.bodies.checked_sub(share.bodies);
        let bytes = known.bytes.checked_sub(share.bytes);
        let (Some(bodies), Some(bytes)) = (bodies, bytes) else {
            unreachable!("bodies were removed that were not stored")
        };
        if bodies == 0 {
            assert_eq!(bytes, 0, "bytes of an extent without bodies");
            self.live.remove(&share.extent);
        } else {
            self.live.insert(share.extent, Live { bodies, bytes });
        }
    }

    /// Start of the oldest extent that still holds a live body; `None` when no body is live.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.live.first_key_value().map(|(extent, _)| Lsn(extent * self.extent_bytes))
    }

    /// As many of the oldest extents before `end` as can be freed for at most `cost_max` bytes of
    /// log that free `gain` times as much. `None`: not one.
    pub(crate) fn sparse(&self, end: Lsn, gain: u64, cost_max: u64) -> Option<SparseExtents> {
        let end = end.0 / self.extent_bytes;
        let oldest = *self.live.first_key_value()?.0;
        let mut cost_bytes = 0_u64;
        let mut best = None;
        let mut extents = self.live.range(..end).peekable();
        while let Some((extent, live)) = extents.next() {
            cost_bytes = cost_bytes
                .saturating_add(live.bytes)
                .saturating_add(live.bodies.saturating_mul(MESSAGE_OVERHEAD_BYTES));
            if cost_bytes > cost_max {
                break;
            }
            let next = extents.peek().map_or(end, |(extent, _)| **extent);
            let freed_bytes = (next - oldest) * self.extent_bytes;
            if cost_bytes.saturating_mul(gain) <= freed_bytes {
                let before = Lsn((extent + 1) * self.extent_bytes);
                best = Some(SparseExtents { before, cost_bytes, freed_bytes });
            }
        }
        best
    }

    /// Each extent with live bodies and how many, but for those bodies `but`.
    pub(crate) fn bodies_without(
        &self,
        but: impl Iterator<Item = BodyLocation>,
    ) -> BTreeMap<u64, u64> {
        let mut bodies: BTreeMap<u64, u64> =
            self.live.iter().map(|(extent, live)| (*extent, live.bodies)).collect();
        for location in but {
            if let Some(count) = bodies.get_mut(&(location.lsn.0 / self.extent_bytes)) {
                *count = count.saturating_sub(1);
            }
        }
        bodies.retain(|_, count| *count > 0);
        bodies
    }

    /// Live bytes in all extents.
    pub(crate) fn bytes(&self) -> u64 {
        self.live.values().map(|live| live.bytes).sum()
    }

    /// Start of the extent that `lsn` is in.
    pub(crate) fn extent_start(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 - lsn.0 % self.extent_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_free_when_its_last_body_is_removed() {
        let mut live = LiveExtents::new(1_000);
        let first = BodyLocation { lsn: Lsn(1_500), bytes: 10 };
        let second = BodyLocation { lsn: Lsn(3_200), bytes: 20 };
        live.stored(first);
        live.stored(second);
        assert_eq!(live.oldest(), Some(Lsn(1_000)));
        let all = live.bodies_without(std::iter::empty());
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [(1, 1), (3, 1)]);
        let some = live.bodies_without(std::iter::once(second));
        assert_eq!(some.into_iter().collect::<Vec<_>>(), [(1, 1)]);
        live.removed(first);
        assert_eq!(live.oldest(), Some(Lsn(3_000)));
        live.removed(second);
        assert_eq!((live.oldest(), live.bytes()), (None, 0));
    }

    fn with(shares: &[(u64, u64, u64)]) -> LiveExtents {
        let mut live = LiveExtents::new(1_000_000);
        for &(extent, bodies, bytes) in shares {
            live.stored_share(ExtentShare { extent, bodies, bytes });
        }
        live
    }

    #[test]
    fn one_small_body_in_the_oldest_extents_is_worth_logging_again() {
        let live = with(&[(3, 1, 21), (9, 5_000, 900_000)]);
        let cost_bytes = 21 + MESSAGE_OVERHEAD_BYTES;
        let found = live.sparse(Lsn(10_500_000), 8, 1_000_000);
        let expected = SparseExtents { before: Lsn(4_000_000), cost_bytes, freed_bytes: 6_000_000 };
        assert_eq!(found, Some(expected));
        assert_eq!(live.sparse(Lsn(10_500_000), 8, cost_bytes - 1), None, "no room for it");
    }

    #[test]
    fn extents_that_are_full_of_live_bodies_stay() {
        let live = with(&[(0, 1, 980_000), (1, 1, 980_000), (2, 1, 21)]);
        assert_eq!(live.sparse(Lsn(3_000_000), 2, u64::MAX), None);
        let small = with(&[(0, 8_000, 0), (1, 8_000, 0)]);
        assert_eq!(small.sparse(Lsn(2_000_000), 2, u64::MAX), None, "what is around them counts");
    }

    #[test]
    fn a_denser_extent_is_freed_with_emptier_ones_around_it() {
        let live = with(&[(0, 1, 600_000), (1, 1, 100_000), (2, 1, 990_000)]);
        let found = live.sparse(Lsn(3_000_000), 2, u64::MAX).unwrap();
        assert_eq!((found.before, found.freed_bytes), (Lsn(2_000_000), 2_000_000));
        assert_eq!(live.sparse(Lsn(3_000_000), 8, u64::MAX), None);
    }

    #[test]
    fn the_extent_that_is_being_filled_is_not_freed() {
        let live = with(&[(4, 1, 21), (5, 1, 21)]);
        assert_eq!(live.sparse(Lsn(4_999_999), 2, u64::MAX), None);
        let found = live.sparse(Lsn(5_000_000), 2, u64::MAX).unwrap();
        assert_eq!((found.before, found.freed_bytes), (Lsn(5_000_000), 1_000_000));
        assert_eq!(LiveExtents::new(1_000).sparse(Lsn(9_000), 2, u64::MAX), None);
    }
}
