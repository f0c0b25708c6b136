//! Where an instance is in its log, as it says to the other region: two sections of the hello of
//! the link between regions. All numbers are little-endian.
//!
//! ```text
//! 2 position
//!   0   1  1: it has no log
//!   1  32  last batch of its log: index, term, LSN, end
//!  33  32  newest batch that it knows to be committed: the same
//! 4 checksums of both batches: of each 1: it is known 1, CRC-32C of the batch 4
//! ```
//!
//! Not here: histories, configuration (sections of their own). Invariant: live goes on behind a
//! batch that both have, and never behind one that is not committed at live.

use towline_region::wire::{place, put_place};
use towline_types::{Batch, BatchPlace};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionPosition {
    /// It has no log, and takes all from the beginning, or a copy.
    pub blank: bool,
    /// Last batch of its log.
    pub last: BatchPlace,
    /// Newest batch that it knows to be committed.
    pub committed: BatchPlace,
}

impl RegionPosition {
    /// Tag of the section.
    pub const TAG: u8 = 2;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.blank)];
        put_place(&mut bytes, self.last);
        put_place(&mut bytes, self.committed);
        bytes
    }

    /// Reads one; `None`: the bytes are none. What a later version adds to the end is skipped.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<RegionPosition> {
        let (blank, mut rest) = bytes.split_first()?;
        let (last, committed) = (place(&mut rest).ok()?, place(&mut rest).ok()?);
        Some(RegionPosition { blank: *blank != 0, last, committed })
    }
}

/// Checksums (CRC-32C) of the batches that a [`RegionPosition`] names: two batches of equal index
/// and term need not be equal in two groups. `None`: it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositionSums {
    /// Of the last batch.
    pub last: Option<u32>,
    /// Of the newest one that is known to be committed.
    pub committed: Option<u32>,
}

impl PositionSums {
    /// Tag of the section.
    pub const TAG: u8 = 4;

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let one = |sum: Option<u32>| {
            let [a, b, c, d] = sum.unwrap_or(0).to_le_bytes();
            [u8::from(sum.is_some()), a, b, c, d]
        };
        [one(self.last), one(self.committed)].concat()
    }

    /// Reads them; `None`: the bytes are none. What a later version adds to the end is skipped.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<PositionSums> {
        let ([known, last @ ..], rest) = bytes.split_first_chunk::<5>()?;
        let ([other_known, committed @ ..], _) = rest.split_first_chunk::<5>()?;
        let of = |known: u8, sum: [u8; 4]| (known != 0).then(|| u32::from_le_bytes(sum));
        Some(PositionSums { last: of(*known, *last), committed: of(*other_known, *committed) })
    }
}

/// The log of the instance that ships.
pub trait ShippedLog: Send + Sync {
    /// Term of this instance as leader.
    fn term(&self) -> u64;

    /// The newest batch that is committed.
    fn committed(&self) -> BatchPlace;

    /// The position of a batch; `None`: it is not known any more, or not there yet.
    fn place(&self, index: u64) -> Option<BatchPlace>;

    /// The oldest batch with content that can be read is the one behind this index.
    fn known_behind(&self) -> u64;

    /// Committed batches behind `index`, in order, of about `bytes_max` bytes with headers; one at
    /// least, unless there is none. Blocks while they are read.
    ///
    /// # Errors
    /// Why they cannot be read, in words for the operator.
    fn behind(&self, index: u64, bytes_max: u64) -> Result<Vec<Batch>, String>;

    /// The checksum of a batch, see [`PositionSums`]; `None`: it cannot be read. Blocks.
    fn sum(&self, place: BatchPlace) -> Option<u32>;
}

/// How live begins to ship to a group that says where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShippingStart {
    /// Behind this batch, which both have; all zero: from the beginning.
    Behind(BatchPlace),
    /// This log does not hold any more what the other group lacks: it needs a copy.
    NeedsCopy,
    /// Both have a batch of this index which is committed there, and not the same one.
    Diverged {
        /// Of that batch.
        index: u64,
    },
    /// The other group knows more to be committed than this one: this instance was just elected,
    /// and learns that soon.
    NotYet,
}

impl ShippingStart {
    /// Compares the position that the other group says with the log that is to be shipped.
    #[must_use]
    pub fn of(log: &dyn ShippedLog, other: &RegionPosition) -> ShippingStart {
        let known = log.known_behind();
        if other.blank || other.last.index == 0 {
            let start = ShippingStart::Behind(BatchPlace::default());
            return if known == 0 { start } else { ShippingStart::NeedsCopy };
        }
        let committed = log.committed().index;
        let has = |place: BatchPlace| log.place(place.index) == Some(place);
        // What is not committed there may be of a time when that group was live.
        if other.last.index <= committed && other.last.index >= known && has(other.last) {
            return ShippingStart::Behind(other.last);
        }
        let behind = other.committed;
        if behind.index > committed {
            return ShippingStart::NotYet;
        }
        if behind.index < known {
            return ShippingStart::NeedsCopy;
        }
        if behind.index == 0 || has(behind) {
            return ShippingStart::Behind(behind);
        }
        ShippingStart::Diverged { index: behind.index }
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;

    /// A log of 20 batches, of which 15 are committed and those up to `known` are gone.
    struct TestLog {
        known: u64,
    }

    fn at(index: u64, term: u64) -> BatchPlace {
        BatchPlace { index, term, lsn: Lsn(index * 4_096), end: Lsn(index * 4_096 + 100) }
    }

    impl ShippedLog for TestLog {
        fn term(&self) -> u64 {
            3
        }

        fn committed(&self) -> BatchPlace {
            at(15, 2)
        }

        fn place(&self, index: u64) -> Option<BatchPlace> {
            (self.known..=20).contains(&index).then(|| at(index, 2))
        }

        fn known_behind(&self) -> u64 {
            self.known
        }

        fn behind(&self, _: u64, _: u64) -> Result<Vec<Batch>, String> {
            Ok(Vec::new())
        }

        fn sum(&self, _: BatchPlace) -> Option<u32> {
            None
        }
    }

    #[test]
    fn a_position_comes_back_and_one_that_is_cut_does_not() {
        let position = RegionPosition { blank: true, last: at(7, 2), committed: at(5, 1) };
        let bytes = position.encode();
        assert_eq!(RegionPosition::decode(&bytes), Some(position));
        assert_eq!(RegionPosition::decode(&[&bytes[..], &[9]].concat()), Some(position));
        assert!((0..bytes.len()).all(|end| RegionPosition::decode(&bytes[..end]).is_none()));
    }

    #[test]
    fn checksums_come_back_and_those_that_are_cut_do_not() {
        let sums = PositionSums { last: Some(7), committed: None };
        let bytes = sums.encode();
        assert_eq!(PositionSums::decode(&[&bytes[..], &[1]].concat()), Some(sums));
        assert!((0..bytes.len()).all(|end| PositionSums::decode(&bytes[..end]).is_none()));
    }

    #[test]
    fn live_goes_on_behind_a_batch_that_both_have() {
        let start = |known, last, committed| {
            let other = RegionPosition { blank: false, last, committed };
            ShippingStart::of(&TestLog { known }, &other)
        };
        assert_eq!(start(0, at(9, 2), at(7, 2)), ShippingStart::Behind(at(9, 2)));
        assert_eq!(start(0, at(9, 1), at(7, 2)), ShippingStart::Behind(at(7, 2)), "its tail goes");
        assert_eq!(start(0, at(18, 2), at(15, 2)), ShippingStart::Behind(at(15, 2)));
        assert_eq!(start(0, at(18, 2), at(16, 2)), ShippingStart::NotYet);
        assert_eq!(start(0, at(9, 1), at(7, 1)), ShippingStart::Diverged { index: 7 });
        assert_eq!(start(8, at(9, 2), at(7, 2)), ShippingStart::Behind(at(9, 2)));
        assert_eq!(start(10, at(9, 2), at(7, 2)), ShippingStart::NeedsCopy);
        assert_eq!(start(8, at(9, 1), at(7, 2)), ShippingStart::NeedsCopy);
        let other_place = BatchPlace { end: Lsn(1), lsn: Lsn(0), ..at(7, 2) };
        assert_eq!(start(0, other_place, other_place), ShippingStart::Diverged { index: 7 });
    }

    #[test]
    fn a_group_without_a_log_takes_all_from_the_beginning_if_that_is_there() {
        let blank = RegionPosition { blank: true, ..RegionPosition::default() };
        let start = |known| ShippingStart::of(&TestLog { known }, &blank);
        assert_eq!(start(0), ShippingStart::Behind(BatchPlace::default()));
        assert_eq!(start(1), ShippingStart::NeedsCopy);
        let new = RegionPosition::default();
        let start = ShippingStart::of(&TestLog { known: 0 }, &new);
        assert_eq!(start, ShippingStart::Behind(BatchPlace::default()));
    }
}
