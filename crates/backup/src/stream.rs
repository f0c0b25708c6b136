//! A copy of a running log that goes straight from its files into a stream, and from the stream
//! into the files of a new folder: for an instance of a group that has lost its log, or lags too
//! far.
//!
//! ```text
//! head, 112 bytes; numbers are little-endian:
//!   0    8  "TWLCOPY1"
//!   8    16 id of the log
//!   24   8  bytes of an extent
//!   32   8  first extent
//!   40   8  end of the log        \
//!   48   8  index of its last batch |
//!   56   4  checksum of it          | as in a manifest
//!   60   4  term of it              |
//!   64   4  length of it           /
//!   68   4  pages
//!   72   8  position of the image
//!   80   8  length of its file, without padding
//!   88   8  length of the time index; 0: none
//!   96   8  length of all that follows, but for its checksum
//!   104  4  zero
//!   108  4  crc32c of the bytes before
//! then the image's file; the table; each page in order: unit (4), length (4), crc32c (4), content;
//! each extent from the first to the end of the log, whole blocks; crc32c (4) of all after the head
//! ```
//! Reading order: [`give`], [`take`].
//!
//! A copy that was cut goes on where it was ([`CopyPoint`]): behind a file, behind a page, or in an
//! extent behind a whole number of steps of 16 KiB. The taker says how far it has all on its disk,
//! and with which checksum, and the giver goes on there if it sent the same.
//!
//! Not here: what carries the stream; when a copy is made; which pages an image refers to; where a
//! taker keeps how far it is.
//!
//! Invariants: the giver writes no file; what it read counts only when its hold still held
//! afterwards; the taker's folder is one that no queue manager starts with until all of it is
//! checked and synced.

pub(super) mod give;
pub(super) mod take;

use towline_log::folder::chain::ExtentOffset;
use towline_log::format::LogId;
use towline_types::Lsn;

use crate::extent_length::ExtentLength;
use crate::manifest::End;

pub(super) const HEAD_BYTES: usize = 112;
const MAGIC: [u8; 8] = *b"TWLCOPY1";
/// In front of the content of a page.
const PAGE_HEAD_BYTES: usize = 12;
/// What comes of an extent counts in steps of this: little enough that the slowest line carries one
/// before it breaks, and a multiple of a block.
pub(super) const COPY_STEP_BYTES: usize = 16 * 1024;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyPoint {
    /// Bytes behind the head.
    pub done: u64,
    /// CRC-32C of them.
    pub sum: u32,
}

/// A file of a copy, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopiedFile {
    Image,
    Times,
    /// All pages, each with its row.
    Pages,
    /// The extent with this number.
    Extent(u64),
}

/// What a copy consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    log_id: LogId,
    extent_bytes: u64,
    first: u64,
    end: End,
    pages: u32,
    image_at: Lsn,
    image_bytes: u64,
    times_bytes: u64,
    bytes: u64,
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&self.log_id.0.to_le_bytes());
        for number in [self.extent_bytes, self.first, self.end.lsn, self.end.index] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.end.checksum, self.end.term, self.end.bytes, self.pages] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.image_at.0, self.image_bytes, self.times_bytes, self.bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes);
        head
    }

    /// `None`: it is none, or not a whole one, or cannot be true.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let long = |at: usize| {
            let part = bytes.get(at..at + 8)?;
            part.try_into().ok().map(u64::from_le_bytes)
        };
        let short = |at: usize| {
            let part = bytes.get(at..at + 4)?;
            part.try_into().ok().map(u32::from_le_bytes)
        };
        let id = bytes.get(8..24)?.try_into().ok().map(u128::from_le_bytes)?;
        let whole = bytes.starts_with(&MAGIC)
            && short(108)? == crc32c::crc32c(bytes.get(..HEAD_BYTES - 4)?);
        let head = Head {
            log_id: LogId(id),
            extent_bytes: long(24)?,
            first: long(32)?,
            end: End {
                lsn: long(40)?,
                index: long(48)?,
                checksum: short(56)?,
                term: short(60)?,
                bytes: short(64)?,
            },
            pages: short(68)?,
            image_at: Lsn(long(72)?),
            image_bytes: long(80)?,
            times_bytes: long(88)?,
            bytes: long(96)?,
        };
        (whole && head.is_possible()).then_some(head)
    }

    fn is_possible(&self) -> bool {
        self.extent_bytes > 0
            && self.end.lsn > 0
            && self.image_at.0 <= self.end.lsn
            && self.first <= self.end.place(self.extent_bytes).sequence
            && self.pages_bytes().is_some_and(|bytes| (bytes > 0) == (self.pages > 0))
    }

    /// Bytes of all pages with their rows; `None`: the head contradicts itself.
    fn pages_bytes(&self) -> Option<u64> {
        let ExtentOffset { sequence: last, offset } = self.end.place(self.extent_bytes);
        let whole = last.checked_sub(self.first)?.checked_mul(self.extent_bytes)?;
        let extents = whole.checked_add(offset)?;
        let rest = self.bytes.checked_sub(self.image_bytes)?.checked_sub(self.times_bytes)?;
        rest.checked_sub(extents)
    }

    /// Its files with their bytes in the stream, in order; those that are empty are left out.
    fn files(&self) -> impl Iterator<Item = (CopiedFile, u64)> + use<> {
        let before = [
            (CopiedFile::Image, self.image_bytes),
            (CopiedFile::Times, self.times_bytes),
            (CopiedFile::Pages, self.pages_bytes().unwrap_or(0)),
        ];
        let extents = self.extents();
        let extents = extents.map(|extent| (CopiedFile::Extent(extent.sequence), extent.bytes));
        before.into_iter().chain(extents).filter(|(_, bytes)| *bytes > 0)
    }

    /// The extents, and how much of each.
    fn extents(&self) -> impl Iterator<Item = ExtentLength> + use<> {
        let ExtentOffset { sequence: last, offset } = self.end.place(self.extent_bytes);
        let whole = self.extent_bytes;
        (self.first..=last).map(move |sequence| {
            let bytes = if sequence == last { offset } else { whole };
            ExtentLength { sequence, bytes }
        })
    }
}

/// The head of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHead(Head);

impl CopyHead {
    /// Bytes of it.
    pub const BYTES: usize = HEAD_BYTES;

    /// Reads one; `None`: it is none, or cannot be true.
    #[must_use]
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<CopyHead> {
        Head::decode(bytes).map(CopyHead)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEAD_BYTES] {
        self.0.encode()
    }

    /// Bytes that follow it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Which log it is of.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.0.log_id
    }

    /// The end of its pages: a taker that has more needs none.
    #[must_use]
    pub fn pages_end(&self) -> u64 {
        let Head { image_bytes, times_bytes, .. } = self.0;
        image_bytes + times_bytes + self.0.pages_bytes().unwrap_or(0)
    }

    /// The log before this is not needed by a taker that has `done` bytes behind the head.
    #[must_use]
    pub fn needs_from(&self, done: u64) -> Lsn {
        let mut end = 0;
        for (file, bytes) in self.0.files() {
            end += bytes;
            if let CopiedFile::Extent(sequence) = file
                && end > done
            {
                return Lsn(sequence * self.0.extent_bytes);
            }
        }
        Lsn(self.0.end.lsn)
    }

    /// Whether a taker can go on there: at the border of two files, behind pages, or behind whole
    /// steps of an extent. That a page ends there is not known here.
    #[must_use]
    pub fn can_go_on_at(&self, done: u64) -> bool {
        let mut begin = 0;
        let mut fits = self.0.files().map(|(file, bytes)| {
            let (from, end) = (begin, begin + bytes);
            begin = end;
            let inside = from < done && done < end;
            done == end
                || match file {
                    CopiedFile::Image | CopiedFile::Times => false,
                    CopiedFile::Pages => inside,
                    CopiedFile::Extent(_) => {
                        inside && (done - from).is_multiple_of(COPY_STEP_BYTES as u64)
                    }
                }
        });
        done == 0 || fits.any(|fits| fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_less_than_its_extents_is_none() {
        let end = End { lsn: (5 << 20) + 100, index: 9, checksum: 1, term: 2, bytes: 90 };
        let head = Head {
            log_id: LogId(7),
            extent_bytes: 1 << 20,
            first: 3,
            end,
            pages: 0,
            image_at: Lsn(5 << 20),
            image_bytes: 600,
            times_bytes: 0,
            bytes: (2 << 20) + 4096 + 600,
        };
        assert_eq!(Head::decode(&head.encode()), Some(head));
        let files: Vec<_> = head.files().collect();
        let extents = [(3, 1 << 20), (4, 1 << 20), (5, 4096)];
        let extents = extents.map(|(number, bytes)| (CopiedFile::Extent(number), bytes));
        assert_eq!(files, [&[(CopiedFile::Image, 600)][..], &extents].concat());
        let short = Head { bytes: head.bytes - 1, ..head };
        assert_eq!(Head::decode(&short.encode()), None);
        let endless = Head { extent_bytes: 1, first: 0, end: End { lsn: u64::MAX, ..end }, ..head };
        assert_eq!(Head::decode(&endless.encode()), None);
    }

    #[test]
    fn a_head_comes_back_and_one_with_any_bit_flipped_is_refused() {
        let head = Head {
            log_id: LogId(7),
            extent_bytes: 1 << 20,
            first: 3,
            end: End { lsn: (5 << 20) + 100, index: 9, checksum: 1, term: 2, bytes: 90 },
            pages: 4,
            image_at: Lsn(5 << 20),
            image_bytes: 600,
            times_bytes: 0,
            bytes: 3 << 20,
        };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head));
        let extents: Vec<_> = head.extents().collect();
        let expected = [(3, 1 << 20), (4, 1 << 20), (5, 4096)];
        assert_eq!(extents, expected.map(|(sequence, bytes)| ExtentLength { sequence, bytes }));
        for bit in 0..HEAD_BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Head::decode(&other), None, "bit {bit}");
        }
    }
}
