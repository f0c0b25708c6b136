//! Parts of a commit, and its completion, as bytes: fields only. What they mean: `crate::parts`.
//!
//! Not here: the facts of a part, which are records of their own.

use super::error::RecordError;
use super::fields::{
    COMMIT, COMPLETED_RECORD, FIRST, FieldReader, FieldValue, OPERATIONS, PART_RECORD, put_fields,
};
use super::wire::Reader;
use crate::fact::Fact;
use crate::{CommitId, MessageSequence};

/// The values of both, 0 where there is none.
#[derive(Default)]
struct CommitFields {
    commit: u64,
    operations: u64,
    first: u64,
}

impl CommitFields {
    fn put(&self, out: &mut Vec<u8>) {
        assert_ne!(self.commit, 0, "a commit has a number");
        put_fields(out, |fields| {
            let values =
                [(COMMIT, self.commit), (OPERATIONS, self.operations), (FIRST, self.first)];
            for (number, value) in values.into_iter().filter(|(_, value)| *value != 0) {
                fields.number(number, value);
            }
        });
    }

    fn read(mut fields: FieldReader<'_>) -> Result<CommitFields, RecordError> {
        let mut read = CommitFields::default();
        while let Some((number, value)) = fields.next()? {
            let FieldValue::Number(value @ 1..) = value else {
                return Err(fields.error("a field that says nothing"));
            };
            match number {
                COMMIT => read.commit = value,
                OPERATIONS if value > u64::from(u32::MAX) => {
                    return Err(fields.error("a number of more than 32 bits"));
                }
                OPERATIONS => read.operations = value,
                _ => read.first = value,
            }
        }
        if read.commit == 0 {
            return Err(fields.error("a commit without a number"));
        }
        Ok(read)
    }

    fn operations(&self) -> u32 {
        u32::try_from(self.operations).unwrap_or(u32::MAX)
    }
}

pub(super) fn put_part(tag: u8, commit: CommitId, operations: u32, out: &mut Vec<u8>) {
    out.push(tag);
    let operations = u64::from(operations);
    CommitFields { commit: commit.0, operations, ..CommitFields::default() }.put(out);
}

pub(super) fn read_part(reader: &mut Reader<'_>) -> Result<Fact, RecordError> {
    let read = CommitFields::read(FieldReader::begin(reader, &PART_RECORD)?)?;
    Ok(Fact::Part { commit: CommitId(read.commit), operations: read.operations() })
}

pub(super) fn put_completed(
    tag: u8,
    (commit, operations, first): (CommitId, u32, MessageSequence),
    out: &mut Vec<u8>,
) {
    out.push(tag);
    let operations = u64::from(operations);
    CommitFields { commit: commit.0, operations, first: first.0 }.put(out);
}

pub(super) fn read_completed(reader: &mut Reader<'_>) -> Result<Fact, RecordError> {
    let read = CommitFields::read(FieldReader::begin(reader, &COMPLETED_RECORD)?)?;
    let (commit, first) = (CommitId(read.commit), MessageSequence(read.first));
    Ok(Fact::Completed { commit, operations: read.operations(), first })
}
