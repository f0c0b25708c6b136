//! A message as a person sees it: header, properties and a body, to and from AMQP's sections.

use bytes::Bytes;
use towline_amqp::codec::Value;
use towline_amqp::sections::{
    BodyKind, Header, MessageBuilder, MessageId, Properties, PropertyValue, Sections,
};
use towline_types::Payload;

use crate::error::Error;

/// A message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// What it says.
    pub body: Body,
    /// Survives a restart of the server; `None`: as the queue says.
    pub persistent: Option<bool>,
    /// 0 to 9; `None`: as the queue says.
    pub priority: Option<u8>,
    /// Milliseconds that it lives; when received, what is left of them.
    pub ttl_ms: Option<u32>,
    /// Its id.
    pub message_id: Option<String>,
    /// The id of what it answers or belongs to.
    pub correlation_id: Option<String>,
    /// Where an answer goes.
    pub reply_to: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
    /// MIME type of a body of bytes.
    pub content_type: Option<String>,
    /// Received: how often it was delivered in vain before.
    pub delivery_count: u32,
    /// Application properties, in order.
    pub properties: Vec<(String, Property)>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// One AMQP string (a JMS text message).
    Text(String),
    /// Data sections (a JMS bytes message).
    Bytes(Bytes),
    /// Anything else, described for people.
    Other(String),
}

/// The value of an application property.
#[derive(Clone, Debug, PartialEq)]
pub enum Property {
    /// Nothing.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Long(i64),
    /// Another number.
    Double(f64),
    /// Text.
    Text(String),
    /// Anything else, described for people; cannot be sent.
    Other(String),
}

impl Default for Body {
    fn default() -> Body {
        Body::Text(String::new())
    }
}

impl Message {
    /// An application property.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The sections that carry it.
    #[must_use]
    pub fn encode(&self) -> Payload {
        let mut builder = MessageBuilder::new()
            .header(Header {
                durable: self.persistent,
                priority: self.priority,
                ttl_ms: self.ttl_ms,
                ..Header::default()
            })
            .properties(Properties {
                message_id: self.message_id.as_deref().map(MessageId::String),
                correlation_id: self.correlation_id.as_deref().map(MessageId::String),
                reply_to: self.reply_to.as_deref(),
                subject: self.subject.as_deref(),
                content_type: self.content_type.as_deref().filter(|text| text.is_ascii()),
                ..Properties::default()
            });
        for (name, property) in &self.properties {
            let value = match property {
                Property::Null | Property::Other(_) => Value::Null,
                Property::Boolean(value) => Value::Bool(*value),
                Property::Long(value) => Value::Long(*value),
                Property::Double(value) => Value::Double(*value),
                Property::Text(text) => Value::String(text),
            };
            builder = builder.application_property(name, value);
        }
        match &self.body {
            Body::Text(text) | Body::Other(text) => {
                Payload::from(builder.value(Value::String(text)))
            }
            Body::Bytes(bytes) => builder.data_by_reference(bytes),
        }
    }

    /// Reads the sections of a delivery.
    ///
    /// # Errors
    /// [`Error::Unexpected`] when they are not well formed.
    pub fn decode(payload: &Payload) -> Result<Message, Error> {
        let content = payload.to_contiguous();
        decode(&content).map_err(|error| Error::Unexpected(format!("a bad message: {error}")))
    }
}

fn decode(content: &Bytes) -> Result<Message, towline_amqp::codec::DecodeError> {
    let sections = Sections::scan_checked(content)?;
    let header = sections.header(content)?;
    let properties = sections.properties(content)?;
    let mut message = Message {
        body: body(&sections, content),
        persistent: header.durable,
        priority: header.priority,
        ttl_ms: header.ttl_ms,
        message_id: properties.message_id.map(|id| id.message_id_text().into_owned()),
        correlation_id: properties.correlation_id.map(|id| id.correlation_id_text().into_owned()),
        reply_to: properties.reply_to.map(Into::into),
        subject: properties.subject.map(Into::into),
        content_type: properties.content_type.map(Into::into),
        delivery_count: header.delivery_count.unwrap_or(0),
        properties: Vec::new(),
    };
    if let Some(map) = sections.application_properties(content) {
        for (name, value) in map.iter().filter_map(Result::ok) {
            let name = name.as_str().unwrap_or("?").to_owned();
            message.properties.push((name, property(value)));
        }
    }
    Ok(message)
}

fn property(value: Value<'_>) -> Property {
    match PropertyValue::from(value) {
        PropertyValue::Null => Property::Null,
        PropertyValue::Bool(value) => Property::Boolean(value),
        PropertyValue::Long(value) => Property::Long(value),
        PropertyValue::Double(value) => Property::Double(value),
        PropertyValue::Text(text) => Property::Text(text.into()),
        PropertyValue::Ulong(_) | PropertyValue::Binary(_) | PropertyValue::Other => {
            Property::Other(format!("{value:?}"))
        }
    }
}

fn body(sections: &Sections, content: &Bytes) -> Body {
    match sections.body_kind {
        BodyKind::None => Body::Bytes(Bytes::new()),
        BodyKind::Data => {
            let mut parts = sections.data(content);
            match (parts.next(), parts.next()) {
                (Some(one), None) => Body::Bytes(content.slice_ref(one)),
                (_, _) => Body::Bytes(sections.data(content).flatten().copied().collect()),
            }
        }
        BodyKind::Value => match sections.value(content) {
            Some(Value::String(text)) => Body::Text(text.into()),
            Some(Value::Binary(bytes)) => Body::Bytes(Bytes::copy_from_slice(bytes)),
            Some(Value::Null) | None => Body::Text(String::new()),
            Some(other) => Body::Other(format!("{other:?}")),
        },
        BodyKind::Sequence => Body::Other("an AMQP sequence".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_its_encoding() {
        for body in [Body::Text("hällo".into()), Body::Bytes(Bytes::from_static(b"\0\xff"))] {
            let message = Message {
                body,
                persistent: Some(true),
                priority: Some(7),
                ttl_ms: Some(1_000),
                message_id: Some("ID:1".into()),
                correlation_id: Some("c".into()),
                reply_to: Some("R".into()),
                subject: Some("s".into()),
                content_type: Some("text/plain".into()),
                delivery_count: 0,
                properties: vec![
                    ("a".into(), Property::Long(-5)),
                    ("b".into(), Property::Boolean(true)),
                    ("c".into(), Property::Double(1.5)),
                    ("d".into(), Property::Text("x".into())),
                ],
            };
            assert_eq!(Message::decode(&message.encode()).unwrap(), message);
        }
    }

    #[test]
    fn a_bad_message_is_an_error() {
        let payload = Payload::from(Bytes::from_static(b"\0\x53\x99\x40"));
        assert!(matches!(Message::decode(&payload), Err(Error::Unexpected(_))));
    }
}
