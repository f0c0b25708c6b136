//! Selectors over AMQP messages: the rules ask whether a message passes, this looks into its
//! content.
//!
//! A selector sees what stands before the body. Of a body in chunks only so many are read as hold
//! that: nearly always the first, more where application properties are longer than one.

use std::cell::{Cell, OnceCell};
use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use towline_amqp::codec::MapView;
use towline_amqp::sections::{Properties as AmqpProperties, PropertyValue, Sections};
use towline_core::selector::{Properties, Selector, Value};
use towline_core::{
    Body, Candidate, DeadLetterReason, Filter, Match, MessageSequence, QueueId, Selection,
};
use towline_types::{BodyLocation, Payload, limits};

use crate::front::{DEAD_LETTER_QUEUE, DEAD_LETTER_REASON, DEAD_LETTER_TIME, dead_letter_time};
use crate::journal::Journal;

/// Bodies kept after they were fetched for a selector.
const FETCHED_MAX: usize = 64;
/// Bytes of these bodies together; the newest is kept however long it is.
const FETCHED_BYTES_MAX: usize = FETCHED_MAX * limits::BODY_CHUNK_BYTES;

/// Names one fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FetchTicket {
    /// Of which queue.
    pub queue: QueueId,
    /// For which message.
    pub sequence: MessageSequence,
}

/// Bodies that were fetched from the log for a selector, the oldest given up first.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    fetched: HashMap<FetchTicket, Option<Payload>>,
    order: VecDeque<FetchTicket>,
    bytes: usize,
}

impl Contents {
    /// `None`: the body cannot be read.
    pub(crate) fn arrived(&mut self, ticket: FetchTicket, content: Option<Payload>) {
        self.bytes += bytes_of(content.as_ref());
        match self.fetched.insert(ticket, content) {
            Some(before) => self.bytes -= bytes_of(before.as_ref()),
            None => self.order.push_back(ticket),
        }
        while self.order.len() > FETCHED_MAX
            || (self.bytes > FETCHED_BYTES_MAX && self.order.len() > 1)
        {
            let Some(oldest) = self.order.pop_front() else { return };
            if let Some(content) = self.fetched.remove(&oldest) {
                self.bytes -= bytes_of(content.as_ref());
            }
        }
    }

    pub(crate) fn selection<'a>(&'a self, journal: &'a dyn Journal) -> MessageSelection<'a> {
        MessageSelection { contents: self, journal, further_looks: 0 }
    }
}

fn bytes_of(content: Option<&Payload>) -> usize {
    content.map_or(0, Payload::len)
}

/// The chunks of a body, from the first on, that hold all that a selector sees: read one by one,
/// the number doubled until it is enough.
///
/// # Errors
/// As `read`.
pub fn front_of_chunks<E>(
    chunks: &[BodyLocation],
    mut read: impl FnMut(BodyLocation) -> Result<Bytes, E>,
) -> Result<Payload, E> {
    let mut front = Payload::Empty;
    let mut taken = 0;
    let mut wanted = 1;
    loop {
        for chunk in chunks.iter().take(wanted).skip(taken) {
            front.push(read(*chunk)?);
        }
        if wanted >= chunks.len() {
            return Ok(front);
        }
        let whole = front.to_contiguous();
        if !matches!(Sections::scan_front(&whole, true), Ok(None)) {
            return Ok(Payload::from(whole));
        }
        (taken, wanted) = (wanted, wanted * 2);
    }
}

/// Evaluates selectors for the rules.
pub(crate) struct MessageSelection<'a> {
    contents: &'a Contents,
    journal: &'a dyn Journal,
    further_looks: u32,
}

impl MessageSelection<'_> {
    fn content(&self, candidate: &Candidate<'_>) -> Found {
        let resident = match candidate.body {
            Body::Memory(bytes) => Some(Payload::from(bytes.clone())),
            Body::Incoming(payload) => Some(payload.clone()),
            Body::Log(location) => self.journal.resident(*location).map(Payload::from),
            Body::Chunks(chunks) => {
                front_of_chunks(chunks, |chunk| self.journal.resident(chunk).ok_or(())).ok()
            }
            Body::Announced { .. } => None,
        };
        if let Some(content) = resident {
            return Found::Here(content);
        }
        let ticket = FetchTicket { queue: candidate.queue, sequence: candidate.sequence };
        match self.contents.fetched.get(&ticket) {
            Some(Some(content)) => Found::Here(content.clone()),
            Some(None) => Found::Unreadable,
            None => Found::Elsewhere,
        }
    }
}

enum Found {
    Here(Payload),
    Elsewhere,
    Unreadable,
}

impl Selection for MessageSelection<'_> {
    fn matches(&mut self, filter: &Filter, candidate: &Candidate<'_>) -> Match {
        self.further_looks = 0;
        let Some(selector) = filter.condition.downcast_ref::<Selector>() else {
            return Match::No;
        };
        let content = match self.content(candidate) {
            Found::Here(content) => content.to_contiguous(),
            Found::Elsewhere => return Match::NeedContent,
            // A note of a message that cannot be read has no properties but those of a dead letter.
            Found::Unreadable if is_note(candidate) => Bytes::new(),
            // Whether it fits cannot be known: the consumer is informed when it is read.
            Found::Unreadable => return Match::Yes,
        };
        // Whether there is more behind the body's beginning does not matter. What is no message
        // fits no selector.
        let Ok(Some(sections)) = Sections::scan_front(&content, false) else { return Match::No };
        let Ok(properties) = sections.properties(&content) else { return Match::No };
        let message = SelectedMessage {
            content: &content,
            sections,
            message_id: properties.message_id.map(|id| id.message_id_text()),
            correlation_id: properties.correlation_id.map(|id| id.correlation_id_text()),
            properties,
            candidate,
            selector,
            walked: Cell::new(0),
            found: OnceCell::new(),
            is_too_long: Cell::new(false),
        };
        let mut left = limits::SELECTOR_WALK_BYTES_MAX;
        let matches = selector.matches_within(&message, &mut left);
        let walked = message.walked.get() + limits::SELECTOR_WALK_BYTES_MAX - left;
        self.further_looks =
            u32::try_from(walked / limits::SELECTOR_LOOK_BYTES).unwrap_or(u32::MAX);
        if matches && !message.is_too_long.get() { Match::Yes } else { Match::No }
    }

    fn further_looks(&self) -> u32 {
        self.further_looks
    }
}

/// The application properties that a selector asks for, found in one walk.
struct FoundProperties<'a>(Vec<(&'a str, Option<PropertyValue<'a>>)>);

impl<'a> FoundProperties<'a> {
    fn of(selector: &'a Selector, sections: &Sections, content: &'a [u8]) -> FoundProperties<'a> {
        let mut found: Vec<_> = selector.names().map(|name| (name, None)).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        found.dedup_by_key(|(name, _)| *name);
        let entries = sections.application_properties(content);
        for (name, value) in entries.iter().flat_map(MapView::iter).map_while(Result::ok) {
            let Some(name) = name.as_str() else { continue };
            if let Ok(at) = found.binary_search_by_key(&name, |(name, _)| *name)
                && let Some((_, first @ None)) = found.get_mut(at)
            {
                *first = Some(PropertyValue::from(value));
            }
        }
        FoundProperties(found)
    }

    fn get(&self, name: &str) -> Option<PropertyValue<'a>> {
        let at = self.0.binary_search_by_key(&name, |(name, _)| *name).ok()?;
        self.0.get(at).and_then(|(_, value)| *value)
    }
}

/// A message as a selector sees it: application properties, and the JMS header fields (Jakarta
/// Messaging 3.1, 3.8.1.1; AMQP JMS mapping).
struct SelectedMessage<'a> {
    content: &'a [u8],
    sections: Sections,
    properties: AmqpProperties<'a>,
    selector: &'a Selector,
    /// Bytes, to find application properties.
    walked: Cell<usize>,
    /// All of them, once to look for each by itself would take too long.
    found: OnceCell<FoundProperties<'a>>,
    /// Not all that the selector asks for was looked for.
    is_too_long: Cell<bool>,
    message_id: Option<std::borrow::Cow<'a, str>>,
    correlation_id: Option<std::borrow::Cow<'a, str>>,
    candidate: &'a Candidate<'a>,
}

impl Properties for SelectedMessage<'_> {
    fn get(&self, name: &str) -> Value<'_> {
        match name {
            "JMSMessageID" => self.message_id.as_deref().map_or(Value::Null, Value::Text),
            "JMSCorrelationID" => self.correlation_id.as_deref().map_or(Value::Null, Value::Text),
            "JMSPriority" => Value::Long(i64::from(self.candidate.header.priority)),
            "JMSDeliveryMode" if self.candidate.header.persistent => Value::Text("PERSISTENT"),
            "JMSDeliveryMode" => Value::Text("NON_PERSISTENT"),
            "JMSTimestamp" => self.properties.creation_time_ms.map_or(Value::Null, Value::Long),
            "JMSExpiration" => {
                self.properties.absolute_expiry_time_ms.map_or(Value::Long(0), Value::Long)
            }
            "JMSXDeliveryCount" => Value::Long(i64::from(self.candidate.backout_count) + 1),
            "JMSRedelivered" => Value::Boolean(self.candidate.backout_count > 0),
            "JMSXGroupID" => text(self.properties.group_id),
            "JMSXGroupSeq" => {
                self.properties.group_sequence.map_or(Value::Null, |n| Value::Long(i64::from(n)))
            }
            "JMSType" => text(self.properties.subject),
            "JMSReplyTo" => text(self.properties.reply_to),
            name => {
                self.dead_letter_property(name).unwrap_or_else(|| self.application_property(name))
            }
        }
    }
}

impl SelectedMessage<'_> {
    /// What a delivery of a dead letter adds to its content (`front/message.rs`): a selector sees
    /// what the consumer will.
    fn dead_letter_property(&self, name: &str) -> Option<Value<'_>> {
        let dead_letter = self.candidate.dead_letter?;
        match name {
            DEAD_LETTER_REASON => Some(Value::Text(dead_letter.reason.as_str())),
            DEAD_LETTER_QUEUE => Some(Value::Text(&dead_letter.origin)),
            DEAD_LETTER_TIME => Some(Value::Long(dead_letter_time(dead_letter))),
            _ => None,
        }
    }

    fn found_property(&self, name: &str) -> Option<PropertyValue<'_>> {
        if let Some(found) = self.found.get() {
            return found.get(name);
        }
        let front = self.sections.front_bytes();
        let fits_in_one_walk = front <= limits::SELECTOR_ONE_WALK_BYTES_MAX;
        let one_walk = front.saturating_mul(limits::SELECTOR_ONE_WALK_WEIGHT);
        let most = if fits_in_one_walk { one_walk } else { limits::SELECTOR_WALK_BYTES_MAX };
        let walked = self.walked.get().saturating_add(front);
        if walked <= most {
            self.walked.set(walked);
            return self.sections.application_property(self.content, name);
        }
        if !fits_in_one_walk {
            self.is_too_long.set(true);
            return None;
        }
        self.walked.set(self.walked.get().saturating_add(one_walk));
        let all = || FoundProperties::of(self.selector, &self.sections, self.content);
        self.found.get_or_init(all).get(name)
    }

    fn application_property(&self, name: &str) -> Value<'_> {
        match self.found_property(name) {
            Some(PropertyValue::Bool(value)) => Value::Boolean(value),
            Some(PropertyValue::Long(value)) => Value::Long(value),
            Some(PropertyValue::Double(value)) => Value::Double(value),
            Some(PropertyValue::Text(value)) => Value::Text(value),
            Some(
                PropertyValue::Null
                | PropertyValue::Ulong(_)
                | PropertyValue::Binary(_)
                | PropertyValue::Other,
            )
            | None => Value::Null,
        }
    }
}

fn is_note(candidate: &Candidate<'_>) -> bool {
    candidate.dead_letter.is_some_and(|it| it.reason == DeadLetterReason::Damaged)
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Null, Value::Text)
}
