//! A connection as the daemon drives it, one small step at a time and in any order: bytes on their
//! way, requests that wait for the instance, responses that wait in the outbox, and a body that is
//! being read, which may turn out damaged. It checks that nothing is sent beyond the credit that
//! the server had last heard of.

use super::*;
use towline_core::{Delivery, SetAside, Unreadable};

/// A word of the client on its credit.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    number: u64,
    /// Deliveries that may be sent in all.
    limit: u64,
}

/// See the [module](self).
pub(crate) struct Slow {
    client: Client,
    pub(crate) link: LinkId,
    /// Deliveries are only looked at.
    browses: bool,
    requests: Vec<Request>,
    outbox: VecDeque<Response>,
    reading: Option<Response>,
    to_server: VecDeque<(BytesMut, Word)>,
    to_client: VecDeque<(BytesMut, Word)>,
    said: Word,
    heard: Word,
    /// Words up to this one are used up by a drain, and how many deliveries there were then.
    drained: Word,
    /// The highest limit under which the delivery that comes now may have begun.
    allowed: u64,
    /// Bodies of all deliveries that came, in order.
    pub(crate) bodies: Vec<String>,
    /// Deliveries with a body that turned out damaged, or gone.
    pub(crate) unsent: Vec<u64>,
    /// Answers to drains that came.
    pub(crate) drains: usize,
}

impl Rig {
    /// A client that takes frames of 512 bytes: 2,048 of them are a window.
    pub(crate) fn slow(&mut self, queue: &str, mode: SenderSettleMode, browses: bool) -> Slow {
        let options = ClientOptions { frame_bytes_max: 512, ..ClientOptions::default() };
        let mut client = self.connect_with(options);
        let link = self.any_link(&mut client, Role::Receiver, |attach| {
            let source = attach.source.as_mut().expect("a source");
            source.address = Some(Arc::from(queue));
            source.distribution_mode = browses.then_some(DistributionMode::Copy);
            attach.sender_settle_mode = mode;
        });
        client.events.clear();
        Slow {
            client,
            link,
            browses,
            requests: Vec::new(),
            outbox: VecDeque::new(),
            reading: None,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            said: Word::default(),
            heard: Word::default(),
            drained: Word::default(),
            allowed: 0,
            bodies: Vec::new(),
            unsent: Vec::new(),
            drains: 0,
        }
    }

    /// One more consumer of the same connection.
    pub(crate) fn other_link_of(&mut self, slow: &mut Slow, queue: &str) {
        self.any_link(&mut slow.client, Role::Receiver, |attach| {
            attach.source.as_mut().expect("a source").address = Some(Arc::from(queue));
        });
        slow.client.events.clear();
    }

    /// The instance takes what this connection asks for.
    pub(crate) fn steps_for(&mut self, slow: &mut Slow) {
        let requests = &mut slow.requests;
        let input = Input::Requests { connection: slow.client.id, requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.slices();
        self.route_to(slow);
    }

    /// What the log has is durable.
    pub(crate) fn syncs_for(&mut self, slow: &mut Slow) {
        self.log.durable.set(self.log.tail.get());
        let durable = Lsn(self.log.durable.get());
        self.instance.step(self.now, Input::Durable(durable), &self.log, &mut self.out);
        self.slices();
        self.route_to(slow);
    }

    fn route_to(&mut self, slow: &mut Slow) {
        slow.outbox.extend(self.out.routed.drain(..).map(|routed| routed.response));
    }

    /// Carries out one response, or begins to read a body (`slowly`), or ends that; `damaged`: if
    /// it can be. False: there was nothing to do.
    pub(crate) fn responds(&mut self, slow: &mut Slow, slowly: bool, damaged: bool) -> bool {
        let now = self.now;
        if let Some(Response::Deliver(delivery)) = slow.reading.take() {
            if damaged && delivery.persistent {
                self.find_damaged(slow, &delivery);
            } else {
                let body = Some(self.content(&delivery.body));
                let response = Response::Deliver(delivery);
                slow.client.front.respond(now, response, body, &mut slow.requests);
            }
        } else {
            let response = match slow.client.front.next_held(now, &mut slow.requests) {
                Some(held) => Some(held),
                None => match slow.outbox.pop_front() {
                    Some(response) => slow.client.front.admit(response),
                    None => {
                        // What only waited for the log, or for the window, is sent by now.
                        slow.emit();
                        return false;
                    }
                },
            };
            match response {
                Some(response @ Response::Deliver(_)) if slowly => slow.reading = Some(response),
                Some(response) => {
                    let body = match &response {
                        Response::Deliver(delivery) => Some(self.content(&delivery.body)),
                        _ => None,
                    };
                    slow.client.front.respond(now, response, body, &mut slow.requests);
                }
                None => {}
            }
        }
        slow.emit();
        true
    }

    fn find_damaged(&mut self, slow: &mut Slow, delivery: &Delivery) {
        if !slow.browses {
            let (queue, sequence) = (delivery.queue, delivery.sequence);
            let (consumer, place) = (Some(delivery.consumer), "somewhere".to_owned());
            let found = Unreadable { queue, sequence, consumer, place, lasts: true };
            self.instance.step(self.now, Input::Unreadable(found), &self.log, &mut self.out);
            assert!(matches!(self.out.aside.take(), Some(SetAside::Moved { .. })));
            self.out.damaged.clear();
            self.route_to(slow);
        }
        slow.unsent.push(delivery.sequence.0);
        slow.client.front.not_sent(delivery.consumer, &mut slow.requests);
    }
}

impl Slow {
    /// The client grants credit from here on; what it granted before is withdrawn.
    pub(crate) fn grants(&mut self, credit: u32, drain: bool) {
        match drain {
            true => self.client.machine.drain(self.link, credit),
            false => self.client.machine.set_credit(self.link, credit),
        }
        // A delivery uses credit up with its first frame.
        let begun =
            self.bodies.len() as u64 + u64::from(self.client.machine.unfinished_bytes() > 0);
        let limit = begun + u64::from(credit);
        self.said = Word { number: self.said.number + 1, limit };
        let bytes = flush(&mut self.client.machine);
        self.to_server.push_back((bytes, self.said));
    }

    /// The server takes what the client wrote. False: there is nothing.
    pub(crate) fn server_hears(&mut self, now: Time) -> bool {
        let Some((mut bytes, word)) = self.to_server.pop_front() else { return false };
        checks::take(&mut self.client.front, now, &mut bytes, &mut self.requests);
        self.heard = word;
        self.emit();
        true
    }

    /// Puts what the server wrote on its way, with the word under which it was written.
    fn emit(&mut self) {
        let mut output = VecDeque::new();
        self.client.front.take_output(&mut output, usize::MAX);
        let mut bytes = BytesMut::new();
        output.iter().for_each(|piece| bytes.extend_from_slice(piece));
        if !bytes.is_empty() {
            self.to_client.push_back((bytes, self.heard));
        }
    }

    /// The client takes what the server wrote, and accepts each message. False: there is nothing.
    pub(crate) fn client_hears(&mut self, now: Time) -> bool {
        let Some((mut bytes, word)) = self.to_client.pop_front() else { return false };
        let limit =
            if word.number <= self.drained.number { self.drained.limit } else { word.limit };
        self.allowed = self.allowed.max(limit);
        self.client.machine.receive(now, &mut bytes);
        while let Some(event) = self.client.machine.next_event() {
            match event {
                Event::Transfer(IncomingDelivery { delivery, payload, .. }) => {
                    let received =
                        Received { delivery, message_format: 0, payload: payload.to_contiguous() };
                    self.bodies.push(received.body());
                    let count = self.bodies.len() as u64;
                    assert!(count <= self.allowed, "delivery {count} under {word:?}");
                    self.allowed = limit;
                    let accepted = DeliveryState::Accepted;
                    self.client.machine.settle_incoming(delivery, accepted);
                }
                Event::Flow(flow) if flow.drain => {
                    self.drains += 1;
                    self.drained = Word { number: word.number, limit: self.bodies.len() as u64 };
                    self.allowed = self.drained.limit;
                }
                Event::Flow(_) => {}
                event => panic!("not expected: {event:?}"),
            }
        }
        let bytes = flush(&mut self.client.machine);
        if !bytes.is_empty() {
            self.to_server.push_back((bytes, self.said));
        }
        true
    }

    /// Credit that the client has granted and not got used.
    pub(crate) fn credit(&self) -> u32 {
        self.client.machine.link_credit(self.link).expect("a link")
    }

    /// Responses that wait in the outbox of the connection.
    pub(crate) fn outbox(&self) -> usize {
        self.outbox.len()
    }

    pub(crate) fn asks(&self) -> bool {
        !self.requests.is_empty()
    }
}
