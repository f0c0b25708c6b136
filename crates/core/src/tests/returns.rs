//! What comes back of large units of work, and from clients that are gone, comes in slices.

use super::rig::{CLIENT, OTHER, Rig, message, persistent, spec};
use crate::{Delivery, Limits, Outcome, Refusal};

const MANY: u32 = 600;

/// A queue of so many messages, every other one persistent; more than ten come back in slices.
fn deep() -> Rig {
    let mut rig = Rig::with(Limits { returned_at_once_max: 10, ..Limits::default() });
    rig.define("Q");
    rig.define("R");
    for number in 0..MANY {
        match number % 2 {
            0 => rig.put_persistent("Q", &number.to_string()),
            _ => rig.put("Q", &number.to_string()),
        }
    }
    rig
}

/// All of them are with a consumer.
fn got(rig: &mut Rig) -> Vec<Delivery> {
    rig.consumer("Q", MANY);
    let got = rig.dispatch();
    assert_eq!(got.len(), MANY as usize);
    got
}

fn others_consumer(rig: &mut Rig, queue: &str, credit: u32) {
    let decision = &mut crate::Decision::default();
    let (id, _) = rig.core.open_get(rig.now, OTHER, &spec(queue), decision).unwrap();
    rig.core.set_credit(id, credit, false);
}

fn numbers(rig: &Rig, deliveries: &[Delivery]) -> Vec<u32> {
    deliveries.iter().map(|got| rig.text(got).parse().unwrap()).collect()
}

/// Another client waits for all of them, and gets them in order once all are back.
fn come_back_in_order(rig: &mut Rig, backouts: u32) {
    others_consumer(rig, "Q", MANY);
    let mut slices = 0;
    while rig.core.has_work() {
        let all_are_back = rig.core.returns.is_empty();
        assert!(all_are_back || rig.deliveries.is_empty(), "one would overtake others");
        rig.core.audit();
        rig.slice(50);
        rig.take_outputs();
        slices += 1;
    }
    assert!(slices >= MANY / 256, "{slices}");
    let again = std::mem::take(&mut rig.deliveries);
    assert_eq!(numbers(rig, &again), (0..MANY).collect::<Vec<_>>());
    assert!(again.iter().all(|got| got.backout_count == backouts));
    rig.core.audit();
}

#[test]
fn gets_of_a_large_unit_that_is_rolled_back_come_in_slices_and_in_order() {
    let mut rig = deep();
    let got = got(&mut rig);
    let unit = rig.declare();
    for delivery in got.iter().rev() {
        rig.settle_in(delivery, Outcome::Accepted, Some(unit)).unwrap();
    }
    rig.discharge(unit, true).unwrap();
    assert!(rig.last_facts.is_empty(), "nothing came back in that step");
    come_back_in_order(&mut rig, 1);
}

#[test]
fn what_a_lost_client_had_not_settled_comes_in_slices_and_in_order() {
    for (lost, backouts) in [(true, 1), (false, 0)] {
        let mut rig = deep();
        got(&mut rig);
        rig.disconnect(CLIENT, lost);
        assert!(rig.last_facts.is_empty(), "nothing came back in that step");
        come_back_in_order(&mut rig, backouts);
    }
}

#[test]
fn nothing_comes_back_in_slices_while_runs_wait_for_the_log() {
    let mut rig = deep();
    got(&mut rig);
    rig.core.wait_for_log(true);
    rig.disconnect(CLIENT, true);
    assert!(!rig.core.has_work(), "it is not polled");
    rig.slice(50);
    rig.take_outputs();
    assert!(rig.last_facts.is_empty());
    rig.core.wait_for_log(false);
    assert!(rig.core.next_tick() <= rig.now);
    come_back_in_order(&mut rig, 1);
}

#[test]
fn another_queue_is_served_while_messages_come_back() {
    let mut rig = deep();
    got(&mut rig);
    rig.disconnect(CLIENT, true);
    others_consumer(&mut rig, "R", 1);
    rig.put("R", "r");
    rig.core.dispatch(rig.now, &mut rig.cold, &mut rig.outputs);
    rig.take_outputs();
    assert_eq!(rig.deliveries.len(), 1);
    assert!(rig.core.has_work(), "the others are not back yet");
}

#[test]
fn puts_of_a_large_unit_leave_their_queue_at_once_and_memory_in_slices() {
    let mut rig = deep();
    let before = rig.core.memory_bytes();
    let target = rig.open_put("R").unwrap();
    let unit = rig.declare();
    for _ in 0..MANY {
        rig.send(&target, persistent("p"), Some(unit)).unwrap();
        rig.send(&target, message("p"), Some(unit)).unwrap();
    }
    let full = rig.core.memory_bytes();
    rig.discharge(unit, true).unwrap();
    assert_eq!((rig.depth("R"), rig.core.memory_bytes()), (0, full));
    rig.slice(1);
    rig.core.audit();
    assert!((before..full).contains(&rig.core.memory_bytes()));
    while rig.slice(100) {}
    assert_eq!(rig.core.memory_bytes(), before);
    rig.core.audit();
}

#[test]
fn a_queue_to_which_messages_come_back_is_not_cleared() {
    let mut rig = deep();
    got(&mut rig);
    rig.disconnect(CLIENT, true);
    let mut decision = std::mem::take(&mut rig.decision);
    let refused = rig.core.clear(rig.now, "Q", &mut decision);
    assert_eq!(refused, Err(Refusal::Uncommitted("Q".to_owned())));
    while rig.slice(1_000) {}
    rig.take_outputs();
    rig.core.clear(rig.now, "Q", &mut decision).unwrap();
}

/// Delivered again at once, it could be backed out again and again: each time is one more run that
/// waits.
#[test]
fn what_is_backed_out_while_runs_wait_for_the_log_comes_back_when_they_do_not() {
    type Way = fn(&mut Rig, &[Delivery]);
    let ways: [Way; 3] = [
        |rig, got| {
            let unit = rig.declare();
            for delivery in got {
                rig.settle_in(delivery, Outcome::Accepted, Some(unit)).unwrap();
            }
            rig.discharge(unit, true).unwrap();
        },
        |rig, got| {
            let failed = Outcome::Modified { failed: true, undeliverable_here: false };
            got.iter().for_each(|delivery| rig.settle(delivery, failed));
        },
        |rig, _| rig.disconnect(CLIENT, true),
    ];
    for (number, backs_out) in ways.iter().enumerate() {
        let mut rig = Rig::new();
        rig.define("Q");
        rig.put_persistent("Q", "0");
        rig.put_persistent("Q", "1");
        rig.consumer("Q", 2);
        let got = rig.dispatch();
        rig.core.wait_for_log(true);
        rig.put("Q", "2");
        let logged = rig.log.len();
        backs_out(&mut rig, &got);
        others_consumer(&mut rig, "Q", 10);
        assert!(rig.dispatch().is_empty(), "{number}: nothing overtakes them");
        assert_eq!(rig.log.len(), logged, "{number}");
        rig.core.audit();
        rig.core.wait_for_log(false);
        while rig.slice(50) {}
        rig.take_outputs();
        let again = std::mem::take(&mut rig.deliveries);
        assert_eq!(numbers(&rig, &again), [0, 1, 2], "{number}");
        let counts: Vec<u32> = again.iter().map(|delivery| delivery.backout_count).collect();
        assert_eq!(counts, [1, 1, 0], "{number}");
        rig.core.audit();
    }
}
