//! The machines against a scripted peer, and against each other.

mod hostile;
mod links;
mod opening;
mod pair;
mod settlement;
mod transfers;
mod violations;

use crate::connection::Connection;
use crate::event::{AttachReply, Event, IncomingDelivery, LinkId, PeerAttach};
use crate::peer::Peer;
use crate::types::ReceiverSettleMode;

/// The link of the next event, which must be an attach.
fn attached(peer: &mut Peer) -> Box<PeerAttach> {
    match peer.event() {
        Event::Attached(attached) => attached,
        other => panic!("expected an attach, got {other:?}"),
    }
}

/// Accepts a link as it was asked for.
fn accept(connection: &mut Connection, attached: &PeerAttach, message_bytes_max: u64) {
    let reply = AttachReply {
        source: attached.source.clone(),
        target: attached.target.clone(),
        message_bytes_max,
        sender_settle_mode: attached.sender_settle_mode,
        receiver_settle_mode: attached.receiver_settle_mode,
        ..AttachReply::default()
    };
    connection.accept_attach(attached.link, reply);
}

/// A peer that sends on handle 0, with so much credit.
fn sending_peer(credit: u32) -> (Peer, LinkId) {
    let mut peer = Peer::begun();
    peer.send("attach name=in handle=0 role=sender source=s target=q initial-delivery-count=0");
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 10_000);
    peer.connection.set_credit(request.link, credit);
    peer.expect("attach name=in handle=0 role=receiver source=s target=q max-message-size=10000");
    if credit > 0 {
        peer.expect(&format!("flow handle=0 delivery-count=0 link-credit={credit}"));
    }
    (peer, request.link)
}

/// A peer that receives on handle 0, with so much credit.
fn receiving_peer(mode: ReceiverSettleMode, credit: u32) -> (Peer, LinkId) {
    let mut peer = Peer::begun();
    let mode = if mode == ReceiverSettleMode::Second { "second" } else { "first" };
    peer.send(&format!("attach name=out handle=0 role=receiver source=q rcv-settle-mode={mode}"));
    let request = attached(&mut peer);
    accept(&mut peer.connection, &request, 0);
    peer.expect("attach name=out handle=0 role=sender source=q initial-delivery-count=0");
    if credit > 0 {
        peer.send(&format!(
            "flow next-incoming-id=0 handle=0 delivery-count=0 link-credit={credit}"
        ));
        assert!(matches!(peer.event(), Event::Flow(flow) if flow.credit == credit), "credit");
    }
    (peer, request.link)
}

/// The next event, which must be a delivery.
fn transfer(peer: &mut Peer) -> IncomingDelivery {
    match peer.event() {
        Event::Transfer(transfer) => transfer,
        other => panic!("expected a transfer, got {other:?}"),
    }
}
