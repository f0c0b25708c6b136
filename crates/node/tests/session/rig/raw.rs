//! What ordinary clients do not do: links with any terminus, deliveries with any bytes.

use towline_amqp::types::Coordinator;
use towline_core::ConsumerId;
use towline_node::{ConsumerOpened, LinkToken};

use super::*;

impl Rig {
    /// A link with an attach as `change` leaves it. It may have been refused: see [`Rig::ending`].
    pub(crate) fn any_link(
        &mut self,
        client: &mut Client,
        role: Role,
        change: impl FnOnce(&mut AttachRequest),
    ) -> LinkId {
        client.links += 1;
        let mut request = AttachRequest {
            name: Arc::from(format!("link-{}", client.links)),
            role,
            source: Some(Box::default()),
            target: Some(Box::new(LinkTarget::Target(Target::default()))),
            sender_settle_mode: SenderSettleMode::Mixed,
            receiver_settle_mode: ReceiverSettleMode::First,
            message_bytes_max: 0,
            desired_capabilities: Default::default(),
            properties: Map::default(),
        };
        change(&mut request);
        let link = client.machine.attach(client.session, request).unwrap();
        self.exchange(client);
        link
    }

    /// A receiver of which the instance is not asked: this answers for it. The token of the link.
    pub(crate) fn receiver_by_token(
        &mut self,
        client: &mut Client,
        consumer: ConsumerId,
    ) -> (LinkId, LinkToken) {
        let request = AttachRequest {
            name: Arc::from(format!("{consumer:?}")),
            role: Role::Receiver,
            source: Some(Box::new(Source { address: Some(Arc::from("Q")), ..Source::default() })),
            target: Some(Box::new(LinkTarget::Target(Target::default()))),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            message_bytes_max: 0,
            desired_capabilities: Default::default(),
            properties: Map::default(),
        };
        let id = client.machine.attach(client.session, request).unwrap();
        let requests = self.asked_by(client);
        let [Request::OpenConsumer { link, .. }] = requests[..] else { panic!("{requests:?}") };
        let opened = ConsumerOpened { consumer, address: "Q".into(), goes_with_link: false };
        let response = Response::ConsumerOpened { link, result: Ok(opened) };
        assert!(self.asked_after(client, response).is_empty());
        (id, link)
    }

    /// What the front asks for when it has what the client wrote.
    pub(crate) fn asked_by(&mut self, client: &mut Client) -> Vec<Request> {
        let (mut bytes, mut requests) = (flush(&mut client.machine), Vec::new());
        client.front.receive(self.now, &mut bytes, &mut requests);
        requests
    }

    /// What it asks for when it has this response.
    pub(crate) fn asked_after(&self, client: &mut Client, response: Response) -> Vec<Request> {
        let mut requests = Vec::new();
        client.front.respond(self.now, response, None, &mut requests);
        requests
    }

    /// The client detaches a link; what the front asks for then.
    pub(crate) fn asked_at_detach(&mut self, client: &mut Client, link: LinkId) -> Vec<Request> {
        client.machine.detach(link, true, None);
        self.asked_by(client)
    }

    /// A client with this container id, which asks to be the only one of it or does not.
    pub(crate) fn connect_as(&mut self, container: &str, sole: bool) -> Client {
        let wishes: &[&str] = if sole { &[SOLE_CONNECTION] } else { &[] };
        self.connect_with(ClientOptions {
            container_id: Arc::from(container),
            desired_capabilities: wishes.iter().copied().collect(),
            ..ClientOptions::default()
        })
    }

    /// Why the server closed the connection, if it did.
    pub(crate) fn closing(client: &Client) -> Option<Error> {
        client.events.iter().find_map(|event| match event {
            Event::Closed { error, .. } => Some(error.clone().expect("a reason")),
            _ => None,
        })
    }

    /// What the server's open frame says beside its limits.
    pub(crate) fn open_properties(client: &Client) -> &Map {
        let opened = client.events.iter().find_map(|event| match event {
            Event::Opened(opened) => Some(&opened.properties),
            _ => None,
        });
        opened.expect("an open frame")
    }

    /// The answer to the attach.
    pub(crate) fn answer(client: &Client, link: LinkId) -> &PeerAttach {
        let answer = client.events.iter().find_map(|event| match event {
            Event::Attached(attached) if attached.link == link => Some(attached),
            _ => None,
        });
        answer.expect("an attach")
    }

    pub(crate) fn anonymous_sender(&mut self, client: &mut Client) -> LinkId {
        self.any_link(client, Role::Sender, |_| {})
    }

    /// Why the server ended the link, if it did.
    pub(crate) fn ending(client: &Client, link: LinkId) -> Option<Error> {
        client.events.iter().find_map(|event| match event {
            Event::Detached { link: gone, error, .. } if *gone == link => {
                Some(error.clone().expect("a reason"))
            }
            _ => None,
        })
    }

    pub(crate) fn send_raw(
        &mut self,
        client: &mut Client,
        link: LinkId,
        key: u64,
        outgoing: Outgoing,
    ) {
        client.machine.send(link, key, outgoing);
        self.exchange(client);
    }

    /// A message that is not one, inside a unit of work.
    pub(crate) fn send_malformed_in(
        &mut self,
        client: &mut Client,
        link: LinkId,
        key: u64,
        unit: &TxnId,
    ) {
        let state = Some(DeliveryState::Transactional { txn_id: *unit, outcome: None });
        let content = Payload::from(Bytes::from_static(b"\x00\x53\x77\xff"));
        client.machine.send(link, key, Outgoing { content, state, ..Outgoing::default() });
        self.exchange(client);
    }

    /// The only outcome since the last look, which must be `rejected`: its error.
    pub(crate) fn rejection(&mut self, client: &mut Client) -> Error {
        match &self.outcomes(client)[..] {
            [(_, Some(DeliveryState::Rejected { error: Some(error) }))] => Error::clone(error),
            other => panic!("not one rejection: {other:?}"),
        }
    }

    /// How often credit came on a link of ours since the last look.
    pub(crate) fn flows(client: &Client, link: LinkId) -> usize {
        let flows = client
            .events
            .iter()
            .filter(|event| matches!(event, Event::Flow(flow) if flow.link == link));
        flows.count()
    }

    pub(crate) fn coordinator(&mut self, client: &mut Client) -> LinkId {
        self.any_link(client, Role::Sender, |request| {
            request.target = Some(Box::new(LinkTarget::Coordinator(Coordinator::default())));
        })
    }
}
