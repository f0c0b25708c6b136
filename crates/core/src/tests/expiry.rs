//! Expiry: never delivered late, discarded when met or by the scan.

use std::time::Duration;

use towline_types::Time;

use super::rig::{Rig, message, persistent, spec};
use crate::{ConsumerSpec, DeadLetterReason, Limits, NewMessage, Outcome};

const SECOND: Duration = Duration::from_secs(1);

fn expiring(base: NewMessage, at: Time) -> NewMessage {
    NewMessage { expires_at: Some(at), ..base }
}

#[test]
fn a_message_is_not_delivered_at_or_after_its_expiry() {
    let mut rig = Rig::new();
    rig.define("Q");
    let at = rig.now + SECOND;
    for base in [persistent("a"), message("b")] {
        rig.put_with("Q", expiring(base, at)).unwrap();
    }
    rig.put("Q", "c");
    rig.now = at;
    assert_eq!(rig.depth("Q"), 3, "it counts until it is met");
    rig.consumer("Q", 10);
    assert_eq!(rig.delivered(), ["c"]);
    assert_eq!((rig.depth("Q"), rig.status("Q").totals.expired), (1, 2));
    assert_eq!((rig.stored.len(), rig.core.memory_bytes()), (0, 1));
    assert_eq!(rig.restart(None, rig.log.len()).depth("Q"), 0);
    rig.core.audit();
}

#[test]
fn a_message_just_before_its_expiry_is_delivered_and_can_be_settled_after_it() {
    let mut rig = Rig::new();
    rig.define("Q");
    let at = rig.now + SECOND;
    rig.put_with("Q", expiring(persistent("a"), at)).unwrap();
    rig.consumer("Q", 10);
    rig.now = Time(at.0 - 1);
    let got = rig.dispatch();
    assert_eq!(got[0].expires_at, Some(at));
    rig.now = at + SECOND;
    rig.settle(&got[0], Outcome::Accepted);
    assert_eq!(rig.status("Q").totals.gets, 1);
}

#[test]
fn what_a_unit_of_work_got_does_not_expire_before_its_end() {
    // Shorter than a unit of work may live.
    let limits = Limits { expiry_scan_interval: SECOND, ..Limits::default() };
    for (base, fail) in [(persistent("a"), false), (message("a"), false), (persistent("a"), true)] {
        let mut rig = Rig::with(limits.clone());
        rig.define("Q");
        let at = rig.now + SECOND;
        rig.put_with("Q", expiring(base, at)).unwrap();
        rig.tick();
        rig.consumer("Q", 1);
        let got = rig.dispatch().remove(0);
        let unit = rig.declare();
        rig.settle_in(&got, Outcome::Accepted, Some(unit)).unwrap();
        rig.now = at + 2 * SECOND;
        (0..3).for_each(|_| rig.tick());
        assert_eq!((rig.depth("Q"), rig.status("Q").totals.expired), (1, 0), "the unit has it");
        rig.discharge(unit, fail).unwrap();
        rig.now = rig.now + 2 * SECOND;
        (0..3).for_each(|_| rig.tick());
        let totals = rig.status("Q").totals;
        let ends = if fail { (0, 0, 1) } else { (0, 1, 0) };
        assert_eq!((rig.depth("Q"), totals.gets, totals.expired), ends);
        rig.core.audit();
    }
}

#[test]
fn a_browse_and_a_filter_discard_what_they_meet() {
    let mut rig = Rig::new();
    rig.define("Q");
    let at = rig.now + SECOND;
    rig.put_with("Q", expiring(message("x"), at)).unwrap();
    rig.now = at;
    assert!(rig.browse("Q").is_empty());
    assert_eq!(rig.depth("Q"), 0);
    rig.put_with("Q", expiring(persistent("x"), at)).unwrap();
    let filter = super::rig::first_byte(b'x', None);
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, 1, false);
    assert!(rig.delivered().is_empty());
    assert_eq!(rig.depth("Q"), 0);
    rig.core.audit();
}

#[test]
fn the_scan_finds_expired_messages_in_bounded_steps() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("R");
    let at = rig.now + SECOND;
    for number in 0..5_000 {
        let base = if number % 2 == 0 { message("a") } else { persistent("a") };
        let name = if number % 3 == 0 { "R" } else { "Q" };
        rig.put_with(name, expiring(base, at)).unwrap();
    }
    rig.put("Q", "stays");
    rig.dispatch();
    rig.tick();
    rig.now = rig.now + Duration::from_secs(300);
    assert!(rig.core.next_tick() <= rig.now);
    rig.tick();
    let left = rig.depth("Q") + rig.depth("R");
    assert!(left > 1 && left < 5_001, "one step does a part");
    let mut steps = 0;
    while rig.core.next_tick() <= rig.now {
        rig.tick();
        rig.dispatch();
        steps += 1;
        assert!(steps < 100, "the scan ends");
    }
    assert_eq!((rig.depth("Q"), rig.depth("R")), (1, 0));
    rig.core.audit();
}

#[test]
fn nothing_expires_by_a_fact_while_runs_wait_for_the_log() {
    let mut rig = Rig::with(Limits { unit_age_max: SECOND, ..Limits::default() });
    rig.define("Q");
    let at = rig.now + SECOND;
    for base in [message("a"), persistent("b")] {
        rig.put_with("Q", expiring(base, at)).unwrap();
    }
    rig.put("Q", "x stays");
    rig.tick();
    let (unit, records) = (rig.declare(), rig.log.len());
    rig.now = rig.now + Duration::from_secs(300);
    rig.core.wait_for_log(true);
    rig.consumer("Q", 10);
    let filter = super::rig::first_byte(b'x', None);
    let selecting = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(selecting, 1, true);
    rig.tick();
    assert!(rig.dispatch().is_empty(), "what is first is neither delivered nor ended");
    assert!(rig.effects.is_empty(), "the one that drains has not seen all: {:?}", rig.effects);
    assert!(!rig.core.has_work());
    assert_eq!(rig.core.next_tick(), Time::NEVER, "it is not polled");
    assert_eq!((rig.log.len(), rig.depth("Q")), (records, 2), "one needs no fact");
    rig.core.wait_for_log(false);
    assert_eq!(rig.delivered(), ["x stays"]);
    assert!(rig.core.next_tick() <= rig.now);
    rig.tick();
    assert_eq!(rig.depth("Q"), 1);
    assert!(rig.discharge(unit, false).is_err(), "it was too old");
    rig.core.audit();
}

#[test]
fn a_held_message_that_expired_is_discarded_when_it_comes_back() {
    let mut rig = Rig::new();
    rig.define("Q");
    let at = rig.now + SECOND;
    rig.put_with("Q", expiring(persistent("a"), at)).unwrap();
    rig.consumer("Q", 5);
    let got = rig.dispatch();
    rig.now = at;
    rig.settle(&got[0], Outcome::Released);
    assert!(rig.delivered().is_empty());
    assert_eq!(rig.depth("Q"), 0);
    rig.core.audit();
}

#[test]
fn expired_messages_go_to_the_dead_letter_queue_when_configured_and_stay_there() {
    let limits = Limits {
        expired_to_dead_letter: true,
        dead_letter_queue: "DLQ".to_owned(),
        ..Limits::default()
    };
    let mut rig = Rig::with(limits);
    rig.define("DLQ");
    rig.define("Q");
    let at = rig.now + SECOND;
    rig.put_with("Q", expiring(persistent("a"), at)).unwrap();
    rig.put_with("Q", expiring(message("b"), at)).unwrap();
    rig.now = at + SECOND;
    rig.consumer("Q", 1);
    assert!(rig.delivered().is_empty());
    rig.consumer("DLQ", 5);
    let got = rig.dispatch();
    assert_eq!(got.len(), 2);
    for delivery in got {
        assert_eq!(delivery.dead_letter.unwrap().reason, DeadLetterReason::Expired);
        assert_eq!(delivery.expires_at, None);
    }
    rig.core.audit();
}
