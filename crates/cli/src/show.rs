//! Messages and lines on standard output.

use std::io::{IsTerminal, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use towline_client::{Body, Message, Property};

use crate::failure::Failure;

/// Writes a line.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}

/// Writes JSON on one line.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    line(&value.to_string())
}

/// The bytes of a body.
pub(crate) fn bytes(message: &Message) -> &[u8] {
    match &message.body {
        Body::Text(text) | Body::Other(text) => text.as_bytes(),
        Body::Bytes(bytes) => bytes,
    }
}

/// Writes a body: text with a line end; bytes as they are, or their count on a terminal.
pub(crate) fn body(message: &Message) -> Result<(), Failure> {
    let terminal = std::io::stdout().is_terminal();
    match &message.body {
        Body::Text(text) | Body::Other(text) if terminal => line(&harmless(text)),
        Body::Text(text) | Body::Other(text) => line(text),
        Body::Bytes(bytes) if terminal => match std::str::from_utf8(bytes) {
            Ok(text) => line(&harmless(text)),
            Err(_) => line(&format!("({} bytes)", bytes.len())),
        },
        Body::Bytes(bytes) => {
            let mut output = std::io::stdout().lock();
            output.write_all(bytes)?;
            Ok(output.flush()?)
        }
    }
}

/// Text without what could command a terminal.
fn harmless(text: &str) -> String {
    let control = |each: char| each.is_control() && each != '\n' && each != '\t';
    text.chars().map(|each| if control(each) { '\u{fffd}' } else { each }).collect()
}

/// Writes header and properties, one a line, and an empty line.
pub(crate) fn head(message: &Message) -> Result<(), Failure> {
    let Value::Object(fields) = described(message, None) else { return Ok(()) };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("body" | "body_base64", _) => {}
            ("properties", Value::Object(properties)) => {
                for (name, value) in properties {
                    line(&harmless(&format!("  {name}: {value}")))?;
                }
            }
            (name, Value::String(text)) => line(&harmless(&format!("{name}: {text}")))?,
            (name, value) => line(&format!("{name}: {value}"))?,
        }
    }
    line("")
}

/// A message as JSON; its body stays out when it was saved to a file.
pub(crate) fn described(message: &Message, saved: Option<&Path>) -> Value {
    let mut fields = serde_json::Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.into(), value);
        }
    };
    add("message_id", message.message_id.clone().map(Value::from));
    add("correlation_id", message.correlation_id.clone().map(Value::from));
    add("reply_to", message.reply_to.clone().map(Value::from));
    add("subject", message.subject.clone().map(Value::from));
    add("content_type", message.content_type.clone().map(Value::from));
    add("persistent", Some(message.persistent.unwrap_or(false).into()));
    // AMQP 3.2.1: 4 when the header does not say.
    add("priority", Some(message.priority.unwrap_or(4).into()));
    add("ttl_ms", message.ttl_ms.map(Value::from));
    add("delivery_count", Some(message.delivery_count.into()));
    let properties: serde_json::Map<String, Value> =
        message.properties.iter().map(|(name, value)| (name.clone(), property(value))).collect();
    add("properties", Some(Value::Object(properties)));
    match (saved, &message.body) {
        (Some(path), _) => add("file", Some(path.display().to_string().into())),
        (None, Body::Text(text) | Body::Other(text)) => add("body", Some(text.clone().into())),
        (None, Body::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => add("body", Some(text.into())),
            Err(_) => add("body_base64", Some(STANDARD.encode(bytes).into())),
        },
    }
    Value::Object(fields)
}

fn property(property: &Property) -> Value {
    match property {
        Property::Null => Value::Null,
        Property::Boolean(value) => json!(value),
        Property::Long(value) => json!(value),
        Property::Double(value) => json!(value),
        Property::Text(text) | Property::Other(text) => json!(text),
    }
}
