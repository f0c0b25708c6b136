//! Why bytes are not what they should be.

use std::fmt;

/// What a decoder of this module yields.
pub(super) type DecodeResult<T> = Result<T, DecodeError>;

/// Why bytes could not be decoded. On the wire all of them are `amqp:decode-error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end inside a value.
    UnexpectedEnd,
    /// A format code that the standard does not know.
    UnknownFormat(u8),
    /// A value of another type.
    WrongType {
        /// What is expected here.
        expected: &'static str,
        /// The format code that stands there.
        found: u8,
    },
    /// A string that is not UTF-8, or a symbol that is not ASCII.
    InvalidText,
    /// A boolean other than 0 and 1, or a char that is no Unicode scalar value.
    InvalidScalar,
    /// A value outside the range of the field named.
    OutOfRange(&'static str),
    /// Nested deeper than the limit.
    TooDeep,
    /// A count that the size cannot hold, or an odd count in a map.
    InvalidCount,
    /// A mandatory field is absent.
    MissingField(&'static str),
    /// A described type that has no business there.
    UnknownDescriptor,
    /// Bytes or fields behind the end of what was expected.
    Excess,
    /// Sections of a message out of order or doubled (AMQP 3.2).
    SectionOrder,
    /// Longer than what we keep.
    TooLong,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnexpectedEnd => out.write_str("bytes end inside a value"),
            DecodeError::UnknownFormat(code) => write!(out, "unknown format code 0x{code:02x}"),
            DecodeError::WrongType { expected, found } => {
                write!(out, "expected {expected}, found format code 0x{found:02x}")
            }
            DecodeError::InvalidText => out.write_str("text is not UTF-8, or a symbol not ASCII"),
            DecodeError::InvalidScalar => out.write_str("not a boolean or not a character"),
            DecodeError::OutOfRange(field) => write!(out, "{field} is out of range"),
            DecodeError::TooDeep => out.write_str("nested too deep"),
            DecodeError::InvalidCount => out.write_str("count does not fit the size"),
            DecodeError::MissingField(field) => write!(out, "mandatory field {field} is absent"),
            DecodeError::UnknownDescriptor => out.write_str("unexpected described type"),
            DecodeError::Excess => out.write_str("more bytes or fields than expected"),
            DecodeError::SectionOrder => out.write_str("message sections out of order or doubled"),
            DecodeError::TooLong => out.write_str("longer than the limit"),
        }
    }
}

impl std::error::Error for DecodeError {}
