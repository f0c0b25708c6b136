//! Messages and delivery states, from AMQP's words into the rules' and back.

use std::time::Duration;

use bytes::Bytes;
use towline_amqp::codec::{Map, MapView, Reader, Value};
use towline_amqp::sections::{self, MessageBuilder, MessageId, Sections};
use towline_amqp::types::{DeliveryState, Error, Outcome as AmqpOutcome, TxnId, condition};
use towline_core::{DeadLetter, MessageSequence, NewMessage, Outcome, Refusal, UnitId};
use towline_types::{Payload, Time, limits};

use super::{format, topics};
use crate::request::LinkToken;

/// The message-format of many messages in one transfer, as Azure's clients send them.
const BATCH_FORMAT: u32 = 0x8001_3700;

/// Annotation with the time of delivery, as JMS clients and other brokers have it.
const DELIVERY_TIME: &str = "x-opt-delivery-time";

/// A message as it came in.
#[derive(Debug)]
pub(super) struct IncomingMessage {
    pub(super) message: NewMessage,
    /// The queue that it names itself, where it must.
    pub(super) to: Option<String>,
}

/// What became of the settlement of a delivery: the parts of `Response::Settled`.
pub(super) struct SettlementAnswer {
    pub(super) link: LinkToken,
    pub(super) sequence: MessageSequence,
    pub(super) unit: Option<UnitId>,
    pub(super) outcome: Outcome,
    pub(super) result: Result<(), Refusal>,
}

/// What the peer decided on a delivery.
pub(super) struct PeerOutcome {
    pub(super) outcome: Outcome,
    /// The unit of work that this belongs to.
    pub(super) unit: Option<UnitId>,
}

/// Reads what the rules must know of a message that arrived in this message-format. The second part
/// is where it wants to go; only a link without a target asks (`wants_to`).
///
/// # Errors
/// `amqp:decode-error` when the message is not well formed, or has no section at all (3.2): it
/// would fail its receiver. `amqp:not-implemented` for a batch, and for a topic.
pub(super) fn from_payload(
    now: Time,
    payload: &Payload,
    format: u32,
    wants_to: bool,
) -> Result<IncomingMessage, Error> {
    if format == BATCH_FORMAT {
        let text = "message-format 0x80013700 (many messages in one) is not supported yet; send \
                    each message by itself, with message-format 0";
        return Err(Error::new(condition::NOT_IMPLEMENTED, text));
    }
    if payload.is_empty() {
        let text = "the message is malformed: it has no section, not even a body";
        return Err(Error::new(condition::DECODE_ERROR, text));
    }
    let whole = payload.to_contiguous();
    let malformed = |error: towline_amqp::codec::DecodeError| {
        Error::new(condition::DECODE_ERROR, &format!("the message is malformed: {error}"))
    };
    let sections = Sections::scan_checked(&whole).map_err(malformed)?;
    let header = sections.header(&whole).map_err(malformed)?;
    let properties = sections.properties(&whole).map_err(malformed)?;
    let by_ttl = header.ttl_ms.map(|ttl_ms| now + Duration::from_millis(u64::from(ttl_ms)));
    // A time before 1970 counts as none: the message does not expire.
    let absolute = properties.absolute_expiry_time_ms.and_then(|ms| u64::try_from(ms).ok());
    let absolute = absolute.map(|ms| Time(ms.saturating_mul(1_000)));
    let annotations = sections.message_annotations(&whole);
    let message = NewMessage {
        persistent: header.durable,
        priority: header.priority,
        // The time to live counts from here, the absolute time from the sender's clock; the
        // standard prefers neither, clients that set both mean the same moment.
        expires_at: by_ttl.or(absolute),
        correlation_hash: properties.correlation_id.map_or(0, |id| id.correlation_id_hash()),
        message_id_hash: properties.message_id.as_ref().map_or(0, MessageId::message_id_hash),
        group: properties.group_id.filter(|id| !id.is_empty()).map_or(0, sections::id_hash),
        group_sequence: properties.group_sequence.unwrap_or(0),
        deliver_at: annotations.as_ref().and_then(delivery_time),
        content: format::with_format(sections.in_order(&whole), format),
        envelope_bytes: (sections.envelope_bytes(&whole) + format::mark_bytes(format)) as u64,
    };
    let to = properties.to.filter(|_| wants_to);
    if wants_to && topics::is_destination(to, annotations.as_ref()) {
        return Err(topics::unsupported(to.unwrap_or("the message's destination")));
    }
    let to = to.map(|to| to.strip_prefix("queue://").unwrap_or(to).to_owned());
    Ok(IncomingMessage { message, to })
}

/// When a producer wants its message delivered, in milliseconds since 1970; a time before counts as
/// none: the message is due.
fn delivery_time(annotations: &MapView<'_>) -> Option<Time> {
    let ms = match annotations.get(DELIVERY_TIME)? {
        Value::Timestamp(ms) => ms,
        number => number.as_i64()?,
    };
    Some(Time(u64::try_from(ms).ok()?.saturating_mul(1_000)))
}

/// The unit of work that a transfer belongs to.
///
/// # Errors
/// `amqp:transaction:unknown-id` when its name is not one of ours.
pub(super) fn unit_of(state: Option<&DeliveryState>) -> Result<Option<UnitId>, Error> {
    match state {
        Some(DeliveryState::Transactional { txn_id, .. }) => unit_of_txn(txn_id).map(Some),
        _ => Ok(None),
    }
}

/// The unit of work that a transaction id names.
///
/// # Errors
/// `amqp:transaction:unknown-id` when it is not one of ours.
pub(super) fn unit_of_txn(txn_id: &TxnId) -> Result<UnitId, Error> {
    let text = "no unit of work of that id was declared here";
    txn_id
        .as_number()
        .map(UnitId)
        .ok_or_else(|| Error::new(condition::TRANSACTION_UNKNOWN_ID, text))
}

/// What names a unit of work on the wire.
pub(super) fn txn_id(unit: UnitId) -> TxnId {
    TxnId::from_number(unit.0)
}

/// The outcome in a disposition, and the unit of work that it belongs to; `None` when it is not an
/// outcome yet.
///
/// # Errors
/// When a transaction id is not one of ours.
pub(super) fn outcome_of(
    state: Option<&DeliveryState>,
    settled: bool,
) -> Result<Option<PeerOutcome>, Error> {
    let plain = |outcome| Some(PeerOutcome { outcome, unit: None });
    Ok(match state {
        Some(DeliveryState::Accepted) => plain(Outcome::Accepted),
        Some(DeliveryState::Rejected { .. }) => plain(Outcome::Rejected),
        Some(DeliveryState::Released) => plain(Outcome::Released),
        Some(DeliveryState::Modified { delivery_failed, undeliverable_here, .. }) => {
            plain(modified(*delivery_failed, *undeliverable_here))
        }
        Some(DeliveryState::Transactional { txn_id, outcome }) => {
            let unit = unit_of_txn(txn_id)?;
            let outcome = match outcome {
                None | Some(AmqpOutcome::Accepted) => Outcome::Accepted,
                Some(AmqpOutcome::Rejected { .. }) => Outcome::Rejected,
                Some(AmqpOutcome::Released) => Outcome::Released,
                Some(AmqpOutcome::Modified { delivery_failed, undeliverable_here, .. }) => {
                    modified(*delivery_failed, *undeliverable_here)
                }
            };
            Some(PeerOutcome { outcome, unit: Some(unit) })
        }
        // Settled without an outcome: the default outcome that we offered at attach.
        None if settled => plain(Outcome::Released),
        None | Some(DeliveryState::Received { .. } | DeliveryState::Declared { .. }) => None,
    })
}

/// The message annotations of a `modified` outcome, if it has any.
///
/// # Errors
/// They are longer than we keep, or more.
pub(super) fn annotations_of(state: Option<&DeliveryState>) -> Result<Option<Box<Map>>, Error> {
    let outcome = state.and_then(DeliveryState::outcome);
    let Some(AmqpOutcome::Modified { annotations, .. }) = outcome else { return Ok(None) };
    let Some(map) = annotations.as_ref().filter(|map| !map.is_empty()) else { return Ok(None) };
    let (bytes, bytes_max) = (map.encoded_bytes(), limits::MODIFIED_ANNOTATIONS_BYTES_MAX);
    let (count, count_max) = (map.len(), limits::MODIFIED_ANNOTATIONS_MAX);
    if bytes > bytes_max || count > count_max {
        let text = format!(
            "{count} message annotations of {bytes} bytes in modified; {count_max} of {bytes_max} \
             bytes are kept"
        );
        return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, &text));
    }
    Ok(Some(map.clone()))
}

fn modified(failed: bool, undeliverable_here: bool) -> Outcome {
    Outcome::Modified { failed, undeliverable_here }
}

/// The state with which we settle a delivery after its unsettled outcome.
pub(super) fn state_of(outcome: Outcome, unit: Option<UnitId>) -> DeliveryState {
    let outcome = match outcome {
        Outcome::Accepted => AmqpOutcome::Accepted,
        Outcome::Released => AmqpOutcome::Released,
        Outcome::Rejected => AmqpOutcome::Rejected { error: None },
        Outcome::Modified { failed, undeliverable_here } => {
            AmqpOutcome::Modified { delivery_failed: failed, undeliverable_here, annotations: None }
        }
    };
    match unit {
        Some(unit) => DeliveryState::Transactional { txn_id: txn_id(unit), outcome: Some(outcome) },
        None => DeliveryState::from(outcome),
    }
}

/// What stands for a message with damaged content.
pub(super) fn note(queue: &str, place: &str) -> Payload {
    let text = format!(
        "The content of this message of queue '{queue}' is damaged: {place}. It is here again when \
         'towline log repair' has brought it back; see the guide damaged-log."
    );
    let note = MessageBuilder::new().application_property("DamagedAt", Value::String(place));
    Payload::from(note.value(Value::String(&text)))
}

/// The content with what `modified` outcomes added to its message annotations: an encoded map.
pub(super) fn with_annotations(content: &Payload, annotations: &Bytes) -> Payload {
    let map = Value::decode(&mut Reader::new(annotations));
    let Ok(Value::Map(map)) = map else { return content.clone() };
    let named = map.iter().map_while(Result::ok).filter_map(|(key, value)| match key {
        // Reserved ones are numbers, and no peer of ours knows what they mean.
        Value::Symbol(name) if name.is_ascii() => Some((name, value)),
        _ => None,
    });
    let named: Vec<(&str, Value<'_>)> = named.collect();
    let whole = content.to_contiguous();
    let marked = sections::with_message_annotations(&whole, &named);
    // It was well formed when it was put; if it is not any more, it goes as it is.
    Payload::from(marked.unwrap_or_else(|_| Bytes::clone(&whole)))
}

/// Application property of a dead letter: why it is one.
pub(crate) const DEAD_LETTER_REASON: &str = "DeadLetterReason";
/// Application property of a dead letter: the queue that it was in.
pub(crate) const DEAD_LETTER_QUEUE: &str = "DeadLetterQueue";
/// Application property of a dead letter: [`dead_letter_time`].
pub(crate) const DEAD_LETTER_TIME: &str = "DeadLetterTime";

/// When a message was moved, in milliseconds since 1970.
pub(crate) fn dead_letter_time(dead_letter: &DeadLetter) -> i64 {
    i64::try_from(dead_letter.moved_at.as_millis()).unwrap_or(i64::MAX)
}

/// The content of a dead-lettered message with why, from where and when: as message annotations for
/// AMQP programs and as application properties for those that see nothing else (JMS).
pub(super) fn with_dead_letter(content: &Payload, dead_letter: &DeadLetter) -> Payload {
    let whole = content.to_contiguous();
    let moved_at = dead_letter_time(dead_letter);
    let reason = dead_letter.reason.as_str();
    let origin = dead_letter.origin.as_str();
    let annotations = [
        ("x-opt-dead-letter-reason", Value::String(reason)),
        ("x-opt-dead-letter-queue", Value::String(origin)),
        ("x-opt-dead-letter-time", Value::Timestamp(moved_at)),
    ];
    let properties = [
        (DEAD_LETTER_REASON, Value::String(reason)),
        (DEAD_LETTER_QUEUE, Value::String(origin)),
        (DEAD_LETTER_TIME, Value::Long(moved_at)),
    ];
    let marked = sections::with_message_annotations(&whole, &annotations)
        .and_then(|marked| sections::with_application_properties(&marked, &properties));
    // It was well formed when it was put; if it is not any more, it goes as it is.
    Payload::from(marked.unwrap_or_else(|_| Bytes::clone(&whole)))
}

#[cfg(test)]
mod tests {
    use towline_amqp::sections::Properties;

    use super::*;

    fn incoming(properties: Properties<'_>, annotation: Option<Value<'_>>) -> NewMessage {
        let mut message = MessageBuilder::new().properties(properties);
        if let Some(value) = annotation {
            message = message.message_annotation(DELIVERY_TIME, value);
        }
        let payload = Payload::from(message.value(Value::String("x")));
        from_payload(Time(5), &payload, 0, false).unwrap().message
    }

    #[test]
    fn a_message_is_in_the_group_that_its_producer_names() {
        let named = |group_id| Properties {
            group_id: Some(group_id),
            group_sequence: Some(7),
            ..Properties::default()
        };
        let message = incoming(named("orders"), None);
        assert_eq!((message.group, message.group_sequence), (sections::id_hash("orders"), 7));
        assert_eq!(incoming(named(""), None).group, 0, "an empty name is none");
        let message = incoming(Properties::default(), None);
        assert_eq!((message.group, message.group_sequence, message.deliver_at), (0, 0, None));
    }

    #[test]
    fn the_time_of_delivery_is_in_milliseconds_whatever_kind_of_number_says_it() {
        let due = |value| incoming(Properties::default(), Some(value)).deliver_at;
        for value in [Value::Timestamp(1_500), Value::Long(1_500), Value::Ulong(1_500)] {
            assert_eq!(due(value), Some(Time(1_500_000)));
        }
        assert_eq!(due(Value::Timestamp(i64::MAX)), Some(Time(u64::MAX)));
        for value in [Value::Timestamp(-1), Value::String("soon"), Value::Null] {
            assert_eq!(due(value), None);
        }
    }
}
