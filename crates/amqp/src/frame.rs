//! Frames and protocol headers (AMQP 2.2, 2.3): where a frame begins and ends.
//!
//! ```text
//!   offset  width  frame header, big-endian
//!        0      4  SIZE of the whole frame
//!        4      1  DOFF: start of the body, in words of four bytes; at least 2
//!        5      1  TYPE: 0 AMQP, 1 SASL
//!        6      2  channel (AMQP) or nothing (SASL)
//!        8      -  extended header up to DOFF * 4, ignored; then the body
//! ```
//!
//! Not here: what a body says. Invariant: a frame larger than the limit is refused from its first
//! four bytes, before any of it is buffered for it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of the smallest frame: the header alone.
pub const FRAME_HEADER_BYTES: usize = 8;
/// Bytes of a protocol header.
pub const PROTOCOL_HEADER_BYTES: usize = 8;

/// What a connection speaks next (AMQP 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// AMQP 1.0.0 frames.
    Amqp,
    /// A TLS handshake (2); we offer TLS on a port of its own and refuse this.
    Tls,
    /// A SASL exchange (3).
    Sasl,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A performative, or nothing.
    Amqp,
    /// A SASL frame body.
    Sasl,
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameKind,
    /// Its channel; 0 in SASL frames.
    pub channel: u16,
    /// Performative and payload; empty in a frame that only shows life.
    pub body: Bytes,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the whole frame, at least 8.
    pub size: usize,
    /// Where the body starts, at most `size`.
    pub body_offset: usize,
    /// What it carries.
    pub kind: FrameKind,
    /// Its channel; 0 in SASL frames.
    pub channel: u16,
}

/// Why bytes are not a frame or a protocol header. On the wire: `amqp:connection:framing-error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Larger than the limit that applies.
    TooLarge {
        /// What the frame claims, in bytes.
        size: u32,
        /// What is allowed, in bytes.
        size_max: u32,
    },
    /// Smaller than its own header.
    TooSmall(u32),
    /// A data offset below 2, or past the end.
    DataOffset(u8),
    /// A type that is neither AMQP nor SASL.
    Kind(u8),
    /// Not `AMQP` 1.0.0, or a protocol id that we do not know.
    Protocol([u8; PROTOCOL_HEADER_BYTES]),
}

impl fmt::Display for FrameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::TooLarge { size, size_max } => {
                write!(out, "frame of {size} bytes, at most {size_max} are allowed")
            }
            FrameError::TooSmall(size) => write!(out, "frame of {size} bytes has no header"),
            FrameError::DataOffset(words) => write!(out, "data offset of {words} words"),
            FrameError::Kind(kind) => write!(out, "frame of type {kind}"),
            // A record of TLS: an alert or a hello (RFC 8446, 5.1).
            FrameError::Protocol([0x15 | 0x16, 0x03, ..]) => out
                .write_str("this port of the other side uses TLS: use amqps:// instead of amqp://"),
            FrameError::Protocol(header) => {
                write!(out, "not AMQP 1.0: its first bytes are {}", header.escape_ascii())
            }
        }
    }
}

impl std::error::Error for FrameError {}

impl Protocol {
    /// The eight bytes that announce it.
    #[must_use]
    pub const fn header(self) -> [u8; PROTOCOL_HEADER_BYTES] {
        match self {
            Protocol::Amqp => *b"AMQP\x00\x01\x00\x00",
            Protocol::Tls => *b"AMQP\x02\x01\x00\x00",
            Protocol::Sasl => *b"AMQP\x03\x01\x00\x00",
        }
    }

    /// Takes a protocol header off the front; `None` when it is not complete. Bytes that cannot
    /// become one are refused as soon as they show.
    ///
    /// # Errors
    /// When it is another protocol or version.
    pub fn take(input: &mut BytesMut) -> Result<Option<Protocol>, FrameError> {
        let seen = input.get(..PROTOCOL_HEADER_BYTES).unwrap_or(input);
        for protocol in [Protocol::Amqp, Protocol::Sasl, Protocol::Tls] {
            if seen == protocol.header() {
                input.advance(PROTOCOL_HEADER_BYTES);
                return Ok(Some(protocol));
            }
            if protocol.header().starts_with(seen) {
                return Ok(None);
            }
        }
        let mut shown = [0; PROTOCOL_HEADER_BYTES];
        shown.iter_mut().zip(seen).for_each(|(to, from)| *to = *from);
        Err(FrameError::Protocol(shown))
    }
}

impl FrameHeader {
    /// Reads a header at the front; `None` when it is not complete. A size over `size_max` is
    /// refused as soon as the first four bytes are there.
    ///
    /// # Errors
    /// When it is not a frame, or too large.
    #[inline]
    pub fn parse(input: &[u8], size_max: u32) -> Result<Option<FrameHeader>, FrameError> {
        let Some(size) = input.first_chunk() else { return Ok(None) };
        let size = u32::from_be_bytes(*size);
        if size > size_max {
            return Err(FrameError::TooLarge { size, size_max });
        }
        if size < 8 {
            return Err(FrameError::TooSmall(size));
        }
        let Some([_, _, _, _, words, kind, channel @ ..]) = input.first_chunk::<8>() else {
            return Ok(None);
        };
        let body_offset = usize::from(*words).saturating_mul(4);
        let size = usize::try_from(size).map_err(|_| FrameError::TooLarge { size, size_max })?;
        if *words < 2 || body_offset > size {
            return Err(FrameError::DataOffset(*words));
        }
        let (kind, channel) = match kind {
            0 => (FrameKind::Amqp, u16::from_be_bytes(*channel)),
            1 => (FrameKind::Sasl, 0),
            other => return Err(FrameError::Kind(*other)),
        };
        Ok(Some(FrameHeader { size, body_offset, kind, channel }))
    }
}

impl Frame {
    /// Takes a whole frame off the front without copying it; `None` when it is not complete (how
    /// many bytes it wants in all is then in the header, if that is complete).
    ///
    /// # Errors
    /// When it is not a frame, or larger than `size_max` bytes.
    pub fn take(input: &mut BytesMut, size_max: u32) -> Result<Option<Frame>, FrameError> {
        let Some(header) = FrameHeader::parse(input, size_max)? else { return Ok(None) };
        if input.len() < header.size {
            return Ok(None);
        }
        let mut body = input.split_to(header.size);
        body.advance(header.body_offset);
        Ok(Some(Frame { kind: header.kind, channel: header.channel, body: body.freeze() }))
    }
}

/// Appends a frame; `write_body` appends its body. `payload_bytes` bytes follow it on the wire
/// that are not copied here (the payload of a transfer); the frame's size counts them.
///
/// # Panics
/// When the frame comes out at 4 GiB or more.
pub fn encode(
    out: &mut BytesMut,
    kind: FrameKind,
    channel: u16,
    payload_bytes: usize,
    write_body: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    let kind = match kind {
        FrameKind::Amqp => 0,
        FrameKind::Sasl => 1,
    };
    out.put_slice(&[0, 0, 0, 0, 2, kind]);
    out.put_u16(channel);
    write_body(out);
    let size = u32::try_from(out.len().saturating_sub(start).saturating_add(payload_bytes));
    assert!(size.is_ok(), "a frame of 4 GiB or more");
    if let (Ok(size), Some(at_size)) =
        (size, out.get_mut(start..).and_then(<[u8]>::first_chunk_mut))
    {
        *at_size = size.to_be_bytes();
    }
}

/// Appends the frame without a body that shows that we live (AMQP 2.4.5).
pub fn encode_empty(out: &mut BytesMut) {
    encode(out, FrameKind::Amqp, 0, 0, |_| {});
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "the bytes are the tests' own")]
mod tests;
