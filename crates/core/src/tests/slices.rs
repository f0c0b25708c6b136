//! Long work is done in slices: what a step of one client costs does not depend on what others
//! want.

use std::time::Duration;

use towline_types::Time;
use towline_types::limits::{
    DELIVERIES_PER_STEP, LOOKS_PER_STEP, LOOKS_PER_TURN, RETURNED_PER_SCANNER_MAX,
    RETURNED_PLACES_MAX,
};

use super::rig::{CLIENT, Rig, first_byte, message, persistent, spec};
use crate::object::ObjectType;
use crate::{
    ConsumerId, ConsumerMode, ConsumerSpec, Delivery, Effect, FilterKey, Limits, NewMessage,
    Outcome,
};

/// A consumer of messages that begin with this byte.
fn selecting(rig: &mut Rig, queue: &str, byte: u8, credit: u32) -> ConsumerId {
    let filter = first_byte(byte, None);
    let id = rig.open_get(&ConsumerSpec { filter, ..spec(queue) }).unwrap();
    rig.core.set_credit(id, credit, false);
    id
}

fn deep(messages: u32) -> Rig {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("R");
    let target = rig.open_put("Q").unwrap();
    for _ in 0..messages {
        rig.send(&target, message("x"), None).unwrap();
    }
    rig.core.close_put(&target);
    rig.dispatch();
    rig
}

impl Rig {
    /// Does all that can be done for consumers without a page.
    pub(crate) fn serve(&mut self) {
        let mut more = self.core.dispatch(self.now, &mut self.cold, &mut self.outputs);
        while more {
            more = self.slice(1_000);
        }
    }

    /// Does a slice of what is left to do. True: there is more.
    pub(crate) fn slice(&mut self, units: u32) -> bool {
        self.core.work(self.now, &mut { units }, &mut self.cold, &mut self.outputs);
        self.core.has_work()
    }

    /// One step of a client. True: work is left.
    fn step(&mut self) -> bool {
        let more = self.core.dispatch(self.now, &mut self.cold, &mut self.outputs);
        self.take_outputs();
        more
    }
}

#[test]
fn a_search_that_finds_nothing_costs_a_put_on_another_queue_no_look() {
    let mut rig = deep(10_000);
    selecting(&mut rig, "Q", b'y', 10);
    assert!(rig.step(), "the rest is for slices");
    assert_eq!(rig.cold.asked, u64::from(LOOKS_PER_STEP));
    rig.consumer("R", 100);
    for _ in 0..100 {
        rig.put("R", "r");
        assert!(rig.step());
        assert_eq!(std::mem::take(&mut rig.deliveries).len(), 1, "at once");
    }
    assert_eq!(rig.cold.asked, u64::from(LOOKS_PER_STEP));
    let mut slices = 0;
    while rig.slice(1_000) {
        slices += 1;
    }
    assert!((8..=12).contains(&slices), "{slices}");
    assert_eq!(rig.cold.asked, 10_000, "each was looked at once");
    rig.core.audit();
}

#[test]
fn a_plain_consumer_of_the_same_queue_does_not_wait_for_a_search() {
    let mut rig = deep(10_000);
    selecting(&mut rig, "Q", b'y', 10);
    rig.consumer("Q", 300);
    assert!(rig.step());
    assert_eq!(std::mem::take(&mut rig.deliveries).len(), 300);
    assert_eq!(rig.cold.asked, u64::from(LOOKS_PER_STEP));
}

#[test]
fn a_search_waits_for_no_other_one_to_end() {
    let mut rig = deep(10_000);
    selecting(&mut rig, "Q", b'y', 10);
    rig.step();
    let second = selecting(&mut rig, "Q", b'x', 1);
    // The first one has its turn, then the second.
    rig.slice(LOOKS_PER_TURN);
    rig.slice(LOOKS_PER_TURN);
    rig.take_outputs();
    assert_eq!(rig.deliveries.iter().map(|got| got.consumer).collect::<Vec<_>>(), [second]);
    let target = rig.open_put("R").unwrap();
    for _ in 0..10_000 {
        rig.send(&target, message("r"), None).unwrap();
    }
    selecting(&mut rig, "R", b'y', 10);
    let before = rig.cold.asked;
    rig.slice(8 * LOOKS_PER_TURN);
    let cursor_of_q = rig.cold.asked - before;
    assert!(cursor_of_q >= u64::from(7 * LOOKS_PER_TURN), "{cursor_of_q}");
    while rig.slice(1_000) {}
    rig.core.audit();
}

#[test]
fn a_step_serves_so_many_plain_consumers_and_leaves_the_rest() {
    let mut rig = deep(DELIVERIES_PER_STEP + 10);
    rig.consumer("Q", u32::MAX);
    assert!(rig.step());
    let served = std::mem::take(&mut rig.deliveries).len();
    assert!(served <= DELIVERIES_PER_STEP as usize && served + 10 > DELIVERIES_PER_STEP as usize);
    assert!(!rig.slice(100));
    rig.take_outputs();
    assert_eq!(served + rig.deliveries.len(), DELIVERIES_PER_STEP as usize + 10);
    rig.core.audit();
}

#[test]
fn a_drain_is_answered_when_its_own_search_is_finished_and_not_before() {
    let mut rig = deep(1_000);
    let slow = selecting(&mut rig, "Q", b'y', 10);
    rig.core.set_credit(slow, 10, true);
    rig.step();
    let quick = rig.consumer("R", 0);
    rig.core.set_credit(quick, 1, true);
    rig.step();
    let drained = |rig: &mut Rig| -> Vec<ConsumerId> {
        rig.take_outputs();
        let effects = std::mem::take(&mut rig.effects);
        let consumer = |effect| match effect {
            Effect::Drained { consumer, .. } => consumer,
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(consumer).collect()
    };
    assert_eq!(drained(&mut rig), [quick]);
    rig.slice(LOOKS_PER_TURN);
    assert_eq!(drained(&mut rig), []);
    rig.serve();
    assert_eq!(drained(&mut rig), [slow]);
    rig.core.audit();
}

/// Scanners that have looked at all of a deep queue of which a plain consumer holds the first
/// messages: `credit` of them.
fn searched(messages: u32, credit: u32, scanners: u32) -> (Rig, Vec<Delivery>) {
    let mut rig = deep(messages);
    rig.consumer("Q", credit);
    let held = rig.dispatch();
    assert_eq!(held.len(), credit as usize);
    for _ in 0..scanners {
        selecting(&mut rig, "Q", b'y', 10);
    }
    rig.dispatch();
    rig.cold.asked = 0;
    (rig, held)
}

#[test]
fn what_comes_back_is_looked_at_alone_once_by_each() {
    let (mut rig, held) = searched(10_000, 100, 3);
    rig.close(held[0].consumer, false);
    assert!(!rig.slice(1_000_000));
    assert_eq!(rig.cold.asked, 300, "a hundred messages, three selectors");
    rig.serve();
    assert_eq!(rig.cold.asked, 300);
    rig.core.audit();
}

#[test]
fn a_consumer_without_credit_looks_at_what_came_back_when_it_has_some() {
    let (mut rig, held) = searched(1_000, 10, 0);
    let other = selecting(&mut rig, "Q", b'y', 10);
    rig.dispatch();
    rig.core.set_credit(other, 0, false);
    rig.cold.asked = 0;
    for delivery in &held {
        rig.settle(delivery, Outcome::Released);
    }
    rig.core.set_credit(held[0].consumer, 0, false);
    rig.serve();
    assert_eq!(rig.cold.asked, 0, "one that wants nothing is not woken");
    rig.core.set_credit(other, 10, false);
    rig.serve();
    assert_eq!(rig.cold.asked, 10);
    rig.core.audit();
}

#[test]
fn what_came_back_is_delivered_in_order_of_priority_and_place() {
    let mut rig = Rig::new();
    rig.define("Q");
    for (number, priority) in [(0, 3), (1, 7), (2, 3), (3, 7), (4, 5)] {
        let content = format!("x{number}");
        rig.put_with("Q", NewMessage { priority: Some(priority), ..message(&content) }).unwrap();
    }
    let plain = rig.consumer("Q", 5);
    let held = rig.dispatch();
    rig.core.set_credit(plain, 0, false);
    let id = selecting(&mut rig, "Q", b'x', 0);
    rig.put("Q", "z");
    rig.core.set_credit(id, 1, false);
    assert!(rig.delivered().is_empty());
    rig.put_with("Q", NewMessage { priority: Some(6), ..message("x5") }).unwrap();
    assert_eq!(rig.delivered(), ["x5"]);
    // In an order of their own.
    for at in [4, 2, 0, 3, 1] {
        rig.settle(&held[at], Outcome::Released);
    }
    rig.put_with("Q", NewMessage { priority: Some(4), ..message("x6") }).unwrap();
    rig.core.set_credit(id, 10, false);
    assert_eq!(rig.delivered(), ["x1", "x3", "x4", "x6", "x0", "x2"]);
    rig.core.audit();
}

#[test]
fn a_message_that_came_back_and_is_gone_again_is_not_looked_at() {
    let (mut rig, held) = searched(100, 2, 1);
    rig.settle(&held[0], Outcome::Released);
    rig.settle(&held[1], Outcome::Released);
    rig.core.set_credit(held[0].consumer, 1, false);
    rig.dispatch();
    assert!(rig.cold.asked <= 2);
    rig.core.audit();
}

#[test]
fn too_many_places_that_no_selector_noted_make_it_look_at_all_from_the_first_of_them_on() {
    let messages = u32::try_from(RETURNED_PLACES_MAX).unwrap() + 100;
    let mut rig = deep(messages);
    let other = selecting(&mut rig, "Q", b'y', 10);
    rig.dispatch();
    rig.core.set_credit(other, 0, false);
    let plain = rig.consumer("Q", messages);
    let held = rig.dispatch();
    rig.core.set_credit(plain, 0, false);
    rig.cold.asked = 0;
    // Not the first ten: they are still held, and then gone.
    for delivery in &held[10..] {
        rig.settle(delivery, Outcome::Released);
    }
    rig.core.audit();
    rig.core.set_credit(other, 10, false);
    rig.serve();
    assert_eq!(rig.cold.asked, u64::from(messages) - 10, "each once");
    for delivery in &held[..10] {
        rig.settle(delivery, Outcome::Released);
    }
    rig.serve();
    assert_eq!(rig.cold.asked, u64::from(messages), "and it notes places again");
    rig.core.audit();
}

#[test]
fn a_selector_notes_so_many_places_and_looks_at_all_beyond_that() {
    let messages = u32::try_from(RETURNED_PER_SCANNER_MAX).unwrap() * 2;
    let most = RETURNED_PER_SCANNER_MAX as u64;
    for (back, looks) in [(most, most), (most + 1, u64::from(messages))] {
        let (mut rig, held) = searched(messages, messages / 2 + 1, 1);
        rig.core.set_credit(held[0].consumer, 0, false);
        let back = usize::try_from(back).unwrap();
        for delivery in held[..back].iter().rev() {
            rig.settle(delivery, Outcome::Released);
        }
        rig.serve();
        let still_held = (held.len() - back) as u64;
        let all = looks == u64::from(messages);
        assert_eq!(rig.cold.asked, if all { looks - still_held } else { looks });
        rig.core.audit();
    }
}

#[test]
fn a_browser_does_not_see_what_came_back_behind_it() {
    let (mut rig, held) = searched(10, 5, 0);
    rig.core.set_credit(held[0].consumer, 0, false);
    let spec = ConsumerSpec { mode: ConsumerMode::Browse, ..spec("Q") };
    let browser = rig.open_get(&spec).unwrap();
    rig.core.set_credit(browser, 100, false);
    assert_eq!(rig.dispatch().len(), 5);
    rig.settle(&held[0], Outcome::Released);
    assert!(rig.dispatch().is_empty());
    rig.put("Q", "x");
    assert_eq!(rig.dispatch().len(), 1);
}

#[test]
fn consumers_that_close_are_not_searched_for_one_by_one() {
    for plain in [true, false] {
        let mut rig = Rig::new();
        rig.define("Q");
        let open = |rig: &mut Rig| {
            if plain { rig.consumer("Q", 1) } else { selecting(rig, "Q", b'x', 1) }
        };
        let all: Vec<ConsumerId> = (0..1_000).map(|_| open(&mut rig)).collect();
        rig.dispatch();
        for id in all.iter().rev().take(999) {
            rig.close(*id, false);
            rig.core.audit();
        }
        for _ in 0..100_000 / 1_000 {
            let id = open(&mut rig);
            rig.close(id, false);
        }
        rig.put("Q", "x");
        let got = rig.dispatch();
        assert_eq!(got.iter().map(|got| got.consumer).collect::<Vec<_>>(), [all[0]]);
        let waiting = rig.core.queue(rig.status("Q").queue).waiting.len();
        assert!(waiting < 200, "{waiting} for one consumer");
    }
}

#[test]
fn ten_thousand_that_wait_for_one_key_do_not_all_look_in_one_step() {
    let mut rig = deep(0);
    let filter = first_byte(b'k', Some(FilterKey::Correlation(7)));
    let spec = ConsumerSpec { filter, ..spec("Q") };
    for _ in 0..1_000 {
        let id = rig.open_get(&spec).unwrap();
        rig.core.set_credit(id, 1, false);
    }
    rig.serve();
    rig.put_with("Q", NewMessage { correlation_hash: 7, ..message("k") }).unwrap();
    assert!(rig.step(), "the others look later");
    assert_eq!(std::mem::take(&mut rig.deliveries).len(), 1);
    let waiting = rig.core.queue(rig.status("Q").queue).waiting.ring.len();
    assert!(waiting > 1_000 - 2 * LOOKS_PER_STEP as usize, "{waiting}");
    rig.serve();
    rig.core.audit();
}

#[test]
fn a_scan_of_many_queues_is_done_in_slices() {
    let mut rig = Rig::new();
    let at = Time(2_000_000_000);
    for number in 0..300 {
        let name = format!("Q{number}");
        rig.define(&name);
        rig.put_with(&name, NewMessage { expires_at: Some(at), ..message("x") }).unwrap();
    }
    rig.dispatch();
    rig.core.tick(rig.now, &mut rig.outputs);
    rig.now = rig.now + Duration::from_secs(300);
    rig.core.tick(rig.now, &mut rig.outputs);
    let mut slices = 1;
    while rig.slice(100) {
        slices += 1;
    }
    assert_eq!(slices, 6, "none has expired: a look for each queue, and one for its message");
}

/// What is left of it is given up in slices; others have it out of their way at once.
#[test]
fn a_queue_of_many_messages_is_cleared_or_deleted_at_once_and_its_bodies_go_in_slices() {
    for deletes in [false, true] {
        let mut rig = Rig::new();
        rig.keeps_garbage = true;
        rig.define("Q");
        for _ in 0..500 {
            rig.put_persistent("Q", "logged");
            rig.put("Q", "in memory");
        }
        let memory = rig.core.memory_bytes();
        assert!(memory > 0 && rig.stored.len() == 500);
        if deletes {
            rig.core.delete(rig.now, "Q", ObjectType::Local, true, &mut rig.decision).unwrap();
        } else {
            rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
        }
        rig.carry_out();
        assert_eq!((rig.core.memory_bytes(), rig.stored.len()), (0, 500));
        if !deletes {
            assert_eq!((rig.depth("Q"), rig.status("Q").totals.cleared), (0, 1_000));
            rig.put_persistent("Q", "later");
        }
        rig.core.audit();
        assert!(rig.core.has_work());
        let mut slices = 0;
        while rig.slice(100) {
            rig.take_outputs();
            slices += 1;
        }
        rig.take_outputs();
        assert!(slices >= 9, "{slices}");
        assert_eq!(rig.stored.len(), usize::from(!deletes));
        rig.core.audit();
        if !deletes {
            assert_eq!(rig.browse("Q"), ["later"]);
        }
    }
}

/// The fact says it of all of them at once; what the log needs less is counted in slices.
#[test]
fn bodies_of_a_large_unit_that_is_rolled_back_are_given_up_in_slices_however_it_ends() {
    for end in ["discharge", "lost", "age", "press"] {
        let mut rig = Rig::with(Limits { unit_staged_bytes_max: 0, ..Limits::default() });
        rig.keeps_garbage = true;
        rig.define("Q");
        let target = rig.open_put("Q").unwrap();
        let unit = rig.declare();
        for _ in 0..3_000 {
            rig.send(&target, persistent("x"), Some(unit)).unwrap();
        }
        assert_eq!(rig.stored.len(), 3_000);
        match end {
            "discharge" => rig.discharge(unit, true).unwrap(),
            "lost" => rig.disconnect(CLIENT, true),
            "age" => {
                rig.now = rig.now + Limits::default().unit_age_max;
                rig.core.tick(rig.now, &mut rig.outputs);
            }
            _ => assert!(rig.press()),
        }
        rig.take_outputs();
        rig.sync();
        assert_eq!((rig.stored.len(), rig.depth("Q")), (3_000, 0), "{end}");
        let image = rig.image();
        let again = rig.restart_whole(&image, rig.durable, rig.log.len());
        assert!(again.stored.is_empty() && again.shares().is_empty(), "{end}: not in an image");
        rig.core.audit();
        while rig.core.has_garbage() {
            let before = rig.stored.len();
            rig.slice(1);
            rig.take_outputs();
            assert!(before - rig.stored.len() <= 512, "{end}: too many in one turn");
        }
        assert!(rig.stored.is_empty(), "{end}: each of them");
        rig.core.audit();
    }
}

/// No client waits, and images are taken between two batches.
#[test]
fn replay_leaves_nothing_of_a_cleared_queue_for_slices() {
    let mut rig = Rig::new();
    rig.define("Q");
    for _ in 0..50 {
        rig.put_persistent("Q", "logged");
    }
    rig.core.clear(rig.now, "Q", &mut rig.decision).unwrap();
    rig.carry_out();
    let again = rig.restart(None, rig.log.len());
    assert!(again.stored.is_empty() && again.core.garbage.is_empty());
}
