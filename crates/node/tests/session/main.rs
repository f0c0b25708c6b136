//! Client and instance face to face, without sockets, disks or clocks: a client's AMQP machine, the
//! front, the instance, and a log that is durable when the test says so.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod account;
mod administering;
mod annotations;
mod any_frames;
mod arriving;
mod asking;
mod full;
mod histories;
mod holdings;
mod late_answers;
mod log;
mod parts;
mod pieces;
mod producer_credit;
mod restarting;
mod rig;
mod selection;
mod steps;
mod supply;
mod text;
mod two_regions;
mod units;
mod waiting;
mod window;

use rig::{Got, Rig};
use text::message;
use towline_amqp::types::{DeliveryState, Outcome, condition};

#[test]
fn a_persistent_put_is_accepted_only_when_the_log_is_durable() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.hold_log();
    rig.send(&mut client, sender, 1, message("one").durable());
    assert_eq!(rig.outcomes(&mut client), []);
    rig.release_log(&mut [&mut client]);
    assert_eq!(rig.outcomes(&mut client), [(1, Some(DeliveryState::Accepted))]);
}

#[test]
fn a_message_is_not_visible_before_it_is_durable() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 10);
    rig.hold_log();
    rig.send(&mut client, sender, 1, message("one").durable());
    assert_eq!(rig.received(&mut client), []);
    rig.release_log(&mut [&mut client]);
    assert_eq!(rig.received(&mut client), [Got::text("one")]);
}

#[test]
fn order_is_kept_when_a_non_persistent_put_follows_an_undurable_one() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 10);
    rig.hold_log();
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.send(&mut client, sender, 2, message("two"));
    assert_eq!(rig.received(&mut client), []);
    rig.release_log(&mut [&mut client]);
    assert_eq!(rig.received(&mut client), [Got::text("one"), Got::text("two")]);
}

#[test]
fn an_accepted_message_does_not_come_back_and_a_released_one_does_uncounted() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.send(&mut client, sender, 2, message("two").durable());
    rig.credit(&mut client, receiver, 2);
    let got = rig.received_whole(&mut client);
    assert_eq!(got.len(), 2);
    rig.settle(&mut client, got[0].delivery, DeliveryState::Accepted);
    rig.settle(&mut client, got[1].delivery, DeliveryState::Released);
    rig.credit(&mut client, receiver, 5);
    let again = rig.received_whole(&mut client);
    assert_eq!(again.iter().map(|got| got.body()).collect::<Vec<_>>(), ["two"]);
    assert_eq!(again[0].delivery_count(), 0);
    let acquirers = [got[0].first_acquirer(), again[0].first_acquirer()];
    assert_eq!(acquirers, [Some(true), Some(false)], "no other link had it, one had it (3.2.1)");
}

#[test]
fn a_failed_delivery_is_counted() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    let failed = DeliveryState::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        annotations: None,
    };
    rig.settle(&mut client, got[0].delivery, failed);
    rig.credit(&mut client, receiver, 1);
    assert_eq!(rig.received_whole(&mut client)[0].delivery_count(), 1);
}

#[test]
fn a_unit_of_work_is_visible_at_commit_all_at_once() {
    let mut rig = Rig::new();
    rig.define("A");
    rig.define("B");
    let mut client = rig.connect();
    let to_a = rig.sender(&mut client, "A");
    let to_b = rig.sender(&mut client, "B");
    let from_a = rig.receiver(&mut client, "A");
    let from_b = rig.receiver(&mut client, "B");
    rig.credit(&mut client, from_a, 5);
    rig.credit(&mut client, from_b, 5);
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, to_a, 1, message("a").durable(), &unit);
    rig.send_in(&mut client, to_b, 2, message("b").durable(), &unit);
    assert_eq!(rig.received(&mut client), []);
    assert_eq!(rig.discharge(&mut client, &unit, false), Some(DeliveryState::Accepted));
    let mut got = rig.received(&mut client);
    got.sort();
    assert_eq!(got, [Got::text("a"), Got::text("b")]);
}

#[test]
fn a_rolled_back_unit_puts_nothing_and_gives_back_what_it_got() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    let unit = rig.declare(&mut client);
    let state = DeliveryState::Transactional { txn_id: unit, outcome: Some(Outcome::Accepted) };
    rig.settle(&mut client, got[0].delivery, state);
    rig.send_in(&mut client, sender, 2, message("two").durable(), &unit);
    assert_eq!(rig.discharge(&mut client, &unit, true), Some(DeliveryState::Accepted));
    rig.credit(&mut client, receiver, 5);
    let again = rig.received_whole(&mut client);
    assert_eq!(again.iter().map(|got| got.body()).collect::<Vec<_>>(), ["one"]);
    assert_eq!(again[0].delivery_count(), 1);
}

#[test]
fn a_unit_with_a_refused_message_cannot_commit() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.mqsc("ALTER QLOCAL('Q') MAXMSGL(20)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    rig.mqsc("ALTER QLOCAL('Q') PUT(DISABLED)");
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, sender, 1, message("x").durable(), &unit);
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    assert_eq!(rig.received(&mut client), []);
}

#[test]
fn an_unknown_queue_refuses_the_link_and_the_connection_lives() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let condition = rig.refused_sender(&mut client, "NO.SUCH.QUEUE");
    assert_eq!(condition, "amqp:not-found");
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    assert_eq!(rig.outcomes(&mut client), [(1, Some(DeliveryState::Accepted))]);
}

#[test]
fn a_selector_chooses_among_messages() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for (key, color) in [(1, "red"), (2, "blue"), (3, "red")] {
        rig.send(&mut client, sender, key, message(color).durable().property("color", color));
    }
    let receiver = rig.selecting_receiver(&mut client, "Q", "color = 'red'");
    rig.credit(&mut client, receiver, 10);
    assert_eq!(rig.received(&mut client), [Got::text("red"), Got::text("red")]);
}

#[test]
fn a_bad_selector_refuses_the_link() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let condition = rig.refused_selecting_receiver(&mut client, "Q", "color = = 1");
    assert_eq!(condition, "amqp:invalid-field");
}

#[test]
fn a_drain_on_an_empty_queue_is_answered() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    assert!(rig.drain(&mut client, receiver, 10));
}

#[test]
fn what_a_lost_connection_held_goes_to_others_and_is_counted() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut first = rig.connect();
    let sender = rig.sender(&mut first, "Q");
    let receiver = rig.receiver(&mut first, "Q");
    rig.send(&mut first, sender, 1, message("one").durable());
    rig.credit(&mut first, receiver, 1);
    assert_eq!(rig.received(&mut first).len(), 1);
    rig.lose(first);
    let mut second = rig.connect();
    let receiver = rig.receiver(&mut second, "Q");
    rig.credit(&mut second, receiver, 1);
    let again = rig.received_whole(&mut second);
    assert_eq!((again[0].body().as_str(), again[0].delivery_count()), ("one", 1));
}

#[test]
fn the_credit_of_a_delivery_whose_message_vanished_serves_another_message() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    for (key, body) in [(1, "gone"), (2, "gone too"), (3, "three"), (4, "four"), (5, "five")] {
        rig.send(&mut client, sender, key, message(body).durable());
    }
    rig.vanishing = 2;
    rig.credit(&mut client, receiver, 1);
    assert_eq!(rig.received(&mut client), [Got::text("three")], "one credit, one message");
    rig.credit(&mut client, receiver, 2);
    assert_eq!(rig.received(&mut client), [Got::text("four"), Got::text("five")]);
}

#[test]
fn a_drain_uses_up_the_credit_of_a_delivery_whose_message_vanished() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("gone").durable());
    rig.vanishing = 1;
    assert!(rig.drain(&mut client, receiver, 2));
    rig.send(&mut client, sender, 2, message("later").durable());
    assert_eq!(rig.received(&mut client), [], "nothing is sent beyond a drain");
    rig.credit(&mut client, receiver, 1);
    assert_eq!(rig.received(&mut client), [Got::text("later")]);
}

#[test]
fn a_message_keeps_its_format_over_a_restart_and_selectors_see_its_properties() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let batch = message("batch").durable().format(0x8001_3701).property("color", "red");
    rig.send(&mut client, sender, 1, batch);
    rig.send(&mut client, sender, 2, message("plain").durable().property("color", "red"));
    let mut rig = rig.restart();
    let mut client = rig.connect();
    let receiver = rig.selecting_receiver(&mut client, "Q", "color = 'red'");
    rig.credit(&mut client, receiver, 5);
    let got = rig.received_whole(&mut client);
    let got: Vec<_> = got.iter().map(|got| (got.message_format, got.body())).collect();
    assert_eq!(got, [(0x8001_3701, "batch".to_owned()), (0, "plain".to_owned())]);
}

#[test]
fn a_dynamic_queue_has_an_address_and_goes_with_its_link() {
    let mut rig = Rig::new();
    rig.mqsc("DEFINE QMODEL('SYSTEM.DEFAULT.MODEL.QUEUE') DEFTYPE(TEMPDYN)");
    let mut client = rig.connect();
    let (receiver, address) = rig.dynamic_receiver(&mut client);
    let sender = rig.sender(&mut client, &address);
    rig.credit(&mut client, receiver, 1);
    rig.send(&mut client, sender, 1, message("reply"));
    assert_eq!(rig.received(&mut client), [Got::text("reply")]);
    rig.detach(&mut client, sender);
    rig.detach(&mut client, receiver);
    assert_eq!(rig.refused_sender(&mut client, &address), "amqp:not-found");
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_nothing_else() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("kept").durable());
    rig.send(&mut client, sender, 2, message("not persistent"));
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, sender, 3, message("not committed").durable(), &unit);
    rig.hold_log();
    rig.send(&mut client, sender, 4, message("not durable").durable());
    let mut rig = rig.restart();
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 10);
    assert_eq!(rig.received(&mut client), [Got::text("kept")]);
}

#[test]
fn credit_sent_behind_an_attach_without_waiting_counts() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.pipelined_receiver(&mut client, "Q", 5);
    assert_eq!(rig.received(&mut client), [Got::text("one")]);
}

#[test]
fn a_full_log_refuses_puts_and_keeps_gets_until_there_is_free_space() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    rig.outcomes(&mut client);
    rig.fill_log(true);
    rig.settle(&mut client, got[0].delivery, DeliveryState::Accepted);
    rig.send(&mut client, sender, 2, message("two").durable());
    let outcomes = rig.outcomes(&mut client);
    assert!(matches!(outcomes[..], [(2, Some(DeliveryState::Rejected { .. }))]), "{outcomes:?}");
    rig.fill_log(false);
    rig.send(&mut client, sender, 3, message("three").durable());
    assert_eq!(rig.outcomes(&mut client), [(3, Some(DeliveryState::Accepted))]);
    let mut rig = rig.restart();
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 10);
    assert_eq!(rig.received(&mut client), [Got::text("three")]);
}

#[test]
fn nobody_dooms_the_unit_of_another_connection() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.define("CLOSED");
    let mut first = rig.connect();
    let mut second = rig.connect();
    let sender = rig.sender(&mut first, "Q");
    let other = rig.sender(&mut second, "CLOSED");
    rig.mqsc("ALTER QLOCAL('CLOSED') PUT(DISABLED)");
    let unit = rig.declare(&mut first);
    rig.send_in(&mut first, sender, 1, message("kept").durable(), &unit);
    rig.send_in(&mut second, other, 1, message("refused").durable(), &unit);
    assert_eq!(rig.discharge(&mut first, &unit, false), Some(DeliveryState::Accepted));
}

#[test]
fn a_unit_cannot_commit_without_a_message_that_was_malformed() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    let unit = rig.declare(&mut client);
    rig.send_in(&mut client, sender, 1, message("whole").durable(), &unit);
    rig.send_malformed_in(&mut client, sender, 2, &unit);
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    assert_eq!(rig.received(&mut client), []);
}

#[test]
fn a_commit_refused_for_a_full_log_is_a_rollback() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let receiver = rig.receiver(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("one").durable());
    rig.credit(&mut client, receiver, 1);
    let got = rig.received_whole(&mut client);
    let unit = rig.declare(&mut client);
    let state = DeliveryState::Transactional { txn_id: unit, outcome: Some(Outcome::Accepted) };
    rig.settle(&mut client, got[0].delivery, state);
    rig.send_in(&mut client, sender, 2, message("two").durable(), &unit);
    rig.fill_log(true);
    let outcome = rig.discharge(&mut client, &unit, false);
    assert!(matches!(outcome, Some(DeliveryState::Rejected { .. })), "{outcome:?}");
    rig.fill_log(false);
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client), [Got::text("one")]);
}

#[test]
fn a_unit_in_a_nearly_full_log_is_rolled_back_and_its_client_learns_why() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    let [first, second] = [rig.declare(&mut client), rig.declare(&mut client)];
    let large = "x".repeat(1_100_000);
    rig.send_in(&mut client, sender, 1, message(&large).durable(), &first);
    rig.send_in(&mut client, sender, 2, message(&large).durable(), &second);
    let status = rig.units_status();
    assert!(status.open == 2 && status.log_bytes > 2_200_000 && status.memory_bytes == 0);
    assert!(rig.press_log(81), "the second one is still there");
    let outcome = rig.discharge(&mut client, &first, false);
    let Some(DeliveryState::Rejected { error: Some(error) }) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(error.condition, condition::TRANSACTION_ROLLBACK);
    let why = error.description.unwrap_or_default();
    assert!(why.contains("81 % full"), "{why}");
    assert_eq!(rig.discharge(&mut client, &second, false), Some(DeliveryState::Accepted));
    assert!(!rig.press_log(81), "no unit is left to go");
    let status = rig.units_status();
    assert_eq!((status.open, status.log_bytes, status.ended_for_log), (0, 0, 1));
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 5);
    assert_eq!(rig.received(&mut client).len(), 1, "the one that was committed");
}
