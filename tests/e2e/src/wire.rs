//! AMQP 1.0 values and frames as bytes, written for tests: it can also write what no peer may send.
//!
//! Slow and plain on purpose, and independent of the product's own codec. [`Value::Raw`] puts any
//! bytes anywhere. Reading gives back `None` for what is not AMQP.

/// Protocol header for AMQP frames.
pub const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
/// Protocol header for SASL frames.
pub const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

/// Codes of the performatives (AMQP 2.7), SASL frames (5.3) and of some described types.
pub mod code {
    #![expect(missing_docs, reason = "the names are those of the standard")]
    pub const OPEN: u64 = 0x10;
    pub const BEGIN: u64 = 0x11;
    pub const ATTACH: u64 = 0x12;
    pub const FLOW: u64 = 0x13;
    pub const TRANSFER: u64 = 0x14;
    pub const DISPOSITION: u64 = 0x15;
    pub const DETACH: u64 = 0x16;
    pub const END: u64 = 0x17;
    pub const CLOSE: u64 = 0x18;
    pub const ERROR: u64 = 0x1d;
    pub const ACCEPTED: u64 = 0x24;
    pub const REJECTED: u64 = 0x25;
    pub const RELEASED: u64 = 0x26;
    pub const SOURCE: u64 = 0x28;
    pub const TARGET: u64 = 0x29;
    pub const COORDINATOR: u64 = 0x30;
    pub const DECLARE: u64 = 0x31;
    pub const DISCHARGE: u64 = 0x32;
    pub const DECLARED: u64 = 0x33;
    pub const TRANSACTIONAL: u64 = 0x34;
    pub const SASL_MECHANISMS: u64 = 0x40;
    pub const SASL_INIT: u64 = 0x41;
    pub const SASL_CHALLENGE: u64 = 0x42;
    pub const SASL_RESPONSE: u64 = 0x43;
    pub const SASL_OUTCOME: u64 = 0x44;
    pub const HEADER: u64 = 0x70;
    pub const PROPERTIES: u64 = 0x73;
    pub const APPLICATION_PROPERTIES: u64 = 0x74;
    pub const DATA: u64 = 0x75;
    pub const AMQP_VALUE: u64 = 0x77;
}

/// One AMQP value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// null
    Null,
    /// boolean
    Bool(bool),
    /// ubyte
    Ubyte(u8),
    /// ushort
    Ushort(u16),
    /// uint
    Uint(u32),
    /// ulong
    Ulong(u64),
    /// int
    Int(i32),
    /// long
    Long(i64),
    /// string
    Text(String),
    /// symbol
    Symbol(String),
    /// binary
    Binary(Vec<u8>),
    /// list
    List(Vec<Value>),
    /// map
    Map(Vec<(Value, Value)>),
    /// A described value with a numeric code.
    Described(u64, Box<Value>),
    /// An array, or another type that only needs to be stepped over: its constructor code.
    Other(u8),
    /// Bytes as they are (writing only).
    Raw(Vec<u8>),
}

/// A described list: a performative, a terminus, an outcome, a section.
#[must_use]
pub fn described(code: u64, fields: Vec<Value>) -> Value {
    Value::Described(code, Box::new(Value::List(fields)))
}

/// A string.
#[must_use]
pub fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// A symbol.
#[must_use]
pub fn symbol(text: &str) -> Value {
    Value::Symbol(text.into())
}

impl Value {
    /// Appends the value's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.push(0x40),
            Value::Bool(truth) => out.push(if *truth { 0x41 } else { 0x42 }),
            Value::Ubyte(number) => out.extend([0x50, *number]),
            Value::Ushort(number) => fixed(out, 0x60, &number.to_be_bytes()),
            Value::Uint(number) => fixed(out, 0x70, &number.to_be_bytes()),
            Value::Ulong(number) => fixed(out, 0x80, &number.to_be_bytes()),
            Value::Int(number) => fixed(out, 0x71, &number.to_be_bytes()),
            Value::Long(number) => fixed(out, 0x81, &number.to_be_bytes()),
            Value::Text(text) => variable(out, 0xb1, text.as_bytes()),
            Value::Symbol(text) => variable(out, 0xb3, text.as_bytes()),
            Value::Binary(bytes) => variable(out, 0xb0, bytes),
            Value::List(values) => compound(out, 0xd0, values.iter()),
            Value::Map(pairs) => {
                compound(out, 0xd1, pairs.iter().flat_map(|(key, value)| [key, value]));
            }
            Value::Described(code, value) => {
                out.push(0x00);
                Value::Ulong(*code).write(out);
                value.write(out);
            }
            Value::Other(code) => out.push(*code),
            Value::Raw(bytes) => out.extend(bytes),
        }
    }

    /// The value's bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Reads one value from the front of `input`.
    pub fn read(input: &mut &[u8]) -> Option<Value> {
        let constructor = *take(input, 1)?.first()?;
        Some(match constructor {
            0x00 => return read_described(input),
            0x40 => Value::Null,
            0x41 => Value::Bool(true),
            0x42 => Value::Bool(false),
            0x56 => Value::Bool(take(input, 1)? == [1]),
            0x50 => Value::Ubyte(*take(input, 1)?.first()?),
            0x60 => Value::Ushort(u16::try_from(number(input, 2)?).ok()?),
            0x43 => Value::Uint(0),
            0x52 => Value::Uint(u32::try_from(number(input, 1)?).ok()?),
            0x70 => Value::Uint(u32::try_from(number(input, 4)?).ok()?),
            0x44 => Value::Ulong(0),
            0x53 => Value::Ulong(number(input, 1)?),
            0x80 => Value::Ulong(number(input, 8)?),
            0x71 => Value::Int(u32::try_from(number(input, 4)?).ok()?.cast_signed()),
            0x81 => Value::Long(number(input, 8)?.cast_signed()),
            0xa0 | 0xb0 => Value::Binary(sized(input, constructor)?.to_vec()),
            0xa1 | 0xb1 => Value::Text(String::from_utf8(sized(input, constructor)?.into()).ok()?),
            0xa3 | 0xb3 => {
                Value::Symbol(String::from_utf8(sized(input, constructor)?.into()).ok()?)
            }
            0x45 => Value::List(Vec::new()),
            0xc0 | 0xd0 => Value::List(read_items(input, constructor)?),
            0xc1 | 0xd1 => {
                let mut items = read_items(input, constructor)?.into_iter();
                let mut pairs = Vec::new();
                while let Some(key) = items.next() {
                    pairs.push((key, items.next()?));
                }
                Value::Map(pairs)
            }
            other => {
                skip(input, other)?;
                Value::Other(other)
            }
        })
    }

    /// Field `at` of a described list or list; [`Value::Null`] when it is left out.
    #[must_use]
    pub fn field(&self, at: usize) -> &Value {
        match self {
            Value::List(values) => values.get(at).unwrap_or(&Value::Null),
            Value::Described(_, value) => value.field(at),
            _ => &Value::Null,
        }
    }

    /// The code of a described value.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        if let Value::Described(code, _) = self { Some(*code) } else { None }
    }

    /// The text of a string or symbol.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) | Value::Symbol(text) = self { Some(text) } else { None }
    }

    /// Any unsigned number.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Value::Ubyte(number) => Some(u64::from(*number)),
            Value::Ushort(number) => Some(u64::from(*number)),
            Value::Uint(number) => Some(u64::from(*number)),
            Value::Ulong(number) => Some(*number),
            _ => None,
        }
    }

    /// The condition when this is an error, such as `amqp:not-found`.
    #[must_use]
    pub fn condition(&self) -> Option<&str> {
        if self.code() == Some(code::ERROR) { self.field(0).as_text() } else { None }
    }
}

/// A whole frame around a body.
#[must_use]
pub fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len() + 8).unwrap_or(u32::MAX);
    let mut out = size.to_be_bytes().to_vec();
    out.extend([2, kind]);
    out.extend(channel.to_be_bytes());
    out.extend(body);
    out
}

/// An AMQP frame of a performative and a payload.
#[must_use]
pub fn amqp(channel: u16, performative: &Value, payload: &[u8]) -> Vec<u8> {
    let mut body = performative.bytes();
    body.extend(payload);
    frame(0, channel, &body)
}

/// A message of one data section, durable when asked.
#[must_use]
pub fn message(durable: bool, body: &[u8]) -> Vec<u8> {
    let mut out = described(code::HEADER, vec![Value::Bool(durable)]).bytes();
    Value::Described(code::DATA, Box::new(Value::Binary(body.into()))).write(&mut out);
    out
}

/// The text of a message with a body of one data section or one value.
#[must_use]
pub fn body_text(message: &[u8]) -> Option<String> {
    let mut rest = message;
    while let Some(section) = Value::read(&mut rest) {
        if let Value::Described(code::DATA | code::AMQP_VALUE, body) = section {
            return match *body {
                Value::Text(text) => Some(text),
                Value::Binary(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                _ => None,
            };
        }
    }
    None
}

fn fixed(out: &mut Vec<u8>, constructor: u8, bytes: &[u8]) {
    out.push(constructor);
    out.extend(bytes);
}

fn variable(out: &mut Vec<u8>, constructor: u8, bytes: &[u8]) {
    out.push(constructor);
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

fn compound<'a>(out: &mut Vec<u8>, constructor: u8, values: impl Iterator<Item = &'a Value>) {
    let mut content = Vec::new();
    let mut count = 0_u32;
    for value in values {
        value.write(&mut content);
        count += 1;
    }
    out.push(constructor);
    out.extend(u32::try_from(content.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(count.to_be_bytes());
    out.extend(content);
}

fn take<'a>(input: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, rest) = input.split_at_checked(count)?;
    *input = rest;
    Some(front)
}

fn number(input: &mut &[u8], width: usize) -> Option<u64> {
    Some(take(input, width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn sized<'a>(input: &mut &'a [u8], constructor: u8) -> Option<&'a [u8]> {
    let width = if constructor & 0x10 == 0 { 1 } else { 4 };
    let count = usize::try_from(number(input, width)?).ok()?;
    take(input, count)
}

fn read_items(input: &mut &[u8], constructor: u8) -> Option<Vec<Value>> {
    let width = if constructor & 0x10 == 0 { 1 } else { 4 };
    let count = usize::try_from(number(input, width)?).ok()?;
    let mut content = take(input, count)?;
    let items = number(&mut content, width)?;
    (0..items).map(|_| Value::read(&mut content)).collect()
}

fn read_described(input: &mut &[u8]) -> Option<Value> {
    let descriptor = Value::read(input)?;
    let value = Value::read(input)?;
    Some(match descriptor.as_number() {
        Some(code) => Value::Described(code, Box::new(value)),
        None => value,
    })
}

fn skip(input: &mut &[u8], constructor: u8) -> Option<()> {
    let count = match constructor >> 4 {
        0x4 => 0,
        0x5 => 1,
        0x6 => 2,
        0x7 => 4,
        0x8 => 8,
        0x9 => 16,
        0xa | 0xc | 0xe => usize::try_from(number(input, 1)?).ok()?,
        0xb | 0xd | 0xf => usize::try_from(number(input, 4)?).ok()?,
        _ => return None,
    };
    take(input, count).map(|_| ())
}
