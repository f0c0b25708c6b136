//! Objects that a new queue manager starts with.

use towline_admin::catalogue::{DEFAULTS_MISSING, NO_DEAD_LETTER_QUEUE, NO_MODEL};
use towline_config::DEFAULT_LOCAL_MODEL;
use towline_core::object::QueueKind;
use towline_node::{Instance, Journal, Outbound};
use towline_types::Time;

use crate::inspection::UndefinedNames;
use towline_logging::log;

/// Model of queues that clients make for themselves (AMQP dynamic nodes), as in IBM MQ.
pub const DEFAULT_DYNAMIC_MODEL: &str = "SYSTEM.DEFAULT.MODEL.QUEUE";

/// Local queues of a new queue manager, with their descriptions.
const DEFAULT_QUEUES: &[(&str, &str)] = &[
    ("DEV.QUEUE.1", "A queue to try things with"),
    ("DEV.QUEUE.2", "Another queue to try things with"),
    ("DEV.DEAD.LETTER.QUEUE", "Messages that could not stay where they were"),
];

/// Models of a new queue manager, defined after the queues.
const DEFAULT_MODELS: &[(&str, QueueKind)] = &[
    (DEFAULT_LOCAL_MODEL, QueueKind::PermanentDynamic),
    (DEFAULT_DYNAMIC_MODEL, QueueKind::TemporaryDynamic),
];

/// Defines them on an instance that has no object yet, or only the first ones of them: each is a
/// separate record, and a process that defined them may have ended, or have lost leadership, in the
/// middle.
pub(crate) fn define(
    instance: &mut Instance,
    now: Time,
    journal: &dyn Journal,
    out: &mut Outbound,
) {
    let Some(defined) = defined_count(&instance.object_names().collect::<Vec<_>>()) else { return };
    for (name, description) in DEFAULT_QUEUES.iter().skip(defined) {
        let defined = instance.define_default_queue(now, name, description, journal, out);
        if let Err(why) = defined {
            // The next start goes on here, if no other object was defined until then.
            return log(&DEFAULTS_MISSING, &[name, &why.to_string()]);
        }
    }
    for (name, kind) in DEFAULT_MODELS.iter().skip(defined.saturating_sub(DEFAULT_QUEUES.len())) {
        let defined = instance.define_default_model(now, name, *kind, journal, out);
        if let Err(why) = defined {
            return log(&DEFAULTS_MISSING, &[name, &why.to_string()]);
        }
    }
}

/// Warns of names that the configuration uses and that are not defined, before the first message
/// needs them.
pub(crate) fn warn_of_undefined_names(instance: &Instance) {
    let UndefinedNames { dead_letter_queue, models } = UndefinedNames::of(instance);
    if let Some(name) = dead_letter_queue {
        log(&NO_DEAD_LETTER_QUEUE, &[&name]);
    }
    for (pattern, model) in models {
        log(&NO_MODEL, &[&pattern, &model]);
    }
}

/// Whether a new queue manager has a queue, or a model, of this name.
#[must_use]
pub fn is_default(name: &str) -> bool {
    DEFAULT_QUEUES.iter().any(|(queue, _)| *queue == name)
        || DEFAULT_MODELS.iter().any(|(model, _)| *model == name)
}

/// The number of defaults that are defined, when `objects` are all objects that there are; `None`
/// when there is any other object, or when one of the defaults was deleted.
fn defined_count(objects: &[&str]) -> Option<usize> {
    let queues = DEFAULT_QUEUES.iter().map(|(name, _)| *name);
    let defaults: Vec<&str> = queues.chain(DEFAULT_MODELS.iter().map(|(name, _)| *name)).collect();
    let first = defaults.get(..objects.len())?;
    first.iter().all(|name| objects.contains(name)).then_some(objects.len())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use towline_admin::status::Status;
    use towline_core::{Durability, Fact, Limits, Pages as Trust};
    use towline_node::{Input, NotAppended, Restart};
    use towline_types::{BodyLocation, Lsn};

    use super::*;

    /// A log that takes so many runs.
    struct Runs(std::cell::Cell<u64>);

    impl Journal for Runs {
        fn append(&self, _facts: &mut [Fact], _durability: Durability) -> Result<Lsn, NotAppended> {
            self.0.set(self.0.get().checked_sub(1).ok_or(NotAppended::Full)?);
            Ok(Lsn(4_096 - self.0.get()))
        }

        fn room_for_puts(&self) -> u64 {
            self.0.get() * 1_000_000
        }

        fn resident(&self, _location: BodyLocation) -> Option<Bytes> {
            None
        }

        fn surroundings(&self, _now: Time) -> Status {
            Status::default()
        }
    }

    #[test]
    fn a_log_without_free_space_leaves_defaults_out_until_the_next_start() {
        let restart = Restart::begin("QM1", Limits::default(), 1 << 26, None, Trust::Ignored);
        let mut instance = restart.unwrap().finish(Lsn(0));
        let mut out = Outbound::default();
        let full = Runs(std::cell::Cell::new(0));
        instance.step(Time(1), Input::LogFull(true), &full, &mut out);
        define(&mut instance, Time(1), &full, &mut out);
        assert_eq!(instance.object_names().count(), 0);
        let roomy = Runs(std::cell::Cell::new(100));
        instance.step(Time(2), Input::LogFull(false), &roomy, &mut out);
        define(&mut instance, Time(2), &roomy, &mut out);
        assert_eq!(instance.object_names().count(), 5);
    }

    #[test]
    fn defaults_that_were_interrupted_are_completed_and_changed_ones_are_left() {
        let [one, two, dead, local, dynamic] = [
            "DEV.QUEUE.1",
            "DEV.QUEUE.2",
            "DEV.DEAD.LETTER.QUEUE",
            DEFAULT_LOCAL_MODEL,
            DEFAULT_DYNAMIC_MODEL,
        ];
        assert_eq!(defined_count(&[]), Some(0));
        assert_eq!(defined_count(&[one]), Some(1));
        assert_eq!(defined_count(&[local, dead, two, one]), Some(4));
        assert_eq!(defined_count(&[one, two, dead, local, dynamic]), Some(5));
        // One was deleted; there is another object.
        assert_eq!(defined_count(&[two]), None);
        assert_eq!(defined_count(&[one, "MINE"]), None);
        assert_eq!(defined_count(&[one, two, dead, local, dynamic, "MINE"]), None);
    }
}
