//! A member that starts hears first what the others know of it, and what they can say.

use super::promises::{message, noted, place_of};
use super::*;

/// One member of three that starts, with three batches of term 1.
fn starts() -> Member {
    let options = Options { meets_first: true, ..first_of_three() };
    let places = (1..=3).map(|index| place_of(index, 1)).collect();
    let held = RecoveredLog { base: BatchPlace::default(), places, applied: 3 };
    Member::new(options, noted(3), held, Time(1))
}

fn opened(peer: u64) -> Input {
    Input::PeerOpened { peer: MemberId(peer), last_index: 3, term: 4 }
}

/// How many messages leave when a leader shows itself.
fn answers(member: &mut Member, now: Time) -> usize {
    let mut out = Output::default();
    let heartbeat = message(MessageType::MsgHeartbeat, 2, 4, RaftMessage::default());
    member.step(now, heartbeat, &mut out);
    out.send.len()
}

/// Whether it asks for votes at this time.
fn asks(member: &mut Member, now: Time) -> bool {
    let mut out = Output::default();
    for _ in 0..2 {
        member.step(now, Input::Tick, &mut out);
        let at = member.next_try().unwrap_or(now);
        member.step(at.max(now), Input::Tick, &mut out);
    }
    !out.send.is_empty()
}

#[test]
fn a_member_that_starts_takes_part_when_it_has_met_the_others_or_waited_for_them() {
    let soon = Time(2_000);
    let mut member = starts();
    let mut out = Output::default();
    assert!(!asks(&mut member, soon) && answers(&mut member, soon) == 0);
    member.step(soon, opened(2), &mut out);
    assert!(!asks(&mut member, soon) && answers(&mut member, soon) == 0, "one is not heard");
    member.step(soon, opened(3), &mut out);
    assert_eq!(answers(&mut member, soon), 1);
    let mut member = starts();
    assert!(!asks(&mut member, Time(1) + (TIMEOUT - Duration::from_millis(200))));
    assert!(asks(&mut member, Time(1) + TIMEOUT), "it waits for none that is gone");
}

/// What the others heard one member promise, and that member as it started again from a copy of its
/// disk that was made before.
fn put_back(seed: u64, of_leader: bool) -> (Trio, usize, usize) {
    let mut trio = Trio::formed(seed);
    let leader = trio.run_until_leader();
    trio.propose(leader, b"before");
    trio.run(Duration::from_millis(600));
    let back = if of_leader { leader } else { (leader + 1) % 3 };
    trio.note(back);
    let copy = trio.copy_disk(back);
    (0..5).for_each(|_| trio.propose(leader, b"acknowledged"));
    trio.run(Duration::from_millis(600));
    let other = (0..3).find(|at| *at != back && *at != leader).unwrap();
    let witness = if of_leader { other } else { leader };
    if of_leader {
        // A term that the copy does not know.
        trio.input(leader, Input::Transfer(id(other)));
        trio.run(Duration::from_millis(600));
        assert_eq!(trio.leader(), Some(other), "seed {seed}");
    }
    let said = trio.member(witness).witness(id(back));
    assert!(!trio.member(back).is_contradicted_by(said), "seed {seed}: it has all");
    trio.kill(back);
    trio.start(back);
    let said = trio.member(witness).witness(id(back));
    assert!(!trio.member(back).is_contradicted_by(said), "seed {seed}: a restart");
    trio.kill(back);
    trio.put_disk_back(back, copy);
    (trio, witness, back)
}

#[test]
fn a_copy_of_the_disk_that_lacks_what_a_peer_heard_promised_is_contradicted() {
    for seed in 0..4 {
        for of_leader in [false, true] {
            let (mut trio, witness, back) = put_back(seed, of_leader);
            // Not yet met, so that nothing comes to it.
            trio.part_quietly(back);
            trio.start(back);
            let said = trio.member(witness).witness(id(back));
            assert!(trio.member(back).may_vote(), "seed {seed}: it does not know by itself");
            assert!(trio.member(back).is_contradicted_by(said), "seed {seed} {of_leader} {said:?}");
            // One that knows that it forgot does not learn it again.
            trio.kill(back);
            trio.forget(back);
            trio.start(back);
            assert!(!trio.member(back).is_contradicted_by(said), "seed {seed}");
        }
    }
}

#[test]
fn what_was_acknowledged_and_never_committed_contradicts_nothing() {
    let mut trio = Trio::formed(3);
    let leader = trio.run_until_leader();
    trio.run(Duration::from_millis(600));
    let follower = (leader + 1) % 3;
    let acknowledged = trio.member(leader).witness(id(follower));
    assert!(acknowledged.index > 0 && acknowledged.index <= trio.member(leader).committed());
    let member = trio.member(follower);
    let another = Witness { index: member.last().index + 1, ..acknowledged };
    assert!(member.is_contradicted_by(another), "it was committed, and is not here");
    let mut of_none = Member::new(first_of_three(), noted(3), RecoveredLog::default(), Time(1));
    // A vote in a term in which this one did not take part: it has none to give.
    let ahead = RaftMessage { index: 9, log_term: 9, ..RaftMessage::default() };
    let mut out = Output::default();
    of_none.step(Time(2), message(MessageType::MsgRequestVote, 2, 9, ahead), &mut out);
    assert!(of_none.witness(MemberId(2)).term <= of_none.hard_state().term);
}
