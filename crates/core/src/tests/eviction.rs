//! Blocks leave memory a few at a time, because all clients wait meanwhile; pages just read stay
//! for two rounds, however many calls a round takes.

use towline_types::Lsn;
use towline_types::limits::BLOCKS_LEAVING_MAX;

use super::rig::{Rig, first_byte, message, persistent, spec};
use crate::page_key::PageKey;
use crate::{
    ConsumerSpec, FilterKey, Limits, NewMessage, QueueId, RelocationCursor, RelocationSearch,
};

/// Messages of a block in the tests of this crate.
const BLOCK: u64 = 8;
/// Blocks that are kept in memory whatever the limit is.
const BLOCKS_MIN: u64 = 64;
const PAGES_AT_ONCE: usize = 64;

/// The least memory, and these queues.
fn cramped(queues: &[&str]) -> Rig {
    let mut rig = Rig::with(Limits { index_bytes_max: 0, ..Limits::default() });
    queues.iter().for_each(|queue| rig.define(queue));
    rig
}

fn fill(rig: &mut Rig, queue: &str, blocks: u64, message: impl Fn(u64) -> NewMessage) {
    let target = rig.open_put(queue).unwrap();
    for number in 0..blocks * BLOCK {
        rig.send(&target, message(number), None).unwrap();
    }
    rig.core.close_put(&target);
    rig.dispatch();
}

fn plain(_: u64) -> NewMessage {
    persistent("x")
}

/// Memory is too full for ever: what is in it cannot leave.
fn fill_for_ever(rig: &mut Rig, queue: &str) {
    fill(rig, queue, 2 * BLOCKS_MIN, |_| message("x"));
}

/// Blocks that leave in so many calls.
fn fill_for_calls(rig: &mut Rig, queue: &str, calls: usize) {
    fill(rig, queue, (calls * BLOCKS_LEAVING_MAX) as u64, plain);
    rig.image();
}

fn blocks_here(rig: &Rig) -> usize {
    rig.core.page_cache.census.here()
}

/// One round, in as many calls as it takes; yields how many.
fn round(rig: &mut Rig) -> usize {
    let mut calls = 0;
    loop {
        calls += 1;
        let before = blocks_here(rig);
        let plan = rig.core.plan_eviction(PAGES_AT_ONCE);
        assert_eq!(blocks_here(rig), before - plan.left);
        assert!(plan.left <= BLOCKS_LEAVING_MAX, "all clients wait for {}", plan.left);
        rig.written(&plan.jobs);
        if !plan.more {
            return calls;
        }
        assert!(plan.left > 0 && rig.core.wants_eviction(), "each call comes further");
    }
}

#[test]
fn after_an_image_wrote_all_pages_blocks_leave_a_few_at_a_time_until_memory_is_within_its_bound() {
    let mut rig = cramped(&["Q"]);
    fill(&mut rig, "Q", 300, plain);
    rig.image();
    let calls = round(&mut rig);
    assert!(!rig.core.wants_eviction(), "all of it is one round");
    assert_eq!(blocks_here(&rig) as u64, BLOCKS_MIN);
    assert!(calls >= (300 - 64) / BLOCKS_LEAVING_MAX, "{calls}");
    rig.core.audit();
}

#[test]
fn blocks_whose_pages_were_written_for_that_leave_until_memory_is_within_its_bound() {
    let mut rig = cramped(&["Q"]);
    fill(&mut rig, "Q", 300, plain);
    let mut rounds = 0;
    while rig.core.wants_eviction() {
        rounds += 1;
        assert!(rounds <= 300, "it goes on for ever");
        round(&mut rig);
    }
    assert_eq!(blocks_here(&rig) as u64, BLOCKS_MIN);
    rig.core.audit();
}

#[test]
#[should_panic(expected = "all clients wait for what leaves")]
fn no_more_written_pages_are_handed_in_at_once_than_may_leave() {
    let mut rig = cramped(&["Q"]);
    fill(&mut rig, "Q", 300, plain);
    let plan = rig.core.plan_eviction(BLOCKS_LEAVING_MAX + 1);
    let stored = rig.store(&plan.jobs);
    rig.core.pages_stored(stored.into_iter().flatten().collect(), true);
}

/// Candidates that are gone cost a search each, and a queue that was emptied leaves many.
#[test]
fn a_call_passes_no_more_than_so_many_blocks_that_are_gone_already() {
    let mut rig = cramped(&["Q", "R"]);
    fill(&mut rig, "R", 100, plain);
    rig.image();
    fill(&mut rig, "Q", 1_100, plain);
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    let plan = rig.core.plan_eviction(PAGES_AT_ONCE);
    assert!(plan.more && plan.left == 0, "{plan:?}");
    let plan = rig.core.plan_eviction(PAGES_AT_ONCE);
    assert!(plan.left > 0, "the next call goes on there");
}

#[test]
fn a_page_just_read_stays_for_all_calls_of_the_round_and_of_the_next_one() {
    let mut rig = cramped(&["Q", "R", "S"]);
    fill(&mut rig, "Q", 3, plain);
    rig.evict();
    let mut cursor = RelocationCursor::default();
    let found = rig.core.find_old(Lsn(u64::MAX), &mut cursor, 1, &mut Vec::new());
    let RelocationSearch::Needs(request) = found else { panic!("{found:?}") };
    fill_for_ever(&mut rig, "R");
    fill_for_calls(&mut rig, "S", 10);
    assert!(rig.core.plan_eviction(PAGES_AT_ONCE).more);
    rig.arrive(request);
    assert!(round(&mut rig) >= 8 && !rig.core.needs_page(request), "in the same round");
    fill_for_calls(&mut rig, "S", 10);
    assert!(round(&mut rig) >= 8 && !rig.core.needs_page(request), "in the next one");
    round(&mut rig);
    assert!(rig.core.needs_page(request), "all the same it can leave");
    rig.core.audit();
}

#[test]
fn pages_that_were_read_leave_when_two_rounds_are_over() {
    let mut rig = cramped(&["Q"]);
    fill(&mut rig, "Q", 100, plain);
    rig.evict();
    rig.read_all();
    assert_eq!(blocks_here(&rig), 100);
    round(&mut rig);
    assert_eq!(blocks_here(&rig), 100, "each of them was wanted a moment ago");
    round(&mut rig);
    assert_eq!(blocks_here(&rig) as u64, BLOCKS_MIN);
    rig.core.audit();
}

/// What leaves is more than what a search reads, at each of its steps.
#[test]
fn a_search_for_a_key_comes_a_block_further_with_each_read_however_many_blocks_leave_meanwhile() {
    const BLOCKS: u64 = 40;
    const KEY: u64 = 42;
    /// A slice gives each queue that changed a turn, which costs a unit at least: S and Q.
    const UNITS: u32 = 2;
    let mut rig = cramped(&["Q", "R", "S"]);
    // Each block has a message of this hash, so each page is read for it; one is what is wanted.
    fill(&mut rig, "Q", BLOCKS, |number| {
        let is_last = number == (BLOCKS - 2) * BLOCK;
        let correlation_hash = if number % BLOCK == 0 { KEY } else { number + 1_000 };
        NewMessage { correlation_hash, ..persistent(if is_last { "y" } else { "x" }) }
    });
    rig.evict();
    fill_for_ever(&mut rig, "R");
    let filter = first_byte(b'y', Some(FilterKey::Correlation(KEY)));
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, 1, false);
    rig.serve();
    rig.take_outputs();
    let mut steps = 0;
    while rig.deliveries.is_empty() {
        steps += 1;
        assert!(steps <= 2 * BLOCKS, "the search does not come further");
        let target = rig.open_put("S").unwrap();
        (0..16 * BLOCK).for_each(|_| rig.send(&target, persistent("x"), None).unwrap());
        rig.core.close_put(&target);
        rig.image();
        rig.load();
        assert!(round(&mut rig) > 2, "others leave");
        rig.slice(UNITS);
        rig.take_outputs();
    }
    rig.core.audit();
}

#[test]
fn blocks_that_are_gone_are_forgotten_also_while_memory_is_not_full() {
    let mut rig = Rig::with(Limits::default());
    for first in 0..20_000 {
        let key = PageKey { queue: QueueId(99), lane: 0, first };
        rig.core.blocks_may_leave([Some(key), None]);
        let most = 2 * blocks_here(&rig) + 1_024;
        assert!(rig.core.page_cache.candidates() <= most, "after {first} blocks");
    }
    assert!(!rig.core.wants_eviction());
}
