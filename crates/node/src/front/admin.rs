//! The administration node `$admin`: requests arrive on one link, answers leave on another of the
//! same connection, matched by correlation id.
//!
//! A request is a message with a string body, a correlation id, and the application property
//! `kind`.

use towline_amqp::codec::Value;
use towline_amqp::sections::{MessageBuilder, Properties, PropertyValue, Sections};
use towline_amqp::types::{DeliveryState, Error, condition};
use towline_amqp::{IncomingDelivery, Outgoing};
use towline_types::Payload;

use super::links::LinkUse;
use super::{Front, InFlight};
use crate::request::{AdminReply, Request};

/// Answers that may wait for credit, or for a link on which they can leave.
const REPLIES_MAX: usize = 64;
/// The part of a connection's memory (one in so many) beyond which answers are dropped that have no
/// link to leave on.
const REPLIES_SHARE: u64 = 4;

/// What a client hears that may not administer.
pub(super) const NOT_AUTHORIZED: &str = "not authorized to administer: use the local socket (--data), or log in with a name that \
     stands in users.administrators of the configuration file";

impl Front {
    /// Whether this connection may administer now.
    pub(super) fn may_administer(&self) -> bool {
        self.logins.may_administer(self.user.as_deref())
    }

    pub(super) fn administer(&mut self, transfer: &IncomingDelivery, requests: &mut Vec<Request>) {
        let delivery = transfer.delivery;
        let whole = transfer.payload.to_contiguous();
        match parse(&whole) {
            // Asked at each request: the right may have been taken away since the link was
            // attached.
            Ok(_) if !self.may_administer() => {
                let refusal = Error::new(condition::UNAUTHORIZED_ACCESS, NOT_AUTHORIZED);
                self.reject(delivery, None, refusal);
            }
            Ok(AdminRequest { kind, text, correlation }) => {
                let in_flight = InFlight { delivery, bytes: 0, tag: None };
                let token = self.in_flight.insert(in_flight) as u64;
                self.admin_correlations.insert(token, correlation);
                let owner = self.logins.is_owner();
                requests.push(Request::Admin { token, kind, text, owner });
            }
            Err(why) => {
                self.reject(delivery, None, Error::new(condition::DECODE_ERROR, why));
            }
        }
    }

    pub(super) fn admin_answered(&mut self, reply: AdminReply) {
        let correlation = self.admin_correlations.remove(&reply.token);
        let (Some(correlation), Some(delivery)) = (correlation, self.take_in_flight(reply.token))
        else {
            unreachable!("an administration request is answered once")
        };
        self.machine.settle_incoming(delivery, DeliveryState::Accepted);
        let properties = Properties {
            correlation_id: Some(towline_amqp::sections::MessageId::String(&correlation)),
            ..Properties::default()
        };
        let message =
            MessageBuilder::new().properties(properties).value(Value::String(&reply.json));
        // With a link for them none is lost: its client gets no credit for more requests.
        let has_link = self.links.admin_replies().is_some();
        let fits = (self.admin_replies_bytes as u64) < self.bytes_max / REPLIES_SHARE;
        if has_link || (self.admin_replies.len() < REPLIES_MAX && fits) {
            let content = Payload::from(message);
            self.admin_replies_bytes += content.len();
            self.admin_replies.push_back(Outgoing {
                content,
                settled: true,
                ..Outgoing::default()
            });
        }
        self.send_admin_replies();
        self.refill(delivery.link);
    }

    pub(super) fn send_admin_replies(&mut self) {
        let Some(link) = self.links.admin_replies() else { return };
        let id = link.id;
        let LinkUse::AdminReplies { credit } = &mut link.used_for else { return };
        let waited = self.admin_replies.len();
        while *credit > 0 {
            let Some(reply) = self.admin_replies.pop_front() else { break };
            // Credit counts on it.
            assert!(self.admin_replies_bytes >= reply.content.len(), "an answer was not counted");
            self.admin_replies_bytes -= reply.content.len();
            *credit -= 1;
            self.machine.send(id, 0, reply);
        }
        if self.admin_replies.len() < waited {
            for requests in self.links.admin_requests() {
                self.refill(requests);
            }
        }
    }
}

/// Kind, text and correlation id of a request.
/// What an administrator asks for.
struct AdminRequest {
    /// `mqsc`, `status` and the like.
    kind: String,
    text: String,
    /// By which the client knows the answer.
    correlation: String,
}

fn parse(message: &[u8]) -> Result<AdminRequest, &'static str> {
    let sections = Sections::scan_checked(message).map_err(|_| "the request is malformed")?;
    let properties = sections.properties(message).map_err(|_| "the request is malformed")?;
    let correlation = properties.correlation_id.ok_or("a request needs a correlation id")?;
    let kind = match sections.application_property(message, "kind") {
        Some(PropertyValue::Text(kind)) => kind.to_owned(),
        _ => return Err("a request needs the application property `kind`"),
    };
    let text = match sections.value(message) {
        Some(Value::String(text)) => text.to_owned(),
        _ => return Err("a request needs a body of one string"),
    };
    let correlation = correlation.correlation_id_text().into_owned();
    Ok(AdminRequest { kind, text, correlation })
}
