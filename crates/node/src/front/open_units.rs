//! The units of work that a connection declared: which of its deliveries have a provisional outcome
//! in which of them, and how much their outcomes make the instance hold.
//!
//! Not here: what is in a unit otherwise, and whether it can commit in the eyes of the instance.
//!
//! Invariant: a delivery has a provisional outcome in one unit at most, which knows it.

use std::collections::{BTreeMap, BTreeSet};

use towline_amqp::LinkId;
use towline_amqp::codec::Map;
use towline_core::{FastMap, UnitId};
use towline_types::limits;

/// A delivery to the peer: its link, and our key for it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeliveryKey {
    pub(super) link: LinkId,
    pub(super) key: u64,
}

/// A unit of work that is open.
#[derive(Debug)]
pub(super) struct OpenUnit {
    /// The coordinator link that it was declared on: it ends with it.
    coordinator: LinkId,
    /// Deliveries with a provisional outcome that the peer has not settled.
    pub(super) provisional: BTreeSet<DeliveryKey>,
    /// Outcomes that were said in it.
    outcomes: u64,
    /// Memory that is counted for their message annotations.
    annotation_bytes: u64,
    /// A message of it was refused before the instance saw it, or an outcome reached no delivery:
    /// it cannot commit.
    pub(super) spoiled: bool,
    /// The peer asked for a commit all the same; it learns that it was a rollback.
    pub(super) commit_refused: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct OpenUnits {
    units: FastMap<UnitId, OpenUnit>,
    /// Of all deliveries with a provisional outcome.
    unit_of: BTreeMap<DeliveryKey, UnitId>,
    /// Of all units.
    outcomes: u64,
    annotation_bytes: u64,
}

impl OpenUnits {
    /// A unit was declared on this link.
    pub(super) fn declared(&mut self, unit: UnitId, coordinator: LinkId) {
        let open = OpenUnit {
            coordinator,
            provisional: BTreeSet::new(),
            outcomes: 0,
            annotation_bytes: 0,
            spoiled: false,
            commit_refused: false,
        };
        let before = self.units.insert(unit, open);
        assert!(before.is_none(), "a unit of work is declared once");
    }

    pub(super) fn is_open(&self, unit: UnitId) -> bool {
        self.units.contains_key(&unit)
    }

    pub(super) fn get_mut(&mut self, unit: UnitId) -> Option<&mut OpenUnit> {
        self.units.get_mut(&unit)
    }

    /// What was declared on this link and is open.
    pub(super) fn of_coordinator(&self, link: LinkId) -> impl Iterator<Item = UnitId> {
        let of_link = self.units.iter().filter(move |(_, open)| open.coordinator == link);
        of_link.map(|(unit, _)| *unit)
    }

    /// Something of this unit was lost, if it is open.
    pub(super) fn spoil(&mut self, unit: Option<UnitId>) {
        if let Some(open) = unit.and_then(|unit| self.units.get_mut(&unit)) {
            open.spoiled = true;
        }
    }

    /// Something was lost that may have been of any unit.
    pub(super) fn spoil_all(&mut self) {
        self.units.values_mut().for_each(|open| open.spoiled = true);
    }

    /// The unit of work that an outcome belongs to: the one that the peer named, or the one that
    /// has the delivery already, of which the peer now says that it has forgotten it. `None`: the
    /// peer named one that is not open on this connection (AMQP 4.4.2).
    pub(super) fn of_outcome(
        &mut self,
        delivery: DeliveryKey,
        named: Option<UnitId>,
        settled: bool,
    ) -> Option<Option<UnitId>> {
        let unit = match named {
            Some(unit) if self.is_open(unit) => unit,
            Some(_) => return None,
            None if settled => return Some(self.forget(delivery)),
            None => return Some(None),
        };
        let before = self.forget(delivery);
        let open = self.units.get_mut(&unit)?;
        if before != Some(unit) {
            open.outcomes += 1;
            self.outcomes += 1;
        }
        if !settled {
            open.provisional.insert(delivery);
            self.unit_of.insert(delivery, unit);
        }
        Some(Some(unit))
    }

    /// An outcome in this unit has message annotations. False: units of this connection have too
    /// many, and this one does not commit without them.
    pub(super) fn annotate(&mut self, unit: UnitId, annotations: &Map) -> bool {
        let Some(open) = self.units.get_mut(&unit) else { return false };
        let bytes = limits::STAGED_ANNOTATIONS_BYTES + annotations.encoded_bytes() as u64;
        let fits = self.annotation_bytes + bytes <= limits::CONNECTION_STAGED_BYTES_MAX;
        if fits {
            open.annotation_bytes += bytes;
            self.annotation_bytes += bytes;
        } else {
            open.spoiled = true;
        }
        fits
    }

    /// The deliveries of this link are not the peer's any more.
    pub(super) fn link_gone(&mut self, link: LinkId) {
        let of_link = DeliveryKey { link, key: 0 }..=DeliveryKey { link, key: u64::MAX };
        while let Some((delivery, _)) = self.unit_of.range(of_link.clone()).next() {
            let delivery = *delivery;
            self.forget(delivery);
        }
    }

    /// A unit is not open any more.
    pub(super) fn ended(&mut self, unit: UnitId) -> Option<OpenUnit> {
        let open = self.units.remove(&unit)?;
        for delivery in &open.provisional {
            self.unit_of.remove(delivery);
        }
        assert!(self.outcomes >= open.outcomes, "an outcome that was not counted");
        assert!(self.annotation_bytes >= open.annotation_bytes, "annotations not counted");
        self.outcomes -= open.outcomes;
        self.annotation_bytes -= open.annotation_bytes;
        Some(open)
    }

    /// Memory that is counted for their outcomes, here and at the instance.
    pub(super) fn bytes(&self) -> u64 {
        self.outcomes * limits::STAGED_GET_BYTES
            + self.annotation_bytes
            + self.unit_of.len() as u64 * limits::PROVISIONAL_OUTCOME_BYTES
    }

    /// The unit in which this delivery has a provisional outcome; not any more.
    fn forget(&mut self, delivery: DeliveryKey) -> Option<UnitId> {
        let unit = self.unit_of.remove(&delivery)?;
        let open = self.units.get_mut(&unit);
        let knew = open.is_some_and(|open| open.provisional.remove(&delivery));
        assert!(knew, "a unit knows the deliveries with an outcome in it");
        Some(unit)
    }
}
