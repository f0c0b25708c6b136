//! What each connection has open, found by connection: its end costs as much as it held, however
//! many others there are.
//!
//! It knows ids only; what they mean stands in the instance's maps.
//!
//! Invariant: an entry is here as long as the thing of that id is open.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use towline_core::{ConnectionId, ConsumerId, UnitId};

use crate::request::ProducerId;

/// Open things, each under its connection.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Consumers.
    pub(super) consumers: HeldIds<ConsumerId>,
    /// Producers.
    pub(super) producers: HeldIds<ProducerId>,
    /// Units of work in which a put or a settlement was refused: they can only be rolled back.
    pub(super) doomed: HeldIds<UnitId>,
}

/// Ids of one kind.
#[derive(Debug)]
pub(super) struct HeldIds<T> {
    of: HashMap<ConnectionId, BTreeSet<T>>,
}

impl<T> Default for HeldIds<T> {
    fn default() -> HeldIds<T> {
        HeldIds { of: HashMap::new() }
    }
}

impl<T: Copy + Ord> HeldIds<T> {
    pub(super) fn insert(&mut self, connection: ConnectionId, id: T) {
        self.of.entry(connection).or_default().insert(id);
    }

    /// True when it was there.
    pub(super) fn remove(&mut self, connection: ConnectionId, id: T) -> bool {
        let Entry::Occupied(mut own) = self.of.entry(connection) else { return false };
        let was_there = own.get_mut().remove(&id);
        if own.get().is_empty() {
            own.remove();
        }
        was_there
    }

    /// All of one connection, in the order of their ids.
    pub(super) fn of(&self, connection: ConnectionId) -> impl Iterator<Item = T> {
        self.of.get(&connection).into_iter().flatten().copied()
    }

    /// All of one connection, in the order of their ids; they are not here any more.
    pub(super) fn take(&mut self, connection: ConnectionId) -> BTreeSet<T> {
        // Of one that has nothing open there is no entry.
        self.of.remove(&connection).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: u64 = 1_000;

    #[test]
    fn the_end_of_a_connection_takes_its_own_and_leaves_those_of_others() {
        let mut held: HeldIds<ConsumerId> = HeldIds::default();
        for id in 0..2 * CONNECTIONS {
            held.insert(ConnectionId(id % CONNECTIONS), ConsumerId(id));
        }
        let own = held.take(ConnectionId(7));
        assert_eq!(own, [ConsumerId(7), ConsumerId(CONNECTIONS + 7)].into_iter().collect());
        assert!(held.take(ConnectionId(7)).is_empty(), "taken once");
        assert_eq!(held.take(ConnectionId(8)).len(), 2);
    }

    #[test]
    fn a_connection_that_holds_nothing_takes_no_memory() {
        let mut held: HeldIds<UnitId> = HeldIds::default();
        held.insert(ConnectionId(1), UnitId(1));
        assert!(!held.remove(ConnectionId(2), UnitId(1)), "another's is not removed");
        assert!(held.remove(ConnectionId(1), UnitId(1)));
        assert!(!held.remove(ConnectionId(1), UnitId(1)));
        assert!(held.of.is_empty());
    }
}
