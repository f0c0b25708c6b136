//! The histories of a log in bytes, as one region says them to the other. In records and images of
//! a log they have other bytes (`core`).
//!
//! ```text
//! offset  bytes
//!  0       1      version, 1
//!  1       8 LE   histories that are not kept
//!  9       2 LE   histories that follow, 1,000 at most; each:
//!          2 LE     bytes of this one, from here to its end
//!         16        id
//!          1        0: it is the first of its log; 1: its parent follows
//!        [16]       parent
//!          8 LE     fork
//!          8 LE     began, microseconds since the Unix epoch
//!          1        bytes of the name of its live group, 1 to 48
//!                   name, UTF-8
//!                   what a later version says of it
//!                 what a later version says of all
//! ```
//! What a later version adds at the end of a history, or of all, is passed over: it does not change
//! what two chains say of two logs. What would change that has another version, and is refused.
//!
//! Causes are not said: they are for people, and in the status of their own region.
//!
//! Invariant: reading never panics and allocates no more than twice what came.

use std::fmt;

use crate::limits::HISTORIES_BYTES_MAX;
use crate::{Histories, History, HistoryFault, HistoryId, Lsn, Time};

const VERSION: u8 = 1;

/// Bytes that are not the histories of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryBytesError {
    /// They end too early.
    Short,
    /// More than were ever said.
    Long {
        /// How many.
        bytes: usize,
    },
    /// Of another version.
    Version(u8),
    /// The name of a group is no text, or what can only be 0 or 1 is neither.
    Malformed,
    /// They are no chain.
    Chain(HistoryFault),
}

impl fmt::Display for HistoryBytesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HistoryBytesError::Short => out.write_str("the histories of a log end too early"),
            HistoryBytesError::Long { bytes } => write!(
                out,
                "the histories of a log have {bytes} bytes: at most {HISTORIES_BYTES_MAX}"
            ),
            HistoryBytesError::Version(version) => write!(
                out,
                "the histories of a log are said in version {version}, this program reads {VERSION}"
            ),
            HistoryBytesError::Malformed => out.write_str("a history is not one of ours"),
            HistoryBytesError::Chain(fault) => write!(out, "the histories are no chain: {fault}"),
        }
    }
}

impl std::error::Error for HistoryBytesError {}

impl Histories {
    /// Their bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.folded().to_le_bytes());
        put_length(self.iter().len(), &mut out);
        for history in self.iter() {
            let bytes = bytes_of(history);
            put_length(bytes.len(), &mut out);
            out.extend_from_slice(&bytes);
        }
        assert!(out.len() <= HISTORIES_BYTES_MAX, "histories of {} bytes", out.len());
        out
    }

    /// Reads them; causes are empty.
    ///
    /// # Errors
    /// They are not the histories of a log, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Histories, HistoryBytesError> {
        if bytes.len() > HISTORIES_BYTES_MAX {
            return Err(HistoryBytesError::Long { bytes: bytes.len() });
        }
        let mut rest = Rest(bytes);
        match rest.array()? {
            [VERSION] => {}
            [other] => return Err(HistoryBytesError::Version(other)),
        }
        let folded = u64::from_le_bytes(rest.array()?);
        let count = rest.length()?;
        let mut kept = Vec::new();
        for _ in 0..count {
            let bytes = rest.length()?;
            kept.push(read_history(rest.take(bytes)?)?);
        }
        Histories::of(folded, kept).map_err(HistoryBytesError::Chain)
    }
}

fn bytes_of(history: &History) -> Vec<u8> {
    let History { id, parent, fork, live, began, cause: _ } = history;
    let mut out = id.0.to_vec();
    match parent {
        None => out.push(0),
        Some(parent) => {
            out.push(1);
            out.extend_from_slice(&parent.0);
        }
    }
    out.extend_from_slice(&fork.0.to_le_bytes());
    out.extend_from_slice(&began.0.to_le_bytes());
    let length = u8::try_from(live.len()).unwrap_or(u8::MAX);
    assert_eq!(usize::from(length), live.len(), "the name of a group has a bound");
    out.push(length);
    out.extend_from_slice(live.as_bytes());
    out
}

fn read_history(bytes: &[u8]) -> Result<History, HistoryBytesError> {
    let mut rest = Rest(bytes);
    let id = HistoryId(rest.array()?);
    let parent = match rest.array()? {
        [0] => None,
        [1] => Some(HistoryId(rest.array()?)),
        [_] => return Err(HistoryBytesError::Malformed),
    };
    let fork = Lsn(u64::from_le_bytes(rest.array()?));
    let began = Time(u64::from_le_bytes(rest.array()?));
    let [length] = rest.array()?;
    let live = std::str::from_utf8(rest.take(length.into())?);
    let live = live.map_err(|_| HistoryBytesError::Malformed)?.to_owned();
    Ok(History { id, parent, fork, live, began, cause: String::new() })
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    let short = u16::try_from(length).unwrap_or(u16::MAX);
    assert_eq!(usize::from(short), length, "what has a length here is short");
    out.extend_from_slice(&short.to_le_bytes());
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], HistoryBytesError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(HistoryBytesError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], HistoryBytesError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(HistoryBytesError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn length(&mut self) -> Result<usize, HistoryBytesError> {
        Ok(usize::from(u16::from_le_bytes(self.array()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;
    use crate::limits::{GROUP_NAME_BYTES_MAX, HISTORIES_MAX};

    fn id(number: usize) -> HistoryId {
        HistoryId((number as u128 + 1).to_le_bytes())
    }

    fn chain(count: usize, name: usize) -> Histories {
        let mut histories = Histories::default();
        for number in 0..count {
            let parent = number.checked_sub(1).map(id);
            let (fork, live) = (Lsn(number as u64), "g".repeat(name));
            let history = History {
                id: id(number),
                parent,
                fork,
                live,
                began: Time(9),
                cause: String::new(),
            };
            histories.push(history).unwrap();
        }
        histories
    }

    #[test]
    fn the_bytes_of_histories_do_not_change() {
        let bytes = chain(2, 1).folded_to(1).to_bytes();
        let mut wanted = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 51, 0];
        wanted.extend_from_slice(&id(1).0);
        wanted.push(1);
        wanted.extend_from_slice(&id(0).0);
        wanted.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, b'g']);
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn histories_come_back_from_their_bytes_without_their_causes() {
        for count in [0, 1, 2, HISTORIES_MAX, HISTORIES_MAX + 7] {
            let histories = chain(count, GROUP_NAME_BYTES_MAX);
            let bytes = histories.to_bytes();
            assert_eq!(Histories::from_bytes(&bytes), Ok(histories), "{count}");
        }
        let mut one = Histories::default();
        let cause = "moved for the test".to_owned();
        let first = History { cause, ..chain(1, 4).newest().unwrap().clone() };
        one.push(first).unwrap();
        assert_eq!(Histories::from_bytes(&one.to_bytes()), Ok(chain(1, 4)));
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over_and_another_version_is_refused() {
        let mut bytes = chain(1, 1).to_bytes();
        bytes.extend_from_slice(b"more of all");
        assert_eq!(Histories::from_bytes(&bytes), Ok(chain(1, 1)));
        let more = b"more of one";
        let mut bytes = chain(1, 1).to_bytes();
        bytes[11] += u8::try_from(more.len()).unwrap();
        bytes.extend_from_slice(more);
        assert_eq!(Histories::from_bytes(&bytes), Ok(chain(1, 1)));
        bytes[0] = 2;
        assert_eq!(Histories::from_bytes(&bytes), Err(HistoryBytesError::Version(2)));
    }

    #[test]
    fn what_is_cut_too_long_or_no_chain_is_refused() {
        let bytes = chain(3, 4).to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Histories::from_bytes(&bytes[..length]), Err(HistoryBytesError::Short));
        }
        let long = vec![1; HISTORIES_BYTES_MAX + 1];
        let refused = Err(HistoryBytesError::Long { bytes: long.len() });
        assert_eq!(Histories::from_bytes(&long), refused);
        let mut other = bytes.clone();
        other[13] ^= 1;
        let refused = Err(HistoryBytesError::Chain(HistoryFault::Parent));
        assert_eq!(Histories::from_bytes(&other), refused);
        let mut neither = bytes;
        neither[29] = 2;
        assert_eq!(Histories::from_bytes(&neither), Err(HistoryBytesError::Malformed));
    }

    #[test]
    fn hostile_bytes_are_refused_or_are_the_histories_of_a_log() {
        let seed = std::env::var("TOWLINE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(20_261_127);
        println!("TOWLINE_SEED={seed}");
        let mut random = SeededRandom::new(seed);
        let good = chain(4, 3).to_bytes();
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..=random.below(3) {
                let at = random.index(bytes.len());
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(random.index(2 * bytes.len()));
            if let Ok(histories) = Histories::from_bytes(&bytes) {
                let again = Histories::from_bytes(&histories.to_bytes());
                assert_eq!(again, Ok(histories));
            }
        }
    }
}
