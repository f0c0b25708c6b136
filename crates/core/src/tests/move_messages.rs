//! MOVE QLOCAL: what is moved, in which order, and what stays.

use towline_types::{FORMAT_LEVEL_UNASKED, limits};

use super::rig::{CLIENT, Rig, persistent};
use crate::command::LocalChanges;
use crate::{Limits, MoveCounts, Refusal};

fn moved(rig: &mut Rig, from: &str, to: &str, add: bool) -> Result<MoveCounts, Refusal> {
    let now = rig.now;
    let counts = rig.core.move_messages(now, from, to, add, &mut rig.decision)?;
    rig.carry_out();
    rig.sync();
    Ok(counts)
}

fn two_queues() -> Rig {
    let mut rig = Rig::new();
    rig.define("A");
    rig.define("B");
    rig
}

#[test]
fn what_is_available_is_moved_in_order_and_is_no_dead_letter() {
    let mut rig = two_queues();
    rig.put_persistent("A", "locked");
    let consumer = rig.consumer("A", 1);
    assert_eq!(rig.delivered(), ["locked"]);
    rig.put_persistent("A", "one");
    rig.put("A", "two");
    rig.put_persistent("A", "three");
    rig.sync();
    let counts = moved(&mut rig, "A", "B", false).unwrap();
    assert_eq!(counts, MoveCounts { moved: 3, left: 0 });
    assert_eq!(rig.core.queue_status("A").unwrap().depth, 1, "what a consumer has stays");
    rig.close(consumer, false);
    rig.consumer("B", 10);
    let deliveries = rig.dispatch();
    let texts: Vec<String> = deliveries.iter().map(|delivery| rig.text(delivery)).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    assert!(deliveries.iter().all(|delivery| delivery.dead_letter.is_none()));
}

const MANY: u32 = 600;

fn numbers() -> Vec<String> {
    (0..MANY).map(|number| number.to_string()).collect()
}

/// More than ten are committed in parts, and come back in slices.
fn in_slices() -> Rig {
    let mut rig = Rig::with(Limits {
        committed_at_once_max: 10,
        returned_at_once_max: 10,
        ..Limits::default()
    });
    rig.define("A");
    rig.define("B");
    rig.core.raise_level(FORMAT_LEVEL_UNASKED, &mut rig.decision).unwrap();
    rig.carry_out();
    rig
}

/// It is refused until all is there, and moves nothing; then all, in order. Yields how often.
fn refused_until_all_is_moved(rig: &mut Rig) -> u32 {
    let mut refused = 0;
    let counts = loop {
        match moved(rig, "A", "B", true) {
            Ok(counts) => break counts,
            Err(refusal) => assert!(matches!(refusal, Refusal::BadAttribute { .. }), "{refusal}"),
        }
        assert_eq!(rig.depth("B"), 0);
        refused += 1;
        rig.slice(50);
        rig.take_outputs();
    };
    assert_eq!(counts, MoveCounts { moved: u64::from(MANY), left: 0 });
    assert_eq!(rig.browse("B"), numbers());
    rig.core.audit();
    refused
}

#[test]
fn nothing_is_moved_before_all_of_a_large_unit_has_arrived() {
    let mut rig = in_slices();
    rig.keeps_garbage = true;
    let unit = rig.declare();
    let target = rig.open_put("A").unwrap();
    for number in numbers() {
        rig.send(&target, persistent(&number), Some(unit)).unwrap();
    }
    rig.core.close_put(&target);
    rig.discharge(unit, false).unwrap();
    assert!(refused_until_all_is_moved(&mut rig) > 1);
}

#[test]
fn nothing_is_moved_before_all_that_a_client_had_is_back() {
    let mut rig = in_slices();
    for number in numbers() {
        rig.put_persistent("A", &number);
    }
    rig.consumer("A", MANY);
    assert_eq!(rig.dispatch().len(), MANY as usize);
    rig.disconnect(CLIENT, true);
    assert!(refused_until_all_is_moved(&mut rig) > 1);
}

/// Its messages stand before what is moved, whenever they come.
#[test]
fn what_is_moved_stands_behind_what_arrives_in_its_target() {
    let mut rig = in_slices();
    rig.put_persistent("A", "moved");
    rig.keeps_garbage = true;
    let unit = rig.declare();
    let target = rig.open_put("B").unwrap();
    for number in numbers() {
        rig.send(&target, persistent(&number), Some(unit)).unwrap();
    }
    rig.core.close_put(&target);
    rig.discharge(unit, false).unwrap();
    assert!(matches!(moved(&mut rig, "A", "B", false), Err(Refusal::BadAttribute { .. })));
    assert_eq!(moved(&mut rig, "A", "B", true).unwrap().moved, 1);
    while rig.slice(50) {}
    let mut wanted = numbers();
    wanted.push("moved".to_owned());
    assert_eq!(rig.browse("B"), wanted);
}

#[test]
fn a_queue_with_messages_is_a_target_only_when_they_are_added() {
    let mut rig = two_queues();
    rig.put_persistent("A", "new");
    rig.put_persistent("B", "old");
    rig.sync();
    assert!(matches!(moved(&mut rig, "A", "B", false), Err(Refusal::BadAttribute { .. })));
    assert_eq!(moved(&mut rig, "A", "B", true).unwrap().moved, 1);
    rig.consumer("B", 10);
    assert_eq!(rig.delivered(), ["old", "new"]);
    assert!(moved(&mut rig, "A", "A", true).is_err());
    assert!(moved(&mut rig, "A", "NONE", true).is_err());
}

#[test]
fn a_target_takes_what_fits_and_the_rest_is_counted_and_stays() {
    let mut rig = Rig::new();
    rig.define("A");
    let changes = LocalChanges { depth_max: Some(2), ..LocalChanges::default() };
    rig.define_with("B", changes).unwrap();
    for number in 0..5 {
        rig.put_persistent("A", &format!("{number}"));
    }
    rig.sync();
    let counts = moved(&mut rig, "A", "B", false).unwrap();
    assert_eq!(counts, MoveCounts { moved: 2, left: 3 });
    rig.consumer("A", 10);
    assert_eq!(rig.delivered(), ["2", "3", "4"]);
}

#[test]
fn one_command_moves_a_bounded_number() {
    let mut rig = two_queues();
    for _ in 0..limits::MOVE_MESSAGES_MAX + 3 {
        rig.put("A", "x");
    }
    let counts = moved(&mut rig, "A", "B", false).unwrap();
    assert_eq!(counts, MoveCounts { moved: limits::MOVE_MESSAGES_MAX, left: 3 });
    assert_eq!(moved(&mut rig, "A", "B", true).unwrap(), MoveCounts { moved: 3, left: 0 });
}
