//! Messages that left their queue all at once, by CLEAR or DELETE, and bodies in the log to which
//! no put will refer (a large unit of work was rolled back): what is not given up yet. There may be
//! millions: that is done in slices (`work`).
//!
//! Not here: which messages leave (`apply`). Replicas and replay have no clients that would wait,
//! and give them up at once.
//!
//! Invariant: none of it is in a queue, an index, a count or an image any more, but for the extents
//! of the log, which stay as long as a body counts as live there.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_types::BodyLocation;

use crate::message::Body;
use crate::queue::{RemovedBlock, RemovedQueue};
use crate::spilled_bodies::SpilledBlock;
use crate::{Effect, Outputs, QueueManager};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    queues: VecDeque<RemovedQueue>,
    /// Bodies without a message.
    abandoned: VecDeque<Arc<SpilledBlock>>,
}

impl Garbage {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.abandoned.is_empty()
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

/// Adds where the bodies of a block are; yields how many messages it has.
fn give_up_bodies(block: RemovedBlock, locations: &mut Vec<BodyLocation>) -> usize {
    let mut count = 0;
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
    count
}

/// What one step gives up.
enum Piece {
    Messages(RemovedBlock),
    /// So many keys of an index; they are gone.
    Keys(usize),
}

impl QueueManager {
    /// No put will refer to these. There may be a million: more than a block is given up in slices.
    pub(crate) fn give_up_abandoned(
        &mut self,
        blocks: Vec<Arc<SpilledBlock>>,
        outputs: &mut Outputs,
    ) {
        if let [few] = blocks.as_slice() {
            let locations = few.locations().collect();
            outputs.effects.push(Effect::RemovedMany { locations });
        } else {
            self.garbage.abandoned.extend(blocks);
        }
    }

    /// Whether bodies are to be given up: the log needs less soon.
    #[must_use]
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Gives up some hundred bodies of each kind, or as many keys; yields how many. 0: there are
    /// none.
    pub(crate) fn give_up_some(&mut self, outputs: &mut Outputs) -> u32 {
        let mut count = 0;
        let mut locations: Vec<BodyLocation> = Vec::new();
        if let Some(block) = self.garbage.abandoned.pop_front() {
            locations.extend(block.locations());
            count += 1 + locations.len();
        }
        match self.garbage.next() {
            None => {}
            Some(Piece::Keys(keys)) => count += 1 + keys,
            Some(Piece::Messages(block)) => count += 1 + give_up_bodies(block, &mut locations),
        }
        if !locations.is_empty() {
            outputs.effects.push(Effect::RemovedMany { locations });
        }
        towline_types::fitting(count)
    }

    /// Gives up all of it.
    pub(crate) fn give_up_all(&mut self, outputs: &mut Outputs) {
        while self.give_up_some(outputs) > 0 {}
    }
}
