//! Messages that come back to their queues many at a time: a large unit of work that is rolled
//! back, or a client that is gone with much that it had not settled. There may be a million: they
//! come in slices (`work`).
//!
//! Few come back at once, in the step that asks for it, unless that is logged and runs wait for the
//! log; so do deliveries that their consumer still has. Not here: what happens to a message that
//! comes back (`decide`).
//!
//! Invariants: a message that is to come back is held, as it was before; as long as one is, its
//! queue gives nothing to consumers, so that none overtakes another one, and is not cleared or
//! deleted. The space of a put that is rolled back is free in its queue at once, its memory when it
//! had its turn.

use std::collections::VecDeque;

use towline_types::Time;

use crate::effect::Outputs;
use crate::queue::Spot;
use crate::sessions::StagedGet;
use crate::staged_puts::{StagedPut, StagedPuts};
use crate::{QueueId, QueueManager};

/// How many have their turn together.
const PER_TURN: usize = 128;

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// Puts that were rolled back.
    puts: VecDeque<StagedPuts>,
    messages: VecDeque<std::vec::IntoIter<ReturningMessage>>,
}

/// A message on its way back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReturningMessage {
    /// Of a unit of work.
    Got(StagedGet),
    /// Of a consumer that is gone.
    Held {
        queue: QueueId,
        spot: Spot,
        /// A backout is counted.
        failed: bool,
    },
}

impl ReturningMessage {
    /// Its queue.
    pub(crate) fn queue(&self) -> QueueId {
        match self {
            ReturningMessage::Got(get) => get.queue,
            ReturningMessage::Held { queue, .. } => *queue,
        }
    }

    pub(crate) fn is_of_unit(&self) -> bool {
        matches!(self, ReturningMessage::Got(_))
    }

    pub(crate) fn sequence(&self) -> u64 {
        match self {
            ReturningMessage::Got(get) => get.spot.sequence,
            ReturningMessage::Held { spot, .. } => spot.sequence,
        }
    }
}

impl Returns {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.messages.is_empty()
    }

    /// Puts that still take memory.
    pub(crate) fn puts(&self) -> impl Iterator<Item = &StagedPut> {
        self.puts.iter().flat_map(StagedPuts::iter)
    }

    /// Messages that are still on their way.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &ReturningMessage> {
        self.messages.iter().flat_map(|messages| messages.as_slice())
    }
}

impl QueueManager {
    /// Whether so many come back in slices.
    pub(crate) fn return_in_slices(&self, count: usize) -> bool {
        count > self.limits.returned_at_once_max
    }

    /// The memory of these puts, which their queues do not count any more, is given back later.
    pub(crate) fn give_puts_up(&mut self, puts: StagedPuts) {
        if !puts.is_empty() {
            self.returns.puts.push_back(puts);
        }
    }

    /// These messages come back to their queues later.
    pub(crate) fn return_later(&mut self, messages: Vec<ReturningMessage>) {
        for message in &messages {
            self.queue_mut(message.queue()).returning += 1;
        }
        if !messages.is_empty() {
            self.returns.messages.push_back(messages.into_iter());
        }
    }

    /// Backouts of messages that come back are logged: they stay where they are while runs wait for
    /// the log.
    pub(crate) fn returns_can_go_on(&self) -> bool {
        !self.returns.puts.is_empty() || self.messages_can_return()
    }

    fn messages_can_return(&self) -> bool {
        !self.returns.messages.is_empty() && !self.logs_nothing()
    }

    /// Some of both have their turn; yields how many.
    pub(crate) fn return_some(&mut self, now: Time, outputs: &mut Outputs) -> u32 {
        let mut count = 0;
        if let Some(puts) = self.returns.puts.front_mut() {
            let some: Vec<StagedPut> = (0..PER_TURN).map_while(|_| puts.pop()).collect();
            if puts.is_empty() {
                self.returns.puts.pop_front();
            }
            some.iter().for_each(|put| self.unstage(put, false));
            count += some.len();
        }
        if self.messages_can_return()
            && let Some(messages) = self.returns.messages.front_mut()
        {
            let some: Vec<ReturningMessage> = messages.by_ref().take(PER_TURN).collect();
            if messages.as_slice().is_empty() {
                self.returns.messages.pop_front();
            }
            some.iter().for_each(|message| self.comes_back(now, message, outputs));
            count += some.len();
        }
        towline_types::fitting(count)
    }

    fn comes_back(&mut self, now: Time, message: &ReturningMessage, outputs: &mut Outputs) {
        let id = message.queue();
        let queue = self.queue_mut(id);
        queue.returning -= 1;
        let is_last = queue.returning == 0;
        match *message {
            ReturningMessage::Got(get) => self.roll_back_get(now, get, outputs),
            ReturningMessage::Held { spot, failed: true, .. } => {
                self.back_out(now, id, spot, outputs);
            }
            ReturningMessage::Held { spot, failed: false, .. } => self.give_back(id, spot),
        }
        // A temporary queue may be gone with the last of them.
        if is_last && self.queues.contains_key(&id) {
            self.mark_changed(id);
        }
    }
}
