//! Histories: when one begins, what is refused while another group is live, and what a group
//! that took over never gives out again.

use std::collections::BTreeSet;

use towline_types::{
    FORMAT_LEVEL_OF_REGIONS, FORMAT_LEVEL_UNASKED, HistoryId, Lsn, RegionRole, Time, limits,
};

use super::rig::{CLIENT, Rig, persistent, spec};
use crate::command::{DefineModel, LocalChanges};
use crate::object::{ObjectType, QueueKind};
use crate::queue::SEQUENCE_END;
use crate::record::{LaterFormat, decode};
use crate::{
    BeginHistory, Decision, Fact, Limits, LogCounts, Outcome, Pages, Principal, QueueManager,
    Refusal,
};

fn history(number: u8, live: &str, fork: u64) -> BeginHistory {
    let (live, cause) = (live.to_owned(), format!("change {number}"));
    BeginHistory { id: HistoryId([number; 16]), live, fork: Lsn(fork), began: Time(5), cause }
}

/// Decides it as the daemon does.
fn begin(rig: &mut Rig, begin: &BeginHistory) -> Result<(), Refusal> {
    rig.decision.principal = Principal::Internal;
    let begun = rig.core.begin_history(begin, &mut rig.decision);
    rig.decision.principal = Principal::default();
    rig.carry_out();
    begun
}

fn raise(rig: &mut Rig, level: u8) {
    rig.core.raise_level(level, &mut rig.decision).unwrap();
    rig.carry_out();
}

/// A group that is live in the first history of its log.
fn live() -> Rig {
    let mut rig = Rig::with(Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() });
    ["Q", "DLQ"].into_iter().for_each(|name| rig.define(name));
    raise(&mut rig, FORMAT_LEVEL_OF_REGIONS);
    rig.core.set_group("EAST");
    begin(&mut rig, &history(1, "EAST", 0)).unwrap();
    rig
}

/// The other group, with the first `records` records of the log of this one.
fn follower(rig: &Rig, records: usize) -> Rig {
    let mut other = rig.restart(None, records);
    other.core.set_group("WEST");
    other
}

fn not_live(live: &str) -> Refusal {
    Refusal::NotLive { live: live.to_owned() }
}

fn why(refused: Result<(), Refusal>) -> String {
    match refused {
        Err(Refusal::NoHistory { why }) => why,
        other => panic!("{other:?}"),
    }
}

/// The sequences of messages that the records from `from` on give out.
fn sequences(rig: &Rig, from: usize) -> BTreeSet<u64> {
    let facts = rig.log[from..].iter().map(|record| decode(&record.bytes, record.at).unwrap().0);
    let given = facts.filter_map(|fact| match fact {
        Fact::Put { sequence, .. } | Fact::Moved { new_sequence: sequence, .. } => Some(sequence.0),
        _ => None,
    });
    given.collect()
}

#[test]
fn a_history_begins_with_a_forced_fact_and_counts_when_it_is_applied() {
    let mut rig = live();
    rig.instant = false;
    begin(&mut rig, &history(2, "EAST", 40)).unwrap();
    assert_eq!((rig.last_facts.len(), rig.core.histories().count()), (1, 1));
    assert!(rig.core.has_history_on_its_way() && !rig.core.is_closed());
    assert_eq!(why(begin(&mut rig, &history(3, "EAST", 50))), "another history is about to begin");
    rig.sync();
    assert!(!rig.core.has_history_on_its_way());
    let newest = rig.core.histories().newest().unwrap();
    let parent = Some(HistoryId([1; 16]));
    assert_eq!((newest.id, newest.parent, newest.fork), (HistoryId([2; 16]), parent, Lsn(40)));
    assert_eq!((newest.live.as_str(), newest.cause.as_str()), ("EAST", "change 2"));
    assert_eq!(rig.core.region_role("EAST"), RegionRole::Live);
    assert_eq!(rig.core.region_role("WEST"), RegionRole::Recovery);
}

#[test]
fn a_history_that_cannot_begin_is_refused_and_nothing_is_decided() {
    let mut rig = Rig::new();
    assert!(why(begin(&mut rig, &history(1, "EAST", 0))).contains("in no group"));
    rig.core.set_group("EAST");
    raise(&mut rig, FORMAT_LEVEL_UNASKED);
    assert!(why(begin(&mut rig, &history(1, "EAST", 0))).contains("format level"));
    raise(&mut rig, FORMAT_LEVEL_OF_REGIONS);
    assert!(why(begin(&mut rig, &history(1, "WEST", 0))).contains("its own group"));
    assert!(why(begin(&mut rig, &history(1, "EAST", 7))).contains("parts before"));
    begin(&mut rig, &history(1, "EAST", 0)).unwrap();
    begin(&mut rig, &history(2, "EAST", 30)).unwrap();
    for known in [1, 2] {
        assert!(why(begin(&mut rig, &history(known, "WEST", 60))).contains("in the log already"));
    }
    assert!(why(begin(&mut rig, &history(3, "WEST", 29))).contains("parts before"));
    let long = "g".repeat(limits::GROUP_NAME_BYTES_MAX + 1);
    assert!(why(begin(&mut rig, &history(3, &long, 60))).contains("1 to 48"));
    assert!(why(begin(&mut rig, &history(3, "", 60))).contains("1 to 48"));
    let cause = "c".repeat(limits::HISTORY_CAUSE_BYTES_MAX + 1);
    let caused = BeginHistory { cause, ..history(3, "WEST", 60) };
    assert!(why(begin(&mut rig, &caused)).contains("at most 256"));
    assert_eq!(rig.log.len(), 4, "two levels and two histories");
    assert_eq!((rig.core.histories().count(), rig.core.is_closed()), (2, false));
}

#[test]
fn no_client_begins_a_history() {
    let mut rig = live();
    for principal in [Principal::Anonymous, Principal::of_client(Some("root"))] {
        let mut decision = Decision::on_behalf_of(principal);
        let refused = rig.core.begin_history(&history(2, "EAST", 40), &mut decision);
        assert!(matches!(refused, Err(Refusal::NotAuthorized(_))), "{refused:?}");
        assert!(decision.facts.is_empty());
    }
}

#[test]
fn a_full_log_does_not_keep_a_history_from_beginning() {
    let mut rig = live();
    rig.core.set_log_room(0);
    rig.core.refuse_puts(Some(Refusal::LogFull));
    begin(&mut rig, &history(2, "EAST", 40)).unwrap();
}

/// From the decision on, and not only when it is durable: what is decided behind it would be
/// acknowledged here and unknown to the group that is live.
#[test]
fn nothing_is_decided_behind_the_history_of_another_group() {
    let mut rig = live();
    rig.put_persistent("Q", "a");
    rig.put_persistent("Q", "b");
    let consumer = rig.consumer("Q", 1);
    let held = rig.dispatch();
    let unit = rig.declare();
    let target = rig.open_put("Q").unwrap();
    rig.send(&target, persistent("c"), Some(unit)).unwrap();
    rig.instant = false;
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let end = rig.log.len();
    for durable in [false, true] {
        let refused = not_live("WEST");
        assert_eq!(rig.send(&target, persistent("d"), None), Err(refused.clone()));
        assert_eq!(rig.settle_in(&held[0], Outcome::Accepted, None), Err(refused.clone()));
        assert_eq!(rig.discharge(unit, false), Err(refused.clone()));
        assert_eq!(rig.discharge(unit, true), Err(refused.clone()));
        assert_eq!(rig.define_with("NEW", LocalChanges::default()), Err(refused.clone()));
        assert_eq!(rig.open_put("Q"), Err(refused.clone()));
        assert_eq!(rig.open_get(&spec("Q")), Err(refused.clone()));
        let raised = rig.core.raise_level(FORMAT_LEVEL_OF_REGIONS, &mut rig.decision);
        assert_eq!(raised, Err(refused.clone()));
        let cleared = rig.core.clear(rig.now, "Q", &mut rig.decision);
        assert_eq!(cleared, Err(refused.clone()));
        let deleted = rig.core.delete(rig.now, "Q", ObjectType::Local, true, &mut rig.decision);
        assert_eq!(deleted, Err(refused.clone()));
        let moved = rig.core.move_messages(rig.now, "Q", "DLQ", false, &mut rig.decision);
        assert_eq!(moved, Err(refused.clone()));
        assert_eq!(
            begin(&mut rig, &history(3, "WEST", 120)).err(),
            Some(match durable {
                true => refused,
                false => Refusal::NoHistory { why: "another history is about to begin".into() },
            })
        );
        rig.sync();
    }
    rig.core.set_credit(consumer, 5, false);
    assert!(rig.dispatch().is_empty(), "no outcome of a delivery could be kept");
    assert!(!rig.core.has_work() && rig.core.next_tick() == Time::NEVER);
    rig.close(consumer, true);
    rig.disconnect(CLIENT, true);
    rig.tick();
    assert!(!rig.press());
    assert_eq!(rig.log.len(), end, "nothing came behind it");
    rig.core.audit();
}

/// While a switch is under way nothing is decided; taken back, all goes on where it was.
#[test]
fn a_switch_that_is_taken_back_leaves_all_as_it_was() {
    let mut rig = live();
    rig.put_persistent("Q", "a");
    let expiring = crate::NewMessage { expires_at: Some(rig.now), ..persistent("b") };
    rig.put_with("Q", expiring).unwrap();
    let target = rig.open_put("Q").unwrap();
    let consumer = rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.core.close_for_switch("WEST").unwrap();
    let end = rig.log.len();
    assert_eq!(rig.send(&target, persistent("c"), None), Err(not_live("WEST")));
    assert_eq!(rig.settle_in(&held[0], Outcome::Accepted, None), Err(not_live("WEST")));
    assert_eq!(rig.core.close_for_switch("WEST"), Err(not_live("WEST")));
    let third = begin(&mut rig, &history(3, "SOUTH", 90)).err();
    assert_eq!(third, Some(not_live("WEST")), "it is none of this switch");
    rig.close(consumer, true);
    rig.now = Time(rig.now.0 + 10_000_000_000);
    rig.tick();
    assert_eq!(rig.log.len(), end, "nothing is decided meanwhile");
    rig.core.take_switch_back();
    rig.tick();
    rig.send(&target, persistent("c"), None).unwrap();
    assert_eq!(rig.browse("Q"), ["a", "c"], "the backout is counted, and b expired");
    rig.core.audit();
    rig.core.close_for_switch("WEST").unwrap();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    assert!(rig.core.is_closed());
    rig.core.audit();
}

/// The mark before a switch: it is in the log, and changes nothing.
#[test]
fn the_level_in_force_can_be_logged_once_more_while_the_group_is_live() {
    let mut rig = live();
    let (end, level) = (rig.log.len(), rig.core.format_level());
    rig.core.restate_level(&mut rig.decision).unwrap();
    rig.carry_out();
    assert_eq!((rig.log.len(), rig.core.format_level()), (end + 1, level));
    assert_eq!(follower(&rig, end + 1).core.format_level(), level);
    rig.core.close_for_switch("WEST").unwrap();
    assert_eq!(rig.core.restate_level(&mut rig.decision), Err(not_live("WEST")));
    let mut first = Rig::new();
    assert!(why(first.core.restate_level(&mut first.decision)).contains("first format level"));
    assert!(first.log.is_empty());
    rig.core.audit();
}

#[test]
#[should_panic(expected = "the history of a switch was decided")]
fn a_switch_whose_history_is_decided_is_never_taken_back() {
    let mut rig = live();
    rig.core.close_for_switch("WEST").unwrap();
    rig.instant = false;
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    rig.core.take_switch_back();
}

#[test]
fn a_fenced_group_refuses_all_and_decides_nothing_until_the_fence_is_lifted() {
    let fenced = || Refusal::Fenced { why: "fenced".to_owned() };
    let mut rig = live();
    rig.put_persistent("Q", "a");
    let expiring = crate::NewMessage { expires_at: Some(rig.now), ..persistent("b") };
    rig.put_with("Q", expiring).unwrap();
    let target = rig.open_put("Q").unwrap();
    let consumer = rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.core.fence("fenced");
    assert!(rig.core.is_closed());
    let end = rig.log.len();
    assert_eq!(rig.send(&target, persistent("c"), None), Err(fenced()));
    assert_eq!(rig.settle_in(&held[0], Outcome::Accepted, None), Err(fenced()));
    assert_eq!(rig.core.close_for_switch("WEST"), Err(fenced()));
    assert_eq!(begin(&mut rig, &history(2, "WEST", 90)).err(), Some(fenced()));
    rig.core.set_credit(consumer, 5, false);
    assert!(rig.dispatch().is_empty(), "no outcome of a delivery could be kept");
    rig.close(consumer, true);
    rig.now = Time(rig.now.0 + 10_000_000_000);
    rig.tick();
    assert_eq!(rig.log.len(), end, "nothing is decided meanwhile");
    rig.core.lift_fence();
    rig.core.close_for_switch("WEST").unwrap();
    rig.core.fence("fenced");
    assert_eq!(begin(&mut rig, &history(2, "WEST", 90)).err(), Some(fenced()), "of a switch too");
    rig.core.take_switch_back();
    rig.core.lift_fence();
    rig.tick();
    rig.send(&target, persistent("c"), None).unwrap();
    assert_eq!(rig.browse("Q"), ["a", "c"], "the backout is counted, and b expired");
    rig.core.audit();
}

#[test]
fn a_large_message_that_has_begun_ends_in_a_fenced_group_and_no_other_one_begins() {
    let mut rig = live();
    let target = rig.open_put("Q").unwrap();
    let long = persistent(&"x".repeat(limits::PUT_AT_ONCE_BYTES_MAX + 1));
    let put = rig.core.begin_large(rig.now, &target, long.clone(), None).unwrap();
    rig.core.fence("fenced");
    assert!(!rig.core.is_closed(), "a piece of it may be on its way");
    let refused = Refusal::Fenced { why: "fenced".to_owned() };
    assert_eq!(rig.send(&target, persistent("c"), None), Err(refused.clone()));
    assert_eq!(rig.core.begin_large(rig.now, &target, long, None), Err(refused));
    while rig.core.next_piece(put, &mut rig.decision) {
        rig.carry_out();
    }
    rig.core.finish_large(put, &mut rig.decision).unwrap();
    rig.carry_out();
    assert!(rig.core.is_closed());
    rig.core.audit();
}

#[test]
fn what_is_not_persistent_is_counted_for_a_switch() {
    let mut rig = live();
    rig.put_persistent("Q", "a");
    assert_eq!(rig.core.non_persistent_messages(), 0);
    rig.put("Q", "b");
    assert_eq!(rig.core.non_persistent_messages(), 1);
}

#[test]
fn what_expires_and_what_could_be_carried_forward_stays_while_another_group_is_live() {
    let mut rig = live();
    let expiring = crate::NewMessage { expires_at: Some(rig.now), ..persistent("a") };
    rig.put_with("Q", expiring).unwrap();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let end = rig.log.len();
    rig.now = Time(rig.now.0 + 10_000_000_000);
    rig.tick();
    rig.tick();
    let (queue, sequence) = (rig.status("Q").queue, crate::MessageSequence(1));
    let content = towline_types::Payload::from(bytes::Bytes::from_static(b"a"));
    assert!(!rig.core.relocate(queue, sequence, content, &mut rig.decision));
    assert!(rig.decision.facts.is_empty());
    assert_eq!((rig.log.len(), rig.depth("Q")), (end, 1));
}

#[test]
fn a_large_message_that_has_begun_ends_before_another_group_is_live() {
    let mut rig = live();
    let target = rig.open_put("Q").unwrap();
    let long = persistent(&"x".repeat(limits::PUT_AT_ONCE_BYTES_MAX + 1));
    let put = rig.core.begin_large(rig.now, &target, long.clone(), None).unwrap();
    assert!(why(begin(&mut rig, &history(2, "WEST", 90))).contains("has begun"));
    assert!(why(rig.core.close_for_switch("WEST")).contains("has begun"));
    while rig.core.next_piece(put, &mut rig.decision) {
        rig.carry_out();
    }
    rig.core.finish_large(put, &mut rig.decision).unwrap();
    rig.carry_out();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let refused = rig.core.begin_large(rig.now, &target, long, None);
    assert_eq!(refused, Err(not_live("WEST")));
}

#[test]
fn what_the_live_group_decides_is_applied_by_the_other_one_which_decides_nothing() {
    let mut rig = live();
    rig.put_persistent("Q", "a");
    let mut other = follower(&rig, rig.log.len());
    assert!(other.core.is_closed());
    assert_eq!(other.open_put("Q"), Err(not_live("EAST")));
    rig.put_persistent("Q", "b");
    let mut other = follower(&rig, rig.log.len());
    assert_eq!((other.depth("Q"), other.core.region_role("WEST")), (2, RegionRole::Recovery));
    // The switch in order: its last batch names the other group.
    begin(&mut rig, &history(2, "WEST", 200)).unwrap();
    other = follower(&rig, rig.log.len());
    assert!(!other.core.is_closed());
    assert_eq!(other.core.region_role("WEST"), RegionRole::Live);
    let next = other.core.next.sequence;
    other.put_persistent("Q", "c");
    assert_eq!(other.core.next.sequence, next + 1, "no part is missing: all sequences are given");
    assert_eq!(other.browse("Q"), ["a", "b", "c"]);
}

/// A copy of a log, made to be looked at, is in no group.
#[test]
fn a_queue_manager_in_no_group_decides_whatever_the_histories_of_its_log_say() {
    let mut rig = live();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let mut copy = rig.restart(None, rig.log.len());
    assert!(!copy.core.is_closed());
    copy.put_persistent("Q", "a");
    assert_eq!(copy.core.histories().count(), 2);
}

#[test]
fn a_group_that_takes_over_without_the_end_of_the_log_gives_out_none_of_its_sequences() {
    let mut rig = live();
    (0..20).for_each(|number| rig.put_persistent("Q", &format!("kept {number}")));
    let shipped = rig.log.len();
    // The tail: the same producers go on here until the region is lost.
    (0..500).for_each(|number| rig.put_persistent("Q", &format!("tail {number}")));
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    rig.settle(&held[0], Outcome::Rejected);
    let tail = sequences(&rig, shipped);
    assert_eq!(tail.len(), 501);

    let mut other = follower(&rig, shipped);
    begin(&mut other, &history(2, "WEST", 4_000)).unwrap();
    let begun = other.log.len();
    // Before the first message too.
    let restarted = other.restart(None, begun).core.next.sequence;
    assert_eq!(restarted, other.core.next.sequence);
    (0..500).for_each(|number| other.put_persistent("Q", &format!("tail {number}")));
    other.consumer("Q", 1);
    let held = other.dispatch();
    other.settle(&held[0], Outcome::Rejected);
    let new = sequences(&other, begun);
    assert_eq!((new.len(), new.intersection(&tail).count()), (501, 0));
    // The same after a restart, from an image and without.
    let (image, at) = (other.image(), other.log.len());
    for again in [other.restart(None, at), other.restart(Some((&image, at)), at)] {
        assert_eq!(again.core.next.sequence, other.core.next.sequence);
    }
    other.core.audit();
}

#[test]
fn when_sequences_are_used_up_no_group_takes_over_and_messages_are_still_put() {
    let mut rig = live();
    let mut other = follower(&rig, rig.log.len());
    other.core.next.sequence = SEQUENCE_END - limits::SEQUENCES_LEFT_OUT;
    assert!(why(begin(&mut other, &history(2, "WEST", 90))).contains("used up"));
    assert_eq!(other.core.next.sequence, SEQUENCE_END - limits::SEQUENCES_LEFT_OUT);
    rig.core.next.sequence = other.core.next.sequence;
    rig.put_persistent("Q", "a");
}

/// Replies go to queues by name, also those of a client that asked in the lost end of the log.
#[test]
fn dynamic_queues_of_two_histories_never_have_one_name() {
    let mut rig = live();
    let define = crate::command::DefineLocal {
        name: "MODEL".into(),
        replace: false,
        like: None,
        changes: LocalChanges::default(),
    };
    let model = DefineModel { define, kind: Some(QueueKind::TemporaryDynamic) };
    rig.core.define_model(rig.now, &model, &mut rig.decision).unwrap();
    rig.carry_out();
    let mut other = follower(&rig, rig.log.len());
    begin(&mut other, &history(2, "WEST", 90)).unwrap();
    let names = [&mut rig, &mut other].map(|rig| {
        // The same moment by two clocks, and the same id.
        rig.now = Time(77);
        rig.core.open_dynamic(rig.now, CLIENT, "MODEL", true, &mut rig.decision).unwrap().0
    });
    assert_eq!(names, ["MODEL.4D.3.1010101", "MODEL.4D.3.2020202"]);
}

#[test]
fn histories_come_back_from_log_and_image_and_older_images_have_none() {
    let mut rig = live();
    rig.put_persistent("Q", "a");
    let before = rig.image();
    let at_before = rig.log.len();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let (image, at) = (rig.image(), rig.log.len());
    assert_eq!(image[..12], *b"TWLIMAGE\x03\x02\x05\x03");
    let mut again = [
        rig.restart(None, at),
        rig.restart(Some((&image, at)), at),
        rig.restart(Some((&before, at_before)), at),
        rig.restart_whole(&image, at, at),
        rig.restart_whole(&before, at_before, at),
    ];
    for other in &mut again {
        assert_eq!(other.core.histories(), rig.core.histories());
        assert!(!other.core.is_closed(), "it is in no group yet");
        other.core.set_group("EAST");
        assert!(other.core.is_closed());
    }
    // An image of the level before has no histories, and no byte for them.
    let mut older = Rig::new();
    raise(&mut older, FORMAT_LEVEL_UNASKED);
    let image = older.image();
    assert_eq!(image[..13], *b"TWLIMAGE\x03\x02\x05\x02\x01");
    let restored = QueueManager::restore(&image, Limits::default(), Pages::Whole).unwrap();
    assert!(restored.rules.histories().is_empty());
}

/// A recovery group that has not come to the first history yet counted what was put before it, and
/// that was taken from what the live group has at risk: so less was shown than could be lost.
#[test]
fn what_was_put_before_the_first_history_is_not_taken_from_what_is_at_risk() {
    let mut live = Rig::new();
    live.define("Q");
    live.put_persistent("Q", "before the first history");
    live.put_persistent("Q", "another one");
    let at = live.log.len();
    raise(&mut live, FORMAT_LEVEL_OF_REGIONS);
    live.core.set_group("EAST");
    begin(&mut live, &history(1, "EAST", 0)).unwrap();
    live.put_persistent("Q", "at risk");
    assert_eq!(live.core.log_counts(), LogCounts { put: 1, removed: 0 });
    let recovery = live.restart(None, at);
    assert_eq!(recovery.core.log_counts(), LogCounts::default());
}

/// What is at risk is the difference of these counts in two regions.
#[test]
fn what_was_put_and_removed_since_the_first_history_counts_the_same_in_each_region() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "before the first history");
    raise(&mut rig, FORMAT_LEVEL_OF_REGIONS);
    rig.core.set_group("EAST");
    begin(&mut rig, &history(1, "EAST", 0)).unwrap();
    assert_eq!(rig.core.log_counts(), LogCounts::default());
    for content in ["got", "cleared", "expires"] {
        rig.put_persistent("Q", content);
        rig.put("Q", "and one that is in no log");
    }
    let consumer = rig.consumer("Q", 3);
    for delivery in rig.dispatch() {
        rig.settle(&delivery, Outcome::Accepted);
    }
    rig.close(consumer, false);
    assert_eq!(rig.core.log_counts(), LogCounts { put: 3, removed: 2 });
    let (image, at) = (rig.image(), rig.log.len());
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    rig.put_persistent("Q", "deleted with its queue");
    let counts = rig.core.log_counts();
    assert_eq!(counts, LogCounts { put: 4, removed: 4 });
    rig.core.delete(rig.now, "Q", ObjectType::Local, true, &mut rig.decision).unwrap();
    rig.carry_out();
    assert_eq!(rig.core.log_counts(), LogCounts { put: 4, removed: 5 });
    let end = rig.log.len();
    for other in [rig.restart(None, end), rig.restart(Some((&image, at)), end)] {
        assert_eq!(other.core.log_counts(), rig.core.log_counts());
    }
    let shorter = rig.restart(None, at);
    assert_eq!(shorter.core.log_counts(), LogCounts { put: 3, removed: 2 });
}

#[test]
fn a_log_without_regions_stays_at_the_level_that_programs_before_them_read() {
    let mut rig = Rig::new();
    raise(&mut rig, FORMAT_LEVEL_UNASKED);
    rig.define("Q");
    rig.put_persistent("Q", "a");
    assert_eq!(rig.core.format_level(), 2);
    let later = rig.log.iter().any(|record| record.bytes[0] & 0x1f > 15);
    assert!(!later, "no record of a kind that they do not know");
    raise(&mut rig, FORMAT_LEVEL_OF_REGIONS);
    assert_eq!(rig.core.format_level(), 3);
    let level = &rig.log.last().unwrap().bytes;
    // What such a program says of it: it reads up to 2.
    assert_eq!(*level, [0xad, 0x02, 0x05, 0x03]);
}

#[test]
fn a_history_in_the_log_that_does_not_go_on_from_the_newest_one_is_damage() {
    let rig = live();
    let mut core = rig.restart(None, rig.log.len()).core;
    let mut outputs = crate::Outputs::default();
    let newest = core.histories().newest().unwrap().clone();
    for wrong in [newest.clone(), towline_types::History { id: HistoryId([9; 16]), ..newest }] {
        let fact = Fact::HistoryBegun { history: Box::new(wrong), first: None };
        core.replay(fact.clone(), false, &mut outputs).unwrap_err();
        core.replay(fact, true, &mut outputs).unwrap();
    }
    assert_eq!(core.histories().count(), 1, "the image knows what came before it");
}

#[test]
fn an_image_with_histories_that_are_no_chain_is_refused() {
    let mut rig = live();
    begin(&mut rig, &history(2, "WEST", 90)).unwrap();
    let image = rig.image();
    let restore = |image: &[u8]| QueueManager::restore(image, Limits::default(), Pages::Ignored);
    assert_eq!(restore(&image).unwrap().rules.histories().count(), 2);
    let id = image.windows(16).position(|window| window == [1; 16]).unwrap();
    let mut other = image.clone();
    other[id] = 7;
    assert_eq!(restore(&other).unwrap_err().what, "histories are no chain");
    let mut many = image.clone();
    // Of the numbers, the one of those that are kept.
    assert_eq!(many[12..14], [0, 2]);
    many.splice(13..14, [0xe9, 0x07]);
    assert_eq!(restore(&many).unwrap_err().what, "more histories than are kept");
    let mut later = image;
    later[11] = 4;
    assert_eq!(restore(&later).unwrap_err().later, Some(LaterFormat::Level(4)));
}
