//! Messages of queues that were deleted before the image, while the log is replayed.
//!
//! The queue manager may have moved such a message to a queue that lives, and its body is still in
//! the put to the deleted one. So each is kept until the log records its end, its move, or the end
//! of its queue. Does not judge facts (`replay` does); empty outside of replay.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::release;
use crate::message::Message;
use crate::{MessageSequence, Outputs, QueueId};

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    messages: BTreeMap<(QueueId, MessageSequence), Message>,
    /// Queues that were deleted in this replay.
    deleted: BTreeSet<QueueId>,
}

impl Ghosts {
    pub(crate) fn get(&self, queue: QueueId, sequence: MessageSequence) -> Option<&Message> {
        self.messages.get(&(queue, sequence))
    }

    /// Keeps a message; a known one was carried forward, and the later put says all of it.
    pub(crate) fn put(
        &mut self,
        queue: QueueId,
        sequence: MessageSequence,
        message: Message,
        outputs: &mut Outputs,
    ) {
        let old = self.messages.insert((queue, sequence), message);
        release(old.map(|old| old.body), outputs);
    }

    pub(crate) fn take(&mut self, queue: QueueId, sequence: MessageSequence) -> Option<Message> {
        self.messages.remove(&(queue, sequence))
    }

    pub(crate) fn back_out(&mut self, queue: QueueId, sequence: MessageSequence, count: u32) {
        if let Some(message) = self.messages.get_mut(&(queue, sequence)) {
            message.backout_count = message.backout_count.max(count);
        }
    }

    /// All messages of a queue before this sequence end.
    pub(crate) fn cleared(&mut self, queue: QueueId, upto: MessageSequence, outputs: &mut Outputs) {
        let range = (queue, MessageSequence(0))..(queue, upto);
        let keys: Vec<_> = self.messages.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            release(self.messages.remove(&key).map(|message| message.body), outputs);
        }
    }

    /// A queue ends here, with all that is kept of it.
    pub(crate) fn deleted(&mut self, queue: QueueId, outputs: &mut Outputs) {
        self.cleared(queue, MessageSequence(u64::MAX), outputs);
        self.deleted.insert(queue);
    }

    /// Whether the deletion of a queue was seen in this replay.
    pub(crate) fn was_deleted(&self, queue: QueueId) -> bool {
        self.deleted.contains(&queue)
    }

    /// The replay is over: nothing can move any more.
    pub(crate) fn end(&mut self, outputs: &mut Outputs) {
        self.deleted.clear();
        for message in std::mem::take(&mut self.messages).into_values() {
            release(Some(message.body), outputs);
        }
    }
}
