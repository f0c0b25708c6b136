//! Delivery: order, credit, turns, browsing, exclusive use.

use std::collections::BTreeMap;

use towline_types::limits::LOOKS_PER_STEP;

use super::rig::{CLIENT, OTHER, Rig, first_byte, message, spec};
use crate::command::LocalChanges;
use crate::{ConsumerMode, ConsumerSpec, Effect, NewMessage, Outcome, Refusal};

fn browser(name: &str) -> ConsumerSpec {
    ConsumerSpec { mode: ConsumerMode::Browse, ..spec(name) }
}

#[test]
fn a_consumer_gets_as_many_messages_as_it_has_credit() {
    let mut rig = Rig::new();
    rig.define("Q");
    for content in ["a", "b", "c"] {
        rig.put("Q", content);
    }
    let consumer = rig.consumer("Q", 2);
    assert_eq!(rig.delivered(), ["a", "b"]);
    assert!(rig.delivered().is_empty());
    rig.core.set_credit(consumer, 5, false);
    assert_eq!(rig.delivered(), ["c"]);
    rig.put("Q", "d");
    assert_eq!(rig.delivered(), ["d"]);
    rig.core.audit();
}

#[test]
fn consumers_take_turns() {
    let mut rig = Rig::new();
    rig.define("Q");
    let first = rig.consumer("Q", 10);
    let second = rig.consumer("Q", 10);
    for content in ["a", "b", "c", "d"] {
        rig.put("Q", content);
    }
    let order: Vec<_> = rig.dispatch().iter().map(|delivery| delivery.consumer).collect();
    assert_eq!(order, [first, second, first, second]);
    rig.core.set_credit(first, 0, false);
    rig.put("Q", "e");
    assert_eq!(rig.dispatch()[0].consumer, second);
}

#[test]
fn a_connection_with_many_consumers_gets_no_more_than_one_with_a_single_one() {
    for filter in [None, first_byte(b'x', None)] {
        let mut rig = Rig::new();
        rig.define("Q");
        let wanted = ConsumerSpec { filter, ..spec("Q") };
        let mut consumers = Vec::new();
        for number in 0..=100 {
            let connection = if number < 100 { CLIENT } else { OTHER };
            let opened = rig.core.open_get(rig.now, connection, &wanted, &mut rig.decision);
            let (id, _) = opened.unwrap();
            rig.core.set_credit(id, 1_000, false);
            consumers.push(id);
        }
        let lone = consumers[100];
        rig.dispatch();
        for _ in 0..200 {
            rig.put("Q", "x");
        }
        let got = rig.dispatch();
        assert_eq!(got.len(), 200);
        assert_eq!(got.iter().filter(|delivery| delivery.consumer == lone).count(), 100);
        let mut each: BTreeMap<_, u32> = BTreeMap::new();
        for delivery in got.iter().filter(|delivery| delivery.consumer != lone) {
            *each.entry(delivery.consumer).or_default() += 1;
        }
        assert_eq!(each.into_values().collect::<Vec<_>>(), [1; 100], "and they have turns");
        rig.core.audit();
    }
}

#[test]
fn an_orderly_close_gives_messages_back_to_their_places_uncounted() {
    let mut rig = Rig::new();
    rig.define("Q");
    for content in ["a", "b", "c"] {
        rig.put_persistent("Q", content);
    }
    let consumer = rig.consumer("Q", 2);
    rig.dispatch();
    rig.close(consumer, false);
    rig.consumer("Q", 9);
    let got = rig.dispatch();
    assert_eq!(got.iter().map(|delivery| rig.text(delivery)).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(got.iter().all(|delivery| delivery.backout_count == 0));
    rig.core.audit();
}

#[test]
fn a_lost_consumer_counts_a_backout_that_survives_a_restart() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    rig.put_persistent("Q", "b");
    rig.consumer("Q", 1);
    rig.dispatch();
    rig.disconnect(CLIENT, true);
    let mut again = rig.restart(None, rig.log.len());
    for rig in [&mut rig, &mut again] {
        rig.consumer("Q", 2);
        let counts: Vec<u32> = rig.dispatch().iter().map(|got| got.backout_count).collect();
        assert_eq!(counts, [1, 0]);
        assert_eq!(rig.status("Q").totals.backouts, 1);
        rig.core.audit();
    }
}

#[test]
fn a_backout_that_becomes_durable_late_takes_no_later_one_back() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_persistent("Q", "a");
    let consumer = rig.consumer("Q", 0);
    rig.instant = false;
    let failed = Outcome::Modified { failed: true, undeliverable_here: false };
    let mut counts = Vec::new();
    for round in 0..4 {
        rig.core.set_credit(consumer, 1, false);
        let got = rig.dispatch().remove(0);
        counts.push(got.backout_count);
        rig.settle(&got, failed);
        // The first backout is durable when the third is decided.
        if round == 1 {
            rig.sync_one();
        }
    }
    assert_eq!(counts, [0, 1, 2, 3]);
    rig.sync();
    let mut again = rig.restart(None, rig.log.len());
    again.consumer("Q", 1);
    assert_eq!(again.dispatch()[0].backout_count, 4);
    rig.core.audit();
}

#[test]
fn a_drained_consumer_is_notified_when_there_is_nothing_more() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    let consumer = rig.consumer("Q", 0);
    rig.core.set_credit(consumer, 10, true);
    assert_eq!(rig.delivered(), ["a"]);
    let drained = |effect: &Effect| match effect {
        Effect::Drained { consumer: found, .. } => *found == consumer,
        _ => false,
    };
    assert!(rig.effects.iter().any(drained));
    rig.effects.clear();
    rig.put("Q", "b");
    assert!(rig.delivered().is_empty(), "its credit is gone");
    rig.core.set_credit(consumer, 1, true);
    assert_eq!(rig.delivered(), ["b"]);
    assert!(rig.effects.iter().any(drained), "also when all credit was used");
    rig.core.audit();
}

#[test]
fn what_is_delivered_is_held_until_it_is_got_whether_it_is_persistent_or_not() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    rig.put_persistent("Q", "b");
    let consumer = rig.consumer("Q", 10);
    rig.instant = false;
    let deliveries = rig.dispatch();
    assert_eq!(deliveries.len(), 2);
    assert_eq!(rig.depth("Q"), 2, "both are held");
    rig.settle(&deliveries[0], Outcome::Accepted);
    assert_eq!(rig.depth("Q"), 1, "nothing has to be durable for this one");
    assert_eq!(rig.restart(None, rig.log.len()).browse("Q"), ["b"]);
    rig.settle(&deliveries[1], Outcome::Accepted);
    assert_eq!(rig.depth("Q"), 1, "it goes with its fact");
    rig.sync();
    assert_eq!((rig.depth("Q"), rig.core.memory_bytes()), (0, 0));
    assert!(rig.stored.is_empty());
    assert_eq!(rig.status("Q").totals.gets, 2);
    rig.close(consumer, false);
    let mut again = rig.restart(None, rig.log.len());
    assert!(again.browse("Q").is_empty());
    rig.core.audit();
}

#[test]
fn browsers_see_everything_once_and_later_arrivals_too_and_take_nothing() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    rig.put_with("Q", NewMessage { priority: Some(9), ..message("b") }).unwrap();
    let id = rig.open_get(&browser("Q")).unwrap();
    rig.core.set_credit(id, 100, false);
    assert_eq!(rig.delivered(), ["b", "a"]);
    rig.put("Q", "c");
    assert_eq!(rig.delivered(), ["c"]);
    assert_eq!(rig.status("Q").available, 3);
    rig.close(id, true);
    rig.core.audit();
}

#[test]
fn browsers_do_not_see_what_others_hold() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    rig.put("Q", "b");
    rig.consumer("Q", 1);
    rig.dispatch();
    assert_eq!(rig.browse("Q"), ["b"]);
}

#[test]
fn exclusive_input_is_for_one_consumer() {
    let mut rig = Rig::new();
    rig.define("Q");
    let exclusive = ConsumerSpec { exclusive: Some(true), ..spec("Q") };
    let first = rig.open_get(&exclusive).unwrap();
    let in_use = Refusal::QueueInUse("Q".to_owned());
    assert_eq!(rig.open_get(&spec("Q")).unwrap_err(), in_use);
    rig.open_get(&browser("Q")).unwrap();
    rig.close(first, false);
    rig.open_get(&spec("Q")).unwrap();
    assert_eq!(rig.open_get(&exclusive).unwrap_err(), in_use);
    rig.core.audit();
}

#[test]
fn noshare_makes_every_input_exclusive_and_defsopt_decides_when_not_said() {
    let mut rig = Rig::new();
    rig.define_with("N", LocalChanges { shareable: Some(false), ..LocalChanges::default() })
        .unwrap();
    let shared = ConsumerSpec { exclusive: Some(false), ..spec("N") };
    rig.open_get(&shared).unwrap();
    assert!(matches!(rig.open_get(&shared), Err(Refusal::QueueInUse(_))));
    rig.define_with("D", LocalChanges { default_shared: Some(false), ..LocalChanges::default() })
        .unwrap();
    let said = ConsumerSpec { exclusive: Some(false), ..spec("D") };
    rig.open_get(&said).unwrap();
    rig.open_get(&said).unwrap();
    assert!(matches!(rig.open_get(&spec("D")), Err(Refusal::QueueInUse(_))));
}

#[test]
fn get_disabled_sends_consumers_away_but_lets_them_settle() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    rig.put("Q", "b");
    let consumer = rig.consumer("Q", 1);
    let got = rig.dispatch();
    rig.alter("Q", &LocalChanges { get_enabled: Some(false), ..LocalChanges::default() });
    rig.dispatch();
    let closed = |effect: &Effect| match effect {
        Effect::ConsumerClosed { consumer: found, reason: Refusal::GetInhibited(_), .. } => {
            *found == consumer
        }
        _ => false,
    };
    assert!(rig.effects.iter().any(closed));
    rig.core.set_credit(consumer, 5, false);
    assert!(rig.delivered().is_empty());
    assert!(matches!(rig.open_get(&spec("Q")), Err(Refusal::GetInhibited(_))));
    rig.settle(&got[0], Outcome::Accepted);
    rig.close(consumer, false);
    rig.alter("Q", &LocalChanges { get_enabled: Some(true), ..LocalChanges::default() });
    assert_eq!(rig.browse("Q"), ["b"]);
    rig.core.audit();
}

#[test]
fn a_message_that_comes_back_goes_before_younger_ones_however_deep() {
    let mut rig = Rig::new();
    rig.define("Q");
    for number in 0..2_000 {
        rig.put("Q", &number.to_string());
    }
    let consumer = rig.consumer("Q", 700);
    let got = rig.dispatch();
    for delivery in &got[10..] {
        rig.settle(delivery, Outcome::Accepted);
    }
    rig.settle(&got[3], Outcome::Released);
    rig.core.set_credit(consumer, 2, false);
    assert_eq!(rig.delivered(), ["3", "700"]);
    rig.core.audit();
}

#[test]
fn a_bounded_dispatch_says_that_there_is_more() {
    let mut rig = Rig::new();
    rig.define("Q");
    for _ in 0..20_000 {
        rig.put("Q", "x");
    }
    rig.dispatch();
    let filter = first_byte(b'y', None);
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, 1, true);
    let more = rig.core.dispatch(rig.now, &mut rig.cold, &mut rig.outputs);
    assert!(more && rig.core.next_tick() == towline_types::Time::ZERO);
    rig.take_outputs();
    assert!(rig.effects.is_empty(), "not drained before all was looked at");
    rig.put("Q", "y");
    assert_eq!(rig.delivered(), ["y"]);
    rig.core.audit();
}

#[test]
fn a_look_at_long_properties_counts_as_many() {
    let mut rig = Rig::new();
    rig.define("Q");
    for _ in 0..100 {
        rig.put("Q", "x");
    }
    rig.cold.further_looks = LOOKS_PER_STEP / 2;
    let filter = first_byte(b'y', None);
    let id = rig.open_get(&ConsumerSpec { filter, ..spec("Q") }).unwrap();
    rig.core.set_credit(id, 1, true);
    assert!(rig.core.dispatch(rig.now, &mut rig.cold, &mut rig.outputs));
    assert_eq!(rig.cold.asked, 2, "in one step");
    rig.cold.further_looks = u32::MAX;
    assert!(rig.slice(1));
    assert_eq!(rig.cold.asked, 3, "one for each slice at least");
    rig.cold.further_looks = 0;
    assert!(!rig.slice(200));
    assert_eq!(rig.cold.asked, 100);
}

#[test]
fn consumers_of_several_connections_end_with_theirs() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "a");
    let (other, _) = rig.core.open_get(rig.now, OTHER, &spec("Q"), &mut rig.decision).unwrap();
    rig.consumer("Q", 0);
    rig.disconnect(CLIENT, false);
    rig.core.set_credit(other, 1, false);
    assert_eq!(rig.delivered(), ["a"]);
    assert_eq!(rig.core.connections().len(), 1);
    rig.core.audit();
}

#[test]
fn the_first_acquirer_is_the_first_consumer_that_a_message_is_sent_to() {
    let mut rig = Rig::new();
    rig.define("Q");
    for content in ["a", "b", "c"] {
        rig.put_persistent("Q", content);
    }
    let first =
        |got: &[crate::Delivery]| got.iter().map(|it| it.first_acquirer).collect::<Vec<_>>();
    let look = rig.open_get(&browser("Q")).unwrap();
    rig.core.set_credit(look, 9, false);
    assert_eq!(first(&rig.dispatch()), [true, true, true], "to look is not to acquire");
    rig.close(look, false);
    rig.consumer("Q", 2);
    let got = rig.dispatch();
    assert_eq!(first(&got), [true, true]);
    rig.settle(&got[0], Outcome::Released);
    rig.settle(&got[1], Outcome::Modified { failed: true, undeliverable_here: false });
    rig.consumer("Q", 9);
    assert_eq!(first(&rig.dispatch()), [false, false, true], "uncounted or counted");

    // What happened before a restart is not known.
    let mut again = rig.restart(None, rig.log.len());
    again.put_persistent("Q", "d");
    again.consumer("Q", 9);
    assert_eq!(first(&again.dispatch()), [false, false, false, true]);
}
