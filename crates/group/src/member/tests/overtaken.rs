//! A member whose log was replaced by a copy from the other region, and whose group was promoted
//! without it. Its leader's log lacks what is committed here, so nothing of it may be acknowledged
//! unseen: the library does that, and the leader counted batches that this member did not have.

use super::promises::{message, place_of};
use super::*;
use crate::Mode;
use crate::timeline::begun_behind;

const HISTORY: [u8; 16] = [9; 16];

/// The first of three, in recovery: its log begins with an image behind batch `base` of the live
/// group's log, and goes on up to batch 9; all of it is committed.
fn with_copy(base: u64) -> Member {
    let hard_state = HardState {
        term: 1,
        may_vote: true,
        knows_term: true,
        mode: Mode::Recovery,
        committed: 9,
        committed_end: place_of(9, 1).end,
        ..HardState::default()
    };
    let places = (base + 1..=9).map(|index| place_of(index, 1)).collect();
    let held = RecoveredLog { base: place_of(base, 1), places, applied: 9 };
    Member::new(first_of_three(), hard_state, held, Time(1))
}

fn promoted() -> u64 {
    begun_behind(1, &HISTORY) + 1
}

/// The leader sends batches of its timeline behind one of term `behind.1`.
fn from_leader(
    member: &mut Member,
    behind: (u64, u64),
    batches: std::ops::Range<u64>,
    at: Time,
) -> Output {
    let mut out = Output::default();
    member.step(at, append(2, promoted(), behind, batches), &mut out);
    out
}

fn acknowledged(out: &Output) -> Vec<u64> {
    let inner = out.send.iter().map(|(_, message)| &message.inner);
    let answers = inner.filter(|it| it.msg_type == MessageType::MsgAppendResponse && !it.reject);
    answers.map(|it| it.index).collect()
}

#[test]
fn batches_from_before_a_copy_are_not_acknowledged_unseen_and_a_copy_of_the_leaders_log_is_taken() {
    let mut member = with_copy(9);
    for (at_us, is_taken) in [(10_000, false), (20_000, false), (2_100_000, true)] {
        let out = from_leader(&mut member, (3, 1), 4..6, Time(at_us));
        assert_eq!(acknowledged(&out), [0; 0], "at {at_us} us");
        assert!(out.receive.is_empty());
        assert_eq!(out.copy_from, is_taken.then_some(MemberId(2)), "at {at_us} us");
        // Heartbeats come in between.
        let beat = message(MessageType::MsgHeartbeat, 2, promoted(), RaftMessage::default());
        member.step(Time(at_us + 1), beat, &mut Output::default());
    }
}

#[test]
fn a_batch_in_the_place_of_a_committed_one_shows_at_once_that_the_copy_is_overtaken() {
    for behind in [(5, 1), (7, promoted())] {
        let mut member = with_copy(2);
        let out = from_leader(&mut member, behind, behind.0 + 1..8, Time(10_000));
        assert_eq!(acknowledged(&out), [0; 0]);
        assert_eq!(out.copy_from, Some(MemberId(2)), "{behind:?}");
    }
}

/// What was sent before this member answered may come late, and a leader may have all.
#[test]
fn what_is_the_same_is_acknowledged_as_far_as_it_was_seen() {
    let mut member = with_copy(2);
    let out = from_leader(&mut member, (5, 1), 6..6, Time(10_000));
    assert_eq!((acknowledged(&out), out.copy_from), (vec![5], None));
    let out = from_leader(&mut member, (9, 1), 10..12, Time(20_000));
    assert_eq!((out.receive.len(), out.copy_from), (2, None), "the leader has all of it");
    // From then on the library answers by itself.
    let end = place_of(11, promoted()).end;
    let mut out = Output::default();
    member.step(Time(30_000), Input::Durable(end), &mut out);
    assert_eq!(acknowledged(&out), [11]);
}

#[test]
fn a_leader_counts_no_acknowledgement_of_what_it_does_not_have() {
    let mut member = with_copy(2);
    let mut out = Output::default();
    member.step(Time(10_000), Input::Promote { history: HISTORY, stands: true }, &mut out);
    let granted = |from| {
        message(MessageType::MsgRequestVoteResponse, from, promoted(), RaftMessage::default())
    };
    member.step(Time(10_001), granted(2), &mut out);
    assert_eq!(member.role(), Role::Leader);
    let last = member.last().index;
    let beyond = RaftMessage { index: last + 100, ..RaftMessage::default() };
    let answer = message(MessageType::MsgAppendResponse, 3, promoted(), beyond);
    member.step(Time(10_002), answer, &mut out);
    assert_eq!(member.raft_progress(MemberId(3)).matched, 0);
}
