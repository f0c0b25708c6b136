//! How the simulated log frames records, and how committed batches become whole runs again.
//!
//! ```text
//! payload of a batch: records, each: bytes 4 (little-endian; bit 31: last of its run), the record
//! ```
//!
//! Not here: what records mean.
//!
//! Invariants: only whole runs come out, in log order; a batch without payload (the first of a
//! term) ends what the leader before left unfinished.

use bytes::Bytes;
use towline_types::{BATCH_HEADER_BYTES, Batch, Lsn};

const LAST: u32 = 1 << 31;
/// Bytes before each record.
pub(crate) const PREFIX_BYTES: usize = 4;

/// Appends a record with its prefix.
pub(crate) fn put_record(payload: &mut Vec<u8>, record: &[u8], last: bool) {
    let bytes = u32::try_from(record.len()).unwrap_or(LAST - 1);
    assert!(bytes < LAST - 1, "records of the simulator are short");
    payload.reserve(PREFIX_BYTES + record.len());
    payload.extend_from_slice(&(bytes | if last { LAST } else { 0 }).to_le_bytes());
    payload.extend_from_slice(record);
}

/// Puts runs together again.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    unfinished: Vec<(Lsn, Bytes)>,
}

impl Runs {
    /// The next batch: the records of all runs that it completes.
    pub(crate) fn push(&mut self, batch: &Batch) -> Vec<(Lsn, Bytes)> {
        let mut whole = Vec::new();
        if batch.payload.is_empty() {
            self.unfinished.clear();
        }
        let mut rest = batch.payload.clone();
        let mut at = batch.lsn.after(BATCH_HEADER_BYTES);
        while let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() {
            let prefix = u32::from_le_bytes(*prefix);
            let record = rest.slice(PREFIX_BYTES..PREFIX_BYTES + (prefix & !LAST) as usize);
            rest = rest.slice(PREFIX_BYTES + record.len()..);
            at = at.after(PREFIX_BYTES as u64);
            let next = at.after(record.len() as u64);
            self.unfinished.push((at, record));
            at = next;
            if prefix & LAST != 0 {
                whole.append(&mut self.unfinished);
            }
        }
        assert!(rest.is_empty(), "a batch of the simulator is cut");
        whole
    }

    /// Whether no run is unfinished.
    pub(crate) fn is_at_seam(&self) -> bool {
        self.unfinished.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(index: u64, records: &[(&str, bool)]) -> Batch {
        let mut payload = Vec::new();
        for (record, last) in records {
            put_record(&mut payload, record.as_bytes(), *last);
        }
        Batch { index, term: 1, lsn: Lsn(index * 4_096), payload: Bytes::from(payload) }
    }

    #[test]
    fn a_run_over_two_batches_comes_out_with_the_second() {
        let mut runs = Runs::default();
        assert!(runs.push(&batch(1, &[("a", false)])).is_empty());
        assert!(!runs.is_at_seam());
        let whole = runs.push(&batch(2, &[("b", true), ("c", false)]));
        let texts: Vec<&[u8]> = whole.iter().map(|(_, record)| record.as_ref()).collect();
        assert_eq!(texts, [b"a", b"b"]);
        assert_eq!(whole[0].0, Lsn(4_096 + 44));
    }

    #[test]
    fn the_first_batch_of_a_term_ends_what_was_unfinished() {
        let mut runs = Runs::default();
        runs.push(&batch(1, &[("lost", false)]));
        assert!(runs.push(&batch(2, &[])).is_empty());
        assert!(runs.is_at_seam());
        assert_eq!(runs.push(&batch(3, &[("d", true)])).len(), 1);
    }
}
