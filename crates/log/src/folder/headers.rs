//! Whether the file of an extent can be used: its length and its header, judged by the table.
//!
//! Not here: its batches (`scan`). Nothing is written.

use std::io;

use towline_types::Lsn;

use super::names::extent_name;
use super::table::{self, FileFacts, FileVerdict, Header, Length};
use crate::block::Aligned;
use crate::disk::DiskFile;
use crate::error::{Damage, Finding, LogError};
use crate::format::{
    BLOCK_BYTES, BadHeader, EXTENT_HEADER_BYTES, EXTENT_VERSION, ExtentHeader, LogId,
};

/// What all extents of a log have in their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The log that they belong to.
    pub log_id: LogId,
    /// Length of each extent.
    pub extent_bytes: u64,
}

/// Judges an extent by its header alone.
///
/// # Errors
/// [`LogError::Io`]; why it cannot be used.
pub fn check_header(
    file: &dyn DiskFile,
    sequence: u64,
    identity: Option<Identity>,
) -> Result<ExtentHeader, LogError> {
    check(file, sequence, u64::MAX / BLOCK_BYTES as u64 * BLOCK_BYTES as u64, true, identity)
}

/// Judges an extent's file by its length and header; `identity` is what the others have.
pub(super) fn check(
    file: &dyn DiskFile,
    sequence: u64,
    length: u64,
    followed: bool,
    identity: Option<Identity>,
) -> Result<ExtentHeader, LogError> {
    let name = extent_name(sequence);
    let (header, decoded) = read_header(file, sequence, identity)
        .map_err(|e| LogError::io("read an extent's header", &name, e))?;
    let extent_bytes = decoded.ok().map_or(u64::MAX, |header| header.extent_bytes);
    let facts = FileFacts { length: length_of(length, extent_bytes), header, followed };
    // Without it the finding names no position: how long the extents are is not known.
    let known_bytes = identity.map_or(0, |identity| identity.extent_bytes);
    match (table::judge_file(facts), decoded) {
        (FileVerdict::Use, Ok(header)) => Ok(header),
        (FileVerdict::Use, Err(_)) => Err(refused(sequence, known_bytes, Damage::ExtentHeader)),
        (FileVerdict::Refuse(what), _) => Err(refused(sequence, known_bytes, what)),
        (FileVerdict::RefuseVersion, decoded) => {
            let found = match decoded {
                Err(BadHeader::Version(version)) => version,
                Ok(_) | Err(BadHeader::Damaged) => 0,
            };
            Err(LogError::Version { file: name, found, supported: EXTENT_VERSION })
        }
        (FileVerdict::RefuseOtherLog, _) => Err(LogError::OtherLog { file: name }),
    }
}

fn read_header(
    file: &dyn DiskFile,
    sequence: u64,
    identity: Option<Identity>,
) -> io::Result<(Header, Result<ExtentHeader, BadHeader>)> {
    let mut block = Aligned::zeroed(EXTENT_HEADER_BYTES);
    let count = file.read_at(block.bytes_mut(), 0)?;
    block.truncate(count);
    let decoded = ExtentHeader::decode(block.bytes());
    let kind = match decoded {
        Err(BadHeader::Damaged) => Header::Damaged,
        Err(BadHeader::Version(_)) => Header::Newer,
        Ok(header) => {
            if identity.is_some_and(|identity| identity.log_id != header.log_id) {
                Header::OtherLog
            } else if header.sequence != sequence
                || identity.is_some_and(|identity| identity.extent_bytes != header.extent_bytes)
                || !is_possible(&header)
            {
                Header::OtherPlace
            } else {
                Header::Good
            }
        }
    };
    Ok((kind, decoded))
}

/// Whether positions in the extent are far from 2^64: arithmetic on them need not be checked again.
fn is_possible(header: &ExtentHeader) -> bool {
    let bytes = header.extent_bytes;
    (crate::EXTENT_BYTES_MIN..=crate::options::EXTENT_BYTES_MAX).contains(&bytes)
        && bytes.is_multiple_of(BLOCK_BYTES as u64)
        && header.sequence < u64::MAX / crate::options::EXTENT_BYTES_MAX / 2
}

pub(super) fn refused(sequence: u64, extent_bytes: u64, what: Damage) -> LogError {
    let lsn = Lsn(sequence.saturating_mul(extent_bytes));
    let file = extent_name(sequence);
    LogError::Damaged(Finding { file, extent: sequence, offset: 0, lsn, what })
}

pub(super) fn length_of(length: u64, extent_bytes: u64) -> Length {
    if length == 0 {
        Length::Empty
    } else if length < EXTENT_HEADER_BYTES as u64 || !length.is_multiple_of(BLOCK_BYTES as u64) {
        Length::Ragged
    } else if length < extent_bytes {
        Length::Part
    } else {
        Length::Full
    }
}
