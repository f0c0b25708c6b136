//! Puts: checks, reservation, and the fact, or an entry in a unit of work (`spill`).

use towline_types::{Payload, Time, limits};

use crate::fact::{Durability, Fact};
use crate::message::{Body, BodyName, Header, Message, NewMessage};
use crate::object::QueueKind;
use crate::record::fields::LEVEL_OF_FIELDS;
use crate::request::{Decision, PutTarget};
use crate::staged_puts::{StagedBody, StagedPut};
use crate::{BodyId, QueueManager, Refusal, UnitId};

impl QueueManager {
    /// Puts one message. Persistent: `Forced`, the reply waits. Other: `Memory`; mind `out.behind`.
    /// In a unit of work nothing is visible before it commits, but depth and bytes are reserved
    /// now, and bodies may go to the log ahead: `Lazy`, no client waits.
    ///
    /// # Errors
    /// The queue or alias was deleted, PUT(DISABLED), MAXMSGL, MAXDEPTH (puts on their way count),
    /// memory, and the limits of units of work.
    pub fn put(
        &mut self,
        now: Time,
        target: &PutTarget,
        message: NewMessage,
        unit: Option<UnitId>,
        out: &mut Decision,
    ) -> Result<(), Refusal> {
        self.begin(out)?;
        self.check_accepting()?;
        let header = self.check_put(now, target, &message)?;
        let bytes = message.content.len() as u64;
        let body = StagedBody::Here(message.content);
        let put = StagedPut { queue: target.queue, header, body };
        match unit {
            Some(unit) => self.stage_put(target, unit, put, out),
            None => {
                if header.persistent {
                    self.check_log_room(bytes, 1)?;
                } else {
                    self.check_memory(bytes)?;
                }
                self.queue_mut(target.queue).reserved += 1;
                if header.persistent {
                    self.push_put(put, out);
                } else {
                    self.memory_bytes += bytes;
                    out.behind = self.queue_mut(target.queue).must_wait_its_turn();
                    let fact = self.memory_put(put);
                    out.push_memory(fact);
                }
                Ok(())
            }
        }
    }

    /// What the message will be, unless it is refused.
    pub(super) fn check_put(
        &self,
        now: Time,
        target: &PutTarget,
        message: &NewMessage,
    ) -> Result<Header, Refusal> {
        let queue = match self.queues.get(&target.queue) {
            Some(queue) if !queue.deleting => queue,
            Some(_) | None => return Err(Refusal::Deleted(target.name.clone())),
        };
        let attributes = &queue.definition.attributes;
        let mut default_persistent = attributes.default_persistent;
        let mut default_priority = attributes.default_priority;
        if let Some(name) = &target.alias {
            let alias = self.catalogue.alias(name).map_err(|_| Refusal::Deleted(name.clone()))?;
            if !alias.put_enabled {
                return Err(Refusal::PutInhibited(name.clone()));
            }
            default_persistent = alias.default_persistent;
            default_priority = alias.default_priority;
        }
        if !attributes.put_enabled {
            return Err(Refusal::PutInhibited(target.name.clone()));
        }
        let around = message.envelope_bytes.min(limits::ENVELOPE_BYTES_MAX);
        let bytes = (message.content.len() as u64).saturating_sub(around);
        let bytes_max = attributes.message_bytes_max.min(self.limits.message_bytes_max);
        if bytes > bytes_max {
            let queue = (attributes.message_bytes_max <= self.limits.message_bytes_max)
                .then(|| target.name.clone());
            return Err(Refusal::MessageTooLong { queue, bytes, bytes_max });
        }
        let depth_max = attributes.depth_max;
        if queue.depth() >= depth_max {
            return Err(Refusal::QueueFull { queue: target.name.clone(), depth_max });
        }
        let priority = message.priority.unwrap_or(default_priority).min(9);
        let temporary = queue.definition.kind == QueueKind::TemporaryDynamic;
        // The log cannot say more of a message before all that read it know the fields.
        let says_more = self.level >= LEVEL_OF_FIELDS;
        let group = if says_more { message.group } else { 0 };
        Ok(Header {
            persistent: message.persistent.unwrap_or(default_persistent) && !temporary,
            priority,
            order: queue.lane_for(priority),
            expires_at: message.expires_at,
            put_at: now,
            correlation_hash: message.correlation_hash,
            message_id_hash: message.message_id_hash,
            group,
            group_sequence: if group != 0 { message.group_sequence } else { 0 },
            deliver_at: message.deliver_at.filter(|due| says_more && *due > now),
        })
    }

    /// # Errors
    /// Not enough free memory for that much more.
    pub(super) fn check_memory(&self, bytes: u64) -> Result<(), Refusal> {
        let bytes_max = self.limits.memory_bytes_max;
        if self.memory_bytes.saturating_add(bytes) > bytes_max {
            return Err(Refusal::MemoryFull { bytes_max });
        }
        Ok(())
    }

    /// A reserved put of a persistent message is decided: its facts, large bodies in chunks ahead.
    pub(crate) fn push_put(&mut self, put: StagedPut, out: &mut Decision) {
        let sequence = self.next_sequence();
        let queue = put.queue;
        self.queue_mut(queue).in_flight += 1;
        let body = match put.body {
            StagedBody::Here(content) => {
                push_body(|| BodyName::Own(self.next_body()), content, out)
            }
            StagedBody::Spilled { body, chunks, bytes } => {
                Body::Announced { body: BodyName::Own(body), chunks, bytes }
            }
        };
        let message =
            Box::new(Message { header: put.header, body, backout_count: 0, dead_letter: None });
        out.push_logged(Fact::Put { queue, sequence, carried: false, message }, Durability::Forced);
    }

    /// A name for the body of a new put. What is not decided here never gets one: a region that
    /// applies what another one decided meets no id of its own in it.
    pub(crate) fn next_body(&mut self) -> BodyId {
        let body = self.next.body;
        self.next.body += 1;
        BodyId(body)
    }

    /// A reserved put of a non-persistent message is decided.
    pub(crate) fn memory_put(&mut self, put: StagedPut) -> Fact {
        let sequence = self.next_sequence();
        let queue = put.queue;
        self.queue_mut(queue).in_flight += 1;
        let StagedBody::Here(content) = put.body else {
            unreachable!("a non-persistent message never goes to the log")
        };
        let body = memory_body(content);
        let message =
            Box::new(Message { header: put.header, body, backout_count: 0, dead_letter: None });
        Fact::Put { queue, sequence, carried: false, message }
    }
}

/// The body of a non-persistent message, in one piece of its own: it must let go of the read buffer
/// that it came in. One that came in many frames was put together already.
pub(super) fn memory_body(content: Payload) -> Body {
    let is_short = content.len() <= limits::PUT_AT_ONCE_BYTES_MAX;
    Body::Memory(match is_short {
        true => content.to_owned_bytes(),
        false => content.to_contiguous(),
    })
}

/// A body as the log takes it; a long one goes ahead, under this name.
pub(crate) fn push_body(
    name: impl FnOnce() -> BodyName,
    content: Payload,
    out: &mut Decision,
) -> Body {
    if content.len() <= limits::BODY_CHUNK_BYTES {
        return Body::Incoming(content);
    }
    let body = name();
    let bytes = content.len() as u64;
    let chunks = push_chunks(body, &content, Durability::Forced, out);
    Body::Announced { body, chunks, bytes }
}

/// A body that is not empty goes ahead, in as many chunks as are returned.
pub(super) fn push_chunks(
    body: BodyName,
    content: &Payload,
    durability: Durability,
    out: &mut Decision,
) -> u32 {
    let mut chunks = 0;
    for chunk in split_into_chunks(content, limits::BODY_CHUNK_BYTES) {
        let chunk = Body::Incoming(chunk);
        out.push_logged(Fact::BodyChunk { body, index: chunks, chunk }, durability);
        chunks += 1;
    }
    chunks
}

/// Cuts a payload into pieces of this size; the last one may be shorter. Copies nothing.
pub(super) fn split_into_chunks(content: &Payload, bytes_max: usize) -> Vec<Payload> {
    assert!(bytes_max > 0, "chunks of no bytes never end");
    let mut chunks = Vec::new();
    let mut chunk = Payload::Empty;
    let mut space = bytes_max;
    for piece in content.pieces() {
        let mut rest = piece.clone();
        while !rest.is_empty() {
            let take = space.min(rest.len());
            chunk.push(rest.split_to(take));
            space -= take;
            if space == 0 {
                chunks.push(std::mem::take(&mut chunk));
                space = bytes_max;
            }
        }
    }
    if !chunk.is_empty() {
        chunks.push(chunk);
    }
    chunks
}
