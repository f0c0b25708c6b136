//! What a peer must not do, and what ends when it does.

use towline_types::limits;

use super::{accept, attached, receiving_peer, sending_peer, transfer};
use crate::connection::LINKS_MAX;
use crate::event::Event;
use crate::peer::{Peer, text};
use crate::types::{ReceiverSettleMode, Symbol, condition};

fn closes(peer: &mut Peer, condition: &Symbol) {
    let error = loop {
        match peer.event() {
            Event::Closed { error, by_peer: false } => break error.expect("a reason"),
            Event::Closed { .. } => panic!("closed by the peer"),
            _ => {}
        }
    };
    assert_eq!(error.condition, *condition, "{error:?}");
    while let Some(frame) = peer.next_frame() {
        if frame.starts_with("close") {
            assert_eq!(frame, format!("close error={condition}"));
            assert!(peer.connection.is_finished());
            peer.send("begin");
            return peer.expect_nothing();
        }
    }
    panic!("no close frame");
}

#[test]
fn a_close_frame_for_a_violation_is_the_last_output_however_much_waits_before_it() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
    let outgoing = || crate::Outgoing {
        content: towline_types::Payload::from(bytes::Bytes::from(vec![b'x'; 40_000])),
        ..crate::Outgoing::default()
    };
    for key in 0..5 {
        peer.connection.send(link, key, outgoing());
    }
    peer.send("open");
    assert!(peer.connection.is_finished() && peer.connection.has_output());
    // Commands that come too late write nothing behind it.
    peer.connection.send(link, 5, outgoing());
    peer.connection.set_credit(link, 5);
    peer.connection.close(None);
    peer.connection.accept_open();
    let mut pieces = std::collections::VecDeque::new();
    while peer.connection.has_output() {
        let before = pieces.len();
        peer.connection.take_output(&mut pieces, 1);
        assert!(pieces.len() > before, "output that cannot be taken");
    }
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
    let mut bytes = bytes::BytesMut::from(&bytes[..]);
    let mut frames = Vec::new();
    while let Some(frame) = crate::frame::Frame::take(&mut bytes, u32::MAX).unwrap() {
        frames.push(text::show(frame.channel, &frame.body));
    }
    assert!(bytes.is_empty(), "half a frame");
    assert_eq!(frames.iter().filter(|frame| frame.starts_with("transfer")).count(), 5);
    assert_eq!(frames.last().map(String::as_str), Some("close error=amqp:not-allowed"));
}

#[test]
fn a_close_frame_goes_out_even_when_our_open_had_not() {
    let options = crate::ServerOptions { require_sasl: false, ..crate::ServerOptions::default() };
    let now = towline_types::Time(0);
    let mut peer = Peer::new(crate::Connection::server(options, now), now);
    peer.send_header(crate::frame::Protocol::Amqp);
    peer.send("open");
    peer.send("begin");
    peer.send("open");
    assert!(peer.connection.is_finished() && peer.connection.has_output());
    peer.expect_header(crate::frame::Protocol::Amqp);
    peer.expect("open");
    peer.expect("close error=amqp:not-allowed");
    peer.expect_nothing();
}

fn ends(peer: &mut Peer, condition: &Symbol) {
    match peer.event() {
        Event::SessionEnded { error: Some(error), by_peer: false, .. } => {
            assert_eq!(error.condition, *condition, "{error:?}");
        }
        other => panic!("expected the end of the session, got {other:?}"),
    }
    peer.expect(&format!("end error={condition}"));
    // What is on its way is dropped; the answer frees the channel.
    peer.send("transfer handle=0 delivery-id=99 tag=t payload=late");
    peer.send("detach handle=77");
    peer.no_event();
    peer.send("end");
    peer.send("begin");
    peer.expect("begin remote-channel=0");
    assert!(matches!(peer.event(), Event::SessionBegun(_)));
}

fn detaches(peer: &mut Peer, condition: &Symbol) {
    match peer.event() {
        Event::Detached { closed: true, error: Some(error), by_peer: false, .. } => {
            assert_eq!(error.condition, *condition, "{error:?}");
        }
        other => panic!("expected a detach, got {other:?}"),
    }
    peer.expect(&format!("detach handle=0 closed error={condition}"));
    peer.send("transfer handle=0 delivery-id=99 tag=t payload=late");
    peer.send("detach handle=0 closed");
    peer.no_event();
    peer.expect_nothing();
}

#[test]
fn frames_out_of_turn_close_the_connection() {
    for (line, condition) in [
        ("open", condition::NOT_ALLOWED),
        ("@9 flow", condition::NOT_ALLOWED),
        ("@9 end", condition::NOT_ALLOWED),
        ("begin", condition::NOT_ALLOWED),
        ("@1 begin remote-channel=5", condition::NOT_ALLOWED),
        ("@1 begin remote-channel=0", condition::NOT_ALLOWED),
        // 2.7.1: "MUST close the connection with the framing-error error-code".
        ("@256 begin", condition::FRAMING_ERROR),
        ("attach name=a handle=1024 role=sender", condition::FRAMING_ERROR),
    ] {
        let mut peer = Peer::begun();
        peer.send(line);
        closes(&mut peer, &condition);
    }
}

#[test]
fn bytes_that_are_no_frame_close_the_connection() {
    for (bytes, condition) in [
        (&[0, 0, 0, 7, 2, 0, 0, 0][..], condition::FRAMING_ERROR),
        (&[0, 0, 0, 8, 1, 0, 0, 0], condition::FRAMING_ERROR),
        (&[0, 0, 0, 8, 3, 0, 0, 0], condition::FRAMING_ERROR),
        (&[0, 0, 0, 8, 2, 9, 0, 0], condition::FRAMING_ERROR),
        (&[0, 1, 0, 1], condition::FRAMING_ERROR),
        (&[0, 0, 0, 8, 2, 1, 0, 0], condition::NOT_ALLOWED),
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x40], condition::DECODE_ERROR),
        (&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45], condition::DECODE_ERROR),
        (&[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x14, 0x45], condition::DECODE_ERROR),
    ] {
        let mut peer = Peer::begun();
        peer.send_bytes(bytes);
        closes(&mut peer, &condition);
    }
}

#[test]
fn a_second_open_or_a_frame_before_the_first_closes_the_connection() {
    let options = crate::ServerOptions { require_sasl: false, ..crate::ServerOptions::default() };
    for line in ["begin", "attach name=a handle=0 role=sender", "transfer handle=0", "end"] {
        let now = towline_types::Time(0);
        let mut peer = Peer::new(crate::Connection::server(options.clone(), now), now);
        peer.send_header(crate::frame::Protocol::Amqp);
        peer.expect_header(crate::frame::Protocol::Amqp);
        peer.send(line);
        closes(&mut peer, &condition::NOT_ALLOWED);
    }
}

#[test]
fn frames_for_a_handle_that_is_not_attached_end_the_session() {
    for line in [
        "transfer handle=3 delivery-id=0 tag=t",
        "flow handle=3 link-credit=1",
        "detach handle=3",
        "detach handle=4294967295",
    ] {
        let mut peer = Peer::begun();
        peer.send(line);
        ends(&mut peer, &condition::UNATTACHED_HANDLE);
    }
}

#[test]
fn a_handle_in_use_ends_the_session() {
    let (mut peer, _) = sending_peer(0);
    peer.send("attach name=other handle=0 role=sender target=q");
    ends(&mut peer, &condition::HANDLE_IN_USE);
}

#[test]
fn a_transfer_against_the_direction_ends_the_session() {
    let (mut peer, _) = receiving_peer(ReceiverSettleMode::First, 1);
    peer.send("transfer handle=0 delivery-id=0 tag=t");
    ends(&mut peer, &condition::NOT_ALLOWED);
}

#[test]
fn a_first_frame_without_id_or_tag_ends_the_session() {
    for line in ["transfer handle=0 tag=t", "transfer handle=0 delivery-id=0"] {
        let (mut peer, _) = sending_peer(5);
        peer.send(line);
        ends(&mut peer, &condition::INVALID_FIELD);
    }
}

#[test]
fn a_new_delivery_inside_another_ends_the_session() {
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=x");
    peer.send("transfer handle=0 delivery-id=1 tag=u payload=y");
    ends(&mut peer, &condition::INVALID_FIELD);
}

// 2.7.5, delivery-tag and message-format: what a later frame repeats is what the first one said.
#[test]
fn a_later_frame_with_another_tag_or_format_ends_the_session() {
    for line in ["tag=u payload=y", "message-format=1 payload=y", "message-format=1 aborted"] {
        let (mut peer, _) = sending_peer(5);
        peer.send("transfer handle=0 delivery-id=0 tag=t more payload=x");
        peer.send(&format!("transfer handle=0 {line}"));
        ends(&mut peer, &condition::INVALID_FIELD);
    }
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t message-format=7 more payload=x");
    peer.send("transfer handle=0 delivery-id=0 tag=t message-format=7 payload=y");
    assert_eq!(transfer(&mut peer).message_format, 7, "repeated as it was");
}

// 2.7.5, rcv-settle-mode: second is an error where first was agreed on, on whichever frame.
#[test]
fn a_transfer_that_settles_second_on_a_link_of_mode_first_detaches() {
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t rcv-settle-mode=second payload=x");
    detaches(&mut peer, &condition::INVALID_FIELD);
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=x");
    peer.send("transfer handle=0 rcv-settle-mode=second payload=y");
    detaches(&mut peer, &condition::INVALID_FIELD);
    let (mut peer, _) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t rcv-settle-mode=first payload=x");
    assert_eq!(transfer(&mut peer).tag.as_bytes(), b"t");
}

#[test]
fn a_disposition_that_runs_backwards_ends_the_session() {
    let mut peer = Peer::begun();
    peer.send("disposition role=receiver first=5 last=4 settled");
    ends(&mut peer, &condition::INVALID_FIELD);
}

#[test]
fn more_frames_than_the_session_window_end_the_session() {
    let (mut peer, _) = sending_peer(10);
    let mut bytes = text::encode("transfer handle=0 delivery-id=0 tag=t more payload=x");
    // All in one read, so that the window cannot be widened in between.
    for _ in 0..2_047 {
        bytes.extend_from_slice(&text::encode("transfer handle=0 more"));
    }
    let last = text::encode("transfer handle=0");
    bytes.extend_from_slice(&last);
    peer.send_bytes(&bytes);
    ends(&mut peer, &condition::WINDOW_VIOLATION);
}

#[test]
fn more_unfinished_deliveries_than_the_limit_close_the_connection_whatever_their_session() {
    let mut peer = Peer::opened();
    for number in 0..=limits::DELIVERIES_UNFINISHED_MAX {
        // Some hundred on each of three channels.
        let (channel, handle) = (number / 100, number % 100);
        if handle == 0 {
            peer.send(&format!("@{channel} begin"));
            peer.next_frame();
            peer.event();
        }
        let line = format!("attach name=l{number} handle={handle} role=sender target=q");
        peer.send(&format!("@{channel} {line}"));
        let request = attached(&mut peer);
        accept(&mut peer.connection, &request, 0);
        peer.connection.set_credit(request.link, 1);
        while peer.next_frame().is_some() {}
        assert_eq!(peer.connection.unfinished_bytes(), number as u64);
        let line = format!("transfer handle={handle} delivery-id={handle} tag=t more payload=x");
        peer.send(&format!("@{channel} {line}"));
    }
    closes(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(peer.connection.unfinished_bytes(), 0);
}

/// A peer with five bytes of an unfinished delivery on handle 0.
fn unfinished_peer() -> (Peer, crate::LinkId) {
    let (mut peer, link) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=abc");
    peer.send("transfer handle=0 more payload=de");
    assert_eq!(peer.connection.unfinished_bytes(), 5);
    (peer, link)
}

#[test]
fn unfinished_bytes_are_given_free_by_whatever_ends_the_delivery_or_its_link() {
    let too_long = format!("transfer handle=0 payload={}", "x".repeat(10_000));
    for line in [
        "transfer handle=0 payload=fgh",
        "transfer handle=0 aborted",
        "detach handle=0",
        "end",
        "close",
        // Violations of the link, the session and the connection.
        &too_long,
        "attach name=in handle=1 role=sender target=q",
        "transfer handle=0 delivery-id=1 tag=u more payload=x",
        "flow handle=7",
        "open",
    ] {
        let (mut peer, _) = unfinished_peer();
        peer.send(line);
        assert_eq!(peer.connection.unfinished_bytes(), 0, "after {line:.60}");
    }
}

#[test]
fn unfinished_bytes_are_given_free_by_commands() {
    let (mut peer, link) = unfinished_peer();
    peer.connection.detach(link, true, None);
    assert_eq!(peer.connection.unfinished_bytes(), 0, "detach");
    peer.send("transfer handle=0 more payload=late");
    assert_eq!(peer.connection.unfinished_bytes(), 0, "late frames are dropped");
    let (mut peer, link) = unfinished_peer();
    let session = crate::SessionId { index: link.session, generation: 1 };
    assert!(link.is_of(session), "the first session");
    peer.connection.end(session, None);
    peer.expect("end");
    assert_eq!(peer.connection.unfinished_bytes(), 0, "end");
    let (mut peer, _) = unfinished_peer();
    peer.connection.close(None);
    assert_eq!(peer.connection.unfinished_bytes(), 0, "close");
    let (mut peer, _) = unfinished_peer();
    peer.connection.disconnected();
    assert_eq!(peer.connection.unfinished_bytes(), 0, "the end of the socket");
}

#[test]
fn a_transfer_without_credit_detaches_the_link() {
    let (mut peer, _) = sending_peer(1);
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    transfer(&mut peer);
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=y");
    detaches(&mut peer, &condition::TRANSFER_LIMIT_EXCEEDED);
}

// 4.4.3: what is not done is refused, not ignored.
#[test]
fn messages_are_not_acquired_in_a_transaction() {
    let (mut peer, _) = receiving_peer(ReceiverSettleMode::First, 1);
    peer.send("flow handle=0 delivery-count=0 link-credit=10 txn-id");
    detaches(&mut peer, &condition::NOT_IMPLEMENTED);
}

#[test]
fn a_transfer_before_our_attach_detaches_the_link() {
    let mut peer = Peer::begun();
    peer.send("attach name=a handle=0 role=sender target=q");
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    attached(&mut peer);
    peer.expect("attach name=a handle=0 role=receiver");
    detaches(&mut peer, &condition::TRANSFER_LIMIT_EXCEEDED);
}

/// The next event, which must report a message that was too long: its length.
fn too_long(peer: &mut Peer) -> u64 {
    match peer.event() {
        Event::TooLong(too_long) => {
            assert_eq!((too_long.bytes_max, too_long.transfer.payload.len()), (10_000, 0));
            too_long.bytes
        }
        other => panic!("expected a message that is too long, got {other:?}"),
    }
}

// 2.7.3, max-message-size: what is too long is refused by its outcome, and the link goes on.
#[test]
fn a_message_over_max_message_size_is_dropped_and_reported_at_its_end() {
    let (mut peer, _) = sending_peer(5);
    let part = "x".repeat(4_000);
    peer.send(&format!("transfer handle=0 delivery-id=0 tag=t more payload={part}"));
    peer.send(&format!("transfer handle=0 more payload={part}"));
    assert_eq!(peer.connection.unfinished_bytes(), 8_000);
    peer.send(&format!("transfer handle=0 more payload={part}"));
    assert_eq!(peer.connection.unfinished_bytes(), 0, "nothing of it is held any more");
    peer.send("transfer handle=0 more payload=y");
    peer.no_event();
    peer.send("transfer handle=0 payload=z");
    assert_eq!(too_long(&mut peer), 12_002);
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=next");
    assert_eq!(transfer(&mut peer).payload.len(), 4);
    peer.expect_nothing();
}

// One that the sender settled has no outcome to wait for.
#[test]
fn a_settled_message_over_max_message_size_is_reported_at_the_frame_that_is_too_much_and_once() {
    let (mut peer, _) = sending_peer(5);
    let part = "x".repeat(4_000);
    peer.send(&format!("transfer handle=0 delivery-id=0 tag=t settled more payload={part}"));
    peer.send(&format!("transfer handle=0 more payload={part}"));
    peer.no_event();
    peer.send(&format!("transfer handle=0 more payload={part}"));
    assert_eq!(too_long(&mut peer), 12_000);
    peer.send("transfer handle=0 more payload=y");
    peer.send("transfer handle=0 payload=z");
    peer.no_event();
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=next");
    assert_eq!(transfer(&mut peer).payload.len(), 4);
    peer.expect_nothing();
}

#[test]
fn a_message_without_an_end_detaches_the_link() {
    let (mut peer, _) = sending_peer(5);
    let part = "x".repeat(60_000);
    let more = text::encode(&format!("transfer handle=0 more payload={part}"));
    peer.send("transfer handle=0 delivery-id=0 tag=t more payload=x");
    for _ in 0..2 * limits::TRANSFER_BYTES_MAX / 60_000 {
        peer.send_bytes(&more);
        peer.no_event();
        while peer.next_frame().is_some() {}
    }
    peer.send_bytes(&more);
    detaches(&mut peer, &condition::MESSAGE_SIZE_EXCEEDED);
}

#[test]
fn a_message_of_exactly_max_message_size_is_taken() {
    let (mut peer, _) = sending_peer(5);
    peer.send(&format!("transfer handle=0 delivery-id=0 tag=t payload={}", "x".repeat(10_000)));
    assert_eq!(transfer(&mut peer).payload.len(), 10_000);
    peer.send(&format!("transfer handle=0 delivery-id=1 tag=t payload={}", "x".repeat(10_001)));
    assert_eq!(too_long(&mut peer), 10_001);
}

#[test]
fn more_links_than_the_limit_are_refused() {
    let mut peer = Peer::opened();
    let mut links = 0;
    'all: for channel in 0.. {
        peer.send(&format!("@{channel} begin"));
        peer.event();
        for handle in 0..=limits::HANDLE_MAX {
            let name = format!("{channel}-{handle}");
            peer.send(&format!("@{channel} attach name={name} handle={handle} role=sender"));
            if links == LINKS_MAX {
                break 'all;
            }
            attached(&mut peer);
            links += 1;
        }
    }
    peer.no_event();
    let mut last = String::new();
    while let Some(frame) = peer.next_frame() {
        last = frame;
    }
    assert!(last.contains("detach") && last.contains("amqp:resource-limit-exceeded"), "{last}");
}

#[test]
fn a_link_name_over_the_limit_ends_the_session() {
    let mut peer = Peer::begun();
    peer.send(&format!("attach name={} handle=0 role=sender", "n".repeat(1_025)));
    ends(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn our_handles_stay_below_the_peers_handle_max() {
    let mut peer = Peer::opened();
    peer.send("begin handle-max=0");
    peer.expect("begin");
    peer.event();
    peer.send("attach name=a handle=0 role=sender target=q");
    peer.send("attach name=b handle=1 role=sender target=q");
    attached(&mut peer);
    ends(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn sessions_that_the_peer_never_ends_do_not_pile_up() {
    let mut peer = Peer::opened_with("open channel-max=1");
    peer.send("begin");
    peer.send("@1 begin");
    peer.send("@2 begin");
    closes(&mut peer, &condition::RESOURCE_LIMIT_EXCEEDED);
}
