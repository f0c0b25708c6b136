//! Facts as bytes.
use crate::Fact;
use std::fmt;
use std::ops::Range;
use towline_types::Lsn;

/// Bytes that are not a record, or not an image, of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// Where in the bytes.
    pub offset: usize,
    /// What was wrong there.
    pub what: &'static str,
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for RecordError {}

/// Appends one record; returns where its body's bytes are, counted from the record's first byte.
#[allow(clippy::todo, unused_variables, reason = "first commit: signatures only")]
pub fn encode(fact: &Fact, last: bool, out: &mut Vec<u8>) -> Option<Range<usize>> {
    todo!()
}

/// Reads one record that fills `bytes`; `at` is the position of its first byte. True: last of its run.
#[allow(clippy::todo, unused_variables, reason = "first commit: signatures only")]
pub fn decode(bytes: &[u8], at: Lsn) -> Result<(Fact, bool), RecordError> {
    todo!()
}

/// The log contradicts itself: it is damaged, or from a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// What did not fit.
    pub what: String,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the log contradicts itself: {}", self.what)
    }
}

impl std::error::Error for ReplayError {}
