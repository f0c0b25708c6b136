//! The hard state of a member: what must outlive its process beside the log. 64 bytes, written
//! whole.
//!
//! ```text
//!   0   8  magic "TOWLINEG"
//!   8   2  format version: 2, or 3 (this offset and the checksum's never move)
//!   10  1  1: may vote
//!   11  1  bit 0: the term is the newest that it took part in, also when it may vote; bits 1 and
//!          2, in version 3: the mode (0 voting, 1 recovery, 2 promoting)
//!   12  4  zero; promoting: the first bytes of the history that it is promoted to; recovery: the
//!          term of the last batch that it kept when it returned, 0 if it did not
//!   16  8  term
//!   24  8  member voted for in this term; 0: none
//!   32  8  committed: index of a batch known to be committed
//!   40  8  position of that batch's end
//!   48 12  zero; promoting: the other bytes of that history
//!   48  8  recovery: the term in which it voted last, or could have
//!   56  4  recovery: the newest term of a leader of its own group that sent it batches
//!   60  4  CRC-32C of bytes 0..60
//! ```
//!
//! A member that votes is kept as version 2, which has no mode: a program of before version 3 can
//! read it, and takes no recovery member for one that votes. Version 1 had the same fields, and
//! FNV-1a (32 bits) instead of CRC-32C. It is read.

use towline_types::{BatchPlace, Lsn};

use crate::member_id::MemberId;
use crate::mode::Mode;

const MAGIC: &[u8; 8] = b"TOWLINEG";
const VERSION: u16 = 3;
/// Of a member that votes.
const VERSION_VOTING: u16 = 2;
/// With another checksum.
const VERSION_WITH_FNV: u16 = 1;
const SUMMED_BYTES: usize = 60;

/// What a member must not forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term that it took part in, if `knows_term`.
    pub term: u64,
    /// The member that it voted for in that term.
    pub vote: Option<MemberId>,
    /// Whether its log is known to hold all that it ever acknowledged. Not so after the loss of its
    /// disk, until it has caught up: a group must not be talked into forgetting.
    pub may_vote: bool,
    /// Whether it may not have taken part in a newer term than `term`. Without a hard state that is
    /// not known, nor with an older copy of one: see `newest_term`.
    pub knows_term: bool,
    /// A batch known to be committed: up to there a restart need not ask the group, and a log
    /// without it is not the log that made the promises. Any value that was once true stays true;
    /// it need not be the newest, nor synced.
    pub committed: u64,
    /// End of that batch.
    pub committed_end: Lsn,
    /// What part it has in its group.
    pub mode: Mode,
    /// Id of the history that it is promoted to, while it is promoting; else all zero.
    pub promoted_to: [u8; 16],
    /// In recovery, the newest term of the time when this group was live; 0: it never was. Leaders
    /// of that timeline, and of older ones, are none any more.
    pub left_term: u64,
    /// In recovery, the newest term of a leader of its own group from which it took batches, at
    /// most 2^32 - 1: the others were promoted. They need not have been committed.
    pub led_term: u64,
    /// In recovery, of one whose log was cut off since this group was live: the term of the last
    /// batch that is left of that time, at most 2^32 - 1; 0: nothing was cut off. `left_term` may
    /// be of what was cut off then, and so of a timeline that is not one of this log: both groups
    /// were promoted behind one batch, and which of the two timelines is the greater one is chance.
    pub returned_term: u64,
}

impl HardState {
    /// Bytes of the encoded form.
    pub const BYTES: usize = 64;

    /// Whether a log that ends with `last` may replace the log for which this was kept,
    /// which ends with `own`, and vote at once.
    ///
    /// A log that ends with a batch of term T is, up to there, the log of the leader of T. To take
    /// it over is then what a follower does with one long append of that leader: allowed unless the
    /// member took part in a newer term, and it loses nothing that the member acknowledged, unless
    /// it is a shorter part of the same leader's log.
    #[must_use]
    pub fn is_borne_out_by(&self, own: BatchPlace, last: BatchPlace) -> bool {
        let is_not_late = last.term >= self.term;
        self.may_vote && is_not_late && (last.term, last.index) >= (own.term, own.index)
    }

    /// What a member of a group that was live begins with, after its log was cut off behind the
    /// last batch that the new live group has too, and it has given up what was behind that: it is
    /// a recovery member, and what it promised as a member of that live group is void. `end`: the
    /// last batch of the log as it is then.
    #[must_use]
    pub fn returned(&self, end: BatchPlace) -> HardState {
        let (committed, committed_end) = match self.committed <= end.index {
            true => (self.committed, self.committed_end),
            false => (end.index, end.end),
        };
        HardState {
            term: end.term,
            vote: (end.term > 0).then_some(MemberId::NONE_OF_THEM),
            // One that had lost its disk has not got back what the others count on.
            may_vote: self.may_vote,
            knows_term: self.has_newest_term(),
            committed,
            committed_end,
            mode: Mode::Recovery,
            promoted_to: [0; 16],
            left_term: self.term.max(self.left_term),
            led_term: 0,
            // All zero is one that did not return.
            returned_term: end.term.max(1),
        }
    }

    /// What a member keeps that leaves the time when its group was live, in `left_term`, with all
    /// of its log.
    #[must_use]
    pub(crate) fn leaves(self, left_term: u64) -> HardState {
        HardState { left_term, led_term: 0, returned_term: 0, ..self }
    }

    /// In recovery, the newest term of this log from the time when this group was live; 0: there is
    /// none.
    pub(crate) fn last_live_term(&self) -> u64 {
        match self.returned_term {
            0 => self.left_term,
            returned => returned,
        }
    }

    /// The same where the log says that another group is live, and no mark does: the process ended
    /// between both, or the hard state was lost. `left_term`: the term of the last batch of the
    /// time when this group was live; 0: it never was, or that is not known any more.
    #[must_use]
    pub fn behind_other(self, left_term: u64) -> HardState {
        HardState { mode: Mode::Recovery, promoted_to: [0; 16], ..self }.leaves(left_term)
    }

    /// The format version in which it is kept.
    #[must_use]
    pub fn format_version(&self) -> u16 {
        match self.mode {
            Mode::Voting => VERSION_VOTING,
            Mode::Recovery | Mode::Promoting => VERSION,
        }
    }

    /// As it is kept.
    #[must_use]
    pub fn encode(&self) -> [u8; HardState::BYTES] {
        let mut bytes = [0; HardState::BYTES];
        let (first, others) = self.promoted_to.split_at(4);
        let [led_term, returned_term] = [self.led_term, self.returned_term]
            .map(|term| u32::try_from(term).unwrap_or(u32::MAX).to_le_bytes());
        let mut terms = [0; 12];
        put(&mut terms, 0, &self.left_term.to_le_bytes());
        put(&mut terms, 8, &led_term);
        let (first, more): (&[u8], &[u8]) = match self.mode {
            Mode::Recovery => (&returned_term, &terms),
            Mode::Voting | Mode::Promoting => (first, others),
        };
        let fields: [(usize, &[u8]); 10] = [
            (0, MAGIC),
            (8, &self.format_version().to_le_bytes()),
            (10, &[u8::from(self.may_vote)]),
            (11, &[u8::from(self.knows_term) | self.mode.number() << 1]),
            (12, first),
            (48, more),
            (16, &self.term.to_le_bytes()),
            (24, &self.vote.map_or(0, |member| member.0).to_le_bytes()),
            (32, &self.committed.to_le_bytes()),
            (40, &self.committed_end.0.to_le_bytes()),
        ];
        for (at, field) in fields {
            put(&mut bytes, at, field);
        }
        let (summed, _) = bytes.split_at(SUMMED_BYTES);
        let sum = crc32c::crc32c(summed);
        put(&mut bytes, SUMMED_BYTES, &sum.to_le_bytes());
        bytes
    }

    /// `None` when the bytes are damaged or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<HardState> {
        if bytes.len() != HardState::BYTES || take::<8>(bytes, 0)? != *MAGIC {
            return None;
        }
        let (summed, _) = bytes.split_at(SUMMED_BYTES);
        let version = u16::from_le_bytes(take(bytes, 8)?);
        let sum = match version {
            VERSION | VERSION_VOTING => crc32c::crc32c(summed),
            VERSION_WITH_FNV => fnv(summed),
            _ => return None,
        };
        if u32::from_le_bytes(take(bytes, SUMMED_BYTES)?) != sum {
            return None;
        }
        let vote = u64::from_le_bytes(take(bytes, 24)?);
        let [flags] = take::<1>(bytes, 11)?;
        let mode = if version == VERSION { Mode::of_number(flags >> 1)? } else { Mode::Voting };
        let mut promoted_to = [0; 16];
        let [mut left_term, mut led_term, mut returned_term] = [0; 3];
        match mode {
            Mode::Voting => {}
            Mode::Recovery => {
                left_term = u64::from_le_bytes(take(bytes, 48)?);
                led_term = u64::from(u32::from_le_bytes(take(bytes, 56)?));
                returned_term = u64::from(u32::from_le_bytes(take(bytes, 12)?));
            }
            Mode::Promoting => {
                let (first, others) = promoted_to.split_at_mut(4);
                first.copy_from_slice(&take::<4>(bytes, 12)?);
                others.copy_from_slice(&take::<12>(bytes, 48)?);
            }
        }
        Some(HardState {
            term: u64::from_le_bytes(take(bytes, 16)?),
            vote: (vote != 0).then_some(MemberId(vote)),
            may_vote: take::<1>(bytes, 10)? == [1],
            knows_term: flags & 1 == 1,
            committed: u64::from_le_bytes(take(bytes, 32)?),
            committed_end: Lsn(u64::from_le_bytes(take(bytes, 40)?)),
            mode,
            promoted_to,
            left_term,
            led_term,
            returned_term,
        })
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// FNV-1a.
fn fnv(summed: &[u8]) -> u32 {
    summed
        .iter()
        .fold(0x811c_9dc5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> HardState {
        HardState {
            term: 7,
            vote: Some(MemberId(2)),
            may_vote: true,
            knows_term: true,
            committed: 12,
            committed_end: Lsn(8_300),
            mode: Mode::Voting,
            promoted_to: [0; 16],
            left_term: 0,
            led_term: 0,
            returned_term: 0,
        }
    }

    /// As a program of version 1 wrote `state()`.
    const OF_VERSION_1: [u8; HardState::BYTES] = *b"TOWLINEG\x01\0\x01\x01\0\0\0\0\
        \x07\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
        \x0c\0\0\0\0\0\0\0\x6c\x20\0\0\0\0\0\0\
        \0\0\0\0\0\0\0\0\0\0\0\0\x42\x57\xbc\x0a";

    #[test]
    fn version_1_is_read_and_not_written() {
        assert_eq!(HardState::decode(&OF_VERSION_1), Some(state()));
        let bytes = state().encode();
        assert_eq!((&bytes[..8], bytes[8]), (&OF_VERSION_1[..8], 2));
        assert_eq!(bytes[9..60], OF_VERSION_1[9..60], "the fields stay where they are");
        for bit in 0..HardState::BYTES * 8 {
            let mut damaged = OF_VERSION_1;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HardState::decode(&damaged), None, "bit {bit}");
        }
        let mut later = bytes;
        later[8] = 4;
        assert_eq!(HardState::decode(&later), None, "a version that this one does not know");
    }

    #[test]
    fn what_is_kept_comes_back_and_any_flipped_bit_is_noticed() {
        let hard_state = state();
        let bytes = hard_state.encode();
        assert_eq!(HardState::decode(&bytes), Some(hard_state));
        for bit in 0..HardState::BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(HardState::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(HardState::decode(&bytes[..63]), None);
    }

    #[test]
    fn a_mode_is_kept_and_one_that_votes_is_kept_as_before() {
        let history = *b"sixteen bytes of";
        for (mode, promoted_to, [left_term, led_term, returned_term]) in [
            (Mode::Voting, [0; 16], [0; 3]),
            (Mode::Recovery, [0; 16], [1 << 24, (1 << 32) - 1, 0]),
            (Mode::Recovery, [0; 16], [1 << 24, 0, (1 << 32) - 2]),
            (Mode::Promoting, history, [0; 3]),
        ] {
            for knows_term in [false, true] {
                let terms = HardState { left_term, led_term, returned_term, ..state() };
                let hard_state = HardState { mode, promoted_to, knows_term, ..terms };
                let bytes = hard_state.encode();
                assert_eq!(HardState::decode(&bytes), Some(hard_state));
                assert_eq!(bytes[8], if mode == Mode::Voting { 2 } else { 3 }, "{mode:?}");
            }
        }
        let mut unknown = HardState { mode: Mode::Recovery, ..state() }.encode();
        unknown[11] = 3 << 1;
        let sum = crc32c::crc32c(&unknown[..SUMMED_BYTES]);
        unknown[SUMMED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(HardState::decode(&unknown), None, "a mode that this version does not know");
    }

    #[test]
    fn a_vote_that_was_given_up_does_not_come_back_with_what_is_kept() {
        for (may_vote, knows_term) in [(false, true), (false, false), (true, false)] {
            let hard_state = HardState { may_vote, knows_term, ..state() };
            assert_eq!(HardState::decode(&hard_state.encode()), Some(hard_state));
        }
    }

    #[test]
    fn a_copy_votes_when_it_is_what_its_leader_could_have_appended_and_not_shorter() {
        let place = |term, index| BatchPlace { term, index, ..BatchPlace::default() };
        let votes = |term, own: (u64, u64), last: (u64, u64)| {
            let hard_state = HardState { term, may_vote: true, ..HardState::default() };
            hard_state.is_borne_out_by(place(own.0, own.1), place(last.0, last.1))
        };
        assert!(
            votes(7, (6, 90), (7, 50)),
            "of a newer leader, which cut off what was not committed"
        );
        assert!(votes(7, (7, 50), (7, 50)) && votes(7, (7, 50), (7, 51)));
        assert!(!votes(7, (7, 51), (7, 50)), "it acknowledged one more to the same leader");
        assert!(!votes(8, (6, 40), (7, 50)), "it took part in a newer term since");
        assert!(!votes(7, (6, 40), (6, 50)), "its leader had no batch of its own term in it");
        let blank = HardState { term: 7, may_vote: false, ..HardState::default() };
        assert!(!blank.is_borne_out_by(place(0, 0), place(7, 50)), "it may have forgotten more");
    }
}
