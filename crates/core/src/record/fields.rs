//! Fields: the free space of records, pages and images. What a later feature has to say of a
//! message, a move or an image is one more field, and no new layout.
//!
//! ```text
//! fields   bytes (1 to 4096; 0 only where it is said), then each:
//!   key    number << 2 | form
//!   value  form 0: none   1: varint   2: 8 LE   3: length, bytes
//! ```
//! Numbers ascend, and none is there twice. Lengths, keys and varints are in the shortest form. A
//! value that says what its absence says is not written. So there is one spelling.
//!
//! A field whose number is not in the list of its owner was written by a later version, and refuses
//! what it stands in: it may change what the rest means. A number never gets a second meaning, nor
//! a second form.
//!
//! Not here: what the fields mean (their owners), and when they may be written (`level` is checked
//! by `decide`; what is decided is encoded as it is).

use towline_types::{FORMAT_LEVEL, FORMAT_LEVEL_FIRST, FORMAT_LEVEL_OF_REGIONS, limits};

use super::error::{LaterFormat, RecordError};
use super::wire::{Reader, put_varint};

/// From this level on there are fields: of messages, moves and images.
pub(crate) const LEVEL_OF_FIELDS: u8 = 2;
/// From this level on there are histories: in records, and behind the fields of an image.
pub(crate) const LEVEL_OF_HISTORIES: u8 = FORMAT_LEVEL_OF_REGIONS;

/// How the value of a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// There is none: the field is there or not.
    Nothing = 0,
    /// A varint.
    Number = 1,
    /// Eight bytes, little-endian.
    Word = 2,
    /// A length and as many bytes.
    Bytes = 3,
}

/// A number in a list of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldNumber {
    /// A field.
    Used {
        /// Its number.
        number: u64,
        /// How its value is written.
        form: FieldForm,
        /// What it is.
        name: &'static str,
        /// The first format level of which logs may have it.
        level: u8,
    },
    /// Kept for a later feature. Today it is an unknown field.
    Reserved {
        /// Its number.
        number: u64,
        /// For what.
        name: &'static str,
    },
}

/// The fields that something may have.
#[derive(Debug)]
pub struct FieldList {
    /// What has them.
    pub owner: &'static str,
    /// In the order of their numbers.
    pub numbers: &'static [FieldNumber],
}

const fn used(number: u64, form: FieldForm, name: &'static str, level: u8) -> FieldNumber {
    FieldNumber::Used { number, form, name, level }
}

const fn reserved(number: u64, name: &'static str) -> FieldNumber {
    FieldNumber::Reserved { number, name }
}

pub(crate) const CARRIED: u64 = 1;
pub(crate) const GROUP: u64 = 2;
pub(crate) const GROUP_SEQUENCE: u64 = 3;
pub(crate) const DELIVERY_TIME: u64 = 4;

/// Of a message: in a Put, and but for the first one on a page.
pub static MESSAGE: FieldList = FieldList {
    owner: "a message",
    numbers: &[
        used(CARRIED, FieldForm::Nothing, "carried forward (Put only)", 2),
        used(GROUP, FieldForm::Word, "group: hash of its id, never 0", 2),
        used(GROUP_SEQUENCE, FieldForm::Number, "sequence in the group, only with field 2", 2),
        used(DELIVERY_TIME, FieldForm::Number, "delivery time - put_at, modulo 2^64", 2),
        reserved(5, "user"),
        reserved(6, "references"),
        reserved(7, "set"),
    ],
};

/// Of a BodyChunk.
pub static BODY_CHUNK: FieldList = FieldList {
    owner: "a chunk",
    numbers: &[used(CARRIED, FieldForm::Nothing, "the body id is the sequence of the message", 2)],
};

pub(crate) const ORDER: u64 = 1;

/// Of a Moved.
pub static MOVED: FieldList = FieldList {
    owner: "a move",
    numbers: &[used(ORDER, FieldForm::Number, "order: the lane that it goes to", 2)],
};

pub(crate) const LEVEL: u64 = 1;

/// Of a Level.
pub static LEVEL_RECORD: FieldList = FieldList {
    owner: "a level",
    numbers: &[used(LEVEL, FieldForm::Number, "format level, 2 or more", 2)],
};

pub(crate) const COMMIT: u64 = 1;
pub(crate) const OPERATIONS: u64 = 2;
pub(crate) const FIRST: u64 = 3;

/// Of a Part.
pub static PART_RECORD: FieldList = FieldList {
    owner: "a part",
    numbers: &[
        used(COMMIT, FieldForm::Number, "commit: a number as body ids are", 2),
        used(OPERATIONS, FieldForm::Number, "operations that follow; 0: the run ends", 2),
    ],
};

/// Of a Completed.
pub static COMPLETED_RECORD: FieldList = FieldList {
    owner: "a completed commit",
    numbers: &[
        used(COMMIT, FieldForm::Number, "commit", 2),
        used(OPERATIONS, FieldForm::Number, "operations in all of its parts", 2),
        used(FIRST, FieldForm::Number, "sequence of its first put", 2),
    ],
};

pub(crate) const HISTORY_ID: u64 = 1;
pub(crate) const HISTORY_PARENT: u64 = 2;
pub(crate) const HISTORY_FORK: u64 = 3;
pub(crate) const HISTORY_LIVE: u64 = 4;
pub(crate) const HISTORY_TIME: u64 = 5;
pub(crate) const HISTORY_CAUSE: u64 = 6;
pub(crate) const HISTORY_FIRST: u64 = 7;

/// Of a HistoryBegun, and of each history in an image, which has no field 7.
pub static HISTORY: FieldList = FieldList {
    owner: "a history",
    numbers: &[
        used(HISTORY_ID, FieldForm::Bytes, "id, 16 bytes", 3),
        used(HISTORY_PARENT, FieldForm::Bytes, "id of its parent, unless it is the first", 3),
        used(HISTORY_FORK, FieldForm::Number, "fork: where the parent ends", 3),
        used(HISTORY_LIVE, FieldForm::Bytes, "name of the live group", 3),
        used(HISTORY_TIME, FieldForm::Number, "when it began", 3),
        used(HISTORY_CAUSE, FieldForm::Bytes, "cause, for people", 3),
        used(HISTORY_FIRST, FieldForm::Number, "next sequence, if some are left out", 3),
    ],
};

/// Of all other records.
pub static OTHER_RECORD: FieldList = FieldList { owner: "another record", numbers: &[] };

/// Of an image.
pub static IMAGE: FieldList = FieldList {
    owner: "an image",
    numbers: &[used(LEVEL, FieldForm::Number, "format level, 2 or more", 2)],
};

/// Of a definition, in records and images.
pub static DEFINITION: FieldList = FieldList { owner: "a definition", numbers: &[] };
/// Of the totals of a queue in an image.
pub static TOTALS: FieldList = FieldList { owner: "totals", numbers: &[] };
/// Of an outline in an image.
pub static OUTLINE: FieldList = FieldList { owner: "an outline", numbers: &[] };

/// Each list.
pub static LISTS: [&FieldList; 12] = [
    &MESSAGE,
    &BODY_CHUNK,
    &MOVED,
    &LEVEL_RECORD,
    &PART_RECORD,
    &COMPLETED_RECORD,
    &HISTORY,
    &OTHER_RECORD,
    &IMAGE,
    &DEFINITION,
    &TOTALS,
    &OUTLINE,
];

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Nothing,
    Number(u64),
    Word(u64),
    Bytes(&'a [u8]),
}

/// Writes fields in the order of their numbers.
pub(crate) struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Lowest number that may come next.
    next: u64,
}

impl FieldWriter<'_> {
    fn key(&mut self, number: u64, form: FieldForm) {
        assert!(number >= self.next, "fields are written in the order of their numbers");
        self.next = number + 1;
        put_varint(number << 2 | form as u64, self.out);
    }

    pub(crate) fn nothing(&mut self, number: u64) {
        self.key(number, FieldForm::Nothing);
    }

    pub(crate) fn number(&mut self, number: u64, value: u64) {
        self.key(number, FieldForm::Number);
        put_varint(value, self.out);
    }

    pub(crate) fn word(&mut self, number: u64, value: u64) {
        self.key(number, FieldForm::Word);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, number: u64, value: &[u8]) {
        self.key(number, FieldForm::Bytes);
        put_varint(value.len() as u64, self.out);
        self.out.extend_from_slice(value);
    }
}

/// Writes fields: their length and what `write` puts.
///
/// # Panics
/// When they are none, or more than are read.
pub(crate) fn put_fields(out: &mut Vec<u8>, write: impl FnOnce(&mut FieldWriter<'_>)) {
    let at = out.len();
    out.push(0);
    write(&mut FieldWriter { out, next: 1 });
    let length = out.len() - at - 1;
    assert!(length > 0 && length as u64 <= limits::FIELD_BYTES_MAX, "fields of {length} bytes");
    match u8::try_from(length) {
        Ok(short @ ..0x80) => out[at] = short,
        // Texts are long: then the length is too.
        Ok(_) | Err(_) => {
            let mut longer = Vec::new();
            put_varint(length as u64, &mut longer);
            out.splice(at..=at, longer);
        }
    }
}

/// Reads fields in the order in which they are written.
pub(crate) struct FieldReader<'a> {
    reader: Reader<'a>,
    end: usize,
    list: &'static FieldList,
    before: u64,
}

impl<'a> FieldReader<'a> {
    /// The fields that come next in `reader`, which must be some; `reader` is then behind them.
    ///
    /// # Errors
    /// There are none, too many, or they are cut off.
    pub(crate) fn begin(
        reader: &mut Reader<'a>,
        list: &'static FieldList,
    ) -> Result<FieldReader<'a>, RecordError> {
        match FieldReader::begin_if_some(reader, list)? {
            Some(fields) => Ok(fields),
            None => Err(reader.error("no fields where there are some")),
        }
    }

    /// As `begin`, where there may be none.
    pub(crate) fn begin_if_some(
        reader: &mut Reader<'a>,
        list: &'static FieldList,
    ) -> Result<Option<FieldReader<'a>>, RecordError> {
        let bytes = reader.varint()?;
        if bytes == 0 {
            return Ok(None);
        }
        if bytes > limits::FIELD_BYTES_MAX {
            return Err(reader.error("more than 4096 bytes of fields"));
        }
        let (reader, end) = reader.split(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        Ok(Some(FieldReader { reader, end, list, before: 0 }))
    }

    pub(crate) fn error(&self, what: &'static str) -> RecordError {
        self.reader.error(what)
    }

    /// # Errors
    /// Numbers do not ascend, a form is wrong, or a later version wrote the field.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, FieldValue<'a>)>, RecordError> {
        if self.reader.offset() == self.end {
            return Ok(None);
        }
        let at = self.reader.offset();
        let key = self.reader.varint()?;
        let (number, written) = (key >> 2, key & 3);
        if number <= self.before {
            return Err(self.error("fields that do not ascend"));
        }
        self.before = number;
        let Some(form) = self.list.form(number) else {
            let owner = self.list.owner;
            return Err(RecordError::later(at, LaterFormat::Field { owner, number }));
        };
        if form as u64 != written {
            return Err(self.error("a field in another form"));
        }
        let value = match form {
            FieldForm::Nothing => FieldValue::Nothing,
            FieldForm::Number => FieldValue::Number(self.reader.varint()?),
            FieldForm::Word => FieldValue::Word(self.reader.u64_le()?),
            FieldForm::Bytes => FieldValue::Bytes(self.reader.bytes()?),
        };
        Ok(Some((number, value)))
    }
}

impl FieldReader<'_> {
    /// Reads fields of an owner that has none yet.
    ///
    /// # Errors
    /// A later version wrote them, or they are none.
    pub(crate) fn refuse(mut self) -> Result<(), RecordError> {
        while self.next()?.is_some() {}
        Ok(())
    }

    /// The value of a field with a format level.
    ///
    /// # Errors
    /// It is the first one, which is never said, or a later one than this program reads.
    pub(crate) fn level(&self, value: FieldValue<'_>) -> Result<u8, RecordError> {
        let FieldValue::Number(level) = value else {
            return Err(self.error("a format level is a number"));
        };
        match u8::try_from(level) {
            Ok(0..=FORMAT_LEVEL_FIRST) => Err(self.error("a field that says nothing")),
            Ok(known @ ..=FORMAT_LEVEL) => Ok(known),
            _ => Err(RecordError::later(self.reader.offset(), LaterFormat::Level(level))),
        }
    }
}

impl FieldList {
    /// How a field is written that this program knows.
    fn form(&self, wanted: u64) -> Option<FieldForm> {
        self.numbers.iter().find_map(|known| match known {
            FieldNumber::Used { number, form, .. } if *number == wanted => Some(*form),
            FieldNumber::Used { .. } | FieldNumber::Reserved { .. } => None,
        })
    }
}
