//! Client and server machines against each other: random valid histories, cut into random reads,
//! deliver each payload once, in order, and each outcome once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use towline_types::{Payload, Time};

use super::accept;
use crate::codec::{Map, Symbols};
use crate::connection::{ClientOptions, Connection, ServerOptions};
use crate::event::{
    AttachRequest, Event, IncomingDelivery, IncomingId, LinkFlow, LinkId, Outgoing,
};
use crate::types::{
    DeliveryState, LinkTarget, ReceiverSettleMode, Role, SenderSettleMode, Source, Target,
};

/// Links of one client: even ones send to the server, odd ones receive from it.
const LINKS: usize = 4;

#[derive(Clone, Debug)]
enum Step {
    /// A payload of so many bytes on a link, pre-settled or not.
    Send(usize, usize, bool),
    /// Credit for a link.
    Grant(usize, u32),
    /// Drain of a link.
    Drain(usize),
    /// Settle so many of the deliveries that wait on a link, the youngest first or the oldest.
    Settle(usize, usize, bool),
    /// Carry so many bytes to the server, and so many to the client.
    Carry(usize, usize),
    /// Let milliseconds pass.
    Wait(u64),
}

/// What a sender remembers of a link.
#[derive(Debug, Default)]
struct SendSide {
    queued: VecDeque<(Bytes, bool)>,
    allowed: u64,
    drain: bool,
    sent: Vec<Bytes>,
    /// Keys without outcome.
    open: BTreeMap<u64, ()>,
}

/// What a receiver remembers of a link.
#[derive(Debug, Default)]
struct ReceiveSide {
    got: Vec<Bytes>,
    unsettled: VecDeque<IncomingId>,
}

#[derive(Debug)]
struct Side {
    connection: Connection,
    inbox: BytesMut,
    wire: VecDeque<Bytes>,
    ids: Vec<Option<LinkId>>,
    sends: Vec<SendSide>,
    receives: Vec<ReceiveSide>,
}

impl Side {
    fn new(connection: Connection) -> Side {
        Side {
            connection,
            inbox: BytesMut::new(),
            wire: VecDeque::new(),
            ids: vec![None; LINKS],
            sends: (0..LINKS).map(|_| SendSide::default()).collect(),
            receives: (0..LINKS).map(|_| ReceiveSide::default()).collect(),
        }
    }

    fn index(&self, link: LinkId) -> usize {
        self.ids.iter().position(|id| *id == Some(link)).expect("a link that is known")
    }

    fn listen(&mut self) {
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::Opened(_) => self.connection.accept_open(),
                Event::SessionBegun(_) => {}
                Event::Attached(attached) => {
                    let index: usize = attached.name.parse().unwrap();
                    if self.ids[index].is_none() {
                        self.ids[index] = Some(attached.link);
                        accept(&mut self.connection, &attached, 0);
                    }
                }
                Event::Flow(flow) => self.on_flow(&flow),
                Event::Transfer(transfer) => self.on_transfer(transfer),
                Event::Outcome { link, key, state, settled } => {
                    let index = self.index(link);
                    assert_eq!(state, Some(DeliveryState::Accepted));
                    assert!(
                        self.sends[index].open.remove(&key).is_some(),
                        "outcome of {key} twice"
                    );
                    if !settled {
                        self.connection.settle_outgoing(link, key, state);
                    }
                }
                Event::SenderSettled { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn on_flow(&mut self, flow: &LinkFlow) {
        let index = self.index(flow.link);
        let side = &mut self.sends[index];
        side.allowed = flow.sends + u64::from(flow.credit);
        side.drain = flow.drain;
        self.send_allowed(index);
    }

    fn on_transfer(&mut self, transfer: IncomingDelivery) {
        let index = self.index(transfer.link);
        let side = &mut self.receives[index];
        assert_eq!(transfer.tag.as_number(), Some(side.got.len() as u64), "tags in order");
        side.got.push(transfer.payload.to_contiguous());
        if !transfer.settled {
            side.unsettled.push_back(transfer.delivery);
        }
    }

    fn send_allowed(&mut self, index: usize) {
        let Some(link) = self.ids[index] else { return };
        let side = &mut self.sends[index];
        while (side.sent.len() as u64) < side.allowed
            && let Some((content, settled)) = side.queued.pop_front()
        {
            let key = side.sent.len() as u64;
            side.sent.push(content.clone());
            if !settled {
                side.open.insert(key, ());
            }
            let content = Payload::from(content);
            self.connection.send(link, key, Outgoing { content, settled, ..Outgoing::default() });
        }
        if std::mem::take(&mut side.drain) {
            side.allowed = 0;
            self.connection.drained(link);
        }
    }

    fn settle(&mut self, index: usize, count: usize, youngest: bool) {
        for _ in 0..count {
            let waiting = &mut self.receives[index].unsettled;
            let next = if youngest { waiting.pop_back() } else { waiting.pop_front() };
            let Some(delivery) = next else { return };
            self.connection.settle_incoming(delivery, DeliveryState::Accepted);
        }
    }

    /// Takes at most `count` bytes of the other side's output; whether there were any.
    fn read(&mut self, from: &mut Side, count: usize, now: Time) -> bool {
        from.connection.take_output(&mut from.wire, count);
        let mut left = count;
        while left > 0
            && let Some(mut piece) = from.wire.pop_front()
        {
            let taken = piece.split_to(left.min(piece.len()));
            left -= taken.len();
            self.inbox.extend_from_slice(&taken);
            if !piece.is_empty() {
                from.wire.push_front(piece);
            }
        }
        self.connection.receive(now, &mut self.inbox);
        self.listen();
        left < count
    }
}

struct Pair {
    now: Time,
    client: Side,
    server: Side,
}

impl Pair {
    fn new(client_frame: u32, server_frame: u32, mode: ReceiverSettleMode) -> Pair {
        let now = Time(1_000_000);
        let server = ServerOptions {
            require_sasl: false,
            frame_bytes_max: server_frame,
            ..ServerOptions::default()
        };
        let client = ClientOptions { frame_bytes_max: client_frame, ..ClientOptions::default() };
        let mut client = Side::new(Connection::client(client, now));
        let server = Side::new(Connection::server(server, now));
        let sessions = [client.connection.begin().unwrap(), client.connection.begin().unwrap()];
        for index in 0..LINKS {
            let request = AttachRequest {
                name: index.to_string().into(),
                role: if index.is_multiple_of(2) { Role::Sender } else { Role::Receiver },
                source: Some(Box::new(Source::default())),
                target: Some(Box::new(LinkTarget::Target(Target::default()))),
                sender_settle_mode: SenderSettleMode::Mixed,
                receiver_settle_mode: mode,
                message_bytes_max: 0,
                desired_capabilities: Symbols::default(),
                properties: Map::default(),
            };
            client.ids[index] = client.connection.attach(sessions[index / 2], request);
        }
        Pair { now, client, server }
    }

    fn sender(&mut self, index: usize) -> &mut Side {
        if index.is_multiple_of(2) { &mut self.client } else { &mut self.server }
    }

    fn receiver(&mut self, index: usize) -> &mut Side {
        if index.is_multiple_of(2) { &mut self.server } else { &mut self.client }
    }

    fn carry(&mut self, to_server: usize, to_client: usize) -> bool {
        let up = self.server.read(&mut self.client, to_server, self.now);
        let down = self.client.read(&mut self.server, to_client, self.now);
        up || down
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(index, bytes, settled) => {
                let byte = u8::try_from(bytes % 251).unwrap();
                let side = self.sender(index);
                side.sends[index].queued.push_back((vec![byte; bytes].into(), settled));
                side.send_allowed(index);
            }
            Step::Grant(index, credit) => {
                let side = self.receiver(index);
                if let Some(link) = side.ids[index] {
                    side.connection.set_credit(link, credit);
                }
            }
            Step::Drain(index) => {
                let side = self.receiver(index);
                if let Some(link) = side.ids[index] {
                    side.connection.drain(link, 3);
                }
            }
            Step::Settle(index, count, youngest) => {
                self.receiver(index).settle(index, count, youngest);
            }
            Step::Carry(to_server, to_client) => {
                self.carry(to_server, to_client);
            }
            Step::Wait(millis) => {
                self.now = self.now + Duration::from_millis(millis);
                self.client.connection.tick(self.now);
                self.server.connection.tick(self.now);
            }
        }
    }

    /// Lets everything arrive, and checks that it did.
    fn finish(&mut self) {
        while self.carry(usize::MAX, usize::MAX) {}
        for index in 0..LINKS {
            let queued = u32::try_from(self.sender(index).sends[index].queued.len()).unwrap();
            let side = self.receiver(index);
            let link = side.ids[index].expect("attached");
            side.connection.set_credit(link, queued + 1);
        }
        while self.carry(usize::MAX, usize::MAX) {}
        for index in 0..LINKS {
            self.receiver(index).settle(index, usize::MAX, false);
        }
        while self.carry(usize::MAX, usize::MAX) {}
        for index in 0..LINKS {
            let sent = std::mem::take(&mut self.sender(index).sends[index]);
            assert!(sent.queued.is_empty(), "link {index} has {} unsent", sent.queued.len());
            assert!(sent.open.is_empty(), "link {index} misses outcomes of {:?}", sent.open);
            assert_eq!(sent.sent, self.receiver(index).receives[index].got, "link {index}");
        }
        self.client.connection.close(None);
        while self.server.read_to_end(&mut self.client, self.now) {}
        assert!(self.server.connection.is_finished());
        while self.client.read_to_end(&mut self.server, self.now) {}
        assert!(self.client.connection.is_finished());
    }
}

impl Side {
    /// As `read`, without looking at the events.
    fn read_to_end(&mut self, from: &mut Side, now: Time) -> bool {
        let mut pieces = VecDeque::new();
        from.connection.take_output(&mut pieces, usize::MAX);
        pieces.iter().for_each(|piece| self.inbox.extend_from_slice(piece));
        self.connection.receive(now, &mut self.inbox);
        !pieces.is_empty()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let link = || 0..LINKS;
    let bytes = prop_oneof![0..40_usize, 400..1_200_usize, 1_000..9_000_usize];
    let count = prop_oneof![1..30_usize, 1..3_000_usize, Just(1_000_000_usize)];
    let step = prop_oneof![
        4 => (link(), bytes, any::<bool>()).prop_map(|(l, b, s)| Step::Send(l, b, s)),
        3 => (link(), 0..20_u32).prop_map(|(l, credit)| Step::Grant(l, credit)),
        1 => link().prop_map(Step::Drain),
        3 => (link(), 1..9_usize, any::<bool>()).prop_map(|(l, n, y)| Step::Settle(l, n, y)),
        5 => (count.clone(), count).prop_map(|(up, down)| Step::Carry(up, down)),
        // All together less than the login may take.
        1 => (0..80_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_histories_deliver_each_payload_once_and_in_order(
        steps in steps(),
        client_frame in 512..3_000_u32,
        server_frame in 512..3_000_u32,
        second in any::<bool>(),
    ) {
        let mode =
            if second { ReceiverSettleMode::Second } else { ReceiverSettleMode::First };
        let mut pair = Pair::new(client_frame, server_frame, mode);
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }
}

#[test]
fn more_frames_than_a_window_flow_when_the_window_is_widened() {
    let mut pair = Pair::new(512, 512, ReceiverSettleMode::First);
    pair.step(Step::Carry(10_000, 10_000));
    for index in 0..LINKS {
        pair.step(Step::Send(index, 3_000_000, false));
    }
    pair.finish();
}
