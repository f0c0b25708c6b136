//! Selectors: the SQL92 conditional expressions of JMS (Jakarta Messaging 3.1, section 3.8), parsed once
//! and evaluated without allocation. Knows nothing of how messages are encoded.

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
