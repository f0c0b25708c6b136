//! Outcomes, backouts, and where poison messages go.

use super::rig::{Rig, persistent};
use crate::command::LocalChanges;
use crate::{DeadLetterReason, Durability, Limits, Outcome, Settlement};

const FAILED: Outcome = Outcome::Modified { failed: true, undeliverable_here: false };

fn with_dead_letter_queue() -> Rig {
    let dead_letter_queue = "DLQ".to_owned();
    let mut rig = Rig::with(Limits { dead_letter_queue, ..Limits::default() });
    rig.define("DLQ");
    rig
}

fn threshold(count: u32, queue: &str) -> LocalChanges {
    LocalChanges {
        backout_threshold: Some(count),
        backout_queue: Some(queue.to_owned()),
        ..LocalChanges::default()
    }
}

#[test]
fn an_accepted_message_stays_hidden_until_its_get_is_durable() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    let consumer = rig.consumer("Q", 5);
    let got = rig.dispatch();
    rig.instant = false;
    rig.settle(&got[0], Outcome::Accepted);
    assert_eq!(rig.last_durability, Durability::Lazy);
    rig.close(consumer, true);
    rig.consumer("Q", 5);
    assert!(rig.delivered().is_empty());
    assert_eq!(rig.depth("Q"), 1);
    rig.sync();
    assert_eq!((rig.depth("Q"), rig.stored.len()), (0, 0));
    rig.core.audit();
}

#[test]
fn a_settlement_that_a_client_waits_for_is_forced() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.consumer("Q", 5);
    let got = rig.dispatch();
    let settlement = Settlement {
        consumer: got[0].consumer,
        sequence: got[0].sequence,
        outcome: Outcome::Accepted,
        unit: None,
        settled: false,
        reply_wanted: true,
    };
    rig.core.settle(rig.now, settlement, &mut rig.decision).unwrap();
    assert_eq!(rig.decision.durability, Durability::Forced);
    rig.carry_out();
    rig.core.settle(rig.now, settlement, &mut rig.decision).unwrap();
    assert!(rig.decision.facts.is_empty(), "settling twice does nothing");
}

#[test]
fn released_is_not_counted_and_modified_is() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    let consumer = rig.consumer("Q", 1);
    for (outcome, count) in
        [(Outcome::Released, 0), (FAILED, 1), (Outcome::Released, 1), (FAILED, 2)]
    {
        let got = rig.dispatch();
        rig.settle(&got[0], outcome);
        rig.core.set_credit(consumer, 1, false);
        let again = rig.dispatch();
        assert_eq!(again[0].backout_count, count);
        rig.settle(&again[0], Outcome::Released);
        rig.core.set_credit(consumer, 1, false);
    }
    rig.core.audit();
}

#[test]
fn at_the_backout_threshold_a_message_moves_to_the_backout_queue() {
    let mut rig = with_dead_letter_queue();
    rig.define("BACKOUT");
    rig.define_with("Q", threshold(2, "BACKOUT")).unwrap();
    rig.put_persistent("Q", "p");
    rig.put("Q", "m");
    rig.consumer("Q", 10);
    for _ in 0..2 {
        for delivery in rig.dispatch() {
            rig.settle(&delivery, FAILED);
        }
    }
    assert_eq!((rig.depth("Q"), rig.depth("DLQ")), (0, 0));
    let check = |rig: &mut Rig, contents: &[&str]| {
        rig.consumer("BACKOUT", 10);
        let got = rig.dispatch();
        let mut texts: Vec<String> = got.iter().map(|delivery| rig.text(delivery)).collect();
        texts.sort();
        assert_eq!(texts, contents);
        for delivery in got {
            let dead_letter = delivery.dead_letter.unwrap();
            assert_eq!(dead_letter.reason, DeadLetterReason::BackoutThreshold);
            assert_eq!((dead_letter.origin.as_str(), delivery.backout_count), ("Q", 2));
        }
        rig.core.audit();
    };
    let mut again = rig.restart(None, rig.log.len());
    check(&mut rig, &["m", "p"]);
    check(&mut again, &["p"]);
    assert_eq!(rig.status("Q").totals.moved, 2);
}

#[test]
fn without_a_usable_backout_queue_the_dead_letter_queue_takes_it() {
    let mut rig = with_dead_letter_queue();
    rig.define_with("FULL", LocalChanges { depth_max: Some(0), ..LocalChanges::default() })
        .unwrap();
    let inhibited = LocalChanges { put_enabled: Some(false), ..LocalChanges::default() };
    rig.define_with("SHUT", inhibited).unwrap();
    for (name, backout_queue) in
        [("Q1", "MISSING"), ("Q2", "FULL"), ("Q3", "SHUT"), ("Q4", ""), ("Q5", "Q5")]
    {
        rig.define_with(name, threshold(1, backout_queue)).unwrap();
        rig.put_persistent(name, name);
        rig.consumer(name, 1);
        let got = rig.dispatch();
        rig.settle(&got[0], FAILED);
    }
    assert_eq!(rig.browse("DLQ"), ["Q1", "Q2", "Q3", "Q4", "Q5"]);
    rig.core.audit();
}

#[test]
fn a_poison_message_that_fits_nowhere_stays_and_is_delivered_on() {
    let mut rig = Rig::new();
    rig.define_with("Q", threshold(1, "")).unwrap();
    rig.put_persistent("Q", "a");
    rig.consumer("Q", 10);
    for count in 0..3 {
        let got = rig.dispatch();
        assert_eq!(got[0].backout_count, count);
        rig.settle(&got[0], FAILED);
    }
    rig.core.audit();
}

#[test]
fn a_rejected_message_is_dead_lettered_at_once() {
    let mut rig = with_dead_letter_queue();
    rig.define("Q");
    rig.consumer("Q", 10);
    rig.put_persistent("Q", "a");
    let got = rig.dispatch();
    rig.settle(&got[0], Outcome::Rejected);
    rig.consumer("DLQ", 10);
    let reasons: Vec<_> =
        rig.dispatch().into_iter().map(|got| got.dead_letter.unwrap().reason).collect();
    assert_eq!(reasons, [DeadLetterReason::Rejected]);
    assert_eq!(rig.depth("Q"), 0);
    rig.core.audit();
}

#[test]
fn rejected_without_a_dead_letter_queue_is_a_backout() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.consumer("Q", 2);
    let got = rig.dispatch();
    rig.settle(&got[0], Outcome::Rejected);
    rig.consumer("Q", 2);
    assert_eq!(rig.dispatch()[0].backout_count, 1);
}

#[test]
fn a_move_reserves_a_place_and_keeps_the_body_where_it_is() {
    let mut rig = with_dead_letter_queue();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    let stored = rig.stored.clone();
    rig.instant = false;
    rig.settle(&got[0], Outcome::Rejected);
    assert_eq!((rig.depth("DLQ"), rig.depth("Q")), (1, 1));
    rig.core.audit();
    rig.sync();
    assert_eq!((rig.depth("DLQ"), rig.depth("Q")), (1, 0));
    assert_eq!(rig.stored, stored);
    rig.consumer("DLQ", 1);
    assert_eq!(rig.delivered(), ["a"]);
}

#[test]
fn a_message_longer_than_the_target_allows_is_not_moved_there() {
    let mut rig = with_dead_letter_queue();
    rig.alter("DLQ", &LocalChanges { message_bytes_max: Some(1), ..LocalChanges::default() });
    rig.define("Q");
    rig.put_with("Q", persistent("ab")).unwrap();
    rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.settle(&got[0], Outcome::Rejected);
    assert_eq!((rig.depth("DLQ"), rig.depth("Q")), (0, 1));
}
