//! Bodies that went to the log ahead of the puts that will refer to them: chunks of large bodies,
//! and what large units of work do not keep in memory.
//!
//! Not here: their announcement (`decide`); whether their extents stay (effects say so).
//!
//! Invariant: the pieces of a body are in order, from the first on. A body in one piece, the
//! ordinary case of a unit of work with a million messages, costs no allocation of its own; and the
//! map is in order, so that an image need not sort them.

use std::collections::BTreeMap;

use towline_types::BodyLocation;

use crate::BodyId;
use crate::message::{Body, BodyName};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct SpilledBodies {
    bodies: BTreeMap<BodyName, Pieces>,
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

impl FromIterator<(BodyName, Pieces)> for SpilledBodies {
    fn from_iter<T: IntoIterator<Item = (BodyName, Pieces)>>(bodies: T) -> SpilledBodies {
        SpilledBodies { bodies: bodies.into_iter().collect() }
    }
}

impl SpilledBodies {
    /// How many bodies.
    pub(crate) fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Whether there are pieces of a message that is carried forward.
    pub(crate) fn has_carried(&self) -> bool {
        self.bodies.last_key_value().is_some_and(|(body, _)| matches!(body, BodyName::Carried(_)))
    }

    /// The pieces of a body that are there; none of an unknown one.
    pub(crate) fn pieces(&self, body: BodyName) -> &[BodyLocation] {
        self.bodies.get(&body).map_or(&[], Pieces::as_slice)
    }

    /// The next piece of a body is in the log.
    pub(crate) fn add(&mut self, body: BodyName, location: BodyLocation) {
        match self.bodies.get_mut(&body) {
            Some(pieces) => pieces.push(location),
            None => {
                self.bodies.insert(body, Pieces::One(location));
            }
        }
    }

    /// Some put refers to it now, or none ever will.
    pub(crate) fn take(&mut self, body: BodyName) -> Option<Pieces> {
        self.bodies.remove(&body)
    }

    /// As `take`, for all of `first` and the `count - 1` that were named after it. Unknown ones are
    /// passed over.
    pub(crate) fn take_range(&mut self, first: BodyId, count: u64) -> Vec<BodyLocation> {
        let end = BodyName::Own(BodyId(first.0.saturating_add(count)));
        let first = BodyName::Own(first);
        let known: Vec<BodyName> = self.bodies.range(first..end).map(|(body, _)| *body).collect();
        let mut taken = Vec::with_capacity(known.len());
        for body in known {
            let pieces = self.bodies.remove(&body);
            taken.extend_from_slice(pieces.as_ref().map_or(&[], Pieces::as_slice));
        }
        taken
    }

    /// The pieces of all of them, in order of their ids.
    pub(crate) fn take_all(&mut self) -> Vec<BodyLocation> {
        let locations = self.locations().collect();
        self.bodies.clear();
        locations
    }

    /// All of them, in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BodyName, &[BodyLocation])> {
        self.bodies.iter().map(|(body, pieces)| (*body, pieces.as_slice()))
    }

    /// All pieces, in order of their bodies.
    pub(crate) fn locations(&self) -> impl Iterator<Item = BodyLocation> {
        self.bodies.values().flat_map(|pieces| pieces.as_slice().iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;

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
            let last = if count > 3 { Some(location(60)) } else { None };
            let wanted = [location(30), location(40), location(41)].into_iter().chain(last);
            assert_eq!(taken, wanted.collect::<Vec<_>>(), "{count}");
            assert_eq!(ahead.len(), if count > 3 { 1 } else { 2 });
        }
    }
}
