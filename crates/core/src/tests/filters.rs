//! Filters: scans, keys, and content that must be fetched.

use super::rig::{Rig, first_byte, message, spec};
use crate::{ConsumerId, ConsumerMode, ConsumerSpec, Effect, FilterKey, NewMessage, Outcome};

fn filtered(rig: &mut Rig, byte: u8, key: Option<FilterKey>, credit: u32) -> ConsumerId {
    let spec = ConsumerSpec { filter: first_byte(byte, key), ..spec("Q") };
    let id = rig.open_get(&spec).unwrap();
    rig.core.set_credit(id, credit, false);
    id
}

fn keyed(content: &str, correlation_hash: u64) -> NewMessage {
    NewMessage { correlation_hash, ..message(content) }
}

#[test]
fn a_filter_takes_what_matches_and_leaves_the_rest() {
    let mut rig = Rig::new();
    rig.define("Q");
    for content in ["x1", "y1", "x2"] {
        rig.put("Q", content);
    }
    filtered(&mut rig, b'y', None, 10);
    assert_eq!(rig.delivered(), ["y1"]);
    rig.put("Q", "y2");
    rig.put("Q", "x3");
    assert_eq!(rig.delivered(), ["y2"]);
    rig.consumer("Q", 10);
    assert_eq!(rig.delivered(), ["x1", "x2", "x3"]);
    rig.core.audit();
}

#[test]
fn a_scan_does_not_look_twice_at_what_did_not_match() {
    let mut rig = Rig::new();
    rig.define("Q");
    for _ in 0..100 {
        rig.put("Q", "x");
    }
    filtered(&mut rig, b'y', None, 10);
    rig.dispatch();
    rig.cold.asked = 0;
    rig.put("Q", "y");
    assert_eq!(rig.delivered(), ["y"]);
    assert_eq!(rig.cold.asked, 1);
}

#[test]
fn a_scan_sees_messages_that_come_back_behind_its_cursor() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put("Q", "y1");
    rig.put("Q", "x1");
    rig.consumer("Q", 1);
    let held = rig.dispatch();
    filtered(&mut rig, b'y', None, 10);
    rig.put("Q", "x2");
    assert!(rig.delivered().is_empty());
    rig.close(held[0].consumer, false);
    assert_eq!(rig.delivered(), ["y1"]);
    rig.core.audit();
}

#[test]
fn plain_and_filtered_consumers_share_a_queue() {
    let mut rig = Rig::new();
    rig.define("Q");
    let looking = filtered(&mut rig, b'x', None, 10);
    let plain = rig.consumer("Q", 10);
    for _ in 0..4 {
        rig.put("Q", "x");
    }
    let order: Vec<_> = rig.dispatch().iter().map(|delivery| delivery.consumer).collect();
    assert_eq!(order, [looking, plain, looking, plain]);
}

#[test]
fn a_key_is_found_without_looking_at_other_messages() {
    let mut rig = Rig::new();
    rig.define("Q");
    for number in 1..1_000 {
        rig.put_with("Q", keyed("a", number)).unwrap();
    }
    let key = Some(FilterKey::Correlation(500));
    let consumer = filtered(&mut rig, b'a', key, 10);
    let got = rig.dispatch();
    assert_eq!((got.len(), rig.cold.asked), (1, 1));
    rig.settle(&got[0], Outcome::Accepted);
    rig.put_with("Q", keyed("a", 501)).unwrap();
    assert!(rig.delivered().is_empty());
    rig.put_with("Q", keyed("a", 500)).unwrap();
    assert_eq!((rig.dispatch().len(), rig.cold.asked), (1, 2));
    rig.close(consumer, false);
    assert_eq!(rig.status("Q").available, 1_000);
    rig.core.audit();
}

#[test]
fn a_key_is_confirmed_by_the_whole_filter() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_with("Q", keyed("b", 7)).unwrap();
    rig.put_with("Q", keyed("a", 7)).unwrap();
    filtered(&mut rig, b'a', Some(FilterKey::Correlation(7)), 10);
    assert_eq!(rig.delivered(), ["a"]);
    rig.cold.asked = 0;
    rig.put_with("Q", keyed("a", 7)).unwrap();
    assert_eq!((rig.delivered().len(), rig.cold.asked), (1, 1), "the other one is not asked again");
    rig.core.audit();
}

#[test]
fn a_key_consumer_sees_messages_that_come_back() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_with("Q", NewMessage { message_id_hash: 9, ..message("a") }).unwrap();
    let holder = rig.consumer("Q", 1);
    rig.dispatch();
    filtered(&mut rig, b'a', Some(FilterKey::MessageId(9)), 1);
    assert!(rig.delivered().is_empty());
    rig.close(holder, true);
    let got = rig.dispatch();
    assert_eq!(got[0].backout_count, 1);
    rig.core.audit();
}

#[test]
fn a_browser_may_ask_for_a_key() {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.put_with("Q", keyed("a1", 7)).unwrap();
    rig.put_with("Q", keyed("a2", 8)).unwrap();
    let filter = first_byte(b'a', Some(FilterKey::Correlation(8)));
    let spec = ConsumerSpec { mode: ConsumerMode::Browse, filter, ..spec("Q") };
    let id = rig.open_get(&spec).unwrap();
    rig.core.set_credit(id, 10, true);
    assert_eq!(rig.delivered(), ["a2"]);
    assert_eq!(rig.status("Q").available, 2);
}

#[test]
fn a_scan_waits_for_content_and_asks_for_it_once_and_ahead() {
    let mut rig = Rig::new();
    rig.define("Q");
    for content in ["x", "x", "y"] {
        rig.put_persistent("Q", content);
    }
    rig.consumer("Q", 0);
    let got = {
        let id = rig.open_get(&ConsumerSpec { mode: ConsumerMode::Browse, ..spec("Q") }).unwrap();
        rig.core.set_credit(id, 9, false);
        rig.dispatch()
    };
    rig.cold.sequences.extend(got.iter().map(|delivery| delivery.sequence.0));
    let first = filtered(&mut rig, b'y', None, 0);
    rig.core.set_credit(first, 1, true);
    filtered(&mut rig, b'y', None, 1);
    assert!(rig.delivered().is_empty());
    let fetches: Vec<_> = rig
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Fetch { queue, sequence, .. } => Some((*queue, *sequence)),
            _ => None,
        })
        .collect();
    assert_eq!(fetches.len(), 3, "each once, for both consumers, ahead of need");
    assert_eq!(rig.effects.len(), 3, "not drained while content is on its way");
    rig.cold.sequences.clear();
    for (queue, sequence) in fetches {
        rig.core.content_arrived(queue, sequence);
    }
    let got = rig.dispatch();
    assert_eq!((got.len(), got[0].consumer), (1, first));
    rig.core.audit();
}

#[test]
fn filters_of_one_queue_do_not_disturb_each_other() {
    let mut rig = Rig::new();
    rig.define("Q");
    let xs = filtered(&mut rig, b'x', None, 100);
    let ys = filtered(&mut rig, b'y', None, 100);
    for number in 0..50 {
        rig.put("Q", if number % 2 == 0 { "x" } else { "y" });
    }
    let got = rig.dispatch();
    assert_eq!(got.len(), 50);
    for delivery in got {
        let wanted = if delivery.consumer == xs { "x" } else { "y" };
        assert!(rig.text(&delivery) == wanted && [xs, ys].contains(&delivery.consumer));
    }
}
