//! The recovery log behind the node's `Journal`: facts are encoded straight into the log's open
//! batch, so a body is copied once between socket and disk.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Body, Durability, Fact, record};
use towline_log::{Log, LogError, Urgency};
use towline_node::{Journal, NotAppended};
use towline_types::{BodyLocation, Lsn, Time, fitting, limits};

use crate::process_status::ProcessStatus;

pub(crate) struct LogJournal<'a> {
    pub(crate) log: &'a Log,
    pub(crate) process: &'a ProcessStatus,
}

/// Bytes of a record beside its body, about.
const RECORD_BYTES_HINT: usize = 64;

impl Journal for LogJournal<'_> {
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Result<Lsn, NotAppended> {
        let bytes = facts.iter().map(|fact| RECORD_BYTES_HINT + incoming_bytes(fact)).sum();
        // The caller has the lock of the instance: what waited here would have all others wait.
        let Some(mut appender) = self.log.try_appender(bytes) else {
            return Err(NotAppended::Behind);
        };
        let mut bodies: Vec<(usize, BodyLocation)> = Vec::new();
        let count = facts.len();
        for (index, fact) in facts.iter().enumerate() {
            let last = index + 1 == count;
            let hint = RECORD_BYTES_HINT + incoming_bytes(fact);
            let mut body_at = None;
            let lsn = appender.record_with_body(hint, |buffer| {
                body_at = record::encode(fact, last, buffer);
                body_at.as_ref().map(|range| range.start)
            });
            if let Some(range) = body_at {
                let bytes = u32::try_from(range.len()).unwrap_or(u32::MAX);
                let lsn = lsn.after(range.start as u64);
                bodies.push((index, BodyLocation { lsn, bytes }));
            }
        }
        let urgency = match durability {
            Durability::Forced => Urgency::Forced,
            Durability::Lazy | Durability::Memory => Urgency::Lazy,
        };
        match appender.commit(urgency) {
            Ok(end) => {
                for (index, location) in bodies {
                    if let Some(body) = facts.get_mut(index).and_then(incoming) {
                        *body = Body::Log(location);
                    }
                }
                Ok(end)
            }
            Err(LogError::Full) => Err(NotAppended::Full),
            // The log ends the process, or the process is ending: this run gets no answer.
            Err(error) => {
                tracing::debug!(%error, "a run was not taken by the log");
                Err(NotAppended::Full)
            }
        }
    }

    fn room_for_puts(&self) -> u64 {
        self.log.room_for_puts()
    }

    fn is_behind(&self) -> bool {
        self.log.unsynced_bytes() > limits::LOG_BEHIND_BYTES
    }

    fn resident(&self, location: BodyLocation) -> Option<Bytes> {
        self.log.resident(location)
    }

    fn surroundings(&self, now: Time) -> Status {
        self.process.status(self.log, now)
    }
}

fn incoming(fact: &mut Fact) -> Option<&mut Body> {
    let body = match fact {
        Fact::Put { message, .. } => &mut message.body,
        Fact::BodyChunk { chunk, .. } => chunk,
        _ => return None,
    };
    matches!(body, Body::Incoming(_)).then_some(body)
}

fn incoming_bytes(fact: &Fact) -> usize {
    let body = match fact {
        Fact::Put { message, .. } => &message.body,
        Fact::BodyChunk { chunk, .. } => chunk,
        _ => return 0,
    };
    fitting(body.incoming_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use towline_core::{BodyId, BodyName, MessageSequence, QueueId};
    use towline_log::testing::{Watch, start};
    use towline_log::{Disk, MemoryDisk, Options, Pages};
    use towline_process::Clock;
    use towline_types::Payload;

    use super::*;

    /// Longer than a write takes on a busy machine.
    const LONG: Duration = Duration::from_secs(20);

    /// A log in which nothing lazy leaves by itself within the time of a test.
    fn bench() -> (Log, ProcessStatus) {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let options = Options { lazy_delay: Duration::from_secs(3_600), ..Options::default() };
        let log = start(&disk, options, &Watch::new());
        let pages = Pages::open(disk, []).unwrap();
        (log, ProcessStatus::new(Clock::start(), pages))
    }

    fn wait_durable(log: &Log, end: Lsn) {
        let until = Instant::now() + LONG;
        while log.durable() < end {
            assert!(Instant::now() < until, "nothing is written");
            std::thread::yield_now();
        }
    }

    fn got() -> Fact {
        Fact::Got { queue: QueueId(1), sequence: MessageSequence(1) }
    }

    #[test]
    fn a_body_is_where_its_fact_says_that_it_is() {
        let (log, process) = bench();
        let journal = LogJournal { log: &log, process: &process };
        let content = Bytes::from_static(b"the content of a message");
        let chunk = Body::Incoming(Payload::from(content.clone()));
        let mut facts =
            [got(), Fact::BodyChunk { body: BodyName::Own(BodyId(1)), index: 0, chunk }];
        let end = journal.append(&mut facts, Durability::Forced).unwrap();
        wait_durable(&log, end);
        let Fact::BodyChunk { chunk: Body::Log(location), .. } = &facts[1] else {
            panic!("its location is known: {facts:?}")
        };
        assert_eq!(log.read(*location).unwrap(), content);
    }

    #[test]
    fn what_a_client_waits_for_is_written_at_once_and_what_it_does_not_goes_with_it() {
        let (log, process) = bench();
        let journal = LogJournal { log: &log, process: &process };
        for round in 1..=20 {
            // So many that a writer would have time to take the first of them.
            for durability in [Durability::Lazy, Durability::Memory].repeat(500) {
                journal.append(&mut [got()], durability).unwrap();
            }
            let end = journal.append(&mut [got()], Durability::Forced).unwrap();
            wait_durable(&log, end);
            assert_eq!(log.stats().writes, round, "one write for all");
        }
    }
}
