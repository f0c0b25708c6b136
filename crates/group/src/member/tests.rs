//! Three members over a network and logs made of vectors.

mod alone;
mod histories;
mod lagging;
mod meeting;
mod missing_extents;
mod newest_term;
mod overtaken;
mod promises;
mod recovery;
mod regions;
mod rig;
mod terms;

use std::time::Duration;

use rig::{Trio, id};

use super::*;

const TIMEOUT: Duration = Duration::from_millis(2_000);

#[test]
fn a_new_group_elects_one_leader_and_commits_what_it_makes() {
    let mut trio = Trio::formed(1);
    let leader = trio.run_until_leader();
    trio.propose(leader, b"one");
    trio.propose(leader, b"two");
    // The next heartbeat says that it is committed.
    trio.run(Duration::from_millis(600));
    assert_eq!(trio.committed_payloads(leader), trio.committed_payloads((leader + 1) % 3));
    assert_eq!(trio.committed_payloads(leader).last().map(Vec::as_slice), Some(&b"two"[..]));
    trio.check();
}

#[test]
fn blank_members_wait_for_all_before_they_vote() {
    let mut trio = Trio::blank(2);
    trio.run(Duration::from_secs(10));
    assert_eq!(trio.leader(), None);
}

#[test]
fn a_leader_whose_process_dies_is_replaced_within_a_tenth_of_a_second() {
    for seed in 0..50 {
        let mut trio = Trio::formed(seed);
        let leader = trio.run_until_leader();
        trio.propose(leader, b"kept");
        trio.run(Duration::from_millis(300));
        let began = trio.now;
        trio.kill(leader);
        let next = trio.run_until_leader();
        assert_ne!(next, leader);
        let took = trio.now.since(began);
        assert!(took < Duration::from_millis(300), "seed {seed}: {took:?}");
        assert!(trio.committed_payloads(next).contains(&b"kept".to_vec()), "seed {seed}");
        trio.check();
    }
}

#[test]
fn a_leader_that_is_cut_off_gives_up_and_commits_nothing() {
    for seed in 0..20 {
        let mut trio = Trio::formed(seed);
        let leader = trio.run_until_leader();
        trio.run(Duration::from_millis(300));
        trio.cut_off(leader);
        let before = trio.member(leader).committed();
        trio.propose(leader, b"no member hears it");
        trio.run(TIMEOUT + Duration::from_millis(400));
        assert_ne!(trio.member(leader).role(), Role::Leader, "seed {seed}");
        assert!(trio.member(leader).committed() <= before, "seed {seed}");
        let next = trio.leader();
        assert!(next.is_some_and(|next| next != leader), "seed {seed}");
        trio.heal();
        trio.run(Duration::from_secs(3));
        trio.check();
        let last = trio.committed_payloads(leader);
        assert!(!last.contains(&b"no member hears it".to_vec()), "seed {seed}");
    }
}

#[test]
fn leadership_is_handed_over_at_once() {
    let mut trio = Trio::formed(5);
    let leader = trio.run_until_leader();
    trio.run(Duration::from_millis(300));
    let to = (leader + 1) % 3;
    let began = trio.now;
    trio.input(leader, Input::Transfer(id(to)));
    while trio.leader() != Some(to) {
        trio.run(Duration::from_millis(1));
        assert!(trio.now.since(began) < Duration::from_millis(100));
    }
    trio.check();
}

#[test]
fn a_member_that_came_back_to_a_group_in_which_nothing_happens_is_in_sync() {
    let mut trio = Trio::formed(7);
    let leader = trio.run_until_leader();
    let back = (leader + 1) % 3;
    trio.run(Duration::from_millis(600));
    trio.kill(back);
    trio.run(Duration::from_millis(100));
    let in_sync = |trio: &Trio| {
        let peers = trio.member(leader).progress().peers;
        peers.iter().filter(|peer| peer.is_in_sync).count()
    };
    assert_eq!(in_sync(&trio), 1, "it was acknowledged by a process that is gone");
    trio.start(back);
    trio.run(Duration::from_millis(600));
    assert_eq!(in_sync(&trio), 2);
}

#[test]
fn a_member_that_lost_its_disk_is_in_sync_only_when_it_has_all_that_stood_when_it_came_back() {
    // In the gate the active one called it in sync when half of the log was there: all of it was
    // younger than two heartbeats.
    static LARGE: [u8; 400_000] = [7; 400_000];
    let mut trio = Trio::formed(11);
    let leader = trio.run_until_leader();
    let lost = (leader + 1) % 3;
    trio.run(Duration::from_millis(20));
    (0..10).for_each(|_| trio.propose(leader, &LARGE));
    trio.run(Duration::from_millis(20));
    let acknowledged = trio.member(leader).committed();
    trio.kill(lost);
    trio.wipe(lost);
    trio.start(lost);
    let until = trio.now + Duration::from_secs(1);
    let row = |trio: &Trio| {
        let peers = trio.member(leader).progress().peers;
        peers.into_iter().find(|peer| peer.id == id(lost)).unwrap()
    };
    while !row(&trio).is_in_sync {
        assert!(trio.now < until, "it is in sync in the end");
        trio.run(Duration::from_micros(100));
    }
    assert!(trio.member(lost).last().index >= acknowledged, "it has what was acknowledged");
    assert!(trio.member(lost).may_vote(), "it can help to elect at once");
}

#[test]
fn a_member_that_lost_its_disk_does_not_vote_before_it_caught_up() {
    let mut trio = Trio::formed(6);
    let leader = trio.run_until_leader();
    (0..20).for_each(|_| trio.propose(leader, b"acknowledged"));
    trio.run(Duration::from_millis(500));
    let lost = (leader + 1) % 3;
    trio.kill(lost);
    trio.wipe(lost);
    trio.start(lost);
    assert!(!trio.member(lost).may_vote());
    trio.run(Duration::from_millis(600));
    assert!(trio.member(lost).may_vote());
    assert_eq!(trio.committed_payloads(lost), trio.committed_payloads(leader));
    trio.check();
}

#[test]
fn a_member_that_lost_its_disk_does_not_take_a_new_leaders_word_for_what_is_committed() {
    // More than one message holds, so that it has less at first than the leader has.
    static LARGE: [u8; 400_000] = [7; 400_000];
    let mut trio = Trio::formed(9);
    let leader = trio.run_until_leader();
    let lost = (leader + 1) % 3;
    let other = (leader + 2) % 3;
    trio.run(Duration::from_millis(300));
    trio.cut_off(other);
    (0..4).for_each(|_| trio.propose(leader, &LARGE));
    trio.run(Duration::from_millis(300));
    let acknowledged = trio.member(leader).committed();
    assert_eq!(trio.committed_payloads(leader).last().map(Vec::len), Some(LARGE.len()));
    // A leader that restarted does not know what was committed before it commits something.
    trio.kill(leader);
    trio.kill(lost);
    trio.wipe(lost);
    trio.heal();
    trio.start(lost);
    trio.start(leader);
    let until = trio.now + Duration::from_secs(4);
    while !trio.member(lost).may_vote() {
        trio.run(Duration::from_micros(100));
        assert!(trio.now < until, "it votes again in the end");
    }
    assert!(trio.member(lost).last().index >= acknowledged, "it has what was acknowledged");
    trio.check();
}

/// A group, its leader, and a member that is down and behind all that the leader can send.
fn one_too_far_behind(seed: u64) -> (Trio, usize, usize) {
    let mut trio = Trio::formed(seed);
    let leader = trio.run_until_leader();
    let behind = (leader + 1) % 3;
    trio.kill(behind);
    (0..50).for_each(|_| trio.propose(leader, b"much"));
    trio.run(Duration::from_millis(500));
    let upto = trio.member(leader).last().end;
    trio.input(leader, Input::Forget(upto));
    (trio, leader, behind)
}

#[test]
fn a_member_that_is_too_far_behind_asks_for_a_copy() {
    let (mut trio, leader, behind) = one_too_far_behind(7);
    trio.start(behind);
    trio.run(Duration::from_millis(500));
    assert_eq!(trio.copies_wanted(behind), Some(id(leader)));
}

#[test]
fn what_is_not_committed_is_not_forgotten_however_far_the_driver_goes() {
    let mut trio = Trio::formed(12);
    let leader = trio.run_until_leader();
    (0..3).for_each(|_| trio.propose(leader, b"committed"));
    trio.run(Duration::from_millis(300));
    trio.cut_off(leader);
    (0..3).for_each(|_| trio.propose(leader, b"not committed"));
    trio.run(Duration::from_millis(20));
    let (committed, last) = (trio.member(leader).committed_place(), trio.member(leader).last());
    assert!(committed.index < last.index);
    trio.input(leader, Input::Forget(last.end));
    assert_eq!(trio.member(leader).committed_place(), committed, "the next leader may cut behind");
    assert!(trio.member(leader).place(committed.index + 1).is_some());
}

#[test]
fn a_member_that_was_not_reached_hears_again_that_it_needs_a_copy() {
    // In this one, as in most, the leader's first message falls into the 50 ms without a network.
    let (mut trio, leader, behind) = one_too_far_behind(11);
    trio.cut_off(behind);
    trio.start(behind);
    trio.run(Duration::from_millis(50));
    trio.heal();
    trio.run(TIMEOUT / 2);
    assert_eq!(trio.copies_wanted(behind), None, "it was lost");
    trio.run(TIMEOUT);
    assert_eq!(trio.copies_wanted(behind), Some(id(leader)));
}

#[test]
fn a_member_that_got_a_copy_is_sent_what_follows_and_no_second_copy() {
    let (mut trio, leader, behind) = one_too_far_behind(8);
    trio.start(behind);
    trio.run(Duration::from_millis(200));
    assert_eq!(trio.copies_wanted(behind), Some(id(leader)));
    trio.kill(behind);
    trio.copy(leader, behind);
    trio.start(behind);
    trio.propose(leader, b"after the copy");
    trio.run(Duration::from_millis(500));
    assert_eq!(trio.copies_wanted(behind), None);
    assert_eq!(trio.committed_payloads(behind), trio.committed_payloads(leader));
}

/// What a leader sends: batches behind the one of this index and term.
fn append(leader: u64, term: u64, behind: (u64, u64), batches: std::ops::Range<u64>) -> Input {
    let entry = |index: u64| Entry {
        index,
        term,
        context: bytes::Bytes::copy_from_slice(&(index * 4_096).to_le_bytes()),
        ..Entry::default()
    };
    let entries: Vec<Entry> = batches.map(entry).collect();
    Input::Message(Message {
        inner: RaftMessage {
            msg_type: MessageType::MsgAppend,
            from: leader,
            to: 1,
            term,
            index: behind.0,
            log_term: behind.1,
            entries: entries.into(),
            ..RaftMessage::default()
        },
    })
}

/// The first of three members; it need not meet the others first.
fn first_of_three() -> Options {
    Options {
        id: id(0),
        voters: (0..3).map(id).collect(),
        tick: Duration::from_millis(50),
        heartbeat_interval: Duration::from_millis(250),
        heartbeat_timeout: TIMEOUT,
        seed: 1,
        meets_first: false,
        lacks_batches: false,
    }
}

#[test]
fn a_reply_about_earlier_batches_waits_until_they_are_durable_even_if_later_ones_are_cut_off() {
    let hard_state = HardState { knows_term: true, ..HardState::default() };
    let mut member = Member::new(first_of_three(), hard_state, RecoveredLog::default(), Time(1));
    let mut out = Output::default();
    member.step(Time(2), append(2, 1, (0, 0), 1..4), &mut out);
    // Asked whether it has the second: it has, but not on its disk.
    member.step(Time(3), append(2, 1, (2, 1), 3..3), &mut out);
    member.step(Time(4), append(3, 2, (2, 1), 3..4), &mut out);
    let replies = |out: &Output| -> Vec<u64> {
        let to_leader = out.send.iter().filter(|(to, _)| *to == id(2));
        to_leader.map(|(_, message)| message.inner.index).collect()
    };
    assert!(out.send.is_empty(), "{:?}", out.send);
    member.step(Time(5), Input::Durable(Lsn(2 * 4_096 + 40)), &mut out);
    assert!(replies(&out).is_empty());
    member.step(Time(6), Input::Durable(Lsn(3 * 4_096 + 40)), &mut out);
    assert_eq!(replies(&out), [3]);
}

#[test]
fn a_late_word_of_a_leader_that_was_replaced_takes_no_member_out_of_sync() {
    let mut trio = Trio::formed(17);
    let old = trio.run_until_leader();
    trio.run(Duration::from_millis(300));
    let term = trio.member(old).progress().term;
    trio.cut_off(old);
    trio.run(Duration::from_secs(3));
    let new = (0..3).find(|at| *at != old && trio.member(*at).progress().role == Role::Leader);
    let follower = 3 - old - new.unwrap();
    assert!(trio.member(follower).progress().is_in_sync);
    let late = RaftMessage {
        msg_type: MessageType::MsgHeartbeat,
        from: id(old).0,
        to: id(follower).0,
        term,
        ..RaftMessage::default()
    };
    trio.input(follower, Input::Message(Message { inner: late }));
    assert!(trio.member(follower).progress().is_in_sync, "it says nothing of the new one");
}

#[test]
fn histories_of_kills_cuts_and_slow_disks_lose_nothing_that_was_committed() {
    let seeds = std::env::var("GROUP_SEED").ok().and_then(|seed| seed.parse().ok());
    // A few: the simulator (`crates/sim`) has more of everything.
    let seeds = seeds.map_or(0..4, |seed: u64| seed..seed + 1);
    for seed in seeds {
        println!("GROUP_SEED={seed}");
        rig::history(seed);
    }
}
