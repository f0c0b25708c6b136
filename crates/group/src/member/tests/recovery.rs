//! A recovery member and a relay, rule by rule. Random histories: `histories`.

use super::promises::{message, place_of};
use super::*;
use crate::timeline::begun_behind;
use crate::{Mode, Shipment, ShipmentRefusal, ShippedAnswer, relayed};
use bytes::Bytes;

const HISTORY: [u8; 16] = [9; 16];

/// A batch where `place_of` says it is.
fn batch(index: u64, term: u64) -> Batch {
    Batch { index, term, lsn: place_of(index, term).lsn, payload: Bytes::new() }
}

fn in_recovery() -> HardState {
    let mode = Mode::Recovery;
    HardState { term: 1, may_vote: true, knows_term: true, mode, ..HardState::default() }
}

/// The first of three, with so many batches of term 1, of which `committed` are.
fn member_of(hard_state: HardState, batches: u64, committed: u64) -> Member {
    let places = (1..=batches).map(|index| place_of(index, 1)).collect();
    let committed_end = place_of(committed, 1).end;
    let hard_state = match committed {
        0 => hard_state,
        _ => HardState { committed, committed_end, ..hard_state },
    };
    let held = RecoveredLog { base: BatchPlace::default(), places, applied: committed };
    Member::new(first_of_three(), hard_state, held, Time(1))
}

fn shipment(term: u64, behind: u64, batches: std::ops::Range<u64>) -> Input {
    let previous = if behind == 0 { BatchPlace::default() } else { place_of(behind, 1) };
    Input::Shipped(Shipment {
        term,
        previous,
        batches: batches.map(|index| batch(index, term)).collect(),
    })
}

fn step(member: &mut Member, input: Input) -> Output {
    let mut out = Output::default();
    member.step(Time(10_000), input, &mut out);
    out
}

fn shipped(member: &mut Member, input: Input) -> ShippedAnswer {
    step(member, input).shipped.unwrap()
}

/// The end of the log as it is sent to `peer`, and the session of that.
fn session_with(member: &mut Member, peer: u64) -> u64 {
    let (last_index, term) = (0, 1);
    let peer = MemberId(peer);
    let out = step(member, Input::PeerOpened { peer, last_index, term });
    let to_peer = out.send.iter().filter(|(to, _)| *to == peer);
    to_peer.filter_map(|(_, message)| relayed::session_of(&message.inner)).last().unwrap()
}

/// What a peer answers to a relay: durable and received up to these.
fn answer(from: u64, session: u64, durable: u64, received: u64) -> Input {
    let more = RaftMessage {
        index: durable,
        reject_hint: received,
        context: relayed::context(session),
        ..RaftMessage::default()
    };
    message(MessageType::MsgAppendResponse, from, 1, more)
}

#[test]
fn a_member_in_recovery_gives_no_vote_and_never_stands() {
    let mut member = member_of(in_recovery(), 3, 3);
    let more = RaftMessage { index: 1_000, log_term: 4, ..RaftMessage::default() };
    for kind in [MessageType::MsgRequestVote, MessageType::MsgRequestPreVote] {
        let out = step(&mut member, message(kind, 2, 5, more.clone()));
        assert!(out.send.is_empty() && out.hard_state.is_none(), "{kind:?}: {out:?}");
    }
    step(&mut member, message(MessageType::MsgTimeoutNow, 2, 1, RaftMessage::default()));
    step(&mut member, Input::Transfer(MemberId(1)));
    step(&mut member, Input::Form);
    let mut out = Output::default();
    (0..200).for_each(|at| member.step(Time(30_000_000 + at * 50_000), Input::Tick, &mut out));
    assert_eq!((member.role(), member.mode()), (Role::Follower, Mode::Recovery));
    assert!(out.send.is_empty() && member.next_try().is_none());
}

#[test]
fn a_group_in_recovery_that_is_new_needs_no_formation() {
    let mode = Mode::Recovery;
    let mut member = member_of(HardState { mode, ..HardState::default() }, 0, 0);
    for (peer, votes) in [(2, false), (3, true)] {
        let opened = Input::PeerOpened { peer: MemberId(peer), last_index: 0, term: 0 };
        step(&mut member, opened);
        assert_eq!(member.may_vote(), votes, "it knows that all logs are empty");
    }
}

#[test]
fn a_recovery_member_that_lost_its_disk_counts_again_with_all_that_each_other_had() {
    let mode = Mode::Recovery;
    let mut member = member_of(HardState { mode, ..HardState::default() }, 0, 0);
    for (peer, last_index) in [(2, 2), (3, 3)] {
        step(&mut member, Input::PeerOpened { peer: MemberId(peer), last_index, term: 1 });
    }
    step(&mut member, shipment(1, 0, 1..4));
    for (durable, votes) in [(2, false), (3, true)] {
        step(&mut member, Input::Durable(place_of(durable, 1).end));
        assert_eq!(member.may_vote(), votes);
    }
}

#[test]
fn shipments_are_acknowledged_up_to_what_is_durable_and_a_gap_names_where_to_go_on() {
    let mut member = member_of(in_recovery(), 0, 0);
    let received = shipped(&mut member, shipment(1, 0, 1..4));
    assert_eq!((received.received, received.durable.index), (place_of(3, 1), 0));
    let gap = shipped(&mut member, shipment(1, 5, 6..9));
    assert_eq!(gap.refused, Some(ShipmentRefusal::SendFrom { index: 4, refused: 5 }));
    assert_eq!(gap.received, place_of(3, 1), "nothing of it is lost");
    // Out of order, and again.
    let again = shipped(&mut member, shipment(1, 1, 2..6));
    assert_eq!((again.refused, again.received), (None, place_of(5, 1)));
    let durable = shipped(&mut member, Input::Durable(place_of(4, 1).end));
    assert_eq!(durable.durable, place_of(4, 1));
    assert_eq!(durable.recovery_point, BatchPlace::default(), "a majority is two");
}

#[test]
fn the_recovery_point_is_what_a_majority_acknowledged_as_durable_in_this_session() {
    let mut member = member_of(in_recovery(), 0, 0);
    step(&mut member, shipment(1, 0, 1..6));
    step(&mut member, Input::Durable(place_of(5, 1).end));
    let session = session_with(&mut member, 2);
    let point = |member: &Member| (member.committed(), member.shipped_answer(None).recovery_point);
    step(&mut member, answer(2, session ^ 1, 5, 5));
    assert_eq!(point(&member), (0, BatchPlace::default()), "said on another connection");
    step(&mut member, answer(2, session, 2, 5));
    assert_eq!(point(&member), (2, place_of(2, 1)), "received is not durable");
    step(&mut member, answer(2, session, 900, 900));
    assert_eq!(point(&member), (5, place_of(5, 1)), "no more than there is");
    // A process that is back may have lost what it had: it is asked again.
    step(&mut member, shipment(1, 5, 6..7));
    step(&mut member, Input::Durable(place_of(6, 1).end));
    session_with(&mut member, 2);
    step(&mut member, answer(2, session, 6, 6));
    assert_eq!(point(&member), (5, place_of(5, 1)));
}

/// The others were promoted without the relay, and it hears their leader before what the live group
/// has sent meanwhile: the leader's batches have the numbers of those of the live group, and are
/// none of its log.
#[test]
fn the_last_words_of_a_relay_name_no_batch_of_the_leader_that_was_promoted() {
    let mut member = member_of(in_recovery(), 0, 0);
    step(&mut member, shipment(1, 0, 1..4));
    step(&mut member, Input::Durable(place_of(3, 1).end));
    let session = session_with(&mut member, 2);
    step(&mut member, answer(2, session, 3, 3));
    assert_eq!(member.committed(), 3);
    let term = begun_behind(1, &HISTORY) + 1;
    let Input::Message(Message { inner }) = append(2, term, (3, 1), 4..8) else { unreachable!() };
    let inner = RaftMessage { commit: 7, ..inner };
    let last = shipped(&mut member, Input::Message(Message { inner }));
    assert_eq!(member.raw.raft.raft_log.committed, 7, "it is known to be committed");
    assert_eq!(last.refused, Some(ShipmentRefusal::Promoted));
    let shipped = place_of(3, 1);
    assert_eq!((last.recovery_point, last.majority, last.received), (shipped, shipped, shipped));
}

#[test]
fn a_group_of_one_in_recovery_is_its_own_majority() {
    let options = Options { voters: vec![id(0)], ..first_of_three() };
    let mut member = Member::new(options, in_recovery(), RecoveredLog::default(), Time(1));
    step(&mut member, shipment(1, 0, 1..3));
    step(&mut member, shipment(1, 2, 3..4));
    let answer = shipped(&mut member, Input::Durable(place_of(2, 1).end));
    assert_eq!((answer.recovery_point, member.committed()), (place_of(2, 1), 2));
    // Promoted, it leads when all of its log is on its disk, and not before.
    let out = step(&mut member, Input::Promote { history: HISTORY, stands: true });
    assert_eq!((out.lead, member.mode()), (None, Mode::Promoting));
    let mut out = Output::default();
    member.step(Time(20_000), Input::Durable(place_of(3, 1).end), &mut out);
    (1..9).for_each(|at| member.step(Time(20_000 + at * 10_000), Input::Tick, &mut out));
    assert_eq!(out.lead, Some(begun_behind(1, &HISTORY) + 1));
}

#[test]
fn what_a_relay_sends_is_taken_like_a_shipment_and_acknowledged_when_it_is_durable() {
    let mut member = member_of(in_recovery(), 0, 0);
    let send = |behind: u64, batches: std::ops::Range<u64>, commit: u64| {
        let Input::Message(Message { inner }) = append(2, 1, (behind, behind.min(1)), batches)
        else {
            unreachable!()
        };
        let context = relayed::context(77);
        Input::Message(Message { inner: RaftMessage { commit, context, ..inner } })
    };
    let answers = |out: &Output| -> Vec<(u64, bool, u64, Option<u64>)> {
        let inner = out.send.iter().map(|(_, message)| &message.inner);
        inner.map(|it| (it.index, it.reject, it.reject_hint, relayed::session_of(it))).collect()
    };
    let out = step(&mut member, send(0, 1..2, 0));
    assert_eq!(out.receive.len(), 1);
    assert_eq!(answers(&out), [(0, false, 1, Some(77))], "received, and not durable");
    step(&mut member, send(1, 2..3, 2));
    step(&mut member, send(2, 3..4, 2));
    let out = step(&mut member, send(5, 6..7, 2));
    assert_eq!(answers(&out), [(5, true, 4, Some(77))], "a gap");
    let out = step(&mut member, Input::Durable(place_of(1, 1).end));
    assert_eq!(answers(&out), [(1, false, 3, Some(77))]);
    assert_eq!(member.committed(), 1, "what is said and durable here");
    step(&mut member, Input::Durable(place_of(3, 1).end));
    assert_eq!(member.committed(), 2, "and no more than was said");
    assert_eq!((member.leader(), member.relay()), (None, Some(MemberId(2))));
}

#[test]
fn a_promoted_member_takes_nothing_of_the_old_history_from_then_on() {
    let mut member = member_of(in_recovery(), 3, 3);
    step(&mut member, shipment(1, 3, 4..6));
    let out = step(&mut member, Input::Promote { history: HISTORY, stands: false });
    let hard_state = out.hard_state.unwrap();
    assert_eq!((hard_state.mode, hard_state.promoted_to), (Mode::Promoting, HISTORY));
    assert_eq!(hard_state.term, begun_behind(1, &HISTORY));
    assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::Promoted), "it is said");
    let again = Member::new(
        first_of_three(),
        hard_state,
        RecoveredLog {
            places: (1..=5).map(|index| place_of(index, 1)).collect(),
            applied: 3,
            base: BatchPlace::default(),
        },
        Time(1),
    );
    for member in [&mut member, &mut { again }] {
        let out = step(member, shipment(1, 5, 6..8));
        assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::Promoted));
        assert!(out.receive.is_empty());
        // Whatever term it comes in: a member that takes part in elections takes none.
        let term = member.hard_state().term;
        let out = step(member, Input::Shipped(Shipment { term, ..Shipment::default() }));
        assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::Promoted));
        let Input::Message(Message { inner }) = append(2, 1, (5, 1), 6..8) else { unreachable!() };
        let inner = RaftMessage { context: relayed::context(7), ..inner };
        let out = step(member, Input::Message(Message { inner }));
        assert!(out.receive.is_empty() && member.last().index == 5);
        assert!(out.send.iter().all(|(_, message)| message.inner.reject), "{:?}", out.send);
    }
}

#[test]
fn a_promotion_needs_a_marked_majority_and_no_more() {
    let mut member = member_of(in_recovery(), 3, 3);
    let out = step(&mut member, Input::Promote { history: HISTORY, stands: true });
    let asked: Vec<_> = out.send.iter().map(|(to, it)| (to.0, it.inner.msg_type)).collect();
    let kind = MessageType::MsgRequestVote;
    assert_eq!(asked, [(2, kind), (3, kind)], "at once, without a first question");
    let term = begun_behind(1, &HISTORY) + 1;
    assert_eq!(out.hard_state.unwrap().term, term);
    assert_eq!(member.role(), Role::Candidate, "one vote is none");
    let granted = message(MessageType::MsgRequestVoteResponse, 3, term, RaftMessage::default());
    assert_eq!(step(&mut member, granted).lead, Some(term));
}

#[test]
fn a_timeline_is_entered_by_a_majority_before_its_first_batch_is_taken() {
    let mut member = member_of(in_recovery(), 3, 3);
    let term = begun_behind(1, &HISTORY) + 1;
    let first = || {
        let batches = vec![batch(4, term)];
        Input::Shipped(Shipment { term, previous: place_of(3, 1), batches })
    };
    let out = step(&mut member, first());
    assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::NotYet));
    assert_eq!((out.receive.len(), out.hard_state.unwrap().term), (0, term));
    let called = out.send.iter().map(|(to, it)| (to.0, it.inner.term, it.inner.entries.len()));
    assert_eq!(called.collect::<Vec<_>>(), [(2, term, 0), (3, term, 0)]);
    let session = relayed::session_of(&out.send[0].1.inner).unwrap();
    let more = RaftMessage { context: relayed::context(session), ..RaftMessage::default() };
    let out = step(&mut member, message(MessageType::MsgAppendResponse, 2, term, more));
    assert_eq!(out.shipped.unwrap().refused, None, "the live group hears that it may go on");
    assert_eq!(step(&mut member, first()).receive.len(), 1);
}

#[test]
fn another_batch_of_one_timeline_is_of_another_log_and_cuts_nothing_off() {
    let mut member = member_of(in_recovery(), 5, 3);
    let other = |index: u64, previous| {
        let batches = (index..7).map(|index| batch(index, 2)).collect();
        Input::Shipped(Shipment { term: 2, previous, batches })
    };
    for (index, previous) in [(5, place_of(4, 1)), (3, place_of(2, 1)), (6, place_of(5, 2))] {
        let out = step(&mut member, other(index, previous));
        let at = index.min(5);
        assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::Diverged { index: at }));
        assert!(out.receive.is_empty());
    }
    // One of the time when this group was live was never committed, perhaps.
    let mut returned = member_of(HardState { left_term: 1, ..in_recovery() }, 5, 3);
    assert_eq!(step(&mut returned, other(5, place_of(4, 1))).receive[0], batch(5, 2));
}

#[test]
fn a_leader_of_the_time_when_this_group_was_live_is_none_in_recovery() {
    let later = begun_behind(1, &HISTORY) + 1;
    for (left_term, term, is_taken) in [(1, 2, false), (1, later, true), (0, later, true)] {
        let mut member = member_of(HardState { left_term, ..in_recovery() }, 3, 3);
        let out = step(&mut member, append(2, term, (3, 1), 4..5));
        assert_eq!(out.receive.len(), usize::from(is_taken), "{left_term}, {term}");
    }
}

/// Both groups were promoted behind one batch; the one that returned had the greater mark. It took
/// the switch back to it for one that was past, and none of the two was live.
#[test]
fn one_that_returned_becomes_live_with_a_later_batch_and_with_none_that_it_had_before() {
    let voids = begun_behind(1, &HISTORY) + 1;
    let ships = begun_behind(1, &[1; 16]) + 1;
    assert!(voids > ships, "they are of one era");
    let voted = HardState { term: voids, ..in_recovery() };
    let kept = HardState { mode: Mode::Voting, ..voted }.returned(place_of(3, 1));
    let becomes = |at: BatchPlace| {
        let places = (1..4).map(|index| place_of(index, 1)).chain([place_of(4, ships)]).collect();
        let hard_state = HardState {
            term: ships,
            committed: 4,
            committed_end: place_of(4, ships).end,
            ..HardState::decode(&kept.encode()).unwrap()
        };
        let held = RecoveredLog { base: BatchPlace::default(), places, applied: at.index };
        let mut member = Member::new(first_of_three(), hard_state, held, Time(1));
        let (mode, history) = (Mode::Voting, [7; 16]);
        step(&mut member, Input::Become { mode, history, at });
        member.mode()
    };
    assert_eq!(becomes(place_of(4, ships)), Mode::Voting);
    assert_eq!(becomes(place_of(2, 1)), Mode::Recovery, "it was live there before it returned");
}

#[test]
fn what_a_voter_says_is_committed_is_so_in_recovery() {
    let mut member = member_of(in_recovery(), 5, 3);
    let term = begun_behind(1, &HISTORY) + 1;
    let more = |commit_term| RaftMessage {
        index: 5,
        log_term: 1,
        commit: 5,
        commit_term,
        ..RaftMessage::default()
    };
    for (commit_term, committed) in [(2, 3), (1, 5)] {
        let asked = message(MessageType::MsgRequestPreVote, 2, term, more(commit_term));
        assert!(step(&mut member, asked).send.is_empty());
        assert_eq!(member.committed(), committed, "of another batch nothing follows");
    }
}

#[test]
fn a_leader_whose_last_batch_makes_another_group_live_says_so_and_begins_again() {
    let mut trio = Trio::formed(3);
    let leader = trio.run_until_leader();
    trio.propose(leader, b"the last one");
    let last = trio.member(leader).last();
    while trio.member(leader).committed() < last.index {
        trio.run(Duration::from_micros(100));
    }
    let mut member = trio.take(leader);
    let (now, mode, history) = (trio.now, Mode::Recovery, HISTORY);
    let mut out = Output::default();
    member.step(now, Input::Become { mode, history, at: last }, &mut out);
    let commits = out.send.iter().map(|(_, it)| it.inner.commit).collect::<Vec<_>>();
    assert_eq!(commits, [last.index; 2], "none tells the others later");
    let hard_state = out.hard_state.unwrap();
    assert_eq!((hard_state.mode, hard_state.committed), (mode, last.index));
    assert_eq!(hard_state.left_term, last.term);
    let mut out = Output::default();
    member.step(now, Input::Tick, &mut out);
    assert!(out.begins_again && out.role == Some(Role::Follower));
}

#[test]
fn what_is_in_flight_to_a_peer_is_bounded_and_goes_on_with_its_answers() {
    let mut member = member_of(in_recovery(), 0, 0);
    let session = session_after_first_batch(&mut member);
    static LARGE: [u8; 600_000] = [7; 600_000];
    let mut lsn = place_of(1, 1).end.0.next_multiple_of(4_096);
    let mut previous = place_of(1, 1);
    let mut sent = Vec::new();
    for index in 2..60 {
        let batch = Batch { index, term: 1, lsn: Lsn(lsn), payload: Bytes::from_static(&LARGE) };
        let place = batch.place();
        let batches = vec![batch];
        let out = step(&mut member, Input::Shipped(Shipment { term: 1, previous, batches }));
        (previous, lsn) = (place, place.end.0.next_multiple_of(4_096));
        sent.extend(out.send.into_iter().filter(|(to, _)| *to == MemberId(2)));
    }
    let bytes = |sent: &[(MemberId, Message)]| -> u64 {
        sent.iter().map(|(_, message)| message.payload_bytes() as u64).sum()
    };
    let bound = towline_types::limits::RELAYED_BYTES_MAX;
    assert!((bound..bound + LARGE.len() as u64).contains(&bytes(&sent)), "{}", bytes(&sent));
    let last = sent.len() as u64 + 1;
    let out = step(&mut member, answer(2, session, 1, last));
    assert!(bytes(&out.send) > 0, "there is space again");
}

/// The session with the second member, which has taken the first batch.
fn session_after_first_batch(member: &mut Member) -> u64 {
    step(member, shipment(1, 0, 1..2));
    let session = session_with(member, 2);
    step(member, answer(2, session, 1, 1));
    session
}

#[test]
fn what_was_lost_is_sent_again_from_where_the_peer_is() {
    let mut member = member_of(in_recovery(), 0, 0);
    let session = session_after_first_batch(&mut member);
    let sent = |out: &Output| -> Vec<(u64, usize)> {
        let to_peer = out.send.iter().filter(|(to, _)| *to == MemberId(2));
        to_peer.map(|(_, it)| (it.inner.index, it.inner.entries.len())).collect()
    };
    assert_eq!(sent(&step(&mut member, shipment(1, 1, 2..4))), [(1, 2)]);
    assert_eq!(sent(&step(&mut member, shipment(1, 3, 4..5))), [(3, 1)]);
    // The first of them was lost.
    let more = RaftMessage {
        index: 3,
        reject: true,
        reject_hint: 2,
        context: relayed::context(session),
        ..RaftMessage::default()
    };
    let refused = || message(MessageType::MsgAppendResponse, 2, 1, more.clone());
    assert_eq!(sent(&step(&mut member, refused())), [(1, 3)]);
    assert_eq!(sent(&step(&mut member, refused())), [], "once for each gap");
    // That too, and no answer comes.
    let mut out = Output::default();
    member.step(Time(10_000 + 600_000), Input::Tick, &mut out);
    assert_eq!(sent(&out), [(1, 3)]);
    step(&mut member, answer(2, session, 4, 4));
    let mut out = Output::default();
    member.step(Time(10_000 + 900_000), Input::Tick, &mut out);
    assert_eq!(sent(&out), [(4, 0)], "what is committed travels when nothing else does");
}

#[test]
fn a_peer_that_needs_what_the_relay_has_forgotten_hears_that_it_needs_a_copy() {
    let mut member = member_of(in_recovery(), 9, 9);
    step(&mut member, Input::Forget(place_of(5, 1).end));
    step(&mut member, shipment(1, 9, 10..11));
    let peer = MemberId(2);
    let out = step(&mut member, Input::PeerOpened { peer, last_index: 2, term: 1 });
    let offer = out.send.into_iter().find(|(to, _)| *to == peer).unwrap().1;
    assert_eq!(offer.inner.msg_type, MessageType::MsgSnapshot);
    let rows = member.progress().peers;
    assert!(rows.iter().any(|row| row.id == peer && row.needs_copy));
    let mut lagging = member_of(in_recovery(), 2, 2);
    let inner = RaftMessage { to: 1, from: 2, ..offer.inner };
    assert_eq!(step(&mut lagging, Input::Message(Message { inner })).copy_from, Some(peer));
}

/// A peer met the relay before anything was compared: it was to get a copy from the beginning,
/// although it had all, and while its log was replaced the recovery point was on one disk.
#[test]
fn a_peer_that_comes_before_the_first_shipment_is_taken_and_has_all_gets_no_copy() {
    let mut member = member_of(in_recovery(), 9, 9);
    step(&mut member, Input::Forget(place_of(5, 1).end));
    let term = begun_behind(1, &HISTORY) + 1;
    let first = || {
        let batches = vec![batch(10, term)];
        Input::Shipped(Shipment { term, previous: place_of(9, 1), batches })
    };
    let out = step(&mut member, first());
    assert_eq!(out.shipped.unwrap().refused, Some(ShipmentRefusal::NotYet));
    let to_third = out.send.iter().find(|(to, _)| *to == MemberId(3)).unwrap();
    let session = relayed::session_of(&to_third.1.inner).unwrap();
    step(&mut member, Input::PeerOpened { peer: MemberId(2), last_index: 9, term: 1 });
    let more = RaftMessage { context: relayed::context(session), ..RaftMessage::default() };
    step(&mut member, message(MessageType::MsgAppendResponse, 3, term, more));
    let out = step(&mut member, first());
    let sent = out.send.iter().map(|(to, it)| (to.0, it.inner.msg_type, it.inner.index));
    let append = MessageType::MsgAppend;
    assert_eq!(sent.collect::<Vec<_>>(), [(2, append, 9), (3, append, 9)]);
}

/// The same from its side: an older relay may offer one.
#[test]
fn a_member_that_has_the_batch_with_which_a_copy_begins_says_from_where_it_goes_on() {
    let mut relay = member_of(in_recovery(), 9, 9);
    step(&mut relay, Input::Forget(place_of(5, 1).end));
    step(&mut relay, shipment(1, 9, 10..11));
    let open = Input::PeerOpened { peer: MemberId(2), last_index: 2, term: 1 };
    let offer = step(&mut relay, open).send.into_iter().find(|(to, _)| *to == MemberId(2));
    let inner = RaftMessage { to: 1, from: 2, ..offer.unwrap().1.inner };
    let mut member = member_of(in_recovery(), 9, 9);
    let out = step(&mut member, Input::Message(Message { inner }));
    assert_eq!(out.copy_from, None);
    let said: Vec<(bool, u64)> =
        out.send.iter().map(|(_, it)| (it.inner.reject, it.inner.reject_hint)).collect();
    assert_eq!(said, [(true, 6)]);
}
