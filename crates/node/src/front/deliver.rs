//! Messages leave, and their outcomes come back.

use bytes::{Bytes, BytesMut};
use towline_amqp::sections::{self, Header as AmqpHeader};
use towline_amqp::types::{DeliveryState, TxnId};
use towline_amqp::{LinkFlow, LinkId, Outgoing};
use towline_core::{Delivery, MessageSequence, Refusal};
use towline_types::{Payload, Time, limits};

use super::links::LinkUse;
use super::message::{self, PeerOutcome, SettlementAnswer};
use super::open_units::DeliveryKey;
use super::{Front, format};
use crate::request::Request;

/// Bytes of one allocation from which header sections are cut.
const PREFIX_BYTES: usize = 8 * 1024;
/// Longest header section that we write.
const HEADER_BYTES_MAX: usize = 64;
/// What the reason for which a message is a dead letter adds to it, at most: the name of its queue
/// twice, short texts and times.
const DEAD_LETTER_BYTES_MAX: usize = 1_024;

/// Bytes of a delivery on the wire, without its frames, at most.
pub(super) fn wire_bytes_max(delivery: &Delivery) -> usize {
    let content = usize::try_from(delivery.body.bytes()).unwrap_or(usize::MAX);
    let annotated = delivery.annotations.is_some();
    let annotations = if annotated { limits::MODIFIED_ANNOTATIONS_BYTES_MAX } else { 0 };
    let dead_letter = if delivery.dead_letter.is_some() { DEAD_LETTER_BYTES_MAX } else { 0 };
    content.saturating_add(HEADER_BYTES_MAX + annotations + dead_letter)
}

impl Front {
    /// Writes a delivery; the machine can send it at once.
    pub(super) fn send(
        &mut self,
        now: Time,
        link: LinkId,
        delivery: &Delivery,
        body: Payload,
        settled: bool,
    ) {
        let (message_format, content) = format::without_format(body);
        let content = match &delivery.annotations {
            None => content,
            Some(annotations) => message::with_annotations(&content, annotations),
        };
        let content = match &delivery.dead_letter {
            None => content,
            Some(dead_letter) => message::with_dead_letter(&content, dead_letter),
        };
        let prefix = self.header(now, delivery);
        let outgoing = Outgoing { prefix, content, settled, message_format, ..Outgoing::default() };
        self.machine.send(link, delivery.sequence.0, outgoing);
    }

    /// Sends a note instead of a message that cannot be read, of a queue: `place` says what was
    /// found, and where. The message was set aside, or is browsed.
    pub fn deliver_note(
        &mut self,
        now: Time,
        delivery: Box<Delivery>,
        queue: &str,
        place: &str,
        requests: &mut Vec<Request>,
    ) {
        let note = message::note(queue, place);
        self.deliver(now, delivery, note, requests);
    }

    fn header(&mut self, now: Time, delivery: &Delivery) -> Bytes {
        if self.prefixes.capacity() < HEADER_BYTES_MAX {
            self.prefixes = BytesMut::with_capacity(PREFIX_BYTES);
        }
        let ttl_ms = delivery
            .expires_at
            .map(|at| at.since(now.moved(self.ahead_us)))
            .map(|left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX));
        let header = AmqpHeader {
            durable: Some(delivery.persistent),
            priority: Some(delivery.priority),
            ttl_ms,
            first_acquirer: Some(delivery.first_acquirer),
            delivery_count: Some(delivery.backout_count),
        };
        sections::encode_header(&mut self.prefixes, &header);
        self.prefixes.split().freeze()
    }

    /// The peer moved the credit of a link.
    pub(super) fn flow(&mut self, flow: LinkFlow, requests: &mut Vec<Request>) {
        let Some(link) = self.links.get_mut(flow.link) else { return };
        match &mut link.used_for {
            LinkUse::Consumer { .. } => self.credit_moved(flow, requests),
            LinkUse::AdminReplies { credit } => {
                *credit = flow.credit;
                self.send_admin_replies();
                if flow.drain {
                    self.machine.drained(flow.link);
                }
            }
            // An aborted delivery uses credit up without a transfer.
            LinkUse::Producer { credit, .. }
            | LinkUse::AnonymousProducer { credit, .. }
            | LinkUse::Coordinator { credit, .. }
            | LinkUse::AdminRequests { credit } => {
                *credit = flow.credit;
                self.refill(flow.link);
            }
            LinkUse::Abandoned => {}
            LinkUse::Opening(opening) => opening.flow = Some(flow),
        }
    }

    /// The peer gave its word on a delivery of ours.
    pub(super) fn outcome(
        &mut self,
        link: LinkId,
        key: u64,
        state: Option<&DeliveryState>,
        settled: bool,
        requests: &mut Vec<Request>,
    ) {
        let token = self.links.token(link);
        let used_for = token.and_then(|token| Some(&self.links.by_token(token)?.used_for));
        let (Some(token), Some(LinkUse::Consumer { consumer, .. })) = (token, used_for) else {
            // It was detached behind a frame that came with this one.
            return self.lost(state);
        };
        let consumer = *consumer;
        let sequence = MessageSequence(key);
        let PeerOutcome { outcome, unit } = match message::outcome_of(state, settled) {
            Ok(Some(decided)) => decided,
            // Not an outcome yet: the delivery stays with the peer.
            Ok(None) => return,
            Err(error) => {
                self.machine.detach(link, true, Some(error));
                return self.detached(link, requests);
            }
        };
        let Some(unit) = self.units.of_outcome(DeliveryKey { link, key }, unit, settled) else {
            let error = super::error::of_refusal(&Refusal::UnknownUnit);
            self.machine.detach(link, true, Some(error));
            return self.detached(link, requests);
        };
        let annotations = match message::annotations_of(state) {
            Ok(annotations) => annotations,
            Err(error) => {
                self.lost(state);
                self.machine.detach(link, true, Some(error));
                return self.detached(link, requests);
            }
        };
        let annotations =
            annotations.filter(|map| unit.is_none_or(|unit| self.units.annotate(unit, map)));
        // An unsettled outcome outside a unit of work waits for our settlement; inside, it waits
        // for the unit's end.
        let reply_wanted = !settled && unit.is_none();
        let link = token;
        requests.push(Request::Settle {
            consumer,
            sequence,
            outcome,
            unit,
            annotations,
            settled,
            link,
            reply_wanted,
        });
    }

    /// A message or an outcome is dropped: its link is detached, or its delivery is not open.
    pub(super) fn lost(&mut self, state: Option<&DeliveryState>) {
        if let Some(DeliveryState::Transactional { txn_id, .. }) = state {
            self.lost_in_unit(txn_id);
        }
    }

    /// What the peer put into a unit of work was dropped. The unit must not commit as though it
    /// were in it (AMQP 4.4).
    pub(super) fn lost_in_unit(&mut self, txn_id: &TxnId) {
        self.units.spoil(message::unit_of_txn(txn_id).ok());
    }

    /// The instance settled a delivery that had an unsettled outcome, or refused an outcome.
    pub(super) fn settled(
        &mut self,
        now: Time,
        answer: SettlementAnswer,
        requests: &mut Vec<Request>,
    ) {
        let SettlementAnswer { link: token, sequence, unit, outcome, result } = answer;
        // It may be gone by now, and a link that came later has another token.
        let Some(link) = self.links.consumer(token).map(|link| link.id) else { return };
        match result {
            Ok(()) if self.left(now, token, sequence, requests) => {}
            Ok(()) => {
                let state = message::state_of(outcome, unit);
                self.machine.settle_outgoing(link, sequence.0, Some(state));
            }
            // The unit ended while the outcome was on its way to it.
            Err(Refusal::UnknownUnit) => {
                let error = super::error::of_refusal(&Refusal::UnknownUnit);
                self.machine.detach(link, true, Some(error));
                self.detached(link, requests);
            }
            // The unit cannot commit any more; the peer hears of it at the discharge.
            Err(_) => {}
        }
    }
}
