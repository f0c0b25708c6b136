//! The messages of one queue that have one priority, in order of their places.
//!
//! Blocks of entries: appending never moves old entries, a removed message leaves a tombstone, a
//! block of tombstones is dropped. So cost does not depend on depth, a returned message is in its
//! old place at no cost, and memory follows depth down again. Knows nothing of consumers.
//!
//! Invariants (`audit`): sequences ascend over all blocks; `available` and `live` of a block count
//! its entries; only a sole block may be without live entries; no available entry is before `hint`.

use std::collections::VecDeque;

use super::entry::{Entry, Place, State};
use towline_types::BodyLocation;

/// Entries of one block; 20 KiB at 80 bytes each.
const BLOCK_ENTRIES: usize = 256;

/// Where an entry is until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    block: usize,
    index: usize,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    blocks: VecDeque<Block>,
    live: usize,
    hint: u64,
}

#[derive(Debug)]
struct Block {
    /// Sequence of the first entry, tombstones included; 0 while there is none.
    first: u64,
    live: usize,
    available: usize,
    entries: Vec<Entry>,
}

impl Block {
    fn new() -> Block {
        Block { first: 0, live: 0, available: 0, entries: Vec::new() }
    }

    fn of(entries: Vec<Entry>) -> Block {
        let first = entries.first().map_or(0, |entry| entry.sequence);
        let live = entries.iter().filter(|entry| entry.state != State::Gone).count();
        let available = entries.iter().filter(|entry| entry.state == State::Available).count();
        Block { first, live, available, entries }
    }

    /// Index of the first entry whose sequence is not below this.
    fn lower_bound(&self, sequence: u64) -> usize {
        // Dense sequences are the ordinary case of a queue manager with one busy queue.
        if let Ok(guess) = usize::try_from(sequence.saturating_sub(self.first))
            && self.entries.get(guess).is_some_and(|entry| entry.sequence == sequence)
        {
            return guess;
        }
        self.entries.partition_point(|entry| entry.sequence < sequence)
    }
}

impl Lane {
    /// Messages in it, whatever their state.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Adds an entry at the place that its sequence gives it: nearly always the end.
    ///
    /// # Panics
    /// When a live entry has this sequence.
    pub(crate) fn insert(&mut self, entry: Entry) {
        assert_ne!(entry.state, State::Gone, "a tombstone is not inserted");
        if entry.state == State::Available {
            self.hint = self.hint.min(entry.sequence);
        }
        self.live += 1;
        let at_end = match self.blocks.back().and_then(|block| block.entries.last()) {
            Some(last) => last.sequence < entry.sequence,
            None => true,
        };
        if at_end { self.append(entry) } else { self.insert_between(entry) }
    }

    fn append(&mut self, entry: Entry) {
        let full = match self.blocks.back_mut() {
            None => true,
            Some(block) if block.entries.len() < BLOCK_ENTRIES => false,
            Some(block) if block.live * 2 <= BLOCK_ENTRIES => {
                // Mostly tombstones: a shallow queue stays in this one block for ever.
                block.entries.retain(|entry| entry.state != State::Gone);
                *block = Block::of(std::mem::take(&mut block.entries));
                false
            }
            Some(_) => true,
        };
        if full {
            self.blocks.push_back(Block::new());
        }
        if let Some(block) = self.blocks.back_mut() {
            if block.entries.is_empty() {
                block.first = entry.sequence;
            }
            block.live += 1;
            block.available += usize::from(entry.state == State::Available);
            block.entries.push(entry);
        }
    }

    /// Out of order: a message carried forward, seen in replay.
    fn insert_between(&mut self, entry: Entry) {
        let at = self.block_of(entry.sequence);
        let block = &mut self.blocks[at];
        let index = block.lower_bound(entry.sequence);
        match block.entries.get_mut(index) {
            Some(old) if old.sequence == entry.sequence => {
                assert_eq!(old.state, State::Gone, "two messages have one sequence");
                *old = entry;
            }
            Some(_) | None => block.entries.insert(index, entry),
        }
        let entries = std::mem::take(&mut block.entries);
        *block = Block::of(entries);
        if block.entries.len() > BLOCK_ENTRIES {
            let rest = block.entries.split_off(BLOCK_ENTRIES / 2);
            *block = Block::of(std::mem::take(&mut block.entries));
            self.blocks.insert(at + 1, Block::of(rest));
            self.drop_if_dead(at + 1);
            self.drop_if_dead(at);
        }
    }

    /// Index of the block in which this sequence is or would be. There must be a block.
    fn block_of(&self, sequence: u64) -> usize {
        // Most questions are about the front.
        let mut step = 1;
        while step < self.blocks.len() && self.blocks[step].first <= sequence {
            step *= 2;
        }
        let (mut low, mut high) = (step / 2, step.min(self.blocks.len()));
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.blocks[middle].first <= sequence { low = middle } else { high = middle }
        }
        low
    }

    /// Where the live entry of this sequence is.
    pub(crate) fn find(&self, sequence: u64) -> Option<Position> {
        if self.live == 0 {
            return None;
        }
        let block = self.block_of(sequence);
        let index = self.blocks[block].lower_bound(sequence);
        let entry = self.blocks[block].entries.get(index)?;
        (entry.sequence == sequence && entry.state != State::Gone)
            .then_some(Position { block, index })
    }

    /// The entry there.
    pub(crate) fn entry(&self, at: Position) -> &Entry {
        &self.blocks[at.block].entries[at.index]
    }

    /// The entry there. Its state is changed by [`Lane::set_state`] only.
    pub(crate) fn entry_mut(&mut self, at: Position) -> &mut Entry {
        &mut self.blocks[at.block].entries[at.index]
    }

    /// Moves an entry between its live states.
    pub(crate) fn set_state(&mut self, at: Position, state: State) {
        assert_ne!(state, State::Gone, "entries go by `remove`");
        let block = &mut self.blocks[at.block];
        let entry = &mut block.entries[at.index];
        assert_ne!(entry.state, State::Gone, "a tombstone has no state to change");
        block.available -= usize::from(entry.state == State::Available);
        block.available += usize::from(state == State::Available);
        entry.state = state;
        if state == State::Available {
            self.hint = self.hint.min(entry.sequence);
        }
    }

    /// Takes an entry out. All positions become stale.
    pub(crate) fn remove(&mut self, at: Position) -> Entry {
        let block = &mut self.blocks[at.block];
        let entry = &mut block.entries[at.index];
        assert_ne!(entry.state, State::Gone, "a message leaves once");
        let tombstone =
            Entry { place: Place::Log(BodyLocation::default()), state: State::Gone, ..*entry };
        let taken = std::mem::replace(entry, tombstone);
        block.available -= usize::from(taken.state == State::Available);
        block.live -= 1;
        self.live -= 1;
        self.drop_if_dead(at.block);
        taken
    }

    fn drop_if_dead(&mut self, at: usize) {
        if self.blocks[at].live > 0 {
            return;
        }
        if self.blocks.len() > 1 {
            self.blocks.remove(at);
        } else {
            // The sole block keeps its memory: the next message comes soon.
            let block = &mut self.blocks[at];
            block.entries.clear();
            block.first = 0;
        }
    }

    /// The first available entry, at a cost that does not depend on how many are held before it.
    pub(crate) fn first_available(&mut self) -> Option<Position> {
        let found = self.next_available(self.hint);
        self.hint = match found {
            Some(at) => self.entry(at).sequence,
            None => u64::MAX,
        };
        found
    }

    /// The first available entry whose sequence is not below this.
    pub(crate) fn next_available(&self, from: u64) -> Option<Position> {
        self.next(from, |block| block.available > 0, |entry| entry.state == State::Available)
    }

    /// The first live entry whose sequence is not below this.
    pub(crate) fn next_live(&self, from: u64) -> Option<Position> {
        self.next(from, |block| block.live > 0, |entry| entry.state != State::Gone)
    }

    fn next(
        &self,
        from: u64,
        worth: impl Fn(&Block) -> bool,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<Position> {
        if self.live == 0 {
            return None;
        }
        let mut at = self.block_of(from);
        let mut index = self.blocks[at].lower_bound(from);
        while let Some(block) = self.blocks.get(at) {
            if worth(block) {
                let rest = block.entries.get(index..).unwrap_or_default();
                if let Some(offset) = rest.iter().position(&wanted) {
                    return Some(Position { block: at, index: index + offset });
                }
            }
            at += 1;
            index = 0;
        }
        None
    }

    /// All live entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.blocks
            .iter()
            .flat_map(|block| block.entries.iter())
            .filter(|entry| entry.state != State::Gone)
    }

    /// How many blocks it takes.
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        let mut before = None;
        let mut live = 0;
        for block in &self.blocks {
            assert_eq!(block.first, block.entries.first().map_or(0, |entry| entry.sequence));
            for entry in &block.entries {
                assert!(before < Some(entry.sequence), "sequences ascend");
                before = Some(entry.sequence);
                assert!(
                    entry.state != State::Available || entry.sequence >= self.hint,
                    "no available entry is before the hint"
                );
            }
            let count = |state| block.entries.iter().filter(|entry| entry.state == state).count();
            assert_eq!(block.available, count(State::Available), "available entries of a block");
            assert_eq!(block.live, block.entries.len() - count(State::Gone), "live entries");
            assert!(block.live > 0 || self.blocks.len() == 1, "dead blocks are dropped");
            live += block.live;
        }
        assert_eq!(live, self.live, "live entries of a lane");
    }
}
