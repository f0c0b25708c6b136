//! Long work is done in slices: what a step of one client costs does not depend on what others
//! want.

use towline_types::limits::{DELIVERIES_PER_STEP, LOOKS_PER_STEP, LOOKS_PER_TURN};

use super::rig::{Rig, first_byte, message, spec};
use crate::{ConsumerId, ConsumerSpec, Effect};

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
