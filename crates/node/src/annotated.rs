//! Message annotations that consumers gave with a `modified` outcome (AMQP 3.4.4): they are merged
//! into those of the message when it is delivered next, here or from a dead-letter queue.
//!
//! They are in memory only: a restart or a fail-over forgets them. Bounded by number and length:
//! beyond it, the messages that were annotated first lose theirs.
//!
//! Not here: permission to annotate (the instance checks that the consumer has the message), and
//! how they get into a message (`front`).

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use towline_amqp::codec::Map;
use towline_core::{ConnectionId, Fact, MessageSequence, QueueId, UnitId};
use towline_types::limits;

/// Which message. Sequences alone do not say it: queues of two histories may give the same.
pub(crate) type MessagePlace = (QueueId, MessageSequence);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct MessageAnnotations {
    messages: HashMap<MessagePlace, AnnotatedMessage>,
    /// In the order in which they were annotated last.
    by_age: BTreeMap<u64, MessagePlace>,
    next_age: u64,
    /// Of all messages.
    bytes: usize,
    /// What is said in open units of work counts when they commit.
    staged: BTreeMap<(ConnectionId, UnitId), Vec<(MessagePlace, Map)>>,
    /// Messages that lost theirs because too many were annotated.
    forgotten: u64,
}

/// The annotations of one message.
#[derive(Debug)]
struct AnnotatedMessage {
    age: u64,
    known: Map,
    /// What was said last. It is merged when the message is delivered: a unit of work that commits
    /// has thousands of them, and a step delivers some hundred.
    said: Option<Map>,
}

impl AnnotatedMessage {
    fn bytes(&self) -> usize {
        self.known.encoded_bytes() + self.said.as_ref().map_or(0, Map::encoded_bytes)
    }

    fn merge(&mut self) {
        let Some(said) = self.said.take() else { return };
        let whole = self.known.merged(&said);
        // Together they are too long: what was said last counts.
        let fits = whole.encoded_bytes() <= limits::MODIFIED_ANNOTATIONS_BYTES_MAX
            && whole.len() <= limits::MODIFIED_ANNOTATIONS_MAX;
        self.known = if fits { whole } else { said };
    }
}

impl MessageAnnotations {
    /// Nothing is known of any message: the ordinary case.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The encoded annotations of a message.
    pub(crate) fn of(&mut self, message: MessagePlace) -> Option<Bytes> {
        let found = self.messages.get_mut(&message)?;
        self.bytes -= found.bytes();
        found.merge();
        self.bytes += found.bytes();
        Some(found.known.to_bytes())
    }

    /// Messages that lost their annotations since the start.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Adds annotations: an entry replaces one of the same name.
    pub(crate) fn add(&mut self, message: MessagePlace, added: Map) {
        let annotated = match self.take(message) {
            None => AnnotatedMessage { age: 0, known: added, said: None },
            Some(mut before) => {
                before.merge();
                AnnotatedMessage { said: Some(added), ..before }
            }
        };
        self.put(message, annotated);
    }

    /// In a unit of work.
    pub(crate) fn stage(&mut self, unit: (ConnectionId, UnitId), message: MessagePlace, map: Map) {
        self.staged.entry(unit).or_default().push((message, map));
    }

    /// A unit of work has ended.
    pub(crate) fn end_unit(&mut self, unit: (ConnectionId, UnitId), committed: bool) {
        let Some(staged) = self.staged.remove(&unit).filter(|_| committed) else { return };
        // Those before would be forgotten for those behind them.
        let beyond = staged.len().saturating_sub(limits::ANNOTATED_MESSAGES_MAX);
        self.forgotten += beyond as u64;
        for (message, map) in staged.into_iter().skip(beyond) {
            self.add(message, map);
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
                if let Some(annotated) = self.take((*from, *sequence)) {
                    self.put((*to, *new_sequence), annotated);
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
            | Fact::Completed { .. }
            | Fact::HistoryBegun { .. } => {}
        }
    }

    fn take(&mut self, message: MessagePlace) -> Option<AnnotatedMessage> {
        let annotated = self.messages.remove(&message)?;
        self.by_age.remove(&annotated.age);
        self.bytes -= annotated.bytes();
        Some(annotated)
    }

    fn put(&mut self, message: MessagePlace, annotated: AnnotatedMessage) {
        let bytes = annotated.bytes();
        while (self.messages.len() >= limits::ANNOTATED_MESSAGES_MAX
            || self.bytes + bytes > limits::ANNOTATIONS_BYTES_MAX)
            && let Some((_, oldest)) = self.by_age.first_key_value()
        {
            let oldest = *oldest;
            self.take(oldest);
            self.forgotten += 1;
        }
        self.next_age += 1;
        self.bytes += bytes;
        self.by_age.insert(self.next_age, message);
        self.messages.insert(message, AnnotatedMessage { age: self.next_age, ..annotated });
        // What is forgotten first is found by age: an entry of one alone would stay for ever.
        assert_eq!(self.messages.len(), self.by_age.len(), "each annotated message has one age");
        assert!(self.bytes <= limits::ANNOTATIONS_BYTES_MAX, "annotations have a bound");
    }
}

#[cfg(test)]
mod tests {
    use towline_amqp::codec::{Reader, Value};

    use super::*;

    fn map(entries: &[(&str, &str)]) -> Map {
        entries.iter().fold(Map::default(), |map, (key, value)| map.with(key, Value::String(value)))
    }

    fn place(message: u64) -> MessagePlace {
        (QueueId(1), MessageSequence(message))
    }

    fn known(annotated: &mut MessageAnnotations, message: u64) -> Option<Map> {
        let bytes = annotated.of(place(message))?;
        Some(Map::decode(&mut Reader::new(&bytes)).unwrap())
    }

    #[test]
    fn what_was_said_last_counts_and_the_rest_stays() {
        let mut annotated = MessageAnnotations::default();
        annotated.add(place(1), map(&[("a", "1"), ("b", "1")]));
        annotated.add(place(1), map(&[("b", "2"), ("c", "2")]));
        let wanted = map(&[("a", "1"), ("b", "2"), ("c", "2")]);
        assert_eq!(known(&mut annotated, 1), Some(wanted));
        let long = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX - 50);
        annotated.add(place(1), map(&[("d", &long)]));
        annotated.add(place(1), map(&[("e", &long)]));
        assert_eq!(known(&mut annotated, 1), Some(map(&[("e", &long)])), "no more than the bound");
    }

    #[test]
    fn beyond_the_number_the_oldest_go_and_are_counted() {
        let mut annotated = MessageAnnotations::default();
        let max = limits::ANNOTATED_MESSAGES_MAX as u64;
        (0..=max).for_each(|number| annotated.add(place(number), map(&[("a", "1")])));
        assert_eq!((known(&mut annotated, 0), annotated.forgotten()), (None, 1));
        assert!(known(&mut annotated, 1).is_some() && known(&mut annotated, max).is_some());
        assert_eq!(annotated.messages.len(), annotated.by_age.len());
    }

    /// As many entries as one outcome may have, and as long as it may be.
    fn largest(letter: char) -> Map {
        let count = limits::MODIFIED_ANNOTATIONS_MAX;
        let text = "x".repeat(limits::MODIFIED_ANNOTATIONS_BYTES_MAX / count - 8);
        let names = (0..count).map(|number| format!("{letter}{number:02}"));
        names.fold(Map::default(), |map, name| map.with(&name, Value::String(&text)))
    }

    #[test]
    fn of_more_entries_than_one_outcome_may_have_the_last_outcome_counts() {
        let mut annotated = MessageAnnotations::default();
        let short = |name: &str| map(&[(name, "")]);
        for number in 0..limits::MODIFIED_ANNOTATIONS_MAX {
            annotated.add(place(1), short(&format!("n{number}")));
        }
        let all = known(&mut annotated, 1).unwrap();
        assert_eq!(all.len(), limits::MODIFIED_ANNOTATIONS_MAX);
        annotated.add(place(1), short("n7"));
        assert_eq!(known(&mut annotated, 1).unwrap().len(), all.len(), "it replaces one");
        annotated.add(place(1), short("more"));
        assert_eq!(known(&mut annotated, 1), Some(short("more")));
    }

    #[test]
    fn what_a_commit_says_of_many_messages_is_merged_when_they_are_delivered_and_is_bounded() {
        let mut annotated = MessageAnnotations::default();
        let most = limits::ANNOTATIONS_BYTES_MAX / largest('a').encoded_bytes();
        let (unit, count) = ((ConnectionId(1), UnitId(1)), most as u64 * 3 / 4);
        for letter in ['a', 'b'] {
            let said = largest(letter);
            (0..count).for_each(|number| annotated.stage(unit, place(number), said.clone()));
            annotated.end_unit(unit, true);
        }
        let waiting = annotated.messages.values().filter(|one| one.said.is_some()).count();
        assert!(waiting > most / 5, "{waiting} are merged later");
        assert!(annotated.forgotten() > 0, "bytes count");
        let last = known(&mut annotated, count - 1);
        assert_eq!(last, Some(largest('b')), "both together are too many");
        (0..count).for_each(|number| {
            known(&mut annotated, number);
        });
        let bytes: usize = annotated.messages.values().map(AnnotatedMessage::bytes).sum();
        assert_eq!(bytes, annotated.bytes);
    }

    #[test]
    fn messages_of_one_sequence_in_two_queues_are_two() {
        let mut annotated = MessageAnnotations::default();
        let (here, there) = (place(1), (QueueId(2), MessageSequence(1)));
        annotated.add(here, map(&[("a", "1")]));
        assert!(annotated.of(here).is_some() && annotated.of(there).is_none());
        annotated.follow(&Fact::Got { queue: there.0, sequence: there.1 });
        assert!(annotated.of(here).is_some(), "another one was got");
        annotated.follow(&Fact::Got { queue: here.0, sequence: here.1 });
        assert!(annotated.of(here).is_none());
    }
}
