//! One value of any type, borrowed from the bytes that it came in or from what is to be written.
//!
//! Compound values are views: they hold the bytes of their items and read them one by one. Reading
//! a value checks its own size and count only; its items are checked when they are read, or all at
//! once by [`super::check`].

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use bytes::{BufMut, BytesMut};

use super::error::{DecodeError, DecodeResult};
use super::format::{
    ARRAY_8, ARRAY_32, BINARY_8, BINARY_32, BOOL, BYTE, CHAR, DECIMAL_32, DECIMAL_64, DECIMAL_128,
    DESCRIBED, DOUBLE, FALSE, FLOAT, INT, INT_SMALL, LIST_0, LIST_8, LIST_32, LONG, LONG_SMALL,
    MAP_8, MAP_32, NULL, SHORT, STRING_8, STRING_32, SYMBOL_8, SYMBOL_32, TIMESTAMP, TRUE, UBYTE,
    UINT, UINT_0, UINT_SMALL, ULONG, ULONG_0, ULONG_SMALL, USHORT, UUID,
};
use super::{Reader, write};

/// A value of any AMQP type (1.6).
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the type of the standard with that name")]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Ubyte(u8),
    Ushort(u16),
    Uint(u32),
    Ulong(u64),
    Byte(i8),
    Short(i16),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal32([u8; 4]),
    Decimal64([u8; 8]),
    Decimal128([u8; 16]),
    Char(char),
    /// Milliseconds since the epoch.
    Timestamp(i64),
    Uuid([u8; 16]),
    Binary(&'a [u8]),
    String(&'a str),
    Symbol(&'a str),
    List(List<'a>),
    Map(MapView<'a>),
    Array(Array<'a>),
    Described(Described<'a>),
}

/// A list: its items, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    pub(super) items: &'a [u8],
    pub(super) count: u32,
    pub(super) levels: usize,
}

/// A map: its keys and values in turn, encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapView<'a> {
    pub(super) items: &'a [u8],
    /// Keys and values together.
    pub(super) count: u32,
    pub(super) levels: usize,
}

/// An array: the constructor that all elements share, and the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    pub(super) body: &'a [u8],
    pub(super) count: u32,
    pub(super) levels: usize,
}

/// A described value: descriptor and value, both encoded and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described<'a> {
    descriptor: &'a [u8],
    value: &'a [u8],
    levels: usize,
}

impl<'a> Value<'a> {
    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes end early or the format code is unknown.
    pub fn decode(reader: &mut Reader<'a>) -> DecodeResult<Value<'a>> {
        let code = reader.byte()?;
        Value::of(code, reader)
    }

    fn of(code: u8, reader: &mut Reader<'a>) -> DecodeResult<Value<'a>> {
        Ok(match code {
            NULL => Value::Null,
            TRUE | FALSE | BOOL => Value::Bool(reader.bool_of(code)?),
            UBYTE => Value::Ubyte(reader.u8_of(code)?),
            USHORT => Value::Ushort(reader.u16_of(code)?),
            UINT | UINT_SMALL | UINT_0 => Value::Uint(reader.u32_of(code)?),
            ULONG | ULONG_SMALL | ULONG_0 => Value::Ulong(reader.u64_of(code)?),
            BYTE => Value::Byte(reader.i8_of(code)?),
            SHORT => Value::Short(reader.i16_of(code)?),
            INT | INT_SMALL => Value::Int(reader.i32_of(code)?),
            LONG | LONG_SMALL => Value::Long(reader.i64_of(code)?),
            FLOAT => Value::Float(f32::from_be_bytes(reader.fixed()?)),
            DOUBLE => Value::Double(f64::from_be_bytes(reader.fixed()?)),
            DECIMAL_32 => Value::Decimal32(reader.fixed()?),
            DECIMAL_64 => Value::Decimal64(reader.fixed()?),
            DECIMAL_128 => Value::Decimal128(reader.fixed()?),
            CHAR => {
                let scalar = char::from_u32(u32::from_be_bytes(reader.fixed()?));
                Value::Char(scalar.ok_or(DecodeError::InvalidScalar)?)
            }
            TIMESTAMP => Value::Timestamp(reader.timestamp_of(code)?),
            UUID => Value::Uuid(reader.uuid_of(code)?),
            BINARY_8 | BINARY_32 => Value::Binary(reader.binary_of(code)?),
            STRING_8 | STRING_32 => Value::String(reader.string_of(code)?),
            SYMBOL_8 | SYMBOL_32 => Value::Symbol(reader.symbol_of(code)?),
            _ => return Value::compound_of(code, reader),
        })
    }

    fn compound_of(code: u8, reader: &mut Reader<'a>) -> DecodeResult<Value<'a>> {
        let levels = reader.levels().checked_sub(1).ok_or(DecodeError::TooDeep)?;
        match code {
            LIST_0 | LIST_8 | LIST_32 => {
                let (items, count) = reader.list_of(code)?;
                Ok(Value::List(List { items, count, levels }))
            }
            MAP_8 | MAP_32 => {
                let (items, count) = reader.map_of(code)?;
                Ok(Value::Map(MapView { items, count, levels }))
            }
            ARRAY_8 | ARRAY_32 => {
                let (body, count) = reader.array_of(code)?;
                Ok(Value::Array(Array { body, count, levels }))
            }
            DESCRIBED => {
                let mut inner = reader.nested(reader.rest(), 1)?;
                let descriptor = inner.checked_value()?;
                let value = inner.checked_value()?;
                reader.take(descriptor.len().saturating_add(value.len()))?;
                Ok(Value::Described(Described { descriptor, value, levels }))
            }
            unknown => Err(DecodeError::UnknownFormat(unknown)),
        }
    }

    /// Appends it in the shortest encoding (what a view holds: as it came).
    pub fn encode(&self, out: &mut BytesMut) {
        match *self {
            Value::Null => write::null(out),
            Value::Bool(value) => write::bool(out, value),
            Value::Ubyte(value) => write::u8(out, value),
            Value::Ushort(value) => write::u16(out, value),
            Value::Uint(value) => write::u32(out, value),
            Value::Ulong(value) => write::u64(out, value),
            Value::Byte(value) => write::i8(out, value),
            Value::Short(value) => write::i16(out, value),
            Value::Int(value) => write::i32(out, value),
            Value::Long(value) => write::i64(out, value),
            Value::Float(value) => write::f32(out, value),
            Value::Double(value) => write::f64(out, value),
            Value::Decimal32(value) => write::decimal_32(out, value),
            Value::Decimal64(value) => write::decimal_64(out, value),
            Value::Decimal128(value) => write::decimal_128(out, value),
            Value::Char(value) => write::char(out, value),
            Value::Timestamp(value) => write::timestamp(out, value),
            Value::Uuid(value) => write::uuid(out, value),
            Value::Binary(value) => write::binary(out, value),
            Value::String(value) => write::string(out, value),
            Value::Symbol(value) => write::symbol(out, value),
            Value::List(List { count: 0, .. }) => out.put_u8(LIST_0),
            Value::List(list) => write::compound(out, LIST_8, LIST_32, list.count, list.items),
            Value::Map(map) => write::map(out, map.count, map.items),
            Value::Array(array) => {
                write::compound(out, ARRAY_8, ARRAY_32, array.count, array.body);
            }
            Value::Described(described) => {
                out.put_u8(DESCRIBED);
                out.put_slice(described.descriptor);
                out.put_slice(described.value);
            }
        }
    }

    /// The text of a string or symbol.
    #[must_use]
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Value::String(text) | Value::Symbol(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an integer type, when an i64 holds it.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Ubyte(value) => Some(i64::from(value)),
            Value::Ushort(value) => Some(i64::from(value)),
            Value::Uint(value) => Some(i64::from(value)),
            Value::Ulong(value) => i64::try_from(value).ok(),
            Value::Byte(value) => Some(i64::from(value)),
            Value::Short(value) => Some(i64::from(value)),
            Value::Int(value) => Some(i64::from(value)),
            Value::Long(value) => Some(value),
            _ => None,
        }
    }

    /// The boolean.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// A list, as a view.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn list(&mut self) -> DecodeResult<List<'a>> {
        let levels = self.levels().checked_sub(1).ok_or(DecodeError::TooDeep)?;
        let code = self.byte()?;
        let (items, count) = self.list_of(code)?;
        Ok(List { items, count, levels })
    }

    /// A map, as a view.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn map(&mut self) -> DecodeResult<MapView<'a>> {
        let levels = self.levels().checked_sub(1).ok_or(DecodeError::TooDeep)?;
        let code = self.byte()?;
        let (items, count) = self.map_of(code)?;
        Ok(MapView { items, count, levels })
    }
}

impl<'a> List<'a> {
    /// Count of items.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The items in order; an error ends the walk.
    pub fn iter(&self) -> impl Iterator<Item = DecodeResult<Value<'a>>> + use<'a> {
        Items { reader: at(self.items, self.levels), remaining: self.count, element: None }
    }
}

impl<'a> MapView<'a> {
    /// Count of entries.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count / 2
    }

    /// Whether every key is a string.
    pub(crate) fn has_string_keys(&self) -> bool {
        let mut reader = at(self.items, self.levels);
        (0..self.count / 2).all(|_| {
            matches!(reader.peek(), Some(STRING_8 | STRING_32))
                && reader.step_over().is_ok()
                && reader.step_over().is_ok()
        })
    }

    /// The entries in order; an error ends the walk.
    pub fn iter(&self) -> impl Iterator<Item = DecodeResult<(Value<'a>, Value<'a>)>> + use<'a> {
        let mut items =
            Items { reader: at(self.items, self.levels), remaining: self.count, element: None };
        std::iter::from_fn(move || {
            let key = items.next()?;
            let value = items.next()?;
            Some(key.and_then(|key| value.map(|value| (key, value))))
        })
    }

    /// The value of the first entry that has the string or symbol `key` as its key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        let mut reader = at(self.items, self.levels);
        match reader.find(key, self.count) {
            Ok(true) => Value::decode(&mut reader).ok(),
            Ok(false) | Err(_) => None,
        }
    }
}

impl<'a> Array<'a> {
    /// Count of elements.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The elements in order, without their descriptors when the array is one of described values;
    /// an error ends the walk.
    pub fn iter(&self) -> impl Iterator<Item = DecodeResult<Value<'a>>> + use<'a> {
        let mut reader = at(self.body, self.levels);
        let mut element = reader.byte();
        while element == Ok(DESCRIBED) {
            element = Value::decode(&mut reader).and_then(|_| reader.byte());
        }
        let (element, remaining) = match element {
            Ok(code) => (Some(code), self.count),
            Err(_) => (None, 0),
        };
        Items { reader, remaining, element }
    }
}

impl<'a> Described<'a> {
    /// The descriptor: a symbol or a ulong, unless the peer is odd.
    #[must_use]
    pub fn descriptor(&self) -> Value<'a> {
        Value::decode(&mut at(self.descriptor, self.levels)).unwrap_or(Value::Null)
    }

    /// The value described.
    #[must_use]
    pub fn value(&self) -> Value<'a> {
        Value::decode(&mut at(self.value, self.levels)).unwrap_or(Value::Null)
    }
}

fn at(bytes: &[u8], levels: usize) -> Reader<'_> {
    // The view was made with `levels` at hand, which never exceed those of a new reader.
    let outermost = Reader::new(bytes);
    outermost.nested(bytes, outermost.levels().saturating_sub(levels)).unwrap_or(outermost)
}

struct Items<'a> {
    reader: Reader<'a>,
    remaining: u32,
    /// Format code of all items (of an array).
    element: Option<u8>,
}

impl<'a> Iterator for Items<'a> {
    type Item = DecodeResult<Value<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let item = match self.element {
            Some(code) => Value::of(code, &mut self.reader),
            None => Value::decode(&mut self.reader),
        };
        if item.is_err() {
            self.remaining = 0;
        }
        Some(item)
    }
}
