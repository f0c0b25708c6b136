//! Carrying messages forward: an old extent of the log can be reused when the messages that still
//! live in it are logged again. Their sequences, counts and reasons stay.

use towline_types::{Lsn, Payload};

use crate::decide::put::push_body;
use crate::fact::{Durability, Fact};
use crate::message::{Body, BodyName, Message};
use crate::queue::{Entry, EntryState, Search, Spot};
use crate::record::fields::LEVEL_OF_FIELDS;
use crate::request::Decision;
use crate::{MessageSequence, PageRequest, QueueId, QueueManager};

/// Where a search for messages in old extents is. Start with `default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelocationCursor {
    queue: QueueId,
    lane: u8,
    from: u64,
}

/// How far a search for messages in old extents came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationSearch {
    /// Call again.
    More,
    /// This page must be read first; call again when it arrived.
    Needs(PageRequest),
    /// All messages have been examined.
    All,
}

impl QueueManager {
    /// Finds messages with a body (or a chunk of it) before `before`, the start of an extent,
    /// examining up to `looks_max` messages from the cursor on.
    pub fn find_old(
        &mut self,
        before: Lsn,
        cursor: &mut RelocationCursor,
        looks_max: usize,
        found: &mut Vec<(QueueId, MessageSequence, Body)>,
    ) -> RelocationSearch {
        let before_extent = before.0.div_ceil(self.limits.extent_bytes);
        let mut looks = 0;
        let mut ids: Vec<QueueId> =
            self.queues.keys().copied().filter(|id| *id >= cursor.queue).collect();
        ids.sort_unstable();
        for id in ids {
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            if id != cursor.queue {
                *cursor = RelocationCursor { queue: id, lane: 0, from: 0 };
            }
            while cursor.lane < 10 {
                let spot = match queue.next_in_old_extent(cursor.lane, cursor.from, before_extent) {
                    Search::Found(spot) => spot,
                    Search::OnPage(away) => {
                        // The caller may read it or not: no other consumer may count on that read.
                        return RelocationSearch::Needs(queue.page_of(away));
                    }
                    Search::Nothing => {
                        (cursor.lane, cursor.from) = (cursor.lane + 1, 0);
                        continue;
                    }
                };
                if looks == looks_max {
                    return RelocationSearch::More;
                }
                looks += 1;
                cursor.from = spot.sequence + 1;
                let leaves =
                    |entry: &Entry| !entry.persistent || entry.state == EntryState::Leaving;
                if queue.entry(spot).is_none_or(leaves) {
                    continue;
                }
                let Some(body) = queue.body(spot) else { continue };
                let old = match &body {
                    Body::Log(location) => location.lsn < before,
                    Body::Chunks(chunks) => chunks.iter().any(|chunk| chunk.lsn < before),
                    Body::Memory(_) | Body::Incoming(_) | Body::Announced { .. } => false,
                };
                if old {
                    found.push((id, MessageSequence(spot.sequence), body));
                }
            }
        }
        RelocationSearch::All
    }

    /// Decides to log a message again, with the content that was read from its old location. False:
    /// it is gone or its end is on its way, and nothing is to be done.
    pub fn relocate(
        &mut self,
        queue: QueueId,
        sequence: MessageSequence,
        content: Payload,
        out: &mut Decision,
    ) -> bool {
        self.begin_unasked(out);
        if !self.serves() {
            return false;
        }
        let Some(found) = self.queues.get(&queue) else { return false };
        let Some(spot @ Spot { lane, .. }) = found.spot_of(sequence.0) else { return false };
        let Some(entry) = found.entry(spot) else { return false };
        if !entry.persistent
            || entry.state == EntryState::Leaving
            || found.deleting
            || found.clearing > 0
        {
            return false;
        }
        assert_eq!(content.len() as u64, found.body_bytes(spot), "a body is carried whole");
        let extra = found.extra(spot);
        let header = entry.header(lane, extra);
        let backout_count = entry.backout_count;
        let dead_letter = extra.and_then(|extra| extra.dead_letter.clone());
        // The put finds the message at its position.
        self.queue_mut(queue).pin(spot);
        let carried = self.level >= LEVEL_OF_FIELDS;
        let name = || match carried {
            true => BodyName::Carried(sequence),
            false => BodyName::Own(self.next_body()),
        };
        let body = push_body(name, content, out);
        let message = Box::new(Message { header, body, backout_count, dead_letter });
        out.push_logged(Fact::Put { queue, sequence, carried, message }, Durability::Lazy);
        out.durability = Durability::Lazy;
        true
    }
}
