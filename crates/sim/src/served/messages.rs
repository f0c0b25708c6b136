//! What the instances report: some messages are a broken rule, whatever happened to the disks.
//!
//! Not here: lines for people (`TOWLINE_LOG`).

use std::cell::RefCell;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// What the group committed cannot be applied, though the disk can be read.
const NEVER: &str = "TWL4210E";
const OF_THE_DISK: &str = "cannot be read";

thread_local! {
    static BROKEN: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Listens to the instances of this thread until it is dropped.
pub(crate) fn listen() -> DefaultGuard {
    BROKEN.set(None);
    tracing::subscriber::set_default(Listener)
}

/// A message that must never come, if one came.
pub(crate) fn broken() -> Option<String> {
    BROKEN.take()
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        if line.0.contains(NEVER) && !line.0.contains(OF_THE_DISK) {
            BROKEN.set(Some(line.0));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}: {value:?} ", field.name()).ok();
    }
}
