//! Messages and lines on standard output.

use std::io::{IsTerminal, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use towline_client::{Body, Message, Property};
use towline_types::{printable, printable_entry, printable_json, printable_lines};

use crate::failure::Failure;

/// Writes a line. What of it others gave cannot command a terminal; where it has an end of a line,
/// the rest is moved in.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    as_it_is(&printable_entry(text))
}

/// Writes several lines, such as a table of which each field is [`printable`].
pub(crate) fn lines(text: &str) -> Result<(), Failure> {
    as_it_is(&printable_lines(text))
}

fn as_it_is(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    Ok(output.flush()?)
}

/// Writes JSON on one line.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    json_text(&value.to_string())
}

/// The same of JSON that is text already.
pub(crate) fn json_text(text: &str) -> Result<(), Failure> {
    as_it_is(&printable_json(text))
}

/// The bytes of a body.
pub(crate) fn bytes(message: &Message) -> &[u8] {
    match &message.body {
        Body::Text(text) | Body::Other(text) => text.as_bytes(),
        Body::Bytes(bytes) => bytes,
    }
}

/// Writes a body: text with a line end; bytes as they are, or their count on a terminal. What is
/// not printable is left out on a terminal alone: elsewhere a body is to arrive as it was put.
pub(crate) fn body(message: &Message) -> Result<(), Failure> {
    let terminal = std::io::stdout().is_terminal();
    match &message.body {
        Body::Text(text) | Body::Other(text) if terminal => lines(text),
        Body::Text(text) | Body::Other(text) => as_it_is(text),
        Body::Bytes(bytes) if terminal => match std::str::from_utf8(bytes) {
            Ok(text) => lines(text),
            Err(_) => line(&format!("({} bytes)", bytes.len())),
        },
        Body::Bytes(bytes) => {
            let mut output = std::io::stdout().lock();
            output.write_all(bytes)?;
            Ok(output.flush()?)
        }
    }
}

/// Writes header and properties, one a line, and an empty line. A value with an end of a line in it
/// makes no line of its own.
pub(crate) fn head(message: &Message) -> Result<(), Failure> {
    let Value::Object(fields) = described(message, None) else { return Ok(()) };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("body" | "body_base64", _) => {}
            ("properties", Value::Object(properties)) => {
                for (name, value) in properties {
                    line(&printable(&format!("  {name}: {value}")))?;
                }
            }
            (name, Value::String(text)) => line(&printable(&format!("{name}: {text}")))?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_and_commands_no_terminal() {
        let text = "\u{1b}[2J\r\n\u{7f}\u{9b}2J\u{202e}\u{e0041}\u{2028} Größe";
        for json in
            [json!([text]).to_string(), serde_json::to_string_pretty(&json!([text])).unwrap()]
        {
            let escaped = printable_json(&json);
            let shown: String = escaped.chars().filter(|each| *each != '\n').collect();
            assert_eq!(shown, printable(&shown), "{escaped:?}");
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), json!([text]));
        }
    }
}
