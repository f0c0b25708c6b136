//! What few messages of a block have besides their entries, by sequence, and how much memory that
//! takes.
//!
//! Not here: what an extra says (`entry`), the sum over all blocks (`census`). Invariant: `bytes`
//! is the sum over all that is in the map.

use std::collections::BTreeMap;

use super::entry::Extra;

/// Entries of one node of a `BTreeMap` of the standard library, at most: twice its B (6), less one.
const NODE_ENTRIES_MAX: usize = 11;
/// The same where entries came in order, as nearly all do: a full node is cut in the middle, and
/// its first half stays as it is.
const NODE_ENTRIES_IN_ORDER: usize = 6;
/// Of a node: the address of its parent, two short numbers, padding, and what the allocator adds.
const NODE_OVERHEAD_BYTES: usize = 32;
/// What an extra takes in the map.
const ENTRY_BYTES: usize = (NODE_ENTRIES_MAX * (size_of::<u64>() + size_of::<Extra>())
    + NODE_OVERHEAD_BYTES)
    / NODE_ENTRIES_IN_ORDER;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    by_sequence: BTreeMap<u64, Extra>,
    bytes: u64,
}

/// What an extra takes, with what it refers to.
fn bytes_of(extra: &Extra) -> u64 {
    let chunks = extra.chunks.as_ref().map_or(0, |chunks| size_of_val::<[_]>(chunks));
    let dead_letter = extra.dead_letter.as_ref();
    let dead_letter = dead_letter.map_or(0, |reason| size_of_val(&**reason) + reason.origin.len());
    (ENTRY_BYTES + chunks + dead_letter) as u64
}

impl Extras {
    pub(crate) fn get(&self, sequence: u64) -> Option<&Extra> {
        self.by_sequence.get(&sequence)
    }

    pub(crate) fn insert(&mut self, sequence: u64, extra: Extra) {
        self.bytes += bytes_of(&extra);
        let before = self.by_sequence.insert(sequence, extra);
        self.bytes -= before.as_ref().map_or(0, bytes_of);
    }

    pub(crate) fn remove(&mut self, sequence: u64) -> Option<Extra> {
        let extra = self.by_sequence.remove(&sequence);
        self.bytes -= extra.as_ref().map_or(0, bytes_of);
        extra
    }

    /// Takes those of `from` and what follows it.
    pub(crate) fn split_off(&mut self, from: u64) -> Extras {
        let by_sequence = self.by_sequence.split_off(&from);
        let bytes = by_sequence.values().map(bytes_of).sum();
        self.bytes -= bytes;
        Extras { by_sequence, bytes }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Extra)> {
        self.by_sequence.iter().map(|(sequence, extra)| (*sequence, extra))
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use towline_types::{BodyLocation, Time};

    use super::*;
    use crate::QueueId;
    use crate::message::{DeadLetter, DeadLetterReason};

    fn grouped(group_sequence: u32) -> Extra {
        Extra { group_sequence, ..Extra::default() }
    }

    #[test]
    fn extras_count_while_they_are_here_with_what_they_refer_to() {
        let mut extras = Extras::default();
        extras.insert(1, grouped(1));
        let one = extras.bytes();
        assert_eq!(one, ENTRY_BYTES as u64);
        let chunks = Some(vec![BodyLocation::default(); 3].into_boxed_slice());
        extras.insert(2, Extra { chunks, ..Extra::default() });
        let of_chunks = 3 * size_of::<BodyLocation>() as u64;
        assert_eq!(extras.bytes(), 2 * one + of_chunks);
        let dead_letter = DeadLetter {
            reason: DeadLetterReason::BackoutThreshold,
            origin: "QUEUE".into(),
            origin_id: QueueId(1),
            moved_at: Time(1),
        };
        let of_dead_letter = size_of::<DeadLetter>() as u64 + 5;
        extras.insert(3, Extra { dead_letter: Some(Box::new(dead_letter)), ..Extra::default() });
        assert_eq!(extras.bytes(), 3 * one + of_chunks + of_dead_letter);
        let behind = extras.split_off(2);
        assert_eq!((extras.bytes(), behind.bytes()), (one, 2 * one + of_chunks + of_dead_letter));
        extras.insert(1, grouped(7));
        assert_eq!(extras.bytes(), one, "in place of the one before it");
        assert_eq!((extras.remove(1), extras.remove(1)), (Some(grouped(7)), None));
        assert_eq!(extras.bytes(), 0);
    }
}
