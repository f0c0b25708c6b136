//! What one connection may make the instance hold: beyond it messages stay in their queue, and
//! links are refused.

use towline_amqp::types::{DeliveryState, TxnId, condition};
use towline_types::limits;

use super::rig::{Client, Rig};
use super::text::message;

const BYTES_MAX: u64 = 1024 * 1024;
const UNSETTLED_MAX: u64 = BYTES_MAX / limits::UNSETTLED_DELIVERY_BYTES;
/// What the instance may have dispatched before it was stopped.
const AHEAD: u64 = limits::DISPATCHED_AHEAD_MAX;
const MESSAGES: u64 = UNSETTLED_MAX + 2 * AHEAD;

/// Q with more messages than a client may have unsettled.
fn filled() -> Rig {
    filled_with(MESSAGES)
}

fn filled_with(messages: u64) -> Rig {
    let mut rig = Rig::new();
    rig.connection_bytes_max = BYTES_MAX;
    rig.define("Q");
    let mut client = rig.connect();
    let sender = rig.sender(&mut client, "Q");
    for key in 0..messages {
        rig.send_ahead(&mut client, sender, key, message("text"));
    }
    rig.exchange(&mut client);
    rig
}

#[test]
fn what_a_client_does_not_settle_is_bounded_and_more_comes_when_it_settles() {
    let mut rig = filled();
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1_000_000);
    let first = rig.received_whole(&mut client);
    let count = first.len() as u64;
    assert!((UNSETTLED_MAX..UNSETTLED_MAX + AHEAD).contains(&count), "{count}");
    // Another link is no way around it.
    let other = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, other, 1_000_000);
    assert_eq!(rig.received_whole(&mut client).len(), 0);
    first.into_iter().for_each(|got| {
        rig.settle(&mut client, got.delivery, DeliveryState::Accepted);
    });
    assert_eq!(count + rig.received_whole(&mut client).len() as u64, MESSAGES);
}

#[test]
fn a_drain_is_answered_although_there_is_no_memory_for_what_is_left() {
    let mut rig = filled();
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1_000_000);
    let before = rig.received_whole(&mut client).len() as u64;
    assert!(rig.drain(&mut client, receiver, 1_000_000), "not answered");
    assert_eq!(rig.received_whole(&mut client).len(), 0);
    // What is left is another client's.
    let mut next = rig.connect();
    let receiver = rig.receiver(&mut next, "Q");
    rig.credit(&mut next, receiver, 1_000_000);
    assert_eq!(before + rig.received_whole(&mut next).len() as u64, MESSAGES);
}

#[test]
fn links_have_their_part_of_the_memory_and_one_more_is_refused() {
    let mut rig = Rig::new();
    rig.connection_bytes_max = BYTES_MAX;
    rig.define("Q");
    let mut client = rig.connect();
    let long = vec!["a = 1"; 400].join(" OR ");
    let mut links = Vec::new();
    let refusal = loop {
        let account = client.account();
        assert!(account.links <= BYTES_MAX / limits::LINKS_SHARE, "{account:?}");
        match rig.try_selecting_receiver(&mut client, "Q", &long) {
            Ok(link) => links.push(link),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, condition::RESOURCE_LIMIT_EXCEEDED.to_string());
    let count = links.len() as u64;
    assert!(count > 2, "{count}");
    assert!(
        client.account().links / count > 10 * limits::CONSUMER_LINK_BYTES,
        "selectors are the most"
    );
    for link in links {
        rig.detach(&mut client, link);
    }
    assert_eq!(client.account().links, 0, "given back");
    rig.sender(&mut client, "Q");
}

#[test]
fn messages_without_an_end_close_the_connection_beyond_one_of_the_largest_length() {
    let mut rig = Rig::new();
    rig.connection_bytes_max = BYTES_MAX;
    let mut peer = rig.any_peer();
    rig.define("Q");
    for handle in 0..2 {
        let line = format!("attach name=s{handle} handle={handle} role=sender target=Q");
        rig.says(&mut peer, &line, &[]);
        rig.decide(&mut peer);
        rig.answers(&mut peer, 10, usize::MAX);
    }
    let part = vec![b'x'; 60_000];
    let frames = (limits::TRANSFER_BYTES_MAX + BYTES_MAX) / part.len() as u64;
    for number in 0..frames {
        let (handle, first) = (number % 2, number < 2);
        let named = if first { format!("delivery-id={number} tag=t ") } else { String::new() };
        rig.says(&mut peer, &format!("transfer handle={handle} {named}more"), &part);
    }
    assert!(!rig.is_over(&mut peer), "not yet too much");
    rig.says(&mut peer, "transfer handle=0 more", &part);
    assert!(rig.is_over(&mut peer));
}

#[test]
fn outcomes_in_units_count_until_their_end_and_are_found_by_their_delivery() {
    const UNITS: u64 = 20;
    let mut rig = filled_with(UNITS);
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1_000_000);
    let got = rig.received_whole(&mut client);
    let units: Vec<TxnId> = got.iter().map(|_| rig.declare(&mut client)).collect();
    for (got, unit) in got.iter().zip(&units) {
        rig.accept_in(&mut client, got.delivery, unit, false);
    }
    let staged = UNITS * limits::STAGED_GET_BYTES;
    let provisional = UNITS * limits::PROVISIONAL_OUTCOME_BYTES;
    assert_eq!(client.account().units, staged + provisional);
    // The first half is settled in the units that have it, the rest goes with its link.
    for got in &got[..got.len() / 2] {
        rig.settle(&mut client, got.delivery, DeliveryState::Released);
    }
    assert_eq!(client.account().units, staged + provisional / 2);
    rig.detach(&mut client, receiver);
    assert_eq!(client.account().units, staged);
    for unit in &units {
        assert_eq!(rig.discharge(&mut client, unit, false), Some(DeliveryState::Accepted));
    }
    assert_eq!(client.account().units, 0);
}

#[test]
fn what_a_client_settles_in_a_unit_is_bounded_and_more_comes_when_it_ends() {
    let most = BYTES_MAX / limits::STAGED_GET_BYTES;
    let messages = most + 2 * AHEAD;
    let mut rig = filled_with(messages);
    let mut client = rig.connect();
    let receiver = rig.receiver(&mut client, "Q");
    rig.credit(&mut client, receiver, 1_000_000);
    let unit = rig.declare(&mut client);
    let first = accept_all_in(&mut rig, &mut client, &unit);
    assert!((most - AHEAD..most + AHEAD).contains(&first), "{first}");
    assert_eq!(rig.discharge(&mut client, &unit, false), Some(DeliveryState::Accepted));
    let next = rig.declare(&mut client);
    assert_eq!(first + accept_all_in(&mut rig, &mut client, &next), messages);
}

/// Accepts whatever comes, and says how much that was.
fn accept_all_in(rig: &mut Rig, client: &mut Client, unit: &TxnId) -> u64 {
    let mut count = 0;
    loop {
        let got = rig.received_whole(client);
        if got.is_empty() {
            return count;
        }
        count += got.len() as u64;
        got.into_iter().for_each(|got| rig.accept_in(client, got.delivery, unit, true));
    }
}

#[test]
fn the_end_of_a_session_gives_back_its_links_and_no_others() {
    let mut rig = Rig::new();
    let mut peer = rig.any_peer();
    rig.define("Q");
    rig.says(&mut peer, "@1 begin next-outgoing-id=0 incoming-window=10 outgoing-window=10", &[]);
    for (channel, count) in [(0, 3), (1, 5)] {
        for handle in 0..count {
            let ends = format!("name={channel}-{handle} handle={handle} role=sender target=Q");
            rig.says(&mut peer, &format!("@{channel} attach {ends}"), &[]);
        }
    }
    let all = peer.account().links;
    // Three that the instance has answered for, the others still open.
    rig.decide(&mut peer);
    rig.answers(&mut peer, 6, usize::MAX);
    rig.says(&mut peer, "@1 detach handle=0 closed", &[]);
    rig.says(&mut peer, "@1 end", &[]);
    rig.answers(&mut peer, 10, usize::MAX);
    assert_eq!(peer.account().links * 8, all * 3);
    rig.says(&mut peer, "@1 begin next-outgoing-id=0 incoming-window=10 outgoing-window=10", &[]);
    rig.says(&mut peer, "@1 end", &[]);
    assert_eq!(peer.account().links * 8, all * 3, "a session of the same number had none");
    rig.says(&mut peer, "end", &[]);
    assert_eq!(peer.account().links, 0);
}
