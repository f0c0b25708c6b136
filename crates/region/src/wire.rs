//! What travels between two regions on an open link, and its bytes. All numbers are little-endian.
//!
//! Each message is the body of one frame of a link, whose kind is the message's:
//!
//! ```text
//! 1 batches, live to recovery
//!   0  8  index of the batch before the first        8  8  its term (0, 0: none)
//!  16  8  end of what is committed at live
//!  24  8  when live committed its newest batch, in microseconds since 1970
//!  32  4  number of batches; of each: index, term, LSN (8 each), bytes (4); then the payloads
//! 2 point, recovery to live
//!   0  8  recovery point: index of the newest batch that is durable at a majority of recovery
//!   8  8  its term    16  8  its LSN    24  8  its end
//!  32  8  end of what the relay has received contiguously and made durable on its own disk
//!  40  8  persistent messages ever put, as of what recovery has applied; 48 8 ever removed
//!  56  8  bytes of batches received, not compressed   64  8  the same as they came over the link
//!  72  8  time spent on their decompression, microseconds
//!  80  8  copies (rebases) that this group has begun
//! 3 refused, recovery to live: send again from here on
//!   0  8  index of the newest batch that the relay has   8  8  its term
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

/// Bytes before the list of batches.
const BATCHES_HEAD_BYTES: usize = 36;
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
    /// Index and term of the batch before the first one.
    pub previous: (u64, u64),
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
    /// As of what recovery has applied.
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
        for number in [self.previous.0, self.previous.1, self.committed.0, self.committed_at.0] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(&fitting::<_, u32>(self.batches.len()).to_le_bytes());
        let mut payloads = Vec::with_capacity(self.batches.len());
        for batch in &self.batches {
            for number in [batch.index, batch.term, batch.lsn.0] {
                head.extend_from_slice(&number.to_le_bytes());
            }
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
        let previous = (number(&mut rest)?, number(&mut rest)?);
        let committed = Lsn(number(&mut rest)?);
        let committed_at = Time(number(&mut rest)?);
        let count = rest.try_get_u32_le().map_err(|_| SHORT)? as usize;
        let list_bytes = count.checked_mul(BATCH_BYTES).filter(|bytes| *bytes <= rest.len());
        let (mut list, payloads) = rest.split_at(list_bytes.ok_or(SHORT)?);
        let mut at = body.len() - payloads.len();
        let mut before = previous;
        let mut end = Lsn::ZERO;
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
        Ok(Batches { previous, committed, committed_at, batches })
    }
}

impl RecoveryPoint {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let BatchPlace { index, term, lsn, end } = self.place;
        let numbers = [
            index,
            term,
            lsn.0,
            end.0,
            self.received.0,
            self.counts.put,
            self.counts.removed,
            self.bytes,
            self.wire_bytes,
            self.decompression_us,
            self.rebases,
        ];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the bytes are none, or contradict each other.
    pub fn decode(mut body: &[u8]) -> Result<RecoveryPoint, RegionWireError> {
        let body = &mut body;
        let mut next = || number(body);
        let place =
            BatchPlace { index: next()?, term: next()?, lsn: Lsn(next()?), end: Lsn(next()?) };
        let received = Lsn(next()?);
        let counts = Counts { put: next()?, removed: next()? };
        let [bytes, wire_bytes, decompression_us, rebases] = [next()?, next()?, next()?, next()?];
        if place.lsn > place.end {
            return Err(RegionWireError("its recovery point ends before it begins"));
        }
        Ok(RecoveryPoint { place, received, counts, bytes, wire_bytes, decompression_us, rebases })
    }
}

/// What a relay that cannot append what came has instead: index and term of its newest batch.
#[must_use]
pub fn encode_refused((index, term): (u64, u64)) -> Vec<u8> {
    [index.to_le_bytes(), term.to_le_bytes()].concat()
}

/// Reads that.
///
/// # Errors
/// When the bytes are too short, or no positions.
pub fn decode_refused(mut body: &[u8]) -> Result<(u64, u64), RegionWireError> {
    Ok((number(&mut body)?, number(&mut body)?))
}

const SHORT: RegionWireError = RegionWireError("it is too short");

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
            previous: (6, 2),
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
        assert_eq!(decode_refused(&encode_refused((9, 3))), Ok((9, 3)));
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
        assert!(decode_refused(&[0; 15]).is_err());
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
        assert!(refused(|batches| batches.previous.0 = 5).contains(order));
        assert!(refused(|batches| batches.batches[1].term = 1).contains(order));
        assert!(refused(|batches| batches.previous.1 = 3).contains(order));
        assert!(refused(|batches| batches.batches[2].lsn = Lsn(8_231)).contains(order));
        assert!(refused(|batches| batches.committed = Lsn(12_331)).contains("not committed"));
        assert!(refused(|batches| batches.previous.0 = u64::MAX - 1).contains("too great"));
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
                if let (Some(count), Some(field)) = (count, bytes.get_mut(32..36)) {
                    field.copy_from_slice(&[count, 0, 0, 0]);
                }
                Batches::decode(&Bytes::from(bytes.clone())).ok();
            }
            RecoveryPoint::decode(&bytes).ok();
            decode_refused(&bytes).ok();
        }
    }
}
