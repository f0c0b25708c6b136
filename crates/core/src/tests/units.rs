//! Units of work: all or nothing, and their limits.

use std::time::Duration;

use towline_types::limits;

use super::rig::{CLIENT, OTHER, Rig, message, persistent};
use crate::command::LocalChanges;
use crate::{Delivery, Durability, Effect, Fact, Limits, Outcome, PutTarget, Refusal, UnitId};

fn two_queues(limits: Limits) -> (Rig, PutTarget, PutTarget) {
    let mut rig = Rig::with(limits);
    rig.define("Q");
    rig.define("R");
    let targets = (rig.open_put("Q").unwrap(), rig.open_put("R").unwrap());
    (rig, targets.0, targets.1)
}

#[test]
fn a_unit_is_visible_all_at_once_when_its_commit_is_durable() {
    let (mut rig, q, r) = two_queues(Limits::default());
    rig.put_persistent("Q", "in");
    rig.consumer("Q", 10);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.send(&q, persistent("a"), Some(unit)).unwrap();
    rig.send(&r, message("b"), Some(unit)).unwrap();
    rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
    assert!(rig.delivered().is_empty() && rig.browse("R").is_empty());
    assert_eq!((rig.status("Q").uncommitted, rig.status("R").uncommitted), (2, 1));
    rig.core.audit();
    rig.instant = false;
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.last_durability, Durability::Forced);
    assert!(matches!(rig.last_facts[2], Fact::Committed { operations: 2 }));
    assert_eq!(rig.last_facts.len(), 4, "the non-persistent put follows, unlogged");
    assert!(rig.delivered().is_empty() && rig.browse("R").is_empty());
    rig.sync();
    assert_eq!((rig.delivered(), rig.browse("R")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(rig.depth("Q"), 1, "the message got is gone");
    let again = rig.restart(None, rig.log.len());
    assert_eq!((again.depth("Q"), again.depth("R")), (1, 0));
    rig.core.audit();
}

#[test]
fn a_torn_unit_never_happened() {
    let (mut rig, q, _) = two_queues(Limits::default());
    let unit = rig.declare();
    for content in ["a", "b", "c"] {
        rig.send(&q, persistent(content), Some(unit)).unwrap();
    }
    let before = rig.log.len();
    rig.discharge(unit, false).unwrap();
    for records in before..rig.log.len() {
        assert_eq!(rig.restart(None, records).depth("Q"), 0);
    }
    assert_eq!(rig.restart(None, rig.log.len()).depth("Q"), 3);
}

#[test]
fn rollback_drops_puts_and_returns_gets_to_their_places_with_a_backout() {
    let (mut rig, q, _) = two_queues(Limits::default());
    for content in ["a", "b", "c"] {
        rig.put_persistent("Q", content);
    }
    rig.consumer("Q", 2);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_in(&got[1], Outcome::Accepted, Some(unit)).unwrap();
    rig.settle_in(&got[0], Outcome::Released, Some(unit)).unwrap();
    rig.send(&q, persistent("d"), Some(unit)).unwrap();
    rig.discharge(unit, true).unwrap();
    assert_eq!(rig.last_durability, Durability::Lazy);
    assert_eq!(rig.browse("Q"), ["a", "b", "c"]);
    rig.consumer("Q", 3);
    let counts: Vec<u32> = rig.dispatch().iter().map(|got| got.backout_count).collect();
    assert_eq!(counts, [1, 1, 0]);
    assert_eq!(rig.core.memory_bytes(), 0);
    rig.core.audit();
}

#[test]
fn a_unit_of_non_persistent_work_needs_no_log() {
    let (mut rig, q, _) = two_queues(Limits::default());
    rig.put("Q", "a");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.instant = false;
    let unit = rig.declare();
    rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
    rig.send(&q, message("b"), Some(unit)).unwrap();
    rig.send(&q, message("c"), Some(unit)).unwrap();
    rig.discharge(unit, false).unwrap();
    assert_eq!((rig.last_durability, rig.last_behind), (Durability::Memory, false));
    assert_eq!(rig.browse("Q"), ["b", "c"]);
    rig.put_persistent("Q", "d");
    let unit = rig.declare();
    rig.send(&q, message("e"), Some(unit)).unwrap();
    rig.discharge(unit, false).unwrap();
    assert!(rig.last_behind, "it must not overtake what is on its way");
    rig.sync();
    assert_eq!(rig.browse("Q"), ["b", "c", "d", "e"]);
    rig.core.audit();
}

#[test]
fn refusals_in_a_unit_take_effect_at_commit() {
    let limits = Limits { dead_letter_queue: "R".to_owned(), ..Limits::default() };
    let (mut rig, _, _) = two_queues(limits);
    for content in ["a", "b", "c"] {
        rig.put_persistent("Q", content);
    }
    let consumer = rig.consumer("Q", 3);
    let got = rig.dispatch();
    let unit = rig.declare();
    let failed = Outcome::Modified { failed: true, undeliverable_here: false };
    for (delivery, outcome) in got.iter().zip([Outcome::Rejected, failed, Outcome::Released]) {
        rig.settle_in(delivery, outcome, Some(unit)).unwrap();
    }
    rig.core.set_credit(consumer, 5, false);
    assert!(rig.delivered().is_empty(), "they stay with the unit");
    rig.discharge(unit, false).unwrap();
    let counts: Vec<u32> = rig.dispatch().iter().map(|got| got.backout_count).collect();
    assert_eq!((counts, rig.browse("R")), (vec![1, 0], vec!["a".to_owned()]));
    rig.core.audit();
}

#[test]
fn a_unit_has_limits() {
    let limits = Limits {
        unit_messages_max: 2,
        unit_bytes_max: 5,
        units_per_connection_max: 2,
        ..Limits::default()
    };
    let (mut rig, q, _) = two_queues(limits);
    let unit = rig.declare();
    rig.send(&q, message("abc"), Some(unit)).unwrap();
    let too_large = Refusal::UnitTooLarge { bytes_max: 5 };
    assert_eq!(rig.send(&q, message("def"), Some(unit)), Err(too_large));
    rig.send(&q, message("d"), Some(unit)).unwrap();
    let too_many = Refusal::UnitTooManyMessages { messages_max: 2 };
    assert_eq!(rig.send(&q, message("e"), Some(unit)), Err(too_many.clone()));
    rig.put("Q", "x");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    assert_eq!(rig.settle_in(&got[0], Outcome::Accepted, Some(unit)), Err(too_many));
    rig.settle(&got[0], Outcome::Accepted);
    rig.declare();
    let refused = rig.core.declare(rig.now, CLIENT).unwrap_err();
    assert_eq!(refused, Refusal::TooManyUnits { units_max: 2 });
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.depth("Q"), 2);
    rig.core.audit();
}

#[test]
fn all_units_of_a_connection_together_have_so_many_puts_and_others_are_not_refused() {
    let limits = Limits { staged_puts_max: 5, unit_messages_max: 3, ..Limits::default() };
    let (mut rig, q, _) = two_queues(limits);
    let units: Vec<UnitId> = (0..2).map(|_| rig.declare()).collect();
    for unit in [0, 1, 0, 1, 0] {
        rig.send(&q, persistent("a"), Some(units[unit])).unwrap();
    }
    let too_many = Err(Refusal::UnitsTooManyPuts { puts_max: 5 });
    assert_eq!(rig.send(&q, message("b"), Some(units[1])), too_many);
    rig.put("Q", "outside of units");
    let other = rig.core.declare(rig.now, OTHER).unwrap();
    let others = rig.core.open_put(rig.now, OTHER, "Q", &mut rig.decision).unwrap();
    rig.send(&others, message("c"), Some(other)).unwrap();
    rig.core.audit();
    rig.discharge(units[0], true).unwrap();
    rig.send(&q, message("b"), Some(units[1])).unwrap();
    rig.core.audit();
    rig.disconnect(CLIENT, true);
    rig.core.audit();
}

#[test]
fn a_unit_may_have_maxumsgs_messages_if_that_is_more_than_all_units_may_have_otherwise() {
    let limits = Limits { staged_puts_max: 1, unit_messages_max: 3, ..Limits::default() };
    let (mut rig, q, _) = two_queues(limits);
    let unit = rig.declare();
    (0..3).for_each(|_| rig.send(&q, message("a"), Some(unit)).unwrap());
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.depth("Q"), 3);
}

#[test]
fn places_in_a_queue_are_reserved_when_a_put_is_staged() {
    let (mut rig, q, _) = two_queues(Limits::default());
    rig.alter("Q", &LocalChanges { depth_max: Some(1), ..LocalChanges::default() });
    let unit = rig.declare();
    rig.send(&q, message("a"), Some(unit)).unwrap();
    assert!(matches!(rig.put_with("Q", message("b")), Err(Refusal::QueueFull { .. })));
    rig.discharge(unit, true).unwrap();
    rig.put("Q", "b");
    rig.core.audit();
}

#[test]
fn a_unit_belongs_to_its_connection() {
    let (mut rig, _, _) = two_queues(Limits::default());
    let unit = rig.declare();
    let theirs = rig.core.discharge(rig.now, OTHER, unit, false, &mut rig.decision);
    assert_eq!(theirs, Err(Refusal::UnknownUnit));
    let target = rig.core.open_put(rig.now, OTHER, "Q", &mut rig.decision).unwrap();
    assert_eq!(rig.send(&target, message("a"), Some(unit)), Err(Refusal::UnknownUnit));
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.discharge(unit, false), Err(Refusal::UnknownUnit));
    rig.core.audit();
}

#[test]
fn a_unit_that_is_too_old_is_rolled_back_and_says_so_once() {
    let limits = Limits { unit_age_max: Duration::from_secs(5), ..Limits::default() };
    let (mut rig, q, _) = two_queues(limits);
    rig.put_persistent("Q", "a");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    let (old, other) = (rig.declare(), rig.declare());
    rig.settle_in(&got[0], Outcome::Accepted, Some(old)).unwrap();
    rig.send(&q, persistent("b"), Some(old)).unwrap();
    rig.tick();
    assert!(rig.effects.is_empty());
    assert_eq!(rig.core.next_tick(), rig.now + Duration::from_secs(5));
    rig.now = rig.now + Duration::from_secs(5);
    rig.tick();
    let too_old = Refusal::UnitTooOld { seconds_max: 5 };
    let notified = rig.effects.iter().filter(
        |effect| matches!(effect, Effect::UnitRolledBack { reason, .. } if *reason == too_old),
    );
    assert_eq!(notified.count(), 2);
    assert_eq!(rig.browse("Q"), ["a"]);
    assert_eq!(rig.send(&q, message("c"), Some(old)), Err(too_old.clone()));
    assert_eq!(rig.discharge(old, false), Err(too_old));
    assert_eq!(rig.discharge(old, false), Err(Refusal::UnknownUnit));
    rig.discharge(other, true).unwrap();
    assert_eq!(rig.core.open_units(), 0);
    rig.core.audit();
}

#[test]
fn the_age_of_a_unit_does_not_change_when_the_clock_is_set() {
    let hour = 3_600_000_000;
    for by_us in [hour, -hour] {
        let limits = Limits { unit_age_max: Duration::from_secs(5), ..Limits::default() };
        let (mut rig, _, _) = two_queues(limits);
        rig.now = rig.now + Duration::from_secs(7_200);
        rig.tick();
        rig.declare();
        rig.now = (rig.now + Duration::from_secs(4)).moved(by_us);
        rig.core.clock_stepped(by_us);
        rig.tick();
        assert_eq!(rig.core.open_units(), 1, "it is four seconds old, {by_us}");
        assert_eq!(rig.core.next_tick(), rig.now + Duration::from_secs(1));
        rig.now = rig.now + Duration::from_secs(1);
        rig.tick();
        assert_eq!(rig.core.open_units(), 0, "it is five seconds old, {by_us}");
        rig.core.audit();
    }
}

#[test]
fn a_connection_that_ends_rolls_its_units_back() {
    for lost in [false, true] {
        let (mut rig, q, _) = two_queues(Limits::default());
        rig.put("Q", "a");
        rig.consumer("Q", 1);
        let got = rig.dispatch();
        let unit = rig.declare();
        rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
        rig.send(&q, message("b"), Some(unit)).unwrap();
        rig.disconnect(CLIENT, lost);
        rig.consumer("Q", 2);
        let got = rig.dispatch();
        assert_eq!((got.len(), got[0].backout_count), (1, 1));
        rig.core.audit();
    }
}

#[test]
fn a_commit_with_puts_is_refused_while_puts_are_and_the_unit_stays() {
    let (mut rig, q, _) = two_queues(Limits::default());
    let unit = rig.declare();
    rig.send(&q, persistent("a"), Some(unit)).unwrap();
    rig.core.refuse_puts(Some(Refusal::LogFull));
    assert_eq!(rig.discharge(unit, false), Err(Refusal::LogFull));
    rig.core.refuse_puts(None);
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.depth("Q"), 1);
}

#[test]
fn a_get_in_a_unit_outlives_its_consumer() {
    let (mut rig, _, _) = two_queues(Limits::default());
    rig.put_persistent("Q", "a");
    let consumer = rig.consumer("Q", 1);
    let got = rig.dispatch();
    let unit = rig.declare();
    rig.settle_in(&got[0], Outcome::Accepted, Some(unit)).unwrap();
    rig.close(consumer, false);
    assert!(rig.browse("Q").is_empty());
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.depth("Q"), 0);
    rig.core.audit();
}

#[test]
fn a_unit_that_only_refuses_messages_is_durable_before_it_is_answered() {
    let outcomes =
        [Outcome::Rejected, Outcome::Modified { failed: true, undeliverable_here: false }];
    for outcome in outcomes {
        let (mut rig, _, _) = two_queues(Limits::default());
        rig.put_persistent("Q", "a");
        rig.consumer("Q", 1);
        let got = rig.dispatch();
        let unit = rig.declare();
        rig.settle_in(&got[0], outcome, Some(unit)).unwrap();
        rig.discharge(unit, false).unwrap();
        assert_eq!(rig.last_durability, Durability::Forced);
        assert!(matches!(rig.last_facts.last(), Some(Fact::Committed { .. })));
    }
}

#[test]
fn a_unit_is_had_by_the_connection_that_declared_it_until_it_ends() {
    let (mut rig, _, _) = two_queues(Limits::default());
    let [unit, old] = [rig.declare(), rig.declare()];
    assert!(rig.core.has_unit(CLIENT, unit) && !rig.core.has_unit(OTHER, unit));
    rig.discharge(unit, false).unwrap();
    assert!(!rig.core.has_unit(CLIENT, unit) && rig.core.has_unit(CLIENT, old));
    rig.now = rig.now + Limits::default().unit_age_max;
    rig.tick();
    assert!(!rig.core.has_unit(CLIENT, old), "the queue manager rolled it back");
}

#[test]
fn an_outcome_that_is_said_twice_is_found_among_many_of_its_unit() {
    let (mut rig, _, _) = two_queues(Limits::default());
    for queue in ["Q", "R"] {
        (0..100).for_each(|_| rig.put(queue, "a"));
        rig.consumer(queue, 100);
    }
    let got = rig.dispatch();
    let unit = rig.declare();
    for delivery in &got {
        rig.settle_as(delivery, Outcome::Accepted, Some(unit), false).unwrap();
    }
    rig.core.audit();
    for delivery in got.iter().step_by(2) {
        rig.settle_as(delivery, Outcome::Accepted, Some(unit), true).unwrap();
    }
    rig.core.audit();
    rig.discharge(unit, true).unwrap();
    // What the client has forgotten is back in its queue, the rest is the client's as before.
    assert_eq!(rig.browse("Q").len() + rig.browse("R").len(), 100);
    let other = rig.declare();
    let again = rig.settle_as(&got[0], Outcome::Accepted, Some(other), true);
    assert_eq!(again, Err(Refusal::UnitDoomed), "it is not in this one");
    for delivery in got.iter().skip(1).step_by(2) {
        rig.settle_as(delivery, Outcome::Accepted, Some(other), true).unwrap();
    }
    rig.discharge(other, false).unwrap();
    assert_eq!(rig.depth("Q") + rig.depth("R"), 100);
    rig.core.audit();
}

/// As many messages as the late gets of a unit may be, and so many more.
fn with_gets(rig: &mut Rig, more: usize) -> Vec<Delivery> {
    let count = limits::LATE_GETS_MAX + more;
    (0..count).for_each(|_| rig.put_persistent("Q", "a"));
    rig.consumer("Q", u32::try_from(count).unwrap());
    rig.dispatch()
}

#[test]
fn a_full_unit_in_which_too_much_is_settled_is_rolled_back_before_its_discharge() {
    let limits = Limits { unit_messages_max: 2, ..Limits::default() };
    let (mut rig, _, _) = two_queues(limits);
    let got = with_gets(&mut rig, 3);
    let unit = rig.declare();
    let too_many = Refusal::UnitTooManyMessages { messages_max: 2 };
    for (number, delivery) in got.iter().enumerate() {
        let staged = rig.settle_in(delivery, Outcome::Accepted, Some(unit));
        assert_eq!(staged, if number < 2 { Ok(()) } else { Err(too_many.clone()) });
        assert_eq!(rig.core.open_units(), usize::from(number + 1 < got.len()));
    }
    // They come back in slices.
    rig.serve();
    rig.take_outputs();
    rig.core.audit();
    assert_eq!(rig.status("Q").uncommitted, 1, "what is settled behind the end waits");
    assert_eq!(rig.browse("Q").len(), got.len() - 1);
    assert!(rig.effects.iter().any(
        |effect| matches!(effect, Effect::UnitRolledBack { reason, .. } if *reason == too_many)
    ));
    assert_eq!(rig.discharge(unit, false), Err(too_many));
    assert_eq!(rig.browse("Q").len(), got.len());
    rig.core.audit();
}

#[test]
fn of_what_is_settled_in_a_unit_that_was_rolled_back_no_more_than_a_bound_waits_for_its_end() {
    let (mut rig, _, _) = two_queues(Limits::default());
    let got = with_gets(&mut rig, 2);
    let unit = rig.declare();
    rig.now = rig.now + Limits::default().unit_age_max;
    rig.tick();
    for delivery in &got {
        rig.settle_in(delivery, Outcome::Accepted, Some(unit)).unwrap_err();
    }
    rig.core.audit();
    assert_eq!(rig.status("Q").uncommitted, limits::LATE_GETS_MAX as u64);
    assert_eq!(rig.browse("Q").len(), 2, "they went back at once");
    rig.consumer("Q", 2);
    let again = rig.dispatch();
    assert!(again.len() == 2 && again.iter().all(|delivery| delivery.backout_count == 1));
    rig.discharge(unit, false).unwrap_err();
    assert_eq!(rig.browse("Q").len(), limits::LATE_GETS_MAX);
    rig.core.audit();
}
