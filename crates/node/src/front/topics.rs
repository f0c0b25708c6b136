//! Topics do not exist yet, and nothing that asks for one gets a queue of that name instead: every
//! way in that names a topic is recognised here and refused with `amqp:not-implemented`.
//!
//! The ways: a capability of a terminus, a prefix of an address, the annotation by which JMS
//! clients say what kind of destination `to` names (AMQP JMS binding, 3.2.1 and 5.2), and a
//! subscription (durable, shared) of whatever address.
//!
//! It does *not* look at `reply-to`: the responder decides where its answers go.

use towline_amqp::PeerAttach;
use towline_amqp::codec::{MapView, Symbols, Value};
use towline_amqp::types::{Error, ExpiryPolicy, Source, TerminusDurability, condition};

/// Annotation with the kind of the destination in `to`, as a byte.
const DESTINATION_KIND: &str = "x-opt-jms-dest";
/// Its values for topics: 1, and 3 for a temporary one.
const TOPIC_KINDS: [i64; 2] = [1, 3];
/// The same as text, `topic` or `topic,temporary`: how JMS clients said it before.
const OLD_DESTINATION_KIND: &str = "x-opt-to-type";

/// Why a topic, or what only topics have, is refused.
pub(super) fn unsupported(what: &str) -> Error {
    let text = format!("{what}: topics are not supported yet; use a queue");
    Error::new(condition::NOT_IMPLEMENTED, &text)
}

/// Whether a terminus asks for a topic or a temporary one.
pub(super) fn is_wanted(capabilities: &Symbols, address: Option<&str>) -> bool {
    let named = |capability: &str| capability == "topic" || capability == "temporary-topic";
    capabilities.iter().any(named) || address.is_some_and(is_address)
}

/// Whether an address says by itself that it is a topic's.
pub(super) fn is_address(address: &str) -> bool {
    address.starts_with("topic://") || address.starts_with("temp-topic://")
}

/// Whether a message says that it is for a topic.
pub(super) fn is_destination(to: Option<&str>, annotations: Option<&MapView<'_>>) -> bool {
    if to.is_some_and(is_address) {
        return true;
    }
    let Some(annotations) = annotations else { return false };
    let kind = annotations.get(DESTINATION_KIND).and_then(|kind| kind.as_i64());
    kind.is_some_and(|kind| TOPIC_KINDS.contains(&kind))
        || matches!(annotations.get(OLD_DESTINATION_KIND),
            Some(Value::String(kind) | Value::Symbol(kind)) if kind.starts_with("topic"))
}

/// What a source wants that only subscriptions to topics have.
pub(super) fn subscription(attached: &PeerAttach, source: &Source) -> Option<&'static str> {
    let shared = |capabilities: &Symbols| {
        capabilities.iter().any(|capability| capability == "shared" || capability == "global")
    };
    if shared(&source.capabilities) || shared(&attached.desired_capabilities) {
        return Some("a shared subscription");
    }
    let durable = source.durable != TerminusDurability::None;
    (durable && source.expiry_policy == ExpiryPolicy::Never).then_some("a durable subscription")
}
