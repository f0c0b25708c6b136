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
