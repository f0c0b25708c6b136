//! A peer that sends anything, to a driver that does anything: no panic, nothing after the close,
//! and each link that was shown ends once.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use towline_types::Payload;

use super::accept;
use crate::Outgoing;
use crate::event::{Event, IncomingId, LinkId, SessionId};
use crate::frame::Protocol;
use crate::peer::{Peer, text};
use crate::types::{DeliveryState, Error, condition};

/// Frames; each number sign becomes a small number.
const FRAMES: [&str; 24] = [
    "begin",
    "@1 begin incoming-window=#",
    "@# begin remote-channel=#",
    "end",
    "@1 end error=amqp:internal-error",
    "attach name=# handle=# role=sender target=q initial-delivery-count=#",
    "attach name=# handle=# role=sender target=$coordinator",
    "attach name=# handle=# role=receiver source=q rcv-settle-mode=second",
    "@1 attach name=# handle=# role=receiver source=q",
    "detach handle=#",
    "detach handle=# closed error=amqp:internal-error",
    "flow next-incoming-id=# incoming-window=# handle=# delivery-count=# link-credit=# echo",
    "flow incoming-window=# handle=# link-credit=# drain",
    "flow next-incoming-id=# incoming-window=#",
    "@1 flow echo",
    "transfer handle=# delivery-id=# tag=t payload=hello",
    "transfer handle=# delivery-id=# tag=t more payload=hello",
    "transfer handle=# more payload=again",
    "transfer handle=# settled payload=last state=accepted@t",
    "transfer handle=# aborted",
    "disposition role=receiver first=# last=# state=accepted",
    "disposition role=receiver first=# last=# settled state=modified",
    "disposition role=sender first=# last=# settled",
    "empty",
];

#[derive(Clone, Debug)]
enum Step {
    Frame(usize, Vec<u8>),
    Command(usize, usize),
    Bytes(Vec<u8>),
    Wait(u64),
}

fn line(index: usize, numbers: &[u8]) -> String {
    let mut parts = FRAMES[index].split('#');
    let mut line = parts.next().unwrap().to_owned();
    for (part, number) in parts.zip(numbers.iter().chain(std::iter::repeat(&0))) {
        // Mostly small, so that things fit together; sometimes out of every range.
        match number {
            254.. => line.push_str("4294967295"),
            252.. => line.push_str("70000"),
            _ => line.push_str(&(number % 4).to_string()),
        }
        line.push_str(part);
    }
    // A channel has 16 bits.
    line.replace("@4294967295", "@65535")
        .replace("@70000", "@300")
        .replace("remote-channel=4294967295", "remote-channel=65535")
        .replace("remote-channel=70000", "remote-channel=300")
}

/// What the driver has been shown.
#[derive(Default)]
struct Shown {
    live: BTreeSet<LinkId>,
    links: Vec<LinkId>,
    sessions: Vec<SessionId>,
    deliveries: Vec<IncomingId>,
    keys: Vec<(LinkId, u64)>,
    closed: bool,
}

impl Shown {
    fn listen(&mut self, peer: &mut Peer) {
        while let Some(event) = peer.connection.next_event() {
            assert!(!self.closed, "{event:?} after the end");
            match event {
                Event::Attached(attached) => {
                    assert!(self.live.insert(attached.link), "shown twice");
                    self.links.push(attached.link);
                    if !self.links.len().is_multiple_of(3) {
                        accept(&mut peer.connection, &attached, 12);
                    } else if self.links.len().is_multiple_of(2) {
                        let error = Error::new(condition::NOT_FOUND, "");
                        peer.connection.refuse_attach(attached.link, error);
                        self.live.remove(&attached.link);
                    }
                }
                Event::Detached { link, .. } => {
                    assert!(self.live.remove(&link), "ended twice");
                }
                Event::SessionBegun(session) => self.sessions.push(session),
                Event::SessionEnded { session, .. } => {
                    self.live.retain(|link| link.session != session.index);
                }
                Event::Transfer(transfer) => {
                    assert!(self.live.contains(&transfer.link), "a delivery of a dead link");
                    assert!(transfer.payload.len() <= 12);
                    self.deliveries.push(transfer.delivery);
                }
                Event::TooLong(too_long) => {
                    assert!(
                        self.live.contains(&too_long.transfer.link),
                        "a delivery of a dead link"
                    );
                    assert!(too_long.bytes > 12 && too_long.transfer.payload.is_empty());
                    self.deliveries.push(too_long.transfer.delivery);
                }
                Event::Outcome { link, key, .. } => {
                    assert!(self.live.contains(&link), "an outcome of a dead link");
                    self.keys.push((link, key));
                }
                Event::Flow(flow) => assert!(self.live.contains(&flow.link), "a dead link's flow"),
                Event::Closed { .. } => self.closed = true,
                Event::Login(_)
                | Event::Opened(_)
                | Event::SenderSettled { .. }
                | Event::LostInUnit { .. } => {}
            }
        }
    }

    fn command(&mut self, peer: &mut Peer, kind: usize, which: usize) {
        let connection = &mut peer.connection;
        let key = which as u64;
        let Some(link) = self.links.get(which % self.links.len().max(1)).copied() else { return };
        match kind {
            0..4 => {
                let content = Payload::from(Bytes::from(vec![b'x'; which * 70]));
                let settled = which.is_multiple_of(3);
                connection.send(link, key, Outgoing { content, settled, ..Outgoing::default() });
            }
            4..7 => connection.set_credit(link, u32::try_from(which).unwrap()),
            7 => connection.drain(link, 2),
            8 => connection.drained(link),
            9 | 10 => {
                if let Some(delivery) = self.deliveries.pop() {
                    connection.settle_incoming(delivery, DeliveryState::Released);
                }
            }
            11 => {
                if let Some((link, key)) = self.keys.pop() {
                    connection.settle_outgoing(link, key, Some(DeliveryState::Accepted));
                }
            }
            12 => {
                connection.detach(link, which.is_multiple_of(2), None);
            }
            13 => {
                if let Some(session) = self.sessions.get(which % self.sessions.len().max(1)) {
                    connection.end(*session, None);
                }
            }
            14 if which == 0 => connection.close(None),
            _ => connection.settle_outgoing(link, key, None),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let numbers = prop::collection::vec(any::<u8>(), 6);
    let step = prop_oneof![
        // The first ones mostly close the connection.
        2 => (0..5_usize, numbers.clone()).prop_map(|(index, numbers)| Step::Frame(index, numbers)),
        60 => (5..FRAMES.len(), numbers).prop_map(|(index, numbers)| Step::Frame(index, numbers)),
        30 => (0..16_usize, 0..16_usize).prop_map(|(kind, which)| Step::Command(kind, which)),
        1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Step::Bytes),
        3 => (0..4_000_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..80)
}

fn run(peer: &mut Peer, steps: Vec<Step>) {
    let mut shown = Shown::default();
    let mut closed = false;
    for line in [
        "begin",
        "@1 begin",
        "attach name=a handle=0 role=sender target=q initial-delivery-count=0",
        "attach name=b handle=1 role=receiver source=q",
        "attach name=refused handle=2 role=receiver source=q",
        "@1 attach name=c handle=0 role=receiver source=q",
        "flow handle=1 delivery-count=0 link-credit=9",
    ] {
        peer.send(line);
    }
    shown.listen(peer);
    peer.connection.set_credit(shown.links[0], 9);
    for step in steps {
        match step {
            Step::Frame(index, numbers) => peer.send(&line(index, &numbers)),
            Step::Command(kind, which) => shown.command(peer, kind, which),
            Step::Bytes(bytes) => peer.send_bytes(&bytes),
            Step::Wait(millis) => peer.wait(Duration::from_millis(millis)),
        }
        shown.listen(peer);
        while let Some(frame) = peer.next_frame() {
            assert!(!closed, "{frame} behind the close");
            closed = frame.starts_with("close");
        }
        assert!(!shown.closed || peer.connection.is_finished());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_sequence_of_frames_and_commands_breaks_a_machine(steps in steps()) {
        let mut peer = Peer::opened_with("open max-frame-size=600 idle-time-out=7000");
        run(&mut peer, steps);
    }

    #[test]
    fn no_bytes_break_a_login(bytes in prop::collection::vec(any::<u8>(), 0..200), sasl: bool) {
        let mut peer = Peer::opened();
        let options = crate::ServerOptions {
            require_sasl: sasl,
            sasl_mechanisms: vec![crate::sasl::Mechanism::Plain],
            ..crate::ServerOptions::default()
        };
        peer.connection = crate::Connection::server(options, peer.now);
        peer.send_header(if sasl { Protocol::Sasl } else { Protocol::Amqp });
        let length = u8::try_from(bytes.len() + 8).unwrap_or(255);
        peer.send_bytes(&[0, 0, 0, length, 2, u8::from(sasl), 0, 0]);
        peer.send_bytes(&bytes);
        while peer.connection.next_event().is_some() {}
    }
}

#[test]
fn the_frames_of_the_test_are_frames() {
    for index in 0..FRAMES.len() {
        drop(text::encode(&line(index, &[255; 6])));
        drop(text::encode(&line(index, &[252; 6])));
    }
}
