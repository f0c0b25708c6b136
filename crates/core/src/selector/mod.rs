//! Selectors: the SQL92 conditional expressions of JMS (Jakarta Messaging 3.1, section 3.8), parsed
//! once and evaluated without allocation. Knows nothing of how messages are encoded.
//!
//! Reading order: `token` (text to tokens), `parse` (tokens to a flat program), `program` (the
//! program and its evaluation in three-valued logic), `like` (patterns in linear time).
//!
//! Invariants: a program is postfix and leaves one value; the height of its stack is known when it
//! was parsed; evaluation neither allocates nor recurses, asks for properties at most as often as
//! [`Selector::names`] says, and goes along no more text than it is given.

mod like;
mod parse;
mod program;
#[cfg(test)]
mod tests;
mod token;

use std::fmt;

use program::Program;

/// A value of a property, borrowed from wherever the message is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No such property, or SQL NULL.
    Null,
    /// TRUE or FALSE.
    Boolean(bool),
    /// An exact number.
    Long(i64),
    /// An approximate number.
    Double(f64),
    /// A string.
    Text(&'a str),
}

/// Where a selector finds the values of identifiers.
pub trait Properties {
    /// The value of an application property or of a `JMS...` header field; [`Value::Null`] when the
    /// message has none of that name. Names are case-sensitive.
    fn get(&self, name: &str) -> Value<'_>;
}

/// A selector that every matching message can be found for through an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexKey {
    /// Only messages with this `JMSCorrelationID` can match.
    CorrelationId(Box<str>),
    /// Only messages with this `JMSMessageID` can match.
    MessageId(Box<str>),
}

/// A compiled selector.
#[derive(Clone, Debug)]
pub struct Selector {
    text: Box<str>,
    program: Program,
    index_key: Option<IndexKey>,
}

impl Selector {
    /// Parses a selector. Text of white space only selects every message (Jakarta Messaging 3.1,
    /// 3.8.1). An identifier in double quotes is an extension: it may hold any character.
    ///
    /// # Errors
    /// The first fault in the text, with its position; also when the text is longer than
    /// `limits::SELECTOR_BYTES_MAX` or nested deeper than `limits::SELECTOR_DEPTH_MAX`.
    pub fn parse(text: &str) -> Result<Selector, SelectorError> {
        let (program, index_key) = parse::parse(text)?;
        Ok(Selector { text: text.into(), program, index_key })
    }

    /// Whether the selector is true (not false, not unknown) for a message.
    #[must_use]
    pub fn matches<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        self.matches_within(properties, &mut { usize::MAX })
    }

    /// The same. A message for which patterns (LIKE) would have to go along more than `left` bytes
    /// of text does not match; what they cost is taken from it. A byte counts four times for a
    /// pattern that has `_` between two `%`.
    #[must_use]
    pub fn matches_within<P: Properties + ?Sized>(&self, properties: &P, left: &mut usize) -> bool {
        self.program.evaluate(properties, left) == Value::Boolean(true)
    }

    /// The key of an index in which every matching message must be found, when the selector
    /// requires one with `=` at its top level or in an AND there. The rest must still be checked by
    /// [`Selector::matches`].
    #[must_use]
    pub fn index_key(&self) -> Option<&IndexKey> {
        self.index_key.as_ref()
    }

    /// The names of the properties that it asks for, each as often as it does at most.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.program.names()
    }

    /// Bytes of memory that it takes, about: up to forty times its text.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_key = match &self.index_key {
            Some(IndexKey::CorrelationId(key) | IndexKey::MessageId(key)) => key.len(),
            None => 0,
        };
        size_of::<Selector>() + self.text.len() + of_key + self.program.memory_bytes()
    }

    /// The text that it was parsed from.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What is wrong with the text of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Where, in bytes from the start of the text.
    pub position: usize,
    /// What was found and what was expected.
    pub message: String,
}

impl SelectorError {
    fn new(position: usize, message: impl Into<String>) -> SelectorError {
        SelectorError { position, message: message.into() }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "selector, byte {}: {}", self.position, self.message)
    }
}

impl std::error::Error for SelectorError {}
