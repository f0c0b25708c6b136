//! A member that may have forgotten its newest term says nothing before all others have sent
//! theirs.

use super::promises::{alone, message, noted, place_of};
use super::*;

fn leader_commit(peer: u64, term: u64) -> Input {
    Input::PeerOpened { peer: MemberId(peer), last_index: 3, term }
}

/// Batches of a leader that stand in the log of a member with three batches of term 1.
fn batches(from: u64, term: u64) -> Input {
    let behind_three = RaftMessage { index: 3, log_term: 1, ..RaftMessage::default() };
    message(MessageType::MsgAppend, from, term, behind_three)
}

/// What one input makes a member send: to which member, and of which term.
fn sent(member: &mut Member, input: Input) -> Vec<(u64, u64)> {
    let mut out = Output::default();
    member.step(Time(5), input, &mut out);
    out.send.iter().map(|(to, message)| (to.0, message.term())).collect()
}

/// A group with a deposed leader that has not noticed; the new one and the third member committed
/// a batch that it lacks, and the third one then lost its disk, and reaches only the deposed
/// leader. Yields the group, the deposed leader, the new one, and the one that forgot.
fn one_forgot(seed: u64) -> (Trio, usize, usize, usize) {
    let mut trio = Trio::formed(seed);
    let deposed = trio.run_until_leader();
    trio.propose(deposed, b"of the first term");
    trio.run(Duration::from_millis(300));
    let others = [(deposed + 1) % 3, (deposed + 2) % 3];
    // They hear that their connections ended; it does not.
    trio.cut_off(deposed);
    others.iter().for_each(|at| trio.input(*at, Input::PeerClosed(id(deposed))));
    while trio.leader() == Some(deposed) {
        trio.run(Duration::from_millis(1));
    }
    let newer = trio.leader().unwrap();
    let forgetful = others.into_iter().find(|at| *at != newer).unwrap();
    trio.propose(newer, b"acknowledged by two");
    let last = trio.member(newer).last().index;
    while trio.member(newer).committed() < last {
        trio.run(Duration::from_millis(1));
    }
    trio.part(newer, forgetful);
    trio.part(newer, deposed);
    trio.kill(forgetful);
    trio.wipe(forgetful);
    trio.heal();
    trio.start(forgetful);
    assert_eq!(trio.member(deposed).role(), Role::Leader, "it has not noticed");
    (trio, deposed, newer, forgetful)
}

#[test]
fn a_member_that_lost_its_disk_helps_no_leader_of_an_older_term_than_it_took_part_in() {
    // What the simulator found with seed 17072: at one index, two batches were committed.
    for seed in 0..6 {
        let (mut trio, deposed, newer, forgetful) = one_forgot(seed);
        let before = trio.member(deposed).committed();
        (0..5).for_each(|_| trio.propose(deposed, b"of a deposed leader"));
        trio.run(Duration::from_millis(1_000));
        assert_eq!(trio.member(deposed).committed(), before, "seed {seed}");
        assert_eq!(trio.member(forgetful).unheard(), [id(newer)], "seed {seed}");
        // It hears the terms, and takes part.
        trio.meet(newer, forgetful);
        trio.meet(newer, deposed);
        trio.run(Duration::from_secs(5));
        assert!((0..3).all(|at| trio.member(at).may_vote()), "seed {seed}");
        let leader = trio.run_until_leader();
        let committed = trio.committed_payloads(leader);
        assert!(committed.contains(&b"acknowledged by two".to_vec()), "seed {seed}");
        assert!(!committed.contains(&b"of a deposed leader".to_vec()), "seed {seed}");
        trio.check();
    }
}

#[test]
fn a_silent_member_keeps_no_leader_active() {
    let (mut trio, deposed, _, forgetful) = one_forgot(3);
    trio.run(TIMEOUT + Duration::from_millis(400));
    assert_ne!(trio.member(deposed).role(), Role::Leader, "one that is silent is no majority");
    trio.run(Duration::from_secs(10));
    assert_eq!(trio.leader(), None);
    assert!(!trio.member(forgetful).knows_term());
}

#[test]
fn it_takes_the_highest_term_that_it_hears_durably_and_refuses_older_ones() {
    let mut member = alone(HardState::default(), 3);
    assert_eq!(member.unheard(), [MemberId(2), MemberId(3)]);
    assert!(sent(&mut member, batches(2, 4)).is_empty());
    assert!(sent(&mut member, leader_commit(2, 4)).is_empty());
    assert!(sent(&mut member, batches(2, 4)).is_empty(), "only one of two was heard");
    let heartbeat = message(MessageType::MsgHeartbeat, 2, 4, RaftMessage::default());
    assert!(sent(&mut member, heartbeat).is_empty(), "it counts for no majority");
    // Again, on another connection: that is the same member.
    assert!(sent(&mut member, leader_commit(2, 5)).is_empty() && !member.knows_term());
    let mut out = Output::default();
    member.step(Time(6), leader_commit(3, 9), &mut out);
    let hard_state = out.hard_state.unwrap();
    assert_eq!((hard_state.term, hard_state.knows_term, hard_state.may_vote), (9, true, false));
    assert!(out.send.is_empty() && member.unheard().is_empty());
    assert_eq!(sent(&mut member, batches(2, 8)), [(2, 9)], "it says that there is a newer term");
    assert_eq!(member.progress().term, 9);
    assert_eq!(sent(&mut member, batches(3, 9)), [(3, 9)]);
    // Another start from what was kept asks no member.
    let mut again = alone(hard_state, 3);
    assert_eq!(sent(&mut again, batches(3, 9)), [(3, 9)]);
}

#[test]
fn a_crash_before_the_term_is_durable_leaves_a_member_that_asks_again() {
    let mut member = alone(HardState::default(), 3);
    let mut out = Output::default();
    member.step(Time(5), leader_commit(2, 4), &mut out);
    assert_eq!(out.hard_state, None, "half of an answer is none");
    let mut again = alone(member.hard_state(), 3);
    assert_eq!(again.unheard().len(), 2, "what the process before heard does not count");
    assert!(sent(&mut again, leader_commit(3, 4)).is_empty());
    assert!(sent(&mut again, batches(3, 4)).is_empty());
}

#[test]
fn what_it_hears_before_a_member_of_no_term_of_its_own_may_vote_is_no_vote() {
    // It may have voted in the term that it hears of, and for another.
    let mut member = alone(HardState::default(), 3);
    sent(&mut member, leader_commit(2, 5));
    let mut out = Output::default();
    member.step(Time(6), leader_commit(3, 4), &mut out);
    assert_eq!(out.hard_state.unwrap().vote, Some(MemberId::NONE_OF_THEM));
    let voting = HardState { may_vote: true, ..out.hard_state.unwrap() };
    let mut again = alone(voting, 3);
    let asked = RaftMessage { index: 9, log_term: 4, ..RaftMessage::default() };
    let mut out = Output::default();
    again.step(Time(7), message(MessageType::MsgRequestVote, 2, 5, asked), &mut out);
    assert!(out.send.iter().all(|(_, message)| message.inner.reject), "{:?}", out.send);
}

#[test]
fn a_log_that_was_replaced_on_purpose_keeps_its_term_and_waits_for_no_other_member() {
    let replaced = HardState { vote: Some(MemberId(2)), ..noted(3) }.without_vote();
    let mut member = alone(replaced, 0);
    assert!(member.knows_term() && !member.may_vote());
    let first = RaftMessage { commit: 0, ..RaftMessage::default() };
    assert_eq!(sent(&mut member, message(MessageType::MsgAppend, 2, 4, first)), [(2, 4)]);
    // Found at its start to lack what was noted: then it is not known what else is gone.
    assert!(!alone(noted(3), 2).knows_term());
}

#[test]
fn a_heartbeat_that_shows_a_lost_acknowledgement_casts_doubt_on_the_term_too() {
    let of_four = RaftMessage { commit: 4, ..RaftMessage::default() };
    let heartbeat = || message(MessageType::MsgHeartbeat, 2, 4, of_four.clone());
    let mut member = alone(noted(3), 3);
    assert!(sent(&mut member, heartbeat()).is_empty(), "it asks first");
    assert!(sent(&mut member, leader_commit(2, 4)).is_empty());
    assert!(sent(&mut member, leader_commit(3, 6)).is_empty());
    assert_eq!(sent(&mut member, batches(2, 4)), [(2, 6)]);
    // This process has heard it from both already.
    let mut member = alone(noted(3), 3);
    (2..4).for_each(|peer| assert!(sent(&mut member, leader_commit(peer, 4)).is_empty()));
    assert_eq!(sent(&mut member, heartbeat()), [(2, 4)]);
    assert!(member.knows_term() && !member.may_vote());
    assert_eq!(member.last(), place_of(3, 1));
}

#[test]
fn a_new_group_needs_no_operator_and_nor_does_one_member_that_lost_its_disk() {
    for seed in 0..3 {
        let mut trio = Trio::blank(seed);
        (0..3).for_each(|at| assert!(trio.member(at).knows_term(), "they have heard each other"));
        (0..3).for_each(|at| trio.input(at, Input::Form));
        let leader = trio.run_until_leader();
        trio.propose(leader, b"something");
        trio.run(Duration::from_millis(300));
        for lost in 0..3 {
            trio.kill(lost);
            trio.wipe(lost);
            trio.start(lost);
            trio.run_until_leader();
            trio.run(Duration::from_secs(2));
            assert!(trio.member(lost).may_vote(), "seed {seed}: {lost}");
            assert_eq!(trio.committed_payloads(lost), trio.committed_payloads((lost + 1) % 3));
        }
        trio.check();
    }
}
