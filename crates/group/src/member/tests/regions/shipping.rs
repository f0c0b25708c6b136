//! What goes over the link between the regions, and what comes back: the live group's end of it.

use super::*;
use crate::{Shipment, ShipmentRefusal};

impl Regions {
    /// The live group connects to a member of the other one, and ships from its position on.
    pub(in super::super) fn ship_to(&mut self, to: usize) {
        let seat = (1 - self.live, to);
        self.end_shipping(to);
        let committed = self.truth[self.live].len() as u64;
        if self.lives(seat) {
            let next = (self.node(seat).log.len() as u64).min(committed) + 1;
            self.shippers.push(Shipper { to, next });
        }
    }

    pub(in super::super) fn end_shipping(&mut self, to: usize) {
        let before = self.shippers.len();
        self.shippers.retain(|shipper| shipper.to != to);
        let seat = (1 - self.live, to);
        if self.shippers.len() < before {
            self.shipments.retain(|(of, _)| *of != seat);
            self.input(seat, Input::ShippingEnded);
        }
    }

    pub(in super::super) fn ships_to(&self) -> Vec<usize> {
        self.shippers.iter().map(|shipper| shipper.to).collect()
    }

    /// One of those that ship sends some batches; those before are on their way.
    pub(in super::super) fn ship(&mut self) {
        if self.shippers.is_empty() || self.shipments.len() > 20 {
            return;
        }
        let which = self.random.index(self.shippers.len());
        let count = self.draw(4);
        let truth = &self.truth[self.live];
        let Some(term) = truth.last_key_value().map(|(_, last)| last.term) else { return };
        let Shipper { to, next } = self.shippers[which];
        let previous = truth.get(&(next - 1)).map(Batch::place).unwrap_or_default();
        if next > 1 && previous.index == 0 {
            return;
        }
        let batches: Vec<Batch> = truth.range(next..next + count).map(|it| it.1.clone()).collect();
        self.shippers[which].next += batches.len() as u64;
        let shipment = Shipment { term, previous, batches };
        self.shipments.push(((1 - self.live, to), shipment));
    }

    pub(in super::super) fn deliver_shipment(&mut self) {
        let wild = self.draw(16);
        let count = self.shipments.len();
        if count == 0 {
            return;
        }
        let at = if wild == 0 && !self.is_calm { self.random.index(count) } else { 0 };
        let (seat, shipment) = self.shipments.remove(at);
        if wild != 1 || self.is_calm {
            self.input(seat, Input::Shipped(shipment));
        }
    }

    pub(in super::super) fn is_answered(&mut self, seat: Seat, answer: ShippedAnswer) {
        let (group, at) = seat;
        let point = answer.recovery_point;
        if point.index > 0 {
            let has = |node: &&Node| {
                let batch = node.log[..node.durable].get(before(point.index));
                batch.is_some_and(|batch| batch.place() == point) || node.lost as u64 >= point.index
            };
            let count = self.groups[group].iter().filter(has).count();
            assert!(count > self.size / 2, "seed {}: {point:?} is durable at {count}", self.seed);
        }
        assert!(answer.durable.index <= self.node(seat).durable as u64, "seed {}", self.seed);
        self.answers.push(answer);
        // What comes after a role changed is of no live group that listens.
        if group == self.live {
            return;
        }
        if point.index > self.reported[group].index {
            self.reported[group] = point;
        }
        let Some(shipper) = self.shippers.iter_mut().find(|shipper| shipper.to == at) else {
            return;
        };
        match answer.refused {
            Some(ShipmentRefusal::SendFrom { index, .. }) => shipper.next = index,
            Some(ShipmentRefusal::Diverged { index }) => {
                panic!("seed {}: {seat:?} has another batch {index}", self.seed)
            }
            Some(ShipmentRefusal::Promoted) => self.shippers.retain(|shipper| shipper.to != at),
            Some(ShipmentRefusal::NotYet) => shipper.next = answer.received.index.max(1),
            None => {}
        }
    }
}
