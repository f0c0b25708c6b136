//! The bytes of a frame, and whether it pays to compress it.
//!
//! All numbers are little-endian.
//!
//! ```text
//! frame (protocol version 1)
//!   0  4  length of the body as it is sent
//!   4  4  length of the body itself; the same unless it is compressed
//!   8  1  kind; 0xF0 and above the links' own: 0xF0 ping (up to 64 bytes), 0xF1 pong (its ping's),
//!         0xF2 start, 0xF3 end
//!   9  1  flags; bit 0: the body is one LZ4 block; others zero
//!  10  2  zero
//!  12  4  crc32c of bytes 0..12 and of the body as it is sent
//!  16  -  body
//! ```
//!
//! The checksum is for our own mistakes and for memory: on the way TLS guards the bytes.
//!
//! Not here: sockets, order, what a kind means. Invariant: a decoder takes no more memory than
//! twice what arrived, but for a compressed body, which is at most `BODY_BYTES_MAX` long.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use towline_types::fitting;

/// Longest body: a batch of the log, and what consensus says about it.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024 + 64 * 1024;
/// Kinds that only the links themselves use.
pub const OWN_KINDS: RangeInclusive<u8> = 0xF0..=0xFF;

pub(super) const PING: u8 = 0xF0;
pub(super) const PONG: u8 = 0xF1;
/// The first frame on a connection, from version 3 on: 16 bytes, the start of the process that
/// dialled. Between regions it is empty: the side that dialled takes the answer.
pub(super) const START: u8 = 0xF2;
/// The last frame on a connection between regions: why its sender ends it, in UTF-8.
pub(super) const END: u8 = 0xF3;
/// Longest body of a ping.
pub(super) const PING_BYTES_MAX: usize = 64;
pub(super) const HEADER_BYTES: usize = 16;
const FLAG_LZ4: u8 = 1;

/// Bytes of a body that are tried first: when they do not shrink the rest is left alone.
const SAMPLE_BYTES: usize = 16 * 1024;
/// Bodies in a row that did not shrink before compression pauses.
const FAILURES_MAX: u32 = 4;
/// Bodies that are then sent as they are.
const SKIPPED: u32 = 64;

/// A body in pieces, so that large ones need not be copied together.
#[derive(Clone, Debug, Default)]
pub struct FrameBody {
    /// The beginning, which the sender made for this frame.
    pub head: Vec<u8>,
    /// What follows it.
    pub parts: Vec<Bytes>,
}

impl FrameBody {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.head.len() + self.parts.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn gather(&self, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&self.head);
        for part in &self.parts {
            into.extend_from_slice(part);
        }
    }
}

impl From<Vec<u8>> for FrameBody {
    fn from(head: Vec<u8>) -> FrameBody {
        FrameBody { head, parts: Vec::new() }
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameError {
    TooLong(usize),
    Checksum,
    Flags(u8),
    Compression,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FrameError::TooLong(bytes) => write!(out, "it sent a frame of {bytes} bytes"),
            FrameError::Checksum => out.write_str("it sent a frame with a wrong checksum"),
            FrameError::Flags(flags) => write!(out, "it sent a frame with flags {flags:#x}"),
            FrameError::Compression => out.write_str("it sent a body that does not unpack"),
        }
    }
}

/// Makes frames of bodies, and decides which are compressed.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    threshold: usize,
    failures: u32,
    skip: u32,
    gathered: Vec<u8>,
    packed: Vec<u8>,
    /// Time that compression took since it was last asked for.
    spent: Duration,
}

impl Encoder {
    /// Bodies of `threshold` bytes and more are compressed if it pays; 0: never.
    pub(super) fn new(threshold: usize) -> Encoder {
        Encoder { threshold, ..Encoder::default() }
    }

    /// Appends the pieces of a frame to `pieces`; their bytes together are returned.
    pub(super) fn encode(
        &mut self,
        kind: u8,
        body: FrameBody,
        pieces: &mut impl Extend<Bytes>,
    ) -> usize {
        let length = body.len();
        if let Some(packed) = self.pack(&body, length) {
            let header = header(kind, FLAG_LZ4, [packed.len(), length], &[&packed]);
            let bytes = header.len() + packed.len();
            pieces.extend([header, packed]);
            return bytes;
        }
        let mut crc_parts: Vec<&[u8]> = vec![&body.head];
        crc_parts.extend(body.parts.iter().map(|part| &part[..]));
        let header = header(kind, 0, [length, length], &crc_parts);
        pieces.extend([header, Bytes::from(body.head)]);
        pieces.extend(body.parts);
        HEADER_BYTES + length
    }

    /// Time spent on compression since the last call.
    pub(super) fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// The body compressed, when that makes it at least a tenth shorter. A stream of bodies that do
    /// not shrink must not burn the processor: after some of them the next ones are not tried.
    fn pack(&mut self, body: &FrameBody, length: usize) -> Option<Bytes> {
        if self.threshold == 0 || length < self.threshold.max(1) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        let began = Instant::now();
        let packed = self.compress(body);
        self.spent += began.elapsed();
        if packed.is_some() {
            self.failures = 0;
        } else {
            self.failures = self.failures.saturating_add(1);
            if self.failures >= FAILURES_MAX {
                self.skip = SKIPPED;
            }
        }
        packed
    }

    fn compress(&mut self, body: &FrameBody) -> Option<Bytes> {
        let most = lz4_flex::block::get_maximum_output_size(body.len());
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        body.gather(&mut self.gathered);
        if let Some(sample) = self.gathered.get(..SAMPLE_BYTES) {
            let bytes = lz4_flex::block::compress_into(sample, &mut self.packed).ok()?;
            if !pays(bytes, sample.len()) {
                return None;
            }
        }
        let bytes = lz4_flex::block::compress_into(&self.gathered, &mut self.packed).ok()?;
        let packed = self.packed.get(..bytes)?;
        pays(bytes, self.gathered.len()).then(|| Bytes::copy_from_slice(packed))
    }
}

fn pays(packed: usize, plain: usize) -> bool {
    packed <= plain - plain / 10
}

fn header(kind: u8, flags: u8, [sent, length]: [usize; 2], body: &[&[u8]]) -> Bytes {
    // Bounded by BODY_BYTES_MAX, which `Links::send` asserts.
    let number = |value: usize| fitting::<usize, u32>(value).to_le_bytes();
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(&number(sent));
    header.extend_from_slice(&number(length));
    header.extend_from_slice(&[kind, flags, 0, 0]);
    let crc =
        body.iter().fold(crc32c::crc32c(&header), |crc, part| crc32c::crc32c_append(crc, part));
    header.extend_from_slice(&crc.to_le_bytes());
    Bytes::from(header)
}

/// A frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) body: Bytes,
    /// What it took to receive it.
    pub(super) cost: FrameCost,
}

/// What it took to receive a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCost {
    /// Bytes that came over the link for it, header included, without what TLS adds.
    pub wire_bytes: usize,
    /// Time spent on decompression; zero when the body was not compressed.
    pub decompression: Duration,
}

/// Takes the next frame from `input`; `None` when its end has not come.
///
/// # Errors
/// When the bytes are no frame; nothing that follows can be read then.
pub(super) fn decode(input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(mut header) = input.get(..HEADER_BYTES) else { return Ok(None) };
    let before_crc = input.get(..12).unwrap_or_default();
    let sent = header.get_u32_le() as usize;
    let length = header.get_u32_le() as usize;
    let kind = header.get_u8();
    let flags = header.get_u8();
    let zero = header.get_u16_le();
    let crc = header.get_u32_le();
    if sent.max(length) > BODY_BYTES_MAX {
        return Err(FrameError::TooLong(sent.max(length)));
    }
    if flags & !FLAG_LZ4 != 0 || zero != 0 || (flags == 0 && sent != length) {
        return Err(FrameError::Flags(flags));
    }
    let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + sent) else { return Ok(None) };
    if crc32c::crc32c_append(crc32c::crc32c(before_crc), body) != crc {
        return Err(FrameError::Checksum);
    }
    let packed = flags & FLAG_LZ4 != 0;
    let (body, decompression) = match packed.then(Instant::now) {
        Some(began) => (Some(unpack(body, length)?), began.elapsed()),
        None => (None, Duration::ZERO),
    };
    input.advance(HEADER_BYTES);
    let plain = input.split_to(sent).freeze();
    let cost = FrameCost { wire_bytes: HEADER_BYTES + sent, decompression };
    Ok(Some(Frame { kind, body: body.unwrap_or(plain), cost }))
}

/// How many more bytes the first frame of `input` lacks: as many are worth reserving.
pub(super) fn missing(input: &[u8]) -> usize {
    let sent = input.get(..4).map_or(0, |mut length| length.get_u32_le() as usize);
    (HEADER_BYTES + sent.min(BODY_BYTES_MAX)).saturating_sub(input.len())
}

fn unpack(body: &[u8], length: usize) -> Result<Bytes, FrameError> {
    let mut plain = vec![0; length];
    match lz4_flex::block::decompress_into(body, &mut plain) {
        Ok(bytes) if bytes == length => Ok(Bytes::from(plain)),
        Ok(_) | Err(_) => Err(FrameError::Compression),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(encoder: &mut Encoder, kind: u8, body: FrameBody) -> BytesMut {
        let mut pieces: Vec<Bytes> = Vec::new();
        let bytes = encoder.encode(kind, body, &mut pieces);
        let joined = pieces.concat();
        assert_eq!(joined.len(), bytes);
        BytesMut::from(&joined[..])
    }

    /// Bytes that do not shrink, the same each time.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        towline_types::SeededRandom::new(1).fill(&mut noise);
        noise
    }

    #[test]
    fn a_frame_comes_back_whole_whatever_its_pieces() {
        let text = b"the quick brown fox ".repeat(100);
        let parts = vec![Bytes::from(text.clone()), Bytes::new(), Bytes::from(noise(50))];
        for threshold in [0, 1, 1 << 20] {
            let mut encoder = Encoder::new(threshold);
            let body = FrameBody { head: vec![7; 30], parts: parts.clone() };
            let expected = [vec![7; 30], text.clone(), noise(50)].concat();
            let mut input = frames(&mut encoder, 9, body);
            assert_eq!(input.len() < expected.len() / 2, threshold == 1);
            let frame = decode(&mut input).unwrap().unwrap();
            assert_eq!((frame.kind, &frame.body[..]), (9, &expected[..]));
            assert!(input.is_empty());
        }
        let mut empty = frames(&mut Encoder::new(1), 0, FrameBody::default());
        assert_eq!(decode(&mut empty).unwrap().unwrap().body.len(), 0);
    }

    #[test]
    fn a_frame_of_which_a_byte_lacks_is_waited_for() {
        let whole = frames(&mut Encoder::new(1), 1, FrameBody::from(vec![5; 1_000]));
        for end in 0..whole.len() {
            let mut some = BytesMut::from(&whole[..end]);
            assert_eq!(decode(&mut some), Ok(None));
            assert_eq!(some.len(), end);
            if end >= 4 {
                assert_eq!(missing(&some), whole.len() - end);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for threshold in [0, 1] {
            let body = FrameBody::from(b"abcabcabcabcabcabcabcabcabcabc".to_vec());
            let whole = frames(&mut Encoder::new(threshold), 3, body);
            for bit in 0..whole.len() * 8 {
                let mut bad = whole.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let result = decode(&mut bad);
                assert!(matches!(result, Ok(None) | Err(_)), "bit {bit}: {result:?}");
            }
        }
    }

    #[test]
    fn a_frame_that_says_it_is_too_long_is_refused_before_its_body() {
        let most = u32::try_from(BODY_BYTES_MAX).unwrap();
        for (sent, length) in [(most + 1, most + 1), (1, most + 1), (u32::MAX, 1)] {
            let mut input = BytesMut::new();
            input.extend_from_slice(&sent.to_le_bytes());
            input.extend_from_slice(&length.to_le_bytes());
            input.extend_from_slice(&[0; 8]);
            assert!(matches!(decode(&mut input), Err(FrameError::TooLong(_))));
        }
    }

    #[test]
    fn a_body_that_does_not_unpack_to_its_length_is_refused() {
        let plain = vec![1; 200];
        let packed = lz4_flex::block::compress(&plain);
        for length in [0, 1, 199, 201, 100_000] {
            let mut input = BytesMut::new();
            input.extend_from_slice(&header(1, FLAG_LZ4, [packed.len(), length], &[&packed]));
            input.extend_from_slice(&packed);
            assert_eq!(decode(&mut input), Err(FrameError::Compression));
        }
    }

    #[test]
    fn what_does_not_shrink_is_soon_left_alone_and_tried_again_later() {
        let mut encoder = Encoder::new(64);
        let noise = FrameBody::from(noise(1_000));
        for _ in 0..FAILURES_MAX {
            assert_eq!(encoder.skip, 0);
            frames(&mut encoder, 1, noise.clone());
        }
        let text = || FrameBody::from(vec![b'x'; 1_000]);
        for _ in 0..SKIPPED {
            assert_eq!(frames(&mut encoder, 1, text()).len(), 1_000 + HEADER_BYTES);
        }
        assert!(frames(&mut encoder, 1, text()).len() < 100, "its time has come again");
        assert_eq!(encoder.failures, 0);
        assert!(encoder.take_spent() > Duration::ZERO);
        assert_eq!(encoder.take_spent(), Duration::ZERO);
    }

    #[test]
    fn after_one_more_failure_the_next_pause_follows_at_once() {
        let mut encoder = Encoder::new(64);
        let noise = FrameBody::from(noise(1_000));
        for _ in 0..FAILURES_MAX + SKIPPED + 1 {
            frames(&mut encoder, 1, noise.clone());
        }
        assert_eq!(encoder.skip, SKIPPED);
    }

    #[test]
    fn the_beginning_of_a_large_body_decides_whether_the_rest_is_tried() {
        let mut encoder = Encoder::new(64);
        let body = [noise(SAMPLE_BYTES), vec![0; 1_000_000]].concat();
        assert!(frames(&mut encoder, 1, FrameBody::from(body.clone())).len() > body.len());
        let body = [vec![0; 1_000_000], noise(SAMPLE_BYTES)].concat();
        assert!(frames(&mut encoder, 1, FrameBody::from(body)).len() < 50_000);
    }

    #[test]
    fn hostile_bytes_never_break_the_decoder() {
        let noise = noise(4_096);
        for start in 0..noise.len() - HEADER_BYTES {
            let mut input = BytesMut::from(&noise[start..]);
            input[2..4].fill(0);
            input[6..8].fill(0);
            let result = decode(&mut input);
            assert!(matches!(result, Ok(None) | Err(_)), "{result:?}");
        }
    }
}
