//! Payloads in memory: those of the newest batches, and those read back for followers that lag.
//!
//! Invariants: the newest stand without gap; both parts are bounded in bytes, but for one batch of
//! the newest, and what was just read.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use towline_types::Batch;

/// Bytes kept of what was read back.
const FETCHED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Payloads {
    /// Index of the first of `newest`.
    first: u64,
    newest: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
    fetched: BTreeMap<u64, Bytes>,
    fetched_bytes: usize,
}

impl Payloads {
    /// `next` is the index of the first batch to come.
    pub(crate) fn new(next: u64, bytes_max: usize) -> Payloads {
        Payloads {
            first: next,
            newest: VecDeque::new(),
            bytes: 0,
            bytes_max,
            fetched: BTreeMap::new(),
            fetched_bytes: 0,
        }
    }

    /// Adds the payload of the newest batch.
    pub(crate) fn push(&mut self, index: u64, payload: Bytes) {
        let next = self.first + self.newest.len() as u64;
        assert_eq!(index, next, "payloads follow each other");
        self.bytes += payload.len();
        self.newest.push_back(payload);
        while self.bytes > self.bytes_max && self.newest.len() > 1 {
            if let Some(oldest) = self.newest.pop_front() {
                self.bytes -= oldest.len();
                self.first += 1;
            }
        }
    }

    /// Drops those from `index` on.
    pub(crate) fn cut(&mut self, index: u64) {
        while self.first + self.newest.len() as u64 > index {
            match self.newest.pop_back() {
                Some(cut) => self.bytes -= cut.len(),
                None => {
                    self.first = index;
                    break;
                }
            }
        }
        for (_, cut) in self.fetched.split_off(&index) {
            self.fetched_bytes -= cut.len();
        }
    }

    /// The payload of a batch, if it is in memory.
    pub(crate) fn get(&self, index: u64) -> Option<&Bytes> {
        let newest =
            index.checked_sub(self.first).and_then(|at| self.newest.get(usize::try_from(at).ok()?));
        newest.or_else(|| self.fetched.get(&index))
    }

    /// Takes what was read back; of what was read before some goes when there is too much. What was
    /// just read stays: a member waits for it, and would ask for it again and again.
    pub(crate) fn fetched(&mut self, batches: Vec<Batch>) {
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else { return };
        let first = first.index;
        let last = last.index;
        for Batch { index, payload, .. } in batches {
            self.fetched_bytes += payload.len();
            if let Some(before) = self.fetched.insert(index, payload) {
                self.fetched_bytes -= before.len();
            }
        }
        while self.fetched_bytes > FETCHED_BYTES_MAX {
            let oldest = self.fetched.first_entry().filter(|oldest| *oldest.key() < first);
            let dropped = match oldest {
                Some(oldest) => oldest.remove(),
                None => match self.fetched.last_entry().filter(|newest| *newest.key() > last) {
                    Some(newest) => newest.remove(),
                    None => break,
                },
            };
            self.fetched_bytes -= dropped.len();
        }
    }

    /// No member lags behind `index` any more.
    pub(crate) fn drop_fetched_before(&mut self, index: u64) {
        let kept = self.fetched.split_off(&index);
        for (_, dropped) in std::mem::replace(&mut self.fetched, kept) {
            self.fetched_bytes -= dropped.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: usize) -> Bytes {
        Bytes::from(vec![7; bytes])
    }

    #[test]
    fn the_newest_stay_and_the_bound_is_kept() {
        let mut payloads = Payloads::new(5, 100);
        (5..10).for_each(|index| payloads.push(index, payload(40)));
        assert_eq!(payloads.get(7), None);
        assert!(payloads.get(8).is_some() && payloads.get(9).is_some());
        payloads.cut(9);
        assert_eq!(payloads.get(9), None);
        payloads.push(9, payload(1));
        assert_eq!(payloads.get(9).map(Bytes::len), Some(1));
        payloads.cut(3);
        payloads.push(3, payload(2));
        assert_eq!(payloads.get(3).map(Bytes::len), Some(2));
    }

    #[test]
    fn what_was_just_read_back_stays_however_much_it_is() {
        let mut payloads = Payloads::new(500, 100);
        let batch = |index| Batch { index, payload: payload(1 << 20), ..Batch::default() };
        payloads.fetched((10..20).map(batch).collect());
        payloads.fetched((200..210).map(batch).collect());
        payloads.fetched((100..140).map(batch).collect());
        assert!((100..140).all(|index| payloads.get(index).is_some()));
        assert!(payloads.get(10).is_none() && payloads.get(209).is_none());
    }

    #[test]
    fn what_was_read_back_is_found_until_no_member_needs_it() {
        let mut payloads = Payloads::new(50, 100);
        let batch = |index| Batch { index, payload: payload(10), ..Batch::default() };
        payloads.fetched(vec![batch(3), batch(4), batch(5)]);
        assert!(payloads.get(4).is_some());
        payloads.drop_fetched_before(5);
        assert!(payloads.get(4).is_none() && payloads.get(5).is_some());
        payloads.cut(4);
        assert!(payloads.get(5).is_none());
        assert_eq!(payloads.fetched_bytes, 0);
    }
}
