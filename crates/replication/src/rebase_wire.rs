//! What goes over a stream for a copy between two regions besides the copy. All numbers are
//! little-endian.
//!
//! ```text
//! giver   head of the copy (`towline_backup`)
//! taker   an answer: from which point of it it wants the rest, or why not
//! giver   8  from which byte behind the head it goes on: that of the answer, or 0
//!         the copy from there on
//! taker   meanwhile, an answer for each file that is on its disk; at last that all of it is whole
//!
//! an answer
//!   0  1  1 it has so much  2 no space  3 that is on its disk  4 whole  5 it has more than the copy
//!   1  8  bytes behind the head (1, 3); bytes that are needed (2)
//!   9  8  CRC-32C of those bytes (1); bytes that are free (2)
//! ```
//!
//! Not here: which side opens the stream (`towline_link`). Invariant: an answer that is not known
//! here is an error.

use std::io::{self, ErrorKind, Read, Write};

use towline_backup::CopyPoint;

/// Bytes of an answer.
pub(crate) const ANSWER_BYTES: usize = 17;

/// What the taker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebaseAnswer {
    /// It has this copy up to here.
    HasBegun(CopyPoint),
    /// Its disk has too little free space.
    NoRoom {
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
    },
    /// This is on its disk.
    Keeps(u64),
    /// All of it came, and was checked.
    Whole,
    /// Its log goes further than the copy.
    HasMore,
}

impl RebaseAnswer {
    pub(crate) fn encode(self) -> [u8; ANSWER_BYTES] {
        let (kind, one, other) = match self {
            RebaseAnswer::HasBegun(point) => (1, point.done, u64::from(point.sum)),
            RebaseAnswer::NoRoom { needed, free } => (2, needed, free),
            RebaseAnswer::Keeps(done) => (3, done, 0),
            RebaseAnswer::Whole => (4, 0, 0),
            RebaseAnswer::HasMore => (5, 0, 0),
        };
        let mut bytes = [0; ANSWER_BYTES];
        let fields = [&[kind][..], &u64::to_le_bytes(one), &u64::to_le_bytes(other)].concat();
        bytes.copy_from_slice(&fields);
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn decode(bytes: [u8; ANSWER_BYTES]) -> io::Result<RebaseAnswer> {
        let wrong = || io::Error::new(ErrorKind::InvalidData, "its answer is not understood");
        let [kind, numbers @ ..] = bytes;
        let (one, other) = numbers.split_first_chunk::<8>().ok_or_else(wrong)?;
        let one = u64::from_le_bytes(*one);
        let other = u64::from_le_bytes(*other.first_chunk().ok_or_else(wrong)?);
        Ok(match kind {
            1 => {
                let sum = u32::try_from(other).map_err(|_| wrong())?;
                RebaseAnswer::HasBegun(CopyPoint { done: one, sum })
            }
            2 => RebaseAnswer::NoRoom { needed: one, free: other },
            3 => RebaseAnswer::Keeps(one),
            4 => RebaseAnswer::Whole,
            5 => RebaseAnswer::HasMore,
            _ => return Err(wrong()),
        })
    }

    /// Writes one.
    ///
    /// # Errors
    /// What the stream said.
    pub(crate) fn say(self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.encode())?;
        to.flush()
    }
}

/// Reads from which byte the giver goes on.
///
/// # Errors
/// What the stream said.
pub(crate) fn read_from(from: &mut dyn Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_and_one_of_an_unknown_kind_is_an_error() {
        let point = CopyPoint { done: 7, sum: u32::MAX };
        for answer in [
            RebaseAnswer::HasBegun(point),
            RebaseAnswer::NoRoom { needed: u64::MAX, free: 3 },
            RebaseAnswer::Keeps(9),
            RebaseAnswer::Whole,
            RebaseAnswer::HasMore,
        ] {
            assert_eq!(RebaseAnswer::decode(answer.encode()).unwrap(), answer);
        }
        for kind in [0, 6, 255] {
            let mut bytes = [0; ANSWER_BYTES];
            bytes[0] = kind;
            assert!(RebaseAnswer::decode(bytes).is_err());
        }
        let mut long_sum = RebaseAnswer::HasBegun(point).encode();
        long_sum[13] = 1;
        assert!(RebaseAnswer::decode(long_sum).is_err());
    }
}
