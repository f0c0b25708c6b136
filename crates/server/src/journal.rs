//! The recovery log behind the node's `Journal`: facts are encoded straight into the log's open
//! batch, so a body is copied once between socket and disk.

use bytes::Bytes;
use towline_admin::status::Status;
use towline_core::{Body, Durability, Fact, record};
use towline_log::{Log, Urgency};
use towline_node::Journal;
use towline_types::{BodyLocation, Lsn, Time};

use crate::status::Surroundings;

pub(crate) struct LogJournal<'a> {
    pub(crate) log: &'a Log,
    pub(crate) surroundings: &'a Surroundings,
}

/// Bytes of a record beside its body, about.
const RECORD_BYTES_HINT: usize = 64;

impl Journal for LogJournal<'_> {
    fn append(&self, facts: &mut [Fact], durability: Durability) -> Lsn {
        let mut appender = self.log.appender();
        let count = facts.len();
        for (index, fact) in facts.iter_mut().enumerate() {
            let last = index + 1 == count;
            let hint = RECORD_BYTES_HINT + incoming(fact).map_or(0, |body| body_bytes(body));
            let mut body_at = None;
            let lsn = appender.record(hint, |buffer| body_at = record::encode(fact, last, buffer));
            if let (Some(range), Some(body)) = (body_at, incoming(fact)) {
                let bytes = u32::try_from(range.len()).unwrap_or(u32::MAX);
                *body = Body::Log(BodyLocation { lsn: lsn.after(range.start as u64), bytes });
            }
        }
        let urgency = match durability {
            Durability::Forced => Urgency::Forced,
            Durability::Lazy | Durability::Memory => Urgency::Lazy,
        };
        match appender.commit(urgency) {
            Ok(end) => end,
            // The log has failed and halts the process, or is shut down: never durable.
            Err(error) => {
                tracing::warn!(id = "TWL7008W", %error, "a run was not taken by the log");
                Lsn(u64::MAX)
            }
        }
    }

    fn resident(&self, location: BodyLocation) -> Option<Bytes> {
        self.log.resident(location)
    }

    fn surroundings(&self, now: Time) -> Status {
        self.surroundings.status(self.log, now)
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

fn body_bytes(body: &Body) -> usize {
    match body {
        Body::Incoming(payload) => payload.len(),
        _ => 0,
    }
}
