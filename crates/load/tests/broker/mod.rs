//! A broker in memory, on a socket, that misbehaves on request: the harness must notice.
//!
//! One thread, anonymous login, queues by address, no transactions. It ends when dropped.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::BytesMut;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use towline_amqp::event::{AttachReply, Outgoing, PeerAttach};
use towline_amqp::sasl::{Claim, Mechanism};
use towline_amqp::types::{DeliveryState, LinkTarget, Role, SaslCode};
use towline_amqp::{Connection, Event, IncomingId, LinkId, ServerOptions};
use towline_types::{Payload, Time};

/// What it does wrong, with the messages that are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// Confirms the 50th and forgets it.
    Loses,
    /// Keeps the 50th twice.
    Doubles,
    /// Puts the 50th before the 49th.
    Swaps,
    /// Refuses the 50th.
    Refuses,
    /// Closes the socket at the 50th, once.
    HangsUp,
}

/// A running broker.
pub(crate) struct Broker {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    pub(crate) fn start(fault: Fault) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || House::new(listener, fault).run(&stop)
        });
        Broker { address, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("amqp://{}", self.address)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // A last connection wakes the thread.
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

const LISTENER: u64 = u64::MAX;
const CREDIT: u32 = 100;

struct House {
    listener: TcpListener,
    epoll: std::os::fd::OwnedFd,
    peers: Vec<Option<Peer>>,
    queues: HashMap<String, VecDeque<Payload>>,
    fault: Fault,
    puts: u64,
    dynamic: u32,
}

struct Peer {
    stream: TcpStream,
    machine: Connection,
    input: BytesMut,
    consumers: Vec<Consumer>,
    /// Address and credit used of each link that puts to us.
    producers: HashMap<LinkId, (Option<String>, u32)>,
    next_key: u64,
}

struct Consumer {
    link: LinkId,
    queue: String,
    credit: u32,
    unsettled: HashMap<u64, Payload>,
}

impl House {
    fn new(listener: TcpListener, fault: Fault) -> House {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).unwrap();
        let (peers, queues) = (Vec::new(), HashMap::new());
        House { listener, epoll, peers, queues, fault, puts: 0, dynamic: 0 }
    }

    fn run(&mut self, stop: &AtomicBool) {
        let mut events = Vec::with_capacity(64);
        while !stop.load(Ordering::SeqCst) {
            let buffer = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(&self.epoll, buffer, None).unwrap();
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.welcome(),
                    index => self.serve(usize::try_from(index).unwrap()),
                }
            }
            self.deliver();
            self.peers.iter_mut().for_each(flush);
        }
    }

    fn welcome(&mut self) {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let index = self.peers.len() as u64;
        epoll::add(&self.epoll, &stream, EventData::new_u64(index), EventFlags::IN).unwrap();
        let options = ServerOptions {
            sasl_mechanisms: vec![Mechanism::Anonymous],
            ..ServerOptions::default()
        };
        self.peers.push(Some(Peer {
            stream,
            machine: Connection::server(options, Time::ZERO),
            input: BytesMut::new(),
            consumers: Vec::new(),
            producers: HashMap::new(),
            next_key: 0,
        }));
    }

    fn serve(&mut self, index: usize) {
        let mut raw = [0; 65_536];
        let Some(mut peer) = self.peers[index].take() else { return };
        let count = peer.stream.read(&mut raw).unwrap_or(0);
        if count == 0 {
            self.take_back(peer);
            return;
        }
        peer.input.extend_from_slice(&raw[..count]);
        peer.machine.receive(Time::ZERO, &mut peer.input);
        while let Some(event) = peer.machine.next_event() {
            if !self.handle(&mut peer, event) {
                self.take_back(peer);
                return;
            }
        }
        self.peers[index] = Some(peer);
    }

    /// What a lost peer had not settled is available again.
    fn take_back(&mut self, peer: Peer) {
        for consumer in peer.consumers {
            self.give_back(consumer);
        }
    }

    fn give_back(&mut self, consumer: Consumer) {
        let mut unsettled: Vec<(u64, Payload)> = consumer.unsettled.into_iter().collect();
        unsettled.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        let queue = self.queues.entry(consumer.queue).or_default();
        unsettled.into_iter().for_each(|(_, payload)| queue.push_front(payload));
    }

    /// False when it hangs up.
    fn handle(&mut self, peer: &mut Peer, event: Event) -> bool {
        match event {
            Event::Login(Claim::Anonymous) => {
                peer.machine.sasl_outcome(SaslCode::Ok);
                peer.machine.receive(Time::ZERO, &mut peer.input);
            }
            Event::Opened(_) => peer.machine.accept_open(),
            Event::Attached(attached) => self.attach(peer, *attached),
            Event::Flow(flow) => {
                let found = peer.consumers.iter_mut().find(|found| found.link == flow.link);
                if let Some(consumer) = found {
                    consumer.credit = flow.credit;
                }
            }
            Event::Transfer(transfer) => {
                let payload = Payload::from(transfer.payload.to_owned_bytes());
                return self.put(peer, transfer.link, transfer.delivery, payload);
            }
            Event::Outcome { link, key, state, .. } => {
                let found = peer.consumers.iter_mut().find(|found| found.link == link);
                let Some(consumer) = found else { return true };
                let payload = consumer.unsettled.remove(&key);
                if let (Some(payload), Some(DeliveryState::Released)) = (payload, state) {
                    self.queues.entry(consumer.queue.clone()).or_default().push_front(payload);
                }
            }
            Event::Detached { link, .. } => {
                let at = peer.consumers.iter().position(|found| found.link == link);
                if let Some(at) = at {
                    self.give_back(peer.consumers.remove(at));
                }
            }
            _ => {}
        }
        true
    }

    fn attach(&mut self, peer: &mut Peer, attached: PeerAttach) {
        let mut reply = AttachReply {
            source: attached.source.clone(),
            target: attached.target.clone(),
            ..AttachReply::default()
        };
        let link = attached.link;
        if attached.peer_role == Role::Sender {
            let Some(LinkTarget::Target(target)) = attached.target.as_deref() else { return };
            let address = target.address.as_deref().map(str::to_owned);
            peer.producers.insert(link, (address, 0));
            peer.machine.accept_attach(link, reply);
            peer.machine.set_credit(link, CREDIT);
            return;
        }
        let mut source = *attached.source.unwrap();
        if source.dynamic {
            self.dynamic += 1;
            source.address = Some(format!("dynamic-{}", self.dynamic).into());
        }
        let queue = source.address.clone().unwrap().to_string();
        reply.source = Some(Box::new(source));
        peer.consumers.push(Consumer { link, queue, credit: 0, unsettled: HashMap::new() });
        peer.machine.accept_attach(link, reply);
    }

    fn put(&mut self, peer: &mut Peer, link: LinkId, id: IncomingId, payload: Payload) -> bool {
        let (address, used) = peer.producers.get_mut(&link).unwrap();
        *used += 1;
        if *used >= CREDIT / 2 {
            *used = 0;
            peer.machine.set_credit(link, CREDIT);
        }
        let address = address.clone().unwrap_or_else(|| reply_address(&payload));
        let queue = self.queues.entry(address).or_default();
        self.puts += 1;
        let fault = if self.puts == 50 { self.fault } else { Fault::Nothing };
        let mut outcome = DeliveryState::Accepted;
        match fault {
            Fault::Nothing => queue.push_back(payload),
            Fault::Loses => {}
            Fault::Doubles => queue.extend([payload.clone(), payload]),
            Fault::Swaps => queue.insert(queue.len().saturating_sub(1), payload),
            Fault::Refuses => outcome = DeliveryState::Rejected { error: None },
            Fault::HangsUp => return false,
        }
        peer.machine.settle_incoming(id, outcome);
        true
    }

    fn deliver(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            for consumer in &mut peer.consumers {
                let queue = self.queues.entry(consumer.queue.clone()).or_default();
                while consumer.credit > 0
                    && let Some(payload) = queue.pop_front()
                {
                    consumer.credit -= 1;
                    peer.next_key += 1;
                    let outgoing = Outgoing { content: payload.clone(), ..Outgoing::default() };
                    peer.machine.send(consumer.link, peer.next_key, outgoing);
                    consumer.unsettled.insert(peer.next_key, payload);
                }
            }
        }
    }
}

/// The `to` of a message on the anonymous terminus: the only text that starts with "dynamic-".
fn reply_address(payload: &Payload) -> String {
    let bytes = payload.to_contiguous();
    let start = bytes.windows(8).position(|found| found == b"dynamic-").unwrap();
    let rest = bytes[start + 8..].iter().take_while(|byte| byte.is_ascii_digit());
    let number: Vec<u8> = rest.copied().collect();
    format!("dynamic-{}", String::from_utf8(number).unwrap())
}

fn flush(slot: &mut Option<Peer>) {
    let Some(peer) = slot else { return };
    let mut out = VecDeque::new();
    while peer.machine.has_output() {
        peer.machine.take_output(&mut out, 1 << 20);
        for piece in out.drain(..) {
            // A peer that went away shows when it is read.
            let _gone = peer.stream.write_all(&piece);
        }
    }
}
