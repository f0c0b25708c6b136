//! What distinguishes a message of a relay, and an answer to one, from those of a leader: the
//! context of a message, which a leader's do not use.
//!
//! ```text
//!   0   1  "R"
//!   1   8  session: drawn by the relay for each connection with a peer; an answer repeats it
//! ```
//!
//! The other fields of `wire` in such messages:
//!
//! | Kind | term | index, term before | committed | hint |
//! | --- | --- | --- | --- | --- |
//! | append | of the relay | the batch before those in it | durable at a majority | - |
//! | copy | of the relay | - | - | - |
//! | answer | of the peer | durable, up to here it has the relay's log | its own | received |
//! | refusal | of the peer | the batch before those refused | its own | send from; 0: other log |
//!
//! Not here: when they are sent (`member::relay`) and answered (`member::recovery`).

use bytes::Bytes;
use raft::eraftpb::Message as RaftMessage;

const MARK: u8 = b'R';
const CONTEXT_BYTES: usize = 9;

/// The context of a message in a session.
pub(crate) fn context(session: u64) -> Bytes {
    let mut bytes = [MARK; CONTEXT_BYTES];
    let (_, number) = bytes.split_at_mut(1);
    number.copy_from_slice(&session.to_le_bytes());
    Bytes::copy_from_slice(&bytes)
}

/// The session of a message; `None`: it is no relay's.
pub(crate) fn session_of(message: &RaftMessage) -> Option<u64> {
    let [MARK, session @ ..] = message.context.as_ref() else { return None };
    Some(u64::from_le_bytes(session.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relays_messages_name_their_session_and_a_leaders_have_none() {
        let of = |context: Bytes| session_of(&RaftMessage { context, ..RaftMessage::default() });
        assert_eq!(of(context(7)), Some(7));
        assert_eq!(of(context(u64::MAX)), Some(u64::MAX));
        assert_eq!(of(Bytes::new()), None);
        assert_eq!(of(Bytes::from_static(b"CampaignTransfer")), None);
        assert_eq!(of(Bytes::from_static(b"Rather")), None, "of another length");
    }
}
