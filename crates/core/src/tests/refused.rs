//! Messages that a consumer said are not for it: `modified` with undeliverable-here (AMQP 3.4.4),
//! and `rejected` where no dead-letter queue takes them.

use towline_types::limits;

use super::rig::{Rig, first_byte, persistent, spec};
use crate::command::LocalChanges;
use crate::{ConsumerId, ConsumerSpec, Effect, Limits, Outcome};

const NOT_HERE: Outcome = Outcome::Modified { failed: false, undeliverable_here: true };
const FAILED_HERE: Outcome = Outcome::Modified { failed: true, undeliverable_here: true };

fn rig_with(contents: &[&str]) -> Rig {
    let mut rig = Rig::with(Limits { dead_letter_queue: "DLQ".to_owned(), ..Limits::default() });
    rig.define("Q");
    rig.define("DLQ");
    for content in contents {
        rig.put_persistent("Q", content);
    }
    rig
}

/// The consumer settles the next message that it gets.
fn refuse_one(rig: &mut Rig, consumer: ConsumerId, outcome: Outcome) -> String {
    rig.core.set_credit(consumer, 1, false);
    let got = rig.dispatch();
    assert_eq!((got.len(), got[0].consumer), (1, consumer));
    let text = rig.text(&got[0]);
    rig.settle(&got[0], outcome);
    text
}

#[test]
fn what_is_undeliverable_here_goes_to_others_uncounted_and_never_to_the_same_consumer() {
    let mut rig = rig_with(&["a", "b"]);
    let first = rig.consumer("Q", 0);
    assert_eq!(refuse_one(&mut rig, first, NOT_HERE), "a");
    rig.core.set_credit(first, 10, false);
    assert_eq!(rig.delivered(), ["b"], "the next one, and not this one again");
    let second = rig.consumer("Q", 10);
    let got = rig.dispatch();
    assert_eq!((got.len(), got[0].consumer, got[0].backout_count), (1, second, 0));
    rig.settle(&got[0], Outcome::Released);
    rig.close(second, false);
    assert!(rig.delivered().is_empty(), "it stays where it is when no other consumer is left");
    assert_eq!((rig.depth("Q"), rig.depth("DLQ")), (2, 0));
    rig.close(first, false);
    rig.consumer("Q", 10);
    assert_eq!(rig.delivered(), ["a", "b"], "another link of the same program may have it");
    rig.core.audit();
}

#[test]
fn what_failed_and_is_undeliverable_here_is_counted_and_leaves_at_its_threshold() {
    let mut rig = rig_with(&[]);
    let changes = LocalChanges { backout_threshold: Some(2), ..LocalChanges::default() };
    rig.alter("Q", &changes);
    rig.put_persistent("Q", "a");
    let first = rig.consumer("Q", 0);
    refuse_one(&mut rig, first, FAILED_HERE);
    let second = rig.consumer("Q", 0);
    refuse_one(&mut rig, second, FAILED_HERE);
    assert_eq!((rig.depth("Q"), rig.depth("DLQ")), (0, 1));
    rig.core.audit();
}

#[test]
fn a_message_that_no_dead_letter_queue_takes_does_not_go_round_at_its_consumer() {
    let mut rig = rig_with(&["a", "b"]);
    rig.alter("DLQ", &LocalChanges { put_enabled: Some(false), ..LocalChanges::default() });
    let first = rig.consumer("Q", 0);
    assert_eq!(refuse_one(&mut rig, first, Outcome::Rejected), "a");
    assert_eq!(refuse_one(&mut rig, first, Outcome::Rejected), "b");
    rig.core.set_credit(first, 10, false);
    assert!(rig.delivered().is_empty(), "no hot loop");
    rig.put_persistent("Q", "c");
    assert_eq!(rig.delivered(), ["c"], "it goes on with others");
    let second = rig.consumer("Q", 10);
    let got = rig.dispatch();
    let counts: Vec<_> = got.iter().map(|got| (got.consumer, got.backout_count)).collect();
    assert_eq!(counts, [(second, 1), (second, 1)], "none is lost, and each was counted");
}

#[test]
fn a_refusal_in_a_unit_counts_when_it_commits_and_not_when_it_is_rolled_back() {
    for (fail, again) in [(false, 0), (true, 1)] {
        let mut rig = rig_with(&["a"]);
        let consumer = rig.consumer("Q", 1);
        let got = rig.dispatch();
        let unit = rig.declare();
        rig.settle_in(&got[0], NOT_HERE, Some(unit)).unwrap();
        rig.discharge(unit, fail).unwrap();
        rig.core.set_credit(consumer, 1, false);
        assert_eq!(rig.delivered().len(), again);
        rig.core.audit();
    }
}

#[test]
fn consumers_with_a_selector_or_a_drain_refuse_like_others() {
    let mut rig = rig_with(&["ax", "ay", "b"]);
    let filter = first_byte(b'a', None);
    let selective = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    assert_eq!(refuse_one(&mut rig, selective, NOT_HERE), "ax");
    rig.core.set_credit(selective, 10, false);
    assert_eq!(rig.delivered(), ["ay"]);
    let plain = rig.consumer("Q", 0);
    assert_eq!(refuse_one(&mut rig, plain, NOT_HERE), "ax");
    rig.core.set_credit(plain, 10, true);
    assert_eq!(rig.delivered(), ["b"]);
    let drained =
        |effect: &Effect| matches!(effect, Effect::Drained { consumer, .. } if *consumer == plain);
    assert!(rig.effects.iter().any(drained), "what it refused is nothing for it");
    rig.core.audit();
}

#[test]
fn so_many_refusals_are_remembered_and_no_more() {
    let mut rig = rig_with(&[]);
    let target = rig.open_put("Q").unwrap();
    let count = limits::REFUSED_PER_CONSUMER_MAX + 1;
    for _ in 0..count {
        rig.send(&target, persistent("x"), None).unwrap();
    }
    let consumer = rig.consumer("Q", u32::try_from(count).unwrap());
    let got = rig.dispatch();
    for delivery in &got {
        rig.settle(delivery, NOT_HERE);
    }
    rig.core.set_credit(consumer, 10, false);
    let again = rig.dispatch();
    assert_eq!(again.len(), 1, "the one that was refused first");
    assert_eq!(again[0].sequence, got[0].sequence);
}

#[test]
fn consumers_of_one_connection_share_what_is_remembered() {
    const CONSUMERS: usize = limits::REFUSED_PER_CONNECTION_MAX / 500;
    let mut rig = rig_with(&[]);
    let target = rig.open_put("Q").unwrap();
    for _ in 0..501 {
        rig.send(&target, persistent("x"), None).unwrap();
    }
    let consumers: Vec<_> = (0..CONSUMERS).map(|_| rig.consumer("Q", 0)).collect();
    rig.core.set_credit(consumers[0], 501, false);
    let got = rig.dispatch();
    got.iter().for_each(|delivery| rig.settle(delivery, NOT_HERE));
    rig.core.set_credit(consumers[0], 10, false);
    let again = rig.dispatch();
    assert_eq!(again.len(), 1, "the one that was refused first");
    assert_eq!(again[0].sequence, got[0].sequence);
}
