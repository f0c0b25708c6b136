//! What an instance promises by a message is on its disk when the message leaves: a power cut at
//! that moment would leave the term, and the vote.
//!
//! Not here: whether the group keeps what was promised (`shared`, `verdict`). Invariant: it reads
//! the bytes on the medium, with no help of the code under test but the layout of the file.

use towline_group::{HardState, MemberId};
use towline_link::Peer;
use towline_os::simulated::fs::FileSystem;
use towline_replication::frames::member_of;

const STATE: &str = "/qms/group-state";
/// Where a slot, or its second copy, may begin.
const SLOTS: [u64; 4] = [0, 4_096, 8_192, 12_288];
const HARD_STATE_AT: usize = 24;
const SEQUENCE_AT: usize = 16;
const SUMMED_BYTES: usize = 1_260;

/// Bytes of a message's head: see `towline_group::wire`.
const RECEIVER_AT: usize = 16;
const TERM_AT: usize = 24;
const APPEND: u8 = 3;
const ACKNOWLEDGES: u8 = 4;
const ASKS_FOR_VOTE: u8 = 5;
const VOTES: u8 = 6;
const REJECTED: u8 = 1;

/// What a message promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) term: u64,
    /// The one that it votes for.
    pub(super) vote: Option<MemberId>,
}

/// What a message of this member promises, if it is one that counts for others.
pub(super) fn of(from: Peer, head: &[u8]) -> Option<Promise> {
    let (kind, flags) = (*head.first()?, *head.get(1)?);
    let number = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let term = number(TERM_AT)?;
    let vote = match kind {
        APPEND => None,
        ACKNOWLEDGES if flags & REJECTED == 0 => None,
        // A candidate votes for itself.
        ASKS_FOR_VOTE => Some(member_of(from)),
        VOTES if flags & REJECTED == 0 => Some(MemberId(number(RECEIVER_AT)?)),
        _ => return None,
    };
    Some(Promise { term, vote })
}

/// Whether the disk keeps a promise in any power cut now.
pub(super) fn is_kept(disk: &FileSystem, promise: Promise) -> bool {
    kept(disk).is_some_and(|HardState { term, vote, .. }| {
        let voted = promise.vote.is_none() || promise.vote == vote;
        term > promise.term || (term == promise.term && voted)
    })
}

/// What any power cut now would leave.
pub(super) fn kept(disk: &FileSystem) -> Option<HardState> {
    let bytes = disk.bytes(STATE)?;
    let mut kept: Option<(u64, HardState)> = None;
    for at in SLOTS {
        let Some((sequence, hard_state)) = slot(&bytes, at) else { continue };
        let begin = usize::try_from(at).unwrap_or(usize::MAX);
        let content = &bytes[begin..begin + SUMMED_BYTES + 4];
        let is_newer = kept.is_none_or(|(newest, _)| sequence > newest);
        if is_newer && disk.is_synced(STATE, at, content) {
            kept = Some((sequence, hard_state));
        }
    }
    kept.map(|(_, hard_state)| hard_state)
}

fn slot(bytes: &[u8], at: u64) -> Option<(u64, HardState)> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?;
    let (summed, rest) = bytes.split_at_checked(SUMMED_BYTES)?;
    if *rest.first_chunk()? != crc32c::crc32c(summed).to_le_bytes() {
        return None;
    }
    let sequence = u64::from_le_bytes(*summed.get(SEQUENCE_AT..)?.first_chunk()?);
    let hard_state = summed.get(HARD_STATE_AT..HARD_STATE_AT + HardState::BYTES)?;
    Some((sequence, HardState::decode(hard_state)?))
}

#[cfg(test)]
mod tests {
    use towline_replication::hard_state_file::HardStateFile;

    use super::*;

    fn state(term: u64, vote: u64) -> HardState {
        HardState { term, vote: Some(MemberId(vote)), may_vote: true, ..HardState::default() }
    }

    #[test]
    fn a_promise_is_kept_by_a_slot_that_is_synced_and_by_no_other() {
        let folder = tempfile::tempdir().unwrap();
        HardStateFile::of(folder.path()).write(&state(3, 2)).unwrap();
        let bytes = std::fs::read(folder.path().join("group-state")).unwrap();
        let disk = FileSystem::new();
        disk.put(STATE, &bytes);
        let kept =
            |term, vote: Option<u64>| is_kept(&disk, Promise { term, vote: vote.map(MemberId) });
        assert!(kept(3, None) && kept(3, Some(2)) && kept(2, Some(1)));
        assert!(!kept(3, Some(1)) && !kept(4, None));
        HardStateFile::of(folder.path()).write(&state(4, 1)).unwrap();
        let newer = std::fs::read(folder.path().join("group-state")).unwrap();
        disk.put(STATE, &newer);
        assert!(kept(4, Some(1)));
        disk.put(STATE, &[0; 16_384]);
        assert!(!kept(1, None), "there is none");
    }

    #[test]
    fn votes_and_what_is_acknowledged_are_promises() {
        let head = |kind: u8, flags: u8| {
            let mut head = vec![kind, flags, 0, 0, 0, 0, 0, 0];
            [1_u64, 3, 7].iter().for_each(|number| head.extend(number.to_le_bytes()));
            head
        };
        let promised = |kind, flags| of(0, &head(kind, flags)).map(|it| (it.term, it.vote));
        assert_eq!(promised(VOTES, 0), Some((7, Some(MemberId(3)))));
        assert_eq!(promised(ASKS_FOR_VOTE, 0), Some((7, Some(MemberId(1)))));
        assert_eq!(promised(ACKNOWLEDGES, 0), Some((7, None)));
        assert_eq!((promised(VOTES, 1), promised(ACKNOWLEDGES, 1)), (None, None));
        assert_eq!(promised(17, 0), None, "a pre-vote promises nothing");
    }
}
