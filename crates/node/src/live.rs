//! Which extents of the log still hold bodies of live messages, so that the others can be reused.

use std::collections::BTreeMap;

use towline_core::ExtentShare;
use towline_types::{BodyLocation, Lsn};

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
}
