//! A log, as what happened to messages: runs that are whole, commits in parts when they are
//! completed, bodies put together.
//!
//! Not here: what follows from it. Invariant: what a term left unfinished never happened.

use std::collections::{BTreeMap, HashMap};

use towline_core::object::Definition;
use towline_core::{Body, BodyName, Fact, Header, MessageSequence, QueueId, record};
use towline_log::offline::Item;
use towline_types::{BodyLocation, Lsn};

use super::HowEnded;

/// A message by its queue and its sequence there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MessageKey {
    pub(super) queue: u32,
    pub(super) sequence: u64,
}

fn key(queue: QueueId, sequence: MessageSequence) -> MessageKey {
    MessageKey { queue: queue.0, sequence: sequence.0 }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogStep {
    Put {
        key: MessageKey,
        carried: bool,
        header: Box<Header>,
        body: Vec<BodyLocation>,
    },
    Ended {
        key: MessageKey,
        how: HowEnded,
    },
    Moved {
        from: MessageKey,
        to: MessageKey,
    },
    /// All messages before `upto` are gone from a queue.
    Emptied {
        queue: u32,
        upto: u64,
        how: HowEnded,
    },
    /// An object was defined, or altered: a local queue with its id.
    Defined {
        queue: Option<(u32, String)>,
    },
    Undefined,
    /// A unit of work of which the beginning was not read.
    Operations,
}

impl LogStep {
    /// Whether an operator would miss it if the tail were given up.
    pub(super) fn is_missed(&self) -> bool {
        match self {
            LogStep::Put { carried, header, .. } => !carried && header.persistent,
            LogStep::Ended { .. }
            | LogStep::Moved { .. }
            | LogStep::Emptied { .. }
            | LogStep::Defined { .. }
            | LogStep::Undefined
            | LogStep::Operations => true,
        }
    }
}

/// A step, and when it happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepAt {
    /// Position of the record that ends its run, or completes its commit.
    pub(super) at: Lsn,
    /// Position of its own record.
    pub(super) lsn: Lsn,
    pub(super) step: LogStep,
}

/// See the module.
#[derive(Default)]
pub(super) struct LogSteps {
    term: u32,
    run: Vec<(Lsn, Fact)>,
    /// What of this run is kept aside, still: for which commit, and how many facts.
    open: Option<(u64, u32)>,
    aside: HashMap<u64, Vec<(Lsn, Fact)>>,
    chunks: BTreeMap<BodyName, Vec<BodyLocation>>,
}

impl LogSteps {
    /// Takes the next item of the log. Errors are in words, with the position.
    pub(super) fn take(
        &mut self,
        item: Item<'_>,
        each: &mut dyn FnMut(StepAt),
    ) -> Result<(), String> {
        match item {
            Item::Batch { term, .. } if term != self.term => {
                *self = LogSteps { term, ..LogSteps::default() };
            }
            Item::GivenUp { .. } => self.run.clear(),
            Item::Record { lsn, last, bytes } => {
                let (fact, _) = record::decode(bytes, lsn)
                    .map_err(|error| format!("the record at {lsn}: {error}"))?;
                self.run.push((lsn, fact));
                if last {
                    self.end_run(lsn, each);
                }
            }
            Item::Image { .. } | Item::Batch { .. } | Item::Finding(_) | Item::Damaged(_) => {}
        }
        Ok(())
    }

    fn end_run(&mut self, at: Lsn, each: &mut dyn FnMut(StepAt)) {
        let run = std::mem::take(&mut self.run);
        self.open = headless(&run);
        for (lsn, fact) in run {
            if let Some((commit, rest)) = self.open
                && matches!(fact, Fact::Put { .. } | Fact::Got { .. })
            {
                self.aside.entry(commit).or_default().push((lsn, fact));
                self.open = Some((commit, rest - 1)).filter(|(_, rest)| *rest > 0);
                continue;
            }
            self.fact(at, lsn, fact, each);
        }
        self.open = None;
    }

    fn fact(&mut self, at: Lsn, lsn: Lsn, fact: Fact, each: &mut dyn FnMut(StepAt)) {
        let step = match fact {
            Fact::Put { queue, sequence, carried, message } => {
                let body = self.body(message.body);
                let header = Box::new(message.header);
                LogStep::Put { key: key(queue, sequence), carried, header, body }
            }
            Fact::Got { queue, sequence } => {
                LogStep::Ended { key: key(queue, sequence), how: HowEnded::Got }
            }
            Fact::Expired { queue, sequence } => {
                LogStep::Ended { key: key(queue, sequence), how: HowEnded::Expired }
            }
            Fact::Moved { from, sequence, to, new_sequence, .. } => {
                LogStep::Moved { from: key(from, sequence), to: key(to, new_sequence) }
            }
            Fact::Cleared { queue, upto } => {
                LogStep::Emptied { queue: queue.0, upto: upto.0, how: HowEnded::Cleared }
            }
            Fact::Deleted { queue } => {
                LogStep::Emptied { queue: queue.0, upto: u64::MAX, how: HowEnded::QueueDeleted }
            }
            Fact::Defined { definition } => LogStep::Defined { queue: local(*definition) },
            Fact::Undefined { .. } => LogStep::Undefined,
            Fact::Completed { commit, first, .. } => {
                return self.completed(at, (commit.0, first), each);
            }
            Fact::Part { commit, operations } => {
                self.open = (operations > 0).then_some((commit.0, operations));
                return;
            }
            Fact::BodyChunk { body, chunk: Body::Log(location), .. } => {
                self.chunks.entry(body).or_default().push(location);
                return;
            }
            Fact::Abandoned { first, bodies } => {
                let range = first.0..first.0.saturating_add(bodies);
                self.chunks.retain(|name, _| match name {
                    BodyName::Own(body) => !range.contains(&body.0),
                    BodyName::Carried(_) => true,
                });
                return;
            }
            Fact::Committed { operations } if operations > 0 => LogStep::Operations,
            // A count of deliveries in vain is of no use elsewhere.
            Fact::BodyChunk { .. }
            | Fact::BackedOut { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::HistoryBegun { .. } => return,
        };
        each(StepAt { at, lsn, step });
    }

    /// What was kept aside for a commit happens now.
    fn completed(
        &mut self,
        at: Lsn,
        (commit, first): (u64, MessageSequence),
        each: &mut dyn FnMut(StepAt),
    ) {
        let Some(aside) = self.aside.remove(&commit) else {
            return each(StepAt { at, lsn: at, step: LogStep::Operations });
        };
        for (lsn, mut fact) in aside {
            if let Fact::Put { sequence, .. } = &mut fact {
                sequence.0 = sequence.0.saturating_add(first.0);
            }
            self.fact(at, lsn, fact, each);
        }
    }

    fn body(&mut self, body: Body) -> Vec<BodyLocation> {
        match body {
            Body::Log(location) => vec![location],
            Body::Chunks(chunks) => chunks.into_vec(),
            Body::Announced { body, .. } => self.chunks.remove(&body).unwrap_or_default(),
            Body::Incoming(_) | Body::Memory(_) => Vec::new(),
        }
    }
}

/// A log that is read from its oldest extent on may begin within a run: of a part of a commit its
/// end says what it is.
fn headless(run: &[(Lsn, Fact)]) -> Option<(u64, u32)> {
    let (_, Fact::Part { commit, operations: 0 }) = run.last()? else { return None };
    let has_head = run
        .iter()
        .any(|(_, fact)| matches!(fact, Fact::Part { operations, .. } if *operations > 0));
    (!has_head).then_some((commit.0, u32::MAX))
}

fn local(definition: Definition) -> Option<(u32, String)> {
    match definition {
        Definition::Local(queue) => Some((queue.id.0, queue.name)),
        Definition::Alias(_) | Definition::Model(_) | Definition::QueueManager(_) => None,
    }
}
