//! What travels between two regions on an open link, and its bytes. All numbers are little-endian.
//!
//! Each message is the body of one frame of a link, whose kind is the message's:
//!
//! ```text
//! 1 batches, live to recovery
//!   0  8  term of live's leader
//!   8 32  the batch before the first: index, term, LSN, end (8 each; all 0: none)
//!  40  8  end of what is committed at live
//!  48  8  when live committed its newest batch, in microseconds since 1970
//!  56  4  number of batches; of each: index, term, LSN (8 each), bytes (4); then the payloads
//! 2 point, recovery to live
//!   0  8  recovery point: index of the newest batch that is durable at a majority of recovery
//!   8  8  its term    16  8  its LSN    24  8  its end
//!  32  8  end of what the relay has received contiguously and made durable on its own disk
//!  40  8  persistent messages ever put, as of what recovery has applied; 48 8 ever removed
//!  56  8  bytes of batches received, not compressed   64  8  the same as they came over the link
//!  72  8  time spent on their decompression, microseconds
//!  80  8  copies (rebases) that this group has begun
//! 3 refused, recovery to live: the link ends, and the next one starts where recovery then is
//!   0  1  why: 1 a gap, 2 not yet, 3 promoted, 4 another batch stands at an index
//!   1  8  the index to send from (1), or of the batch (4); else 0
//! 20 condition, both ways: what a group says of itself beside its log, as JSON. It goes before
//!    batches that wait: the end of the log that it says may be ahead of them
//! ```
//!
//! Bytes that a later version adds to the end of a point or a refusal are skipped.
//!
//! Not here: frames, their checksums and their compression (`link::frame`).
//!
//! Invariant: no number that is read passes [`NUMBER_MAX`], so what is calculated from it fits.

use std::fmt;

use bytes::{Buf, Bytes};
use towline_types::{Batch, BatchPlace, Lsn, Time, fitting};

/// Kind of the frame that carries batches.
pub const KIND_BATCHES: u8 = 1;
/// Kind of the frame that carries a recovery point.
pub const KIND_POINT: u8 = 2;
/// Kind of the frame that says where to send again from.
pub const KIND_REFUSED: u8 = 3;
/// Kind of the frame with the condition of a group: for people, nothing depends on it.
pub const KIND_CONDITION: u8 = 20;

/// Bytes before the list of batches.
const BATCHES_HEAD_BYTES: usize = 60;
/// Bytes that describe a batch.
const BATCH_BYTES: usize = 28;
/// The greatest index, position, count or time; no log comes near it.
const NUMBER_MAX: u64 = u64::MAX / 4;

/// Bytes that are no message between regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionWireError(&'static str);

impl fmt::Display for RegionWireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "this is no message between regions: {}", self.0)
    }
}

impl std::error::Error for RegionWireError {}

/// Committed batches on their way to recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// The term of live's leader.
    pub term: u64,
    /// The batch before the first one; all zero: there is none.
    pub previous: BatchPlace,
    /// End of what is committed at live.
    pub committed: Lsn,
    /// When live committed its newest batch, by live's clock.
    pub committed_at: Time,
    /// In order, without a gap.
    pub batches: Vec<Batch>,
}

/// How many persistent messages were ever put and removed in a log. Both only grow, so what two
/// groups have of the same log differs by exactly what one of them lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages put.
    pub put: u64,
    /// Messages removed: got, expired, cleared, moved.
    pub removed: u64,
}

/// What recovery says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The newest batch that is durable at a majority of recovery: what a promotion keeps.
    pub place: BatchPlace,
    /// End of what the relay has received without a gap and made durable on its own disk.
    pub received: Lsn,
    /// As of what recovery has applied, and of nothing behind `place`.
    pub counts: Counts,
    /// Bytes of batches that the relay received, before compression.
    pub bytes: u64,
    /// The same as they came over the link.
    pub wire_bytes: u64,
    /// Time that their decompression took, in all.
    pub decompression_us: u64,
    /// Copies that this group has begun.
    pub rebases: u64,
}

impl Batches {
    /// Its bytes: what comes first, and the payloads that follow it, not copied.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Vec<Bytes>) {
        let mut head = Vec::with_capacity(BATCHES_HEAD_BYTES + self.batches.len() * BATCH_BYTES);
        put_numbers(&mut head, &[self.term]);
        put_place(&mut head, self.previous);
        put_numbers(&mut head, &[self.committed.0, self.committed_at.0]);
        head.extend_from_slice(&fitting::<_, u32>(self.batches.len()).to_le_bytes());
        let mut payloads = Vec::with_capacity(self.batches.len());
        for batch in &self.batches {
            put_numbers(&mut head, &[batch.index, batch.term, batch.lsn.0]);
            head.extend_from_slice(&fitting::<_, u32>(batch.payload.len()).to_le_bytes());
            if !batch.payload.is_empty() {
                payloads.push(batch.payload.clone());
            }
        }
        (head, payloads)
    }

    /// Reads batches; payloads are slices of `body`.
    ///
    /// # Errors
    /// When the bytes are none: too short or long, or the batches do not follow one another.
    pub fn decode(body: &Bytes) -> Result<Batches, RegionWireError> {
        let mut rest = &body[..];
        let sender_term = number(&mut rest)?;
        let previous = place(&mut rest)?;
        let committed = Lsn(number(&mut rest)?);
        let committed_at = Time(number(&mut rest)?);
        let count = rest.try_get_u32_le().map_err(|_| SHORT)? as usize;
        let list_bytes = count.checked_mul(BATCH_BYTES).filter(|bytes| *bytes <= rest.len());
        let (mut list, payloads) = rest.split_at(list_bytes.ok_or(SHORT)?);
        let mut at = body.len() - payloads.len();
        let mut before = (previous.index, previous.term);
        let mut end = previous.end;
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            let (index, term) = (number(&mut list)?, number(&mut list)?);
            let lsn = Lsn(number(&mut list)?);
            let bytes = list.try_get_u32_le().map_err(|_| SHORT)? as usize;
            let payload_end = at.checked_add(bytes).filter(|end| *end <= body.len());
            let payload_end = payload_end.ok_or(SHORT)?;
            if index != before.0 + 1 || term < before.1 || lsn < end {
                return Err(RegionWireError("its batches do not follow one another"));
            }
            let batch = Batch { index, term, lsn, payload: body.slice(at..payload_end) };
            (at, before, end) = (payload_end, (index, term), batch.end());
            batches.push(batch);
        }
        if at != body.len() {
            return Err(RegionWireError("bytes follow its last batch"));
        }
        if end > committed {
            return Err(RegionWireError("a batch in it is not committed"));
        }
        if before.1 > sender_term {
            return Err(RegionWireError("a batch in it is of a later term than its sender"));
        }
        Ok(Batches { term: sender_term, previous, committed, committed_at, batches })
    }
}

impl RecoveryPoint {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_place(&mut bytes, self.place);
        let numbers = [
            self.received.0,
            self.counts.put,
            self.counts.removed,
            self.bytes,
            self.wire_bytes,
            self.decompression_us,
            self.rebases,
        ];
        put_numbers(&mut bytes, &numbers);
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the bytes are none, or contradict each other.
    pub fn decode(mut body: &[u8]) -> Result<RecoveryPoint, RegionWireError> {
        let body = &mut body;
        let place = place(body)?;
        let mut next = || number(body);
        let received = Lsn(next()?);
        let counts = Counts { put: next()?, removed: next()? };
        let [bytes, wire_bytes, decompression_us, rebases] = [next()?, next()?, next()?, next()?];
        Ok(RecoveryPoint { place, received, counts, bytes, wire_bytes, decompression_us, rebases })
    }
}

/// Why recovery takes no more on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is a gap before what came: it has to be sent from this index on.
    Gap {
        /// Of the first batch that lacks.
        index: u64,
    },
    /// The relay starts, and does not take part in its group yet.
    NotYet,
    /// The group was promoted, or hears another live group.
    Promoted,
    /// The logs have different batches at this index.
    Diverged {
        /// Of the batches.
        index: u64,
    },
}

impl Refusal {
    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let (why, index) = match self {
            Refusal::Gap { index } => (1, index),
            Refusal::NotYet => (2, 0),
            Refusal::Promoted => (3, 0),
            Refusal::Diverged { index } => (4, index),
        };
        let mut bytes = vec![why];
        put_numbers(&mut bytes, &[index]);
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn decode(mut body: &[u8]) -> Result<Refusal, RegionWireError> {
        let why = body.try_get_u8().map_err(|_| SHORT)?;
        let index = number(&mut body)?;
        match why {
            1 => Ok(Refusal::Gap { index }),
            2 => Ok(Refusal::NotYet),
            3 => Ok(Refusal::Promoted),
            4 => Ok(Refusal::Diverged { index }),
            _ => Err(RegionWireError("it refuses for a reason that is not known here")),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Gap { index } => write!(out, "batch {index} has to be sent first"),
            Refusal::NotYet => out.write_str("its instance is starting"),
            Refusal::Promoted => out.write_str("it was promoted"),
            Refusal::Diverged { index } => {
                write!(out, "its log has another batch {index}: the logs have diverged")
            }
        }
    }
}

const SHORT: RegionWireError = RegionWireError("it is too short");

fn put_numbers(bytes: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

/// The bytes of a batch's position: index, term, LSN, end.
pub fn put_place(bytes: &mut Vec<u8>, place: BatchPlace) {
    put_numbers(bytes, &[place.index, place.term, place.lsn.0, place.end.0]);
}

/// Reads what [`put_place`] wrote, and moves behind it.
///
/// # Errors
/// When the bytes are too short, or the batch ends before it begins.
pub fn place(bytes: &mut &[u8]) -> Result<BatchPlace, RegionWireError> {
    let (index, term) = (number(bytes)?, number(bytes)?);
    let (lsn, end) = (Lsn(number(bytes)?), Lsn(number(bytes)?));
    if lsn > end {
        return Err(RegionWireError("a batch in it ends before it begins"));
    }
    Ok(BatchPlace { index, term, lsn, end })
}

fn number(bytes: &mut &[u8]) -> Result<u64, RegionWireError> {
    let number = bytes.try_get_u64_le().map_err(|_| SHORT)?;
    if number > NUMBER_MAX {
        return Err(RegionWireError("a number in it is too great"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches() -> Batches {
        let batch = |index, term, lsn, payload: &'static [u8]| Batch {
            index,
            term,
            lsn: Lsn(lsn),
            payload: Bytes::from_static(payload),
        };
        Batches {
            term: 4,
            previous: BatchPlace { index: 6, term: 2, lsn: Lsn(0), end: Lsn(4_000) },
            committed: Lsn(20_000),
            committed_at: Time(5),
            batches: vec![
                batch(7, 2, 4_096, b"records"),
                batch(8, 3, 8_192, b""),
                batch(9, 3, 12_288, b"more"),
            ],
        }
    }

    fn bytes_of(batches: &Batches) -> Bytes {
        let (head, payloads) = batches.encode();
        Bytes::from([head, payloads.concat()].concat())
    }

    #[test]
    fn what_is_sent_is_read_as_it_was() {
        assert_eq!(Batches::decode(&bytes_of(&batches())), Ok(batches()));
        let point = RecoveryPoint {
            place: BatchPlace { index: 9, term: 3, lsn: Lsn(12_288), end: Lsn(12_332) },
            received: Lsn(12_332),
            counts: Counts { put: 4, removed: 3 },
            bytes: 900,
            wire_bytes: 90,
            decompression_us: 12,
            rebases: 1,
        };
        assert_eq!(RecoveryPoint::decode(&point.encode()), Ok(point));
        let later = [point.encode(), vec![1; 9]].concat();
        assert_eq!(RecoveryPoint::decode(&later), Ok(point), "a later version says more");
        let gap = Refusal::Gap { index: 9 };
        for why in [gap, Refusal::NotYet, Refusal::Promoted, Refusal::Diverged { index: 4 }] {
            assert_eq!(Refusal::decode(&why.encode()), Ok(why));
        }
        assert!(Refusal::decode(&[5, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_message_that_is_cut_anywhere_is_refused() {
        let whole = bytes_of(&batches());
        for end in 0..whole.len() {
            assert!(Batches::decode(&whole.slice(..end)).is_err(), "{end}");
        }
        let point = RecoveryPoint::default().encode();
        for end in 0..point.len() {
            assert_eq!(RecoveryPoint::decode(&point[..end]), Err(SHORT));
        }
        assert_eq!(Refusal::decode(&[1; 8]), Err(SHORT));
        assert_eq!(Refusal::decode(&[]), Err(SHORT));
    }

    #[test]
    fn batches_that_contradict_each_other_are_refused() {
        let refused = |change: fn(&mut Batches)| {
            let mut changed = batches();
            change(&mut changed);
            Batches::decode(&bytes_of(&changed)).unwrap_err().to_string()
        };
        let order = "do not follow one another";
        assert!(refused(|batches| batches.batches[1].index = 9).contains(order));
        assert!(refused(|batches| batches.previous.index = 5).contains(order));
        assert!(refused(|batches| batches.batches[1].term = 1).contains(order));
        assert!(refused(|batches| batches.previous.term = 3).contains(order));
        assert!(refused(|batches| batches.batches[2].lsn = Lsn(8_231)).contains(order));
        assert!(refused(|batches| batches.previous.end = Lsn(4_097)).contains(order));
        assert!(refused(|batches| batches.previous.lsn = Lsn(4_001)).contains("before it begins"));
        assert!(refused(|batches| batches.term = 2).contains("a later term"));
        assert!(refused(|batches| batches.committed = Lsn(12_331)).contains("not committed"));
        assert!(refused(|batches| batches.previous.index = u64::MAX - 1).contains("too great"));
        let longer = Bytes::from([&bytes_of(&batches())[..], &[0]].concat());
        assert!(Batches::decode(&longer).is_err());
    }

    #[test]
    fn hostile_bytes_never_break_the_decoder() {
        let mut noise = vec![0; 4_096];
        towline_types::SeededRandom::new(1).fill(&mut noise);
        for start in 0..noise.len() {
            let mut bytes = noise[start..].to_vec();
            // Counts that are believable get further than those that are not.
            for count in [None, Some(1_u8), Some(40)] {
                if let (Some(count), Some(field)) = (count, bytes.get_mut(56..60)) {
                    field.copy_from_slice(&[count, 0, 0, 0]);
                }
                Batches::decode(&Bytes::from(bytes.clone())).ok();
            }
            RecoveryPoint::decode(&bytes).ok();
            Refusal::decode(&bytes).ok();
        }
    }
}
