//! Dispositions, both ways.

use bytes::Bytes;
use towline_types::{Payload, limits};

use super::{attached, receiving_peer, sending_peer, transfer};
use crate::connection::{ClientOptions, Connection};
use crate::event::{AttachRequest, Event, LinkId};
use crate::frame::Protocol;
use crate::peer::{Peer, text};
use crate::types::{
    Coordinator, DeliveryState, LinkTarget, Outcome, ReceiverSettleMode, Role, SenderSettleMode,
    TxnId,
};
use crate::{Outgoing, codec::Map, codec::Symbols};
use towline_types::Time;

fn outcome(peer: &mut Peer) -> (LinkId, u64, Option<DeliveryState>, bool) {
    match peer.event() {
        Event::Outcome { link, key, state, settled } => (link, key, state, settled),
        other => panic!("expected an outcome, got {other:?}"),
    }
}

fn send(peer: &mut Peer, link: LinkId, keys: std::ops::Range<u64>) {
    for key in keys {
        peer.connection.send(link, key, Outgoing::default());
        peer.expect("transfer");
    }
}

#[test]
fn settlements_in_order_are_joined_into_ranges() {
    let (mut peer, _) = sending_peer(10);
    let mut deliveries = Vec::new();
    for id in 0..7 {
        peer.send(&format!("transfer handle=0 delivery-id={id} tag=t payload=x"));
        deliveries.push(transfer(&mut peer).delivery);
    }
    for delivery in &deliveries[0..4] {
        peer.connection.settle_incoming(*delivery, DeliveryState::Accepted);
    }
    peer.connection.settle_incoming(deliveries[4], DeliveryState::Released);
    peer.connection.settle_incoming(deliveries[6], DeliveryState::Released);
    peer.expect("disposition role=receiver first=0 last=3 settled state=accepted");
    let alone = peer.expect("disposition role=receiver first=4 settled state=released");
    assert!(!alone.contains("last"), "{alone}");
    peer.expect("disposition role=receiver first=6 settled state=released");
    peer.expect_nothing();
}

#[test]
fn a_settled_delivery_is_not_settled_again() {
    let (mut peer, _) = sending_peer(10);
    peer.send("transfer handle=0 delivery-id=0 tag=t settled payload=x");
    let delivery = transfer(&mut peer).delivery;
    peer.connection.settle_incoming(delivery, DeliveryState::Accepted);
    peer.expect_nothing();
}

#[test]
fn with_settle_mode_second_the_sender_settles_first() {
    let mut peer = Peer::begun();
    peer.send("attach name=in handle=0 role=sender target=q rcv-settle-mode=second");
    let request = attached(&mut peer);
    super::accept(&mut peer.connection, &request, 0);
    peer.connection.set_credit(request.link, 5);
    peer.expect("attach rcv-settle-mode=second");
    peer.expect("flow");
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    let delivery = transfer(&mut peer).delivery;
    peer.connection.settle_incoming(delivery, DeliveryState::Accepted);
    let frame = peer.expect("disposition role=receiver first=0 state=accepted");
    assert!(!frame.contains("settled"), "{frame}");
    peer.send("disposition role=sender first=0 settled");
    let Event::SenderSettled { deliveries, state: None, .. } = peer.event() else {
        panic!("settled");
    };
    assert!(deliveries.has(delivery));
    peer.send("disposition role=sender first=4294967295 last=0 settled");
    let Event::SenderSettled { deliveries, .. } = peer.event() else { panic!("settled") };
    assert!(deliveries.has(delivery), "serial numbers");
    peer.send("disposition role=sender first=1 last=7 settled");
    let Event::SenderSettled { deliveries, .. } = peer.event() else { panic!("settled") };
    assert!(!deliveries.has(delivery));
}

#[test]
fn settlements_go_out_before_the_detach_and_the_close() {
    let (mut peer, link) = sending_peer(10);
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=x");
    let (first, second) = (transfer(&mut peer).delivery, transfer(&mut peer).delivery);
    peer.connection.settle_incoming(first, DeliveryState::Accepted);
    peer.connection.detach(link, true, None);
    // Too late: the link is gone.
    peer.connection.settle_incoming(second, DeliveryState::Accepted);
    peer.expect("disposition first=0");
    peer.expect("detach handle=0");
    peer.expect_nothing();

    let (mut peer, _) = sending_peer(10);
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    let delivery = transfer(&mut peer).delivery;
    peer.connection.settle_incoming(delivery, DeliveryState::Accepted);
    peer.connection.close(None);
    peer.expect("disposition first=0");
    peer.expect("close");
}

#[test]
fn an_outcome_reaches_each_delivery_of_its_range() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 10..15);
    peer.send("disposition role=receiver first=1 last=3 settled state=accepted");
    for key in 11..14 {
        assert_eq!(outcome(&mut peer), (link, key, Some(DeliveryState::Accepted), true));
    }
    peer.no_event();
    peer.send("disposition role=receiver first=0 last=4 settled state=modified");
    assert_eq!(outcome(&mut peer).1, 10);
    assert_eq!(outcome(&mut peer).1, 14);
    peer.no_event();
    peer.expect_nothing();
}

#[test]
fn a_range_of_all_ids_costs_no_more_than_what_is_open() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 0..3);
    for _ in 0..10_000 {
        peer.send("disposition role=receiver first=0 last=2147483646 state=received");
        peer.send("disposition role=receiver first=0 last=2147483646 state=accepted");
    }
    for key in 0..3 {
        assert_eq!(outcome(&mut peer), (link, key, Some(DeliveryState::Accepted), false));
    }
    peer.no_event();
    peer.send("disposition role=receiver first=0 last=2147483646 settled");
    for key in 0..3 {
        assert_eq!(outcome(&mut peer), (link, key, None, true));
    }
}

#[test]
fn outcomes_of_very_many_deliveries_come_in_parts_and_what_is_behind_them_waits() {
    let most = limits::OUTCOMES_AT_ONCE_MAX as u64;
    let sent = 2 * most + 10;
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 10_000);
    peer.send("flow next-incoming-id=0 incoming-window=10000");
    send(&mut peer, link, 0..sent);
    let last = sent - 1;
    let all = format!("disposition role=receiver first=0 last={last} settled state=accepted@unit");
    let mut bytes = text::encode(&all);
    bytes.extend_from_slice(&text::encode("detach handle=0"));
    peer.send_bytes(&bytes);
    let mut key = 0;
    for part in [most, most, 10] {
        for _ in 0..part {
            assert_eq!(outcome(&mut peer).1, key);
            key += 1;
        }
        assert_eq!(peer.connection.has_more(), key < sent);
        if key < sent {
            peer.no_event();
            // It was sent after the disposition, which cannot mean it.
            send(&mut peer, link, sent..sent + 1);
            peer.resend();
        }
    }
    assert!(matches!(peer.event(), Event::Detached { .. }), "and no outcome is lost");
}

#[test]
fn what_is_left_of_outcomes_ends_with_the_session() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 10_000);
    peer.send("flow next-incoming-id=0 incoming-window=10000");
    send(&mut peer, link, 0..2_000);
    peer.send("disposition role=receiver first=0 last=1999 settled state=accepted");
    assert!(peer.connection.has_more());
    peer.connection.close(None);
    peer.resend();
    assert!(!peer.connection.has_more());
    peer.send("close");
    let closed = std::iter::from_fn(|| peer.connection.next_event()).last();
    assert!(matches!(closed, Some(Event::Closed { .. })), "{closed:?}");
}

// 4.4.2: what the session's end cut off was part of the unit.
#[test]
fn what_is_left_of_outcomes_in_a_unit_is_lost_with_the_session() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 10_000);
    peer.send("flow next-incoming-id=0 incoming-window=10000");
    send(&mut peer, link, 0..2_000);
    peer.send("disposition role=receiver first=0 last=1999 settled state=accepted@unit");
    assert!(peer.connection.has_more());
    let session = crate::SessionId { index: 0, generation: 1 };
    peer.connection.end(session, None);
    peer.resend();
    assert!(!peer.connection.has_more());
    let last = std::iter::from_fn(|| peer.connection.next_event()).last();
    assert!(matches!(last, Some(Event::LostInUnit { .. })), "{last:?}");
}

#[test]
fn an_unsettled_outcome_is_settled_by_key() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::Second, 100);
    send(&mut peer, link, 5..9);
    peer.send("disposition role=receiver first=0 last=3 state=accepted");
    for key in 5..9 {
        assert_eq!(outcome(&mut peer), (link, key, Some(DeliveryState::Accepted), false));
    }
    for key in 5..8 {
        peer.connection.settle_outgoing(link, key, Some(DeliveryState::Accepted));
        peer.connection.settle_outgoing(link, key, Some(DeliveryState::Accepted));
    }
    peer.expect("disposition role=sender first=0 last=2 settled state=accepted");
    peer.connection.settle_outgoing(link, 8, None);
    peer.expect("disposition role=sender first=3 settled");
    peer.expect_nothing();
}

#[test]
fn a_transactional_outcome_names_its_unit() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 0..1);
    peer.send("disposition role=receiver first=0 settled state=accepted@unit");
    let txn_id = TxnId::new(b"unit").unwrap();
    let state = DeliveryState::Transactional { txn_id, outcome: Some(Outcome::Accepted) };
    assert_eq!(outcome(&mut peer), (link, 0, Some(state), true));
}

fn lost(peer: &mut Peer) -> bool {
    matches!(peer.event(), Event::LostInUnit { txn_id } if txn_id.as_bytes() == b"unit")
}

// 4.4.2: a transaction must not succeed without an outcome that the receiver put into it.
#[test]
fn a_transactional_outcome_of_what_is_not_open_is_reported_as_lost() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 0..3);
    peer.send("disposition role=receiver first=0 settled state=released");
    assert_eq!(outcome(&mut peer).1, 0);
    peer.send("disposition role=receiver first=0 last=1 settled state=accepted@unit");
    assert_eq!(outcome(&mut peer).1, 1);
    assert!(lost(&mut peer), "one of two was settled");
    peer.send("disposition role=receiver first=77 settled state=accepted@unit");
    assert!(lost(&mut peer), "never sent");
    peer.send("disposition role=receiver first=2 state=accepted@unit");
    assert_eq!(outcome(&mut peer).1, 2);
    peer.send("disposition role=receiver first=2 state=accepted@unit");
    peer.no_event();
    peer.send("detach handle=0");
    assert!(matches!(peer.event(), Event::Detached { .. }));
    peer.send("disposition role=receiver first=2 settled state=accepted@unit");
    assert!(lost(&mut peer), "its link is detached");
}

// 4.4: the same of messages, and of what comes behind the end of a link or a session of ours.
#[test]
fn what_is_put_into_a_unit_behind_the_end_of_its_link_or_session_is_reported_as_lost() {
    let (mut peer, link) = sending_peer(100);
    peer.send("transfer handle=0 delivery-id=0 tag=t state=@unit more payload=x");
    peer.connection.detach(link, true, None);
    assert!(lost(&mut peer), "the beginning of a message");
    peer.send("transfer handle=0 payload=x");
    peer.no_event();
    peer.send("transfer handle=0 delivery-id=1 tag=u state=@unit payload=x");
    assert!(lost(&mut peer), "behind our detach");
    peer.send("transfer handle=0 delivery-id=2 tag=v payload=x");
    peer.no_event();
    peer.send("disposition role=receiver first=9 last=8");
    assert!(matches!(peer.event(), Event::SessionEnded { by_peer: false, .. }));
    peer.send("transfer handle=0 delivery-id=3 tag=w state=@unit payload=x");
    assert!(lost(&mut peer), "behind our end");
    peer.send("disposition role=receiver first=0 settled state=accepted@unit");
    assert!(lost(&mut peer), "behind our end");
    peer.send("disposition role=receiver first=0 settled state=accepted");
    peer.no_event();
}

// 4.4.2: after a rollback the delivery is as it was, and may be retired again.
#[test]
fn a_delivery_whose_outcome_came_to_nothing_may_have_another_one() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 7..9);
    for _ in 0..2 {
        peer.send("disposition role=receiver first=0 last=1 state=accepted@unit");
        assert_eq!((outcome(&mut peer).1, outcome(&mut peer).1), (7, 8));
        peer.connection.reopen_outgoing(link, 7);
        peer.connection.reopen_outgoing(link, 8);
    }
    peer.expect_nothing();
    peer.send("disposition role=receiver first=0 last=1 settled state=released");
    assert_eq!((outcome(&mut peer).3, outcome(&mut peer).3), (true, true));
}

#[test]
fn an_outcome_after_the_detach_reaches_nothing() {
    let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 100);
    send(&mut peer, link, 0..2);
    peer.connection.detach(link, true, None);
    peer.expect("detach");
    peer.send("disposition role=receiver first=0 last=1 settled state=accepted");
    peer.no_event();
    peer.send("detach handle=0 closed");
    assert!(matches!(peer.event(), Event::Detached { .. }));
    // The next link does not inherit them.
    peer.send("attach name=out handle=0 role=receiver source=q");
    attached(&mut peer);
    peer.send("disposition role=receiver first=0 last=1 settled state=accepted");
    peer.no_event();
}

#[test]
fn work_is_reported_before_the_discharge_that_ends_it() {
    let mut peer = Peer::new(Connection::client(ClientOptions::default(), Time(0)), Time(0));
    let session = peer.connection.begin().unwrap();
    let request = |name: &str, role, target| AttachRequest {
        name: name.into(),
        role,
        source: None,
        target,
        sender_settle_mode: SenderSettleMode::Mixed,
        receiver_settle_mode: ReceiverSettleMode::First,
        message_bytes_max: 0,
        desired_capabilities: Symbols::default(),
        properties: Map::default(),
    };
    let coordinator = Some(Box::new(LinkTarget::Coordinator(Coordinator::default())));
    let control = request("t", Role::Sender, coordinator);
    let control = peer.connection.attach(session, control).unwrap();
    let incoming = peer.connection.attach(session, request("r", Role::Receiver, None)).unwrap();
    peer.connection.set_credit(incoming, 5);
    peer.send_header(Protocol::Amqp);
    peer.send("open");
    peer.send("begin remote-channel=0");
    peer.send("attach name=t handle=0 role=receiver target=$coordinator");
    peer.send("attach name=r handle=1 role=sender source=q");
    peer.expect_header(Protocol::Amqp);
    for line in ["open", "begin", "attach target=$coordinator", "attach name=r", "flow handle=1"] {
        peer.expect(line);
    }
    peer.send("transfer handle=1 delivery-id=0 tag=t payload=x");
    (0..4).for_each(|_| drop(peer.event()));
    let delivery = transfer(&mut peer).delivery;
    let txn_id = TxnId::new(b"u").unwrap();
    let state = DeliveryState::Transactional { txn_id, outcome: Some(Outcome::Accepted) };
    peer.connection.update_incoming(delivery, Some(state), true);
    let discharge = Outgoing {
        content: Payload::from(Bytes::from_static(b"discharge")),
        ..Outgoing::default()
    };
    peer.connection.send(control, 1, discharge);
    peer.expect("disposition role=receiver first=0 settled state=accepted@u");
    peer.expect("transfer payload=discharge");
}
