//! Messages that could not be read from the log: each is reported once, and counted.
//!
//! Not here: what becomes of them (`towline_core::SetAside`).
//!
//! Invariant: memory is bounded; beyond the bound a message may be reported and counted twice.

use std::collections::{BTreeSet, HashMap};

use towline_core::{MessageSequence, QueueId, SetAside, Unreadable};

/// Messages that are remembered.
const KNOWN_MAX: usize = 65_536;

/// One of them, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedMessage {
    /// The queue that it was put to.
    pub queue: String,
    /// What was found, and where.
    pub place: String,
    /// Where it is now.
    pub now: Whereabouts,
}

/// Where a damaged message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On the dead-letter queue.
    Moved,
    /// In its queue, because no dead-letter queue can take it.
    Stays,
    /// In its queue, because it was only browsed.
    Browsed,
}

/// All that this process found.
#[derive(Debug, Default)]
pub(crate) struct DamagedMessages {
    known: BTreeSet<(QueueId, MessageSequence)>,
    counts: HashMap<QueueId, u64>,
    /// Those that were moved to the dead-letter queue.
    moved: HashMap<QueueId, u64>,
}

impl DamagedMessages {
    /// Enters what became of a message; what to report, if it is news.
    pub(crate) fn enter(&mut self, found: &Unreadable, aside: &SetAside) -> Option<DamagedMessage> {
        let (queue, now) = match aside {
            SetAside::Gone => return None,
            SetAside::Moved { queue } => (queue.clone(), Whereabouts::Moved),
            SetAside::Stays { queue } => (queue.clone(), Whereabouts::Stays),
            SetAside::Browsed { queue } => (queue.clone(), Whereabouts::Browsed),
        };
        let moved = now == Whereabouts::Moved;
        if moved {
            *self.moved.entry(found.queue).or_default() += 1;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        if found.lasts && self.known.insert((found.queue, found.sequence)) {
            *self.counts.entry(found.queue).or_default() += 1;
        } else if !moved {
            // It was reported before, or the fault may pass.
            return None;
        }
        Some(DamagedMessage { queue, place: found.place.clone(), now })
    }

    /// The messages that were found to be damaged where they are.
    pub(crate) fn known_in(&self, queue: QueueId) -> BTreeSet<MessageSequence> {
        let all = (queue, MessageSequence(0))..=(queue, MessageSequence(u64::MAX));
        self.known.range(all).map(|(_, sequence)| *sequence).collect()
    }

    /// How many were found in a queue.
    pub(crate) fn in_queue(&self, queue: QueueId) -> u64 {
        self.counts.get(&queue).copied().unwrap_or(0)
    }

    /// How many of a queue were moved to the dead-letter queue, whichever consumer found them
    /// first.
    pub(crate) fn moved_from(&self, queue: QueueId) -> u64 {
        self.moved.get(&queue).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_counted_once_and_reported_when_something_new_is_known() {
        let mut damaged = DamagedMessages::default();
        let (queue, sequence) = (QueueId(3), MessageSequence(7));
        let (place, consumer) = ("there".to_owned(), None);
        let mut found = Unreadable { queue, sequence, consumer, place, lasts: true };
        let stays = SetAside::Stays { queue: "Q".into() };
        let browsed = SetAside::Browsed { queue: "Q".into() };
        let moved = SetAside::Moved { queue: "Q".into() };
        let where_it_is = |where_it_is: Option<DamagedMessage>| where_it_is.map(|it| it.now);
        assert_eq!(where_it_is(damaged.enter(&found, &browsed)), Some(Whereabouts::Browsed));
        assert_eq!(damaged.enter(&found, &browsed), None, "each browser comes to it");
        assert_eq!(damaged.enter(&found, &stays), None);
        assert_eq!((damaged.in_queue(queue), damaged.moved_from(queue)), (1, 0));
        assert_eq!(where_it_is(damaged.enter(&found, &moved)), Some(Whereabouts::Moved));
        assert_eq!((damaged.in_queue(queue), damaged.moved_from(queue)), (1, 1));
        (found.lasts, found.sequence) = (false, MessageSequence(8));
        assert_eq!(damaged.enter(&found, &stays), None);
        assert_eq!(damaged.enter(&found, &SetAside::Gone), None);
        assert_eq!((damaged.in_queue(queue), damaged.in_queue(QueueId(4))), (1, 0));
    }
}
