//! Described lists with known fields (AMQP 1.4): reading them field by field, absent and trailing
//! fields included, and writing them in the shortest form.

#![deny(clippy::indexing_slicing)]

use bytes::{BufMut, Bytes, BytesMut};

use super::format::{DESCRIBED, LIST_0, LIST_8, LIST_32, NULL, SYMBOL_8, SYMBOL_32, ULONG_SMALL};
use super::{DecodeError, Map, Reader, Symbols, write};

/// A composite type of the standard.
pub trait Composite: Sized {
    /// Its descriptor; the domain (upper half of the ulong) is 0 for all of the standard's types.
    const CODE: u8;
    /// Its descriptor as a symbol.
    const NAME: &'static str;

    /// Reads the fields in order. Fields that are absent, at the end or null, read as `None`.
    ///
    /// # Errors
    /// When a field is of another type, or a mandatory one is absent.
    fn decode_fields(fields: &mut Fields<'_>) -> Result<Self, DecodeError>;

    /// Writes all fields in order, absent ones as null.
    fn encode_fields(&self, fields: &mut FieldsWriter<'_>);

    /// Reads descriptor and list.
    ///
    /// # Errors
    /// When it is another type, or not well formed.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if descriptor(reader)? != u64::from(Self::CODE) {
            return Err(DecodeError::UnknownDescriptor);
        }
        Self::decode_body(reader)
    }

    /// Reads the list, when the descriptor was read already.
    ///
    /// # Errors
    /// As [`Composite::decode`].
    #[inline]
    fn decode_body(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(reader)?;
        let composite = Self::decode_fields(&mut fields)?;
        fields.finish()?;
        Ok(composite)
    }

    /// Appends descriptor and list.
    fn encode(&self, out: &mut BytesMut) {
        FieldsWriter::list(out, Self::CODE, |fields| self.encode_fields(fields));
    }
}

/// Reads the descriptor of a described value: its code, in whichever form it came.
///
/// # Errors
/// When no described value stands there, or its descriptor is a symbol that the standard does not
/// have.
#[inline]
pub fn descriptor(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match reader.rest() {
        [DESCRIBED, ULONG_SMALL, code, ..] => {
            reader.take(3)?;
            Ok(u64::from(*code))
        }
        _ => descriptor_long(reader),
    }
}

#[cold]
fn descriptor_long(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match reader.byte()? {
        DESCRIBED => {}
        found => return Err(DecodeError::WrongType { expected: "described type", found }),
    }
    match reader.byte()? {
        code @ (SYMBOL_8 | SYMBOL_32) => {
            let name = reader.symbol_of(code)?;
            let known = NAMES.iter().find(|(_, known)| *known == name);
            known.map(|(code, _)| u64::from(*code)).ok_or(DecodeError::UnknownDescriptor)
        }
        code => reader.u64_of(code),
    }
}

/// Every descriptor of the standard with its symbol.
const NAMES: [(u8, &str); 40] = [
    (0x10, "amqp:open:list"),
    (0x11, "amqp:begin:list"),
    (0x12, "amqp:attach:list"),
    (0x13, "amqp:flow:list"),
    (0x14, "amqp:transfer:list"),
    (0x15, "amqp:disposition:list"),
    (0x16, "amqp:detach:list"),
    (0x17, "amqp:end:list"),
    (0x18, "amqp:close:list"),
    (0x1d, "amqp:error:list"),
    (0x23, "amqp:received:list"),
    (0x24, "amqp:accepted:list"),
    (0x25, "amqp:rejected:list"),
    (0x26, "amqp:released:list"),
    (0x27, "amqp:modified:list"),
    (0x28, "amqp:source:list"),
    (0x29, "amqp:target:list"),
    (0x2b, "amqp:delete-on-close:list"),
    (0x2c, "amqp:delete-on-no-links:list"),
    (0x2d, "amqp:delete-on-no-messages:list"),
    (0x2e, "amqp:delete-on-no-links-or-messages:list"),
    (0x30, "amqp:coordinator:list"),
    (0x31, "amqp:declare:list"),
    (0x32, "amqp:discharge:list"),
    (0x33, "amqp:declared:list"),
    (0x34, "amqp:transactional-state:list"),
    (0x40, "amqp:sasl-mechanisms:list"),
    (0x41, "amqp:sasl-init:list"),
    (0x42, "amqp:sasl-challenge:list"),
    (0x43, "amqp:sasl-response:list"),
    (0x44, "amqp:sasl-outcome:list"),
    (0x70, "amqp:header:list"),
    (0x71, "amqp:delivery-annotations:map"),
    (0x72, "amqp:message-annotations:map"),
    (0x73, "amqp:properties:list"),
    (0x74, "amqp:application-properties:map"),
    (0x75, "amqp:data:binary"),
    (0x76, "amqp:amqp-sequence:list"),
    (0x77, "amqp:amqp-value:*"),
    (0x78, "amqp:footer:map"),
];

/// The fields of a composite that is being read.
pub struct Fields<'a> {
    reader: Reader<'a>,
    remaining: u32,
}

impl<'a> Fields<'a> {
    /// Reads the list's size and count, after the descriptor.
    #[inline]
    pub(crate) fn open(reader: &mut Reader<'a>) -> Result<Fields<'a>, DecodeError> {
        let code = reader.byte()?;
        let (items, remaining) = reader.list_of(code)?;
        // The described type and its list.
        Ok(Fields { reader: reader.nested(items, 2)?, remaining })
    }

    /// The format code of the next field; `None` when it is absent.
    #[inline]
    fn next_code(&mut self) -> Result<Option<u8>, DecodeError> {
        match self.remaining.checked_sub(1) {
            None => Ok(None),
            Some(remaining) => {
                self.remaining = remaining;
                let code = self.reader.byte()?;
                Ok((code != NULL).then_some(code))
            }
        }
    }

    /// A field that `read` reads from its constructor on.
    ///
    /// # Errors
    /// Those of `read`, and when the list ends early.
    #[inline]
    pub fn with<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match self.remaining.checked_sub(1) {
            None => Ok(None),
            Some(remaining) => {
                self.remaining = remaining;
                if self.reader.take_null() { Ok(None) } else { read(&mut self.reader).map(Some) }
            }
        }
    }

    /// A nested composite.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn composite<T: Composite>(&mut self) -> Result<Option<T>, DecodeError> {
        self.with(T::decode)
    }

    /// A map, kept encoded; absent reads as empty.
    ///
    /// # Errors
    /// When another value stands there, or it is not well formed.
    pub fn map(&mut self) -> Result<Map, DecodeError> {
        Ok(self.with(Map::decode)?.unwrap_or_default())
    }

    /// A symbol or an array of symbols (fields with `multiple`, 1.4); absent reads as none.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn symbols(&mut self) -> Result<Symbols, DecodeError> {
        Ok(self.with(Symbols::decode)?.unwrap_or_default())
    }

    /// A binary, copied.
    ///
    /// # Errors
    /// When another value stands there.
    pub fn binary_owned(&mut self) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.binary()?.map(Bytes::copy_from_slice))
    }

    /// Checks a field and drops it.
    ///
    /// # Errors
    /// When it is not well formed.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        self.with(|reader| reader.checked_value().map(drop)).map(drop)
    }

    /// All fields must have been read.
    ///
    /// # Errors
    /// When there are more fields or bytes.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.remaining == 0 && self.reader.is_empty() {
            return Ok(());
        }
        Err(DecodeError::Excess)
    }
}

macro_rules! typed_fields {
    ($($(#[$doc:meta])* $name:ident => $of:ident -> $result:ty;)*) => {
        impl<'a> Fields<'a> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// When another type stands there.
                #[inline]
                pub fn $name(&mut self) -> Result<Option<$result>, DecodeError> {
                    match self.next_code()? {
                        Some(code) => self.reader.$of(code).map(Some),
                        None => Ok(None),
                    }
                }
            )*
        }
    };
}

typed_fields! {
    /// A boolean.
    bool => bool_of -> bool;
    /// A ubyte.
    u8 => u8_of -> u8;
    /// A ushort.
    u16 => u16_of -> u16;
    /// A uint.
    u32 => u32_of -> u32;
    /// A ulong.
    u64 => u64_of -> u64;
    /// A timestamp, in milliseconds since the epoch.
    timestamp => timestamp_of -> i64;
    /// A binary.
    binary => binary_of -> &'a [u8];
    /// A string.
    string => string_of -> &'a str;
    /// A symbol.
    symbol => symbol_of -> &'a str;
}

/// The fields of a composite that is being written. A null is held back until a field with a value
/// follows, so trailing nulls never reach the wire.
pub struct FieldsWriter<'b> {
    out: &'b mut BytesMut,
    count: u32,
    nulls: u32,
}

impl<'b> FieldsWriter<'b> {
    /// Appends a described list; `write_fields` writes its fields.
    pub(crate) fn list(
        out: &'b mut BytesMut,
        code: u8,
        write_fields: impl FnOnce(&mut FieldsWriter<'_>),
    ) {
        out.put_slice(&[DESCRIBED, ULONG_SMALL, code, LIST_8, 0, 0]);
        let start = out.len();
        let mut fields = FieldsWriter { out: &mut *out, count: 0, nulls: 0 };
        write_fields(&mut fields);
        let count = fields.count;
        close_list(out, start, count);
    }

    /// The buffer, for a field with a value that the caller writes: exactly one value.
    pub fn value(&mut self) -> &mut BytesMut {
        while self.nulls > 0 {
            self.nulls -= 1;
            self.count += 1;
            write::null(self.out);
        }
        self.count += 1;
        self.out
    }

    /// An absent field.
    pub fn null(&mut self) {
        self.nulls += 1;
    }

    /// A boolean that is left out when it is false, its default.
    pub fn flag(&mut self, flag: bool) {
        self.bool(flag.then_some(true));
    }

    /// A composite.
    pub fn composite<T: Composite>(&mut self, composite: Option<&T>) {
        match composite {
            Some(composite) => composite.encode(self.value()),
            None => self.null(),
        }
    }

    /// A map, absent when it is empty.
    pub fn map(&mut self, map: &Map) {
        if map.is_empty() { self.null() } else { map.encode(self.value()) }
    }

    /// Symbols as an array, absent when there are none.
    pub fn symbols(&mut self, symbols: &Symbols) {
        if symbols.is_empty() { self.null() } else { symbols.encode(self.value()) }
    }
}

/// Writes size and count of a list with items from `start`, three bytes behind its
/// constructor.
fn close_list(out: &mut BytesMut, start: usize, count: u32) {
    let bytes = out.len().saturating_sub(start);
    if count == 0 {
        out.truncate(start.saturating_sub(3));
        out.put_u8(LIST_0);
        return;
    }
    if let (Ok(size), Ok(count)) = (u8::try_from(bytes.saturating_add(1)), u8::try_from(count)) {
        if let Some([.., at_size, at_count]) = out.get_mut(..start) {
            *at_size = size;
            *at_count = count;
        }
        return;
    }
    let items = out.split_off(start);
    out.truncate(start.saturating_sub(3));
    out.put_u8(LIST_32);
    out.put_u32(write::size_32(bytes.saturating_add(4)));
    out.put_u32(count);
    out.put_slice(&items);
}

macro_rules! written_fields {
    ($($(#[$doc:meta])* $name:ident: $value:ty;)*) => {
        impl FieldsWriter<'_> {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&mut self, value: Option<$value>) {
                    match value {
                        Some(value) => write::$name(self.value(), value),
                        None => self.null(),
                    }
                }
            )*
        }
    };
}

written_fields! {
    /// A boolean.
    bool: bool;
    /// A ubyte.
    u8: u8;
    /// A ushort.
    u16: u16;
    /// A uint.
    u32: u32;
    /// A ulong.
    u64: u64;
    /// A timestamp, in milliseconds since the epoch.
    timestamp: i64;
    /// A binary.
    binary: &[u8];
    /// A string.
    string: &str;
    /// A symbol.
    symbol: &str;
}
