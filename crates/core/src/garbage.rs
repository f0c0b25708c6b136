//! Messages that left their queue all at once, by CLEAR or DELETE, and with bodies that are not
//! given up yet. There may be millions: that is done in slices (`work`).
//!
//! Not here: which messages leave (`apply`). Replicas and replay have no clients that would wait,
//! and give them up at once.
//!
//! Invariant: none of it is in a queue, an index or a count any more, but for the extents of the
//! log, which stay as long as a body counts as live there.

use std::collections::VecDeque;

use towline_types::BodyLocation;

use crate::message::Body;
use crate::queue::{RemovedBlock, RemovedQueue};
use crate::{Effect, Outputs, QueueManager};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    queues: VecDeque<RemovedQueue>,
}

impl Garbage {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn add(&mut self, removed: RemovedQueue) {
        self.queues.push_back(removed);
    }

    fn next(&mut self) -> Option<Piece> {
        while let Some(queue) = self.queues.front_mut() {
            if let Some(block) = queue.blocks.pop_front() {
                return Some(Piece::Messages(block));
            }
            let keys = queue.give_up_keys();
            if keys > 0 {
                return Some(Piece::Keys(keys));
            }
            self.queues.pop_front();
        }
        None
    }
}

/// What one step gives up.
enum Piece {
    Messages(RemovedBlock),
    /// So many keys of an index; they are gone.
    Keys(usize),
}

impl QueueManager {
    /// Gives up the bodies of some hundred messages, or as many keys; yields how many. 0: there are
    /// none.
    pub(crate) fn give_up_some(&mut self, outputs: &mut Outputs) -> u32 {
        let block = match self.garbage.next() {
            None => return 0,
            Some(Piece::Keys(keys)) => return u32::try_from(keys).unwrap_or(u32::MAX),
            Some(Piece::Messages(block)) => block,
        };
        let mut locations: Vec<BodyLocation> = Vec::new();
        let mut count = 1;
        for message in block.into_messages() {
            count += 1;
            if !message.entry.persistent {
                continue;
            }
            match message.body() {
                Body::Log(location) => locations.push(location),
                Body::Chunks(chunks) => locations.extend(chunks.iter()),
                Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => {
                    unreachable!("the body of a persistent message is in the log")
                }
            }
        }
        if !locations.is_empty() {
            outputs.effects.push(Effect::RemovedMany { locations });
        }
        count
    }

    /// Gives up all of it.
    pub(crate) fn give_up_all(&mut self, outputs: &mut Outputs) {
        while self.give_up_some(outputs) > 0 {}
    }
}
