//! Records inside a batch's payload: the prefix of each, the check behind a body, and runs put
//! together again.
//!
//! Not here: what records mean. Bytes come from the disk with a right checksum, and are checked all
//! the same: a fault of ours must not become an endless loop or a wild length.
//!
//! A check lets one body be judged by its position alone, when the checksum of its batch is wrong:
//! one damaged byte costs one message, not all that were written with it.
//!
//! Invariant of [`RunAssembler`]: only whole runs come out, in the order in which they were
//! committed.

use bytes::Bytes;
use towline_types::Lsn;

use crate::error::LogError;
use crate::format::LogId;

/// What a record's prefix says besides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// More records of its run follow.
    More,
    /// The last record of its run.
    Last,
    /// No record: what came of the run so far is given up.
    GivenUp,
}

/// Most bytes a record's length prefix takes.
pub(crate) const PREFIX_BYTES_MAX: usize = 5;
const KIND_BITS: u32 = 2;
/// Bits of a check's prefix; the prefix is one byte.
const CHECK_BITS: usize = 3;
/// Behind its prefix: two bytes that say where in its record the body begins, and the checksum.
const CHECK_CONTENT_BYTES: usize = 6;
/// A check's prefix as it stands behind a body.
const CHECK_PREFIX: u8 = 0x1b;
const _: () = assert!(CHECK_PREFIX as usize == CHECK_CONTENT_BYTES << KIND_BITS | CHECK_BITS);
/// What a check takes, prefix included.
pub(crate) const CHECK_BYTES: usize = 1 + CHECK_CONTENT_BYTES;

impl Kind {
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Kind::More => 0,
            Kind::Last => 1,
            Kind::GivenUp => 2,
        }
    }

    /// `None`: a check, which is part of the record before it.
    const fn of_bits(bits: u64) -> Option<Kind> {
        match bits & 3 {
            0 => Some(Kind::More),
            1 => Some(Kind::Last),
            2 => Some(Kind::GivenUp),
            _ => None,
        }
    }
}

/// What lies behind a record that ends with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Where in its record the body begins.
    head: u16,
    sum: u32,
}

impl Check {
    /// Reads the check at the beginning of `bytes`, if there is one.
    fn decode(bytes: &[u8]) -> Option<Check> {
        match bytes.get(..CHECK_BYTES)? {
            [CHECK_PREFIX, head0, head1, sum0, sum1, sum2, sum3] => Some(Check {
                head: u16::from_le_bytes([*head0, *head1]),
                sum: u32::from_le_bytes([*sum0, *sum1, *sum2, *sum3]),
            }),
            _ => None,
        }
    }

    /// The checksum of a body at a position of a log: bytes of another position or log never pass.
    fn sum(log_id: LogId, lsn: Lsn, head: u16, body: &[u8]) -> u32 {
        let mut place = [0; 26];
        place[..16].copy_from_slice(&log_id.bytes());
        place[16..24].copy_from_slice(&lsn.0.to_le_bytes());
        place[24..].copy_from_slice(&head.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&place), body)
    }
}

/// Appends the check of a body that begins at `head` of the record before; its sum comes later
/// ([`seal_checks`]). False when a body so far behind is not checked.
pub(crate) fn put_check(memory: &mut Vec<u8>, head: usize) -> bool {
    let Ok(head) = u16::try_from(head) else { return false };
    memory.push(CHECK_PREFIX);
    memory.extend_from_slice(&head.to_le_bytes());
    memory.extend_from_slice(&[0; 4]);
    true
}

/// Enters the sums of all checks of a payload that begins at `lsn`.
pub(crate) fn seal_checks(payload: &mut [u8], log_id: LogId, lsn: Lsn) {
    let mut at = 0;
    loop {
        let mut records = Records { payload, at };
        let Some(Ok(found)) = records.next() else { return };
        at = records.at;
        let Some((body, check)) = found.body() else { continue };
        let place = lsn.after((found.start + usize::from(check.head)) as u64);
        let sum = Check::sum(log_id, place, check.head, body);
        payload[at - 4..at].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Whether `bytes`, a body of `body` bytes at `lsn` and what stands behind it, are as they were
/// written. False too when no check stands there, as in version 1.
pub(crate) fn body_is_whole(bytes: &[u8], body: usize, log_id: LogId, lsn: Lsn) -> bool {
    let Some((body, behind)) = bytes.split_at_checked(body) else { return false };
    let check = Check::decode(behind);
    check.is_some_and(|check| check.sum == Check::sum(log_id, lsn, check.head, body))
}

/// Bytes of the prefix of a record of `bytes` bytes, 1 to 5.
pub(crate) fn prefix_bytes(bytes: usize) -> usize {
    let value = (bytes as u64) << KIND_BITS;
    let bits = (u64::BITS - value.leading_zeros()).max(1);
    let count = bits.div_ceil(7) as usize;
    assert!(count <= PREFIX_BYTES_MAX, "a record is far below 2^33 bytes");
    count
}

/// Appends a prefix.
pub(crate) fn put_prefix(memory: &mut Vec<u8>, bytes: usize, kind: Kind) {
    let (prefix, count) = prefix(bytes, kind);
    memory.extend_from_slice(&prefix[..count]);
}

/// Writes a prefix over one of the same length.
pub(crate) fn patch_prefix(memory: &mut [u8], at: usize, bytes: usize, kind: Kind) {
    let (prefix, count) = prefix(bytes, kind);
    memory[at..at + count].copy_from_slice(&prefix[..count]);
}

/// Moves a record of `bytes` bytes at the end of `memory` behind its right prefix; its prefix, at
/// `at`, was guessed with another length.
pub(crate) fn move_for_prefix(memory: &mut Vec<u8>, at: usize, guessed: usize, bytes: usize) {
    let right = prefix_bytes(bytes);
    let from = at + guessed..at + guessed + bytes;
    assert_eq!(from.end, memory.len(), "the record is the newest");
    memory.resize(memory.len().max(at + right + bytes), 0);
    memory.copy_within(from, at + right);
    memory.truncate(at + right + bytes);
    patch_prefix(memory, at, bytes, Kind::More);
}

fn prefix(bytes: usize, kind: Kind) -> ([u8; PREFIX_BYTES_MAX], usize) {
    let mut value = (bytes as u64) << KIND_BITS | u64::from(kind.bits());
    let count = prefix_bytes(bytes);
    let mut prefix = [0; PREFIX_BYTES_MAX];
    for (place, byte) in prefix.iter_mut().take(count).enumerate() {
        let more = if place + 1 < count { 0x80 } else { 0 };
        *byte = (value & 0x7f) as u8 | more;
        value >>= 7;
    }
    assert_eq!(value, 0, "the prefix holds the whole length");
    (prefix, count)
}

/// One record found in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundRecord<'a> {
    /// Offset of its prefix in the payload.
    pub at: usize,
    /// Offset of its first byte in the payload.
    pub start: usize,
    /// Its kind.
    pub kind: Kind,
    /// Its content.
    pub bytes: &'a [u8],
    /// Offset behind it and its check in the payload.
    pub end: usize,
    check: Option<Check>,
}

impl<'a> FoundRecord<'a> {
    /// The body that it ends with, and the check behind it.
    fn body(&self) -> Option<(&'a [u8], Check)> {
        let check = self.check?;
        Some((self.bytes.get(usize::from(check.head)..)?, check))
    }

    /// Whether the body that it ends with is as it was written; `None` when it has none, or one
    /// without a check. `lsn`: of the payload.
    pub fn is_whole(&self, log_id: LogId, lsn: Lsn) -> Option<bool> {
        let check = self.check?;
        let Some((body, _)) = self.body() else { return Some(false) };
        let place = lsn.after((self.start + usize::from(check.head)) as u64);
        Some(check.sum == Check::sum(log_id, place, check.head, body))
    }
}

/// A payload with records that do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRecord;

/// What the records of a payload do to runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadShape {
    /// Whether no run is unfinished at its end.
    pub(crate) is_seam: bool,
    /// Runs that end in it.
    pub(crate) runs: u64,
}

/// The shape of a payload. No run goes on over a batch without records: it begins a term, or ends a
/// log.
///
/// # Errors
/// [`MalformedRecord`].
pub(crate) fn shape(payload: &[u8]) -> Result<PayloadShape, MalformedRecord> {
    let (mut is_seam, mut runs) = (true, 0);
    for found in Records::new(payload) {
        let kind = found?.kind;
        is_seam = kind != Kind::More;
        runs += u64::from(kind == Kind::Last);
    }
    Ok(PayloadShape { is_seam, runs })
}

/// Walks over the records of a payload.
pub struct Records<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// The records of a batch.
    pub fn new(payload: &'a [u8]) -> Records<'a> {
        Records { payload, at: 0 }
    }

    fn parse(&self) -> Option<FoundRecord<'a>> {
        let rest = self.payload.get(self.at..)?;
        let mut value = 0_u64;
        let mut shift = 0_u32;
        let mut count = 0_usize;
        for byte in rest.iter().take(PREFIX_BYTES_MAX) {
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            count += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if rest.get(count.checked_sub(1)?)? & 0x80 != 0 {
            return None;
        }
        let kind = Kind::of_bits(value)?;
        let length = usize::try_from(value >> KIND_BITS).ok()?;
        let start = self.at.checked_add(count)?;
        let bytes = self.payload.get(start..start.checked_add(length)?)?;
        if kind == Kind::GivenUp && length != 0 {
            return None;
        }
        let end = start.checked_add(length)?;
        let check = match kind {
            Kind::More | Kind::Last => Check::decode(self.payload.get(end..)?),
            Kind::GivenUp => None,
        };
        let end = check.map_or(end, |_| end + CHECK_BYTES);
        Some(FoundRecord { at: self.at, start, kind, bytes, end, check })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<FoundRecord<'a>, MalformedRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.payload.len() {
            return None;
        }
        let Some(found) = self.parse() else {
            self.at = self.payload.len();
            return Some(Err(MalformedRecord));
        };
        self.at = found.end;
        Some(Ok(found))
    }
}

/// Puts runs together over batches and yields whole ones.
#[derive(Debug, Default)]
pub(crate) struct RunAssembler {
    /// What came of the unfinished run, as long as it is short.
    waiting: Vec<(Lsn, Bytes)>,
    waiting_bytes: usize,
    bytes_max: usize,
    /// First record of the unfinished run, when it is longer than `bytes_max`: it is not held.
    long: Option<Lsn>,
    term: u32,
}

/// Receives records.
pub(crate) type Receiver<'a, E> = dyn FnMut(Lsn, &[u8]) -> Result<(), E> + 'a;

/// Yields the records of a long run from the first to the last; and how many they were.
pub(crate) type Again<'a, E> =
    dyn FnMut(Lsn, Lsn, &mut Receiver<'_, E>) -> Result<u64, Halt<E>> + 'a;

/// Why [`RunAssembler::feed`] ended.
#[derive(Debug)]
pub(crate) enum Halt<E> {
    Malformed,
    Receiver { lsn: Lsn, error: E },
    Log(LogError),
}

impl RunAssembler {
    /// Holds `bytes_max` bytes of an unfinished run at most (and what one batch holds).
    pub(crate) fn new(bytes_max: usize) -> RunAssembler {
        RunAssembler { bytes_max, ..RunAssembler::default() }
    }

    /// Where the first record of the unfinished run is, if there is one.
    pub(crate) fn began(&self) -> Option<Lsn> {
        self.long.or_else(|| self.waiting.first().map(|(lsn, _)| *lsn))
    }

    /// The records of the unfinished run; those of a long one are not held.
    pub(crate) fn into_waiting(self) -> Vec<(Lsn, Bytes)> {
        self.waiting
    }

    fn drop_run(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.long = None;
    }

    /// Takes the payload at `lsn` of the next batch; yields each record of each run that it
    /// completes, a long one by `again`. Runs that end at or before `upto` are passed over.
    ///
    /// # Errors
    /// [`Halt`].
    pub(crate) fn feed<E>(
        &mut self,
        term: u32,
        lsn: Lsn,
        payload: &[u8],
        upto: Lsn,
        record: &mut Receiver<'_, E>,
        again: &mut Again<'_, E>,
    ) -> Result<u64, Halt<E>> {
        if term != self.term {
            // Another process (or leader) wrote from here on: it did not finish what was begun.
            self.drop_run();
            self.term = term;
        }
        let mut here: Vec<FoundRecord<'_>> = Vec::new();
        let mut count = 0;
        for found in Records::new(payload) {
            let found = found.map_err(|MalformedRecord| Halt::Malformed)?;
            match found.kind {
                Kind::More => here.push(found),
                Kind::GivenUp => {
                    self.drop_run();
                    here.clear();
                }
                Kind::Last if lsn.after(found.end as u64) <= upto => {
                    self.drop_run();
                    here.clear();
                }
                Kind::Last => {
                    here.push(found);
                    match self.long {
                        Some(first) => {
                            count += again(first, lsn.after(found.start as u64), record)?;
                            here.clear();
                        }
                        None => count += self.yield_run(lsn, &mut here, record)?,
                    }
                    self.drop_run();
                }
            }
        }
        self.keep(lsn, &here);
        Ok(count)
    }

    fn yield_run<E>(
        &mut self,
        lsn: Lsn,
        here: &mut Vec<FoundRecord<'_>>,
        record: &mut Receiver<'_, E>,
    ) -> Result<u64, Halt<E>> {
        let count = self.waiting.len() as u64 + here.len() as u64;
        for (lsn, bytes) in self.waiting.drain(..) {
            record(lsn, &bytes).map_err(|error| Halt::Receiver { lsn, error })?;
        }
        for found in here.drain(..) {
            let lsn = lsn.after(found.start as u64);
            record(lsn, found.bytes).map_err(|error| Halt::Receiver { lsn, error })?;
        }
        Ok(count)
    }

    /// Keeps the beginning of a run for the batches to come.
    fn keep(&mut self, lsn: Lsn, here: &[FoundRecord<'_>]) {
        if self.long.is_some() {
            return;
        }
        for found in here {
            let bytes = Bytes::copy_from_slice(found.bytes);
            self.waiting_bytes += bytes.len() + size_of::<(Lsn, Bytes)>();
            self.waiting.push((lsn.after(found.start as u64), bytes));
        }
        if self.waiting_bytes > self.bytes_max {
            self.long = self.began();
            self.waiting = Vec::new();
            self.waiting_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(records: &[(&[u8], Kind)]) -> Vec<u8> {
        let mut memory = Vec::new();
        for (bytes, kind) in records {
            put_prefix(&mut memory, bytes.len(), *kind);
            memory.extend_from_slice(bytes);
        }
        memory
    }

    fn feed(runs: &mut RunAssembler, term: u32, lsn: u64, payload: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let mut record = |lsn: Lsn, bytes: &[u8]| -> Result<(), ()> {
            out.push((lsn.0, bytes.to_vec()));
            Ok(())
        };
        let mut again = |_: Lsn, _: Lsn, _: &mut Receiver<'_, ()>| Err(Halt::Malformed);
        runs.feed(term, Lsn(lsn), payload, Lsn::ZERO, &mut record, &mut again).unwrap();
        out
    }

    #[test]
    fn prefixes_of_all_lengths_are_read_back() {
        for bytes in [0, 1, 31, 32, 33, 4_095, 4_096, 524_287, 524_288, 1_200_000] {
            let record = vec![5; bytes];
            let payload = payload(&[(&record, Kind::Last)]);
            assert_eq!(payload.len(), bytes + prefix_bytes(bytes));
            let found: Vec<_> = Records::new(&payload).collect();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].unwrap().bytes, record);
        }
    }

    #[test]
    fn a_wrong_guess_of_a_length_is_put_right() {
        for (guess, bytes) in [(0, 100), (100, 0), (10_000, 3), (1, 70_000)] {
            let mut memory = vec![9; 3];
            put_prefix(&mut memory, guess, Kind::More);
            memory.extend(std::iter::repeat_n(8, bytes));
            move_for_prefix(&mut memory, 3, prefix_bytes(guess), bytes);
            let found = Records::new(&memory[3..]).next().unwrap().unwrap();
            assert_eq!(found.bytes, vec![8; bytes]);
        }
    }

    #[test]
    fn a_run_comes_out_whole_or_not_at_all() {
        let mut runs = RunAssembler::new(1 << 20);
        let first = payload(&[(b"a", Kind::Last), (b"b", Kind::More)]);
        assert_eq!(feed(&mut runs, 1, 1_000, &first), [(1_001, b"a".to_vec())]);
        let second = payload(&[(b"c", Kind::Last), (b"d", Kind::More)]);
        let out = feed(&mut runs, 1, 2_000, &second);
        assert_eq!(out, [(1_003, b"b".to_vec()), (2_001, b"c".to_vec())]);
        // "d" was given up; "e" was cut off by a crash, and the next term began.
        let third = payload(&[(b"", Kind::GivenUp), (b"x", Kind::Last), (b"e", Kind::More)]);
        assert_eq!(feed(&mut runs, 1, 3_000, &third), [(3_002, b"x".to_vec())]);
        let fourth = payload(&[(b"f", Kind::Last)]);
        assert_eq!(feed(&mut runs, 2, 4_000, &fourth), [(4_001, b"f".to_vec())]);
    }

    #[test]
    fn no_bytes_make_the_walk_fail_otherwise_than_by_saying_so() {
        let mut random = towline_types::SeededRandom::new(11);
        for _ in 0..2_000 {
            let length = crate::format::size(random.below(40));
            let bytes: Vec<u8> = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
            let total: usize = Records::new(&bytes).flatten().map(|found| found.bytes.len()).sum();
            assert!(total <= length);
        }
    }
}
