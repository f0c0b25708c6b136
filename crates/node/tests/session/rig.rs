//! The bench on which client and instance stand.

mod account;
mod any;
mod checks;
mod credit;
mod narrow;
mod raw;
mod slow;
mod steps;
mod units;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towline_amqp::codec::{Map, Value};
use towline_amqp::sasl::{Claim, ClientLogin, Mechanism, ScramCredentials};
use towline_amqp::sections::Sections;
use towline_amqp::types::{
    DeliveryState, DistributionMode, Error, LinkTarget, Role, SaslCode, Source, Target, TxnId,
};
use towline_amqp::types::{ReceiverSettleMode, SenderSettleMode};
use towline_amqp::{
    AttachRequest, ClientOptions, Connection, Event, IncomingDelivery, IncomingId, LinkId,
    Outgoing, PeerAttach, ServerOptions, SessionId,
};
use towline_core::{Body, ConnectionId, Limits};
use towline_node::{
    Farewell, Fetch, Front, FrontOptions, Input, Instance, Logins, Outbound, Request, Response,
    Restart, SOLE_CONNECTION, front_of_chunks,
};
use towline_types::{Lsn, Payload, Time};

pub(crate) use self::any::{AnyPeer, Seen};
pub(crate) use self::narrow::Narrow;
pub(crate) use self::slow::Slow;
use super::log::MemoryLog;
use super::text::Text;

const EXTENT_BYTES: u64 = 1 << 20;

struct AnyUser;

impl Logins for AnyUser {
    fn scram(&self, _: &str) -> Option<ScramCredentials> {
        None
    }

    fn check(&self, _: &Claim) -> Option<SaslCode> {
        Some(SaslCode::Ok)
    }

    fn may_administer(&self, _: Option<&str>) -> bool {
        true
    }
}

/// One client with the server's side of its connection.
pub(crate) struct Client {
    machine: Connection,
    front: Front,
    id: ConnectionId,
    session: SessionId,
    events: Vec<Event>,
    attached: Vec<(LinkId, Option<Arc<str>>)>,
    links: u32,
}

/// A queue manager and the log under it.
pub(crate) struct Rig {
    pub(crate) instance: Instance,
    pub(crate) log: MemoryLog,
    pub(crate) out: Outbound,
    waiting: Vec<(ConnectionId, Response)>,
    pub(crate) now: Time,
    connections: u64,
    /// So many of the next deliveries find their message gone when their content is read.
    pub(crate) vanishing: usize,
    /// What each new connection may hold.
    pub(crate) connection_bytes_max: u64,
}

/// What a receiver got, for comparison.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Got(String);

impl Got {
    pub(crate) fn text(text: &str) -> Got {
        Got(text.to_owned())
    }
}

/// A delivery that a receiver got.
pub(crate) struct Received {
    pub(crate) delivery: IncomingId,
    pub(crate) message_format: u32,
    payload: Bytes,
}

impl Received {
    pub(crate) fn body(&self) -> String {
        let sections = Sections::scan(&self.payload).unwrap();
        let Some(Value::String(text)) = sections.value(&self.payload) else { panic!("not a text") };
        text.to_owned()
    }

    /// A message annotation that is a string.
    pub(crate) fn annotation(&self, name: &str) -> Option<String> {
        let sections = Sections::scan(&self.payload).unwrap();
        let value = sections.message_annotations(&self.payload)?.get(name)?;
        value.as_str().map(str::to_owned)
    }

    pub(crate) fn first_acquirer(&self) -> Option<bool> {
        let sections = Sections::scan(&self.payload).unwrap();
        sections.header(&self.payload).unwrap().first_acquirer
    }

    pub(crate) fn ttl_ms(&self) -> Option<u32> {
        let sections = Sections::scan(&self.payload).unwrap();
        sections.header(&self.payload).unwrap().ttl_ms
    }

    pub(crate) fn delivery_count(&self) -> u32 {
        let sections = Sections::scan(&self.payload).unwrap();
        sections.header(&self.payload).unwrap().delivery_count.unwrap_or(0)
    }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::around(Instance::new("QMT", Limits::default(), EXTENT_BYTES), MemoryLog::default())
    }

    fn around(instance: Instance, log: MemoryLog) -> Rig {
        Rig {
            instance,
            log,
            out: Outbound::default(),
            waiting: Vec::new(),
            now: Time(1_700_000_000_000_000),
            connections: 0,
            vanishing: 0,
            connection_bytes_max: towline_types::limits::CONNECTION_BYTES_DEFAULT,
        }
    }

    /// Stops as a crash would, and comes back from what was durable.
    pub(crate) fn restart(self) -> Rig {
        let durable = Lsn(self.log.durable.get());
        let mut restart = Restart::begin(
            "QMT",
            Limits::default(),
            EXTENT_BYTES,
            None,
            towline_core::Pages::Whole,
        )
        .unwrap();
        let mut records = self.log.records.into_inner();
        records.retain(|(at, _)| *at < durable);
        for (at, bytes) in &records {
            restart.record(*at, bytes, &|_| None).unwrap();
        }
        let log = MemoryLog::default();
        log.records.replace(records);
        log.tail.set(durable.0);
        log.durable.set(durable.0);
        Rig::around(restart.finish(durable), log)
    }

    pub(crate) fn hold_log(&mut self) {
        self.log.held.set(true);
    }

    pub(crate) fn release_log(&mut self, clients: &mut [&mut Client]) {
        self.log.held.set(false);
        self.log.durable.set(self.log.tail.get());
        self.settle_down();
        for client in clients {
            self.exchange(client);
        }
    }

    /// The log has no free space from now on, or has some again.
    pub(crate) fn fill_log(&mut self, full: bool) {
        self.log.full.set(full);
        self.instance.step(self.now, Input::LogFull(full), &self.log, &mut self.out);
        self.settle_down();
    }

    /// The log is so full, in percent. Whether an open unit has something in it now.
    pub(crate) fn press_log(&mut self, percent: u64) -> bool {
        self.instance.step(self.now, Input::LogPressed(percent), &self.log, &mut self.out);
        self.settle_down();
        self.instance.oldest_of_units().is_some()
    }

    /// All clients are let go.
    pub(crate) fn ends(&mut self, client: &mut Client, farewell: Farewell) {
        self.instance.step(self.now, Input::End(farewell), &self.log, &mut self.out);
        self.settle_down();
        self.exchange(client);
    }

    pub(crate) fn units_status(&self) -> towline_admin::status::UnitsStatus {
        self.instance.units_status()
    }

    pub(crate) fn define(&mut self, queue: &str) {
        self.mqsc(&format!("DEFINE QLOCAL('{queue}')"));
    }

    pub(crate) fn mqsc(&mut self, text: &str) {
        let connection = ConnectionId(0);
        let mut requests =
            vec![Request::Admin { token: 0, kind: "mqsc".into(), text: text.into(), owner: true }];
        let input = Input::Requests { connection, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.settle_down();
        let answered = self.waiting.iter().position(|(id, _)| *id == connection).unwrap();
        let Response::Admin(reply) = self.waiting.remove(answered).1 else { panic!("an answer") };
        assert!(reply.json.contains("\"failed\":0,"), "{}", reply.json);
        assert!(reply.json.contains("\"syntax_errors\":0,"), "{}", reply.json);
    }

    /// Lets the log be durable until nothing more happens.
    fn settle_down(&mut self) {
        for _ in 0..10 {
            let durable = Lsn(self.log.durable.get());
            self.instance.step(self.now, Input::Durable(durable), &self.log, &mut self.out);
            self.slices();
            self.carry_out_fetches();
        }
        let routed = self.out.routed.drain(..);
        self.waiting.extend(routed.map(|routed| (routed.connection, routed.response)));
    }

    fn carry_out_fetches(&mut self) {
        while let Some(Fetch { ticket, body }) = self.out.fetches.pop() {
            let content = match &body {
                Body::Chunks(chunks) => {
                    front_of_chunks(chunks, |chunk| self.log.read(chunk).ok_or(())).ok()
                }
                other => Some(self.content(other)),
            };
            let input = Input::Content { ticket, content };
            self.instance.step(self.now, input, &self.log, &mut self.out);
        }
    }

    /// No content is in memory from now on.
    pub(crate) fn forget_contents(&mut self) {
        self.log.cold.set(true);
    }

    pub(crate) fn connect(&mut self) -> Client {
        self.connect_with(ClientOptions::default())
    }

    fn connect_with(&mut self, client: ClientOptions) -> Client {
        self.connections += 1;
        let machine = ServerOptions {
            sasl_mechanisms: vec![Mechanism::Anonymous],
            nonce: Arc::from("123456789012345678901234"),
            ..ServerOptions::default()
        };
        let options = FrontOptions {
            machine,
            logins: Arc::new(AnyUser),
            address: "test".into(),
            default_model: Arc::from("SYSTEM.DEFAULT.MODEL.QUEUE"),
            elsewhere: None,
            servers: None,
            bytes_max: self.connection_bytes_max,
        };
        let client = ClientOptions { login: Some(ClientLogin::Anonymous), ..client };
        let mut machine = Connection::client(client, self.now);
        let front = Front::new(options, self.now);
        let session = machine.begin().unwrap();
        let id = ConnectionId(self.connections);
        let (events, attached) = (Vec::new(), Vec::new());
        let mut client = Client { machine, front, id, session, events, attached, links: 0 };
        self.exchange(&mut client);
        client
    }

    pub(crate) fn lose(&mut self, client: Client) {
        let mut requests = vec![Request::Disconnect { lost: true }];
        let input = Input::Requests { connection: client.id, requests: &mut requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.settle_down();
    }

    /// Moves bytes, requests and responses until nothing more happens.
    pub(crate) fn exchange(&mut self, client: &mut Client) {
        let mut requests = Vec::new();
        for _ in 0..50 {
            let mut input = flush(&mut client.machine);
            let quiet = input.is_empty();
            checks::take(&mut client.front, self.now, &mut input, &mut requests);
            let input = Input::Requests { connection: client.id, requests: &mut requests };
            self.instance.step(self.now, input, &self.log, &mut self.out);
            self.settle_down();
            let mut responses = Vec::new();
            self.waiting.retain_mut(|(id, response)| {
                if *id != client.id {
                    return true;
                }
                responses.push(std::mem::replace(response, Response::Ending(Farewell::Ending)));
                false
            });
            for response in responses {
                let Some(response) = client.front.admit(response) else { continue };
                let body = match &response {
                    Response::Deliver(delivery) if self.vanishing > 0 => {
                        self.vanishing -= 1;
                        client.front.not_sent(delivery.consumer, &mut requests);
                        continue;
                    }
                    Response::Deliver(delivery) => Some(self.content(&delivery.body)),
                    _ => None,
                };
                client.front.respond(self.now, response, body, &mut requests);
            }
            let mut output = VecDeque::new();
            client.front.take_output(&mut output, usize::MAX);
            let mut bytes = BytesMut::new();
            output.iter().for_each(|piece| bytes.extend_from_slice(piece));
            let quiet = quiet && bytes.is_empty() && requests.is_empty();
            client.machine.receive(self.now, &mut bytes);
            while let Some(event) = client.machine.next_event() {
                client.events.push(event);
            }
            if quiet {
                return;
            }
        }
        panic!("client and server never come to rest");
    }

    fn content(&self, body: &Body) -> Payload {
        match body {
            Body::Memory(bytes) => Payload::from(bytes.clone()),
            Body::Log(location) => Payload::from(self.log.read(*location).unwrap()),
            Body::Chunks(chunks) => {
                let mut content = Payload::Empty;
                chunks.iter().for_each(|chunk| content.push(self.log.read(*chunk).unwrap()));
                content
            }
            other => panic!("no content in {other:?}"),
        }
    }

    fn attach(&mut self, client: &mut Client, role: Role, ends: Ends) -> LinkId {
        let link = request(client, role, ends);
        self.exchange(client);
        for event in &client.events {
            if let Event::Attached(attached) = event {
                let address = attached.source.as_ref().and_then(|source| source.address.clone());
                client.attached.push((attached.link, address));
            }
        }
        link
    }

    pub(crate) fn sender(&mut self, client: &mut Client, queue: &str) -> LinkId {
        let link = self.attach(client, Role::Sender, Ends::to(queue));
        assert_eq!(refusal(client, link), None);
        link
    }

    pub(crate) fn refused_sender(&mut self, client: &mut Client, queue: &str) -> String {
        let link = self.attach(client, Role::Sender, Ends::to(queue));
        refusal(client, link).expect("a refusal")
    }

    pub(crate) fn receiver(&mut self, client: &mut Client, queue: &str) -> LinkId {
        let link = self.attach(client, Role::Receiver, Ends::from(queue));
        assert_eq!(refusal(client, link), None);
        link
    }

    /// Attach and credit in one flight.
    pub(crate) fn pipelined_receiver(&mut self, client: &mut Client, queue: &str, credit: u32) {
        let link = request(client, Role::Receiver, Ends::from(queue));
        client.machine.set_credit(link, credit);
        self.exchange(client);
    }

    pub(crate) fn selecting_receiver(
        &mut self,
        client: &mut Client,
        queue: &str,
        selector: &str,
    ) -> LinkId {
        let link = self.attach(client, Role::Receiver, Ends::selecting(queue, selector));
        assert_eq!(refusal(client, link), None);
        link
    }

    pub(crate) fn selecting_browser(
        &mut self,
        client: &mut Client,
        queue: &str,
        selector: &str,
    ) -> LinkId {
        let ends = Ends::selecting(queue, selector).browsing();
        let link = self.attach(client, Role::Receiver, ends);
        assert_eq!(refusal(client, link), None);
        link
    }

    pub(crate) fn refused_selecting_receiver(
        &mut self,
        client: &mut Client,
        queue: &str,
        selector: &str,
    ) -> String {
        let link = self.attach(client, Role::Receiver, Ends::selecting(queue, selector));
        refusal(client, link).expect("a refusal")
    }

    pub(crate) fn dynamic_receiver(&mut self, client: &mut Client) -> (LinkId, String) {
        let source = Source { dynamic: true, ..Source::default() };
        let ends = Ends { source, target: LinkTarget::Target(Target::default()) };
        let link = self.attach(client, Role::Receiver, ends);
        let (_, address) = client.attached.iter().find(|(id, _)| *id == link).unwrap();
        (link, address.as_deref().expect("an address").to_owned())
    }

    pub(crate) fn detach(&mut self, client: &mut Client, link: LinkId) {
        client.machine.detach(link, true, None);
        self.exchange(client);
    }

    pub(crate) fn credit(&mut self, client: &mut Client, link: LinkId, credit: u32) {
        client.machine.set_credit(link, credit);
        self.exchange(client);
    }

    /// True when the server said that it drained.
    pub(crate) fn drain(&mut self, client: &mut Client, link: LinkId, credit: u32) -> bool {
        client.machine.drain(link, credit);
        self.exchange(client);
        let drained =
            |event: &Event| matches!(event, Event::Flow(flow) if flow.link == link && flow.drain);
        client.events.iter().any(drained)
    }

    pub(crate) fn send(&mut self, client: &mut Client, link: LinkId, key: u64, text: Text) {
        let (content, message_format) = (text.encode(), text.format);
        let outgoing = Outgoing { content, message_format, ..Outgoing::default() };
        client.machine.send(link, key, outgoing);
        self.exchange(client);
    }

    /// Deliveries that the server lets this client send.
    pub(crate) fn allowance(&self, client: &Client, link: LinkId) -> u32 {
        client.machine.allowance(link).credit
    }

    /// A message of these bytes.
    pub(crate) fn send_content(
        &mut self,
        client: &mut Client,
        link: LinkId,
        key: u64,
        content: Payload,
    ) {
        client.machine.send(link, key, Outgoing { content, ..Outgoing::default() });
        self.exchange(client);
    }

    /// Without waiting for each: 500 are on their way at a time.
    pub(crate) fn send_ahead(&mut self, client: &mut Client, link: LinkId, key: u64, text: Text) {
        let outgoing = Outgoing { content: text.encode(), settled: true, ..Outgoing::default() };
        client.machine.send(link, key, outgoing);
        if key % 500 == 499 {
            self.exchange(client);
        }
    }

    pub(crate) fn send_in(
        &mut self,
        client: &mut Client,
        link: LinkId,
        key: u64,
        text: Text,
        unit: &TxnId,
    ) {
        let state = Some(DeliveryState::Transactional { txn_id: *unit, outcome: None });
        let outgoing = Outgoing { content: text.encode(), state, ..Outgoing::default() };
        client.machine.send(link, key, outgoing);
        self.exchange(client);
    }

    pub(crate) fn outcomes(&mut self, client: &mut Client) -> Vec<(u64, Option<DeliveryState>)> {
        let events = client.events.drain(..);
        events
            .filter_map(|event| match event {
                Event::Outcome { key, state, .. } => Some((key, state)),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn received(&mut self, client: &mut Client) -> Vec<Got> {
        self.received_whole(client).iter().map(|got| Got(got.body())).collect()
    }

    pub(crate) fn received_whole(&mut self, client: &mut Client) -> Vec<Received> {
        let events = client.events.drain(..);
        events
            .filter_map(|event| match event {
                Event::Transfer(IncomingDelivery { delivery, message_format, payload, .. }) => {
                    Some(Received { delivery, message_format, payload: payload.to_contiguous() })
                }
                _ => None,
            })
            .collect()
    }
}

struct Ends {
    source: Source,
    target: LinkTarget,
}

impl Ends {
    fn to(queue: &str) -> Ends {
        let target = Target { address: Some(Arc::from(queue)), ..Target::default() };
        Ends { source: Source::default(), target: LinkTarget::Target(target) }
    }

    fn browsing(mut self) -> Ends {
        self.source.distribution_mode = Some(DistributionMode::Copy);
        self
    }

    fn from(queue: &str) -> Ends {
        let source = Source { address: Some(Arc::from(queue)), ..Source::default() };
        Ends { source, target: LinkTarget::Target(Target::default()) }
    }

    fn selecting(queue: &str, selector: &str) -> Ends {
        let name = "apache.org:selector-filter:string";
        let filter = towline_amqp::codec::OwnedValue::described(
            Value::Symbol(name),
            Value::String(selector),
        );
        let mut ends = Ends::from(queue);
        ends.source.filter = Map::default().with("jms-selector", filter.view());
        ends
    }
}

fn flush(machine: &mut Connection) -> BytesMut {
    let mut output = VecDeque::new();
    machine.take_output(&mut output, usize::MAX);
    let mut bytes = BytesMut::new();
    output.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

/// Why the link was refused, if it was.
fn refusal(client: &Client, link: LinkId) -> Option<String> {
    client.events.iter().find_map(|event| match event {
        Event::Detached { link: gone, error, .. } if *gone == link => {
            Some(error.as_ref().map(|error| error.condition.to_string()).unwrap_or_default())
        }
        _ => None,
    })
}

fn request(client: &mut Client, role: Role, ends: Ends) -> LinkId {
    client.links += 1;
    let request = AttachRequest {
        name: Arc::from(format!("link-{}", client.links)),
        role,
        source: Some(Box::new(ends.source)),
        target: Some(Box::new(ends.target)),
        sender_settle_mode: SenderSettleMode::Unsettled,
        receiver_settle_mode: ReceiverSettleMode::First,
        message_bytes_max: 0,
        desired_capabilities: Default::default(),
        properties: Map::default(),
    };
    client.machine.attach(client.session, request).unwrap()
}
