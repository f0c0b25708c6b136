//! The bytes on disk: only this module knows them. All numbers are little-endian.
//!
//! Not here: reading or writing files, and what to do about bytes that are wrong (`recover`).
//!
//! ```text
//! extent-<sequence, 16 hex digits>      extent_bytes long, first extent has sequence 0
//!
//!   0          4096                                             extent_bytes
//!   +-----------+--------+-----+-------------+-------+----------------+
//!   | header    | batch  | pad | batch       | pad   |  zeros or old  |
//!   +-----------+--------+-----+-------------+-------+----------------+
//!               ^ 4 KiB        ^ 4 KiB               ^ 4 KiB           each batch on a block
//!
//! extent header (one block; the rest of it is zero)
//!   0   8  magic "TOWLINEX"
//!   8   2  format version, 2 (it and the checksum never move); 1: all batches in it are of
//!          version 1; 2: each says its own
//!   10  6  zero
//!   16 16  log id
//!   32  8  sequence
//!   40  8  extent_bytes
//!   48  4  crc32c of bytes 0..48
//!
//! batch
//!   0   2  magic "TB"
//!   2   1  format version, 2
//!   3   1  flags; bit 0 is kept for LZ4; all zero
//!   4   4  length of the payload
//!   8   4  checksum: crc32c of log id, payload, bytes 0..8, bytes 12..40, in this order
//!   12  4  checksum of the previous batch (zero in the first batch of a log)
//!   16  8  LSN of this batch: sequence * extent_bytes + offset in the file
//!   24  4  term: goes up at each start; never down along the chain
//!   28  4  unsynced: how many batches directly before this one were not known to be durable when
//!          this one was handed to the disk
//!   32  8  index: 1 for the first batch of a log, then one more each
//!   40  -  payload: records
//!
//! record
//!   1-5    LEB128 of (length << 2 | kind)
//!   -      that many bytes, opaque to the log
//!   kind 0: more records of its run follow; 1: the last of its run; 2: (length 0) the run so far
//!   is given up; 3: (length 6, not in version 1) no record, but the check of the one before it,
//!   which ends with a body:
//!
//! check
//!   0   1  prefix, 0x1b
//!   1   2  head: where in the record before it the body begins
//!   3   4  crc32c of log id, LSN of the body's first byte (8), head (2), the body
//!
//! image-<LSN, 16 hex digits>
//!   0   8  magic "TOWLINEI"
//!   8   2  format version (it and the checksum never move)
//!   10  6  zero
//!   16 16  log id
//!   32  8  LSN: runs that end at or before it are in the image
//!   40  8  length of the image
//!   48  4  crc32c of the image
//!   52  4  crc32c of bytes 0..52
//!   56  8  seam: end of the last batch, without padding, that need not be read (from here: not in
//!          version 1, where reading begins with the extent of the byte before the LSN)
//!   64  8  index of that batch (0: there is none)
//!   72  4  checksum of that batch
//!   76  4  term of that batch
//!   80  4  length of that batch
//!   84  4  crc32c of bytes 0..84
//!   4096   the image, padded with zeros to 4 KiB
//! ```
//!
//! Why it is so: the LSN in a batch makes bytes of an earlier use of the file worthless; the chain
//! (checksum of the previous batch) and the term do the same for a batch behind a torn one after
//! the log went on over it; *unsynced* distinguishes a torn tail (several batches were in flight, a
//! later one arrived, an earlier did not) from damage to what had been durable. The payload comes
//! first in the checksum so that writers can sum payloads side by side and link the headers after
//! it. The check stands right behind the body so that a body of a damaged batch can be judged by
//! its position and length alone, without a walk through records that may be damaged themselves.

use towline_types::Lsn;

use crate::mark::Seam;

/// The unit of alignment: a page of the disk and of memory.
pub const BLOCK_BYTES: usize = 4096;
/// An extent's header takes one block.
pub const EXTENT_HEADER_BYTES: usize = BLOCK_BYTES;
/// A batch's header.
pub const BATCH_HEADER_BYTES: usize = 40;
/// An image's header takes one block.
pub const IMAGE_HEADER_BYTES: usize = BLOCK_BYTES;
/// Newest version of anything in this file: that of images. Images of version 1 are read too.
pub const FORMAT_VERSION: u16 = 2;
/// Version of extents, and of the batches that are written into them. Extents and batches of
/// version 1, without checks behind bodies, are read too.
pub const EXTENT_VERSION: u16 = 2;

const EXTENT_MAGIC: &[u8; 8] = b"TOWLINEX";
const IMAGE_MAGIC: &[u8; 8] = b"TOWLINEI";
const BATCH_MAGIC: [u8; 2] = *b"TB";
/// Format version of the batches that are written.
pub const BATCH_VERSION: u8 = 2;
/// Version of extents and batches without checks behind bodies.
pub const VERSION_WITHOUT_CHECKS: u8 = 1;
const EXTENT_SUMMED_BYTES: usize = 48;
const IMAGE_SUMMED_BYTES: usize = 52;
const IMAGE_SEAM_SUMMED_BYTES: usize = 84;
/// Version of images that do not say where reading goes on.
const IMAGE_VERSION_WITHOUT_SEAM: u16 = 1;

const _: () = assert!(size_of::<usize>() == size_of::<u64>());
const _: () = assert!(BATCH_VERSION as u16 == EXTENT_VERSION);
const _: () = assert!(BATCH_HEADER_BYTES == 2 + 1 + 1 + 4 + 4 + 4 + 8 + 4 + 4 + 8);
const _: () = assert!(EXTENT_SUMMED_BYTES == 8 + 2 + 6 + 16 + 8 + 8);
const _: () = assert!(IMAGE_SUMMED_BYTES == 8 + 2 + 6 + 16 + 8 + 8 + 4);
const _: () = assert!(IMAGE_SEAM_SUMMED_BYTES == IMAGE_SUMMED_BYTES + 4 + 8 + 8 + 4 + 4 + 4);

/// What makes a log itself: random bytes drawn when it is made. Batches of one log never pass for
/// those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogId(pub u128);

impl LogId {
    /// Its bytes, as they stand in headers.
    pub fn bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

/// The fields of an extent's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHeader {
    /// The log that it belongs to.
    pub log_id: LogId,
    /// Number of the extent.
    pub sequence: u64,
    /// Length of the extent.
    pub extent_bytes: u64,
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Magic or checksum is wrong, or there are too few bytes.
    Damaged,
    /// A whole header of a version that this program does not know.
    Version(u16),
}

impl ExtentHeader {
    /// The header's block.
    pub fn encode(&self) -> [u8; EXTENT_HEADER_BYTES] {
        let mut block = [0; EXTENT_HEADER_BYTES];
        put(&mut block, 0, EXTENT_MAGIC);
        put(&mut block, 8, &EXTENT_VERSION.to_le_bytes());
        put(&mut block, 16, &self.log_id.bytes());
        put(&mut block, 32, &self.sequence.to_le_bytes());
        put(&mut block, 40, &self.extent_bytes.to_le_bytes());
        let sum = crc32c::crc32c(part(&block, 0, EXTENT_SUMMED_BYTES));
        put(&mut block, EXTENT_SUMMED_BYTES, &sum.to_le_bytes());
        block
    }

    /// # Errors
    /// [`BadHeader`]: never trusts a byte before the checksum was found right.
    pub fn decode(block: &[u8]) -> Result<ExtentHeader, BadHeader> {
        let version = check_summed(block, EXTENT_MAGIC, EXTENT_SUMMED_BYTES)?;
        if version != EXTENT_VERSION && version != u16::from(VERSION_WITHOUT_CHECKS) {
            return Err(BadHeader::Version(version));
        }
        Ok(ExtentHeader {
            log_id: LogId(u128::from_le_bytes(take(block, 16).ok_or(BadHeader::Damaged)?)),
            sequence: u64::from_le_bytes(take(block, 32).ok_or(BadHeader::Damaged)?),
            extent_bytes: u64::from_le_bytes(take(block, 40).ok_or(BadHeader::Damaged)?),
        })
    }
}

/// The fields of an image's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// The log that it belongs to.
    pub log_id: LogId,
    /// Position of the image.
    pub at: Lsn,
    /// Length of its content.
    pub bytes: u64,
    /// Checksum of its content.
    pub checksum: u32,
    /// Where reading goes on; `None` in version 1.
    pub seam: Option<Seam>,
}

impl ImageHeader {
    /// The byte before the position where reading continues: its extent must stay.
    pub fn needs(&self) -> Lsn {
        let begin = self.seam.map_or(self.at, |seam| seam.end);
        Lsn(begin.0.saturating_sub(1))
    }

    /// Format version of the file.
    pub fn version(&self) -> u16 {
        self.seam.map_or(IMAGE_VERSION_WITHOUT_SEAM, |_| FORMAT_VERSION)
    }

    /// The header's block.
    pub fn encode(&self) -> [u8; IMAGE_HEADER_BYTES] {
        let mut block = [0; IMAGE_HEADER_BYTES];
        let version = self.version();
        put(&mut block, 0, IMAGE_MAGIC);
        put(&mut block, 8, &version.to_le_bytes());
        put(&mut block, 16, &self.log_id.bytes());
        put(&mut block, 32, &self.at.0.to_le_bytes());
        put(&mut block, 40, &self.bytes.to_le_bytes());
        put(&mut block, 48, &self.checksum.to_le_bytes());
        let sum = crc32c::crc32c(part(&block, 0, IMAGE_SUMMED_BYTES));
        put(&mut block, IMAGE_SUMMED_BYTES, &sum.to_le_bytes());
        if let Some(seam) = self.seam {
            put(&mut block, 56, &seam.end.0.to_le_bytes());
            put(&mut block, 64, &seam.index.to_le_bytes());
            put(&mut block, 72, &seam.checksum.to_le_bytes());
            put(&mut block, 76, &seam.term.to_le_bytes());
            put(&mut block, 80, &seam.bytes.to_le_bytes());
            let sum = crc32c::crc32c(part(&block, 0, IMAGE_SEAM_SUMMED_BYTES));
            put(&mut block, IMAGE_SEAM_SUMMED_BYTES, &sum.to_le_bytes());
        }
        block
    }

    /// # Errors
    /// [`BadHeader`], as for extents.
    pub fn decode(block: &[u8]) -> Result<ImageHeader, BadHeader> {
        let version = check_summed(block, IMAGE_MAGIC, IMAGE_SUMMED_BYTES)?;
        let seam = match version {
            IMAGE_VERSION_WITHOUT_SEAM => None,
            FORMAT_VERSION => Some(decode_seam(block)?),
            newer => return Err(BadHeader::Version(newer)),
        };
        Ok(ImageHeader {
            seam,
            log_id: LogId(u128::from_le_bytes(take(block, 16).ok_or(BadHeader::Damaged)?)),
            at: Lsn(u64::from_le_bytes(take(block, 32).ok_or(BadHeader::Damaged)?)),
            bytes: u64::from_le_bytes(take(block, 40).ok_or(BadHeader::Damaged)?),
            checksum: u32::from_le_bytes(take(block, 48).ok_or(BadHeader::Damaged)?),
        })
    }
}

/// The fields of a batch's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Format version.
    pub version: u8,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// Checksum of header and payload.
    pub checksum: u32,
    /// Checksum of the batch before.
    pub previous: u32,
    /// Its own position.
    pub lsn: Lsn,
    /// Term in which it was opened.
    pub term: u32,
    /// Batches before it that were not durable when it was handed to the disk.
    pub unsynced: u32,
    /// Number of the batch, from 1 on.
    pub index: u64,
}

impl BatchHeader {
    /// The header's bytes, with the checksum field as it stands in `self`.
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        put(&mut bytes, 0, &BATCH_MAGIC);
        put(&mut bytes, 2, &[self.version, 0]);
        put(&mut bytes, 4, &self.payload_bytes.to_le_bytes());
        put(&mut bytes, 8, &self.checksum.to_le_bytes());
        put(&mut bytes, 12, &self.previous.to_le_bytes());
        put(&mut bytes, 16, &self.lsn.0.to_le_bytes());
        put(&mut bytes, 24, &self.term.to_le_bytes());
        put(&mut bytes, 28, &self.unsynced.to_le_bytes());
        put(&mut bytes, 32, &self.index.to_le_bytes());
        bytes
    }

    /// Reads the fields, `None` when this is no batch. The checksum is not checked here
    /// ([`BatchHeader::sum`]). An unknown version is no batch either: the header of its extent says
    /// which ones may be in it.
    pub fn decode(bytes: &[u8]) -> Option<BatchHeader> {
        let [magic0, magic1, version, flags] = take(bytes, 0)?;
        let is_known = (VERSION_WITHOUT_CHECKS..=BATCH_VERSION).contains(&version);
        if [magic0, magic1] != BATCH_MAGIC || !is_known || flags != 0 {
            return None;
        }
        Some(BatchHeader {
            version,
            payload_bytes: u32::from_le_bytes(take(bytes, 4)?),
            checksum: u32::from_le_bytes(take(bytes, 8)?),
            previous: u32::from_le_bytes(take(bytes, 12)?),
            lsn: Lsn(u64::from_le_bytes(take(bytes, 16)?)),
            term: u32::from_le_bytes(take(bytes, 24)?),
            unsynced: u32::from_le_bytes(take(bytes, 28)?),
            index: u64::from_le_bytes(take(bytes, 32)?),
        })
    }

    /// The checksum that belongs in the header, from [`payload_sum`] of its payload.
    pub fn sum(&self, payload_sum: u32) -> u32 {
        let bytes = self.encode();
        let sum = crc32c::crc32c_append(payload_sum, part(&bytes, 0, 8));
        crc32c::crc32c_append(sum, part(&bytes, 12, BATCH_HEADER_BYTES))
    }

    /// Header and payload together.
    pub const fn batch_bytes(&self) -> u64 {
        BATCH_HEADER_BYTES as u64 + self.payload_bytes as u64
    }

    /// Index of the first batch not known to be durable when this one was handed to the disk: a
    /// reader that finds this batch whole knows that all before that index were durable.
    pub const fn proves_durable_before(&self) -> u64 {
        self.index.saturating_sub(self.unsynced as u64)
    }
}

/// First part of a batch's checksum: log id and payload.
pub fn payload_sum(log_id: LogId, payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&log_id.bytes()), payload)
}

/// `bytes` rounded up to a whole number of blocks.
pub const fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES as u64)
}

/// A length or offset in a file as one in memory.
#[expect(clippy::cast_possible_truncation, reason = "asserted above: usize has 64 bits")]
pub const fn size(bytes: u64) -> usize {
    bytes as usize
}

fn decode_seam(block: &[u8]) -> Result<Seam, BadHeader> {
    let damaged = BadHeader::Damaged;
    let sum = u32::from_le_bytes(take(block, IMAGE_SEAM_SUMMED_BYTES).ok_or(damaged)?);
    if crc32c::crc32c(part(block, 0, IMAGE_SEAM_SUMMED_BYTES)) != sum {
        return Err(damaged);
    }
    Ok(Seam {
        end: Lsn(u64::from_le_bytes(take(block, 56).ok_or(damaged)?)),
        index: u64::from_le_bytes(take(block, 64).ok_or(damaged)?),
        checksum: u32::from_le_bytes(take(block, 72).ok_or(damaged)?),
        term: u32::from_le_bytes(take(block, 76).ok_or(damaged)?),
        bytes: u32::from_le_bytes(take(block, 80).ok_or(damaged)?),
    })
}

/// The version, when magic and checksum are right.
fn check_summed(block: &[u8], magic: &[u8; 8], summed: usize) -> Result<u16, BadHeader> {
    let damaged = BadHeader::Damaged;
    let found: [u8; 8] = take(block, 0).ok_or(damaged)?;
    if found != *magic {
        return Err(damaged);
    }
    let version = u16::from_le_bytes(take(block, 8).ok_or(damaged)?);
    let sum = u32::from_le_bytes(take(block, summed).ok_or(damaged)?);
    if crc32c::crc32c(part(block, 0, summed)) != sum {
        return Err(damaged);
    }
    Ok(version)
}

fn take<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    let end = offset.checked_add(N)?;
    bytes.get(offset..end)?.try_into().ok()
}

fn part(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    assert!(to <= bytes.len(), "a checksum is of fields inside their header");
    &bytes[from..to]
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    let place = offset..offset + value.len();
    assert!(place.end <= bytes.len(), "a field lies outside its header");
    bytes[place].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: LogId = LogId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The golden bytes of version 1 are read; only images without a seam are still written so.
    #[test]
    fn version_1_is_these_bytes() {
        let mut extent = [0; EXTENT_HEADER_BYTES];
        extent[..52].copy_from_slice(&bytes(GOLDEN_EXTENT));
        let header = ExtentHeader { log_id: ID, sequence: 3, extent_bytes: 0x0400_0000 };
        assert_eq!(ExtentHeader::decode(&extent), Ok(header));
        let (at, bytes, checksum) = (Lsn(0x1234), 5, 7);
        let image = ImageHeader { log_id: ID, at, bytes, checksum, seam: None }.encode();
        assert_eq!(hex(&image[..56]), GOLDEN_IMAGE);
        assert!(image[56..].iter().all(|byte| *byte == 0));
        assert_eq!(ImageHeader::decode(&image).unwrap().at, Lsn(0x1234));
        let batch = batch(1);
        assert_eq!(hex(&batch.encode()), GOLDEN_BATCH);
        assert_eq!(BatchHeader::decode(&batch.encode()), Some(batch));
    }

    /// The golden bytes of version 2: when this test must change, so must the version.
    #[test]
    fn version_2_of_extents_and_batches_is_these_bytes() {
        let header = ExtentHeader { log_id: ID, sequence: 3, extent_bytes: 0x0400_0000 };
        let extent = header.encode();
        assert_eq!(hex(&extent[..52]), GOLDEN_EXTENT_2);
        assert!(extent[52..].iter().all(|byte| *byte == 0));
        assert_eq!(ExtentHeader::decode(&extent), Ok(header));
        let batch = batch(2);
        assert_eq!(hex(&batch.encode()), GOLDEN_BATCH_2);
        assert_eq!(batch.proves_durable_before(), 8);
        assert_eq!(BatchHeader::decode(&batch.encode()), Some(batch));
        assert_eq!(BatchHeader::decode(&BatchHeader { version: 3, ..batch }.encode()), None);
    }

    fn batch(version: u8) -> BatchHeader {
        let mut batch = BatchHeader {
            version,
            payload_bytes: 5,
            checksum: 0,
            previous: 0x0102_0304,
            lsn: Lsn(0x1000),
            term: 2,
            unsynced: 1,
            index: 9,
        };
        batch.checksum = batch.sum(payload_sum(ID, b"hello"));
        batch
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = (0..hex.len()).step_by(2);
        pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    const SEAM: Seam =
        Seam { end: Lsn(0x1230), index: 9, checksum: 0x0102_0304, term: 2, bytes: 0x230 };

    #[test]
    fn version_2_of_an_image_is_these_bytes() {
        let (at, bytes, checksum, seam) = (Lsn(0x1234), 5, 7, Some(SEAM));
        let header = ImageHeader { log_id: ID, at, bytes, checksum, seam };
        let image = header.encode();
        assert_eq!(hex(&image[..88]), GOLDEN_IMAGE_2);
        assert_eq!(ImageHeader::decode(&image), Ok(header));
        for bit in 0..88 * 8 {
            let mut flipped = image;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ImageHeader::decode(&flipped), Err(BadHeader::Damaged), "bit {bit}");
        }
        let mut newer = image;
        newer[8] = 3;
        let sum = crc32c::crc32c(&newer[..52]);
        newer[52..56].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(ImageHeader::decode(&newer), Err(BadHeader::Version(3)));
    }

    #[test]
    fn a_header_with_any_bit_flipped_is_refused() {
        let block = ExtentHeader { log_id: ID, sequence: 1, extent_bytes: 1 << 26 }.encode();
        let (at, bytes, checksum) = (Lsn(1), 1, 1);
        let image = ImageHeader { log_id: ID, at, bytes, checksum, seam: None }.encode();
        for bit in 0..52 * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ExtentHeader::decode(&flipped), Err(BadHeader::Damaged));
            let mut flipped = image;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ImageHeader::decode(&flipped), Err(BadHeader::Damaged));
        }
        for length in 0..52 {
            assert!(ExtentHeader::decode(&block[..length]).is_err());
            assert!(ImageHeader::decode(&image[..length]).is_err());
        }
    }

    #[test]
    fn a_batch_of_another_log_or_with_any_bit_flipped_has_another_checksum() {
        let (payload_bytes, previous, lsn) = (5, 0, Lsn(4_096));
        let (version, term, unsynced, index, checksum) = (2, 1, 0, 1, 0);
        let header =
            BatchHeader { version, payload_bytes, checksum, previous, lsn, term, unsynced, index };
        let sum = header.sum(payload_sum(ID, b"hello"));
        assert_ne!(sum, header.sum(payload_sum(LogId(1), b"hello")));
        for bit in 0..40 {
            let mut payload = *b"hello";
            payload[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum, header.sum(payload_sum(ID, &payload)));
        }
        let bytes = header.encode();
        for bit in (0..64).chain(96..320) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Some(header) = BatchHeader::decode(&flipped) {
                assert_ne!(sum, header.sum(payload_sum(ID, b"hello")), "bit {bit}");
            }
        }
    }

    const GOLDEN_EXTENT: &str = concat!(
        "544f574c494e45580100000000000000000102030405060708090a0b0c0d0e0f",
        "03000000000000000000000400000000026d814c"
    );
    const GOLDEN_EXTENT_2: &str = concat!(
        "544f574c494e45580200000000000000000102030405060708090a0b0c0d0e0f",
        "030000000000000000000004000000008e242d2f"
    );
    const GOLDEN_BATCH_2: &str = concat!(
        "5442020005000000a36e58c10403020100100000000000000200000001000000",
        "0900000000000000"
    );
    const GOLDEN_IMAGE: &str = concat!(
        "544f574c494e45490100000000000000000102030405060708090a0b0c0d0e0f",
        "3412000000000000050000000000000007000000e4e69a51"
    );
    const GOLDEN_IMAGE_2: &str = concat!(
        "544f574c494e45490200000000000000000102030405060708090a0b0c0d0e0f",
        "3412000000000000050000000000000007000000a58a69f1",
        "30120000000000000900000000000000040302010200000030020000",
        "71f75dbc"
    );
    const GOLDEN_BATCH: &str = concat!(
        "5442010005000000d0f245420403020100100000000000000200000001000000",
        "0900000000000000"
    );
}
