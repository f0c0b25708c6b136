//! What clients of these tests do on links.

use towline_amqp::codec::{Map, Value};
use towline_amqp::sections::{Header, MessageBuilder};
use towline_amqp::types::{
    DeliveryState, LinkTarget, ReceiverSettleMode, Role, SenderSettleMode, Source, Target,
};
use towline_amqp::{AttachRequest, LinkId, Outgoing, SessionId};
use towline_types::Payload;

use super::*;

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) async fn sender(&mut self, queue: &str) -> LinkId {
        self.opened().await;
        self.one_more_sender(queue).await
    }

    pub(super) async fn one_more_sender(&mut self, queue: &str) -> LinkId {
        let session = self.machine.begin().unwrap();
        let name = format!("{queue} on {session:?}");
        let link = self.attach(session, queue, Role::Sender, &name);
        while self.machine.allowance(link).credit == 0 {
            self.event().await.expect("it is attached");
        }
        link
    }

    /// So many consumers, without credit.
    pub(super) async fn receivers(&mut self, queue: &str, count: u64) -> Vec<LinkId> {
        self.opened().await;
        let session = self.machine.begin().unwrap();
        let attach = |name: u64| self.attach(session, queue, Role::Receiver, &name.to_string());
        let links: Vec<LinkId> = (0..count).map(attach).collect();
        for _ in &links {
            while !matches!(self.event().await, Some(Event::Attached(_))) {}
        }
        links
    }

    fn attach(&mut self, session: SessionId, queue: &str, role: Role, name: &str) -> LinkId {
        let address = |of| (role == of).then(|| Arc::from(queue));
        let source = Source { address: address(Role::Receiver), ..Source::default() };
        let target = Target { address: address(Role::Sender), ..Target::default() };
        let request = AttachRequest {
            name: Arc::from(name),
            role,
            source: Some(Box::new(source)),
            target: Some(Box::new(LinkTarget::Target(target))),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            message_bytes_max: 0,
            desired_capabilities: Default::default(),
            properties: Map::default(),
        };
        self.machine.attach(session, request).unwrap()
    }

    pub(super) fn send(&mut self, link: LinkId, key: u64, durable: bool, bytes: usize) {
        let header = Header { durable: Some(durable), ..Header::default() };
        let body = vec![b'x'; bytes];
        let message = MessageBuilder::new().header(header).value(Value::Binary(&body));
        let content = Payload::from(message);
        self.machine.send(link, key, Outgoing { content, ..Outgoing::default() });
    }

    /// Waits until so many messages were accepted.
    pub(super) async fn accepted(&mut self, count: u64) {
        let mut accepted = 0;
        while accepted < count {
            if let Some(Event::Outcome { state, .. }) = self.event().await {
                assert_eq!(state, Some(DeliveryState::Accepted));
                accepted += 1;
            }
        }
    }
}
