//! The client against a server of a few lines: one queue in memory, over a Unix socket.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use towline_amqp::sasl::Mechanism;
use towline_amqp::types::{
    CoordinatorCommand, DeliveryState, DistributionMode, Error as AmqpError, LinkTarget, Outcome,
    Role, SaslCode, TxnId, condition,
};
use towline_amqp::{
    AttachReply, Connection, Event, IncomingDelivery, LinkId, Outgoing, PeerAttach, ServerOptions,
    coordinator,
};
use towline_types::{Payload, Time};

use crate::{Address, Body, Client, Error, Message, Options, Receiver, ReceiverOptions};

/// A server with one queue for all addresses but `none` (which does not exist) and `$admin` (which
/// answers). A message with the text `no` is rejected.
struct Server {
    socket: UnixStream,
    connection: Connection,
    queue: VecDeque<Payload>,
    /// Puts of the open unit of work.
    staged: Vec<Payload>,
    links: BTreeMap<LinkId, Kind>,
    replies: Option<LinkId>,
    keys: u64,
    /// Deliveries without an outcome.
    open: BTreeMap<u64, Payload>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Put,
    Admin,
    Coordinator,
    Get { browse: bool },
}

impl Server {
    /// Serves one connection; gives what is left in the queue.
    fn start(path: &Path) -> JoinHandle<VecDeque<Payload>> {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let options = ServerOptions {
                sasl_mechanisms: vec![Mechanism::Anonymous],
                nonce: "fyko+d2lbbFgONRv9qkxdawL".into(),
                ..ServerOptions::default()
            };
            let mut server = Server {
                socket,
                connection: Connection::server(options, Time(1)),
                queue: VecDeque::new(),
                staged: Vec::new(),
                links: BTreeMap::new(),
                replies: None,
                keys: 0,
                open: BTreeMap::new(),
            };
            server.run();
            server.queue
        })
    }

    fn run(&mut self) {
        let mut input = BytesMut::new();
        let mut buffer = vec![0; 65_536];
        while !self.connection.is_finished() {
            let count = self.socket.read(&mut buffer).unwrap_or(0);
            if count == 0 {
                return;
            }
            input.extend_from_slice(&buffer[..count]);
            self.connection.receive(Time(1), &mut input);
            while let Some(event) = self.connection.next_event() {
                self.on(event);
                self.connection.receive(Time(1), &mut input);
            }
            let mut output = VecDeque::new();
            while self.connection.has_output() {
                self.connection.take_output(&mut output, 1 << 20);
                for bytes in output.drain(..) {
                    self.socket.write_all(&bytes).unwrap();
                }
            }
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Login(_) => self.connection.sasl_outcome(SaslCode::Ok),
            Event::Opened(_) => self.connection.accept_open(),
            Event::Attached(attached) => self.attached(*attached),
            Event::Transfer(transfer) => self.transfer(&transfer),
            Event::Flow(flow) => {
                if let Some(Kind::Get { browse }) = self.links.get(&flow.link) {
                    // Not what the event says: what an earlier one had us send is not counted
                    // there.
                    let credit = self.connection.allowance(flow.link).credit;
                    self.deliver(flow.link, credit, *browse);
                    if flow.drain {
                        self.connection.drained(flow.link);
                    }
                }
            }
            Event::Outcome { link, key, state, settled } => {
                let content = self.open.remove(&key);
                let body = content.as_ref().map(|content| Message::decode(content).unwrap().body);
                let silent = body == Some(Body::Text("silent".into()));
                if !settled && !silent {
                    self.connection.settle_outgoing(link, key, state.clone());
                }
                let outcome = state.as_ref().and_then(DeliveryState::outcome);
                if let (Some(content), Some(Outcome::Released)) = (content, outcome) {
                    self.queue.push_front(content);
                }
            }
            _ => {}
        }
    }

    fn attached(&mut self, attached: PeerAttach) {
        let link = attached.link;
        let address = match (&attached.peer_role, &attached.source, &attached.target) {
            (Role::Receiver, Some(source), _) => source.address.clone(),
            (_, _, Some(target)) => match &**target {
                LinkTarget::Target(target) => target.address.clone(),
                LinkTarget::Coordinator(_) => Some("coordinator".into()),
            },
            (_, _, _) => None,
        };
        let address = address.as_deref().unwrap_or_default();
        if address == "none" {
            let error = AmqpError::new(condition::NOT_FOUND, "no such queue");
            return self.connection.refuse_attach(link, error);
        }
        let kind = match (attached.peer_role, address) {
            (Role::Receiver, _) => Kind::Get {
                browse: attached.source.as_ref().unwrap().distribution_mode
                    == Some(DistributionMode::Copy),
            },
            (Role::Sender, "$admin") => Kind::Admin,
            (Role::Sender, "coordinator") => Kind::Coordinator,
            (Role::Sender, _) => Kind::Put,
        };
        if address == "$admin" && attached.peer_role == Role::Receiver {
            self.replies = Some(link);
        } else {
            self.links.insert(link, kind);
        }
        let reply = AttachReply {
            source: attached.source,
            target: attached.target,
            ..AttachReply::default()
        };
        self.connection.accept_attach(link, reply);
        if attached.peer_role == Role::Sender {
            self.connection.set_credit(link, 2);
        }
    }

    fn transfer(&mut self, transfer: &IncomingDelivery) {
        let state = match self.links[&transfer.link] {
            Kind::Put => {
                let message = Message::decode(&transfer.payload).unwrap();
                if message.body == Body::Text("no".into()) {
                    let error = AmqpError::new(condition::NOT_ALLOWED, "it says no");
                    DeliveryState::Rejected { error: Some(Box::new(error)) }
                } else if let Some(DeliveryState::Transactional { txn_id, .. }) = transfer.state {
                    self.staged.push(transfer.payload.clone());
                    let outcome = Some(Outcome::Accepted);
                    DeliveryState::Transactional { txn_id, outcome }
                } else {
                    self.queue.push_back(transfer.payload.clone());
                    DeliveryState::Accepted
                }
            }
            Kind::Coordinator => match coordinator::parse(&transfer.payload).unwrap() {
                CoordinatorCommand::Declare(_) => {
                    DeliveryState::Declared { txn_id: TxnId::new(b"u").unwrap() }
                }
                CoordinatorCommand::Discharge(discharge) => {
                    let staged = std::mem::take(&mut self.staged);
                    if !discharge.fail {
                        self.queue.extend(staged);
                    }
                    DeliveryState::Accepted
                }
            },
            Kind::Admin => {
                self.answer(&transfer.payload);
                DeliveryState::Accepted
            }
            Kind::Get { .. } => panic!("a transfer on a receiver's link"),
        };
        self.connection.settle_incoming(transfer.delivery, state);
        self.connection.set_credit(transfer.link, 2);
    }

    fn answer(&mut self, request: &Payload) {
        let request = Message::decode(request).unwrap();
        let Body::Text(text) = &request.body else { panic!("text") };
        let reply = Message {
            body: Body::Text(format!("{{\"echo\":\"{text}\"}}")),
            correlation_id: request.correlation_id.clone(),
            ..Message::default()
        };
        self.keys += 1;
        let outgoing = Outgoing { content: reply.encode(), ..Outgoing::default() };
        self.connection.send(self.replies.unwrap(), self.keys, outgoing);
    }

    fn deliver(&mut self, link: LinkId, credit: u32, browse: bool) {
        for _ in 0..credit {
            let Some(content) = self.queue.pop_front() else { break };
            self.keys += 1;
            let outgoing = Outgoing { content: content.clone(), ..Outgoing::default() };
            self.connection.send(link, self.keys, outgoing);
            if browse {
                // Behind all others, so that a browser with enough credit sees each once.
                self.staged.push(content);
            } else {
                self.open.insert(self.keys, content);
            }
        }
        if browse {
            let browsed = std::mem::take(&mut self.staged);
            for content in browsed.into_iter().rev() {
                self.queue.push_front(content);
            }
        }
    }
}

fn message(text: &str) -> Message {
    Message { body: Body::Text(text.into()), ..Message::default() }
}

fn text(payload: &Payload) -> String {
    match Message::decode(payload).unwrap().body {
        Body::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

/// Runs a client against a server; gives what is left in the queue.
fn with_client(test: impl FnOnce(&mut Client)) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::start(&path);
    let options = Options { timeout: Duration::from_secs(10), ..Options::default() };
    let mut client = Client::connect(&Address::Local(path), &options).unwrap();
    test(&mut client);
    client.close().unwrap();
    server.join().unwrap().iter().map(text).collect()
}

#[test]
fn messages_are_put_beyond_the_first_credit_and_got_in_order() {
    let left = with_client(|client| {
        assert_eq!(client.server(), "towline");
        let sender = client.sender("Q").unwrap();
        for number in 0..10 {
            client.send(sender, &message(&number.to_string()), None).unwrap();
        }
        client.settle_to(sender, 0).unwrap();
        client.close_sender(sender).unwrap();
        let options = ReceiverOptions { total: Some(3), ..ReceiverOptions::default() };
        let mut receiver = client.receiver("Q", &options).unwrap();
        for number in 0..3 {
            let delivery =
                client.receive(&mut receiver, Some(Duration::from_secs(5))).unwrap().unwrap();
            assert_eq!(delivery.message().unwrap().body, Body::Text(number.to_string()));
            client.accept(&delivery, None).unwrap();
        }
        client.close_receiver(&receiver).unwrap();
    });
    assert_eq!(left, ["3", "4", "5", "6", "7", "8", "9"]);
}

#[test]
fn no_more_than_the_total_is_ever_asked_for_however_often_the_credit_is_drained() {
    let left = with_client(|client| {
        let options = ReceiverOptions { total: Some(3), window: 3, ..ReceiverOptions::default() };
        let mut receiver = client.receiver("Q", &options).unwrap();
        assert!(client.receive(&mut receiver, Some(Duration::ZERO)).unwrap().is_none());
        let sender = client.sender("Q").unwrap();
        for number in 0..9 {
            client.send(sender, &message(&number.to_string()), None).unwrap();
        }
        client.settle_to(sender, 0).unwrap();
        // Each of these drains, and goes on before the server has answered.
        for _ in 0..3 {
            let delivery = client.receive(&mut receiver, Some(Duration::ZERO)).unwrap().unwrap();
            client.accept(&delivery, None).unwrap();
        }
        client.confirm(&receiver).unwrap();
        client.close_receiver(&receiver).unwrap();
    });
    assert_eq!(left, ["3", "4", "5", "6", "7", "8"], "nothing else was on its way");
}

#[test]
fn what_was_accepted_is_confirmed_when_the_server_says_so_and_not_before() {
    with_client(|client| {
        let sender = client.sender("Q").unwrap();
        for body in ["one", "two", "silent"] {
            client.send(sender, &message(body), None).unwrap();
        }
        client.settle_to(sender, 0).unwrap();
        let options = ReceiverOptions { total: Some(2), ..ReceiverOptions::default() };
        let mut receiver = client.receiver("Q", &options).unwrap();
        let next = |client: &mut Client, receiver: &mut Receiver| {
            let delivery = client.receive(receiver, Some(Duration::from_secs(5))).unwrap();
            client.accept(&delivery.unwrap(), None).unwrap();
        };
        next(client, &mut receiver);
        next(client, &mut receiver);
        client.confirm(&receiver).unwrap();
        let mut receiver = client.receiver("Q", &ReceiverOptions::default()).unwrap();
        next(client, &mut receiver);
        client.timeout = Duration::from_millis(20);
        let error = client.confirm(&receiver).expect_err("no answer");
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
        client.timeout = Duration::from_secs(10);
    });
}

#[test]
fn an_empty_queue_is_reported_by_a_drain_and_nothing_is_on_its_way() {
    let left = with_client(|client| {
        let mut receiver = client.receiver("Q", &ReceiverOptions::default()).unwrap();
        assert!(client.receive(&mut receiver, Some(Duration::ZERO)).unwrap().is_none());
        let sender = client.sender("Q").unwrap();
        client.send(sender, &message("late"), None).unwrap();
        client.settle_to(sender, 0).unwrap();
        // The credit was given back, so the message waits for the next request.
        let delivery = client.receive(&mut receiver, Some(Duration::ZERO)).unwrap().unwrap();
        client.release(&delivery).unwrap();
    });
    assert_eq!(left, ["late"]);
}

#[test]
fn a_browser_sees_messages_and_leaves_them() {
    let left = with_client(|client| {
        let sender = client.sender("Q").unwrap();
        for each in ["a", "b"] {
            client.send(sender, &message(each), None).unwrap();
        }
        client.settle_to(sender, 0).unwrap();
        let options = ReceiverOptions { browse: true, total: Some(2), ..Default::default() };
        let mut browser = client.receiver("Q", &options).unwrap();
        for expected in ["a", "b"] {
            let delivery = client.receive(&mut browser, Some(Duration::ZERO)).unwrap().unwrap();
            assert_eq!(delivery.message().unwrap().body, Body::Text(expected.into()));
        }
    });
    assert_eq!(left, ["a", "b"]);
}

#[test]
fn a_unit_of_work_commits_or_rolls_back() {
    let left = with_client(|client| {
        let sender = client.sender("Q").unwrap();
        let unit = client.declare().unwrap();
        client.send(sender, &message("rolled back"), Some(&unit)).unwrap();
        client.settle_to(sender, 0).unwrap();
        client.roll_back(unit).unwrap();
        let unit = client.declare().unwrap();
        client.send(sender, &message("committed"), Some(&unit)).unwrap();
        client.settle_to(sender, 0).unwrap();
        client.commit(unit).unwrap();
    });
    assert_eq!(left, ["committed"]);
}

#[test]
fn refusals_carry_condition_and_words_and_are_reported_once() {
    with_client(|client| {
        let error = client.sender("none").expect_err("it does not exist");
        assert_eq!(error.to_string(), "refused: no such queue (amqp:not-found)");
        let sender = client.sender("Q").unwrap();
        client.send(sender, &message("no"), None).unwrap();
        let error = client.settle_to(sender, 0).expect_err("it is rejected");
        assert_eq!(error.to_string(), "refused: it says no (amqp:not-allowed)");
        client.send(sender, &message("yes"), None).unwrap();
        client.settle_to(sender, 0).unwrap();
    });
}

#[test]
fn requests_are_answered_by_their_own_reply() {
    with_client(|client| {
        for each in ["one", "two"] {
            let reply = client.ask_admin("mqsc", each).unwrap();
            assert_eq!(reply.body, format!("{{\"echo\":\"{each}\"}}"));
        }
    });
}

#[test]
fn a_large_body_comes_back_whole() {
    let bytes: Bytes = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    with_client(|client| {
        let sender = client.sender("Q").unwrap();
        let large = Message { body: Body::Bytes(bytes.clone()), ..Message::default() };
        client.send(sender, &large, None).unwrap();
        client.settle_to(sender, 0).unwrap();
        let mut receiver = client.receiver("Q", &ReceiverOptions::default()).unwrap();
        let delivery =
            client.receive(&mut receiver, Some(Duration::from_secs(5))).unwrap().unwrap();
        assert_eq!(delivery.message().unwrap().body, Body::Bytes(bytes));
        client.accept(&delivery, None).unwrap();
    });
}

#[test]
fn nobody_there_is_cannot_connect() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Local(folder.path().join("nothing"));
    let error = Client::connect(&address, &Options::default()).expect_err("no server listens");
    assert!(matches!(error, Error::CannotConnect { .. }), "{error}");
}
