//! Objects that a new queue manager starts with.

use towline_core::object::QueueKind;
use towline_node::{Instance, Journal, Outbound};
use towline_types::Time;

/// Model of queues that `auto_define` makes, unless the rule names another.
pub(crate) const DEFAULT_LOCAL_MODEL: &str = "SYSTEM.DEFAULT.LOCAL.MODEL";
/// Model of queues that clients make for themselves (AMQP dynamic nodes), as in IBM MQ.
pub(crate) const DEFAULT_DYNAMIC_MODEL: &str = "SYSTEM.DEFAULT.MODEL.QUEUE";

/// Local queues of a new queue manager, with their descriptions.
pub(crate) const DEFAULT_QUEUES: &[(&str, &str)] = &[
    ("DEV.QUEUE.1", "A queue to try things with"),
    ("DEV.QUEUE.2", "Another queue to try things with"),
    ("DEV.DEAD.LETTER.QUEUE", "Messages that could not stay where they were"),
];

/// Defines them on an instance that has no object yet.
pub(crate) fn define(
    instance: &mut Instance,
    now: Time,
    journal: &dyn Journal,
    out: &mut Outbound,
) {
    if !instance.is_new() {
        return;
    }
    for (name, description) in DEFAULT_QUEUES {
        instance.define_default_queue(now, name, description, journal, out);
    }
    for (name, kind) in [
        (DEFAULT_LOCAL_MODEL, QueueKind::PermanentDynamic),
        (DEFAULT_DYNAMIC_MODEL, QueueKind::TemporaryDynamic),
    ] {
        instance.define_default_model(now, name, kind, journal, out);
    }
}
