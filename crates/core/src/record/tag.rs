//! The first byte of a record: what it is, and in which layout. The drawing is in `record`.

use super::error::{LaterFormat, RecordError};
use super::wire::Reader;

const LAST: u8 = 0x80;
const LAYOUT_MASK: u8 = 0x60;
const HAS_FIELDS: u8 = 0x20;
pub(super) const KIND_MASK: u8 = !(LAST | LAYOUT_MASK);

pub(super) const PUT: u8 = 1;
pub(super) const GOT: u8 = 2;
pub(super) const BACKED_OUT: u8 = 3;
pub(super) const EXPIRED: u8 = 4;
pub(super) const MOVED: u8 = 5;
pub(super) const BODY_CHUNK: u8 = 6;
pub(super) const DEFINED: u8 = 7;
pub(super) const DELETED: u8 = 8;
pub(super) const CLEARED: u8 = 9;
pub(super) const COMMITTED: u8 = 10;
pub(super) const UNDEFINED: u8 = 11;
pub(super) const ABANDONED: u8 = 12;
pub(super) const LEVEL: u8 = 13;
pub(super) const PART: u8 = 14;
pub(super) const COMPLETED: u8 = 15;
pub(super) const HISTORY_BEGUN: u8 = 16;

/// Newest version of the layout of records.
pub const VERSION: u8 = 2;

/// The first byte of a record.
pub(super) struct RecordTag {
    pub(super) kind: u8,
    pub(super) last: bool,
    pub(super) has_fields: bool,
}

impl RecordTag {
    pub(super) fn byte(&self) -> u8 {
        let last = if self.last { LAST } else { 0 };
        let layout = if self.has_fields { HAS_FIELDS } else { 0 };
        self.kind | last | layout
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<RecordTag, RecordError> {
        let byte = reader.byte()?;
        let layout = ((byte & LAYOUT_MASK) >> LAYOUT_MASK.trailing_zeros()) + 1;
        if layout > VERSION {
            return Err(RecordError::later(0, LaterFormat::Version(layout)));
        }
        let kind = byte & KIND_MASK;
        Ok(RecordTag { kind, last: byte & LAST != 0, has_fields: byte & HAS_FIELDS != 0 })
    }
}
