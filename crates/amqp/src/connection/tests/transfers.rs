//! Deliveries, whole and in pieces, both ways; credit, drain and windows.

use bytes::Bytes;
use towline_types::Payload;

use super::{accept, attached, receiving_peer, sending_peer, transfer};
use crate::Outgoing;
use crate::event::{Event, LinkFlow};
use crate::peer::Peer;
use crate::types::{DeliveryState, ReceiverSettleMode};

fn outgoing(content: impl Into<Bytes>) -> Outgoing {
    Outgoing { content: Payload::from(content.into()), ..Outgoing::default() }
}

#[test]
fn a_delivery_comes_as_it_was_sent() {
    let (mut peer, link) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t1 message-format=7 payload=hello");
    let got = transfer(&mut peer);
    assert_eq!(got.link, link);
    assert_eq!(got.tag.as_bytes(), b"t1");
    assert_eq!(got.payload, Payload::One(Bytes::from_static(b"hello")));
    assert_eq!((got.settled, got.message_format, got.state), (false, 7, None));
}

#[test]
fn the_payload_is_a_slice_of_the_read_buffer() {
    let (mut peer, _) = sending_peer(5);
    let mut input =
        crate::peer::text::encode("transfer handle=0 delivery-id=0 tag=t payload=hello");
    let place = input.as_ptr_range();
    peer.connection.receive(peer.now, &mut input);
    let got = transfer(&mut peer);
    assert!(place.contains(&got.payload.pieces()[0].as_ptr()));
}

#[test]
fn frames_of_one_delivery_are_put_together() {
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t message-format=3 more payload=one");
    peer.send("transfer handle=0 more payload=two");
    peer.no_event();
    peer.send("transfer handle=0 delivery-id=0 payload=three");
    let got = transfer(&mut peer);
    assert_eq!(got.payload.to_contiguous(), Bytes::from_static(b"onetwothree"));
    assert_eq!((got.tag.as_bytes(), got.message_format, got.settled), (&b"t"[..], 3, false));
    peer.no_event();
}

#[test]
fn tiny_frames_do_not_make_many_pieces() {
    let (mut peer, _) = sending_peer(5);
    let large = "x".repeat(2_000);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=a");
    peer.send("transfer handle=0 more payload=b");
    peer.send(&format!("transfer handle=0 more payload={large}"));
    peer.send("transfer handle=0 more payload=c");
    peer.send("transfer handle=0 payload=d");
    let got = transfer(&mut peer).payload;
    assert_eq!(got.pieces().iter().map(Bytes::len).collect::<Vec<_>>(), [2_004]);
}

#[test]
fn an_unfinished_delivery_keeps_no_read_buffer_in_memory() {
    let (mut peer, _) = sending_peer(5);
    let large = "x".repeat(4_000);
    for frame in ["delivery-id=0 tag=t more", "more"] {
        let line = format!("transfer handle=0 {frame} payload={large}");
        let mut input = crate::peer::text::encode(&line);
        let capacity = input.capacity();
        peer.connection.receive(peer.now, &mut input);
        assert!(input.is_empty() && input.try_reclaim(capacity), "something refers to it");
    }
    peer.send("transfer handle=0 payload=end");
    assert_eq!(transfer(&mut peer).payload.len(), 8_003);
}

#[test]
fn settled_on_any_frame_settles_and_the_last_state_counts() {
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t more state=accepted@a payload=1");
    peer.send("transfer handle=0 more settled payload=2");
    peer.send("transfer handle=0 state=@b payload=3");
    let got = transfer(&mut peer);
    assert!(got.settled && got.delivery.is_settled());
    let Some(DeliveryState::Transactional { txn_id, outcome: None }) = got.state else { panic!() };
    assert_eq!(txn_id.as_bytes(), b"b");
}

#[test]
fn an_aborted_delivery_is_never_seen_but_takes_its_credit() {
    let (mut peer, link) = sending_peer(3);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=half");
    peer.send("transfer handle=0 aborted");
    assert_eq!(peer.connection.link_credit(link), Some(2));
    let flow = LinkFlow { link, credit: 2, sends: 0, drain: false, available: None };
    assert_eq!(peer.event(), Event::Flow(flow));
    peer.send("transfer handle=0 delivery-id=1 tag=t aborted");
    assert_eq!(peer.connection.link_credit(link), Some(1));
    assert_eq!(peer.event(), Event::Flow(LinkFlow { credit: 1, ..flow }));
    peer.no_event();
    peer.send("transfer handle=0 delivery-id=2 tag=u payload=whole");
    assert_eq!(transfer(&mut peer).payload.to_contiguous(), Bytes::from_static(b"whole"));
    peer.connection.set_credit(link, 3);
    peer.expect("flow handle=0 delivery-count=3 link-credit=3");
}

#[test]
fn credit_that_the_sender_gives_up_by_itself_is_reported() {
    let (mut peer, link) = sending_peer(5);
    peer.send("flow handle=0 delivery-count=4 link-credit=1");
    let flow = LinkFlow { link, credit: 1, sends: 0, drain: false, available: None };
    assert_eq!(peer.event(), Event::Flow(flow));
    assert_eq!(peer.connection.link_credit(link), Some(1));
    peer.connection.set_credit(link, 5);
    peer.expect("flow handle=0 delivery-count=4 link-credit=5");
    assert_eq!(peer.connection.link_credit(link), Some(5));
}

#[test]
fn only_a_live_receiving_link_has_credit_to_ask_for() {
    let (peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    assert_eq!(peer.connection.link_credit(link), None);
    let (mut peer, link) = sending_peer(5);
    peer.connection.detach(link, true, None);
    assert_eq!(peer.connection.link_credit(link), None);
}

// 2.7.5: the receiver ignores resumed deliveries that it does not know.
#[test]
fn a_resumed_delivery_is_ignored_and_uses_up_credit() {
    let (mut peer, link) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=a resume payload=a");
    assert!(matches!(peer.event(), Event::Flow(flow) if flow.link == link && flow.credit == 4));
    peer.send("transfer handle=0 delivery-id=1 tag=b resume settled more payload=b");
    peer.send("transfer handle=0 more payload=b");
    peer.no_event();
    peer.send("transfer handle=0 payload=b");
    assert!(matches!(peer.event(), Event::Flow(flow) if flow.credit == 3));
    peer.send("transfer handle=0 delivery-id=2 tag=c resume state=@unit payload=c");
    assert!(matches!(peer.event(), Event::LostInUnit { .. }));
    assert!(matches!(peer.event(), Event::Flow(flow) if flow.credit == 2));
    peer.send("transfer handle=0 delivery-id=3 tag=d payload=d");
    assert_eq!(transfer(&mut peer).payload.to_contiguous(), "d");
}

#[test]
fn deliveries_of_different_links_may_be_mixed() {
    let (mut peer, _) = sending_peer(5);
    peer.send("attach name=in2 handle=1 role=sender target=q initial-delivery-count=0");
    let second = attached(&mut peer);
    accept(&mut peer.connection, &second, 0);
    peer.connection.set_credit(second.link, 5);
    peer.expect("attach handle=1");
    peer.expect("flow handle=1");
    peer.send("transfer handle=0 delivery-id=0 tag=a more payload=a");
    peer.send("transfer handle=1 delivery-id=1 tag=b more payload=b");
    peer.send("transfer handle=0 payload=A");
    peer.send("transfer handle=1 payload=B");
    assert_eq!(transfer(&mut peer).payload.to_contiguous(), Bytes::from_static(b"aA"));
    assert_eq!(transfer(&mut peer).payload.to_contiguous(), Bytes::from_static(b"bB"));
}

#[test]
fn credit_asked_for_twice_goes_out_once() {
    let (mut peer, link) = sending_peer(5);
    peer.connection.set_credit(link, 6);
    peer.connection.set_credit(link, 8);
    peer.expect("flow handle=0 delivery-count=0 link-credit=8");
    peer.connection.set_credit(link, 8);
    peer.expect_nothing();
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    peer.connection.set_credit(link, 8);
    peer.expect("flow handle=0 delivery-count=1 link-credit=8");
}

#[test]
fn credit_taken_back_still_covers_what_is_on_its_way() {
    let (mut peer, link) = sending_peer(2);
    peer.connection.set_credit(link, 0);
    peer.expect("flow handle=0 link-credit=0");
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=y");
    transfer(&mut peer);
    transfer(&mut peer);
    peer.no_event();
}

#[test]
fn the_session_window_is_counted_in_frames_and_widened_in_time() {
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=x");
    for _ in 0..1_022 {
        peer.send("transfer handle=0 more");
    }
    peer.expect_nothing();
    peer.send("transfer handle=0 more");
    peer.expect("flow next-incoming-id=1024 incoming-window=2048");
    peer.expect_nothing();
}

#[test]
fn an_echo_is_answered() {
    let (mut peer, link) = sending_peer(5);
    peer.send("flow echo");
    let flow = peer.expect("flow incoming-window=2048 next-outgoing-id=0");
    assert!(!flow.contains("handle"), "{flow}");
    peer.send("flow handle=0 delivery-count=0 link-credit=0 echo available=3");
    let Event::Flow(LinkFlow { link: of, credit: 5, available: Some(3), .. }) = peer.event() else {
        panic!("no flow")
    };
    assert_eq!(of, link);
    peer.expect("flow handle=0 delivery-count=0 link-credit=5");
    peer.expect_nothing();
}

#[test]
fn a_delivery_goes_out_with_everything_on_its_first_frame() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    let message =
        Outgoing { prefix: Bytes::from_static(b"head-"), message_format: 2, ..outgoing("body") };
    peer.connection.send(link, 0x6162_6364_6566_6768, message);
    let frame = peer.expect("transfer handle=0 delivery-id=0 tag=abcdefgh message-format=2");
    assert!(frame.ends_with(" payload=head-body") && !frame.contains("settled"), "{frame}");
    peer.connection.send(link, 1, Outgoing { settled: true, ..outgoing("x") });
    peer.expect("transfer handle=0 delivery-id=1 settled payload=x");
}

#[test]
fn frames_fit_the_peers_limit_with_their_performative() {
    let mut peer = Peer::opened_with("open max-frame-size=512");
    peer.send("begin");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=out handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach");
    let content: String = ('a'..='z').cycle().take(5_000).collect();
    peer.connection.send(request.link, 1, outgoing(content.clone()));
    peer.frame_bytes.clear();
    let mut whole = String::new();
    let mut frames = 0;
    while let Some(frame) = peer.next_frame() {
        assert_eq!(frame.contains("delivery-id=0"), frames == 0, "{frame}");
        assert_eq!(frame.contains("tag="), frames == 0, "{frame}");
        assert_eq!(frame.contains("message-format="), frames == 0, "{frame}");
        whole.push_str(frame.split("payload=").nth(1).unwrap());
        frames += 1;
        if !frame.contains(" more") {
            break;
        }
    }
    assert_eq!(whole, content);
    assert!(peer.frame_bytes.iter().all(|bytes| *bytes <= 512), "{:?}", peer.frame_bytes);
    assert_eq!(peer.frame_bytes.iter().filter(|bytes| **bytes == 512).count(), frames - 1);
    peer.connection.send(request.link, 2, outgoing("next"));
    peer.expect("transfer delivery-id=1 payload=next");
}

#[test]
fn a_large_body_is_passed_by_reference() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    let content = Bytes::from(vec![b'x'; 4_096]);
    let mut pieces = std::collections::VecDeque::new();
    peer.connection.send(link, 1, outgoing(content.clone()));
    peer.connection.send(link, 2, outgoing("small"));
    peer.connection.send(link, 3, outgoing("small"));
    peer.connection.take_output(&mut pieces, usize::MAX);
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[1].as_ptr(), content.as_ptr());
}

#[test]
fn output_is_handed_out_in_portions() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    for key in 0..4 {
        peer.connection.send(link, key, outgoing(vec![0; 2_000]));
    }
    let before = peer.connection.output_bytes();
    let mut pieces = std::collections::VecDeque::new();
    peer.connection.take_output(&mut pieces, 3_000);
    let taken: usize = pieces.iter().map(Bytes::len).sum();
    assert!((2_000..=3_000).contains(&taken), "{taken}");
    assert_eq!(peer.connection.output_bytes(), before - taken);
    peer.connection.take_output(&mut pieces, 1);
    assert!(pieces.len() > 2, "at least one piece each time");
    assert!(peer.connection.has_output());
}

#[test]
fn the_peers_window_holds_frames_back_not_deliveries() {
    let mut peer = Peer::opened_with("open max-frame-size=512");
    peer.send("begin incoming-window=2");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=out handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach");
    peer.connection.send(request.link, 1, outgoing(vec![b'x'; 1_200]));
    peer.connection.send(request.link, 2, outgoing("last"));
    peer.expect("transfer delivery-id=0 more");
    peer.expect("transfer more");
    peer.expect_nothing();
    // One frame has arrived: the window of 1 reaches to frame 2.
    peer.send("flow next-incoming-id=1 incoming-window=1");
    peer.expect_nothing();
    peer.send("flow next-incoming-id=2 incoming-window=1");
    let frame = peer.expect("transfer handle=0");
    assert!(!frame.contains("more"), "{frame}");
    peer.expect_nothing();
    peer.send("flow next-incoming-id=3 incoming-window=4294967295");
    peer.expect("transfer delivery-id=1 payload=last");
}

#[test]
fn a_null_next_incoming_id_means_that_nothing_has_arrived() {
    let mut peer = Peer::opened();
    peer.send("begin incoming-window=0");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=out handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach");
    peer.connection.send(request.link, 1, outgoing("x"));
    peer.connection.send(request.link, 2, outgoing("y"));
    peer.expect_nothing();
    peer.send("flow incoming-window=1 handle=0 link-credit=2");
    peer.expect("transfer delivery-id=0");
    peer.expect_nothing();
    peer.send("flow incoming-window=1");
    peer.expect_nothing();
    peer.send("flow incoming-window=2");
    peer.expect("transfer delivery-id=1");
}

#[test]
fn credit_is_reported_as_what_remains_behind_what_was_given_to_send() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    peer.connection.send(link, 1, outgoing("x"));
    peer.connection.send(link, 2, outgoing("y"));
    // The peer has seen one of the two.
    peer.send("flow next-incoming-id=1 handle=0 delivery-count=1 link-credit=5");
    let flow = LinkFlow { link, credit: 4, sends: 2, drain: false, available: None };
    assert_eq!(peer.event(), Event::Flow(flow));
    // Less credit than was used: nothing remains.
    peer.send("flow next-incoming-id=1 handle=0 delivery-count=1 link-credit=0");
    assert_eq!(peer.event(), Event::Flow(LinkFlow { credit: 0, ..flow }));
    // All the credit that can be written.
    peer.send("flow next-incoming-id=2 handle=0 delivery-count=2 link-credit=4294967295");
    assert_eq!(peer.event(), Event::Flow(LinkFlow { credit: i32::MAX as u32, ..flow }));
}

#[test]
fn a_drain_is_answered_when_all_that_waits_is_written() {
    let mut peer = Peer::opened();
    peer.send("begin incoming-window=1");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=out handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach");
    peer.send(
        "flow next-incoming-id=0 incoming-window=1 handle=0 delivery-count=0 link-credit=9 drain",
    );
    assert!(matches!(peer.event(), Event::Flow(LinkFlow { drain: true, credit: 9, .. })));
    peer.connection.send(request.link, 1, outgoing("x"));
    peer.connection.send(request.link, 2, outgoing("y"));
    peer.connection.drained(request.link);
    peer.expect("transfer delivery-id=0");
    peer.expect_nothing();
    peer.send("flow next-incoming-id=1 incoming-window=1");
    peer.expect("transfer delivery-id=1");
    peer.expect("flow handle=0 delivery-count=9 link-credit=0 drain");
    peer.expect_nothing();
    // A new flow begins a new account.
    peer.send("flow next-incoming-id=2 handle=0 delivery-count=9 link-credit=4");
    assert!(matches!(
        peer.event(),
        Event::Flow(LinkFlow { drain: false, credit: 4, sends: 2, .. })
    ));
}

#[test]
fn drained_without_a_drain_gives_nothing_back() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    peer.connection.drained(link);
    peer.expect_nothing();
}

#[test]
fn our_drain_ends_when_the_peer_gave_the_credit_back() {
    let (mut peer, link) = sending_peer(5);
    peer.connection.drain(link, 5);
    peer.expect("flow handle=0 delivery-count=0 link-credit=5 drain");
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    transfer(&mut peer);
    peer.send("flow next-outgoing-id=1 handle=0 delivery-count=5 link-credit=0 drain");
    let flow = LinkFlow { link, credit: 0, sends: 0, drain: true, available: None };
    assert_eq!(peer.event(), Event::Flow(flow));
    peer.connection.set_credit(link, 2);
    let frame = peer.expect("flow handle=0 delivery-count=5 link-credit=2");
    assert!(!frame.contains("drain"), "{frame}");
}

#[test]
fn what_waits_for_a_window_has_its_credit_but_is_not_counted_as_sent() {
    let mut peer = Peer::opened();
    peer.send("begin incoming-window=0");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=out handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach");
    peer.connection.send(request.link, 1, outgoing("x"));
    peer.send("flow incoming-window=0 handle=0 link-credit=5 echo");
    assert!(matches!(peer.event(), Event::Flow(LinkFlow { credit: 4, sends: 1, .. })));
    peer.expect("flow handle=0 delivery-count=0 link-credit=5 available=1");
}

#[test]
fn credit_given_back_is_gone() {
    let (mut peer, link) = sending_peer(5);
    peer.connection.drain(link, 5);
    peer.expect("flow drain");
    peer.send("flow handle=0 delivery-count=5 link-credit=0 drain");
    assert!(matches!(peer.event(), Event::Flow(LinkFlow { drain: true, .. })));
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    assert!(matches!(peer.event(), Event::Detached { by_peer: false, .. }));
}
