//! Units of work as a client sees them when things go wrong: what it settled is never half in a
//! unit, what it did not settle stays with it, and what is not known is refused.

use std::time::Duration;

use towline_amqp::LinkId;
use towline_amqp::codec::{Map, Value};
use towline_amqp::types::{DeliveryState, Outcome, Symbol, TxnId, condition};
use towline_node::Input;
use towline_types::{Lsn, limits};

use crate::rig::{Client, Got, Received, Rig};
use crate::text::message;

/// A queue with one persistent message, which a receiver has.
fn with_one_got() -> (Rig, Client, LinkId, Received) {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client).remove(0);
    (rig, client, receiver, got)
}

/// What another client finds on the queue, with its delivery counts.
fn left(rig: &mut Rig) -> Vec<(String, u32)> {
    let mut other = rig.connect();
    let receiver = rig.receiver(&mut other, "Q");
    rig.credit(&mut other, receiver, 10);
    let got = rig.received_whole(&mut other);
    rig.detach(&mut other, receiver);
    got.iter().map(|got| (got.body(), got.delivery_count())).collect()
}

fn one(count: u32) -> Vec<(String, u32)> {
    vec![("one".to_owned(), count)]
}

#[track_caller]
fn rejected_with(answer: Option<DeliveryState>, wanted: &Symbol) {
    match answer {
        Some(DeliveryState::Rejected { error: Some(error) }) => {
            assert_eq!(error.condition, *wanted, "{error:?}");
        }
        other => panic!("expected a rejection, got {other:?}"),
    }
}

// 4.4.2, 4.4.4: the controller hears at the discharge that the unit is gone, and what it retired in
// it is the queue's again.
#[test]
fn what_is_settled_in_a_unit_that_was_given_up_for_its_age_comes_back() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.wait(Duration::from_secs(400));
    rig.accept_in(&mut client, got.delivery, &unit, true);
    assert_eq!(rig.detached(&mut client, receiver), None, "it hears at the discharge");
    assert_eq!(left(&mut rig), [], "not before the client knows");
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_TIMEOUT);
    rig.credit(&mut client, receiver, 1);
    let again = rig.received_whole(&mut client);
    assert_eq!((again[0].body().as_str(), again[0].delivery_count()), ("one", 1));
}

// What is refused has something to log then: a message that goes to the backout queue.
#[test]
fn what_is_settled_in_a_unit_that_was_given_up_goes_back_at_once_when_it_is_too_much() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    rig.define("BACK");
    rig.mqsc("ALTER QLOCAL(Q) BOTHRESH(1) BOQNAME(BACK)");
    let unit = rig.declare(&mut client);
    rig.wait(Duration::from_secs(400));
    rig.accept_in(&mut client, got.delivery, &unit, true);
    let sender = rig.sender(&mut client, "Q");
    for key in 0..limits::LATE_GETS_MAX as u64 {
        rig.send_ahead(&mut client, sender, key + 2, message("more").durable());
    }
    rig.exchange(&mut client);
    rig.credit(&mut client, receiver, 10_000);
    for got in rig.received_whole(&mut client) {
        rig.accept_in(&mut client, got.delivery, &unit, true);
    }
    let back = rig.receiver(&mut client, "BACK");
    rig.credit(&mut client, back, 2);
    assert_eq!(rig.received(&mut client), [Got::text("more")], "the last one");
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_TIMEOUT);
}

#[test]
fn no_other_unit_is_ended_for_the_log_while_the_bodies_of_the_last_one_are_given_up() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let body = "x".repeat(2_000);
    for number in 0..2 {
        let unit = rig.declare(&mut client);
        for put in 0..1_100 {
            let delivery = number * 1_100 + put;
            rig.send_in(&mut client, sender, delivery, message(&body).durable(), &unit);
        }
    }
    assert!(rig.units_status().log_bytes > 4_000_000, "both are there, in several blocks");
    let open_after = |rig: &mut Rig, input: Input<'_>| {
        rig.instance.step(rig.now, input, &rig.log, &mut rig.out);
        rig.units_status().open
    };
    assert_eq!(open_after(&mut rig, Input::LogPressed(85)), 1);
    let durable = Lsn(rig.log.durable.get());
    assert_eq!(open_after(&mut rig, Input::Durable(durable)), 1);
    assert!(rig.instance.gives_log_back());
    assert_eq!(open_after(&mut rig, Input::LogPressed(85)), 1, "what that gives is not known yet");
    rig.slices();
    assert!(!rig.instance.gives_log_back());
    assert_eq!(open_after(&mut rig, Input::LogPressed(85)), 0);
}

#[test]
fn what_is_settled_in_a_unit_that_was_given_up_for_the_log_comes_back() {
    let (mut rig, mut client, _, got) = with_one_got();
    rig.define("OTHER");
    let sender = rig.sender(&mut client, "OTHER");
    let unit = rig.declare(&mut client);
    let large = message(&"x".repeat(1_100_000)).durable();
    rig.send_in(&mut client, sender, 2, large, &unit);
    assert!(!rig.press_log(85));
    rig.accept_in(&mut client, got.delivery, &unit, true);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(1));
}

#[test]
fn what_is_settled_beyond_maxumsgs_comes_back() {
    let (mut rig, mut client, _, got) = with_one_got();
    rig.mqsc("ALTER QMGR MAXUMSGS(1)");
    rig.define("OTHER");
    let sender = rig.sender(&mut client, "OTHER");
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, sender, 2, message("x").durable(), &unit);
    rig.accept_in(&mut client, got.delivery, &unit, true);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(1));
}

// 4.4.2, 4.5: amqp:transaction:unknown-id, and never in silence.
#[test]
fn an_outcome_in_a_unit_that_never_was_or_is_over_detaches_its_link() {
    for settled in [true, false] {
        let (mut rig, mut client, receiver, got) = with_one_got();
        rig.accept_in(&mut client, got.delivery, &TxnId::from_number(77), settled);
        let unknown = Some(condition::TRANSACTION_UNKNOWN_ID.to_string());
        assert_eq!(rig.detached(&mut client, receiver), unknown);
        assert_eq!(left(&mut rig), one(0), "others can have it at once");

        let (mut rig, mut client, receiver, got) = with_one_got();
        let unit = rig.declare(&mut client);
        assert_eq!(rig.discharge(&mut client, &unit, false), Some(DeliveryState::Accepted));
        rig.accept_in(&mut client, got.delivery, &unit, settled);
        assert_eq!(rig.detached(&mut client, receiver), unknown);
        assert_eq!(left(&mut rig), one(0));
    }
}

#[test]
fn what_is_wrong_with_an_outcome_ends_no_link_that_came_behind_it() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    let unit = rig.declare(&mut client);
    let link = rig.change_link_behind_its_unit(&mut client, (receiver, got.delivery), &unit);
    assert_eq!(rig.detached(&mut client, link), None);
    assert_eq!(left(&mut rig), one(0), "others can have it");
}

// 4.4.1: refused outside of any unit, with the transaction's error.
#[test]
fn a_message_in_a_unit_that_never_was_or_is_over_is_rejected() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let over = rig.declare(&mut client);
    rig.discharge(&mut client, &over, true);
    for (key, unit) in [(1, over), (2, TxnId::from_number(77))] {
        rig.send_in(&mut client, sender, key, message("lost").durable(), &unit);
        let answer = rig.outcomes(&mut client).pop().unwrap();
        assert_eq!(answer.0, key);
        rejected_with(answer.1, &condition::TRANSACTION_UNKNOWN_ID);
    }
    assert_eq!(left(&mut rig), []);
}

// 4.4.2, 2.6.5: a commit never says accepted of an outcome that it does not hold.
#[test]
fn a_unit_does_not_commit_without_an_outcome_for_a_link_that_was_detached() {
    let (mut rig, mut client, receiver, _) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.suspend(&mut client, receiver);
    rig.accept_number_in(&mut client, 0, &unit);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(0));
}

#[test]
fn a_unit_does_not_commit_without_an_outcome_for_a_delivery_that_is_not_open() {
    let (mut rig, mut client, _, got) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.settle(&mut client, got.delivery, DeliveryState::Released);
    rig.accept_number_in(&mut client, 0, &unit);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(0), "released before");
    let unit = rig.declare(&mut client);
    rig.accept_number_in(&mut client, 50, &unit);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    let unit = rig.declare(&mut client);
    rig.accept_number_in(&mut client, 50, &unit);
    assert_eq!(rig.discharge(&mut client, &unit, true), Some(DeliveryState::Accepted));
}

// 4.4: the link ends at the first message; what came with it is not taken any more.
#[test]
fn a_unit_does_not_commit_without_a_message_behind_one_that_ended_their_link() {
    let (mut rig, mut client, ..) = with_one_got();
    let named = rig.sender(&mut client, "Q");
    let anonymous = rig.anonymous_sender(&mut client);
    for link in [named, anonymous] {
        let unit = rig.declare(&mut client);
        rig.send_behind_a_malformed_one(&mut client, link, &unit);
        assert!(Rig::ending(&client, link).is_some());
        rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    }
}

#[test]
fn a_unit_does_not_commit_without_an_outcome_that_ended_its_session() {
    let (mut rig, mut client, ..) = with_one_got();
    rig.another_session(&mut client);
    let unit = rig.declare(&mut client);
    rig.accept_backwards_in(&mut client, &unit);
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(0));
}

// 4.4.2: annotations that are too long detach the link, and the outcome is in no unit.
#[test]
fn a_unit_does_not_commit_without_an_outcome_that_could_not_be_taken() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    let unit = rig.declare(&mut client);
    let long = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX);
    let outcome = Outcome::Modified {
        delivery_failed: false,
        undeliverable_here: false,
        annotations: Some(Box::new(Map::default().with("x-long", Value::String(&long)))),
    };
    let state = DeliveryState::Transactional { txn_id: unit, outcome: Some(outcome) };
    rig.settle(&mut client, got.delivery, state);
    assert!(Rig::ending(&client, receiver).is_some());
    rejected_with(rig.discharge(&mut client, &unit, false), &condition::TRANSACTION_ROLLBACK);
    assert_eq!(left(&mut rig), one(0));
}

#[test]
fn an_outcome_in_a_unit_stays_in_it_when_its_link_closes() {
    for fail in [false, true] {
        let (mut rig, mut client, receiver, got) = with_one_got();
        let unit = rig.declare(&mut client);
        rig.accept_in(&mut client, got.delivery, &unit, false);
        rig.detach(&mut client, receiver);
        assert_eq!(left(&mut rig), []);
        assert_eq!(rig.discharge(&mut client, &unit, fail), Some(DeliveryState::Accepted));
        assert_eq!(left(&mut rig), if fail { one(1) } else { Vec::new() });
    }
}

// 4.4.2: a delivery that was not settled is acquired by its link and open, as before.
#[test]
fn a_delivery_that_is_not_settled_survives_the_rollback_at_its_link() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.accept_in(&mut client, got.delivery, &unit, false);
    assert_eq!(rig.discharge(&mut client, &unit, true), Some(DeliveryState::Accepted));
    assert_eq!(left(&mut rig), [], "no other consumer has it");
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), [], "and it is not delivered twice");
    let unit = rig.declare(&mut client);
    rig.accept_in(&mut client, got.delivery, &unit, false);
    assert_eq!(rig.discharge(&mut client, &unit, false), Some(DeliveryState::Accepted));
    rig.detach(&mut client, receiver);
    assert_eq!(left(&mut rig), [], "got in the second unit");
}

#[test]
fn a_delivery_that_survived_a_rollback_may_be_given_back_and_counts_then() {
    let (mut rig, mut client, _, got) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.accept_in(&mut client, got.delivery, &unit, false);
    assert_eq!(rig.discharge(&mut client, &unit, true), Some(DeliveryState::Accepted));
    rig.settle(&mut client, got.delivery, DeliveryState::Released);
    assert_eq!(left(&mut rig), one(1));
}

#[test]
fn a_delivery_that_is_settled_while_its_unit_is_open_goes_back_with_a_rollback() {
    let (mut rig, mut client, _, got) = with_one_got();
    let unit = rig.declare(&mut client);
    rig.accept_in(&mut client, got.delivery, &unit, false);
    rig.settle(&mut client, got.delivery, DeliveryState::Accepted);
    assert_eq!(left(&mut rig), [], "the unit has it");
    assert_eq!(rig.discharge(&mut client, &unit, true), Some(DeliveryState::Accepted));
    assert_eq!(left(&mut rig), one(1));
}

// 4.3: by a rejection, or a detach where the source does not know that.
#[test]
fn a_discharge_that_fails_is_answered_as_the_source_of_its_link_understands_it() {
    let mut rig = Rig::new();
    let mut client = rig.connect();
    let unknown = TxnId::from_number(77);
    let both = ["amqp:accepted:list", "amqp:rejected:list"];
    for known in [&both[..], &[]] {
        let (link, answer) = rig.discharge_knowing(&mut client, &unknown, known);
        rejected_with(answer, &condition::TRANSACTION_UNKNOWN_ID);
        assert_eq!(rig.detached(&mut client, link), None);
    }
    let (link, answer) = rig.discharge_knowing(&mut client, &unknown, &both[..1]);
    assert_eq!(answer, None);
    let why = rig.detached(&mut client, link);
    assert_eq!(why, Some(condition::TRANSACTION_UNKNOWN_ID.to_string()));
}

// 3.4.4: undeliverable-here is about this link; delivery-failed alone counts.
#[test]
fn what_is_undeliverable_here_goes_to_another_link_uncounted() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    rig.mqsc("DEFINE QLOCAL('DLQ')");
    rig.mqsc("ALTER QMGR DEADQ('DLQ')");
    let state = DeliveryState::Modified {
        delivery_failed: false,
        undeliverable_here: true,
        annotations: None,
    };
    rig.settle(&mut client, got.delivery, state);
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), []);
    assert_eq!(left(&mut rig), one(0));
}

#[test]
fn what_is_rejected_and_no_queue_takes_is_not_sent_to_the_same_link_again() {
    let (mut rig, mut client, receiver, got) = with_one_got();
    rig.settle(&mut client, got.delivery, DeliveryState::Rejected { error: None });
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), []);
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 2, message("two"));
    assert_eq!(rig.received(&mut client), [Got::text("two")]);
    assert_eq!(left(&mut rig), one(1));
}
