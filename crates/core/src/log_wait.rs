//! What the queue manager logs by itself, without a client that asks, while runs wait for the log:
//! nothing. A disk may stand still for as long as it likes, and each message that expires and each
//! unit of work that ends meanwhile would be one more run that waits. Nor is a backout logged: its
//! message comes back when the log takes runs (`returns`). A client that fails again and again
//! would get it again at once, and each round would be one more run.
//!
//! Not here: what else clients ask for. Puts are held back where they are read, each message ends
//! once, and for all else that is logged its client waits.
//!
//! Invariant: a consumer that met a message with an end that waits looks again when the log takes
//! runs.

use std::collections::BTreeSet;

use crate::queue::Entry;
use crate::{MessageSequence, QueueId, QueueManager};

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct LogWait {
    waits: bool,
    /// Expired messages that consumers met meanwhile.
    met: BTreeSet<(QueueId, MessageSequence)>,
}

impl LogWait {
    /// Whether runs wait for the log.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether the end of this message waits; a consumer has met it.
    pub(crate) fn holds_up(&mut self, queue: QueueId, sequence: u64, entry: &Entry) -> bool {
        let waits = self.waits && entry.persistent;
        if waits {
            self.met.insert((queue, MessageSequence(sequence)));
        }
        waits
    }
}

impl QueueManager {
    /// Whether runs wait for the log: until they do not, nothing is logged that no client asked
    /// for. Expired messages stay where they are, and are not delivered.
    pub fn wait_for_log(&mut self, waits: bool) {
        self.log_wait.waits = waits;
        if !waits && !self.log_wait.met.is_empty() {
            for (queue, sequence) in std::mem::take(&mut self.log_wait.met) {
                self.content_arrived(queue, sequence);
            }
        }
    }
}
