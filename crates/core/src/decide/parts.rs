//! Commits of large units of work. Puts and gets go to the log part by part, in runs for which no
//! client waits, and what others ask for is decided between them; then the completion is decided,
//! for which the client waits, and all of it happens. `crate::parts` says what a part is.
//!
//! Not here: when the next part has its turn, and that nothing of the same client overtakes it
//! (`towline_node`); smaller units, and those in a log of format level 1 (`unit`).
//!
//! Invariants: a commit that has begun is no open unit of work any more, and nothing ends it: its
//! space in the log is kept for it (`large_room`). Until its completion is decided, its messages
//! count as uncommitted. Its puts get their sequences with the completion, as if all of it were
//! decided then: none is inserted between messages that others put meanwhile.

use towline_types::{Time, limits};

use super::put::{memory_body, push_chunks};
use crate::fact::{Durability, Fact};
use crate::hash::FastMap;
use crate::log_room::{log_room_of, log_room_of_gets};
use crate::message::{Body, BodyName, Message};
use crate::record::fields::LEVEL_OF_FIELDS;
use crate::request::{Decision, Outcome};
use crate::sessions::{StagedGet, UnitOfWork};
use crate::staged_puts::{StagedBody, StagedPut, StagedPuts};
use crate::{CommitId, ConnectionId, MessageSequence, QueueId, QueueManager, Refusal, UnitId};

/// A commit that has begun.
#[derive(Debug)]
pub(crate) struct CommitInParts {
    /// What is in no part yet.
    puts: StagedPuts,
    gets: std::vec::IntoIter<StagedGet>,
    /// Deliveries that were settled, but not accepted: decided with the completion.
    others: Vec<StagedGet>,
    /// What is in parts.
    decided: FastMap<QueueId, Decided>,
    /// The number of the next put.
    next_put: u64,
    /// Operations in parts that the log has.
    operations: u32,
    /// Bytes that are not in the log yet.
    staged_bytes: u64,
}

/// Operations of one queue that are in parts.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    puts: u64,
    gets: u64,
}

impl CommitInParts {
    fn of(unit: UnitOfWork) -> CommitInParts {
        CommitInParts {
            puts: unit.puts,
            gets: unit.gets.into_iter(),
            others: Vec::new(),
            decided: FastMap::default(),
            next_put: 0,
            operations: 0,
            staged_bytes: unit.staged_bytes,
        }
    }

    /// What it still needs of the log's space, for gets too, and for what is decided with the
    /// completion.
    pub(crate) fn log_room(&self) -> u64 {
        log_room(self.staged_bytes, self.puts.len(), self.gets.len() + self.others.len())
    }

    /// Puts that are in no part yet.
    pub(crate) fn puts(&self) -> impl Iterator<Item = &StagedPut> {
        self.puts.iter()
    }

    /// Gets that are in no part yet.
    pub(crate) fn gets(&self) -> impl Iterator<Item = &StagedGet> {
        self.gets.as_slice().iter().chain(&self.others)
    }

    /// How many puts and gets of a queue are in parts.
    pub(crate) fn decided_in(&self, queue: QueueId) -> (u64, u64) {
        let Decided { puts, gets } = self.decided.get(&queue).copied().unwrap_or_default();
        (puts, gets)
    }

    /// Bodies in the log that its remaining puts know of.
    #[cfg(test)]
    pub(crate) fn bodies_ahead(&self) -> u64 {
        let ahead = |put: &&StagedPut| matches!(put.body, StagedBody::Spilled { .. });
        self.puts().filter(ahead).count() as u64
    }
}

fn log_room(staged_bytes: u64, puts: usize, gets: usize) -> u64 {
    log_room_of(staged_bytes, puts as u64).saturating_add(log_room_of_gets(gets as u64))
}

/// The operations of one part.
#[derive(Default)]
struct Part {
    logged: Vec<Fact>,
    /// What concerns messages that are not persistent.
    unlogged: Vec<Fact>,
}

impl QueueManager {
    /// Whether this unit of work is to be committed by [`QueueManager::begin_commit`]. Where the
    /// log has no space for all of it, gets too, it is committed at once, or refused: a commit that
    /// stood still half way for want of space would hold off the image that frees some.
    #[must_use]
    pub fn commits_in_parts(&self, connection: ConnectionId, id: UnitId) -> bool {
        let unit = self.units.get(&id).filter(|unit| unit.connection == connection);
        self.level >= LEVEL_OF_FIELDS
            && unit.is_some_and(|unit| {
                let room = log_room(unit.staged_bytes, unit.puts.len(), unit.gets.len());
                unit.messages() > self.limits.committed_at_once_max
                    && self.check_accepting().is_ok()
                    && self.has_log_room(room)
            })
    }

    /// Begins to commit a large unit of work. [`QueueManager::next_part`] follows as often as it
    /// yields one, then [`QueueManager::finish_commit`].
    ///
    /// # Errors
    /// As [`QueueManager::discharge`]: the unit stays open.
    pub fn begin_commit(
        &mut self,
        connection: ConnectionId,
        id: UnitId,
    ) -> Result<CommitId, Refusal> {
        self.check_commit(connection, id)?;
        let Some(unit) = self.take_unit(connection, id) else { return Err(Refusal::UnknownUnit) };
        let commit = CommitInParts::of(unit);
        self.large_room += commit.log_room();
        let id = CommitId(self.next_body().0);
        let before = self.commits.insert(id, commit);
        assert!(before.is_none(), "a commit begins once");
        Ok(id)
    }

    /// Decides its next part. False: there is none left.
    pub fn next_part(&mut self, id: CommitId, out: &mut Decision) -> bool {
        self.begin_unasked(out);
        let mut commit = self.take_commit(id);
        let room = commit.log_room();
        let (mut part, mut count, mut bytes) = (Part::default(), 0, 0);
        while count < limits::OPERATIONS_PER_PART && bytes < limits::PUT_AT_ONCE_BYTES_MAX as u64 {
            count += 1;
            if let Some(put) = commit.puts.pop() {
                bytes += put.bytes_here();
                self.put_in_part(&mut commit, put, &mut part, out);
            } else if let Some(get) = commit.gets.next() {
                self.get_in_part(&mut commit, get, &mut part);
            } else {
                count -= 1;
                break;
            }
        }
        // What is decided counts by itself from here on.
        self.large_room -= room - commit.log_room();
        commit.operations += push_part(id, part, out);
        self.commits.insert(id, commit);
        count > 0
    }

    fn put_in_part(
        &mut self,
        commit: &mut CommitInParts,
        put: StagedPut,
        part: &mut Part,
        out: &mut Decision,
    ) {
        self.unstage(&put, true);
        commit.staged_bytes -= put.bytes_to_spill();
        let StagedPut { queue, header, body } = put;
        let body = match body {
            StagedBody::Here(content) if !header.persistent => memory_body(content),
            StagedBody::Here(content) if content.len() <= limits::BODY_CHUNK_BYTES => {
                Body::Incoming(content)
            }
            StagedBody::Here(content) => {
                let body = BodyName::Own(self.next_body());
                let bytes = content.len() as u64;
                let chunks = push_chunks(body, &content, Durability::Lazy, out);
                Body::Announced { body, chunks, bytes }
            }
            StagedBody::Spilled { body, chunks, bytes } => {
                Body::Announced { body: BodyName::Own(body), chunks, bytes }
            }
        };
        let sequence = MessageSequence(commit.next_put);
        commit.next_put += 1;
        commit.decided.entry(queue).or_default().puts += 1;
        let message = Box::new(Message { header, body, backout_count: 0, dead_letter: None });
        let facts = if header.persistent { &mut part.logged } else { &mut part.unlogged };
        facts.push(Fact::Put { queue, sequence, carried: false, message });
    }

    fn get_in_part(&mut self, commit: &mut CommitInParts, get: StagedGet, part: &mut Part) {
        match get.outcome {
            Outcome::Accepted => {
                let (queue, sequence) = (get.queue, Self::sequence(get.spot));
                commit.decided.entry(queue).or_default().gets += 1;
                let facts = match self.leave(queue, get.spot) {
                    true => &mut part.logged,
                    false => &mut part.unlogged,
                };
                facts.push(Fact::Got { queue, sequence });
            }
            Outcome::Released | Outcome::Rejected | Outcome::Modified { .. } => {
                commit.others.push(get);
            }
        }
    }

    /// Decides the completion, all parts being on their way to the log: the reply waits for it.
    pub fn finish_commit(&mut self, now: Time, id: CommitId, out: &mut Decision) {
        self.begin_unasked(out);
        let commit = self.take_commit(id);
        let rest = commit.puts.len() + commit.gets.len();
        assert_eq!(rest, 0, "half a unit of work would happen");
        self.large_room -= commit.log_room();
        let first = MessageSequence(self.next.sequence);
        self.next.sequence += commit.next_put;
        for get in commit.others {
            self.queue_mut(get.queue).uncommitted_gets -= 1;
            self.refuse_delivery(now, get, false, out);
        }
        for (queue, Decided { puts, gets }) in commit.decided {
            let queue = self.queue_mut(queue);
            queue.in_flight += puts;
            queue.uncommitted_gets -= gets;
            queue.completing += puts + gets;
        }
        let completed = Fact::Completed { commit: id, operations: commit.operations, first };
        // Whatever is logged: the answer says that all of it happened.
        out.push_logged(completed, Durability::Forced);
    }

    /// Whether a commit has begun and its completion is not decided.
    #[must_use]
    pub fn has_commits_in_parts(&self) -> bool {
        !self.commits.is_empty()
    }

    fn take_commit(&mut self, id: CommitId) -> CommitInParts {
        match self.commits.remove(&id) {
            Some(commit) => commit,
            None => unreachable!("{id:?} has not begun, or is over"),
        }
    }
}

/// Decides a part; yields how many operations the log has of it.
fn push_part(commit: CommitId, part: Part, out: &mut Decision) -> u32 {
    let operations = |facts: &[Fact]| u32::try_from(facts.len()).unwrap_or(u32::MAX);
    let logged = operations(&part.logged);
    if logged > 0 {
        out.push_logged(Fact::Part { commit, operations: logged }, Durability::Lazy);
        part.logged.into_iter().for_each(|fact| out.push_logged(fact, Durability::Lazy));
        out.push_logged(Fact::Part { commit, operations: 0 }, Durability::Lazy);
    }
    let unlogged = operations(&part.unlogged);
    if unlogged > 0 {
        out.push_memory(Fact::Part { commit, operations: unlogged });
        part.unlogged.into_iter().for_each(|fact| out.push_memory(fact));
    }
    logged
}
