//! Messages that are carried forward while others come in between, out of the order of their
//! sequences.

use bytes::Bytes;
use towline_types::{Lsn, Payload};

use super::rig::{Rig, message, persistent};
use crate::queue::page::decode;
use crate::{Limits, Outcome, RelocationCursor, RelocationSearch};

/// Messages in the block before the test begins: one more fills it.
const BEFORE: usize = 7;

/// Decides to log the oldest message of a queue again; it is on its way.
fn relocate_oldest(rig: &mut Rig, queue: &str) {
    let (mut cursor, mut found) = (RelocationCursor::default(), Vec::new());
    while rig.core.find_old(Lsn(u64::MAX), &mut cursor, 64, &mut found) == RelocationSearch::More {}
    let id = rig.status(queue).queue;
    let (queue, sequence, body) = found.into_iter().find(|(queue, ..)| *queue == id).unwrap();
    let content = Payload::from(Bytes::from(rig.cold.content(&body)));
    assert!(rig.core.relocate(queue, sequence, content, &mut rig.decision));
    rig.carry_out();
}

fn filled(queue: &str) -> Rig {
    let limits = Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() };
    let mut rig = Rig::with(limits);
    for name in ["Q", "DLQ"] {
        rig.define(name);
    }
    for number in 0..BEFORE {
        rig.put_persistent(queue, &number.to_string());
    }
    rig
}

/// All that is here may leave and come back, and is what it was.
fn check(rig: &mut Rig, queue: &str, wanted: &[&str]) {
    rig.core.audit();
    assert_eq!(rig.browse(queue), wanted);
    rig.evict();
    for bytes in rig.pages.values() {
        assert!(decode(bytes).is_ok(), "a page holds what a block may hold");
    }
    assert_eq!(rig.browse(queue), wanted);
    rig.core.audit();
}

#[test]
fn a_unit_of_persistent_and_other_messages_may_cut_a_block_of_which_one_is_carried_forward() {
    let mut rig = filled("Q");
    rig.instant = false;
    let unit = rig.declare();
    let target = rig.open_put("Q").unwrap();
    for (text, persists) in [("a", false), ("b", true), ("c", false), ("d", true)] {
        let sent = if persists { persistent(text) } else { message(text) };
        rig.send(&target, sent, Some(unit)).unwrap();
    }
    rig.discharge(unit, false).unwrap();
    relocate_oldest(&mut rig, "Q");
    assert_eq!(rig.waiting(), 2, "the unit, and what is carried behind it");
    rig.sync();
    check(&mut rig, "Q", &["0", "1", "2", "3", "4", "5", "6", "a", "b", "c", "d"]);
}

#[test]
fn a_dead_letter_that_is_not_logged_may_come_before_one_that_is_where_one_is_carried_forward() {
    let mut rig = filled("DLQ");
    rig.put_persistent("Q", "a");
    rig.put("Q", "b");
    rig.consumer("Q", 2);
    let held = rig.dispatch();
    rig.instant = false;
    for delivery in &held {
        rig.settle(delivery, Outcome::Rejected);
    }
    relocate_oldest(&mut rig, "DLQ");
    assert_eq!(rig.waiting(), 2, "the logged dead letter, and what is carried behind it");
    rig.sync();
    check(&mut rig, "DLQ", &["0", "1", "2", "3", "4", "5", "6", "a", "b"]);
}

#[test]
fn each_half_of_a_block_that_was_cut_stays_while_a_fact_about_it_is_on_its_way() {
    let mut rig = filled("Q");
    rig.instant = false;
    let unit = rig.declare();
    let target = rig.open_put("Q").unwrap();
    rig.send(&target, message("a"), Some(unit)).unwrap();
    rig.send(&target, persistent("b"), Some(unit)).unwrap();
    rig.discharge(unit, false).unwrap();
    relocate_oldest(&mut rig, "Q");
    relocate_oldest(&mut rig, "Q");
    rig.sync_one();
    // What is not pinned may leave; the carried one's facts find it all the same.
    rig.evict();
    rig.sync_one();
    rig.evict();
    rig.sync();
    check(&mut rig, "Q", &["0", "1", "2", "3", "4", "5", "6", "a", "b"]);
}
