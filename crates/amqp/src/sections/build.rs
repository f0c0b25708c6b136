//! Writes messages, and adds to messages that are there.

use std::collections::BTreeSet;

use bytes::{BufMut, Bytes, BytesMut};
use towline_types::Payload;

use super::code::{APPLICATION_PROPERTIES, DATA, MESSAGE_ANNOTATIONS, VALUE};
use super::properties::Properties;
use super::scan::{Header, Sections, Span};
use crate::codec::{Composite, DecodeError, Map, Reader, Value, write};

/// Appends a header section; nothing at all when every field is absent.
pub fn encode_header(out: &mut BytesMut, header: &Header) {
    if *header != Header::default() {
        header.encode(out);
    }
}

/// Appends a body of one AMQP value, which `write_value` appends.
pub fn encode_value_body(out: &mut BytesMut, write_value: impl FnOnce(&mut BytesMut)) {
    write::described(out, VALUE);
    write_value(out);
}

/// The content with `extra` among its application properties; entries of the same name are
/// replaced.
///
/// # Errors
/// When the content is not well formed.
pub fn with_application_properties(
    content: &[u8],
    extra: &[(&str, Value<'_>)],
) -> Result<Bytes, DecodeError> {
    let sections = Sections::scan(content)?;
    let place = sections.application_properties;
    let behind = [sections.body, sections.footer];
    Ok(with_entries(content, place, &behind, APPLICATION_PROPERTIES, extra, Value::String))
}

/// The content with `extra` among its message annotations; entries of the same name are replaced.
///
/// # Errors
/// When the content is not well formed.
///
/// # Panics
/// When a name is not ASCII.
pub fn with_message_annotations(
    content: &[u8],
    extra: &[(&str, Value<'_>)],
) -> Result<Bytes, DecodeError> {
    let sections = Sections::scan(content)?;
    let place = sections.message_annotations;
    let behind =
        [sections.properties, sections.application_properties, sections.body, sections.footer];
    Ok(with_entries(content, place, &behind, MESSAGE_ANNOTATIONS, extra, Value::Symbol))
}

/// Rewrites the map section at this span, or makes one before the first section of `behind`.
fn with_entries<'k>(
    content: &[u8],
    place: Option<Span>,
    behind: &[Option<Span>],
    code: u8,
    extra: &[(&'k str, Value<'_>)],
    key: impl Fn(&'k str) -> Value<'k>,
) -> Bytes {
    // The first in the message: a footer may stand before the body.
    let next = behind.iter().flatten().map(|span| span.start as usize).min();
    let next = next.unwrap_or(content.len());
    let range = place.map_or(next..next, Span::range);
    let mut items = BytesMut::new();
    let mut count = 0_u32;
    if let Some(span) = place
        && let Ok(Value::Map(view)) =
            Value::decode(&mut Reader::new(content.get(span.value_range()).unwrap_or_default()))
    {
        let added: BTreeSet<&str> = extra.iter().map(|(name, _)| *name).collect();
        for (name, value) in view.iter().map_while(Result::ok) {
            if name.as_str().is_none_or(|name| !added.contains(name)) {
                name.encode(&mut items);
                value.encode(&mut items);
                count = count.saturating_add(2);
            }
        }
    }
    for (name, value) in extra {
        key(name).encode(&mut items);
        value.encode(&mut items);
        count = count.saturating_add(2);
    }
    let mut out = BytesMut::with_capacity(content.len().saturating_add(items.len() + 16));
    out.put_slice(content.get(..range.start).unwrap_or_default());
    write::described(&mut out, code);
    write::map(&mut out, count, &items);
    out.put_slice(content.get(range.end..).unwrap_or_default());
    out.freeze()
}

/// Makes messages, for clients.
#[derive(Clone, Debug, Default)]
pub struct MessageBuilder<'a> {
    /// Left out when all of it is absent.
    pub header: Header,
    /// Left out when empty.
    pub message_annotations: Map,
    /// Left out when all of it is absent.
    pub properties: Properties<'a>,
    application_properties: BytesMut,
    application_property_count: u32,
}

impl<'a> MessageBuilder<'a> {
    /// A message without anything.
    #[must_use]
    pub fn new() -> MessageBuilder<'a> {
        MessageBuilder::default()
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, header: Header) -> MessageBuilder<'a> {
        self.header = header;
        self
    }

    /// With these properties.
    #[must_use]
    pub fn properties(mut self, properties: Properties<'a>) -> MessageBuilder<'a> {
        self.properties = properties;
        self
    }

    /// With one message annotation more.
    ///
    /// # Panics
    /// When the name is not ASCII.
    #[must_use]
    pub fn message_annotation(mut self, name: &str, value: Value<'_>) -> MessageBuilder<'a> {
        self.message_annotations = self.message_annotations.with(name, value);
        self
    }

    /// With one application property more.
    #[must_use]
    pub fn application_property(mut self, name: &str, value: Value<'_>) -> MessageBuilder<'a> {
        write::string(&mut self.application_properties, name);
        value.encode(&mut self.application_properties);
        self.application_property_count = self.application_property_count.saturating_add(2);
        self
    }

    /// The message with a body of one data section.
    #[must_use]
    pub fn data(&self, body: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(body.len().saturating_add(64));
        self.encode_data_prefix(&mut out, body.len());
        out.put_slice(body);
        out.freeze()
    }

    /// The message with a body of one data section that is not copied.
    #[must_use]
    pub fn data_by_reference(&self, body: &Bytes) -> Payload {
        let mut out = BytesMut::with_capacity(64);
        self.encode_data_prefix(&mut out, body.len());
        let mut payload = Payload::from(out.freeze());
        payload.push(body.clone());
        payload
    }

    /// Appends all that comes before the `bytes` bytes of a single data section.
    pub fn encode_data_prefix(&self, out: &mut BytesMut, bytes: usize) {
        self.encode_sections(out);
        write::described(out, DATA);
        write::binary_prefix(out, bytes);
    }

    /// The message with a body of one AMQP value.
    #[must_use]
    pub fn value(&self, value: Value<'_>) -> Bytes {
        let mut out = BytesMut::new();
        self.encode_sections(&mut out);
        encode_value_body(&mut out, |out| value.encode(out));
        out.freeze()
    }

    fn encode_sections(&self, out: &mut BytesMut) {
        encode_header(out, &self.header);
        if !self.message_annotations.is_empty() {
            write::described(out, MESSAGE_ANNOTATIONS);
            self.message_annotations.encode(out);
        }
        if self.properties != Properties::default() {
            self.properties.encode(out);
        }
        if self.application_property_count > 0 {
            write::described(out, APPLICATION_PROPERTIES);
            write::map(out, self.application_property_count, &self.application_properties);
        }
    }
}
