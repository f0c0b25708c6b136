//! A message with unreadable content: it is set aside where an operator finds it, or stays and the
//! client is notified. It is never passed over in silence.
//!
//! Not here: finding it out, and getting an intact copy from elsewhere. The message keeps the
//! location of its content wherever it goes: when the log is repaired, it is whole.

use std::collections::BTreeSet;

use bytes::Bytes;
use towline_types::{BodyLocation, PageRef, Time};

use crate::message::DeadLetterReason;
use crate::queue::{Block, Entry, EntryBody, EntryState, Sheet, Spot, page};
use crate::request::Decision;
use crate::sessions::HeldMessage;
use crate::{ConsumerId, MessageSequence, QueueId, QueueManager, Refusal};

/// A message that cannot be read, as it was found.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// In which queue.
    pub queue: QueueId,
    /// Which.
    pub sequence: MessageSequence,
    /// The consumer that it was read for; `None`: for a selector, or to carry it forward.
    pub consumer: Option<ConsumerId>,
    /// What was found, and where.
    pub place: String,
    /// Whether it will stay so (damage), as against something that may pass (no file handles).
    pub lasts: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetAside {
    /// It is gone, or a consumer has it.
    Gone,
    /// It is on its way to the dead-letter queue.
    Moved {
        /// The queue that it was in.
        queue: String,
    },
    /// It stays where it is: no dead-letter queue can take it.
    Stays {
        /// Its queue.
        queue: String,
    },
    /// It stays where it is, because its reader is a browser, which changes nothing.
    Browsed {
        /// Its queue.
        queue: String,
    },
}

impl QueueManager {
    /// Sets a message aside that cannot be read. A consumer that cannot go on is closed, with the
    /// reason. For a browser nothing is set aside: it receives a note instead of the message.
    pub fn set_aside(&mut self, now: Time, found: &Unreadable, out: &mut Decision) -> SetAside {
        self.begin_unasked(out);
        let name = match self.queues.get(&found.queue) {
            Some(queue) => queue.definition.name.clone(),
            None => return SetAside::Gone,
        };
        let browses = found.consumer.and_then(|id| self.consumers.get(&id)).map(|it| it.browses());
        if browses == Some(true) && found.lasts {
            return self.browsed(found, name);
        }
        let aside = match self.reach(found) {
            Some(spot) if found.lasts => {
                let reason = DeadLetterReason::Damaged;
                if self.dead_letter(now, found.queue, spot, reason, out) {
                    SetAside::Moved { queue: name.clone() }
                } else {
                    SetAside::Stays { queue: name.clone() }
                }
            }
            Some(_) => SetAside::Stays { queue: name.clone() },
            None => SetAside::Gone,
        };
        let moved = matches!(aside, SetAside::Moved { .. });
        let Some(id) = found.consumer else { return aside };
        let Some(consumer) = self.consumers.get(&id) else { return aside };
        // A browser, which comes here when it may pass, would show a list without it.
        if !moved || consumer.browses() {
            let place = found.place.clone();
            self.dismiss(id, Refusal::MessageDamaged { queue: name, place, moved });
        }
        let held = self.consumers.get_mut(&id).and_then(|it| it.held.remove(&found.sequence.0));
        if let Some(HeldMessage { lane, .. }) = held
            && !moved
        {
            // Only now: it must not be delivered to the same consumer again.
            self.give_back(found.queue, Spot { lane, sequence: found.sequence.0 });
        }
        aside
    }

    /// What a browser came to: locked or not, as it was when the browser chose it.
    fn browsed(&self, found: &Unreadable, queue: String) -> SetAside {
        let there = self.queues.get(&found.queue).and_then(|queue| {
            let entry = queue.entry(queue.spot_of(found.sequence.0)?)?;
            matches!(entry.state, EntryState::Available | EntryState::Held).then_some(())
        });
        there.map_or(SetAside::Gone, |()| SetAside::Browsed { queue })
    }

    /// The message, unless another consumer has it or its end is decided.
    fn reach(&self, found: &Unreadable) -> Option<Spot> {
        let queue = self.queues.get(&found.queue)?;
        let spot = queue.spot_of(found.sequence.0)?;
        let entry = queue.entry(spot)?;
        let is_held = || {
            let consumer = found.consumer.and_then(|id| self.consumers.get(&id));
            consumer.is_some_and(|consumer| consumer.held.contains_key(&found.sequence.0))
        };
        let is_note = queue.extra(spot).and_then(|extra| extra.dead_letter.as_ref());
        let is_note = is_note.is_some_and(|it| it.reason == DeadLetterReason::Damaged);
        let in_reach = match entry.state {
            EntryState::Available => !queue.deleting && queue.clearing == 0,
            EntryState::Held => is_held(),
            EntryState::Leaving | EntryState::Gone => false,
        };
        (in_reach && !is_note).then_some(spot)
    }

    /// How many messages of a queue are known to be damaged: notes of messages that were set aside
    /// there, and those that stay, which are `known` to the caller. Of blocks in memory only; at
    /// the cost of those messages, and of a look at each block.
    pub fn damaged_in(
        &self,
        name: &str,
        known: &dyn Fn(QueueId) -> BTreeSet<MessageSequence>,
    ) -> u64 {
        let Ok(local) = self.catalogue.local(name) else { return 0 };
        let Some(queue) = self.queues.get(&local.id) else { return 0 };
        let extras = queue.all_blocks().filter_map(|(_, block)| block.sheet());
        let extras = extras.flat_map(|sheet| sheet.extras.iter());
        let notes = extras.filter(|(_, extra)| {
            let letter = extra.dead_letter.as_ref();
            letter.is_some_and(|letter| letter.reason == DeadLetterReason::Damaged)
        });
        let mut damaged = known(local.id);
        damaged.retain(|sequence| queue.spot_of(sequence.0).is_some());
        damaged.extend(notes.map(|(sequence, _)| MessageSequence(sequence)));
        damaged.len() as u64
    }

    /// Where the contents of all notes are, or parts of large ones: of messages that were set
    /// aside. Of blocks that are not in memory only those are read that have bodies in an extent of
    /// `wanted`. A page that cannot be read gives none: what is not known is not taken for given
    /// up.
    pub fn bodies_set_aside(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        read: &dyn Fn(PageRef) -> Option<Bytes>,
    ) -> Vec<BodyLocation> {
        let blocks = self.queues.values().flat_map(|queue| queue.all_blocks());
        let mut found = Vec::new();
        for (_, block) in blocks {
            match block.sheet() {
                Some(sheet) => note_bodies(sheet, &mut found),
                None => {
                    if let Some(sheet) = sheet_of(block, wanted, read) {
                        note_bodies(&sheet, &mut found);
                    }
                }
            }
        }
        found
    }
}

/// What the page of a block says, if it is wanted and can be read.
fn sheet_of(
    block: &Block,
    wanted: &dyn Fn(u64) -> bool,
    read: &dyn Fn(PageRef) -> Option<Bytes>,
) -> Option<Sheet> {
    let outline = block.stored.as_deref()?;
    if !outline.extents.iter().any(|share| wanted(share.extent)) {
        return None;
    }
    page::decode(&read(outline.page)?).ok()
}

fn note_bodies(sheet: &Sheet, found: &mut Vec<BodyLocation>) {
    let logged =
        |entry: &&Entry| entry.marks.has_extra() && matches!(entry.place, EntryBody::Log { .. });
    for entry in sheet.entries.iter().filter(logged) {
        let extra = sheet.extras.get(entry.sequence);
        let letter = extra.and_then(|extra| extra.dead_letter.as_ref());
        if letter.is_some_and(|letter| letter.reason == DeadLetterReason::Damaged) {
            found.extend(page::bodies(entry, extra));
        }
    }
}
