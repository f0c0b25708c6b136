//! Histories as bytes: fields only, in a record of the log and in an image.
//!
//! Not here: how one region says them to the other (`towline_types`), which leaves causes out.

use towline_types::{History, HistoryId, Lsn, Time};

use super::error::RecordError;
use super::fields::{
    FieldReader, FieldValue, FieldWriter, HISTORY, HISTORY_CAUSE, HISTORY_FIRST, HISTORY_FORK,
    HISTORY_ID, HISTORY_LIVE, HISTORY_PARENT, HISTORY_TIME, put_fields,
};
use super::wire::Reader;
use crate::MessageSequence;
use crate::fact::Fact;

pub(super) fn put_history_begun(
    tag: u8,
    history: &History,
    first: Option<MessageSequence>,
    out: &mut Vec<u8>,
) {
    out.push(tag);
    put_fields(out, |fields| {
        put_values(history, fields);
        if let Some(first) = first {
            assert_ne!(first.0, 0, "sequences count from 1");
            fields.number(HISTORY_FIRST, first.0);
        }
    });
}

pub(super) fn read_history_begun(reader: &mut Reader<'_>) -> Result<Fact, RecordError> {
    let (history, first) = read(reader)?;
    Ok(Fact::HistoryBegun { history: Box::new(history), first: first.map(MessageSequence) })
}

/// A history in an image.
pub(crate) fn put_history(history: &History, out: &mut Vec<u8>) {
    put_fields(out, |fields| put_values(history, fields));
}

/// A history in an image.
pub(crate) fn read_history(reader: &mut Reader<'_>) -> Result<History, RecordError> {
    match read(reader)? {
        (history, None) => Ok(history),
        (_, Some(_)) => Err(reader.error("a sequence in the history of an image")),
    }
}

fn put_values(history: &History, fields: &mut FieldWriter<'_>) {
    let History { id, parent, fork, live, began, cause } = history;
    fields.bytes(HISTORY_ID, &id.0);
    if let Some(parent) = parent {
        fields.bytes(HISTORY_PARENT, &parent.0);
    }
    if fork.0 != 0 {
        fields.number(HISTORY_FORK, fork.0);
    }
    fields.bytes(HISTORY_LIVE, live.as_bytes());
    if began.0 != 0 {
        fields.number(HISTORY_TIME, began.0);
    }
    if !cause.is_empty() {
        fields.bytes(HISTORY_CAUSE, cause.as_bytes());
    }
}

fn read(reader: &mut Reader<'_>) -> Result<(History, Option<u64>), RecordError> {
    let mut fields = FieldReader::begin(reader, &HISTORY)?;
    let (mut id, mut parent, mut first) = (None, None, None);
    let (mut fork, mut began) = (0, 0);
    let (mut live, mut cause) = (String::new(), String::new());
    while let Some(field) = fields.next()? {
        match field {
            (HISTORY_ID, FieldValue::Bytes(bytes)) => id = Some(name(&fields, bytes)?),
            (HISTORY_PARENT, FieldValue::Bytes(bytes)) => parent = Some(name(&fields, bytes)?),
            (HISTORY_FORK, FieldValue::Number(value @ 1..)) => fork = value,
            (HISTORY_LIVE, FieldValue::Bytes(bytes @ [_, ..])) => live = text(&fields, bytes)?,
            (HISTORY_TIME, FieldValue::Number(value @ 1..)) => began = value,
            (HISTORY_CAUSE, FieldValue::Bytes(bytes @ [_, ..])) => cause = text(&fields, bytes)?,
            (HISTORY_FIRST, FieldValue::Number(value @ 1..)) => first = Some(value),
            _ => return Err(fields.error("a field that says nothing")),
        }
    }
    let id = id.ok_or_else(|| fields.error("a history without a name"))?;
    let history = History { id, parent, fork: Lsn(fork), live, began: Time(began), cause };
    history.check().map_err(|_| fields.error("a history beyond its bounds"))?;
    Ok((history, first))
}

fn name(fields: &FieldReader<'_>, bytes: &[u8]) -> Result<HistoryId, RecordError> {
    let id = bytes.try_into().map_err(|_| fields.error("the name of a history has 16 bytes"))?;
    Ok(HistoryId(id))
}

fn text(fields: &FieldReader<'_>, bytes: &[u8]) -> Result<String, RecordError> {
    let text = std::str::from_utf8(bytes).map_err(|_| fields.error("text that is not UTF-8"))?;
    Ok(text.to_owned())
}
