//! Getting and browsing messages.

use std::time::{Duration, Instant};

use towline_amqp::codec::{OwnedValue, Value};
use towline_amqp::types::{DeliveryState, DistributionMode, LinkTarget, Role, Source, Target};
use towline_amqp::{IncomingId, LinkId};
use towline_types::Payload;

use crate::client::{ACCEPTED, Client};
use crate::error::Error;
use crate::link::Receiver;
use crate::message::{Message, Property};
use crate::unit::Unit;

/// The name under which brokers know the selector filter, and its numeric descriptor (registered
/// for Apache: 0x0000468C00000004).
const SELECTOR_FILTER: &str = "apache.org:selector-filter:string";
const SELECTOR_DESCRIPTOR: u64 = 0x0000_468C_0000_0004;

/// How to open a queue for getting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// Only look: messages stay.
    pub browse: bool,
    /// A JMS selector.
    pub selector: Option<String>,
    /// Most messages that are on their way to us at one time.
    pub window: u32,
    /// Most messages that are ever wanted; `None`: no end.
    pub total: Option<u64>,
}

impl Default for ReceiverOptions {
    fn default() -> ReceiverOptions {
        ReceiverOptions { browse: false, selector: None, window: 100, total: None }
    }
}

/// A message that came, until it is accepted or released.
#[derive(Clone, Debug)]
pub struct Delivery {
    id: IncomingId,
    pub(crate) payload: Payload,
}

impl Delivery {
    /// The message.
    ///
    /// # Errors
    /// [`Error::Unexpected`] when it is not well formed.
    pub fn message(&self) -> Result<Message, Error> {
        Message::decode(&self.payload)
    }

    /// Whether it is the note of a damaged message that was set aside: the server has kept the
    /// position of the content, and this text is all that a copy would have of it.
    #[must_use]
    pub fn is_damage_note(&self) -> bool {
        let Ok(message) = self.message() else { return false };
        let text = |name| match message.property(name) {
            Some(Property::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        text("DamagedAt").is_some() && text("DeadLetterReason") == Some("message-damaged")
    }
}

impl Client {
    /// Opens a queue for getting or browsing. Nothing comes before [`Client::receive`] asks for it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the server does not let us, or does not understand the selector.
    pub fn receiver(
        &mut self,
        address: &str,
        options: &ReceiverOptions,
    ) -> Result<Receiver, Error> {
        let mut request = self.request("get", Role::Receiver);
        let mut source = Source { address: Some(address.into()), ..Source::default() };
        if options.browse {
            source.distribution_mode = Some(DistributionMode::Copy);
        }
        if let Some(selector) = &options.selector {
            let filter =
                OwnedValue::described(Value::Ulong(SELECTOR_DESCRIPTOR), Value::String(selector));
            source.filter = source.filter.with(SELECTOR_FILTER, filter.view());
        }
        request.source = Some(Box::new(source));
        request.target = Some(Box::new(LinkTarget::Target(Target::default())));
        let link = self.attach(request)?;
        Ok(Receiver { link, window: options.window.max(1), left: options.total })
    }

    /// The next message, waited for up to `wait` (`None`: for ever). `Ok(None)` is the server's
    /// word that it has none: at the end of the wait it is asked to give the credit back, so no
    /// message is on its way when this returns.
    ///
    /// # Errors
    /// When the link or the connection is lost.
    pub fn receive(
        &mut self,
        receiver: &mut Receiver,
        wait: Option<Duration>,
    ) -> Result<Option<Delivery>, Error> {
        let link = receiver.link;
        let deadline = wait.map(|wait| Instant::now() + wait);
        loop {
            self.ask(receiver)?;
            if let Some(delivery) = self.take(link) {
                return Ok(Some(delivery));
            }
            self.alive()?;
            self.check(link)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            self.step(deadline)?;
        }
        let Some(kept) = self.links.get_mut(&link).filter(|link| link.granted > 0) else {
            return Ok(None);
        };
        kept.draining = true;
        let granted = kept.granted;
        self.connection.drain(link, granted);
        self.wait("a drain", |client| {
            let kept = client.links.get(&link);
            kept.is_none_or(|kept| kept.ended.is_some() || !kept.draining || !kept.inbox.is_empty())
        })?;
        match self.take(link) {
            Some(delivery) => Ok(Some(delivery)),
            None => self.check(link).map(|()| None),
        }
    }

    /// Grants credit when half of it is used.
    pub(crate) fn ask(&mut self, receiver: &mut Receiver) -> Result<(), Error> {
        let Some(kept) = self.links.get_mut(&receiver.link) else { return Ok(()) };
        // Not before the drain is answered: what is granted until then may still come.
        let returned = std::mem::take(&mut kept.returned);
        receiver.left = receiver.left.map(|left| left.saturating_add(returned));
        let waiting = u32::try_from(kept.inbox.len()).unwrap_or(u32::MAX);
        let held = kept.granted.saturating_add(waiting);
        if kept.draining || held > receiver.window / 2 {
            return Ok(());
        }
        let room = u64::from(receiver.window.saturating_sub(held));
        let more = receiver.left.map_or(room, |left| left.min(room));
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        if more == 0 {
            return Ok(());
        }
        if let Some(left) = &mut receiver.left {
            *left = left.saturating_sub(u64::from(more));
        }
        kept.granted = kept.granted.saturating_add(more);
        let granted = kept.granted;
        self.connection.set_credit(receiver.link, granted);
        self.push()
    }

    fn take(&mut self, link: LinkId) -> Option<Delivery> {
        let transfer = self.links.get_mut(&link)?.inbox.pop_front()?;
        Some(Delivery { id: transfer.delivery, payload: transfer.payload })
    }

    /// Accepts a message: it is gone from the queue, at once or when the unit commits. Outside of a
    /// unit that may not be durable yet: see [`Client::confirm`].
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn accept(&mut self, delivery: &Delivery, unit: Option<&Unit>) -> Result<(), Error> {
        match unit {
            None => self.accept_plainly(delivery.id),
            Some(unit) => {
                let outcome = Some(ACCEPTED);
                let state = DeliveryState::Transactional { txn_id: unit.id, outcome };
                self.connection.update_incoming(delivery.id, Some(state), true);
            }
        }
        self.push()
    }

    /// An answer is asked for with the last message of those that have come, not with each: the
    /// server answers when that one is gone for good, and its log keeps the order.
    fn accept_plainly(&mut self, id: IncomingId) {
        let more = self.links.get(&id.link).is_some_and(|link| !link.inbox.is_empty());
        if more || id.is_settled() {
            self.connection.settle_incoming(id, DeliveryState::Accepted);
        } else {
            self.connection.update_incoming(id, Some(DeliveryState::Accepted), false);
            self.unconfirmed.push(id);
        }
    }

    /// Whether messages of a receiver were accepted outside of units, and the server has not
    /// answered that they are gone for good: when its link or connection ends then, they may come
    /// again.
    #[must_use]
    pub fn has_unconfirmed(&self, receiver: &Receiver) -> bool {
        self.unconfirmed.iter().any(|id| id.link == receiver.link)
    }

    /// Waits until all messages of a receiver that were accepted outside of units are gone for
    /// good: they do not come again, whatever happens to the server.
    ///
    /// # Errors
    /// When the server does not say so.
    pub fn confirm(&mut self, receiver: &Receiver) -> Result<(), Error> {
        let link = receiver.link;
        self.wait("the settlement of the messages", |client| {
            !client.has_unconfirmed(receiver)
                || client.links.get(&link).is_none_or(|link| link.ended.is_some())
        })?;
        if self.has_unconfirmed(receiver) { self.check(link) } else { Ok(()) }
    }

    /// Gives a message back as if it had not been delivered.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn release(&mut self, delivery: &Delivery) -> Result<(), Error> {
        self.connection.settle_incoming(delivery.id, DeliveryState::Released);
        self.push()
    }

    /// Gives a message back that this receiver does not want again; no backout is counted.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn decline(&mut self, delivery: &Delivery) -> Result<(), Error> {
        let (delivery_failed, undeliverable_here) = (false, true);
        let state =
            DeliveryState::Modified { delivery_failed, undeliverable_here, annotations: None };
        self.connection.settle_incoming(delivery.id, state);
        self.push()
    }

    /// Closes a receiver; what came and was not accepted goes back.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn close_receiver(&mut self, receiver: &Receiver) -> Result<(), Error> {
        self.detach(receiver.link)
    }
}
