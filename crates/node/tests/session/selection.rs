//! Selectors and keys find a message however long it is, and wherever the sections end that they
//! look at: a body beyond `BODY_CHUNK_BYTES` is kept in chunks.

use towline_amqp::types::DeliveryState;
use towline_types::limits::{
    BODY_CHUNK_BYTES, SELECTOR_ONE_WALK_BYTES_MAX, SELECTOR_WALK_BYTES_MAX,
};

use crate::rig::{Client, Rig};
use crate::text::{Text, message};

const SELECTORS: [&str; 4] = [
    "color = 'red'",
    "JMSCorrelationID = 'ID:c'",
    "JMSMessageID = 'ID:m' AND color = 'red'",
    "JMSMessageID = 'ID:m'",
];

fn red(body: &str) -> Text {
    message(body).durable().property("color", "red").ids("ID:c", "ID:m")
}

/// Of which a queue keeps so many bytes.
fn long(content_bytes: usize) -> Text {
    let sample = "x".repeat(1_000);
    let around = red(&sample).content_bytes() - sample.len();
    let text = red(&"x".repeat(content_bytes - around));
    assert_eq!(text.content_bytes(), content_bytes);
    text
}

/// A message with its body so many bytes behind the start of what a queue keeps. The property that
/// is asked for is the last one.
fn late(front_bytes: usize) -> Text {
    let filled = |bytes: usize| {
        message("late")
            .durable()
            .property("filler", &"x".repeat(bytes))
            .property("color", "red")
            .ids("ID:c", "ID:m")
    };
    let around = filled(1_000).front_bytes() - 1_000;
    let text = filled(front_bytes - around);
    assert_eq!(text.front_bytes(), front_bytes);
    text
}

fn finds(rig: &mut Rig, client: &mut Client, when: &str) {
    for selector in SELECTORS {
        let browser = rig.selecting_browser(client, "Q", selector);
        rig.credit(client, browser, 5);
        assert_eq!(rig.received_whole(client).len(), 1, "{when}, browsed with {selector}");
        rig.detach(client, browser);
        let consumer = rig.selecting_receiver(client, "Q", selector);
        rig.credit(client, consumer, 5);
        assert_eq!(rig.received_whole(client).len(), 1, "{when}, got with {selector}");
        // Closed in order: the message goes back uncounted.
        rig.detach(client, consumer);
    }
    let other = rig.selecting_receiver(client, "Q", "color = 'blue'");
    rig.credit(client, other, 5);
    assert_eq!(rig.received_whole(client).len(), 0, "{when}");
    rig.detach(client, other);
}

fn found_in_memory_and_on_disk(text: Text, what: &str) {
    let mut rig = Rig::new();
    rig.define("Q");
    rig.mqsc("ALTER QLOCAL('Q') MAXMSGL(8000000)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, text);
    rig.outcomes(&mut client);
    finds(&mut rig, &mut client, &format!("{what}, in memory"));
    rig.forget_contents();
    finds(&mut rig, &mut client, &format!("{what}, read"));
    let mut rig = rig.restart();
    rig.forget_contents();
    let mut client = rig.connect();
    finds(&mut rig, &mut client, &format!("{what}, after a restart"));
}

#[test]
fn a_message_of_about_one_chunk_is_found_by_selector_and_by_key() {
    for bytes in [BODY_CHUNK_BYTES - 1, BODY_CHUNK_BYTES, BODY_CHUNK_BYTES + 1] {
        found_in_memory_and_on_disk(long(bytes), &format!("{bytes} bytes"));
    }
}

#[test]
fn a_message_of_several_chunks_is_found_by_selector_and_by_key() {
    let bytes = 3 * BODY_CHUNK_BYTES + 7;
    found_in_memory_and_on_disk(long(bytes), &format!("{bytes} bytes"));
}

#[test]
fn a_message_whose_properties_end_at_the_end_of_a_chunk_is_found() {
    // The body's descriptor is whole, cut, or wholly in the next chunk.
    for bytes in BODY_CHUNK_BYTES - 3..=BODY_CHUNK_BYTES + 1 {
        found_in_memory_and_on_disk(late(bytes), &format!("{bytes} bytes before the body"));
    }
}

#[test]
fn a_message_whose_properties_fill_several_chunks_is_found() {
    let bytes = 3 * BODY_CHUNK_BYTES + 7;
    found_in_memory_and_on_disk(late(bytes), &format!("{bytes} bytes before the body"));
}

#[test]
fn a_dead_letter_is_found_by_the_properties_that_its_consumer_will_see() {
    let mut rig = Rig::new();
    rig.define("DLQ");
    rig.mqsc("DEFINE QLOCAL(Q) BOTHRESH(1) BOQNAME(DLQ)");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    // Its own property of that name is hidden by that of the dead letter.
    rig.send(&mut client, sender, 1, red("one").property("DeadLetterQueue", "ITS.OWN"));
    rig.outcomes(&mut client);
    let consumer = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, consumer, 1);
    let got = rig.received_whole(&mut client);
    let state = DeliveryState::Modified {
        delivery_failed: true,
        undeliverable_here: false,
        annotations: None,
    };
    rig.settle(&mut client, got[0].delivery, state);
    for round in ["live", "after a restart"] {
        for (selector, count) in [
            ("DeadLetterQueue = 'Q'", 1),
            ("DeadLetterReason = 'backout-threshold' AND color = 'red'", 1),
            ("DeadLetterTime > 0", 1),
            ("DeadLetterQueue = 'ITS.OWN'", 0),
            ("DeadLetterReason = 'rejected'", 0),
        ] {
            let browser = rig.selecting_browser(&mut client, "DLQ", selector);
            rig.credit(&mut client, browser, 5);
            assert_eq!(rig.received_whole(&mut client).len(), count, "{selector}, {round}");
            rig.detach(&mut client, browser);
        }
        rig = rig.restart();
        rig.forget_contents();
        client = rig.connect();
    }
    // One that is no dead letter has no property of that kind but its own.
    let sender = rig.sender(&mut client, "Q");
    rig.send(&mut client, sender, 1, message("two").property("DeadLetterQueue", "ITS.OWN"));
    rig.outcomes(&mut client);
    let own = rig.selecting_receiver(&mut client, "Q", "DeadLetterQueue = 'ITS.OWN'");
    rig.credit(&mut client, own, 1);
    assert_eq!(rig.received_whole(&mut client).len(), 1);
}

// What one message may cost while all other clients wait is bounded.
#[test]
fn a_selector_walks_through_so_many_bytes_of_one_message_and_no_more() {
    let red = "color = 'red'";
    let nulls = |conditions: usize| format!("{red}{}", " AND x IS NULL".repeat(conditions));
    let likes = |patterns: usize| format!("{red}{}", " AND filler LIKE '%x%'".repeat(patterns));
    let masked = |patterns: usize| format!("{red}{}", " AND filler LIKE '%x_x%'".repeat(patterns));
    let most = SELECTOR_WALK_BYTES_MAX;
    let one_walk = SELECTOR_ONE_WALK_BYTES_MAX;
    for (front, selector, found) in [
        (1_000_000, nulls(0), 1),
        (1_000_000, nulls(1), 1),
        (1_000_000, nulls(2), 0),
        (one_walk, nulls(280), 1),
        (one_walk + 1, nulls(280), 0),
        (65_000, nulls(280), 1),
        (65_000, likes(most / 65_000), 1),
        (65_000, likes(most / 64_000 + 1), 0),
        (65_000, masked(most / 65_000 / 4), 1),
        (65_000, masked(most / 64_000 / 4 + 1), 0),
        (1_000, likes(180), 1),
    ] {
        let mut rig = Rig::new();
        rig.define("Q");
        let mut client = rig.connect();
        let sender = rig.sender(&mut client, "Q");
        rig.send(&mut client, sender, 1, late(front));
        let browser = rig.selecting_browser(&mut client, "Q", &selector);
        rig.credit(&mut client, browser, 5);
        assert_eq!(rig.received_whole(&mut client).len(), found, "{front}: {selector}");
    }
}

// The one walk finds what a walk for each property does.
#[test]
fn properties_that_are_found_in_one_walk_are_those_that_are_found_one_by_one() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for (key, bytes) in [1_100, 60_000].into_iter().enumerate() {
        rig.send(&mut client, sender, key as u64, late(bytes));
    }
    let long = " AND x IS NULL".repeat(200);
    for (condition, found) in [
        ("color = 'red' AND filler LIKE 'x%x'", 2),
        ("color = 'blue'", 0),
        ("colour IS NULL AND color IS NOT NULL", 2),
        ("JMSCorrelationID = 'ID:c' AND color <> 'blue'", 2),
    ] {
        let browser = rig.selecting_browser(&mut client, "Q", &format!("{condition}{long}"));
        rig.credit(&mut client, browser, 5);
        assert_eq!(rig.received_whole(&mut client).len(), found, "{condition}");
        rig.detach(&mut client, browser);
    }
}

// Others wait for one step only.
#[test]
fn a_step_ends_early_when_properties_are_long() {
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for key in 0..40 {
        rig.send(&mut client, sender, key, late(60_000));
    }
    let selector = format!("color = 'blue'{}", " OR filler LIKE '%y%'".repeat(100));
    let receiver = rig.selecting_receiver(&mut client, "Q", &selector);
    assert!(rig.one_step(&mut client, receiver), "there is more to do");
    let slices = rig.slices();
    assert!((10..=40).contains(&slices), "{slices} slices for 40 messages");
}
