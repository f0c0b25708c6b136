//! A checked cursor over bytes. It reads primitives and steps over whole values; it neither
//! allocates nor panics. Invariant: after an error the cursor's position means nothing.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use towline_types::limits::NESTING_DEPTH_MAX;

use super::error::{DecodeError, DecodeResult};
use super::format::{
    ARRAY_8, ARRAY_32, BINARY_8, BINARY_32, BOOL, BYTE, DESCRIBED, FALSE, INT, INT_SMALL, LIST_0,
    LIST_8, LIST_32, LONG, LONG_SMALL, MAP_8, MAP_32, NULL, SHORT, STRING_8, STRING_32, SYMBOL_8,
    SYMBOL_32, TIMESTAMP, TRUE, UBYTE, UINT, UINT_0, UINT_SMALL, ULONG, ULONG_0, ULONG_SMALL,
    USHORT, UUID,
};

/// A cursor: the bytes not yet read, and how many more levels may be nested in them.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    levels: usize,
}

impl<'a> Reader<'a> {
    /// At the start of `bytes`, outside of any nesting.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, levels: NESTING_DEPTH_MAX }
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all is read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte, without reading it.
    #[must_use]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// How many levels may be nested in what is read next.
    pub(super) const fn levels(&self) -> usize {
        self.levels
    }

    /// A cursor over `bytes` that stand `levels` levels further in.
    pub(super) fn nested(&self, bytes: &'a [u8], levels: usize) -> DecodeResult<Reader<'a>> {
        let levels = self.levels.checked_sub(levels).ok_or(DecodeError::TooDeep)?;
        Ok(Reader { rest: bytes, levels })
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    #[inline]
    pub fn byte(&mut self) -> DecodeResult<u8> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(*first)
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    #[inline]
    pub fn take(&mut self, count: usize) -> DecodeResult<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(super) fn fixed<const N: usize>(&mut self) -> DecodeResult<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A size or count of one byte, or of four.
    #[inline]
    fn width(&mut self, narrow: bool) -> DecodeResult<usize> {
        if narrow {
            return Ok(usize::from(self.byte()?));
        }
        usize::try_from(u32::from_be_bytes(self.fixed()?)).map_err(|_| DecodeError::TooLong)
    }

    /// Steps over one value by its size alone: what is in it is not looked at.
    ///
    /// # Errors
    /// When the bytes end early, or the format code has no size.
    #[inline]
    pub(crate) fn step_over(&mut self) -> DecodeResult<()> {
        let start = *self;
        let code = self.byte()?;
        let size = match code >> 4 {
            0x4 => 0,
            0x5 => 1,
            0x6 => 2,
            0x7 => 4,
            0x8 => 8,
            0x9 => 16,
            0xa | 0xc | 0xe => self.width(true)?,
            0xb | 0xd | 0xf => self.width(false)?,
            _ if code == DESCRIBED => {
                *self = start;
                return self.checked_value().map(drop);
            }
            _ => return Err(DecodeError::UnknownFormat(code)),
        };
        self.take(size).map(drop)
    }

    /// Whether a binary comes next of which exactly the last `missing` bytes are not here.
    pub(crate) fn binary_lacks(mut self, missing: usize) -> bool {
        let size = match self.byte() {
            Ok(BINARY_8) => self.width(true),
            Ok(BINARY_32) => self.width(false),
            Ok(_) | Err(_) => return false,
        };
        size == Ok(self.rest.len().saturating_add(missing))
    }

    /// The bytes of the text that comes next: its bytes are not looked at. `None`, and nothing
    /// read, when no string (nor symbol) comes next.
    #[inline]
    fn raw_text(&mut self) -> DecodeResult<Option<&'a [u8]>> {
        let narrow = match self.peek() {
            Some(STRING_8 | SYMBOL_8) => true,
            Some(STRING_32 | SYMBOL_32) => false,
            Some(_) | None => return Ok(None),
        };
        self.byte()?;
        let size = self.width(narrow)?;
        self.take(size).map(Some)
    }

    /// Among `count` keys and values, goes to the value of the key `key`, a string or symbol.
    pub(super) fn find(&mut self, key: &str, count: u32) -> DecodeResult<bool> {
        for _ in 0..count / 2 {
            match self.raw_text()? {
                Some(name) if name == key.as_bytes() => return Ok(true),
                Some(_) => {}
                None => self.step_over()?,
            }
            self.step_over()?;
        }
        Ok(false)
    }

    /// Reads a null, when one comes next.
    #[inline]
    pub fn take_null(&mut self) -> bool {
        match self.rest.split_first() {
            Some((&NULL, rest)) => {
                self.rest = rest;
                true
            }
            Some(_) | None => false,
        }
    }

    #[inline]
    pub(super) fn bool_of(&mut self, code: u8) -> DecodeResult<bool> {
        match code {
            TRUE => Ok(true),
            FALSE => Ok(false),
            BOOL => match self.byte()? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(DecodeError::InvalidScalar),
            },
            found => Err(DecodeError::WrongType { expected: "boolean", found }),
        }
    }

    #[inline]
    pub(super) fn u8_of(&mut self, code: u8) -> DecodeResult<u8> {
        match code {
            UBYTE => self.byte(),
            found => Err(DecodeError::WrongType { expected: "ubyte", found }),
        }
    }

    #[inline]
    pub(super) fn u16_of(&mut self, code: u8) -> DecodeResult<u16> {
        match code {
            USHORT => Ok(u16::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "ushort", found }),
        }
    }

    #[inline]
    pub(super) fn u32_of(&mut self, code: u8) -> DecodeResult<u32> {
        match code {
            UINT_SMALL => Ok(u32::from(self.byte()?)),
            UINT_0 => Ok(0),
            UINT => Ok(u32::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "uint", found }),
        }
    }

    #[inline]
    pub(super) fn u64_of(&mut self, code: u8) -> DecodeResult<u64> {
        match code {
            ULONG_SMALL => Ok(u64::from(self.byte()?)),
            ULONG_0 => Ok(0),
            ULONG => Ok(u64::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "ulong", found }),
        }
    }

    pub(super) fn i8_of(&mut self, code: u8) -> DecodeResult<i8> {
        match code {
            BYTE => Ok(i8::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "byte", found }),
        }
    }

    pub(super) fn i16_of(&mut self, code: u8) -> DecodeResult<i16> {
        match code {
            SHORT => Ok(i16::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "short", found }),
        }
    }

    pub(super) fn i32_of(&mut self, code: u8) -> DecodeResult<i32> {
        match code {
            INT => Ok(i32::from_be_bytes(self.fixed()?)),
            INT_SMALL => Ok(i32::from(i8::from_be_bytes(self.fixed()?))),
            found => Err(DecodeError::WrongType { expected: "int", found }),
        }
    }

    pub(super) fn i64_of(&mut self, code: u8) -> DecodeResult<i64> {
        match code {
            LONG => Ok(i64::from_be_bytes(self.fixed()?)),
            LONG_SMALL => Ok(i64::from(i8::from_be_bytes(self.fixed()?))),
            found => Err(DecodeError::WrongType { expected: "long", found }),
        }
    }

    pub(super) fn timestamp_of(&mut self, code: u8) -> DecodeResult<i64> {
        match code {
            TIMESTAMP => Ok(i64::from_be_bytes(self.fixed()?)),
            found => Err(DecodeError::WrongType { expected: "timestamp", found }),
        }
    }

    pub(super) fn uuid_of(&mut self, code: u8) -> DecodeResult<[u8; 16]> {
        match code {
            UUID => self.fixed(),
            found => Err(DecodeError::WrongType { expected: "uuid", found }),
        }
    }

    #[inline]
    pub(super) fn binary_of(&mut self, code: u8) -> DecodeResult<&'a [u8]> {
        let size = match code {
            BINARY_8 => self.width(true)?,
            BINARY_32 => self.width(false)?,
            found => return Err(DecodeError::WrongType { expected: "binary", found }),
        };
        self.take(size)
    }

    pub(super) fn string_of(&mut self, code: u8) -> DecodeResult<&'a str> {
        let size = match code {
            STRING_8 => self.width(true)?,
            STRING_32 => self.width(false)?,
            found => return Err(DecodeError::WrongType { expected: "string", found }),
        };
        std::str::from_utf8(self.take(size)?).map_err(|_| DecodeError::InvalidText)
    }

    pub(super) fn symbol_of(&mut self, code: u8) -> DecodeResult<&'a str> {
        let size = match code {
            SYMBOL_8 => self.width(true)?,
            SYMBOL_32 => self.width(false)?,
            found => return Err(DecodeError::WrongType { expected: "symbol", found }),
        };
        match std::str::from_utf8(self.take(size)?) {
            Ok(text) if text.is_ascii() => Ok(text),
            Ok(_) | Err(_) => Err(DecodeError::InvalidText),
        }
    }

    /// The items of a list and their count. An item takes at least a byte.
    #[inline]
    pub(super) fn list_of(&mut self, code: u8) -> DecodeResult<(&'a [u8], u32)> {
        match code {
            LIST_8 => self.items(true),
            LIST_0 => Ok((&[], 0)),
            LIST_32 => self.items(false),
            found => Err(DecodeError::WrongType { expected: "list", found }),
        }
    }

    /// The keys and values of a map, and the count of both together.
    pub(super) fn map_of(&mut self, code: u8) -> DecodeResult<(&'a [u8], u32)> {
        let (items, count) = match code {
            MAP_8 => self.items(true)?,
            MAP_32 => self.items(false)?,
            found => return Err(DecodeError::WrongType { expected: "map", found }),
        };
        if count.is_multiple_of(2) { Ok((items, count)) } else { Err(DecodeError::InvalidCount) }
    }

    #[inline]
    fn items(&mut self, narrow: bool) -> DecodeResult<(&'a [u8], u32)> {
        let (items, count) = self.sized(narrow)?;
        if count > items.len() {
            return Err(DecodeError::InvalidCount);
        }
        Ok((items, u32::try_from(count).map_err(|_| DecodeError::TooLong)?))
    }

    /// Constructor and elements of an array, and the count of elements.
    pub(super) fn array_of(&mut self, code: u8) -> DecodeResult<(&'a [u8], u32)> {
        let (body, count) = match code {
            ARRAY_8 => self.sized(true)?,
            ARRAY_32 => self.sized(false)?,
            found => return Err(DecodeError::WrongType { expected: "array", found }),
        };
        // Also where an element has no bytes: the limit of work is the bytes that came. The sum
        // over a frame is then within the frame's bytes, because each array pays with bytes of its
        // own.
        if count > body.len() {
            return Err(DecodeError::InvalidCount);
        }
        Ok((body, u32::try_from(count).map_err(|_| DecodeError::TooLong)?))
    }

    #[inline]
    fn sized(&mut self, narrow: bool) -> DecodeResult<(&'a [u8], usize)> {
        let size = self.width(narrow)?;
        let mut within = Reader { rest: self.take(size)?, levels: self.levels };
        let count = within.width(narrow)?;
        Ok((within.rest, count))
    }
}

/// One value of the type named; any encoding that the standard has for it.
macro_rules! typed {
    ($($(#[$doc:meta])* $name:ident => $of:ident -> $result:ty;)*) => {
        impl<'a> Reader<'a> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// At the end of the bytes, or when another type stands there.
                pub fn $name(&mut self) -> DecodeResult<$result> {
                    let code = self.byte()?;
                    self.$of(code)
                }
            )*
        }
    };
}

typed! {
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
    /// A long.
    i64 => i64_of -> i64;
    /// A timestamp, in milliseconds since the epoch.
    timestamp => timestamp_of -> i64;
    /// A binary.
    binary => binary_of -> &'a [u8];
    /// A string.
    string => string_of -> &'a str;
    /// A symbol.
    symbol => symbol_of -> &'a str;
}
