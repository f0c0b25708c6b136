//! Single values appended to a buffer, each in its shortest encoding.

use bytes::{BufMut, BytesMut};

use super::format::{
    BINARY_8, BINARY_32, BYTE, CHAR, DECIMAL_32, DECIMAL_64, DECIMAL_128, DESCRIBED, DOUBLE, FALSE,
    FLOAT, INT, INT_SMALL, LONG, LONG_SMALL, MAP_8, MAP_32, NULL, SHORT, STRING_8, STRING_32,
    SYMBOL_8, SYMBOL_32, TIMESTAMP, TRUE, UBYTE, UINT, UINT_0, UINT_SMALL, ULONG, ULONG_0,
    ULONG_SMALL, USHORT, UUID,
};

/// A null.
pub fn null(out: &mut BytesMut) {
    out.put_u8(NULL);
}

/// A boolean, in one byte.
pub fn bool(out: &mut BytesMut, value: bool) {
    out.put_u8(if value { TRUE } else { FALSE });
}

/// A ubyte.
pub fn u8(out: &mut BytesMut, value: u8) {
    out.put_slice(&[UBYTE, value]);
}

/// A ushort.
pub fn u16(out: &mut BytesMut, value: u16) {
    out.put_u8(USHORT);
    out.put_u16(value);
}

/// A uint.
pub fn u32(out: &mut BytesMut, value: u32) {
    match u8::try_from(value) {
        Ok(0) => out.put_u8(UINT_0),
        Ok(small) => out.put_slice(&[UINT_SMALL, small]),
        Err(_) => {
            out.put_u8(UINT);
            out.put_u32(value);
        }
    }
}

/// A ulong.
pub fn u64(out: &mut BytesMut, value: u64) {
    match u8::try_from(value) {
        Ok(0) => out.put_u8(ULONG_0),
        Ok(small) => out.put_slice(&[ULONG_SMALL, small]),
        Err(_) => {
            out.put_u8(ULONG);
            out.put_u64(value);
        }
    }
}

/// A byte.
pub fn i8(out: &mut BytesMut, value: i8) {
    out.put_u8(BYTE);
    out.put_i8(value);
}

/// A short.
pub fn i16(out: &mut BytesMut, value: i16) {
    out.put_u8(SHORT);
    out.put_i16(value);
}

/// An int.
pub fn i32(out: &mut BytesMut, value: i32) {
    if let Ok(small) = i8::try_from(value) {
        out.put_u8(INT_SMALL);
        out.put_i8(small);
    } else {
        out.put_u8(INT);
        out.put_i32(value);
    }
}

/// A long.
pub fn i64(out: &mut BytesMut, value: i64) {
    if let Ok(small) = i8::try_from(value) {
        out.put_u8(LONG_SMALL);
        out.put_i8(small);
    } else {
        out.put_u8(LONG);
        out.put_i64(value);
    }
}

/// A float.
pub fn f32(out: &mut BytesMut, value: f32) {
    out.put_u8(FLOAT);
    out.put_f32(value);
}

/// A double.
pub fn f64(out: &mut BytesMut, value: f64) {
    out.put_u8(DOUBLE);
    out.put_f64(value);
}

/// A decimal of 4, 8 or 16 bytes (IEEE 754, BID), opaque to us.
pub fn decimal_32(out: &mut BytesMut, value: [u8; 4]) {
    out.put_u8(DECIMAL_32);
    out.put_slice(&value);
}

/// See [`decimal_32`].
pub fn decimal_64(out: &mut BytesMut, value: [u8; 8]) {
    out.put_u8(DECIMAL_64);
    out.put_slice(&value);
}

/// See [`decimal_32`].
pub fn decimal_128(out: &mut BytesMut, value: [u8; 16]) {
    out.put_u8(DECIMAL_128);
    out.put_slice(&value);
}

/// A char.
pub fn char(out: &mut BytesMut, value: char) {
    out.put_u8(CHAR);
    out.put_u32(u32::from(value));
}

/// A timestamp, in milliseconds since the epoch.
pub fn timestamp(out: &mut BytesMut, value: i64) {
    out.put_u8(TIMESTAMP);
    out.put_i64(value);
}

/// A uuid.
pub fn uuid(out: &mut BytesMut, value: [u8; 16]) {
    out.put_u8(UUID);
    out.put_slice(&value);
}

/// A binary.
pub fn binary(out: &mut BytesMut, value: &[u8]) {
    sized(out, BINARY_8, BINARY_32, value);
}

/// Constructor and size of a binary; the caller appends its `bytes` bytes.
pub fn binary_prefix(out: &mut BytesMut, bytes: usize) {
    prefix(out, BINARY_8, BINARY_32, bytes);
}

/// A string.
pub fn string(out: &mut BytesMut, value: &str) {
    sized(out, STRING_8, STRING_32, value.as_bytes());
}

/// A symbol.
///
/// # Panics
/// When it is not ASCII: symbols of ours are constants, those of peers are checked when they come
/// in.
pub fn symbol(out: &mut BytesMut, value: &str) {
    assert!(value.is_ascii(), "a symbol is ASCII");
    sized(out, SYMBOL_8, SYMBOL_32, value.as_bytes());
}

/// The start of a described value: the descriptor as a code.
pub fn described(out: &mut BytesMut, code: u8) {
    out.put_slice(&[DESCRIBED, ULONG_SMALL, code]);
}

/// A map of `count` keys and values together, already encoded in `items`.
pub fn map(out: &mut BytesMut, count: u32, items: &[u8]) {
    compound(out, MAP_8, MAP_32, count, items);
}

/// Bytes that [`map`] appends.
pub(super) fn map_bytes(count: u32, items: &[u8]) -> usize {
    let size = u8::try_from(items.len().saturating_add(1));
    let prefix = if size.is_ok() && u8::try_from(count).is_ok() { 3 } else { 9 };
    items.len().saturating_add(prefix)
}

pub(super) fn compound(out: &mut BytesMut, narrow: u8, wide: u8, count: u32, items: &[u8]) {
    match (u8::try_from(items.len().saturating_add(1)), u8::try_from(count)) {
        (Ok(size), Ok(count)) => out.put_slice(&[narrow, size, count]),
        (_, _) => {
            out.put_u8(wide);
            out.put_u32(size_32(items.len().saturating_add(4)));
            out.put_u32(count);
        }
    }
    out.put_slice(items);
}

fn sized(out: &mut BytesMut, narrow: u8, wide: u8, bytes: &[u8]) {
    prefix(out, narrow, wide, bytes.len());
    out.put_slice(bytes);
}

fn prefix(out: &mut BytesMut, narrow: u8, wide: u8, bytes: usize) {
    if let Ok(size) = u8::try_from(bytes) {
        out.put_slice(&[narrow, size]);
    } else {
        out.put_u8(wide);
        out.put_u32(size_32(bytes));
    }
}

/// A size as it stands on the wire. No value of ours comes near 4 GiB: frames and messages have
/// limits far below.
pub(super) fn size_32(bytes: usize) -> u32 {
    let size = u32::try_from(bytes);
    assert!(size.is_ok(), "a value of 4 GiB or more cannot be encoded");
    size.unwrap_or(u32::MAX)
}
