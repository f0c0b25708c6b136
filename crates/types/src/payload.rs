//! Bytes on their way from a socket to the log, without a copy in between.

use bytes::{BufMut, Bytes, BytesMut};

/// The bytes of one message in the pieces in which they came (one piece for each transfer frame).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Payload {
    /// No bytes at all.
    #[default]
    Empty,
    /// The ordinary case: the message came in one frame.
    One(Bytes),
    /// A large message, frame by frame.
    Many(Vec<Bytes>),
}

impl Payload {
    /// Length of all pieces together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there is no byte in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Payload::Empty => &[],
            Payload::One(piece) => std::slice::from_ref(piece),
            Payload::Many(pieces) => pieces,
        }
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        *self = match std::mem::take(self) {
            Payload::Empty => Payload::One(piece),
            Payload::One(first) => Payload::Many(vec![first, piece]),
            Payload::Many(mut pieces) => {
                pieces.push(piece);
                Payload::Many(pieces)
            }
        };
    }

    /// Drops the first `count` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, mut count: usize) {
        let mut rest = Payload::Empty;
        for piece in self.pieces() {
            let skip = count.min(piece.len());
            count -= skip;
            rest.push(piece.slice(skip..));
        }
        assert_eq!(count, 0, "advanced past the end of a payload");
        *self = rest;
    }

    /// All bytes in one piece of their own: the read buffer that they came in is let go.
    #[must_use]
    pub fn to_owned_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.len());
        for piece in self.pieces() {
            whole.put_slice(piece);
        }
        whole.freeze()
    }

    /// All bytes in one piece, without a copy when they are in one piece already.
    #[must_use]
    pub fn to_contiguous(&self) -> Bytes {
        match self {
            Payload::Empty => Bytes::new(),
            Payload::One(piece) => piece.clone(),
            Payload::Many(_) => self.to_owned_bytes(),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(piece: Bytes) -> Payload {
        if piece.is_empty() { Payload::Empty } else { Payload::One(piece) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_over_a_piece_boundary_keeps_the_rest() {
        let mut payload = Payload::from(Bytes::from_static(b"abc"));
        payload.push(Bytes::from_static(b"defg"));
        payload.advance(4);
        assert_eq!(payload.to_contiguous(), Bytes::from_static(b"efg"));
        assert_eq!(payload.len(), 3);
    }
}
