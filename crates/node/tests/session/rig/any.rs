//! A peer that writes any frame at any time, driven one small step at a time: what the instance
//! answers may wait while more frames come.

use std::collections::BTreeMap;

use towline_amqp::frame::Frame;
use towline_amqp::peer::text;
use towline_amqp::types::Performative;

use super::*;

/// What came about the sessions and links of the peer.
pub(crate) enum Seen {
    /// The server's number for the link of this name.
    Attached {
        name: Arc<str>,
        theirs: u32,
    },
    /// Deliveries that may have been sent on a link in all.
    Credit {
        theirs: u32,
        limit: u32,
    },
    Detached {
        theirs: u32,
    },
    Ended,
}

/// See the [module](self).
pub(crate) struct AnyPeer {
    pub(super) front: Front,
    id: ConnectionId,
    input: BytesMut,
    output: BytesMut,
    requests: Vec<Request>,
    outbox: VecDeque<Response>,
    /// Transactions that the server declared.
    pub(crate) units: Vec<TxnId>,
    /// Highest delivery that came, by channel.
    pub(crate) delivered: BTreeMap<u16, u32>,
    /// What the script has not looked at yet, with the channel.
    pub(crate) seen: Vec<(u16, Seen)>,
    /// Frames that came, by name: what a run reached.
    pub(crate) came: BTreeMap<&'static str, u64>,
}

impl Rig {
    /// A peer that is logged in, and whose channel 0 has a session.
    pub(crate) fn any_peer(&mut self) -> AnyPeer {
        let client = self.connect_with(ClientOptions::default());
        AnyPeer {
            front: client.front,
            id: client.id,
            input: BytesMut::new(),
            output: BytesMut::new(),
            requests: Vec::new(),
            outbox: VecDeque::new(),
            units: Vec::new(),
            delivered: BTreeMap::new(),
            seen: Vec::new(),
            came: BTreeMap::new(),
        }
    }

    /// The server reads a frame. Its requests wait for [`Rig::decide`].
    pub(crate) fn says(&mut self, peer: &mut AnyPeer, line: &str, payload: &[u8]) {
        let mut frame = text::encode(line);
        let bytes = u32::try_from(frame.len() + payload.len()).unwrap();
        frame[..4].copy_from_slice(&bytes.to_be_bytes());
        peer.input.extend_from_slice(&frame);
        peer.input.extend_from_slice(payload);
        checks::take(&mut peer.front, self.now, &mut peer.input, &mut peer.requests);
    }

    /// The instance takes what the peer asked for; answers wait for [`Rig::answers`].
    pub(crate) fn decide(&mut self, peer: &mut AnyPeer) {
        let requests = &mut peer.requests;
        let input = Input::Requests { connection: peer.id, requests };
        self.instance.step(self.now, input, &self.log, &mut self.out);
        self.settle_down();
        self.waiting.retain_mut(|(id, response)| {
            if *id == peer.id {
                let taken = std::mem::replace(response, Response::Ending(Farewell::Ending));
                peer.outbox.push_back(taken);
            }
            *id != peer.id
        });
    }

    /// The server acts on so many of the answers that wait, and writes so many bytes.
    pub(crate) fn answers(&mut self, peer: &mut AnyPeer, count: usize, bytes: usize) {
        for _ in 0..count {
            let Some(response) = peer.outbox.pop_front() else { break };
            let Some(response) = peer.front.admit(response) else { continue };
            let body = match &response {
                Response::Deliver(delivery) => Some(self.content(&delivery.body)),
                _ => None,
            };
            peer.front.respond(self.now, response, body, &mut peer.requests);
        }
        let mut output = VecDeque::new();
        peer.front.take_output(&mut output, bytes);
        output.iter().for_each(|piece| peer.output.extend_from_slice(piece));
        while let Some(frame) = Frame::take(&mut peer.output, u32::MAX).unwrap() {
            peer.reads(&frame);
        }
    }

    /// Whether the server has ended the connection; its consumers and units are gone then.
    pub(crate) fn is_over(&mut self, peer: &mut AnyPeer) -> bool {
        if !peer.front.is_finished() {
            return false;
        }
        self.loses(peer);
        true
    }

    /// The connection is gone.
    pub(crate) fn loses(&mut self, peer: &mut AnyPeer) {
        peer.requests.push(Request::Disconnect { lost: true });
        self.decide(peer);
    }

    /// Time passes, for the instance and the connection.
    pub(crate) fn passes(&mut self, peer: &mut AnyPeer, us: u64) {
        self.now = Time(self.now.0 + us);
        self.instance.step(self.now, Input::Tick, &self.log, &mut self.out);
        peer.front.tick(self.now, &mut peer.requests);
    }
}

impl AnyPeer {
    fn reads(&mut self, frame: &Frame) {
        if frame.body.is_empty() {
            return;
        }
        let (performative, _) = Performative::decode(&frame.body).unwrap();
        let name = match &performative {
            Performative::Open(_) => "open",
            Performative::Begin(_) => "begin",
            Performative::Attach(_) => "attach",
            Performative::Flow(_) => "flow",
            Performative::Transfer(_) => "transfer",
            Performative::Disposition(_) => "disposition",
            Performative::Detach(_) => "detach",
            Performative::End(_) => "end",
            Performative::Close(_) => "close",
        };
        *self.came.entry(name).or_default() += 1;
        let channel = frame.channel;
        match performative {
            Performative::Attach(attach) => {
                let (name, theirs) = (attach.name, attach.handle);
                self.seen.push((channel, Seen::Attached { name, theirs }));
            }
            Performative::Flow(flow) => {
                if let (Some(theirs), Some(credit)) = (flow.handle, flow.link_credit) {
                    let limit = flow.delivery_count.unwrap_or(0).wrapping_add(credit);
                    self.seen.push((channel, Seen::Credit { theirs, limit }));
                }
            }
            Performative::Detach(detach) => {
                self.seen.push((channel, Seen::Detached { theirs: detach.handle }));
            }
            Performative::End(_) => self.seen.push((channel, Seen::Ended)),
            Performative::Disposition(disposition) => {
                if let Some(DeliveryState::Declared { txn_id }) = disposition.state {
                    self.units.push(txn_id);
                }
            }
            Performative::Transfer(transfer) => {
                let newest = transfer.delivery_id.or(self.delivered.get(&frame.channel).copied());
                self.delivered.insert(frame.channel, newest.unwrap_or(0));
            }
            _ => {}
        }
    }
}
