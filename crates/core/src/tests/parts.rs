//! Commits in parts: whole or not at all, in order, and with the turns of others between.

use towline_types::{FORMAT_LEVEL_OF_REGIONS, FORMAT_LEVEL_UNASKED, HistoryId, Lsn, Time};

use super::rig::{CLIENT, OTHER, Rig, message, persistent, spec};
use crate::command::{Define, DefineModel, LocalChanges};
use crate::object::ObjectType;
use crate::{
    BeginHistory, CommitId, Decision, Delivery, Durability, Fact, Limits, LogCounts,
    MessageSequence, Outcome, Principal, Refusal, UnitId,
};

const MANY: u32 = 600;

/// At format level 2; units of more than ten messages are committed in parts.
fn rig() -> Rig {
    let mut rig = Rig::with(Limits { committed_at_once_max: 10, ..Limits::default() });
    rig.define("Q");
    rig.define("R");
    rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision).unwrap();
    rig.carry_out();
    rig
}

/// A unit with so many puts on Q, every third one not persistent.
fn unit_of(rig: &mut Rig, count: u32) -> UnitId {
    let unit = rig.declare();
    let target = rig.open_put("Q").unwrap();
    for number in 0..count {
        let text = number.to_string();
        let sent = if number % 3 == 2 { message(&text) } else { persistent(&text) };
        rig.send(&target, sent, Some(unit)).unwrap();
    }
    rig.core.close_put(&target);
    unit
}

fn begin(rig: &mut Rig, unit: UnitId) -> CommitId {
    assert!(rig.core.commits_in_parts(CLIENT, unit));
    rig.core.begin_commit(CLIENT, unit).unwrap()
}

fn all_parts(rig: &mut Rig, unit: UnitId) -> CommitId {
    let commit = begin(rig, unit);
    while rig.next_part(commit) {
        rig.core.audit();
    }
    commit
}

fn numbers(count: u32) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

fn others_consumer(rig: &mut Rig, credit: u32) {
    let decision = &mut Decision::default();
    let (id, _) = rig.core.open_get(rig.now, OTHER, &spec("Q"), decision).unwrap();
    rig.core.set_credit(id, credit, false);
}

fn got(rig: &mut Rig, credit: u32) -> Vec<Delivery> {
    rig.consumer("Q", credit);
    rig.dispatch()
}

#[test]
fn small_units_and_those_at_level_1_are_committed_at_once() {
    let mut rig = rig();
    let small = unit_of(&mut rig, 10);
    assert!(!rig.core.commits_in_parts(CLIENT, small));
    let large = unit_of(&mut rig, 11);
    assert!(rig.core.commits_in_parts(CLIENT, large));
    assert!(!rig.core.commits_in_parts(OTHER, large), "it is not theirs");
    let mut old = Rig::with(Limits { committed_at_once_max: 10, ..Limits::default() });
    old.define("Q");
    let large = unit_of(&mut old, 11);
    assert!(!old.core.commits_in_parts(CLIENT, large));
}

#[test]
fn a_large_unit_is_committed_in_parts_and_visible_with_its_completion() {
    let mut rig = rig();
    let before = rig.core.memory_bytes();
    let unit = unit_of(&mut rig, MANY);
    let commit = begin(&mut rig, unit);
    let mut parts = 0;
    while rig.next_part(commit) {
        parts += 1;
        assert_eq!(rig.last_durability, Durability::Lazy, "no client waits for it");
        let last = |fact: &Fact| matches!(fact, Fact::Part { operations: 0, .. });
        assert!(matches!(rig.last_facts[0], Fact::Part { operations: 1.., .. }));
        assert!(rig.last_facts.iter().any(last), "its end says what it is");
        assert!(rig.browse("Q").is_empty(), "nothing of it has happened");
        let status = rig.status("Q");
        let many = u64::from(MANY);
        assert_eq!((status.depth, status.uncommitted, status.in_flight), (many, many, 0));
        rig.core.audit();
    }
    assert!(parts > 1, "{parts}");
    rig.finish_commit(commit);
    let status = rig.status("Q");
    let many = u64::from(MANY);
    assert_eq!((status.depth, status.available, status.uncommitted), (many, many, 0));
    assert_eq!(status.totals.puts, many);
    assert_eq!(rig.browse("Q"), numbers(MANY));
    rig.core.audit();
    assert!(!rig.core.has_parts());
    let kept: u64 = (0..MANY).filter(|it| it % 3 == 2).map(|it| it.to_string().len() as u64).sum();
    assert_eq!(rig.core.memory_bytes(), before + kept, "memory of bodies that are not in the log");
    let persistent: Vec<String> =
        (0..MANY).filter(|it| it % 3 != 2).map(|it| it.to_string()).collect();
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), persistent);
    assert_eq!(again.shares(), rig.shares());
}

#[test]
fn gets_in_parts_leave_with_the_completion_and_others_are_decided_with_it() {
    let mut rig = rig();
    for number in numbers(30) {
        rig.put_persistent("Q", &number);
    }
    rig.put("Q", "memory");
    let unit = rig.declare();
    for (number, delivery) in got(&mut rig, 31).iter().enumerate() {
        let outcome = if number == 7 { Outcome::Released } else { Outcome::Accepted };
        rig.settle_in(delivery, outcome, Some(unit)).unwrap();
    }
    let commit = all_parts(&mut rig, unit);
    let status = rig.status("Q");
    assert_eq!((status.depth, status.available, status.uncommitted), (31, 0, 31));
    rig.disconnect(CLIENT, true);
    rig.core.audit();
    rig.finish_commit(commit);
    rig.core.audit();
    let status = rig.status("Q");
    assert_eq!((status.depth, status.uncommitted, status.totals.gets), (1, 0, 30));
    assert_eq!(rig.browse("Q"), ["7"]);
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["7"]);
}

#[test]
fn parts_without_a_completion_are_dropped_with_their_bodies() {
    let mut rig = rig();
    rig.put_persistent("Q", "old");
    let held = got(&mut rig, 1);
    let before = rig.shares();
    let unit = unit_of(&mut rig, MANY);
    rig.settle_in(&held[0], Outcome::Accepted, Some(unit)).unwrap();
    all_parts(&mut rig, unit);
    assert!(rig.core.has_parts());
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["old"], "nothing of it has happened");
    assert_eq!(again.shares(), before, "its bodies are given back");
    assert!(!again.core.has_parts());
    again.core.audit();
    // What the dead process left is in the log for good; a later unit has nothing to do with it.
    let unit = unit_of(&mut again, 12);
    again.discharge(unit, false).unwrap();
    let mut third = again.restart(None, again.log.len());
    let wanted = ["old", "0", "1", "3", "4", "6", "7", "9", "10"];
    assert_eq!(third.browse("Q"), wanted);
    assert_eq!(third.shares(), again.shares());
}

#[test]
fn a_queue_gives_nothing_until_all_of_a_commit_is_carried_out() {
    let mut rig = rig();
    rig.keeps_garbage = true;
    others_consumer(&mut rig, 2 * MANY);
    let unit = unit_of(&mut rig, MANY);
    rig.discharge(unit, false).unwrap();
    rig.put_persistent("Q", "later");
    rig.put("Q", "later still");
    rig.put("R", "elsewhere");
    let mut slices = 0;
    while rig.core.has_work() {
        let all_is_there = !rig.core.parts.is_arriving();
        assert!(all_is_there || rig.deliveries.is_empty(), "one would overtake others");
        rig.core.audit();
        rig.slice(50);
        rig.take_outputs();
        slices += 1;
    }
    assert!(slices >= MANY / 256, "{slices}");
    let mut wanted = numbers(MANY);
    wanted.extend(["later".to_owned(), "later still".to_owned()]);
    let seen = std::mem::take(&mut rig.deliveries);
    let seen: Vec<String> = seen.iter().map(|delivery| rig.text(delivery)).collect();
    assert_eq!(seen, wanted);
    rig.core.audit();
}

#[test]
fn what_others_put_between_the_parts_of_a_commit_comes_before_it() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, 300);
    let commit = begin(&mut rig, unit);
    assert!(rig.next_part(commit));
    rig.put_persistent("Q", "other");
    assert_eq!(rig.browse("Q"), ["other"], "it waits for nothing");
    while rig.next_part(commit) {}
    rig.finish_commit(commit);
    let mut wanted = vec!["other".to_owned()];
    wanted.extend(numbers(300));
    assert_eq!(rig.browse("Q"), wanted);
}

#[test]
fn a_queue_is_neither_cleared_nor_deleted_before_all_of_a_commit_is_carried_out() {
    let mut rig = rig();
    for number in numbers(20) {
        rig.put_persistent("Q", &number);
    }
    let unit = rig.declare();
    for delivery in &got(&mut rig, 20) {
        rig.settle_in(delivery, Outcome::Accepted, Some(unit)).unwrap();
    }
    rig.keeps_garbage = true;
    let commit = all_parts(&mut rig, unit);
    rig.disconnect(CLIENT, false);
    let refused = Err(Refusal::Uncommitted("Q".to_owned()));
    let decision = &mut Decision::default();
    assert_eq!(rig.core.clear(rig.now, "Q", decision), refused);
    rig.instant = false;
    rig.finish_commit(commit);
    assert_eq!(rig.core.clear(rig.now, "Q", decision), refused, "it is on its way");
    rig.sync();
    assert_eq!(rig.core.clear(rig.now, "Q", decision), refused, "it arrives");
    let deleted = rig.core.delete(rig.now, "Q", ObjectType::Local, true, decision);
    assert_eq!(deleted, refused);
    while rig.slice(1_000) {}
    rig.take_outputs();
    rig.core.clear(rig.now, "Q", decision).unwrap();
}

#[test]
fn no_image_is_taken_from_the_first_part_on_until_all_is_carried_out() {
    let mut rig = rig();
    rig.keeps_garbage = true;
    rig.instant = false;
    let unit = unit_of(&mut rig, MANY);
    let commit = begin(&mut rig, unit);
    assert!(rig.next_part(commit));
    assert!(!rig.core.has_parts(), "what is not applied is not in an image");
    rig.sync();
    assert!(rig.core.has_parts());
    while rig.next_part(commit) {}
    rig.finish_commit(commit);
    rig.sync();
    while rig.core.parts.is_arriving() {
        assert!(rig.core.has_parts());
        rig.slice(1);
    }
    assert!(!rig.core.has_parts());
    let (image, at) = (rig.image(), rig.durable);
    let mut again = rig.restart_whole(&image, at, rig.log.len());
    assert_eq!(again.depth("Q"), u64::from(MANY - MANY / 3));
    assert_eq!(again.browse("Q")[..2], ["0", "1"]);
}

#[test]
#[should_panic(expected = "an image within a commit")]
fn an_image_within_a_commit_is_a_bug() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, MANY);
    all_parts(&mut rig, unit);
    rig.image();
}

#[test]
fn no_block_leaves_while_messages_of_a_commit_may_belong_into_it() {
    let mut rig = rig();
    rig.put_persistent("Q", "first");
    rig.keeps_garbage = true;
    let unit = unit_of(&mut rig, MANY);
    rig.discharge(unit, false).unwrap();
    // Blocks of eight in tests: the first one is full of what comes behind the commit.
    for _ in 0..30 {
        rig.put_persistent("Q", "later");
    }
    rig.evict();
    while rig.slice(10) {
        rig.evict();
    }
    rig.core.audit();
    rig.evict();
    let mut wanted = vec!["first".to_owned()];
    wanted.extend(numbers(MANY));
    wanted.extend((0..30).map(|_| "later".to_owned()));
    assert_eq!(rig.browse("Q"), wanted);
}

#[test]
fn browsers_and_selectors_that_looked_before_see_what_is_inserted() {
    let mut rig = rig();
    rig.put_persistent("Q", "1 first");
    let filter = super::rig::first_byte(b'1', None);
    let scanner = rig.open_get(&crate::ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(scanner, 1_000, false);
    assert_eq!(rig.delivered(), ["1 first"]);
    rig.keeps_garbage = true;
    let unit = unit_of(&mut rig, 20);
    rig.discharge(unit, false).unwrap();
    rig.put_persistent("Q", "1 later");
    assert!(rig.deliveries.is_empty());
    while rig.slice(10) {}
    rig.take_outputs();
    let seen = std::mem::take(&mut rig.deliveries);
    let seen: Vec<String> = seen.iter().map(|delivery| rig.text(delivery)).collect();
    let wanted = ["1", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "1 later"];
    assert_eq!(seen, wanted);
}

#[test]
fn a_completion_behind_the_image_without_all_its_parts_is_damage() {
    for (before_image, fits) in [(true, true), (false, false)] {
        let mut rig = rig();
        let (commit, first) = (CommitId(99), MessageSequence(500));
        let outputs = &mut crate::Outputs::default();
        let part = |operations| Fact::Part { commit, operations };
        rig.core.replay(part(1), before_image, outputs).unwrap();
        let queue = rig.status("Q").queue;
        let got = Fact::Got { queue, sequence: MessageSequence(1) };
        rig.core.image_sequence = 10;
        rig.core.replay(got, before_image, outputs).unwrap();
        rig.core.replay(part(0), before_image, outputs).unwrap();
        let completed = Fact::Completed { commit, operations: 2, first };
        let replayed = rig.core.replay(completed, before_image, outputs);
        assert_eq!(replayed.is_ok(), fits, "{replayed:?}");
        if fits {
            // It got what is not known any more.
            while rig.core.replay_completed(before_image, outputs).unwrap() {}
            assert!(!rig.core.has_parts());
        }
    }
}

#[test]
fn a_part_with_anything_but_puts_and_gets_is_damage() {
    let mut rig = rig();
    let outputs = &mut crate::Outputs::default();
    let part = Fact::Part { commit: CommitId(99), operations: 1 };
    rig.core.replay(part.clone(), false, outputs).unwrap();
    rig.core.replay(part, false, outputs).unwrap_err();
}

#[test]
fn a_commit_in_parts_needs_its_space_in_the_log_when_it_begins_and_keeps_it() {
    let mut rig = rig();
    let unit = unit_of(&mut rig, MANY);
    let other = unit_of(&mut rig, 11);
    let room = crate::log_room::log_room_of(600 * 3, u64::from(MANY));
    rig.core.set_log_room(room / 2);
    assert_eq!(rig.core.begin_commit(CLIENT, unit), Err(Refusal::LogFull));
    rig.core.set_log_room(room);
    let commit = begin(&mut rig, unit);
    assert_eq!(rig.core.begin_commit(CLIENT, other), Err(Refusal::LogFull), "it is taken");
    rig.core.audit();
    assert!(!rig.core.commits_in_parts(CLIENT, other), "it would stand still half way");
    // A full log does not end what has begun.
    rig.core.refuse_puts(Some(Refusal::LogFull));
    rig.press();
    while rig.next_part(commit) {
        rig.core.audit();
    }
    rig.finish_commit(commit);
    assert_eq!(rig.depth("Q"), u64::from(MANY) + 11);
    assert_eq!(rig.core.large_room, 0);
}

/// A million gets would keep a gigabyte from the puts of others.
#[test]
fn a_commit_of_gets_keeps_the_space_of_gets_until_they_are_decided() {
    let mut rig = rig();
    for number in numbers(300) {
        rig.put_persistent("Q", &number);
    }
    let unit = rig.declare();
    for (number, delivery) in got(&mut rig, 300).iter().enumerate() {
        let outcome = if number % 10 == 7 { Outcome::Released } else { Outcome::Accepted };
        rig.settle_in(delivery, outcome, Some(unit)).unwrap();
    }
    rig.core.set_log_room(40_000);
    let commit = begin(&mut rig, unit);
    assert_eq!(rig.core.large_room, crate::log_room::log_room_of_gets(300));
    rig.put_persistent("R", "other");
    while rig.next_part(commit) {
        rig.core.audit();
    }
    let with_the_completion = crate::log_room::log_room_of_gets(30);
    assert_eq!(rig.core.large_room, with_the_completion);
    rig.finish_commit(commit);
    assert_eq!((rig.core.large_room, rig.depth("Q")), (0, 30));
    rig.core.audit();
}

#[test]
fn a_temporary_queue_that_goes_within_a_commit_goes_when_all_is_carried_out() {
    let mut rig = rig();
    let (_, queue) = {
        let changes = LocalChanges::default();
        let define = Define { name: "M".to_owned(), replace: false, like: None, changes };
        let command = DefineModel { define, kind: None };
        rig.core.define_model(rig.now, &command, &mut rig.decision).unwrap();
        rig.carry_out();
        let made = rig.core.open_dynamic(rig.now, CLIENT, "M", false, &mut rig.decision).unwrap();
        rig.carry_out();
        made
    };
    let name = rig.core.queues[&queue].definition.name.clone();
    let unit = rig.declare();
    let target = rig.open_put(&name).unwrap();
    for number in 0..300 {
        rig.send(&target, message(&number.to_string()), Some(unit)).unwrap();
    }
    let commit = begin(&mut rig, unit);
    assert!(rig.next_part(commit));
    rig.disconnect(CLIENT, true);
    while rig.next_part(commit) {}
    rig.keeps_garbage = true;
    rig.finish_commit(commit);
    assert!(rig.core.queues.contains_key(&queue));
    while rig.slice(10) {
        rig.core.audit();
    }
    assert!(!rig.core.queues.contains_key(&queue), "nothing refers to it any more");
    assert_eq!(rig.core.memory_bytes(), 0);
    rig.core.audit();
}

/// The active instance carries a large commit out in slices, replicas at once: what was completed
/// before the first history was counted behind it here alone, and for good.
#[test]
fn a_commit_that_is_carried_out_behind_the_first_history_is_counted_on_no_side() {
    let mut rig = rig();
    rig.core.raise_level(FORMAT_LEVEL_OF_REGIONS, &mut rig.decision).unwrap();
    rig.carry_out();
    rig.core.set_group("EAST");
    rig.keeps_garbage = true;
    let unit = unit_of(&mut rig, MANY);
    rig.discharge(unit, false).unwrap();
    assert!(rig.core.parts.is_arriving());
    let (live, cause) = ("EAST".to_owned(), "the first one".to_owned());
    let (id, fork, began) = (HistoryId([1; 16]), Lsn::ZERO, Time(5));
    rig.decision.principal = Principal::Internal;
    let first = BeginHistory { id, live, fork, began, cause };
    rig.core.begin_history(&first, &mut rig.decision).unwrap();
    rig.decision.principal = Principal::default();
    rig.carry_out();
    assert!(rig.core.parts.is_arriving(), "the history begins in the middle of it");
    rig.put_persistent("Q", "at risk");
    while rig.core.has_work() {
        rig.slice(50);
        rig.take_outputs();
    }
    let counts = rig.core.log_counts();
    assert_eq!(counts, LogCounts { put: 1, removed: 0 });
    assert_eq!(rig.restart(None, rig.log.len()).core.log_counts(), counts);
}
