//! Bodies that went to the log ahead of the puts that will refer to them: chunks of large bodies,
//! and what large units of work do not keep in memory.
//!
//! Not here: their announcement (`decide`); whether their extents stay (effects say so).
//!
//! Invariants: the pieces of a body are in order, from the first on. A body in one piece, the
//! ordinary case of a unit of work with a million messages, costs no allocation of its own. Bodies
//! are in blocks, in order of their ids: those of a large unit are given up, and go into an image,
//! block by block, and not one by one while all others wait. No block is empty.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use towline_types::BodyLocation;

use crate::BodyId;
use crate::message::{Body, BodyName};

/// Ids of one block: some 16 KiB when all of them are there.
const BLOCK_IDS: u64 = 512;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct SpilledBodies {
    /// By their first id, divided by the ids of a block.
    blocks: BTreeMap<u64, Arc<SpilledBlock>>,
    /// Of messages that are carried forward.
    carried: BTreeMap<BodyName, Pieces>,
    /// How many bodies are in blocks.
    count: usize,
}

/// Bodies with ids near each other, in order. An image that is being written may have it too.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpilledBlock {
    bodies: VecDeque<(BodyId, Pieces)>,
}

/// Where a body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    One(BodyLocation),
    Many(Vec<BodyLocation>),
}

impl Pieces {
    pub(crate) fn as_slice(&self) -> &[BodyLocation] {
        match self {
            Pieces::One(location) => std::slice::from_ref(location),
            Pieces::Many(locations) => locations,
        }
    }

    pub(crate) fn push(&mut self, location: BodyLocation) {
        match self {
            Pieces::One(first) => *self = Pieces::Many(vec![*first, location]),
            Pieces::Many(locations) => locations.push(location),
        }
    }

    /// The body of a message in these pieces.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Pieces::One(location) => Body::Log(location),
            Pieces::Many(locations) => Body::Chunks(locations.into_boxed_slice()),
        }
    }
}

impl SpilledBlock {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BodyId, &[BodyLocation])> {
        self.bodies.iter().map(|(body, pieces)| (*body, pieces.as_slice()))
    }

    /// The pieces of all of them, in order.
    pub(crate) fn locations(&self) -> impl Iterator<Item = BodyLocation> {
        self.iter().flat_map(|(_, pieces)| pieces.iter().copied())
    }

    fn find(&self, body: BodyId) -> Result<usize, usize> {
        self.bodies.binary_search_by_key(&body, |(known, _)| *known)
    }

    fn add(&mut self, body: BodyId, location: BodyLocation) -> bool {
        match self.find(body) {
            Ok(at) => {
                let known = self.bodies.get_mut(at);
                known.into_iter().for_each(|(_, pieces)| pieces.push(location));
                false
            }
            Err(at) => {
                self.bodies.insert(at, (body, Pieces::One(location)));
                true
            }
        }
    }

    /// Takes those from `first` to before `end`.
    fn take_part(&mut self, first: BodyId, end: BodyId) -> SpilledBlock {
        let from = self.bodies.partition_point(|(body, _)| *body < first);
        let to = self.bodies.partition_point(|(body, _)| *body < end);
        SpilledBlock { bodies: self.bodies.drain(from..to).collect() }
    }
}

impl FromIterator<(BodyName, Pieces)> for SpilledBodies {
    fn from_iter<T: IntoIterator<Item = (BodyName, Pieces)>>(bodies: T) -> SpilledBodies {
        let mut spilled = SpilledBodies::default();
        for (body, pieces) in bodies {
            pieces.as_slice().iter().for_each(|location| spilled.add(body, *location));
        }
        spilled
    }
}

impl SpilledBodies {
    /// How many bodies.
    pub(crate) fn len(&self) -> usize {
        self.count + self.carried.len()
    }

    /// Whether there are pieces of a message that is carried forward.
    pub(crate) fn has_carried(&self) -> bool {
        !self.carried.is_empty()
    }

    /// The pieces of a body that are there; none of an unknown one.
    pub(crate) fn pieces(&self, body: BodyName) -> &[BodyLocation] {
        let found = match body {
            BodyName::Own(id) => self.blocks.get(&(id.0 / BLOCK_IDS)).and_then(|block| {
                let at = block.find(id).ok()?;
                block.bodies.get(at).map(|(_, pieces)| pieces)
            }),
            BodyName::Carried(_) => self.carried.get(&body),
        };
        found.map_or(&[], Pieces::as_slice)
    }

    /// The next piece of a body is in the log.
    pub(crate) fn add(&mut self, body: BodyName, location: BodyLocation) {
        match body {
            BodyName::Own(id) => {
                let block = self.blocks.entry(id.0 / BLOCK_IDS).or_default();
                self.count += usize::from(Arc::make_mut(block).add(id, location));
            }
            BodyName::Carried(_) => match self.carried.get_mut(&body) {
                Some(pieces) => pieces.push(location),
                None => {
                    self.carried.insert(body, Pieces::One(location));
                }
            },
        }
    }

    /// Some put refers to it now, or none ever will.
    pub(crate) fn take(&mut self, body: BodyName) -> Option<Pieces> {
        let BodyName::Own(id) = body else { return self.carried.remove(&body) };
        let key = id.0 / BLOCK_IDS;
        let block = self.blocks.get_mut(&key)?;
        let at = block.find(id).ok()?;
        let (_, pieces) = Arc::make_mut(block).bodies.remove(at)?;
        if block.bodies.is_empty() {
            self.blocks.remove(&key);
        }
        self.count -= 1;
        Some(pieces)
    }

    /// As `take`, for all of `first` and the `count - 1` that were named after it. Unknown ones are
    /// passed over. Those of a million are moved block by block.
    pub(crate) fn take_range(&mut self, first: BodyId, count: u64) -> Vec<Arc<SpilledBlock>> {
        let Some(last) = count.checked_sub(1).map(|more| BodyId(first.0.saturating_add(more)))
        else {
            return Vec::new();
        };
        let keys = first.0 / BLOCK_IDS..=last.0 / BLOCK_IDS;
        let known: Vec<u64> = self.blocks.range(keys).map(|(key, _)| *key).collect();
        let mut taken = Vec::with_capacity(known.len());
        for key in known {
            let ids = key * BLOCK_IDS..=key * BLOCK_IDS + (BLOCK_IDS - 1);
            let all = first.0 <= *ids.start() && *ids.end() <= last.0;
            let part =
                if all { self.blocks.remove(&key) } else { self.take_part(key, first, last) };
            taken.extend(part.filter(|part| !part.bodies.is_empty()));
        }
        self.count -= taken.iter().map(|block| block.bodies.len()).sum::<usize>();
        taken
    }

    fn take_part(&mut self, key: u64, first: BodyId, last: BodyId) -> Option<Arc<SpilledBlock>> {
        let block = Arc::make_mut(self.blocks.get_mut(&key)?);
        let part = block.take_part(first, BodyId(last.0.saturating_add(1)));
        if block.bodies.is_empty() {
            self.blocks.remove(&key);
        }
        Some(Arc::new(part))
    }

    /// The pieces of all of them, in order of their ids.
    pub(crate) fn take_all(&mut self) -> Vec<BodyLocation> {
        let locations = self.locations().collect();
        *self = SpilledBodies::default();
        locations
    }

    /// All blocks, in order of their ids.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<SpilledBlock>> {
        self.blocks.values()
    }

    /// All pieces, in order of their bodies.
    pub(crate) fn locations(&self) -> impl Iterator<Item = BodyLocation> {
        let carried = self.carried.values().flat_map(|pieces| pieces.as_slice().iter().copied());
        self.blocks.values().flat_map(|block| block.locations()).chain(carried)
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;
    use crate::MessageSequence;

    fn location(lsn: u64) -> BodyLocation {
        BodyLocation { lsn: Lsn(lsn), bytes: 1 }
    }

    #[test]
    fn a_range_takes_what_is_there_of_it_and_nothing_else_however_long_it_is() {
        for count in [2, 3, 100, u64::MAX] {
            let mut ahead = SpilledBodies::default();
            for body in [1, 3, 4, 6] {
                ahead.add(BodyName::Own(BodyId(body)), location(body * 10));
            }
            ahead.add(BodyName::Own(BodyId(4)), location(41));
            let taken = ahead.take_range(BodyId(3), count);
            let taken: Vec<_> = taken.iter().flat_map(|block| block.locations()).collect();
            let last = if count > 3 { Some(location(60)) } else { None };
            let wanted = [location(30), location(40), location(41)].into_iter().chain(last);
            assert_eq!(taken, wanted.collect::<Vec<_>>(), "{count}");
            assert_eq!(ahead.len(), if count > 3 { 1 } else { 2 });
        }
    }

    #[test]
    fn a_range_is_exact_wherever_the_borders_of_blocks_lie() {
        let ids = [0, 1, 510, 511, 512, 513, 1_023, 1_024, 1_535, 1_536, 9_000];
        for first in 0..ids.len() {
            for last in first..ids.len() {
                let mut ahead = SpilledBodies::default();
                for id in ids {
                    ahead.add(BodyName::Own(BodyId(id)), location(id));
                }
                ahead.add(BodyName::Carried(MessageSequence(1)), location(77));
                let (first, last) = (ids[first], ids[last]);
                let taken = ahead.take_range(BodyId(first), last - first + 1);
                let taken: Vec<_> = taken.iter().flat_map(|block| block.locations()).collect();
                let inside = |id: &u64| (first..=last).contains(id);
                let wanted = ids.iter().filter(|id| inside(id)).map(|id| location(*id));
                assert_eq!(taken, wanted.collect::<Vec<_>>(), "{first} to {last}");
                let rest = ids.iter().filter(|id| !inside(id)).map(|id| location(*id));
                let rest: Vec<_> = rest.chain([location(77)]).collect();
                assert_eq!(ahead.locations().collect::<Vec<_>>(), rest);
                assert_eq!(ahead.len(), rest.len());
                assert!(ahead.has_carried());
                let known = |id: &&u64| !ahead.pieces(BodyName::Own(BodyId(**id))).is_empty();
                assert!(ids.iter().filter(known).all(|id| !inside(id)));
            }
        }
    }

    #[test]
    fn what_an_image_has_of_a_block_stays_as_it_was() {
        let mut ahead = SpilledBodies::default();
        for id in 0..600 {
            ahead.add(BodyName::Own(BodyId(id)), location(id));
        }
        let image: Vec<_> = ahead.blocks().map(Arc::clone).collect();
        assert!(ahead.take(BodyName::Own(BodyId(7))).is_some());
        assert!(ahead.take(BodyName::Own(BodyId(7))).is_none());
        ahead.add(BodyName::Own(BodyId(600)), location(600));
        ahead.take_range(BodyId(500), 50);
        assert_eq!(ahead.len(), 600 - 1 + 1 - 50);
        let of_image = image.iter().flat_map(|block| block.locations());
        assert!(of_image.eq((0..600).map(location)));
    }
}
