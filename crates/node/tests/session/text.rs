//! Messages for the tests: a text with what a rule may ask for.

use towline_amqp::codec::Value;
use towline_amqp::sections::{Header, MessageBuilder};
use towline_types::Payload;

/// A message in the making.
pub(crate) struct Text {
    body: String,
    durable: bool,
    /// The message-format of its transfer.
    pub(crate) format: u32,
    properties: Vec<(String, String)>,
}

pub(crate) fn message(body: &str) -> Text {
    Text { body: body.to_owned(), durable: false, format: 0, properties: Vec::new() }
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

    pub(crate) fn property(mut self, name: &str, value: &str) -> Text {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn encode(&self) -> Payload {
        let header = Header { durable: Some(self.durable), ..Header::default() };
        let mut builder = MessageBuilder::new().header(header);
        for (name, value) in &self.properties {
            builder = builder.application_property(name, Value::String(value));
        }
        Payload::from(builder.value(Value::String(&self.body)))
    }
}
