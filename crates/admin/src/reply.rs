//! What comes back from a command: messages and rows, as data (JSON) and as text in the two columns
//! of runmqsc. Does not know what the attributes mean.

use std::fmt::{self, Write as _};

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::catalogue::Message;
use crate::text::printable;

/// Where the second column starts.
const COLUMN: usize = 40;
const INDENT: &str = "   ";

/// What one command led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The command's text as it was read, comments and continuations gone.
    pub command: String,
    /// How it went.
    pub outcome: Outcome,
    /// What there is to say.
    pub messages: Vec<Message>,
    /// What DISPLAY found.
    pub rows: Vec<Row>,
}

/// How a command went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Carried out.
    Done,
    /// Understood, and refused.
    Failed,
    /// Not understood.
    SyntaxError,
}

/// One object that DISPLAY shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What kind of row it is.
    pub message: Message,
    /// Attributes in the order in which they are shown.
    pub attributes: Attributes,
}

/// Attributes of a row, by name, in order. In JSON an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub Vec<(String, DisplayValue)>);

/// A value as DISPLAY shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DisplayValue {
    /// SHARE or NOSHARE: the name alone, or with NO before it.
    Flag(bool),
    /// A number.
    Number(u64),
    /// Anything else; empty text is shown as one blank, as in MQSC.
    Text(String),
}

/// What a script led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScriptReply {
    /// One for each command, in order.
    pub replies: Vec<Reply>,
    /// Commands read (END not counted).
    pub read: u64,
    /// Of these not understood.
    pub syntax_errors: u64,
    /// Of these refused.
    pub failed: u64,
    /// The script said END or QUIT.
    pub ended: bool,
    /// The last line: counts of commands read, not understood and failed.
    pub summary: Message,
}

impl Reply {
    /// The reply as runmqsc would print it, one line for each element, no line end at the end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut lines = Vec::new();
        for row in &self.rows {
            lines.push(row.message.to_string());
            lines.extend(row.attributes.lines());
        }
        lines.extend(self.messages.iter().map(ToString::to_string));
        lines.join("\n")
    }
}

impl ScriptReply {
    /// Whether every command was carried out.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.syntax_errors == 0 && self.failed == 0
    }

    /// The script's commands, numbered, each with its reply, and the summary.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (number, reply) in (1_u64..).zip(&self.replies) {
            // Writing to a String cannot fail.
            writeln!(text, "{number:6} : {}", reply.command).ok();
            writeln!(text, "{}", reply.to_text()).ok();
        }
        text.push_str(&self.summary.to_string());
        text
    }
}

impl Attributes {
    /// The value of an attribute.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DisplayValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Two columns, 80 characters wide; what is too wide for one column has a line of its own.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut open = false;
        for (name, value) in &self.0 {
            let cell = value.cell(name);
            let wide = cell.chars().count() >= COLUMN;
            match lines.last_mut().filter(|_| open && !wide) {
                Some(line) => {
                    let gap = (INDENT.len() + COLUMN).saturating_sub(line.chars().count());
                    line.push_str(&" ".repeat(gap));
                    line.push_str(&cell);
                    open = false;
                }
                None => {
                    lines.push(format!("{INDENT}{cell}"));
                    open = !wide;
                }
            }
        }
        lines
    }
}

impl DisplayValue {
    fn cell(&self, name: &str) -> String {
        match self {
            DisplayValue::Flag(true) => name.into(),
            DisplayValue::Flag(false) => format!("NO{name}"),
            DisplayValue::Number(number) => format!("{name}({number})"),
            DisplayValue::Text(text) if text.is_empty() => format!("{name}( )"),
            DisplayValue::Text(text) => format!("{name}({})", printable(text)),
        }
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Attributes, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Attributes;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object of attributes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
                let mut attributes = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    attributes.push(entry);
                }
                Ok(Attributes(attributes))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
