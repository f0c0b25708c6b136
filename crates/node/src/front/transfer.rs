//! Messages arrive: puts, and the commands of the transaction coordinator.

use towline_amqp::types::{
    CoordinatorCommand, DeliveryState, Error, Outcome as AmqpOutcome, condition,
};
use towline_amqp::{IncomingDelivery, IncomingId, coordinator};
use towline_core::{Refusal, UnitId};
use towline_types::Time;

use super::checking::{CheckedMessage, PendingMessage};
use super::links::LinkUse;
use super::message::{self, IncomingMessage};
use super::open_units::DeliveryKey;
use super::refused::RefusedMessage;
use super::{Front, InFlight, NO_REQUESTER, error};
use crate::request::{ProducerId, PutTo, Request};

impl Front {
    pub(super) fn transfer(
        &mut self,
        now: Time,
        transfer: IncomingDelivery,
        requests: &mut Vec<Request>,
    ) {
        let Some(link) = self.links.get_mut(transfer.link) else {
            // It was detached behind a frame that came with this one.
            return self.lost(transfer.state.as_ref());
        };
        match &mut link.used_for {
            LinkUse::Producer { producer, credit, .. } => {
                *credit = credit.saturating_sub(1);
                let producer = *producer;
                self.put(now, transfer, Some(producer), requests);
            }
            LinkUse::AnonymousProducer { credit, .. } => {
                *credit = credit.saturating_sub(1);
                self.put(now, transfer, None, requests);
            }
            LinkUse::Coordinator { credit, .. } => {
                *credit = credit.saturating_sub(1);
                self.coordinate(&transfer, requests);
            }
            LinkUse::AdminRequests { credit } => {
                *credit = credit.saturating_sub(1);
                self.administer(&transfer, requests);
            }
            LinkUse::Opening(_)
            | LinkUse::Abandoned
            | LinkUse::Consumer { .. }
            | LinkUse::AdminReplies { .. } => self.lost(transfer.state.as_ref()),
        }
    }

    fn put(
        &mut self,
        now: Time,
        transfer: IncomingDelivery,
        producer: Option<ProducerId>,
        requests: &mut Vec<Request>,
    ) {
        let delivery = transfer.delivery;
        let tag = producer.is_none().then_some(transfer.tag);
        let mut refused = RefusedMessage { delivery, tag, unit: None, avoidable: true };
        let unit = match self.open_unit_of(transfer.state.as_ref()) {
            Ok(unit) => unit,
            Err(error) => return self.refuse_message(refused, error, requests),
        };
        refused.unit = unit;
        self.check(now, transfer, producer, refused, requests);
    }

    /// A message was checked, and is put if it is one.
    pub(super) fn put_checked(
        &mut self,
        pending: PendingMessage,
        checked: CheckedMessage,
        requests: &mut Vec<Request>,
    ) {
        let PendingMessage { refused, producer, bytes, .. } = pending;
        let RefusedMessage { delivery, tag, unit, .. } = refused;
        if self.links.token(delivery.link).is_none() {
            // It was detached while the message was checked, because an earlier one was refused,
            // for example. Its producer is closed, and what has that id now may be another
            // client's.
            return self.units.spoil(unit);
        }
        let IncomingMessage { message, to } = match checked.0 {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse_message(refused, error, requests),
        };
        let target = match (producer, to) {
            (Some(producer), _) => PutTo::Producer(producer),
            (None, Some(name)) => PutTo::Name(name),
            (None, None) => {
                let text = "on an anonymous link each message needs `to`";
                let error = Error::new(condition::INVALID_FIELD, text);
                return self.refuse_message(refused, error, requests);
            }
        };
        self.links.logs(delivery.link, message.persistent == Some(true));
        let token = self.in_flight.insert(InFlight { delivery, bytes, tag });
        self.incoming_bytes += bytes;
        let token = token as u64;
        // Asked for even when the sender settled it: the answer frees what it holds here.
        requests.push(Request::Put { token, target, message, unit, reply_wanted: true });
    }

    /// The unit of work that a transfer belongs to.
    ///
    /// # Errors
    /// `amqp:transaction:unknown-id` when it names one that is not open on this connection: the
    /// message is refused outside of any (AMQP 4.4.1).
    fn open_unit_of(&self, state: Option<&DeliveryState>) -> Result<Option<UnitId>, Error> {
        let unit = message::unit_of(state)?;
        if unit.is_some_and(|unit| !self.units.is_open(unit)) {
            return Err(error::of_refusal(&Refusal::UnknownUnit));
        }
        Ok(unit)
    }

    pub(super) fn take_in_flight(&mut self, token: u64) -> Option<IncomingId> {
        self.take_put(token).map(|in_flight| in_flight.delivery)
    }

    fn take_put(&mut self, token: u64) -> Option<InFlight> {
        let slot = usize::try_from(token).ok()?;
        let in_flight = self.in_flight.try_remove(slot)?;
        // Back-pressure counts on it: a wrapped sum would stop the connection for ever.
        assert!(self.incoming_bytes >= in_flight.bytes, "an answered put was not counted");
        self.incoming_bytes -= in_flight.bytes;
        Some(in_flight)
    }

    pub(super) fn put_answered(
        &mut self,
        token: u64,
        unit: Option<UnitId>,
        result: Result<(), Refusal>,
        requests: &mut Vec<Request>,
    ) {
        let Some(InFlight { delivery, tag, .. }) = self.take_put(token) else {
            unreachable!("a put is answered once")
        };
        match result {
            Ok(()) => {
                let state = match unit {
                    None => DeliveryState::Accepted,
                    Some(unit) => DeliveryState::Transactional {
                        txn_id: message::txn_id(unit),
                        outcome: Some(AmqpOutcome::Accepted),
                    },
                };
                self.machine.settle_incoming(delivery, state);
                self.refill(delivery.link);
            }
            Err(refusal) => {
                let refused = RefusedMessage { delivery, tag, unit, avoidable: false };
                self.refuse_message(refused, error::of_refusal(&refusal), requests);
            }
        }
    }

    /// Refuses one message; the link goes on.
    pub(super) fn reject(&mut self, delivery: IncomingId, unit: Option<UnitId>, error: Error) {
        self.units.spoil(unit);
        let error = Some(Box::new(error));
        let state = match unit {
            None => DeliveryState::Rejected { error },
            Some(unit) => DeliveryState::Transactional {
                txn_id: message::txn_id(unit),
                outcome: Some(AmqpOutcome::Rejected { error }),
            },
        };
        self.machine.settle_incoming(delivery, state);
        self.refill(delivery.link);
    }

    fn coordinate(&mut self, transfer: &IncomingDelivery, requests: &mut Vec<Request>) {
        let delivery = transfer.delivery;
        let command = match coordinator::parse(&transfer.payload) {
            Ok(command) => command,
            Err(error) => {
                let text = format!("not a declare or discharge: {error}");
                return self.reject(delivery, None, Error::new(condition::DECODE_ERROR, &text));
            }
        };
        let token = self.in_flight.insert(InFlight { delivery, bytes: 0, tag: None }) as u64;
        match command {
            CoordinatorCommand::Declare(_) => requests.push(Request::Declare { token }),
            CoordinatorCommand::Discharge(discharge) => {
                match message::unit_of_txn(&discharge.txn_id) {
                    Ok(unit) => {
                        // A unit that lost a message must not commit as though it were whole.
                        let mut fail = discharge.fail;
                        if let Some(open) = self.units.get_mut(unit).filter(|open| open.spoiled) {
                            open.commit_refused = !fail;
                            fail = true;
                        }
                        requests.push(Request::Discharge { token, unit, fail });
                    }
                    Err(error) => {
                        self.take_in_flight(token);
                        self.refuse_discharge(delivery, error, requests);
                    }
                }
            }
        }
    }

    pub(super) fn declared(
        &mut self,
        token: u64,
        result: Result<UnitId, Refusal>,
        requests: &mut Vec<Request>,
    ) {
        let Some(delivery) = self.take_in_flight(token) else { return };
        match result {
            Ok(unit) => {
                if self.links.token(delivery.link).is_none() {
                    // The coordinator link went before it heard of its unit.
                    requests.push(Request::Discharge { token: NO_REQUESTER, unit, fail: true });
                    return;
                }
                self.units.declared(unit, delivery.link);
                let state = DeliveryState::Declared { txn_id: message::txn_id(unit) };
                self.machine.settle_incoming(delivery, state);
                self.refill(delivery.link);
            }
            Err(refusal) => self.reject(delivery, None, error::of_refusal(&refusal)),
        }
    }

    pub(super) fn discharged(
        &mut self,
        token: u64,
        unit: UnitId,
        fail: bool,
        result: Result<(), Refusal>,
        requests: &mut Vec<Request>,
    ) {
        let mut result = result;
        let committed = !fail && result.is_ok();
        if let Some(open) = self.units.ended(unit) {
            if open.commit_refused && result.is_ok() {
                result = Err(Refusal::UnitDoomed);
            }
            for DeliveryKey { link, key } in open.provisional {
                if committed {
                    // Whatever the peer says of it from now on is too late.
                    self.machine.settle_outgoing(link, key, None);
                } else {
                    // It is the peer's as before, and may be settled again (AMQP 4.4.2).
                    self.machine.reopen_outgoing(link, key);
                }
            }
        }
        let Some(delivery) = self.take_in_flight(token) else { return };
        match result {
            Ok(()) => {
                self.machine.settle_incoming(delivery, DeliveryState::Accepted);
                self.refill(delivery.link);
            }
            Err(refusal) => {
                self.refuse_discharge(delivery, error::of_refusal(&refusal), requests);
            }
        }
    }

    /// Notifies a controller that a discharge failed: by rejecting it, or where the source of its
    /// link does not know that outcome, by detaching the link (AMQP 4.3).
    fn refuse_discharge(
        &mut self,
        delivery: IncomingId,
        error: Error,
        requests: &mut Vec<Request>,
    ) {
        let link = delivery.link;
        let used_for = self.links.get_mut(link).map(|link| &link.used_for);
        if !matches!(used_for, Some(LinkUse::Coordinator { rejects: false, .. })) {
            return self.reject(delivery, None, error);
        }
        self.machine.detach(link, true, Some(error));
        self.detached(link, requests);
    }
}
