//! Putting messages.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use towline_amqp::sections::{Header, encode_header};
use towline_amqp::types::{DeliveryState, LinkTarget, Role, Source, Target};
use towline_amqp::{LinkId, Outgoing};
use towline_types::Payload;

use crate::client::Client;
use crate::error::Error;
use crate::link::Sender;
use crate::message::Message;
use crate::receive::Delivery;
use crate::unit::Unit;

/// A persistent message of these sections (message annotations and the bare message), with a header
/// of its own in front.
#[must_use]
pub fn encoded(priority: u8, ttl_ms: Option<u32>, sections: &Bytes) -> Payload {
    let header =
        Header { durable: Some(true), priority: Some(priority), ttl_ms, ..Header::default() };
    let mut bytes = BytesMut::new();
    encode_header(&mut bytes, &header);
    bytes.extend_from_slice(sections);
    Payload::from(bytes.freeze())
}

impl Client {
    /// Opens a queue for putting.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server does not let us.
    pub fn sender(&mut self, address: &str) -> Result<Sender, Error> {
        let mut request = self.request("put", Role::Sender);
        let address: Arc<str> = address.into();
        request.source = Some(Box::new(Source::default()));
        let target = Target { address: Some(address), ..Target::default() };
        request.target = Some(Box::new(LinkTarget::Target(target)));
        Ok(Sender { link: self.attach(request)? })
    }

    /// Sends a message; waits for credit, but not for the outcome.
    ///
    /// # Errors
    /// Also when a message before was refused.
    pub fn send(
        &mut self,
        sender: Sender,
        message: &Message,
        unit: Option<&Unit>,
    ) -> Result<(), Error> {
        let state =
            unit.map(|unit| DeliveryState::Transactional { txn_id: unit.id, outcome: None });
        self.send_payload(sender.link, message.encode(), state)
    }

    /// Sends what came, byte for byte, to another queue; otherwise as [`Client::send`].
    ///
    /// # Errors
    /// Also when a message before was refused.
    pub fn send_again(
        &mut self,
        sender: Sender,
        delivery: &Delivery,
        unit: Option<&Unit>,
    ) -> Result<(), Error> {
        let state =
            unit.map(|unit| DeliveryState::Transactional { txn_id: unit.id, outcome: None });
        self.send_payload(sender.link, delivery.payload.clone(), state)
    }

    /// Sends a message that is encoded already ([`encoded`]); otherwise as [`Client::send`].
    ///
    /// # Errors
    /// Also when a message before was refused.
    pub fn send_encoded(
        &mut self,
        sender: Sender,
        content: Payload,
        unit: Option<&Unit>,
    ) -> Result<(), Error> {
        let state =
            unit.map(|unit| DeliveryState::Transactional { txn_id: unit.id, outcome: None });
        self.send_payload(sender.link, content, state)
    }

    pub(crate) fn send_payload(
        &mut self,
        link: LinkId,
        content: Payload,
        state: Option<DeliveryState>,
    ) -> Result<(), Error> {
        self.wait("a request for credit", |client| {
            let link = client.links.get(&link);
            link.is_none_or(|link| link.ended.is_some() || link.sent < link.allowed)
        })?;
        self.check(link)?;
        let Some(kept) = self.links.get_mut(&link) else {
            return Err(Error::Lost("the link is gone".into()));
        };
        let key = kept.sent;
        kept.sent = kept.sent.saturating_add(1);
        kept.unsettled.insert(key);
        let outgoing = Outgoing { content, state, ..Outgoing::default() };
        self.connection.send(link, key, outgoing);
        self.push()?;
        self.refusal(link)
    }

    /// Waits until at most so many messages of a sender are without an outcome.
    ///
    /// # Errors
    /// [`Error::Refused`] when one of them was refused.
    pub fn settle_to(&mut self, sender: Sender, unsettled_max: usize) -> Result<(), Error> {
        self.wait("a message", |client| {
            let link = client.links.get(&sender.link);
            link.is_none_or(|link| {
                link.ended.is_some()
                    || link.refusal.is_some()
                    || link.unsettled.len() <= unsettled_max
            })
        })?;
        self.refusal(sender.link)?;
        self.check(sender.link)
    }

    /// How many messages of a sender were accepted, when the outcomes of all that were sent are
    /// known or the connection cannot report them any more.
    pub fn accepted(&mut self, sender: Sender) -> u64 {
        let most = self.links.get(&sender.link).map_or(0, |link| link.unsettled.len());
        // Each refusal is reported once, and there are no more of them than messages on their way.
        for _ in 0..=most {
            match self.settle_to(sender, 0) {
                Err(Error::Refused { .. }) => {}
                Ok(()) | Err(_) => break,
            }
        }
        self.links.get(&sender.link).map_or(0, |link| link.accepted)
    }

    /// Reports a refusal once.
    fn refusal(&mut self, link: LinkId) -> Result<(), Error> {
        let refusal = self.links.get_mut(&link).and_then(|link| link.refusal.take());
        refusal.map_or(Ok(()), Err)
    }

    /// Closes the sender.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn close_sender(&mut self, sender: Sender) -> Result<(), Error> {
        self.detach(sender.link)
    }
}
