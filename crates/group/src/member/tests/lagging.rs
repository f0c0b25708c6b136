//! A member that lags behind what the leader has in memory is served from the leader's disk.

use super::*;

/// More than a leader keeps in memory of what is newest.
const BATCHES: usize = PAYLOAD_BYTES_MAX / BATCH_BYTES + 8;
const BATCH_BYTES: usize = 1 << 20;
static LARGE: [u8; BATCH_BYTES] = [7; BATCH_BYTES];

#[test]
fn what_a_lagging_member_needs_is_read_once_however_often_it_is_wanted_meanwhile() {
    let mut trio = Trio::formed(1);
    let leader = trio.run_until_leader();
    let lagging = (leader + 1) % 3;
    trio.kill(lagging);
    for _ in 0..BATCHES {
        trio.propose(leader, &LARGE);
        trio.run(Duration::from_millis(1));
    }
    trio.run(Duration::from_millis(300));
    trio.hold_reads();
    trio.start(lagging);
    // The disk takes its time, and the load goes on: each batch has the leader try again.
    for _ in 0..200 {
        trio.propose(leader, b"load");
        trio.run(Duration::from_millis(2));
    }
    assert_eq!(trio.reads_waiting(), 1, "the same batches are read again and again");
    let own_word = trio.member(lagging).progress();
    assert!(own_word.hears_leader && !own_word.is_in_sync, "it knows that it lags");
    let before = trio.member(lagging).last().index;
    trio.answer_reads();
    trio.run(Duration::from_millis(2));
    assert!(trio.member(lagging).last().index > before, "it goes on with what was read");
}

#[test]
fn a_member_says_that_it_is_in_sync_only_while_it_hears_its_leader() {
    let mut trio = Trio::formed(3);
    let leader = trio.run_until_leader();
    let cut_off = (leader + 1) % 3;
    trio.run(TIMEOUT);
    let own_word = |trio: &Trio, at: usize| {
        let progress = trio.member(at).progress();
        (progress.hears_leader, progress.is_in_sync)
    };
    assert!((0..3).all(|at| own_word(&trio, at) == (true, true)));
    trio.cut_off(cut_off);
    trio.run(2 * TIMEOUT);
    assert_eq!(own_word(&trio, cut_off), (false, false));
    assert_eq!(own_word(&trio, leader), (true, true));
    trio.heal();
    trio.run(2 * TIMEOUT);
    assert!((0..3).all(|at| own_word(&trio, at) == (true, true)));
}

/// `towline instance replace` gives up the log of an instance on this word of both others.
#[test]
fn after_an_election_a_member_is_called_in_sync_only_with_all_that_was_committed_before() {
    static BATCH: [u8; 40_000] = [7; 40_000];
    for seed in 0..10 {
        let mut trio = Trio::formed(seed);
        let leader = trio.run_until_leader();
        let lagging = (leader + 1) % 3;
        trio.run(TIMEOUT);
        trio.cut_off(lagging);
        let before = trio.member(leader).committed();
        for _ in 0..20 {
            trio.propose(leader, &BATCH);
        }
        // The next leader has it, and has not heard that it is committed.
        while trio.member(leader).committed() < before + 20 {
            trio.run(Duration::from_micros(50));
        }
        let committed = trio.member(leader).committed();
        trio.kill(leader);
        trio.heal();
        let until = trio.now + 10 * TIMEOUT;
        let is_in_sync = |trio: &Trio| trio.member(lagging).progress().is_in_sync;
        while trio.leader().is_none_or(|next| next == leader) || !is_in_sync(&trio) {
            assert!(trio.now < until, "seed {seed}: it is in sync in the end");
            trio.run(Duration::from_micros(50));
            let next = (leader + 2) % 3;
            let rows = trio.member(next).progress().peers.into_iter();
            let row = rows.filter(|row| row.id == id(lagging)).any(|row| row.is_in_sync);
            let has_all = trio.member(lagging).last().index >= committed;
            let what = (row, is_in_sync(&trio));
            assert!(has_all || what == (false, false), "seed {seed}: {what:?}");
        }
    }
}
