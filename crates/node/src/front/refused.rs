//! A delivery that is not taken: by its outcome where the sender hears one, by the end of its link
//! where it does not.
//!
//! | the sender                            | hears of it by                                   |
//! |---------------------------------------|--------------------------------------------------|
//! | has it unsettled, knows `rejected`    | `rejected`; the link goes on                     |
//! | does not know `rejected`              | a detach with the error                          |
//! | settled it                            | a detach, where it could have known better, or   |
//! |                                       | named the queue itself outside a unit of work;   |
//! |                                       | else nothing: it asked for no answer (a full     |
//! |                                       | queue, for example)                              |
//!
//! A unit of work that lost a message does not commit, so a sender that settled it there hears of
//! it at the discharge, and keeps its link.
//!
//! On an anonymous link the error carries the delivery-tag: the peer may have sent to many queues
//! (Anonymous Terminus for Message Routing, 2.2.2).

use towline_amqp::codec::{Symbols, Value};
use towline_amqp::types::{DeliveryTag, Error, condition};
use towline_amqp::{IncomingId, TooLong};
use towline_core::UnitId;
use towline_types::limits;

use super::links::LinkUse;
use super::{Front, message};
use crate::request::Request;

/// Name of the outcome by which a message is refused.
const REJECTED: &str = "amqp:rejected:list";

/// Which delivery is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedMessage {
    pub(super) delivery: IncomingId,
    pub(super) tag: Option<DeliveryTag>,
    pub(super) unit: Option<UnitId>,
    /// The sender could have known: the message itself is wrong.
    pub(super) avoidable: bool,
}

impl Front {
    /// Refuses a message that came on a producer's link.
    pub(super) fn refuse_message(
        &mut self,
        refused: RefusedMessage,
        mut error: Error,
        requests: &mut Vec<Request>,
    ) {
        let RefusedMessage { delivery, tag, unit, avoidable } = refused;
        let link = delivery.link;
        let (anonymous, rejects) = match self.links.get_mut(link).map(|link| &link.used_for) {
            Some(LinkUse::AnonymousProducer { rejects, .. }) => (true, *rejects),
            Some(LinkUse::Producer { rejects, .. }) => (false, *rejects),
            _ => (false, true),
        };
        if let Some(tag) = tag.filter(|_| anonymous) {
            error.fields = error.fields.with("delivery-tag", Value::Binary(tag.as_bytes()));
        }
        let silent = delivery.is_settled() && !avoidable && (!anonymous || unit.is_some());
        if silent || (!delivery.is_settled() && rejects) {
            return self.reject(delivery, unit, error);
        }
        self.units.spoil(unit);
        self.machine.detach(link, true, Some(error));
        self.detached(link, requests);
    }

    /// A message that is longer than its link takes.
    pub(super) fn too_long(&mut self, too_long: &TooLong, requests: &mut Vec<Request>) {
        let TooLong { transfer, bytes, bytes_max } = too_long;
        let delivery = transfer.delivery;
        let bytes_max = bytes_max.saturating_sub(limits::ENVELOPE_BYTES_MAX);
        let limit = match self.links.get_mut(transfer.link).map(|link| &mut link.used_for) {
            Some(LinkUse::Producer { credit, limit_of, .. }) => {
                *credit = credit.saturating_sub(1);
                match limit_of {
                    Some(queue) => format!(
                        "MAXMSGL({bytes_max}) of queue '{queue}'; raise it (ALTER QLOCAL('{queue}') \
                         MAXMSGL) and attach again, or send it in parts"
                    ),
                    None => format!(
                        "maxmsgl = {bytes_max} of the queue manager; raise it \
                         (queue_manager.maxmsgl in the configuration, at most {}), or send it in \
                         parts",
                        limits::MESSAGE_BYTES_MAX
                    ),
                }
            }
            Some(LinkUse::AnonymousProducer { credit, .. }) => {
                *credit = credit.saturating_sub(1);
                format!("the {bytes_max} bytes that any queue may take; send it in parts")
            }
            Some(LinkUse::Coordinator { credit, .. } | LinkUse::AdminRequests { credit }) => {
                *credit = credit.saturating_sub(1);
                "any request to this address".to_owned()
            }
            Some(
                LinkUse::Opening(_)
                | LinkUse::Abandoned
                | LinkUse::Consumer { .. }
                | LinkUse::AdminReplies { .. },
            )
            | None => return self.lost(transfer.state.as_ref()),
        };
        let text = format!("message of {bytes} bytes is longer than {limit}");
        let unit = message::unit_of(transfer.state.as_ref()).ok().flatten();
        if delivery.is_settled() && unit.is_none() {
            // It ends before its last frame, which might have named its unit.
            self.units.spoil_all();
        }
        let refused = RefusedMessage { delivery, tag: Some(transfer.tag), unit, avoidable: true };
        self.refuse_message(refused, Error::new(condition::MESSAGE_SIZE_EXCEEDED, &text), requests);
    }
}

/// Whether a source understands that a message is refused; one that names no outcomes does.
pub(super) fn knows_rejected(outcomes: &Symbols) -> bool {
    outcomes.iter().next().is_none() || outcomes.contains(REJECTED)
}
