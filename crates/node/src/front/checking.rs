//! Messages that take long to check: not here, where all connections of the thread would wait for
//! it, but wherever the driver has it done.
//!
//! What came behind such a message waits, so that the order of all that the peer asked for stays:
//! its events stay in the machine, and the driver reads nothing meanwhile.
//!
//! The link of the message may be detached meanwhile, by this side: then the message is lost with
//! it.
//!
//! Invariant: one message is checked at a time, and each is answered with [`Front::checked`].

use bytes::BytesMut;
use towline_amqp::IncomingDelivery;
use towline_amqp::types::Error;
use towline_types::{Payload, Time, limits};

use super::Front;
use super::message::{self, IncomingMessage};
use super::refused::RefusedMessage;
use crate::request::{ProducerId, Request};

/// A message that is to be checked: put together from its frames, and every value in it looked at.
#[derive(Debug)]
pub struct MessageCheck {
    now: Time,
    payload: Payload,
    format: u32,
    wants_to: bool,
}

/// What came of it.
#[derive(Debug)]
pub struct CheckedMessage(pub(super) Result<IncomingMessage, Error>);

impl MessageCheck {
    /// Does it; some ten milliseconds for each megabyte at worst.
    #[must_use]
    pub fn run(self) -> CheckedMessage {
        let MessageCheck { now, payload, format, wants_to } = self;
        CheckedMessage(message::from_payload(now, &payload, format, wants_to))
    }
}

/// A message whose check is not done.
#[derive(Debug)]
pub(super) struct PendingMessage {
    pub(super) refused: RefusedMessage,
    pub(super) producer: Option<ProducerId>,
    pub(super) bytes: usize,
    /// Until the driver has taken it.
    check: Option<MessageCheck>,
}

impl Front {
    /// Checks a message for `producer`, at once when it is short.
    pub(super) fn check(
        &mut self,
        now: Time,
        transfer: IncomingDelivery,
        producer: Option<ProducerId>,
        refused: RefusedMessage,
        requests: &mut Vec<Request>,
    ) {
        let now = now.moved(self.ahead_us);
        let IncomingDelivery { payload, message_format: format, .. } = transfer;
        let bytes = payload.len();
        let check = MessageCheck { now, payload, format, wants_to: producer.is_none() };
        if bytes <= limits::CHECKED_AT_ONCE_BYTES_MAX {
            let pending = PendingMessage { refused, producer, bytes, check: None };
            return self.put_checked(pending, check.run(), requests);
        }
        assert!(self.checking.is_none(), "what came behind it would overtake it");
        self.checking = Some(PendingMessage { refused, producer, bytes, check: Some(check) });
    }

    /// A message to check. Until [`Front::checked`] nothing that came behind it is looked at, and
    /// nothing is to be received.
    pub fn take_check(&mut self) -> Option<MessageCheck> {
        self.checking.as_mut()?.check.take()
    }

    /// Whether a message is being checked, or is to be.
    #[must_use]
    pub fn is_checking(&self) -> bool {
        self.checking.is_some()
    }

    /// The answer to [`Front::take_check`]; then as [`Front::receive`], with what the peer sent
    /// behind the message.
    pub fn checked(
        &mut self,
        now: Time,
        message: CheckedMessage,
        input: &mut BytesMut,
        requests: &mut Vec<Request>,
    ) {
        let Some(pending) = self.checking.take() else { return };
        assert!(pending.check.is_none(), "it was answered, and never taken");
        self.put_checked(pending, message, requests);
        self.take_events(now, requests);
        self.receive(now, input, requests);
    }

    /// Bytes of the message that is being checked.
    pub(super) fn checking_bytes(&self) -> u64 {
        self.checking.as_ref().map_or(0, |pending| pending.bytes as u64)
    }
}
