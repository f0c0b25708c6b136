//! In one term there is one leader, also when a hard state that is older was put back and no peer
//! that knows better is there.

use super::promises::{alone, answer_to_vote, message, noted, place_of};
use super::*;

/// What it heard with a connection.
fn leader_commit(peer: u64, term: u64) -> Input {
    Input::PeerOpened { peer: MemberId(peer), last_index: 3, term }
}

#[test]
fn a_term_that_had_a_leader_has_no_vote_left() {
    let mut member = alone(noted(3), 3);
    let mut out = Output::default();
    let heartbeat = message(MessageType::MsgHeartbeat, 2, 5, RaftMessage::default());
    member.step(Time(2), heartbeat, &mut out);
    assert_eq!(member.leader(), Some(MemberId(2)));
    let hard_state = out.hard_state.unwrap();
    assert_eq!(
        (hard_state.term, hard_state.vote),
        (5, Some(MemberId::NONE_OF_THEM)),
        "kept with the term"
    );
    member.step(Time(3), Input::PeerClosed(MemberId(2)), &mut Output::default());
    assert_eq!(answer_to_vote(&mut member, 3).1, Some(false));
    assert_eq!(answer_to_vote(&mut alone(hard_state, 3), 3).1, Some(false), "nor after a restart");
}

#[test]
fn no_vote_is_given_in_a_term_that_another_one_knew_when_it_was_met() {
    let mut member = alone(noted(3), 3);
    assert_eq!(answer_to_vote(&mut member, 2).1, Some(true), "of itself it gives one in term 5");
    for (terms, granted) in [([4, 4], true), ([5, 4], false), ([4, 9], false)] {
        let mut member = alone(noted(3), 3);
        for (peer, term) in [2, 3].into_iter().zip(terms) {
            member.step(Time(2), leader_commit(peer, term), &mut Output::default());
        }
        let (hard_state, answer) = answer_to_vote(&mut member, 2);
        // One that is behind must hear of the newer term, or would ask for ever.
        let newest = terms.into_iter().fold(5, u64::max);
        assert_eq!(
            (answer == Some(true), hard_state.unwrap().term),
            (granted, newest),
            "{terms:?}"
        );
    }
}

#[test]
fn a_term_heard_on_a_later_connection_takes_no_vote() {
    let mut member = alone(noted(3), 3);
    for term in [4, 5] {
        member.step(Time(2), leader_commit(2, term), &mut Output::default());
    }
    // It stands, and its connection was made anew meanwhile.
    assert_eq!(answer_to_vote(&mut member, 2).1, Some(true));
}

#[test]
fn a_member_stands_in_no_term_that_another_one_knew_and_follows_a_leader_of_an_older_one() {
    let mut member = alone(noted(3), 3);
    member.step(Time(2), leader_commit(2, 7), &mut Output::default());
    let heartbeat = || message(MessageType::MsgHeartbeat, 3, 6, RaftMessage::default());
    let mut out = Output::default();
    member.step(Time(3), heartbeat(), &mut out);
    assert_eq!((member.leader(), member.hard_state().term), (Some(MemberId(3)), 6));
    member.step(Time(4), Input::PeerClosed(MemberId(3)), &mut out);
    out = Output::default();
    for _ in 0..2 {
        let at = member.next_try().unwrap_or(Time(5));
        member.step(at.max(Time(5)), Input::Tick, &mut out);
    }
    let asked: Vec<u64> = out.send.iter().map(|(_, message)| message.term()).collect();
    assert_eq!(asked, [8, 8]);
}

#[test]
fn a_hard_state_that_is_older_than_its_log_gives_no_vote_and_one_beside_a_copy_does() {
    let held = |term| RecoveredLog {
        base: BatchPlace::default(),
        places: vec![place_of(1, 1), place_of(2, term)],
        applied: 0,
    };
    let hard_state =
        HardState { term: 4, may_vote: true, knows_term: true, ..HardState::default() };
    let start = |hard_state: HardState, term| {
        Member::new(first_of_three(), hard_state, held(term), Time(1)).hard_state()
    };
    assert!(start(hard_state, 4).may_vote);
    let older = start(hard_state, 5);
    assert!(!older.may_vote && !older.knows_term, "it was there when term 5 was, and forgot it");
    let copied = start(hard_state.with_copy(place_of(2, 5)), 5);
    assert!(copied.may_vote && copied.knows_term);
    assert_eq!((copied.term, copied.vote), (5, Some(MemberId::NONE_OF_THEM)));
    assert_eq!(hard_state.with_copy(place_of(2, 4)), hard_state);
}

/// A folder of before a term is put back, the leader of that term is gone, and with it the only one
/// that was promised something; the third member knows the term, and lost what it had of its
/// batches.
#[test]
fn no_second_leader_is_elected_in_a_term_that_a_member_that_was_put_back_forgot() {
    for seed in 0..40 {
        let mut trio = Trio::formed(seed);
        let third = trio.run_until_leader();
        trio.run(Duration::from_millis(300));
        let copies = [0, 1, 2].map(|at| trio.copy_disk(at));
        trio.kill(third);
        let gone = trio.run_until_leader();
        let back = 3 - third - gone;
        trio.start(third);
        trio.run(Duration::from_millis(600));
        let term = trio.member(gone).hard_state().term;
        assert_eq!((trio.leader(), trio.hard_state(third).term), (Some(gone), term), "seed {seed}");
        (0..3).for_each(|at| trio.kill(at));
        let (log, _) = copies[third].clone();
        trio.put_disk_back(third, (log, trio.hard_state(third)));
        trio.put_disk_back(back, copies[back].clone());
        assert!(trio.hard_state(back).term < term);
        // What was committed is lost with the two, and is not compared.
        trio.forget_what_was_seen();
        trio.start(third);
        trio.start(back);
        let next = trio.run_until_leader();
        let second = trio.member(next).hard_state().term;
        assert!(
            second > term,
            "seed {seed}: {next} leads in term {second}, as {gone} did in {term}"
        );
    }
}
