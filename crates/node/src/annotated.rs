//! Message annotations that consumers gave with a `modified` outcome (AMQP 3.4.4): they are merged
//! into those of the message when it is delivered next, here or from a dead-letter queue.
//!
//! They are in memory only: a restart or a fail-over forgets them. Bounded by number and length:
//! beyond the number, the messages that were annotated first lose theirs.
//!
//! Not here: permission to annotate (the instance checks that the consumer has the message), and
//! how they get into a message (`front`).

use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use towline_amqp::codec::{Map, Reader, Value};
use towline_core::{ConnectionId, Fact, MessageSequence, QueueId, UnitId};
use towline_types::limits;

/// Which message. Sequences alone do not say it: queues of two histories may give the same.
pub(crate) type MessagePlace = (QueueId, MessageSequence);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MessageAnnotations {
    /// Encoded maps.
    messages: HashMap<MessagePlace, (u64, Bytes)>,
    /// In the order in which they were annotated last.
    by_age: BTreeMap<u64, MessagePlace>,
    next_age: u64,
    /// What is said in open units of work counts when they commit.
    staged: BTreeMap<(ConnectionId, UnitId), Vec<(MessagePlace, Map)>>,
    /// Messages that lost theirs because too many were annotated.
    forgotten: u64,
}

impl MessageAnnotations {
    /// Nothing is known of any message: the ordinary case.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The encoded annotations of a message.
    pub(crate) fn of(&self, message: MessagePlace) -> Option<Bytes> {
        self.messages.get(&message).map(|(_, map)| map.clone())
    }

    /// Messages that lost their annotations since the start.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds annotations: an entry replaces one of the same name.
    pub(crate) fn add(&mut self, message: MessagePlace, added: &Map) {
        let before = self.take(message);
        // Our own encoding of values that were checked.
        let before = before.and_then(|map| Map::decode(&mut Reader::new(&map)).ok());
        let whole = encoded(&merged(&before.unwrap_or_default(), added));
        // Together they are too long: what was said last counts.
        let fits = whole.len() <= limits::MODIFIED_ANNOTATIONS_BYTES_MAX;
        self.put(message, if fits { whole } else { encoded(added) });
    }

    /// In a unit of work.
    pub(crate) fn stage(&mut self, unit: (ConnectionId, UnitId), message: MessagePlace, map: Map) {
        self.staged.entry(unit).or_default().push((message, map));
    }

    /// A unit of work has ended.
    pub(crate) fn end_unit(&mut self, unit: (ConnectionId, UnitId), committed: bool) {
        let Some(staged) = self.staged.remove(&unit) else { return };
        for (message, map) in staged.iter().filter(|_| committed) {
            self.add(*message, map);
        }
    }

    /// A connection has ended, and its units with it.
    pub(crate) fn end_connection(&mut self, connection: ConnectionId) {
        let first = (connection, UnitId(0));
        while let Some((unit, _)) = self.staged.range(first..).next()
            && unit.0 == connection
        {
            let unit = *unit;
            self.staged.remove(&unit);
        }
    }

    /// Follows a message to where it goes, or forgets it when it is gone.
    pub(crate) fn follow(&mut self, fact: &Fact) {
        match fact {
            Fact::Got { queue, sequence } | Fact::Expired { queue, sequence } => {
                self.take((*queue, *sequence));
            }
            Fact::Moved { from, sequence, to, new_sequence, .. } => {
                if let Some(map) = self.take((*from, *sequence)) {
                    self.put((*to, *new_sequence), map);
                }
            }
            // What is cleared or deleted goes by age: no other message gets its sequence.
            Fact::Put { .. }
            | Fact::BackedOut { .. }
            | Fact::BodyChunk { .. }
            | Fact::Abandoned { .. }
            | Fact::Defined { .. }
            | Fact::Deleted { .. }
            | Fact::Undefined { .. }
            | Fact::Cleared { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::Part { .. }
            | Fact::Completed { .. } => {}
        }
    }

    fn take(&mut self, message: MessagePlace) -> Option<Bytes> {
        let (age, map) = self.messages.remove(&message)?;
        self.by_age.remove(&age);
        Some(map)
    }

    fn put(&mut self, message: MessagePlace, map: Bytes) {
        if self.messages.len() >= limits::ANNOTATED_MESSAGES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.messages.remove(&oldest);
            self.forgotten += 1;
        }
        self.next_age += 1;
        self.by_age.insert(self.next_age, message);
        self.messages.insert(message, (self.next_age, map));
        // What is forgotten first is found by age: an entry of one alone would stay for ever.
        assert_eq!(self.messages.len(), self.by_age.len(), "each annotated message has one age");
    }
}

/// Both maps; what `added` says counts.
fn merged(before: &Map, added: &Map) -> Map {
    let stays = |key: &Value<'_>| key.as_str().is_none_or(|key| added.get(key).is_none());
    let kept = before.iter().filter(|(key, _)| stays(key));
    kept.chain(added.iter())
        .fold(Map::default(), |whole, (key, value)| whole.with_entry(key, value))
}

fn encoded(map: &Map) -> Bytes {
    let mut out = BytesMut::new();
    map.encode(&mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> Map {
        entries.iter().fold(Map::default(), |map, (key, value)| map.with(key, Value::String(value)))
    }

    fn place(message: u64) -> MessagePlace {
        (QueueId(1), MessageSequence(message))
    }

    fn known(annotated: &MessageAnnotations, message: u64) -> Option<Map> {
        let bytes = annotated.of(place(message))?;
        Some(Map::decode(&mut Reader::new(&bytes)).unwrap())
    }

    #[test]
    fn what_was_said_last_counts_and_the_rest_stays() {
        let mut annotated = MessageAnnotations::default();
        annotated.add(place(1), &map(&[("a", "1"), ("b", "1")]));
        annotated.add(place(1), &map(&[("b", "2"), ("c", "2")]));
        let wanted = map(&[("a", "1"), ("b", "2"), ("c", "2")]);
        assert_eq!(known(&annotated, 1), Some(wanted));
        let long = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX - 50);
        annotated.add(place(1), &map(&[("d", &long)]));
        annotated.add(place(1), &map(&[("e", &long)]));
        assert_eq!(known(&annotated, 1), Some(map(&[("e", &long)])), "no more than the bound");
    }

    #[test]
    fn beyond_the_number_the_oldest_go_and_are_counted() {
        let mut annotated = MessageAnnotations::default();
        let max = limits::ANNOTATED_MESSAGES_MAX as u64;
        (0..=max).for_each(|number| annotated.add(place(number), &map(&[("a", "1")])));
        assert_eq!((known(&annotated, 0), annotated.forgotten()), (None, 1));
        assert!(known(&annotated, 1).is_some() && known(&annotated, max).is_some());
        assert_eq!(annotated.messages.len(), annotated.by_age.len());
    }

    #[test]
    fn messages_of_one_sequence_in_two_queues_are_two() {
        let mut annotated = MessageAnnotations::default();
        let (here, there) = (place(1), (QueueId(2), MessageSequence(1)));
        annotated.add(here, &map(&[("a", "1")]));
        assert!(annotated.of(here).is_some() && annotated.of(there).is_none());
        annotated.follow(&Fact::Got { queue: there.0, sequence: there.1 });
        assert!(annotated.of(here).is_some(), "another one was got");
        annotated.follow(&Fact::Got { queue: here.0, sequence: here.1 });
        assert!(annotated.of(here).is_none());
    }
}
