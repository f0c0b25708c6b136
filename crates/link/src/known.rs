//! What a hello says of starts: which process says it, which starts of the others it has noted, and
//! what it heard the receiver promise. All numbers are little-endian.
//!
//! ```text
//!   0 16  start of the sender's process: number 8, nonce 8 (0: it takes no part)
//!  16  1  number of noted starts, at most 4
//!  17 17  of each: member 1, number 8, nonce 8
//!  ..  8  newest term in which the receiver said something to the sender's process
//!      8  index of a committed batch that it acknowledged; 8  its term
//! ```
//!
//! Not here: what follows from it (`towline_group::starts`, `towline_group::Witness`).

use bytes::{Buf, BufMut};
use towline_group::{MemberId, Start, Starts, Witness};
use towline_types::fitting;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartsReport {
    /// Of the process that says it; none when it takes no part, or says nothing of starts.
    pub start: Start,
    /// Starts of other members, the receiver among them, that it has noted.
    pub noted: Vec<(MemberId, Start)>,
    /// What it heard the receiver promise.
    pub witness: Witness,
}

impl StartsReport {
    /// Appends its bytes.
    pub fn encode(&self, body: &mut Vec<u8>) {
        put_start(body, self.start);
        let noted = self.noted.iter().take(Starts::SAID_MAX);
        body.put_u8(fitting(noted.len()));
        for (member, start) in noted {
            body.put_u8(fitting(member.0));
            put_start(body, *start);
        }
        let Witness { term, index, index_term } = self.witness;
        [term, index, index_term].iter().for_each(|number| body.put_u64_le(*number));
    }

    /// Takes it from the front of `body`; `None` when that is not one.
    #[must_use]
    pub fn decode(body: &mut &[u8]) -> Option<StartsReport> {
        let start = start(body)?;
        let count = usize::from(body.try_get_u8().ok()?);
        if count > Starts::SAID_MAX {
            return None;
        }
        let mut noted = Vec::with_capacity(count);
        for _ in 0..count {
            let member = MemberId(u64::from(body.try_get_u8().ok()?));
            noted.push((member, self::start(body)?));
        }
        let witness = Witness {
            term: body.try_get_u64_le().ok()?,
            index: body.try_get_u64_le().ok()?,
            index_term: body.try_get_u64_le().ok()?,
        };
        Some(StartsReport { start, noted, witness })
    }

    #[cfg(test)]
    pub(super) fn of_test() -> StartsReport {
        let start = |number, nonce| Start { number, nonce };
        let noted = vec![(MemberId(2), start(u64::MAX, 1)), (MemberId(3), start(5, 6))];
        let witness = Witness { term: 7, index: 1 << 50, index_term: 6 };
        StartsReport { start: start(3, 1 << 60), noted, witness }
    }
}

/// A start, as it is said and declared.
pub(super) fn put_start(body: &mut Vec<u8>, start: Start) {
    body.put_u64_le(start.number);
    body.put_u64_le(start.nonce);
}

pub(super) fn start(body: &mut &[u8]) -> Option<Start> {
    Some(Start { number: body.try_get_u64_le().ok()?, nonce: body.try_get_u64_le().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_and_cut_bytes_or_too_many_are_refused() {
        for known in [StartsReport::default(), StartsReport::of_test()] {
            let mut bytes = Vec::new();
            known.encode(&mut bytes);
            assert_eq!(StartsReport::decode(&mut bytes.as_slice()), Some(known));
            for length in 0..bytes.len() {
                assert_eq!(StartsReport::decode(&mut &bytes[..length]), None, "{length} bytes");
            }
            bytes[16] = 5;
            bytes.resize(200, 0);
            assert_eq!(StartsReport::decode(&mut bytes.as_slice()), None);
        }
    }
}
