//! How long one step may take, and what a step of the wall clock does to a time to live.

use crate::rig::Rig;
use crate::text::message;

#[test]
fn a_selector_that_looks_for_long_lets_other_clients_in_between() {
    const MESSAGES: u64 = 20_000;
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for key in 0..MESSAGES {
        rig.send_ahead(&mut client, sender, key, message("blue"));
    }
    let wanted = message("red").property("color", "red");
    rig.send(&mut client, sender, MESSAGES, wanted);
    let mut other = rig.connect();
    let link = rig.selecting_receiver(&mut other, "Q", "color = 'red'");
    assert!(rig.one_step(&mut other, link), "all of a deep queue in one step");
    assert!((20..30).contains(&rig.slices()), "the rest follows, a thousand looks at a time");
    rig.exchange(&mut other);
    let got = rig.received_whole(&mut other);
    assert_eq!(got.iter().map(|got| got.body()).collect::<Vec<_>>(), ["red"]);
}

#[test]
fn a_time_to_live_is_the_same_for_the_client_whatever_the_wall_clock_shows() {
    const HOUR: i64 = 3_600;
    let mut rig = Rig::new();
    rig.define("Q");
    let mut client = rig.connect();
    let (sender, receiver) = (rig.sender(&mut client, "Q"), rig.receiver(&mut client, "Q"));
    client.set_ahead(HOUR);
    rig.send(&mut client, sender, 1, message("a").ttl(10_000));
    rig.send(&mut client, sender, 2, message("b").ttl(10_000));
    for (ahead, left) in [(HOUR, 10_000), (HOUR + 4, 6_000)] {
        client.set_ahead(ahead);
        rig.credit(&mut client, receiver, 1);
        let got = rig.received_whole(&mut client);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].ttl_ms(), Some(left), "{ahead} s ahead of the other clock");
    }
}
