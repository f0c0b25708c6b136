//! Messages between members, and their bytes. All numbers are little-endian.
//!
//! ```text
//!   0   1  kind (the library's number)
//!   1   1  bit 0: rejected
//!   2   2  bytes of context
//!   4   4  number of batches
//!   8   8  sender         16  8  receiver       24  8  term        32  8  term of the entry before
//!   40  8  index          48  8  committed      56  8  term of the committed entry
//!   64  8  hint of a rejection                   72  8  index of a copy, 80 8 its term (0: none)
//!   88  -  context, then of each batch: index, term, LSN (8 each), bytes (4); then the payloads
//! ```

use std::fmt;

use bytes::Bytes;
use raft::eraftpb::{Entry, Message as RaftMessage, MessageType};
use towline_types::{Batch, Lsn, fitting};

use crate::member_id::MemberId;

/// Bytes before the context.
const HEAD_BYTES: usize = 88;
/// Bytes that describe a batch.
const BATCH_BYTES: usize = 28;
/// The longest context that the library makes is far shorter.
const CONTEXT_BYTES_MAX: usize = 64;

/// A message from one member to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub(crate) inner: RaftMessage,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError(pub(crate) &'static str);

impl fmt::Display for WireError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "this is no message of a group: {}", self.0)
    }
}

impl std::error::Error for WireError {}

/// The greatest batch number and log position that a message may have. No log comes near it, and
/// what is calculated from a smaller one fits 64 bits.
const NUMBER_MAX: u64 = u64::MAX / 4;

impl Message {
    /// The sender.
    #[must_use]
    pub fn from(&self) -> MemberId {
        MemberId(self.inner.from)
    }

    /// The sender's term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.inner.term
    }

    /// Whether it must not wait behind batches: all but what carries them.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.inner.entries.is_empty()
    }

    /// Whether it only shows that the leader lives.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.inner.msg_type == MessageType::MsgHeartbeat
    }

    /// Index and term of the batch before those in it.
    pub(crate) fn behind(&self) -> (u64, u64) {
        (self.inner.index, self.inner.log_term)
    }

    /// The batches in it.
    pub fn batches(&self) -> impl Iterator<Item = Batch> {
        self.inner.entries.iter().map(|entry| Batch {
            index: entry.index,
            term: entry.term,
            lsn: lsn_of(entry),
            payload: entry.data.clone(),
        })
    }

    /// Bytes of batches in it.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.inner.entries.iter().map(|entry| entry.data.len()).sum()
    }

    /// Its bytes: what comes first, and the payloads that follow it, not copied.
    #[must_use]
    pub fn encode(&self) -> (Vec<u8>, Vec<Bytes>) {
        let message = &self.inner;
        let context = message.context.as_ref();
        assert!(context.len() <= CONTEXT_BYTES_MAX, "the library's contexts are short");
        let batches = message.entries.len();
        let mut head = Vec::with_capacity(HEAD_BYTES + context.len() + batches * BATCH_BYTES);
        let kind: u8 = fitting(message.msg_type as i32);
        head.extend_from_slice(&[kind, u8::from(message.reject)]);
        head.extend_from_slice(&fitting::<_, u16>(context.len()).to_le_bytes());
        head.extend_from_slice(&fitting::<_, u32>(batches).to_le_bytes());
        let copy = message.get_snapshot().get_metadata();
        for number in [
            message.from,
            message.to,
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.reject_hint,
            copy.index,
            copy.term,
        ] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        head.extend_from_slice(context);
        let mut payloads = Vec::with_capacity(batches);
        for entry in &message.entries {
            head.extend_from_slice(&entry.index.to_le_bytes());
            head.extend_from_slice(&entry.term.to_le_bytes());
            head.extend_from_slice(&lsn_of(entry).0.to_le_bytes());
            head.extend_from_slice(&fitting::<_, u32>(entry.data.len()).to_le_bytes());
            if !entry.data.is_empty() {
                payloads.push(entry.data.clone());
            }
        }
        (head, payloads)
    }

    /// Reads a message; payloads are slices of `bytes`.
    ///
    /// # Errors
    /// [`WireError`]: nothing of it was believed.
    pub fn decode(bytes: &Bytes) -> Result<Message, WireError> {
        let mut rest = bytes.clone();
        let [kind, flags, context0, context1] = take(&mut rest)?;
        let kind = kind_of(kind).ok_or(WireError("its kind is unknown"))?;
        if flags > 1 {
            return Err(WireError("its flags are unknown"));
        }
        let batches = u32::from_le_bytes(take(&mut rest)?) as usize;
        let mut number = || take(&mut rest).map(u64::from_le_bytes);
        let mut message = RaftMessage {
            msg_type: kind,
            reject: flags == 1,
            from: number()?,
            to: number()?,
            term: number()?,
            log_term: number()?,
            index: number()?,
            commit: number()?,
            commit_term: number()?,
            reject_hint: number()?,
            ..RaftMessage::default()
        };
        let copy_index = number()?;
        let copy_term = number()?;
        let indexes = [message.index, message.commit, message.reject_hint, copy_index];
        if indexes.into_iter().any(|index| index > NUMBER_MAX) {
            return Err(WireError("a batch number of it is out of range"));
        }
        // Only the position before the first batch has no term.
        let append = kind == MessageType::MsgAppend;
        if append && (message.log_term == 0) != (message.index == 0) {
            return Err(WireError("it names a batch without its term"));
        }
        if copy_index > 0 {
            let metadata = message.mut_snapshot().mut_metadata();
            (metadata.index, metadata.term) = (copy_index, copy_term);
        }
        let context = usize::from(u16::from_le_bytes([context0, context1]));
        if context > CONTEXT_BYTES_MAX {
            return Err(WireError("its context is too long"));
        }
        message.context = cut(&mut rest, context)?;
        let described = batches.checked_mul(BATCH_BYTES).ok_or(WireError("it is too short"))?;
        let mut heads = cut(&mut rest, described)?;
        let mut entries = Vec::with_capacity(batches);
        for _ in 0..batches {
            let index = u64::from_le_bytes(take(&mut heads)?);
            let term = u64::from_le_bytes(take(&mut heads)?);
            let context = cut(&mut heads, 8)?;
            if context.iter().all(|byte| *byte == 0) {
                return Err(WireError("a batch of it has no position"));
            }
            let data = cut(&mut rest, u32::from_le_bytes(take(&mut heads)?) as usize)?;
            let entry = Entry { index, term, context, data, ..Entry::default() };
            let before = entries.last().map_or(message.index, |entry: &Entry| entry.index);
            let term_before = entries.last().map_or(message.log_term, |entry: &Entry| entry.term);
            let ascends = before.checked_add(1) == Some(index) && term_before <= term;
            if !ascends || term > message.term {
                return Err(WireError("its batches do not follow each other"));
            }
            if lsn_of(&entry).0 > NUMBER_MAX {
                return Err(WireError("a position of it is out of range"));
            }
            entries.push(entry);
        }
        if !rest.is_empty() {
            return Err(WireError("it is too long"));
        }
        message.entries = entries.into();
        Ok(Message { inner: message })
    }
}

/// The position of an entry's batch. The sender puts it into the entry, and [`Message::decode`]
/// takes no entry without one.
///
/// # Panics
/// When the entry has none.
pub(crate) fn lsn_of(entry: &Entry) -> Lsn {
    let lsn =
        entry.context.as_ref().try_into().map_or(Lsn::ZERO, |lsn| Lsn(u64::from_le_bytes(lsn)));
    assert!(lsn > Lsn::ZERO, "batch {} of term {} has no position", entry.index, entry.term);
    lsn
}

/// The kinds that travel; all others are a member's own.
fn kind_of(number: u8) -> Option<MessageType> {
    use MessageType as Kind;
    [
        Kind::MsgAppend,
        Kind::MsgAppendResponse,
        Kind::MsgRequestVote,
        Kind::MsgRequestVoteResponse,
        Kind::MsgSnapshot,
        Kind::MsgHeartbeat,
        Kind::MsgHeartbeatResponse,
        Kind::MsgTimeoutNow,
        Kind::MsgRequestPreVote,
        Kind::MsgRequestPreVoteResponse,
    ]
    .into_iter()
    .find(|kind| *kind as i32 == i32::from(number))
}

fn take<const N: usize>(bytes: &mut Bytes) -> Result<[u8; N], WireError> {
    let taken = cut(bytes, N)?;
    taken.as_ref().try_into().map_err(|_| WireError("it is too short"))
}

fn cut(bytes: &mut Bytes, count: usize) -> Result<Bytes, WireError> {
    if bytes.len() < count {
        return Err(WireError("it is too short"));
    }
    Ok(bytes.split_to(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let entry = |index: u64, data: &'static [u8]| Entry {
            index,
            term: 3,
            context: Bytes::copy_from_slice(&(index * 4_096).to_le_bytes()),
            data: Bytes::from_static(data),
            ..Entry::default()
        };
        let inner = RaftMessage {
            msg_type: MessageType::MsgAppend,
            from: 1,
            to: 2,
            term: 3,
            log_term: 2,
            index: 9,
            commit: 8,
            entries: vec![entry(10, b"ten"), entry(11, b""), entry(12, b"twelve")].into(),
            ..RaftMessage::default()
        };
        Message { inner }
    }

    fn bytes_of(message: &Message) -> Bytes {
        let (mut head, payloads) = message.encode();
        payloads.iter().for_each(|payload| head.extend_from_slice(payload));
        Bytes::from(head)
    }

    #[test]
    fn a_message_comes_back_as_it_was() {
        let message = message();
        assert_eq!(Message::decode(&bytes_of(&message)), Ok(message.clone()));
        assert!(!message.is_urgent());
        assert_eq!(message.payload_bytes(), 9);
    }

    #[test]
    fn cut_or_longer_bytes_and_unknown_kinds_are_refused() {
        let whole = bytes_of(&message());
        for length in 0..whole.len() {
            assert!(Message::decode(&whole.slice(..length)).is_err(), "{length} bytes");
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert!(Message::decode(&Bytes::from(longer)).is_err());
        // MsgHup and MsgPropose are a member's own.
        for kind in [0, 2, 200] {
            let mut other = whole.to_vec();
            other[0] = kind;
            assert!(Message::decode(&Bytes::from(other)).is_err(), "kind {kind}");
        }
    }

    #[test]
    fn batches_that_do_not_follow_each_other_are_refused() {
        let mut gap = message();
        gap.inner.entries[1].index = 13;
        assert!(Message::decode(&bytes_of(&gap)).is_err());
        let mut later_term = message();
        later_term.inner.entries[2].term = 4;
        assert!(Message::decode(&bytes_of(&later_term)).is_err());
        for (at, term) in [(0, 1), (1, 2), (2, 2)] {
            let mut earlier_term = message();
            earlier_term.inner.entries[at].term = term;
            assert!(Message::decode(&bytes_of(&earlier_term)).is_err(), "entry {at}, term {term}");
        }
    }

    // The log and the consensus library calculate with these numbers and assert that they fit.
    #[test]
    fn numbers_that_no_log_reaches_are_refused() {
        type Fault = fn(&mut RaftMessage);
        let faults: [(&str, Fault); 6] = [
            ("a position", |message| {
                message.entries[1].context = Bytes::copy_from_slice(&u64::MAX.to_le_bytes());
            }),
            ("an index", |message| {
                message.entries.clear();
                message.index = u64::MAX - 1;
            }),
            ("a commit index", |message| message.commit = u64::MAX),
            ("a hint", |message| message.reject_hint = u64::MAX),
            ("a copy", |message| {
                let metadata = message.mut_snapshot().mut_metadata();
                (metadata.index, metadata.term) = (u64::MAX, 1);
            }),
            ("no term of the batch before", |message| message.log_term = 0),
        ];
        for (what, fault) in faults {
            let mut message = message();
            fault(&mut message.inner);
            assert!(Message::decode(&bytes_of(&message)).is_err(), "{what}");
        }
    }

    #[test]
    fn a_batch_without_a_position_is_refused_and_never_sent() {
        let whole = bytes_of(&message());
        let mut nowhere = whole.to_vec();
        let lsn_at = HEAD_BYTES + BATCH_BYTES + 16;
        nowhere[lsn_at..lsn_at + 8].fill(0);
        assert_eq!(
            Message::decode(&Bytes::from(nowhere)),
            Err(WireError("a batch of it has no position"))
        );
        let mut forgotten = message();
        forgotten.inner.entries[1].context = Bytes::new();
        assert!(std::panic::catch_unwind(|| forgotten.encode()).is_err());
    }
}
