//! Facts from the log at start, on top of an image.
//!
//! An image taken at LSN X holds definitions, counters and totals as of X, but no messages: those
//! come from the log, from before X on. So, for a fact **before** the image:
//!
//! | fact                        | rule                                                       |
//! |-----------------------------|------------------------------------------------------------|
//! | Defined, Undefined, Deleted | skipped: the image knows the outcome                       |
//! | HistoryBegun                | the same                                                   |
//! | of a queue not in the image | the queue was deleted before X: its messages are kept as   |
//! |                             | ghosts, since one may be moved to a queue that lives       |
//! | Put with lost chunks        | skipped: their extent was reused, so the message is gone,  |
//! |                             | or a later Put carries it forward                          |
//! | all others                  | applied, not counted in totals                             |
//!
//! And for any fact:
//!
//! | fact                              | rule                                                 |
//! |-----------------------------------|------------------------------------------------------|
//! | of an unknown message below the   | skipped: the extent of its Put was reused            |
//! | image's next sequence             |                                                      |
//! | of any other unknown message, or  | [`ReplayError`]: the log is damaged                  |
//! | (after X) of an unknown queue     |                                                      |
//! | HistoryBegun that does not go on  | [`ReplayError`]                                      |
//! | from the newest one               |                                                      |
//! | Put of a known message            | it was carried forward: the new location counts      |
//! | Put that says that it was carried | skipped when the image has its messages; else its    |
//! | forward, of an unknown message    | first Put was reused, and it is applied              |
//! | Got, Expired, BackedOut or Moved  | skipped: the message went with its queue             |
//! | from a queue deleted in the log   |                                                      |
//! | of a Part                         | kept aside; a Put with lost chunks is passed over    |
//! | Completed                         | what is kept aside is judged as if it stood here;    |
//! |                                   | before X there may be less than it says, after it    |
//! |                                   | that is damage                                       |
//!
//! `replay` is given whole runs only (recovery drops a run without its last record).

use std::cmp::Ordering;

use crate::apply::{Manner, release};
use crate::fact::Fact;
use crate::message::{Body, Message};
use crate::object::Definition;
use crate::queue::{SEQUENCE_END, body_bytes};
use crate::spilled_bodies::Pieces;
use crate::{CommitId, Effect, MessageSequence, Outputs, QueueId, QueueManager, ReplayError};

/// What to do with a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Apply,
    /// Only to, or from, or both, what is kept of deleted queues.
    Ghost,
    Skip,
}

impl QueueManager {
    /// Carries out one fact from the log. Call in log order, then `replay_end`. Effects are
    /// `Stored` and
    /// `Removed` only.
    ///
    /// # Errors
    /// See the module's tables. The value must not be used then.
    pub fn replay(
        &mut self,
        fact: Fact,
        before_image: bool,
        outputs: &mut Outputs,
    ) -> Result<(), ReplayError> {
        if self.parts.take_next() {
            return self.replay_aside(fact, before_image, outputs);
        }
        match self.judge(&fact, before_image)? {
            Verdict::Apply => {
                let manner = Manner { now: None, counted: !before_image };
                if let Fact::Deleted { queue } = &fact {
                    self.ghosts.deleted(*queue, outputs);
                }
                self.carry_out(fact, manner, outputs);
                self.give_up_all(outputs);
            }
            Verdict::Ghost => self.carry_out_ghost(fact, !before_image, outputs),
            Verdict::Skip => self.skip(fact, outputs),
        }
        Ok(())
    }

    /// All facts of a run were replayed.
    ///
    /// # Errors
    /// It has pieces of a message that is carried forward, and not its put: no version wrote that,
    /// and no image could hold it.
    pub fn replay_run_end(&self) -> Result<(), ReplayError> {
        match self.spilled_bodies.has_carried() {
            false => Ok(()),
            true => Err(contradiction("a body is carried forward without its message")),
        }
    }

    /// The whole log was replayed. Chunks that no put referred to are dropped, and what is left of
    /// deleted queues.
    pub fn replay_end(&mut self, outputs: &mut Outputs) {
        self.ghosts.end(outputs);
        self.replay_new_term(outputs);
        self.known_from = self.next.sequence;
    }

    /// All units of work that were open are gone, and so are the bodies that they sent ahead. The
    /// log goes on.
    pub fn replay_new_term(&mut self, outputs: &mut Outputs) {
        let mut locations = self.spilled_bodies.take_all();
        self.parts.give_up(&mut locations);
        if !locations.is_empty() {
            outputs.effects.push(Effect::RemovedMany { locations });
        }
    }

    fn judge(&self, fact: &Fact, before_image: bool) -> Result<Verdict, ReplayError> {
        let definition = if before_image { Verdict::Skip } else { Verdict::Apply };
        match fact {
            Fact::Put { queue, sequence, carried, message } => {
                let place = (*queue, *sequence);
                self.judge_put(place, *carried, message, before_image)
            }
            Fact::Got { queue, sequence }
            | Fact::Expired { queue, sequence }
            | Fact::BackedOut { queue, sequence, count: _ } => {
                self.judge_message(*queue, *sequence, before_image)
            }
            Fact::Moved { from, sequence, to, new_sequence, .. } => {
                check_sequence(*new_sequence)?;
                if self.body_of_any(*to, *new_sequence).is_some() {
                    return Err(contradiction("a message moves to where another one is"));
                }
                match self.judge_message(*from, *sequence, before_image)? {
                    Verdict::Skip => Ok(Verdict::Skip),
                    Verdict::Apply => self.judge_queue(*to, before_image),
                    Verdict::Ghost => {
                        self.judge_queue(*to, before_image)?;
                        Ok(Verdict::Ghost)
                    }
                }
            }
            Fact::BodyChunk { body, index, chunk } => {
                let Body::Log(_) = chunk else {
                    return Err(contradiction("a chunk without a place"));
                };
                let known = self.spilled_bodies.pieces(*body).len();
                match (known == *index as usize, before_image) {
                    (true, _) => Ok(Verdict::Apply),
                    (false, true) => Ok(Verdict::Skip),
                    (false, false) => Err(contradiction("a chunk of a body is missing")),
                }
            }
            Fact::Defined { definition: found } => {
                if definition == Verdict::Apply {
                    self.check_definition(found)?;
                }
                Ok(definition)
            }
            Fact::Undefined { name } => match (definition, self.catalogue.get(name)) {
                (Verdict::Skip | Verdict::Ghost, _)
                | (Verdict::Apply, Some(Definition::Alias(_) | Definition::Model(_))) => {
                    Ok(definition)
                }
                (Verdict::Apply, _) => Err(contradiction("an unknown object was deleted")),
            },
            Fact::Deleted { queue: _ } if before_image => Ok(Verdict::Ghost),
            Fact::Deleted { queue } => self.judge_queue(*queue, false),
            Fact::Cleared { queue, upto } => {
                check_sequence(*upto)?;
                self.judge_queue(*queue, before_image)
            }
            // What it names may have been dropped, with its extent or at an earlier start.
            Fact::Abandoned { .. }
            | Fact::Committed { .. }
            | Fact::Level { .. }
            | Fact::Part { .. } => Ok(Verdict::Apply),
            Fact::Completed { commit, operations, first } => check_sequence(*first)
                .and_then(|()| self.judge_parts(*commit, *operations, before_image)),
            Fact::HistoryBegun { .. } if before_image => Ok(Verdict::Skip),
            Fact::HistoryBegun { history, first } => {
                check_sequence(first.unwrap_or_default())?;
                let next = self.region.histories().check_next(history);
                next.map(|()| Verdict::Apply).map_err(|fault| contradiction(&fault.to_string()))
            }
        }
    }

    fn judge_put(
        &self,
        (queue, sequence): (QueueId, MessageSequence),
        carried: bool,
        message: &Message,
        before_image: bool,
    ) -> Result<Verdict, ReplayError> {
        if !message.header.persistent {
            return Err(contradiction("a non-persistent message is in the log"));
        }
        let place = self.judge_place(queue, sequence, &message.body, before_image)?;
        // What keeps the log carries forward what lives there: it need not live here.
        let ended = carried && self.image_whole && self.body_of_any(queue, sequence).is_none();
        match self.judge_body(&message.body, before_image)? {
            Verdict::Apply if ended => Ok(Verdict::Skip),
            Verdict::Apply => Ok(place),
            other @ (Verdict::Skip | Verdict::Ghost) => Ok(other),
        }
    }

    /// Whether a put fits where it goes.
    fn judge_place(
        &self,
        queue: QueueId,
        sequence: MessageSequence,
        body: &Body,
        before_image: bool,
    ) -> Result<Verdict, ReplayError> {
        check_sequence(sequence)?;
        let place = self.judge_queue(queue, before_image)?;
        self.check_relocated(queue, sequence, body)?;
        Ok(place)
    }

    /// Whether all parts of a commit came.
    fn judge_parts(
        &self,
        commit: CommitId,
        operations: u32,
        before_image: bool,
    ) -> Result<Verdict, ReplayError> {
        match self.parts.operations_of(commit).cmp(&u64::from(operations)) {
            Ordering::Equal => Ok(Verdict::Apply),
            Ordering::Less if before_image => Ok(Verdict::Apply),
            Ordering::Less => Err(contradiction("parts of a commit are missing")),
            Ordering::Greater => Err(contradiction("a commit of more than it says")),
        }
    }

    /// A fact that follows a Part.
    fn replay_aside(
        &mut self,
        fact: Fact,
        before_image: bool,
        outputs: &mut Outputs,
    ) -> Result<(), ReplayError> {
        match &fact {
            Fact::Put { sequence, carried: false, message, .. } if message.header.persistent => {
                check_sequence(*sequence)?;
                match self.judge_body(&message.body, before_image)? {
                    Verdict::Apply => self.keep_aside(fact, outputs),
                    Verdict::Skip | Verdict::Ghost => {
                        self.skip(fact, outputs);
                        self.pass_over();
                    }
                }
            }
            Fact::Got { .. } => self.keep_aside(fact, outputs),
            _ => return Err(contradiction("a part with what is no operation of a unit of work")),
        }
        Ok(())
    }

    /// Carries out the next fact of a commit that is completed. False: there is none left, and the
    /// log goes on.
    ///
    /// # Errors
    /// As [`QueueManager::replay`].
    pub fn replay_completed(
        &mut self,
        before_image: bool,
        outputs: &mut Outputs,
    ) -> Result<bool, ReplayError> {
        let Some(fact) = self.parts.next_completed() else { return Ok(false) };
        match fact {
            Fact::Put { queue, sequence, message, .. } => {
                let place = self.judge_place(queue, sequence, &message.body, before_image)?;
                if place == Verdict::Ghost {
                    self.saw_sequence(sequence);
                    self.ghosts.put(queue, sequence, *message, outputs);
                } else {
                    self.apply_put(queue, sequence, *message, u64::from(!before_image), outputs);
                }
            }
            other => self.replay(other, before_image, outputs)?,
        }
        Ok(true)
    }

    /// One name stands for one queue, and the other way round.
    fn check_definition(&self, definition: &Definition) -> Result<(), ReplayError> {
        let name = definition.name();
        let fits = match (definition, self.catalogue.get(name)) {
            (Definition::Local(new), old) => {
                let named = self.queues.get(&new.id).map(|queue| queue.definition.name.as_str());
                let same_name = match old {
                    None => true,
                    Some(Definition::Local(old)) => old.id == new.id,
                    Some(_) => false,
                };
                same_name && named.is_none_or(|named| named == name) && new.id.0 < u32::MAX
            }
            (Definition::Alias(_), old) => matches!(old, None | Some(Definition::Alias(_))),
            (Definition::Model(_), old) => matches!(old, None | Some(Definition::Model(_))),
            (Definition::QueueManager(_), _) => true,
        };
        if fits { Ok(()) } else { Err(contradiction("two objects have one name or id")) }
    }

    /// A put of a known message is the same message, logged again.
    fn check_relocated(
        &self,
        queue: QueueId,
        sequence: MessageSequence,
        body: &Body,
    ) -> Result<(), ReplayError> {
        match self.body_of_any(queue, sequence) {
            Some(known) if body_bytes(&known) != body_bytes(body) => {
                Err(contradiction("two messages have one sequence"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Where the body of a message is, of a queue that lives or not.
    fn body_of_any(&self, queue: QueueId, sequence: MessageSequence) -> Option<Body> {
        match self.queues.contains_key(&queue) {
            true => self.body_of(queue, sequence),
            false => self.ghosts.get(queue, sequence).map(|message| message.body.clone()),
        }
    }

    fn judge_queue(&self, queue: QueueId, before_image: bool) -> Result<Verdict, ReplayError> {
        match (self.queues.contains_key(&queue), before_image) {
            (true, _) => Ok(Verdict::Apply),
            (false, true) => Ok(Verdict::Ghost),
            (false, false) => Err(contradiction(&format!("queue {} was never defined", queue.0))),
        }
    }

    fn judge_message(
        &self,
        queue: QueueId,
        sequence: MessageSequence,
        before_image: bool,
    ) -> Result<Verdict, ReplayError> {
        if !self.queues.contains_key(&queue) && self.ghosts.was_deleted(queue) {
            return Ok(Verdict::Skip);
        }
        let place = self.judge_queue(queue, before_image)?;
        if self.body_of_any(queue, sequence).is_some() {
            return Ok(place);
        }
        if place == Verdict::Ghost || sequence.0 < self.image_sequence {
            return Ok(Verdict::Skip);
        }
        let queue = queue.0;
        let sequence = sequence.0;
        Err(contradiction(&format!("message {sequence} of queue {queue} was never put")))
    }

    fn judge_body(&self, body: &Body, before_image: bool) -> Result<Verdict, ReplayError> {
        match body {
            Body::Log(_) => Ok(Verdict::Apply),
            Body::Announced { body, chunks, bytes } => {
                let known = self.spilled_bodies.pieces(*body);
                let sum: u64 = known.iter().map(|chunk| u64::from(chunk.bytes)).sum();
                let all = *chunks > 0 && known.len() == *chunks as usize && sum == *bytes;
                match (all, before_image) {
                    (true, _) => Ok(Verdict::Apply),
                    (false, true) => Ok(Verdict::Skip),
                    (false, false) => Err(contradiction("chunks of a body are missing")),
                }
            }
            Body::Incoming(_) | Body::Memory(_) | Body::Chunks(_) => {
                Err(contradiction("a body without a place"))
            }
        }
    }

    /// A fact that concerns what is kept of deleted queues.
    fn carry_out_ghost(&mut self, fact: Fact, counted: bool, outputs: &mut Outputs) {
        match fact {
            Fact::Put { queue, sequence, carried: _, mut message } => {
                message.body = self.stored(message.body, outputs);
                self.saw_sequence(sequence);
                self.ghosts.put(queue, sequence, *message, outputs);
            }
            Fact::Got { queue, sequence } | Fact::Expired { queue, sequence } => {
                release(self.ghosts.take(queue, sequence).map(|ghost| ghost.body), outputs);
            }
            Fact::BackedOut { queue, sequence, count } => {
                self.ghosts.back_out(queue, sequence, count);
            }
            Fact::Moved { from, sequence, to, new_sequence, order, dead_letter } => {
                let count = u64::from(counted);
                let message = match self.queues.get_mut(&from) {
                    Some(source) => {
                        source.totals.moved += count;
                        source.take(sequence.0).map(|removed| removed.into_message(0))
                    }
                    None => self.ghosts.take(from, sequence),
                };
                let Some(message) = message else {
                    unreachable!("a message moves that was found before")
                };
                self.saw_sequence(new_sequence);
                match self.queues.get_mut(&to) {
                    Some(target) => {
                        target.totals.puts += count;
                        self.arrive_moved(message, (to, new_sequence, order), *dead_letter);
                    }
                    None => self.ghosts.put(to, new_sequence, message.moved(*dead_letter), outputs),
                }
            }
            Fact::Deleted { queue } => self.ghosts.deleted(queue, outputs),
            Fact::Cleared { queue, upto } => {
                self.saw_sequence(MessageSequence(upto.0.saturating_sub(1)));
                self.ghosts.cleared(queue, upto, outputs);
            }
            Fact::BodyChunk { .. }
            | Fact::Abandoned { .. }
            | Fact::Defined { .. }
            | Fact::Undefined { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::Part { .. }
            | Fact::Completed { .. }
            | Fact::HistoryBegun { .. } => unreachable!("such a fact concerns no message"),
        }
    }

    /// A fact that is not applied may still leave something to tidy up.
    fn skip(&mut self, fact: Fact, outputs: &mut Outputs) {
        match fact {
            Fact::Put { message, .. } => {
                if let Body::Announced { body, .. } = message.body {
                    let pieces = self.spilled_bodies.take(body);
                    release(pieces.map(Pieces::into_body), outputs);
                }
            }
            Fact::Got { .. }
            | Fact::Expired { .. }
            | Fact::BackedOut { .. }
            | Fact::Moved { .. }
            | Fact::BodyChunk { .. }
            | Fact::Abandoned { .. }
            | Fact::Defined { .. }
            | Fact::Undefined { .. }
            | Fact::Deleted { .. }
            | Fact::Cleared { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::Part { .. }
            | Fact::Completed { .. }
            | Fact::HistoryBegun { .. } => {}
        }
    }
}

/// Sequences of ours never come near this.
fn check_sequence(sequence: MessageSequence) -> Result<(), ReplayError> {
    if sequence.0 < SEQUENCE_END {
        return Ok(());
    }
    Err(contradiction("a sequence that was never given"))
}

fn contradiction(what: &str) -> ReplayError {
    ReplayError { what: what.to_owned() }
}
