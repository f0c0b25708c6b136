//! Bytes on their way to the socket, in order. Small frames are gathered in one buffer; the bodies
//! of large messages are passed on by reference, for a vectored write.
//!
//! Invariant: nothing but headers, SASL frames and the open frame leaves before our open did,
//! however early the driver answered a pipelining peer.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use towline_types::{Payload, limits};

use crate::codec::Composite;
use crate::frame::{self, FRAME_HEADER_BYTES, FrameKind};
use crate::types::{SaslFrame, Transfer};

/// A piece of a body of at least this many bytes is passed by reference.
const REFERENCE_BYTES_MIN: usize = 1_024;
/// Size of the buffer in which small frames are gathered.
const BLOCK_BYTES: usize = 16 * 1_024;
/// Space reserved for a frame header and a transfer performative.
const TRANSFER_BYTES: usize = 256;
/// Longest frame header and performative of a transfer with one of our own tags and no state: 8
/// bytes, 12 for descriptor and list, 10 for the tag, at most 5 for each of six other fields.
const TRANSFER_HEAD_BYTES_MAX: usize = 64;
/// We send no longer frames even if the peer takes them: other links shall have their turn.
const FRAME_BYTES_MAX: usize = 1_048_576;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Output {
    front: BytesMut,
    open: bool,
    pieces: VecDeque<Bytes>,
    pieces_bytes: usize,
    tail: BytesMut,
    frame_bytes_max: usize,
}

/// The content of one delivery, as far as it is not yet sent.
#[derive(Debug)]
pub(crate) struct Body {
    prefix: Bytes,
    content: Payload,
    /// Piece of `content` in which we stand.
    piece: usize,
    /// Bytes of that piece already sent.
    offset: usize,
    remaining: usize,
}

impl Body {
    pub(crate) fn new(prefix: Bytes, content: Payload) -> Body {
        let remaining = prefix.len().saturating_add(content.len());
        Body { prefix, content, piece: 0, offset: 0, remaining }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.remaining
    }

    /// The next run of at most `count` bytes that lie together; empty only at the end.
    fn next(&mut self, count: usize) -> Bytes {
        let taken = if self.prefix.is_empty() {
            self.next_of_content(count)
        } else {
            self.prefix.split_to(count.min(self.prefix.len()))
        };
        self.remaining = self.remaining.saturating_sub(taken.len());
        taken
    }

    fn next_of_content(&mut self, count: usize) -> Bytes {
        let Some(piece) = self.content.pieces().get(self.piece) else { return Bytes::new() };
        let end = self.offset.saturating_add(count).min(piece.len());
        let taken = piece.slice(self.offset..end);
        if end == piece.len() {
            self.piece += 1;
            self.offset = 0;
        } else {
            self.offset = end;
        }
        taken
    }
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            front: BytesMut::new(),
            open: false,
            pieces: VecDeque::new(),
            pieces_bytes: 0,
            tail: BytesMut::new(),
            frame_bytes_max: limits::SASL_FRAME_BYTES_MAX as usize,
        }
    }

    /// Sets the peer's max-frame-size.
    pub(crate) fn set_frame_bytes_max(&mut self, bytes: u32) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.frame_bytes_max = bytes.clamp(limits::SASL_FRAME_BYTES_MAX as usize, FRAME_BYTES_MAX);
    }

    /// The peer's max-frame-size, as far as we make use of it.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Transfer frames of a delivery of so many bytes, at most.
    pub(crate) fn frames_max(&self, bytes: usize) -> u32 {
        let least = self.frame_bytes_max - TRANSFER_HEAD_BYTES_MAX;
        if bytes < least {
            return 1; // A division for each message would be felt.
        }
        u32::try_from(1 + bytes / least).unwrap_or(u32::MAX)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether `take` would give something.
    pub(crate) fn is_ready(&self) -> bool {
        !self.front.is_empty() || (self.open && !(self.pieces.is_empty() && self.tail.is_empty()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.front.len() + self.pieces_bytes + self.tail.len()
    }

    pub(crate) fn clear(&mut self) {
        self.front.clear();
        self.clear_frames();
    }

    /// Drops all that waits behind our open.
    pub(crate) fn clear_frames(&mut self) {
        self.pieces.clear();
        self.pieces_bytes = 0;
        self.tail.clear();
    }

    /// Writes a protocol header.
    pub(crate) fn header(&mut self, bytes: [u8; 8]) {
        assert!(!self.open, "a protocol header after the open frame");
        self.front.put_slice(&bytes);
    }

    /// Writes a SASL frame.
    pub(crate) fn sasl(&mut self, body: &SaslFrame) {
        assert!(!self.open, "a SASL frame after the open frame");
        frame::encode(&mut self.front, FrameKind::Sasl, 0, 0, |out| body.encode(out));
    }

    /// Writes our open frame and lets go what was held back.
    pub(crate) fn open(&mut self, body: &impl Composite) {
        assert!(!self.open, "a second open frame");
        put_frame(&mut self.front, 0, body);
        self.open = true;
    }

    /// Writes a frame that goes in one piece.
    pub(crate) fn frame(&mut self, channel: u16, body: &impl Composite) {
        self.make_room();
        put_frame(&mut self.tail, channel, body);
    }

    /// Writes an empty frame (AMQP 2.4.5).
    pub(crate) fn empty_frame(&mut self) {
        self.make_room();
        frame::encode_empty(&mut self.tail);
    }

    /// Writes one transfer frame with as much of `body` as fits, and sets `more` accordingly.
    pub(crate) fn transfer(&mut self, channel: u16, transfer: &mut Transfer, body: &mut Body) {
        self.make_room();
        let start = self.tail.len();
        put_header(&mut self.tail, channel);
        transfer.more = false;
        transfer.encode(&mut self.tail);
        let mut room = self.frame_bytes_max.saturating_sub(self.tail.len() - start);
        if body.remaining() > room {
            self.tail.truncate(start + FRAME_HEADER_BYTES);
            transfer.more = true;
            transfer.encode(&mut self.tail);
            room = self.frame_bytes_max.saturating_sub(self.tail.len() - start);
            assert!(room > 0, "a transfer performative fills a whole frame");
        }
        let mut count = room.min(body.remaining());
        set_size(&mut self.tail, start, count);
        while count > 0 {
            let piece = body.next(count);
            assert!(!piece.is_empty(), "a body shorter than its pieces");
            count -= piece.len();
            self.push(piece);
        }
    }

    fn push(&mut self, piece: Bytes) {
        if piece.len() < REFERENCE_BYTES_MIN {
            self.tail.extend_from_slice(&piece);
        } else {
            self.seal();
            self.pieces_bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Keeps the gathering buffer from growing by copies.
    fn make_room(&mut self) {
        if self.tail.capacity() - self.tail.len() < TRANSFER_BYTES {
            self.seal();
            self.tail.reserve(BLOCK_BYTES);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces_bytes += self.tail.len();
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    /// Moves pieces to `out` while they fit into `bytes_max` (the first one always); true when
    /// there was any.
    pub(crate) fn take(&mut self, out: &mut VecDeque<Bytes>, bytes_max: usize) -> bool {
        let mut taken = 0;
        if !self.front.is_empty() {
            taken += self.front.len();
            out.push_back(self.front.split().freeze());
        }
        if !self.open {
            return taken > 0;
        }
        self.seal();
        while let Some(piece) = self.pieces.pop_front() {
            if taken > 0 && taken + piece.len() > bytes_max {
                self.pieces.push_front(piece);
                break;
            }
            taken += piece.len();
            self.pieces_bytes -= piece.len();
            out.push_back(piece);
        }
        taken > 0
    }
}

/// The header of an AMQP frame; its size is still to come.
fn put_header(out: &mut BytesMut, channel: u16) {
    let [high, low] = channel.to_be_bytes();
    out.put_slice(&[0, 0, 0, 0, 2, 0, high, low]);
}

fn put_frame(out: &mut BytesMut, channel: u16, body: &impl Composite) {
    frame::encode(out, FrameKind::Amqp, channel, 0, |out| body.encode(out));
}

/// Fills in the size of the frame that began at `start`; `behind` more bytes follow.
fn set_size(out: &mut BytesMut, start: usize, behind: usize) {
    let size = u32::try_from(out.len() - start + behind).unwrap_or(u32::MAX);
    assert!(size < u32::MAX, "a frame of ours is at most one mebibyte long");
    if let Some(field) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
        *field = size.to_be_bytes();
    }
}
