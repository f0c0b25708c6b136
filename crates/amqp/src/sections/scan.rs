//! Finds the sections of a message, and reads single things in them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use bytes::Bytes;
use towline_types::Payload;

use super::code::{
    APPLICATION_PROPERTIES, DATA, DELIVERY_ANNOTATIONS, FOOTER, HEADER, MESSAGE_ANNOTATIONS,
    PROPERTIES, SEQUENCE, VALUE,
};
use super::properties::{Properties, PropertyValue};
use crate::codec::{
    Composite, DecodeError, Fields, FieldsWriter, MapView, Reader, Value, check, descriptor,
    text_framing_bytes,
};
use crate::types::CoordinatorCommand;

/// Where a section is, in bytes from the start of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its descriptor begins.
    pub start: u32,
    /// Its value begins, at the constructor.
    pub value: u32,
    /// Behind its last byte.
    pub end: u32,
}

/// What the body is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// There is none.
    #[default]
    None,
    /// One or more data sections.
    Data,
    /// One or more amqp-sequence sections.
    Sequence,
    /// One amqp-value section.
    Value,
}

/// Where the sections of a message are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// Section 3.2.1.
    pub header: Option<Span>,
    /// Section 3.2.2.
    pub delivery_annotations: Option<Span>,
    /// Section 3.2.3.
    pub message_annotations: Option<Span>,
    /// Section 3.2.4.
    pub properties: Option<Span>,
    /// Section 3.2.5.
    pub application_properties: Option<Span>,
    /// Sections 3.2.6 to 3.2.8, from the first of them to the last; `value` is that of the first.
    pub body: Option<Span>,
    /// What the body is made of.
    pub body_kind: BodyKind,
    /// Section 3.2.9.
    pub footer: Option<Span>,
}

/// The header section (3.2.1). Absent fields are `None`; their defaults (not durable, priority 4,
/// no expiry, not the first acquirer, count 0) are for the reader to apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Survives a restart.
    pub durable: Option<bool>,
    /// 0 to 255, higher first; JMS uses 0 to 9.
    pub priority: Option<u8>,
    /// Milliseconds to live, from now.
    pub ttl_ms: Option<u32>,
    /// It was never acquired before.
    pub first_acquirer: Option<bool>,
    /// Deliveries that failed before.
    pub delivery_count: Option<u32>,
}

impl Composite for Header {
    const CODE: u8 = HEADER;
    const NAME: &'static str = "amqp:header:list";

    #[inline]
    fn decode_fields(fields: &mut Fields<'_>) -> Result<Header, DecodeError> {
        Ok(Header {
            durable: fields.bool()?,
            priority: fields.u8()?,
            ttl_ms: fields.u32()?,
            first_acquirer: fields.bool()?,
            delivery_count: fields.u32()?,
        })
    }

    fn encode_fields(&self, fields: &mut FieldsWriter<'_>) {
        fields.bool(self.durable);
        fields.u8(self.priority);
        fields.u32(self.ttl_ms);
        fields.bool(self.first_acquirer);
        fields.u32(self.delivery_count);
    }
}

impl Span {
    /// All of it, with its descriptor.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Its value, from the constructor on.
    #[must_use]
    pub const fn value_range(self) -> Range<usize> {
        self.value as usize..self.end as usize
    }

    /// A reader on its value.
    fn reader(self, message: &[u8]) -> Reader<'_> {
        Reader::new(message.get(self.value_range()).unwrap_or_default())
    }
}

impl Sections {
    /// Finds the sections of a message. What is in them is not looked at (but for a body of one
    /// AMQP value, which must be walked to find its end).
    ///
    /// # Errors
    /// When something else than a section stands there, a section ends early, or they are out of
    /// order.
    pub fn scan(message: &[u8]) -> Result<Sections, DecodeError> {
        scan(message, false, 0)
    }

    /// Finds the sections and checks all that is in them, so that no later reader of the message
    /// can fail.
    ///
    /// # Errors
    /// As [`Sections::scan`], and when anything in the message is not well formed.
    pub fn scan_checked(message: &[u8]) -> Result<Sections, DecodeError> {
        scan(message, true, 0)
    }

    /// [`Sections::scan_checked`] of a message that came in several frames. Also returns the bytes
    /// to hand to the views: the first piece, when all but the end of the last data section is in
    /// it (then nothing is copied, and [`Sections::data`] has nothing to show); a copy of the whole
    /// message otherwise.
    ///
    /// # Errors
    /// As [`Sections::scan_checked`].
    pub fn scan_payload(payload: &Payload) -> Result<(Sections, Bytes), DecodeError> {
        if let [first, rest @ ..] = payload.pieces() {
            let beyond = rest.iter().map(Bytes::len).fold(0, usize::saturating_add);
            if let Ok(sections) = scan(first, true, beyond) {
                return Ok((sections, first.clone()));
            }
        }
        let whole = payload.to_contiguous();
        Ok((scan(&whole, true, 0)?, whole))
    }

    /// Finds the sections in front of the body in the first bytes of a message: all that a selector
    /// looks at. `more`: the message goes on behind these bytes. `None`: so do those sections.
    ///
    /// # Errors
    /// As [`Sections::scan`], of a message that does not go on.
    pub fn scan_front(first: &[u8], more: bool) -> Result<Option<Sections>, DecodeError> {
        let mut sections = Sections::default();
        let mut reader = Reader::new(first);
        loop {
            if reader.is_empty() {
                return Ok((!more).then_some(sections));
            }
            let start = position(first, &reader);
            match front_section(first, &mut reader) {
                Ok(Some((code, value))) => {
                    let end = position(first, &reader);
                    sections.set(code, Span { start, value, end });
                }
                Ok(None) => return Ok(Some(sections)),
                // What is cut looks like what is wrong; it was whole when it was put.
                Err(_) if more => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes before the body: all that a selector looks at.
    #[must_use]
    pub fn front_bytes(&self) -> usize {
        let Sections { header, delivery_annotations, message_annotations, .. } = *self;
        let annotations = [header, delivery_annotations, message_annotations];
        let spans = annotations.into_iter().chain([self.properties, self.application_properties]);
        spans.flatten().map(|span| span.end as usize).max().unwrap_or(0)
    }

    /// Where the content begins: what a queue keeps, without header and delivery annotations.
    #[must_use]
    pub fn content_start(&self) -> usize {
        let before = self.delivery_annotations.or(self.header);
        before.map_or(0, |span| span.end as usize)
    }

    /// The content in the standard's order: a footer that came before its body goes behind it, so
    /// that any receiver can read it.
    #[must_use]
    pub fn in_order(&self, message: &Bytes) -> Payload {
        let start = self.content_start();
        let end = message.len();
        match (self.footer, self.body) {
            (Some(footer), Some(body)) if footer.start < body.start => {
                let mut content = Payload::from(message.slice(start..footer.start as usize));
                content.push(message.slice(body.range()));
                content.push(message.slice(footer.range()));
                content
            }
            _ => Payload::from(message.slice(start..end)),
        }
    }

    /// Bytes of the content that are not the body's own: annotations, properties and footer, and
    /// what frames the body (the descriptor of its first section, the constructor and the length of
    /// a binary or string).
    #[must_use]
    pub fn envelope_bytes(&self, message: &[u8]) -> usize {
        let content = message.len().saturating_sub(self.content_start());
        let Some(body) = self.body else { return content };
        let framed = message.get(body.value as usize).copied().map_or(0, text_framing_bytes);
        content.saturating_sub(body.value_range().len().saturating_sub(framed))
    }

    /// The header; all absent when there is none.
    ///
    /// # Errors
    /// When it is not well formed.
    pub fn header(&self, message: &[u8]) -> Result<Header, DecodeError> {
        match self.header {
            Some(span) => Header::decode_body(&mut span.reader(message)),
            None => Ok(Header::default()),
        }
    }

    /// The properties; all absent when there is no such section.
    ///
    /// # Errors
    /// When they are not well formed.
    pub fn properties<'m>(&self, message: &'m [u8]) -> Result<Properties<'m>, DecodeError> {
        match self.properties {
            Some(span) => Properties::decode_value(&mut span.reader(message)),
            None => Ok(Properties::default()),
        }
    }

    /// The application properties.
    #[must_use]
    pub fn application_properties<'m>(&self, message: &'m [u8]) -> Option<MapView<'m>> {
        map_of(self.application_properties, message)
    }

    /// The message annotations.
    #[must_use]
    pub fn message_annotations<'m>(&self, message: &'m [u8]) -> Option<MapView<'m>> {
        map_of(self.message_annotations, message)
    }

    /// One application property, by its name; `None` when there is none (or before it something
    /// that is not well formed).
    #[must_use]
    pub fn application_property<'m>(
        &self,
        message: &'m [u8],
        name: &str,
    ) -> Option<PropertyValue<'m>> {
        self.application_properties(message)?.get(name).map(PropertyValue::from)
    }

    /// The data sections of the body in order; none for other bodies.
    pub fn data<'m>(&self, message: &'m [u8]) -> impl Iterator<Item = &'m [u8]> + use<'m> {
        let range = match (self.body_kind, self.body) {
            (BodyKind::Data, Some(span)) => span.range(),
            (_, _) => 0..0,
        };
        let mut reader = Reader::new(message.get(range).unwrap_or_default());
        std::iter::from_fn(move || {
            descriptor(&mut reader).ok()?;
            reader.binary().ok()
        })
    }

    /// The value of a body that is one AMQP value.
    #[must_use]
    pub fn value<'m>(&self, message: &'m [u8]) -> Option<Value<'m>> {
        match (self.body_kind, self.body) {
            (BodyKind::Value, Some(span)) => Value::decode(&mut span.reader(message)).ok(),
            (_, _) => None,
        }
    }
}

/// Reads what a client sends on a transaction control link: a message with one value as its body, a
/// declare or a discharge (4.3, 4.4).
///
/// # Errors
/// When it is another message.
pub fn coordinator_command(message: &[u8]) -> Result<CoordinatorCommand, DecodeError> {
    let sections = Sections::scan_checked(message)?;
    match (sections.body_kind, sections.body) {
        (BodyKind::Value, Some(span)) => CoordinatorCommand::decode(&mut span.reader(message)),
        (_, _) => Err(DecodeError::MissingField("amqp-value")),
    }
}

fn map_of(span: Option<Span>, message: &[u8]) -> Option<MapView<'_>> {
    match Value::decode(&mut span?.reader(message)) {
        Ok(Value::Map(view)) => Some(view),
        Ok(_) | Err(_) => None,
    }
}

/// `beyond` bytes of the message are elsewhere; they may only be the rest of a data section that
/// ends the message.
fn scan(message: &[u8], checked: bool, beyond: usize) -> Result<Sections, DecodeError> {
    let whole = u32::try_from(message.len().saturating_add(beyond));
    let whole = whole.map_err(|_| DecodeError::TooLong)?;
    let mut sections = Sections::default();
    let mut reader = Reader::new(message);
    let mut last = 0;
    while !reader.is_empty() {
        let start = position(message, &reader);
        let code = descriptor(&mut reader)?;
        let code = u8::try_from(code).map_err(|_| DecodeError::UnknownDescriptor)?;
        let repeats = code == last && matches!(code, DATA | SEQUENCE);
        // A client that many use writes the footer before the body: taken, see
        // `Sections::in_order`.
        let late_body = last == FOOTER && rank(code)? == rank(DATA)? && sections.body.is_none();
        let second_footer = code == FOOTER && sections.footer.is_some();
        if second_footer || (rank(code)? <= rank(last)? && !repeats && !late_body) {
            return Err(DecodeError::SectionOrder);
        }
        last = code;
        let value = position(message, &reader);
        if beyond > 0 && code == DATA && reader.binary_lacks(beyond) {
            sections.set(code, Span { start, value, end: whole });
            return Ok(sections);
        }
        step_over(&mut reader, code, checked)?;
        let end = position(message, &reader);
        sections.set(code, Span { start, value, end });
    }
    if beyond == 0 { Ok(sections) } else { Err(DecodeError::UnexpectedEnd) }
}

/// Steps over one section in front of the body: its code, and where its value is. `None`: here the
/// body begins, or the footer of a message without one.
fn front_section(first: &[u8], reader: &mut Reader<'_>) -> Result<Option<(u8, u32)>, DecodeError> {
    let code = u8::try_from(descriptor(reader)?).map_err(|_| DecodeError::UnknownDescriptor)?;
    if rank(code)? >= rank(DATA)? {
        return Ok(None);
    }
    let value = position(first, reader);
    step_over(reader, code, false)?;
    Ok(Some((code, value)))
}

fn position(message: &[u8], reader: &Reader<'_>) -> u32 {
    let read = message.len().saturating_sub(reader.rest().len());
    // The length of the message was found to fit before.
    u32::try_from(read).unwrap_or(u32::MAX)
}

/// The rank of a section in the order; sections of the same rank exclude each other. 0: the
/// start.
fn rank(code: u8) -> Result<u8, DecodeError> {
    match code {
        0 => Ok(0),
        HEADER => Ok(1),
        DELIVERY_ANNOTATIONS => Ok(2),
        MESSAGE_ANNOTATIONS => Ok(3),
        PROPERTIES => Ok(4),
        APPLICATION_PROPERTIES => Ok(5),
        DATA | SEQUENCE | VALUE => Ok(6),
        FOOTER => Ok(7),
        _ => Err(DecodeError::UnknownDescriptor),
    }
}

fn step_over(reader: &mut Reader<'_>, code: u8, checked: bool) -> Result<(), DecodeError> {
    let start = reader.rest();
    match code {
        VALUE => return reader.checked_value().map(drop),
        DATA => return reader.binary().map(drop),
        HEADER if checked => return Header::decode_body(reader).map(drop),
        PROPERTIES if checked => return Properties::decode_value(reader).map(drop),
        HEADER | PROPERTIES | SEQUENCE => reader.list().map(drop)?,
        APPLICATION_PROPERTIES if checked => {
            let map = reader.map()?;
            if !map.has_string_keys() {
                return Err(DecodeError::OutOfRange("key of an application property"));
            }
        }
        _ => reader.map().map(drop)?,
    }
    if checked { check_whole(start, reader) } else { Ok(()) }
}

/// Checks the value that was stepped over between `start` and the reader's position.
fn check_whole(start: &[u8], reader: &Reader<'_>) -> Result<(), DecodeError> {
    let length = start.len().saturating_sub(reader.rest().len());
    check(start.get(..length).unwrap_or_default())
}

impl Sections {
    fn set(&mut self, code: u8, span: Span) {
        match code {
            HEADER => self.header = Some(span),
            DELIVERY_ANNOTATIONS => self.delivery_annotations = Some(span),
            MESSAGE_ANNOTATIONS => self.message_annotations = Some(span),
            PROPERTIES => self.properties = Some(span),
            APPLICATION_PROPERTIES => self.application_properties = Some(span),
            FOOTER => self.footer = Some(span),
            _ => {
                self.body_kind = match code {
                    DATA => BodyKind::Data,
                    SEQUENCE => BodyKind::Sequence,
                    _ => BodyKind::Value,
                };
                let body = self.body.get_or_insert(span);
                body.end = span.end;
            }
        }
    }
}
