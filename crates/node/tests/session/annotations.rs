//! Message annotations of `modified` (AMQP 3.4.4): merged into those of the message for its next
//! delivery.

use towline_amqp::codec::{Map, Value};
use towline_amqp::types::{DeliveryState, Outcome, TxnId, condition};
use towline_types::limits;

use crate::rig::{Got, Rig};
use crate::text::message;

fn annotated(name: &str, value: &str, failed: bool) -> DeliveryState {
    let annotations = Map::default().with(name, Value::String(value));
    DeliveryState::Modified {
        delivery_failed: failed,
        undeliverable_here: false,
        annotations: Some(Box::new(annotations)),
    }
}

#[test]
fn annotations_of_modified_are_merged_into_the_next_delivery_and_follow_to_the_dead_letter_queue() {
    let mut rig = Rig::new();
    rig.define("DLQ");
    rig.mqsc("DEFINE QLOCAL(Q) BOTHRESH(2) BOQNAME(DLQ)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    let receiver = rig.receiver(&mut client, "Q");
    for (round, name) in ["x-opt-a", "x-opt-b"].into_iter().enumerate() {
        rig.credit(&mut client, receiver, 1);
        let got = rig.received_whole(&mut client);
        assert_eq!(got[0].annotation("x-opt-a").is_some(), round == 1);
        let state = annotated(name, &format!("said {round}"), true);
        rig.settle(&mut client, got[0].delivery, state);
    }
    let dead = rig.receiver(&mut client, "DLQ");
    rig.credit(&mut client, dead, 1);
    let got = rig.received_whole(&mut client);
    assert_eq!(got[0].annotation("x-opt-a").as_deref(), Some("said 0"));
    assert_eq!(got[0].annotation("x-opt-b").as_deref(), Some("said 1"));
    assert_eq!(got[0].body(), "one");
}

#[test]
fn annotations_in_a_unit_of_work_count_when_it_commits() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one"));
    for fail in [true, false] {
        let unit = rig.declare(&mut client);
        rig.credit(&mut client, receiver, 1);
        let got = rig.received_whole(&mut client);
        assert_eq!(got[0].annotation("x-opt-a"), None, "the first unit was rolled back");
        let state = annotated_in(&unit, "kept");
        rig.settle(&mut client, got[0].delivery, state);
        rig.discharge(&mut client, &unit, fail);
    }
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    assert_eq!(got[0].annotation("x-opt-a").as_deref(), Some("kept"));
}

fn annotated_in(unit: &TxnId, value: &str) -> DeliveryState {
    let annotations = Some(Box::new(Map::default().with("x-opt-a", Value::String(value))));
    let outcome =
        Outcome::Modified { delivery_failed: false, undeliverable_here: false, annotations };
    DeliveryState::Transactional { txn_id: *unit, outcome: Some(outcome) }
}

#[test]
fn annotations_in_units_of_work_count_and_a_unit_with_too_many_does_not_commit() {
    let long = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX - 32);
    let most = limits::CONNECTION_STAGED_BYTES_MAX / long.len() as u64;
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    (0..most).for_each(|key| rig.send_ahead(&mut client, sender, key, message("text")));
    rig.exchange(&mut client);
    let receiver = rig.receiver(&mut client, "Q");
    let units = [rig.declare(&mut client), rig.declare(&mut client)];
    rig.credit(&mut client, receiver, 1_000_000);
    let got = rig.received_whole(&mut client);
    assert_eq!(got.len() as u64, most);
    // Most of them in the first unit, and one too many in the second.
    for (number, got) in got.iter().enumerate() {
        let unit = &units[usize::from(number as u64 > most * 3 / 4)];
        rig.settle(&mut client, got.delivery, annotated_in(unit, &long));
        assert!(client.account().units <= 2 * limits::CONNECTION_STAGED_BYTES_MAX);
    }
    assert!(client.account().units > limits::CONNECTION_STAGED_BYTES_MAX);
    let [first, second] = units.map(|unit| rig.discharge(&mut client, &unit, false));
    assert_eq!(first, Some(DeliveryState::Accepted));
    assert!(matches!(second, Some(DeliveryState::Rejected { .. })), "{second:?}");
    assert_eq!(client.account().units, 0);
}

fn refused_with_a_detach(state: DeliveryState) {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one"));
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    rig.settle(&mut client, got[0].delivery, state);
    let why = rig.detached(&mut client, receiver).expect("a detach");
    assert_eq!(why, condition::RESOURCE_LIMIT_EXCEEDED.to_string());
    let again = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, again, 1);
    assert_eq!(rig.received(&mut client), [Got::text("one")], "the message is there");
}

#[test]
fn annotations_that_are_too_long_detach_the_link_and_say_so() {
    let long = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX);
    refused_with_a_detach(annotated("x-opt-a", &long, false));
}

#[test]
fn annotations_that_are_too_many_detach_the_link_and_say_so() {
    let names = (0..=limits::MODIFIED_ANNOTATIONS_MAX).map(|number| format!("n{number}"));
    let map = names.fold(Map::default(), |map, name| map.with(&name, Value::Null));
    refused_with_a_detach(DeliveryState::Modified {
        delivery_failed: false,
        undeliverable_here: false,
        annotations: Some(Box::new(map)),
    });
}
