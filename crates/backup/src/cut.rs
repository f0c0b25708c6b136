//! The end of a restored log: it is cut behind the last run that ends at or before the chosen
//! position. A batch that reaches beyond that run is shortened.
//!
//! Not here: writing the log (`restore`).
//!
//! Invariant: no run is unfinished before the cut, but for one that was never finished.

use towline_log::block::Aligned;
use towline_log::folder::chain::finding;
use towline_log::folder::scan::Scan;
use towline_log::format::{BATCH_HEADER_BYTES, BatchHeader, LogId, payload_sum};
use towline_log::record::{Kind, Records};
use towline_log::{Damage, LogError};
use towline_types::{Lsn, fitting};

use crate::manifest::End;

/// The end that a log is given.
#[derive(Debug)]
pub(super) struct Cut {
    /// Where the log ends now.
    pub(super) end: End,
    /// The last batch, when it had to be made shorter: its position, and its bytes in whole blocks.
    pub(super) last: Option<(Lsn, Aligned)>,
}

/// Finds the last whole run that ends at or before `upto`, from the position of `scan` on; `None`
/// when none does. Reads nothing behind `limit`.
///
/// # Errors
/// [`LogError::Damaged`], [`LogError::Io`].
pub(super) fn find(
    scan: &mut Scan<'_>,
    log_id: LogId,
    upto: Lsn,
    limit: End,
) -> Result<Option<Cut>, LogError> {
    let failed = |e| LogError::io("read the log", "extent", e);
    let mut found = None;
    while scan.end.0 < limit.lsn {
        let Some(header) = scan.next_batch().map_err(failed)? else { break };
        if header.lsn >= upto {
            break;
        }
        let start = header.lsn.after(BATCH_HEADER_BYTES as u64);
        let place = scan.place_of(header.lsn);
        let payload = scan.payload().map_err(failed)?;
        // A term begins with a batch without records: no run is unfinished behind it, and an image
        // may have been taken there.
        let begins_term = payload.is_empty() && header.lsn.after(header.batch_bytes()) <= upto;
        let mut kept = begins_term.then_some(0);
        for record in Records::new(payload) {
            let malformed = |_| LogError::Damaged(finding(place, header.lsn, Damage::Records));
            let record = record.map_err(malformed)?;
            let end = record.end;
            let ended = matches!(record.kind, Kind::Last | Kind::GivenUp);
            if ended && start.after(end as u64) <= upto {
                kept = Some(end);
            }
        }
        if let Some(kept) = kept {
            found = Some(cut(header, payload, kept, log_id));
        }
    }
    Ok(found)
}

fn cut(mut header: BatchHeader, payload: &[u8], kept: usize, log_id: LogId) -> Cut {
    let whole = kept == payload.len();
    assert!(kept <= payload.len(), "a record ends inside its batch");
    let payload = &payload[..kept];
    header.payload_bytes = fitting(kept as u64);
    header.checksum = header.sum(payload_sum(log_id, payload));
    let bytes = header.batch_bytes();
    let end = End {
        lsn: header.lsn.after(bytes).0,
        index: header.index,
        checksum: header.checksum,
        term: header.term,
        bytes: fitting(bytes),
    };
    let last = (!whole).then(|| {
        let mut buffer = Aligned::with_capacity(payload.len() + BATCH_HEADER_BYTES);
        buffer.append_to().extend_from_slice(&header.encode());
        buffer.append_to().extend_from_slice(payload);
        buffer.pad();
        (header.lsn, buffer)
    });
    Cut { end, last }
}
