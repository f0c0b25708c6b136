//! Attach, detach, begin, end.

use super::{accept, attached, receiving_peer, sending_peer, transfer};
use crate::connection::{ClientOptions, Connection};
use crate::event::{AttachReply, AttachRequest, Event};
use crate::frame::Protocol;
use crate::peer::Peer;
use crate::types::{
    Error, LinkTarget, ReceiverSettleMode, Role, SenderSettleMode, Source, Target, condition,
};
use crate::{Outgoing, codec::Map, codec::Symbols};
use towline_types::Time;

#[test]
fn no_flow_goes_out_before_the_attach() {
    let mut peer = Peer::begun();
    peer.send("attach name=in handle=4 role=sender target=q initial-delivery-count=9");
    let request = attached(&mut peer);
    peer.connection.set_credit(request.link, 50);
    peer.expect_nothing();
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach name=in handle=0 role=receiver");
    peer.expect("flow handle=0 delivery-count=9 link-credit=50");
    peer.expect_nothing();
}

#[test]
fn names_are_per_direction() {
    let mut peer = Peer::begun();
    peer.send("attach name=q handle=0 role=sender target=q initial-delivery-count=0");
    peer.send("attach name=q handle=1 role=receiver source=q");
    for handle in 0..2 {
        let request = attached(&mut peer);
        accept(&mut peer.connection, &request, 0);
        peer.expect(&format!("attach name=q handle={handle}"));
    }
    peer.no_event();
    peer.expect_nothing();
}

#[test]
fn attaching_a_name_again_steals_the_link() {
    let mut peer = Peer::begun();
    peer.send("attach name=q handle=0 role=receiver source=q");
    let old = attached(&mut peer);
    accept(&mut peer.connection, &old, 0);
    peer.expect("attach handle=0");
    peer.send("attach name=q handle=1 role=receiver source=q");
    let Event::Detached { link, closed: false, error: Some(error), by_peer: false } = peer.event()
    else {
        panic!("the old link was not detached")
    };
    assert_eq!((link, error.condition), (old.link, condition::STOLEN));
    let new = attached(&mut peer);
    accept(&mut peer.connection, &new, 0);
    peer.expect("detach handle=0 error=amqp:link:stolen");
    peer.expect("attach name=q handle=1");
    // Late frames of the old link are dropped.
    peer.send("flow handle=0 delivery-count=0 link-credit=5");
    peer.send("detach handle=0");
    peer.no_event();
}

#[test]
fn a_refused_link_gets_an_attach_without_terminus_and_a_detach() {
    for (line, answer) in [
        ("attach name=a handle=3 role=sender target=q", "attach name=a handle=0 role=receiver"),
        ("attach name=a handle=3 role=receiver source=q", "attach name=a handle=0 role=sender"),
    ] {
        let mut peer = Peer::begun();
        peer.send(line);
        let request = attached(&mut peer);
        let error = Error::new(condition::NOT_FOUND, "no such queue");
        peer.connection.refuse_attach(request.link, error);
        let attach = peer.expect(answer);
        assert!(!attach.contains("source") && !attach.contains("target"), "{attach}");
        peer.expect("detach handle=0 closed error=amqp:not-found");
        peer.send("detach handle=3 closed");
        peer.expect_nothing();
        peer.no_event();
        // Handle and name are free again.
        peer.send(line);
        attached(&mut peer);
    }
}

#[test]
fn a_detach_is_answered_in_kind() {
    for (line, closing) in [("detach handle=0 closed", true), ("detach handle=0", false)] {
        let (mut peer, link) = receiving_peer(ReceiverSettleMode::First, 5);
        peer.send(line);
        let gone = Event::Detached { link, closed: closing, error: None, by_peer: true };
        assert_eq!(peer.event(), gone);
        assert_eq!(peer.expect("detach handle=0").contains("closed"), closing);
        // Commands about it do nothing.
        peer.connection.send(link, 1, Outgoing::default());
        peer.connection.detach(link, true, None);
        peer.connection.accept_attach(link, AttachReply::default());
        peer.expect_nothing();
    }
}

#[test]
fn a_detach_before_our_answer_is_answered_with_both() {
    let mut peer = Peer::begun();
    peer.send("attach name=a handle=0 role=receiver source=q");
    peer.send("detach handle=0 closed");
    let request = attached(&mut peer);
    assert!(matches!(peer.event(), Event::Detached { link, .. } if link == request.link));
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach name=a handle=0 role=sender");
    peer.expect("detach handle=0 closed");
    peer.expect_nothing();
}

#[test]
fn our_detach_drops_what_comes_until_the_answer() {
    let (mut peer, link) = sending_peer(5);
    let error = Error::new(condition::RESOURCE_DELETED, "the queue is gone");
    peer.connection.detach(link, true, Some(error));
    peer.expect("detach handle=0 closed error=amqp:resource-deleted");
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=late");
    peer.no_event();
    peer.send("detach handle=0 closed");
    assert!(matches!(peer.event(), Event::Detached { closed: true, by_peer: true, .. }));
    peer.expect_nothing();
}

#[test]
fn a_max_message_size_of_zero_is_no_limit() {
    let mut peer = Peer::begun();
    peer.send("attach name=a handle=0 role=receiver source=q max-message-size=0");
    peer.send("attach name=b handle=1 role=receiver source=q max-message-size=7");
    assert_eq!(attached(&mut peer).message_bytes_max, None);
    assert_eq!(attached(&mut peer).message_bytes_max, Some(7));
}

#[test]
fn a_coordinator_link_is_recognised() {
    let mut peer = Peer::begun();
    peer.send("attach name=t handle=0 role=sender target=$coordinator initial-delivery-count=0");
    let request = attached(&mut peer);
    assert!(matches!(request.target.as_deref(), Some(LinkTarget::Coordinator(_))));
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach name=t target=$coordinator");
}

#[test]
fn several_sessions_run_beside_each_other() {
    let mut peer = Peer::opened();
    peer.send("@7 begin");
    peer.send("@3 begin");
    peer.expect("begin remote-channel=7");
    peer.expect("@1 begin remote-channel=3");
    peer.event();
    peer.event();
    peer.send("@3 attach name=a handle=0 role=receiver source=q");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("@1 attach name=a");
    peer.send("@7 end");
    peer.expect("end");
    assert!(matches!(peer.event(), Event::SessionEnded { by_peer: true, error: None, .. }));
    // The channel is free again, in both directions.
    peer.send("@7 begin");
    peer.expect("begin remote-channel=7");
}

#[test]
fn our_end_drops_what_comes_until_the_answer() {
    let (mut peer, link) = sending_peer(5);
    peer.send("transfer handle=0 delivery-id=0 tag=t payload=x");
    let delivery = transfer(&mut peer).delivery;
    let session = crate::SessionId { index: 0, generation: 1 };
    peer.connection.end(session, None);
    peer.connection.settle_incoming(delivery, crate::types::DeliveryState::Accepted);
    peer.connection.set_credit(link, 9);
    peer.expect("end");
    peer.expect_nothing();
    peer.send("transfer handle=0 delivery-id=1 tag=t payload=x");
    peer.no_event();
    peer.send("end");
    assert_eq!(peer.event(), Event::SessionEnded { session, error: None, by_peer: true });
}

fn client() -> Peer {
    let mut peer = Peer::new(Connection::client(ClientOptions::default(), Time(0)), Time(0));
    peer.expect_header(Protocol::Amqp);
    peer.expect("open container-id=towline-client");
    peer
}

fn request(role: Role) -> AttachRequest {
    AttachRequest {
        name: "l".into(),
        role,
        source: Some(Box::new(Source { address: Some("q".into()), ..Source::default() })),
        target: Some(Box::new(LinkTarget::Target(Target::default()))),
        sender_settle_mode: SenderSettleMode::Mixed,
        receiver_settle_mode: ReceiverSettleMode::First,
        message_bytes_max: 0,
        desired_capabilities: Symbols::default(),
        properties: Map::default(),
    }
}

#[test]
fn a_client_may_pipeline_its_whole_start() {
    let mut peer = client();
    let session = peer.connection.begin().unwrap();
    let link = peer.connection.attach(session, request(Role::Receiver)).unwrap();
    peer.connection.set_credit(link, 10);
    assert_eq!(peer.connection.attach(session, request(Role::Receiver)), None, "name in use");
    peer.expect("begin");
    peer.expect("attach name=l handle=0 role=receiver source=q");
    peer.expect_nothing();
    peer.send_header(Protocol::Amqp);
    peer.send("open");
    peer.send("@5 begin remote-channel=0 next-outgoing-id=77");
    peer.send("@5 attach name=l handle=9 role=sender source=q initial-delivery-count=3");
    assert!(matches!(peer.event(), Event::Opened(_)));
    assert_eq!(peer.event(), Event::SessionBegun(session));
    assert_eq!(attached(&mut peer).link, link);
    peer.expect("flow next-incoming-id=77 handle=0 delivery-count=3 link-credit=10");
    peer.send("@5 transfer handle=9 delivery-id=0 tag=t payload=x");
    assert_eq!(transfer(&mut peer).link, link);
}

#[test]
fn a_client_hears_why_its_link_was_refused() {
    let mut peer = client();
    let session = peer.connection.begin().unwrap();
    let link = peer.connection.attach(session, request(Role::Receiver)).unwrap();
    peer.expect("begin");
    peer.expect("attach");
    peer.send_header(Protocol::Amqp);
    for line in [
        "open",
        "begin remote-channel=0",
        "attach name=l handle=0 role=sender initial-delivery-count=0",
        "detach handle=0 closed error=amqp:not-found",
    ] {
        peer.send(line);
    }
    peer.event();
    peer.event();
    assert!(attached(&mut peer).source.is_none());
    let Event::Detached { error: Some(error), by_peer: true, .. } = peer.event() else { panic!() };
    assert_eq!(error.condition, condition::NOT_FOUND);
    peer.expect("detach handle=0 closed");
    assert!(peer.connection.attach(session, request(Role::Receiver)).unwrap() != link);
}

#[test]
fn a_client_takes_no_links_and_no_sessions_that_it_did_not_begin() {
    let mut peer = client();
    peer.connection.begin().unwrap();
    peer.expect("begin");
    peer.send_header(Protocol::Amqp);
    peer.send("open");
    peer.send("begin remote-channel=0");
    peer.event();
    peer.event();
    peer.send("attach name=x handle=0 role=receiver source=q");
    peer.no_event();
    peer.expect("attach name=x role=sender");
    peer.expect("detach closed error=amqp:not-allowed");
    peer.send("@1 begin remote-channel=6");
    peer.expect("close error=amqp:not-allowed");
}

#[test]
fn a_name_is_free_as_soon_as_we_detached_the_link() {
    let (mut peer, link) = sending_peer(1);
    peer.connection.detach(link, true, None);
    peer.expect("detach handle=0");
    peer.send("attach name=in handle=1 role=sender target=q");
    assert_ne!(attached(&mut peer).link, link);
    peer.no_event();
}

#[test]
fn what_waits_for_a_window_goes_with_its_link() {
    let mut peer = Peer::opened();
    peer.send("begin incoming-window=0");
    peer.expect("begin");
    peer.event();
    for name in ["a", "b"] {
        let handle = u32::from(name == "b");
        peer.send(&format!("attach name={name} handle={handle} role=receiver source=q"));
        let request = attached(&mut peer);
        accept(&mut peer.connection, &request, 0);
        peer.expect("attach");
        peer.connection.send(request.link, 1, Outgoing::default());
    }
    peer.send("detach handle=0 closed");
    peer.expect("detach handle=0");
    peer.send("flow next-incoming-id=0 incoming-window=10");
    // The delivery id that the other one would have had is not left out.
    peer.expect("transfer handle=1 delivery-id=0");
    peer.expect_nothing();
}

#[test]
fn links_and_deliveries_that_are_gone_do_not_count() {
    let mut peer = Peer::opened();
    // More links than one connection may have, and more unfinished deliveries too.
    for round in 0..60 {
        peer.send("begin");
        peer.expect("begin");
        peer.event();
        for handle in 0..200 {
            peer.send(&format!("attach name={handle} handle={handle} role=sender target=q"));
            let request = attached(&mut peer);
            if handle < 5 {
                accept(&mut peer.connection, &request, 0);
                peer.connection.set_credit(request.link, 1);
                peer.expect("attach");
                peer.expect("flow");
                peer.send(&format!("transfer handle={handle} delivery-id=1 tag=t more"));
                peer.send(&format!("detach handle={handle}"));
                peer.expect("detach");
                assert!(matches!(peer.event(), Event::Detached { .. }), "round {round}");
            }
        }
        peer.send("end");
        peer.expect("end");
        assert!(matches!(peer.event(), Event::SessionEnded { .. }), "round {round}");
    }
}

#[test]
fn unfinished_deliveries_of_links_that_are_gone_do_not_count() {
    let mut peer = Peer::begun();
    for round in 0..300 {
        peer.send("attach name=a handle=0 role=sender target=q");
        let request = attached(&mut peer);
        accept(&mut peer.connection, &request, 0);
        peer.connection.set_credit(request.link, 1);
        peer.expect("attach");
        peer.expect("flow");
        peer.send(&format!("transfer handle=0 delivery-id={round} tag=t more"));
        peer.send("detach handle=0");
        assert!(matches!(peer.event(), Event::Detached { .. }), "round {round}");
        peer.expect("detach");
    }
}

#[test]
fn a_client_may_attach_a_name_again_before_the_detach_is_answered() {
    let mut peer = client();
    let session = peer.connection.begin().unwrap();
    let link = peer.connection.attach(session, request(Role::Receiver)).unwrap();
    peer.connection.detach(link, false, None);
    let again = peer.connection.attach(session, request(Role::Receiver)).unwrap();
    for line in ["begin", "attach handle=0", "detach handle=0", "attach handle=1"] {
        peer.expect(line);
    }
    peer.send_header(Protocol::Amqp);
    for line in [
        "open",
        "begin remote-channel=0",
        "attach name=l handle=0 role=sender source=q initial-delivery-count=0",
        "detach handle=0",
        "attach name=l handle=0 role=sender source=q initial-delivery-count=0",
    ] {
        peer.send(line);
    }
    peer.event();
    peer.event();
    assert!(matches!(peer.event(), Event::Detached { link: gone, .. } if gone == link));
    assert_eq!(attached(&mut peer).link, again);
}
