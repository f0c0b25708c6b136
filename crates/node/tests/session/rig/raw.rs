//! What ordinary clients do not do: links with any terminus, deliveries with any bytes.

use towline_amqp::types::Coordinator;

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
