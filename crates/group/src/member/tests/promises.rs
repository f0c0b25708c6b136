//! What a member promised outlives its process: votes, and the batches that it acknowledged.

use super::*;

/// One member of three, with a log of so many batches of term 1.
pub(super) fn alone(hard_state: HardState, batches: u64) -> Member {
    let places = (1..=batches).map(|index| place_of(index, 1)).collect();
    let held = RecoveredLog { base: BatchPlace::default(), places, applied: hard_state.committed };
    Member::new(first_of_three(), hard_state, held, Time(1))
}

pub(super) fn place_of(index: u64, term: u64) -> BatchPlace {
    let lsn = Lsn(index * 4_096);
    BatchPlace { index, term, lsn, end: Lsn(lsn.0 + 40) }
}

/// A message to it that carries no batches.
pub(super) fn message(kind: MessageType, from: u64, term: u64, more: RaftMessage) -> Input {
    let inner = RaftMessage { msg_type: kind, from, to: 1, term, ..more };
    Input::Message(Message { inner })
}

/// Its answer when a member with a log as long as any asks for its vote in term 5.
pub(super) fn answer_to_vote(member: &mut Member, from: u64) -> (Option<HardState>, Option<bool>) {
    let more = RaftMessage { index: 1_000, log_term: 4, ..RaftMessage::default() };
    let mut out = Output::default();
    member.step(Time(10_000_000), message(MessageType::MsgRequestVote, from, 5, more), &mut out);
    let answers = out.send.iter().map(|(_, message)| &message.inner);
    let answers = answers.filter(|it| it.msg_type == MessageType::MsgRequestVoteResponse);
    (out.hard_state, answers.map(|it| !it.reject).last())
}

pub(super) fn noted(committed: u64) -> HardState {
    let committed_end = place_of(committed, 1).end;
    HardState { term: 4, may_vote: true, committed, committed_end, ..HardState::default() }
}

#[test]
fn a_vote_is_kept_with_its_term_and_no_other_gets_one_after_a_restart() {
    let mut member = alone(noted(3), 3);
    let (hard_state, granted) = answer_to_vote(&mut member, 2);
    let hard_state = hard_state.unwrap();
    assert_eq!((hard_state.term, hard_state.vote, granted), (5, Some(MemberId(2)), Some(true)));
    let mut again = alone(hard_state, 3);
    assert_eq!(answer_to_vote(&mut again, 3), (None, Some(false)), "it was given to another");
    assert_eq!(answer_to_vote(&mut again, 2).1, Some(true), "the same vote is repeated");
}

#[test]
fn a_log_without_what_was_noted_as_committed_neither_votes_nor_asks_for_votes() {
    let other_end = HardState { committed_end: Lsn(1), ..noted(3) };
    for (hard_state, batches, votes) in
        [(noted(3), 3, true), (noted(3), 5, true), (noted(3), 2, false), (other_end, 3, false)]
    {
        let mut member = alone(hard_state, batches);
        assert_eq!(member.may_vote(), votes, "{batches} batches of {hard_state:?}");
        assert_eq!(member.hard_state().committed, 3, "what was noted stays owed");
        assert_eq!(answer_to_vote(&mut member, 2).1, votes.then_some(true));
        let mut out = Output::default();
        member.step(
            Time(20_000_000),
            message(MessageType::MsgTimeoutNow, 2, 5, RaftMessage::default()),
            &mut out,
        );
        (0..200).for_each(|at| member.step(Time(30_000_000 + at * 50_000), Input::Tick, &mut out));
        assert_eq!(member.role() == Role::Candidate, votes);
    }
}

#[test]
fn a_member_that_knows_its_term_and_not_its_log_neither_votes_nor_asks_for_votes() {
    let mut took_a_copy = alone(noted(3).without_vote(), 3);
    let mut was_told = alone(noted(3).forgotten(), 3);
    for peer in [2, 3] {
        let opened = Input::PeerOpened { peer: MemberId(peer), last_index: 3, term: 4 };
        was_told.step(Time(2), opened, &mut Output::default());
    }
    for member in [&mut took_a_copy, &mut was_told] {
        assert!(member.knows_term());
        assert_eq!(answer_to_vote(member, 2), (None, None));
        let mut out = Output::default();
        let asked = message(MessageType::MsgTimeoutNow, 2, 5, RaftMessage::default());
        member.step(Time(20_000_000), asked, &mut out);
        (0..200).for_each(|at| member.step(Time(30_000_000 + at * 50_000), Input::Tick, &mut out));
        assert_eq!((member.role(), out.send.len()), (Role::Follower, 0));
    }
}

#[test]
fn a_heartbeat_that_shows_a_lost_acknowledgement_takes_the_vote_away_durably() {
    let mut member = alone(noted(3), 3);
    let mut out = Output::default();
    let of_four = RaftMessage { commit: 4, ..RaftMessage::default() };
    member.step(Time(2), message(MessageType::MsgHeartbeat, 2, 4, of_four.clone()), &mut out);
    assert!(!member.may_vote());
    assert_eq!(
        out.hard_state.map(|hard_state| hard_state.may_vote),
        Some(false),
        "before anything is sent"
    );
    let mut again = alone(out.hard_state.unwrap(), 3);
    assert_eq!(answer_to_vote(&mut again, 2), (None, None));
    let of_three = RaftMessage { commit: 3, ..of_four };
    let mut sound = alone(noted(3), 3);
    sound.step(Time(2), message(MessageType::MsgHeartbeat, 2, 4, of_three), &mut out);
    assert!(sound.may_vote());
}

#[test]
fn a_heartbeat_commits_nothing_in_a_log_that_its_sender_does_not_know() {
    // Five batches of an older log: the leader knows of as many, and they were others.
    let owing = noted(1).without_vote();
    let mut member = alone(owing, 5);
    let mut out = Output::default();
    let of_four = RaftMessage { commit: 4, ..RaftMessage::default() };
    member.step(Time(2), message(MessageType::MsgHeartbeat, 2, 4, of_four.clone()), &mut out);
    assert_eq!(member.committed(), 1, "it only knows what was noted");
    let behind_three = RaftMessage { index: 3, log_term: 1, commit: 3, ..RaftMessage::default() };
    member.step(Time(3), message(MessageType::MsgAppend, 2, 4, behind_three), &mut out);
    member.step(Time(4), message(MessageType::MsgHeartbeat, 2, 4, of_four), &mut out);
    assert_eq!(member.committed(), 3, "and what it has acknowledged itself");
}

#[test]
fn the_vote_comes_back_when_what_was_missing_is_on_the_disk_and_not_before() {
    let mut member = alone(noted(1).without_vote(), 1);
    let mut out = Output::default();
    let entry = |index: u64| Entry {
        index,
        term: 4,
        context: bytes::Bytes::copy_from_slice(&place_of(index, 4).lsn.0.to_le_bytes()),
        ..Entry::default()
    };
    // Committed, and of the leader's own term: it knows all that was committed before.
    let more = RaftMessage {
        index: 1,
        log_term: 1,
        commit: 3,
        entries: vec![entry(2), entry(3)].into(),
        ..RaftMessage::default()
    };
    member.step(Time(2), message(MessageType::MsgAppend, 2, 4, more), &mut out);
    assert_eq!((out.receive.len(), member.may_vote()), (2, false), "they are on their way");
    member.step(Time(3), Input::Durable(place_of(2, 4).end), &mut out);
    assert!(!member.may_vote(), "one is");
    member.step(Time(4), Input::Durable(place_of(3, 4).end), &mut out);
    assert!(member.may_vote());
    assert_eq!(out.hard_state.map(|hard_state| hard_state.may_vote), Some(true));
}

#[test]
fn what_a_member_acknowledged_on_an_earlier_connection_counts_no_more() {
    let mut trio = Trio::formed(33);
    let leader = trio.run_until_leader();
    let peer = (leader + 1) % 3;
    (0..3).for_each(|_| trio.propose(leader, b"something"));
    trio.run(Duration::from_millis(600));
    let acknowledged = |trio: &Trio| {
        let progress = trio.member(leader).progress();
        progress.peers.iter().find(|other| other.id == id(peer)).unwrap().acknowledged
    };
    let last = trio.member(leader).last();
    assert_eq!(acknowledged(&trio), last.end);
    // As long as before, as it says: that may be another log.
    let again = trio.opened(peer);
    trio.input(leader, again);
    assert_eq!(acknowledged(&trio), Lsn::ZERO);
    trio.run(Duration::from_millis(20));
    assert_eq!(acknowledged(&trio), last.end, "it is asked at once");
}

#[test]
fn a_member_whose_log_became_shorter_votes_again_only_when_it_has_all_again() {
    let mut trio = Trio::formed(21);
    let leader = trio.run_until_leader();
    let (short, other) = ((leader + 1) % 3, (leader + 2) % 3);
    trio.run(Duration::from_millis(300));
    trio.kill(other);
    (0..5).for_each(|_| trio.propose(leader, b"acknowledged by two"));
    trio.run(Duration::from_millis(600));
    trio.note(short);
    let committed = trio.member(leader).committed();
    assert_eq!(trio.hard_state(short).committed, committed);
    // Both that have it go; one of them comes back without it, with the one that never had it.
    trio.kill(leader);
    trio.kill(short);
    trio.shorten(short, 3);
    trio.start(short);
    trio.start(other);
    trio.run(Duration::from_secs(10));
    assert_eq!(trio.leader(), None, "no member is elected without the one that has it");
    trio.start(leader);
    assert_eq!(trio.run_until_leader(), leader);
    trio.run(Duration::from_millis(600));
    assert!((0..3).all(|at| trio.member(at).may_vote() && trio.member(at).committed() > committed));
    trio.check();
}

/// One that was away and got a copy from the active one, which then goes on with the third
/// one, and is lost with its disk: the members, in this order.
fn after_a_copy(seed: u64, away_was_wiped: bool) -> (Trio, [usize; 3]) {
    let mut trio = Trio::formed(seed);
    let before = trio.run_until_leader();
    (0..5).for_each(|_| trio.propose(before, b"acknowledged by it"));
    trio.run(Duration::from_millis(50));
    trio.kill(before);
    if away_was_wiped {
        trio.wipe(before);
    }
    let active = trio.run_until_leader();
    let third = 3 - before - active;
    (0..20).for_each(|_| trio.propose(active, b"while it was away"));
    trio.run(Duration::from_millis(300));
    let upto = trio.member(active).last().end;
    trio.input(active, Input::Forget(upto));
    trio.start(before);
    trio.run(Duration::from_millis(300));
    assert_eq!(trio.copies_wanted(before), Some(id(active)), "seed {seed}");
    trio.kill(before);
    trio.copy(active, before);
    trio.propose(active, b"behind the copy");
    trio.run(Duration::from_millis(300));
    assert_eq!(trio.committed_payloads(third).last().unwrap(), b"behind the copy");
    trio.kill(active);
    trio.wipe(active);
    (trio, [before, active, third])
}

#[test]
fn a_copy_of_all_that_a_member_acknowledged_votes_and_the_group_needs_no_operator() {
    for seed in 0..40 {
        let (mut trio, [away, lost, third]) = after_a_copy(seed, false);
        trio.start(away);
        trio.start(lost);
        assert_eq!(
            trio.run_until_leader(),
            third,
            "seed {seed}: the other lacks what was acknowledged"
        );
        trio.run(TIMEOUT);
        for at in [away, third] {
            let has = trio.committed_payloads(at);
            assert!(has.iter().any(|it| it == b"behind the copy"), "seed {seed}, member {at}");
        }
        trio.check();
    }
}

#[test]
fn a_copy_for_a_member_that_had_lost_its_log_gives_no_vote_before_it_has_caught_up() {
    for seed in 0..10 {
        let (mut trio, [away, lost, _]) = after_a_copy(seed, true);
        trio.start(away);
        trio.start(lost);
        trio.run(20 * TIMEOUT);
        assert_eq!(trio.leader(), None, "seed {seed}: what it promised once is not known");
        assert!(!trio.member(away).may_vote());
    }
}
