//! Messages for the tests: a text with what a rule may ask for.

use towline_amqp::codec::Value;
use towline_amqp::sections::{Header, MessageBuilder, MessageId, Properties, Sections};
use towline_types::Payload;

/// A message in the making.
pub(crate) struct Text {
    body: String,
    durable: bool,
    /// The message-format of its transfer.
    pub(crate) format: u32,
    properties: Vec<(String, String)>,
    correlation_id: Option<String>,
    message_id: Option<String>,
    ttl_ms: Option<u32>,
}

pub(crate) fn message(body: &str) -> Text {
    Text {
        body: body.to_owned(),
        durable: false,
        format: 0,
        properties: Vec::new(),
        correlation_id: None,
        message_id: None,
        ttl_ms: None,
    }
}

impl Text {
    pub(crate) fn durable(mut self) -> Text {
        self.durable = true;
        self
    }

    pub(crate) fn format(mut self, format: u32) -> Text {
        self.format = format;
        self
    }

    pub(crate) fn ttl(mut self, ms: u32) -> Text {
        self.ttl_ms = Some(ms);
        self
    }

    pub(crate) fn property(mut self, name: &str, value: &str) -> Text {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn ids(mut self, correlation_id: &str, message_id: &str) -> Text {
        self.correlation_id = Some(correlation_id.to_owned());
        self.message_id = Some(message_id.to_owned());
        self
    }

    /// Bytes that a queue keeps of it.
    pub(crate) fn content_bytes(&self) -> usize {
        let encoded = self.encode().to_contiguous();
        encoded.len() - Sections::scan(&encoded).unwrap().content_start()
    }

    /// Bytes of that which stand before its body.
    pub(crate) fn front_bytes(&self) -> usize {
        let encoded = self.encode().to_contiguous();
        let sections = Sections::scan(&encoded).unwrap();
        sections.body.unwrap().start as usize - sections.content_start()
    }

    pub(crate) fn encode(&self) -> Payload {
        let (durable, ttl_ms) = (Some(self.durable), self.ttl_ms);
        let header = Header { durable, ttl_ms, ..Header::default() };
        let properties = Properties {
            correlation_id: self.correlation_id.as_deref().map(MessageId::String),
            message_id: self.message_id.as_deref().map(MessageId::String),
            ..Properties::default()
        };
        let mut builder = MessageBuilder::new().header(header).properties(properties);
        for (name, value) in &self.properties {
            builder = builder.application_property(name, Value::String(value));
        }
        Payload::from(builder.value(Value::String(&self.body)))
    }
}
