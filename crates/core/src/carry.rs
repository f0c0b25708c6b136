//! Carrying messages forward: an old extent of the log can be reused when the messages that still
//! live in it are logged again. Their places, counts and reasons stay.

use towline_types::{Lsn, Payload};

use crate::fact::{Body, Durability, Fact};
use crate::message::Message;
use crate::queue::{Spot, State};
use crate::request::Decision;
use crate::{MessageSequence, QueueId, QueueManager};

/// Where a search for messages in old extents is. Start with `default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarryCursor {
    queue: QueueId,
    lane: u8,
    from: u64,
}

impl QueueManager {
    /// Finds messages whose body (or a chunk of it) is before `before`, examining up to `looks_max`
    /// messages from the cursor on. True: all have been examined.
    pub fn find_old(
        &self,
        before: Lsn,
        cursor: &mut CarryCursor,
        looks_max: usize,
        found: &mut Vec<(QueueId, MessageSequence, Body)>,
    ) -> bool {
        let mut looks = 0;
        let mut ids: Vec<QueueId> =
            self.queues.keys().copied().filter(|id| *id >= cursor.queue).collect();
        ids.sort_unstable();
        for id in ids {
            let Some(queue) = self.queues.get(&id) else { continue };
            if id != cursor.queue {
                *cursor = CarryCursor { queue: id, lane: 0, from: 0 };
            }
            while cursor.lane < 10 {
                let Some(entry) = queue.next_live(cursor.lane, cursor.from) else {
                    (cursor.lane, cursor.from) = (cursor.lane + 1, 0);
                    continue;
                };
                if looks == looks_max {
                    return false;
                }
                looks += 1;
                cursor.from = entry.sequence + 1;
                if !entry.persistent || entry.state == State::Leaving {
                    continue;
                }
                let body = queue.body_of(entry);
                let old = match &body {
                    Body::Log(location) => location.lsn < before,
                    Body::Chunks(chunks) => chunks.iter().any(|chunk| chunk.lsn < before),
                    Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => false,
                };
                if old {
                    found.push((id, MessageSequence(entry.sequence), body));
                }
            }
        }
        true
    }

    /// Decides to log a message again, with the content that was read from its old place. False: it
    /// is gone or its end is on its way, and nothing is to be done.
    pub fn carry(
        &mut self,
        queue: QueueId,
        sequence: MessageSequence,
        content: Payload,
        out: &mut Decision,
    ) -> bool {
        out.begin();
        let Some(found) = self.queues.get(&queue) else { return false };
        let Some(spot @ Spot { lane, .. }) = found.spot_of(sequence.0) else { return false };
        let Some(entry) = found.entry(spot) else { return false };
        if !entry.persistent || entry.state == State::Leaving || found.deleting {
            return false;
        }
        assert_eq!(content.len() as u64, found.bytes_of(entry), "a body is carried whole");
        let header = entry.header(lane);
        let backout_count = entry.backout_count;
        let dead_letter = found.extra_of(entry).and_then(|extra| extra.dead_letter.clone());
        let body = self.push_body(content, out);
        let message = Box::new(Message { header, body, backout_count, dead_letter });
        out.push_logged(Fact::Put { queue, sequence, message }, Durability::Lazy);
        out.durability = Durability::Lazy;
        true
    }
}
