//! The links of a client: what to ask for, and how much may be sent.

use std::sync::Arc;

use towline_amqp::Connection;
use towline_amqp::codec::{Map, Symbols};
use towline_amqp::event::{AttachRequest, LinkFlow, LinkId, Outgoing, SessionId};
use towline_amqp::types::{
    Coordinator, DeliveryState, LinkTarget, ReceiverSettleMode, Role, SenderSettleMode, Source,
    Target,
};
use towline_types::Payload;

/// Begins a session, and asks for links in it.
pub(super) struct Asking<'a> {
    connection: &'a mut Connection,
    session: Option<SessionId>,
    index: u32,
}

impl<'a> Asking<'a> {
    /// `index` is the client's, and makes link names unique.
    pub(super) fn begin(connection: &'a mut Connection, index: u32) -> Asking<'a> {
        let session = connection.begin();
        Asking { connection, session, index }
    }

    /// A link that puts to `address`; to wherever each message says when there is none.
    pub(super) fn sender(&mut self, address: Option<&Arc<str>>) -> Option<LinkId> {
        let target = Target { address: address.cloned(), ..Target::default() };
        self.ask("put", Role::Sender, Source::default(), LinkTarget::Target(target))
    }

    /// A link that gets from `address`; from a new dynamic queue when there is none.
    pub(super) fn receiver(&mut self, address: Option<&Arc<str>>) -> Option<LinkId> {
        let source =
            Source { address: address.cloned(), dynamic: address.is_none(), ..Source::default() };
        self.ask("get", Role::Receiver, source, LinkTarget::Target(Target::default()))
    }

    /// A link to the transaction coordinator.
    pub(super) fn coordinator(&mut self) -> Option<LinkId> {
        let target = LinkTarget::Coordinator(Coordinator::default());
        self.ask("unit", Role::Sender, Source::default(), target)
    }

    fn ask(
        &mut self,
        what: &str,
        role: Role,
        source: Source,
        target: LinkTarget,
    ) -> Option<LinkId> {
        let request = AttachRequest {
            name: format!("{what}-{}", self.index).into(),
            role,
            source: Some(Box::new(source)),
            target: Some(Box::new(target)),
            sender_settle_mode: SenderSettleMode::Unsettled,
            receiver_settle_mode: ReceiverSettleMode::First,
            message_bytes_max: 0,
            desired_capabilities: Symbols::default(),
            properties: Map::default(),
        };
        self.connection.attach(self.session?, request)
    }
}

/// A link that we send on, with its credit.
#[derive(Debug, Default)]
pub(super) struct Sender {
    link: Option<LinkId>,
    sent: u64,
    /// Deliveries that may ever be sent on it.
    limit: u64,
}

impl Sender {
    /// A link just asked for.
    pub(super) fn new(link: Option<LinkId>) -> Sender {
        Sender { link, ..Sender::default() }
    }

    /// Whether an event belongs to it.
    pub(super) fn is(&self, link: LinkId) -> bool {
        self.link == Some(link)
    }

    /// Credit moved on some link.
    pub(super) fn flow(&mut self, flow: LinkFlow) {
        if self.is(flow.link) {
            self.limit = flow.sends + u64::from(flow.credit);
        }
    }

    /// Deliveries that may be sent now.
    pub(super) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.sent)
    }

    /// Sends a message that waits for an outcome.
    pub(super) fn send(
        &mut self,
        connection: &mut Connection,
        key: u64,
        content: Payload,
        state: Option<DeliveryState>,
    ) {
        let Some(link) = self.link else { return };
        self.sent += 1;
        connection.send(link, key, Outgoing { content, state, ..Outgoing::default() });
    }

    /// Forgets a delivery after its outcome came unsettled.
    pub(super) fn settle(&self, connection: &mut Connection, key: u64) {
        if let Some(link) = self.link {
            connection.settle_outgoing(link, key, None);
        }
    }
}
