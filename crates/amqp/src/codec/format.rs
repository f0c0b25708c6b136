//! The format codes of the primitive types (AMQP 1.6), one byte each.
//!
//! ```text
//!   high nibble   bytes that follow
//!   0x4           none
//!   0x5 .. 0x9    1, 2, 4, 8, 16
//!   0xa, 0xb      size (1 or 4 bytes, big-endian), then that many
//!   0xc, 0xd      size, count (1 or 4 bytes each), then items; the size covers the count
//!   0xe, 0xf      size, count, one constructor, then the elements without constructors
//! ```

pub(super) const DESCRIBED: u8 = 0x00;
pub(super) const NULL: u8 = 0x40;
pub(super) const TRUE: u8 = 0x41;
pub(super) const FALSE: u8 = 0x42;
pub(super) const UINT_0: u8 = 0x43;
pub(super) const ULONG_0: u8 = 0x44;
pub(super) const LIST_0: u8 = 0x45;
pub(super) const UBYTE: u8 = 0x50;
pub(super) const BYTE: u8 = 0x51;
pub(super) const UINT_SMALL: u8 = 0x52;
pub(super) const ULONG_SMALL: u8 = 0x53;
pub(super) const INT_SMALL: u8 = 0x54;
pub(super) const LONG_SMALL: u8 = 0x55;
pub(super) const BOOL: u8 = 0x56;
pub(super) const USHORT: u8 = 0x60;
pub(super) const SHORT: u8 = 0x61;
pub(super) const UINT: u8 = 0x70;
pub(super) const INT: u8 = 0x71;
pub(super) const FLOAT: u8 = 0x72;
pub(super) const CHAR: u8 = 0x73;
pub(super) const DECIMAL_32: u8 = 0x74;
pub(super) const ULONG: u8 = 0x80;
pub(super) const LONG: u8 = 0x81;
pub(super) const DOUBLE: u8 = 0x82;
pub(super) const TIMESTAMP: u8 = 0x83;
pub(super) const DECIMAL_64: u8 = 0x84;
pub(super) const DECIMAL_128: u8 = 0x94;
pub(super) const UUID: u8 = 0x98;
pub(super) const BINARY_8: u8 = 0xa0;
pub(super) const STRING_8: u8 = 0xa1;
pub(super) const SYMBOL_8: u8 = 0xa3;
pub(super) const BINARY_32: u8 = 0xb0;
pub(super) const STRING_32: u8 = 0xb1;
pub(super) const SYMBOL_32: u8 = 0xb3;
pub(super) const LIST_8: u8 = 0xc0;
pub(super) const MAP_8: u8 = 0xc1;
pub(super) const LIST_32: u8 = 0xd0;
pub(super) const MAP_32: u8 = 0xd1;
pub(super) const ARRAY_8: u8 = 0xe0;
pub(super) const ARRAY_32: u8 = 0xf0;

/// Bytes of constructor and size before a binary, string or symbol; 0 for other values.
pub(crate) const fn text_framing_bytes(code: u8) -> usize {
    match code {
        BINARY_8 | STRING_8 | SYMBOL_8 => 2,
        BINARY_32 | STRING_32 | SYMBOL_32 => 5,
        _ => 0,
    }
}

/// Bytes that follow a code of fixed width; `None` for the other codes and for unknown ones.
pub(super) const fn fixed_width(code: u8) -> Option<usize> {
    match code {
        NULL | TRUE | FALSE | UINT_0 | ULONG_0 | LIST_0 => Some(0),
        UBYTE | BYTE | UINT_SMALL | ULONG_SMALL | INT_SMALL | LONG_SMALL | BOOL => Some(1),
        USHORT | SHORT => Some(2),
        UINT | INT | FLOAT | CHAR | DECIMAL_32 => Some(4),
        ULONG | LONG | DOUBLE | TIMESTAMP | DECIMAL_64 => Some(8),
        DECIMAL_128 | UUID => Some(16),
        _ => None,
    }
}
