//! The first 32 bytes of every body: its producer, its number in order, and its time.
//!
//! ```text
//! 0        4      8          12         16          24          32
//! | "TWLD" | run  | producer | reserved | sequence  | put at us |   big-endian
//! ```
//!
//! The run number keeps messages apart that an earlier run left behind. `put at` is microseconds
//! since the Unix epoch on the clock of the producer's machine.

use towline_types::Time;

/// Length of a stamp, and so the smallest body.
pub(crate) const STAMP_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"TWLD";

/// Names one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Of the run that put it; drawn at random.
    pub(crate) run: u32,
    /// Number of the producer in its run.
    pub(crate) producer: u32,
    /// Number of the message of its producer, from 0 without gaps.
    pub(crate) sequence: u64,
    /// When it was given to the socket.
    pub(crate) put_at: Time,
}

impl Stamp {
    /// The bytes.
    pub(crate) fn encode(self) -> [u8; STAMP_BYTES] {
        let mut out = [0; STAMP_BYTES];
        let fields: [&[u8]; 6] = [
            &MAGIC,
            &self.run.to_be_bytes(),
            &self.producer.to_be_bytes(),
            &[0; 4],
            &self.sequence.to_be_bytes(),
            &self.put_at.0.to_be_bytes(),
        ];
        for (to, from) in out.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        out
    }

    /// Reads the stamp at the start of a body; `None` for a body that the harness did not make.
    pub(crate) fn decode(body: &[u8]) -> Option<Stamp> {
        let (magic, rest) = body.split_first_chunk::<4>()?;
        let (run, rest) = rest.split_first_chunk::<4>()?;
        let (producer, rest) = rest.split_first_chunk::<4>()?;
        let (_, rest) = rest.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (put_at, _) = rest.split_first_chunk::<8>()?;
        (*magic == MAGIC).then(|| Stamp {
            run: u32::from_be_bytes(*run),
            producer: u32::from_be_bytes(*producer),
            sequence: u64::from_be_bytes(*sequence),
            put_at: Time(u64::from_be_bytes(*put_at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_comes_back_as_it_was() {
        let stamp = Stamp { run: 7, producer: 3, sequence: 1 << 40, put_at: Time(99) };
        assert_eq!(Stamp::decode(&stamp.encode()), Some(stamp));
    }

    #[test]
    fn foreign_and_short_bodies_have_no_stamp() {
        assert_eq!(Stamp::decode(b"hello"), None);
        assert_eq!(Stamp::decode(&[0; 64]), None);
    }
}
