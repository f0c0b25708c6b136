//! The smallest pieces of records and images: varints and text. Reading never panics and never
//! allocates.

use std::ops::Range;

use super::error::RecordError;
use crate::QueueId;

/// Groups of seven bits that a 64-bit number can need.
const VARINT_BYTES_MAX: u32 = 10;

pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(0x80 | number.to_le_bytes()[0]);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Reads from the front; every call says where it failed.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, offset: 0 }
    }

    pub(crate) fn error(&self, what: &'static str) -> RecordError {
        RecordError::malformed(self.offset, what)
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// A reader of the next `length` bytes, which counts offsets as this one does, and their end;
    /// this one is then behind them.
    pub(crate) fn split(&mut self, length: usize) -> Result<(Reader<'a>, usize), RecordError> {
        let end = self.offset.saturating_add(length);
        let bytes = self.bytes.get(..end).ok_or_else(|| self.error("ends too early"))?;
        let part = Reader { bytes, offset: self.offset };
        self.offset = end;
        Ok((part, end))
    }

    pub(crate) fn byte(&mut self) -> Result<u8, RecordError> {
        let byte = *self.bytes.get(self.offset).ok_or_else(|| self.error("ends too early"))?;
        self.offset += 1;
        Ok(byte)
    }

    /// # Errors
    /// Cut off, more than 64 bits, or not the shortest form.
    pub(crate) fn varint(&mut self) -> Result<u64, RecordError> {
        let mut number = 0_u64;
        for group in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let shift = group * 7;
            if shift == 63 && bits > 1 {
                return Err(self.error("a number of more than 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && group > 0 {
                    return Err(self.error("a number with leading zeros"));
                }
                return Ok(number);
            }
        }
        Err(self.error("a number of more than 64 bits"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, RecordError> {
        let number = self.varint()?;
        u32::try_from(number).map_err(|_| self.error("a number of more than 32 bits"))
    }

    pub(crate) fn queue(&mut self) -> Result<QueueId, RecordError> {
        self.varint_u32().map(QueueId)
    }

    pub(crate) fn u64_le(&mut self) -> Result<u64, RecordError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let word = *rest.first_chunk::<8>().ok_or_else(|| self.error("ends too early"))?;
        self.offset += 8;
        Ok(u64::from_le_bytes(word))
    }

    pub(crate) fn u32_le(&mut self) -> Result<u32, RecordError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let word = *rest.first_chunk::<4>().ok_or_else(|| self.error("ends too early"))?;
        self.offset += 4;
        Ok(u32::from_le_bytes(word))
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, RecordError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error("neither true nor false")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, RecordError> {
        let from = self.offset;
        let text = std::str::from_utf8(self.bytes()?);
        text.map_err(|_| RecordError::malformed(from, "text that is not UTF-8"))
    }

    /// A length, and as many bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], RecordError> {
        let length = self.varint()?;
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let bytes = rest.get(..length).ok_or_else(|| self.error("ends too early"))?;
        self.offset += length;
        Ok(bytes)
    }

    /// Takes all that is left; yields where it is.
    pub(crate) fn rest(&mut self) -> Range<usize> {
        let from = self.offset;
        self.offset = self.bytes.len();
        from..self.offset
    }

    /// # Errors
    /// There is something left.
    pub(crate) fn end(&self) -> Result<(), RecordError> {
        if self.offset == self.bytes.len() { Ok(()) } else { Err(self.error("bytes left over")) }
    }
}
