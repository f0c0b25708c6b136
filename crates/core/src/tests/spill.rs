//! Units of work that are larger than what is kept in memory of them.

use bytes::Bytes;

use super::rig::{CLIENT, Rig, message, persistent};
use crate::{Durability, Effect, Fact, Limits, NewMessage, Outcome, PutTarget, Refusal};
use towline_types::{Payload, limits};

/// More than four bytes of one unit go to the log.
fn small() -> Limits {
    Limits { unit_staged_bytes_max: 4, ..Limits::default() }
}

fn queue(limits: Limits) -> (Rig, PutTarget) {
    let mut rig = Rig::with(limits);
    rig.define("Q");
    let target = rig.open_put("Q").unwrap();
    (rig, target)
}

/// An open unit with `abc`, `def` (both in the log), `g` and the non-persistent `xyz`.
fn spilled() -> (Rig, PutTarget, crate::UnitId) {
    let (mut rig, q) = queue(small());
    let unit = rig.declare();
    for content in ["abc", "def", "g"] {
        rig.send(&q, persistent(content), Some(unit)).unwrap();
    }
    rig.send(&q, message("xyz"), Some(unit)).unwrap();
    (rig, q, unit)
}

#[test]
fn bodies_beyond_the_bound_go_to_the_log_and_no_client_waits() {
    let (mut rig, q) = queue(small());
    let unit = rig.declare();
    rig.send(&q, persistent("abc"), Some(unit)).unwrap();
    assert_eq!((rig.last_facts.len(), rig.core.memory_bytes()), (0, limits::STAGED_PUT_BYTES + 3));
    rig.send(&q, persistent("de"), Some(unit)).unwrap();
    assert_eq!(rig.last_durability, Durability::Lazy);
    assert_eq!(rig.last_facts.len(), 2, "both bodies, no put");
    assert_eq!(rig.core.memory_bytes(), 2 * limits::STAGED_PUT_BYTES, "not in memory any more");
    assert_eq!((rig.browse("Q").len(), rig.stored.len(), rig.depth("Q")), (0, 2, 2));
    rig.core.audit();
    rig.discharge(unit, false).unwrap();
    assert!(matches!(rig.last_facts[2], Fact::Committed { operations: 2 }));
    assert_eq!(rig.browse("Q"), ["abc", "de"]);
    assert_eq!((rig.stored.len(), rig.core.memory_bytes()), (2, 0));
    let body = rig.core.body_of(q.queue, crate::MessageSequence(1)).unwrap();
    assert!(matches!(body, crate::Body::Log(_)), "one chunk is a plain place: {body:?}");
    rig.core.audit();
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!((again.browse("Q"), &again.stored), (vec!["abc".into(), "de".into()], &rig.stored));
}

#[test]
fn a_commit_is_whole_wherever_the_bodies_are() {
    let (mut rig, _, unit) = spilled();
    let before = rig.log.len();
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.browse("Q"), ["abc", "def", "g", "xyz"], "in the order of the puts");
    for records in before..rig.log.len() {
        let mut torn = rig.restart(None, records);
        assert!(torn.browse("Q").is_empty() && torn.stored.is_empty(), "never half a unit");
    }
    let mut again = rig.restart(None, rig.log.len());
    assert_eq!(again.browse("Q"), ["abc", "def", "g"]);
    assert_eq!(again.stored, rig.stored);
}

#[test]
fn a_rollback_gives_back_every_byte_of_memory_and_log() {
    for end in ["discharge", "disconnect", "press"] {
        for instant in [true, false] {
            let (mut rig, q, unit) = spilled();
            rig.instant = instant;
            if !instant {
                // Two more, with chunks that are not durable when the unit ends.
                rig.send(&q, persistent("hijk"), Some(unit)).unwrap();
                rig.send(&q, persistent("l"), Some(unit)).unwrap();
            }
            match end {
                "discharge" => rig.discharge(unit, true).unwrap(),
                "disconnect" => rig.disconnect(CLIENT, true),
                _ => assert!(rig.press()),
            }
            rig.sync();
            assert_eq!((rig.depth("Q"), rig.core.memory_bytes()), (0, 0), "{end}");
            assert!(rig.stored.is_empty() && rig.shares().is_empty(), "{end}: {:?}", rig.stored);
            rig.core.audit();
            for records in 0..=rig.log.len() {
                assert!(rig.restart(None, records).stored.is_empty(), "{end}: at any crash");
            }
        }
    }
}

#[test]
fn bodies_of_an_open_unit_are_dropped_by_a_restart_from_an_image_too() {
    let (mut rig, q, unit) = spilled();
    rig.put_persistent("Q", "other");
    let (image, at) = (rig.image(), rig.durable);
    rig.send(&q, persistent("hijkl"), Some(unit)).unwrap();
    for records in at..=rig.log.len() {
        for again in [
            rig.restart_whole(&image, at, records),
            rig.restart(Some((&image, at)), records),
            rig.restart(None, records),
        ] {
            let mut again = again;
            assert_eq!((again.browse("Q"), again.shares().len()), (vec!["other".to_owned()], 1));
            assert_eq!(again.shares().values().next(), Some(&(1, 5)), "nothing of the unit");
            assert_eq!(again.core.bodies_in_progress().count(), 0);
            again.core.audit();
        }
    }
    // Committed after the image: the bodies before it are found through it.
    rig.discharge(unit, false).unwrap();
    let mut again = rig.restart_whole(&image, at, rig.log.len());
    assert_eq!(again.browse("Q"), ["other", "abc", "def", "g", "hijkl"]);
    assert_eq!(again.shares(), rig.shares());
    // Rolled back after the image: the same.
    let (mut rig, _, unit) = spilled();
    let (image, at) = (rig.image(), rig.durable);
    rig.discharge(unit, true).unwrap();
    let again = rig.restart_whole(&image, at, rig.log.len());
    assert!(again.shares().is_empty());
}

#[test]
fn a_unit_in_the_log_has_limits_all_the_same() {
    let limits = Limits { unit_bytes_max: 8, unit_messages_max: 4, ..small() };
    let (mut rig, q) = queue(limits);
    let unit = rig.declare();
    for content in ["abc", "def"] {
        rig.send(&q, persistent(content), Some(unit)).unwrap();
    }
    let too_large = Refusal::UnitTooLarge { bytes_max: 8 };
    assert_eq!(rig.send(&q, persistent("ghi"), Some(unit)), Err(too_large));
    rig.send(&q, persistent("g"), Some(unit)).unwrap();
    rig.send(&q, message(""), Some(unit)).unwrap();
    let too_many = Refusal::UnitTooManyMessages { messages_max: 4 };
    assert_eq!(rig.send(&q, persistent("h"), Some(unit)), Err(too_many));
    rig.core.audit();
    rig.discharge(unit, true).unwrap();
    assert!(rig.stored.is_empty());
    rig.core.audit();
}

#[test]
fn memory_bounds_what_units_keep_and_not_what_is_in_the_log() {
    let room = 2 * limits::STAGED_PUT_BYTES + 8;
    let (mut rig, q) = queue(Limits { memory_bytes_max: room, ..Limits::default() });
    let unit = rig.declare();
    let long = "l".repeat(1000);
    rig.send(&q, persistent(&long), Some(unit)).unwrap();
    assert_eq!(rig.core.memory_bytes(), limits::STAGED_PUT_BYTES, "longer than memory: to the log");
    let full = Refusal::MemoryFull { bytes_max: room };
    assert_eq!(rig.send(&q, message(&long), Some(unit)), Err(full.clone()), "must be in memory");
    rig.send(&q, persistent(&long), Some(unit)).unwrap();
    assert_eq!(rig.send(&q, persistent("x"), Some(unit)), Err(full), "too many in one unit");
    rig.core.audit();
    rig.discharge(unit, false).unwrap();
    assert_eq!((rig.depth("Q"), rig.core.memory_bytes()), (2, 0));
    rig.core.audit();
}

#[test]
fn many_units_share_the_memory_for_bodies_that_wait() {
    let limits = Limits { memory_bytes_max: 4_000, ..Limits::default() };
    let (mut rig, q) = queue(limits);
    let units = [rig.declare(), rig.declare()];
    let long = "l".repeat(600);
    rig.send(&q, persistent(&long), Some(units[0])).unwrap();
    assert!(rig.stored.is_empty(), "a quarter of memory is for them");
    rig.send(&q, persistent(&long), Some(units[1])).unwrap();
    assert_eq!(rig.stored.len(), 1, "the one that came last goes to the log");
    rig.core.audit();
}

#[test]
fn a_large_body_of_a_unit_goes_to_the_log_at_once_in_chunks() {
    let (mut rig, q) = queue(Limits::default());
    let unit = rig.declare();
    let long = "x".repeat(3 * limits::BODY_CHUNK_BYTES + 1);
    rig.send(&q, persistent(&long), Some(unit)).unwrap();
    assert_eq!((rig.last_facts.len(), rig.core.memory_bytes()), (4, limits::STAGED_PUT_BYTES));
    rig.discharge(unit, false).unwrap();
    assert_eq!(rig.browse("Q"), [long]);
    rig.core.audit();
}

#[test]
fn the_unit_that_holds_the_oldest_place_of_the_log_ends_first_and_says_why() {
    let (mut rig, q) = queue(small());
    rig.put_persistent("Q", "in");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    let [idle, first, second] = [rig.declare(), rig.declare(), rig.declare()];
    rig.settle_in(&got[0], Outcome::Accepted, Some(second)).unwrap();
    rig.send(&q, persistent("ab"), Some(idle)).unwrap();
    // The unit that was declared later spills first.
    rig.send(&q, persistent("defgh"), Some(second)).unwrap();
    rig.send(&q, persistent("abcde"), Some(first)).unwrap();
    let (oldest, at) = rig.core.oldest_unit_in_log().unwrap();
    assert_eq!((oldest, at), (second, rig.stored.iter().nth(1).unwrap().lsn));
    assert!(rig.press());
    let held = Refusal::UnitHeldLog { percent: 80 };
    let notified = rig.effects.iter().filter(|effect| {
        matches!(effect, Effect::UnitRolledBack { unit, reason, .. }
            if *unit == second && *reason == held)
    });
    assert_eq!(notified.count(), 1);
    assert_eq!(rig.browse("Q"), ["in"], "what it got is back");
    assert_eq!(rig.send(&q, persistent("i"), Some(second)), Err(held.clone()));
    assert_eq!(rig.discharge(second, false), Err(held));
    rig.discharge(first, false).unwrap();
    assert!(!rig.press(), "no other unit is in the log");
    rig.discharge(idle, false).unwrap();
    assert_eq!(rig.browse("Q"), ["in", "abcde", "ab"]);
    rig.core.audit();
}

#[test]
fn a_staged_body_of_one_frame_does_not_keep_its_read_buffer_in_memory() {
    let (mut rig, q) = queue(Limits::default());
    let unit = rig.declare();
    let buffer = Bytes::from(vec![b'x'; 128 * 1024]);
    for bytes in [10, 5_000, 60_000] {
        let content = Payload::from(buffer.slice(..bytes));
        rig.send(&q, NewMessage { content, ..persistent("") }, Some(unit)).unwrap();
    }
    assert!(buffer.is_unique(), "a body refers to it");
}

#[test]
fn units_of_one_connection_share_what_they_keep_in_memory() {
    const UNITS: u64 = 64;
    const BODY_BYTES: u64 = 100_000;
    let (mut rig, q) = queue(Limits::default());
    let units: Vec<_> = (0..UNITS).map(|_| rig.declare()).collect();
    let body = "x".repeat(usize::try_from(BODY_BYTES).unwrap());
    for unit in units {
        for _ in 0..9 {
            rig.send(&q, persistent(&body), Some(unit)).unwrap();
        }
    }
    let of_puts = UNITS * 9 * limits::STAGED_PUT_BYTES;
    let bodies = rig.core.memory_bytes() - of_puts;
    assert!(bodies <= limits::CONNECTION_STAGED_BYTES_MAX, "{bodies} bytes");
    const { assert!(UNITS * 9 * BODY_BYTES > 3 * limits::CONNECTION_STAGED_BYTES_MAX) };
    rig.core.audit();
}
