//! Commits in parts. A large unit of work takes longer than a step may, and the run of a commit is
//! contiguous in the log. So its puts and gets go ahead in runs of their own (`Fact::Part`) and are
//! kept aside; one last fact, `Completed`, says that all of it has happened. Without that fact
//! nothing of it has.
//!
//! The active instance carries out in slices (`work`) what is completed; replicas and replay, which
//! have no clients that would wait, at once.
//!
//! Not here: how the parts are decided (`decide/parts`).
//!
//! Invariants: what is kept aside is in no queue, and its bodies count as needed. From a completion
//! on until all of it is carried out, the queues concerned give nothing to consumers, are neither
//! cleared nor deleted, and no block of theirs leaves memory. No image is taken from the first
//! part on until all is carried out.

use std::collections::{BTreeMap, VecDeque};

use towline_types::{BodyLocation, Time, fitting, limits};

use crate::apply::Manner;
use crate::effect::Outputs;
use crate::fact::Fact;
use crate::hash::FastMap;
use crate::message::Body;
use crate::{CommitId, MessageSequence, QueueId, QueueManager};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// So many of the facts that follow are of this commit.
    open: Option<(CommitId, u32)>,
    aside: BTreeMap<CommitId, KeptAside>,
    completed: VecDeque<CompletedCommit>,
    /// So many of the operations that are to be carried out first were completed before the first
    /// history, and are not in the counts of the log.
    uncounted: u64,
}

/// What waits for its completion.
#[derive(Debug, Default)]
struct KeptAside {
    /// One after the other as they came: a list of all would be copied as it grows.
    parts: VecDeque<VecDeque<Fact>>,
    /// As many as their headers said.
    operations: u64,
    /// How many of them concern which queue.
    queues: FastMap<QueueId, u64>,
}

/// What is to be carried out.
#[derive(Debug)]
struct CompletedCommit {
    first: MessageSequence,
    parts: VecDeque<VecDeque<Fact>>,
}

impl Parts {
    /// Whether something is kept aside, or to be carried out.
    fn is_empty(&self) -> bool {
        self.open.is_none() && self.aside.is_empty() && self.completed.is_empty()
    }

    /// Whether something is to be carried out.
    pub(crate) fn is_arriving(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Whether the next fact is to be kept aside.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The same; it is taken.
    pub(crate) fn take_next(&mut self) -> bool {
        let Some((_, rest)) = &mut self.open else { return false };
        *rest -= 1;
        true
    }

    /// How many facts are kept aside for a commit.
    pub(crate) fn operations_of(&self, commit: CommitId) -> u64 {
        self.aside.get(&commit).map_or(0, |aside| aside.operations)
    }

    /// The last fact that was taken is passed over, or is kept.
    fn close_if_full(&mut self) {
        self.open = self.open.filter(|(_, rest)| *rest > 0);
    }

    fn keep(&mut self, queue: QueueId, fact: Fact) {
        let Some((commit, _)) = self.open else { unreachable!("a fact that no part announced") };
        let aside = self.aside.entry(commit).or_default();
        *aside.queues.entry(queue).or_default() += 1;
        match aside.parts.back_mut() {
            Some(part) if part.len() < limits::OPERATIONS_PER_PART => part.push_back(fact),
            Some(_) | None => aside.parts.push_back(VecDeque::from([fact])),
        }
    }

    /// The next fact of what is completed, and the sequence from which those of its puts count.
    pub(crate) fn peek_completed(&self) -> Option<(&Fact, u64)> {
        let commit = self.completed.front()?;
        Some((commit.parts.front()?.front()?, commit.first.0))
    }

    /// Takes it, with its sequence.
    pub(crate) fn next_completed(&mut self) -> Option<Fact> {
        let commit = self.completed.front_mut()?;
        let part = commit.parts.front_mut()?;
        let mut fact = part.pop_front()?;
        if let Fact::Put { sequence, .. } = &mut fact {
            sequence.0 = sequence.0.saturating_add(commit.first.0);
        }
        if part.is_empty() {
            commit.parts.pop_front();
        }
        if commit.parts.is_empty() {
            self.completed.pop_front();
        }
        Some(fact)
    }

    /// All facts of which nothing was carried out.
    fn facts(&self) -> impl Iterator<Item = &Fact> {
        let aside = self.aside.values().flat_map(|aside| &aside.parts);
        let completed = self.completed.iter().flat_map(|commit| &commit.parts);
        aside.chain(completed).flatten()
    }

    /// Where the bodies of puts are of which nothing was carried out.
    pub(crate) fn locations(&self) -> impl Iterator<Item = BodyLocation> {
        let bodies = self.facts().filter_map(|fact| match fact {
            Fact::Put { message, .. } => Some(&message.body),
            _ => None,
        });
        bodies
            .flat_map(|body| match body {
                Body::Log(location) => std::slice::from_ref(location),
                Body::Chunks(chunks) => chunks,
                Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => &[],
            })
            .copied()
    }

    /// No completion will come: the bodies are not needed.
    pub(crate) fn give_up(&mut self, bodies: &mut Vec<BodyLocation>) {
        assert!(
            self.completed.is_empty(),
            "what is completed is carried out before the log goes on"
        );
        bodies.extend(self.locations());
        *self = Parts::default();
    }

    /// Bytes of non-persistent bodies in it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bodies = self.facts().map(|fact| match fact {
            Fact::Put { message, .. } if !message.header.persistent => message.body.bytes(),
            _ => 0,
        });
        bodies.sum()
    }

    /// The first history begins behind all that is completed by now.
    pub(crate) fn begins_counting(&mut self) {
        let parts = self.completed.iter().flat_map(|commit| &commit.parts);
        self.uncounted = parts.map(|part| part.len() as u64).sum();
    }

    /// Whether the operation that was taken last is not to be counted.
    fn is_uncounted(&mut self) -> bool {
        let is_uncounted = self.uncounted > 0;
        self.uncounted = self.uncounted.saturating_sub(1);
        is_uncounted
    }

    /// How many operations are to be carried out in this queue.
    pub(crate) fn arriving_in(&self, queue: QueueId) -> u64 {
        let facts = self.completed.iter().flat_map(|commit| &commit.parts).flatten();
        facts.filter(|fact| queue_of(fact) == queue).count() as u64
    }
}

/// The queue of an operation.
fn queue_of(fact: &Fact) -> QueueId {
    match fact {
        Fact::Put { queue, .. } | Fact::Got { queue, .. } => *queue,
        other => unreachable!("{other:?} is no operation of a unit of work"),
    }
}

impl QueueManager {
    /// Whether something is kept aside for a commit in parts, or is to be carried out: meanwhile
    /// no image can be taken.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// So many of the facts that follow are of this commit.
    pub(crate) fn begin_part(&mut self, commit: CommitId, operations: u32) {
        assert!(!self.parts.is_open(), "a part within a part");
        self.next.body = self.next.body.max(commit.0.saturating_add(1));
        if operations > 0 {
            self.parts.open = Some((commit, operations));
            self.parts.aside.entry(commit).or_default().operations += u64::from(operations);
        }
    }

    /// Keeps an operation aside that a part announced. Its body is needed from now on.
    pub(crate) fn keep_aside(&mut self, mut fact: Fact, outputs: &mut Outputs) {
        let queue = queue_of(&fact);
        if let Fact::Put { message, .. } = &mut fact {
            let body = std::mem::replace(&mut message.body, Body::Memory(bytes::Bytes::new()));
            message.body = self.stored(body, outputs);
        }
        self.parts.keep(queue, fact);
        self.parts.close_if_full();
    }

    /// An operation that a part announced is passed over.
    pub(crate) fn pass_over(&mut self) {
        self.parts.close_if_full();
    }

    /// A commit has happened. On the active instance (`live`) it is carried out in slices from now
    /// on; else by the caller, before the next fact.
    pub(crate) fn complete(
        &mut self,
        commit: CommitId,
        operations: u32,
        first: MessageSequence,
        live: bool,
    ) {
        let aside = self.parts.aside.remove(&commit).unwrap_or_default();
        if live {
            // What is not in the log is kept aside too.
            assert!(aside.operations >= u64::from(operations), "half a unit of work would happen");
            for (queue, count) in aside.queues {
                self.queue_mut(queue).arriving += count;
            }
        }
        if !aside.parts.is_empty() {
            self.parts.completed.push_back(CompletedCommit { first, parts: aside.parts });
        }
    }

    /// Carries out some of what is completed; yields how many. 0: there is none.
    pub(crate) fn complete_some(&mut self, now: Time, outputs: &mut Outputs) -> u32 {
        let mut count = 0;
        while count < limits::OPERATIONS_PER_PART
            && let Some(fact) = self.parts.next_completed()
        {
            self.happens(now, fact, outputs);
            count += 1;
        }
        fitting(count)
    }

    fn happens(&mut self, now: Time, fact: Fact, outputs: &mut Outputs) {
        let counted = self.parts.is_uncounted().then_some(self.region.counts);
        let id = queue_of(&fact);
        let queue = self.queue_mut(id);
        queue.arriving -= 1;
        queue.completing -= 1;
        let is_last = queue.arriving == 0;
        match fact {
            Fact::Put { queue, sequence, message, .. } => {
                self.apply_put(queue, sequence, *message, 1, outputs);
            }
            other => self.carry_out(other, Manner { now: Some(now), counted: true }, outputs),
        }
        // As replicas have it, which carried it out before the history began.
        self.region.counts = counted.unwrap_or(self.region.counts);
        // A temporary queue may be gone with the last of them.
        if is_last && self.queues.contains_key(&id) {
            self.mark_changed(id);
        }
    }
}
