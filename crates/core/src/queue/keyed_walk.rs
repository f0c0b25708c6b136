//! Searches for messages of a key, and how the key index is filled by them.
//!
//! A search asks the index for the first message of its key, and looks at the blocks before that
//! one which the index does not know: of one that is away it asks the filter, or for the page; one
//! that is here is indexed first. So the index is filled block by block, as far as searches come,
//! and a search never waits for more than one block at a time: its caller counts what it costs.
//!
//! Nothing is missed while only a part is indexed. What a search has passed had no available
//! message of its key; when one becomes available there, each consumer of that key is woken and
//! looks again from there on (`waiting`). A message that comes or goes in an indexed block is noted
//! in the index, in another one by the block alone, which the next search indexes.
//!
//! Invariant (`audit_index`): the index holds exactly what is available in blocks that are here and
//! indexed, for their kinds of keys.

use super::block::{BLOCK_ENTRIES, Block, PageNeed, Sheet};
use super::index::{KeyKinds, Rank};
use super::keys::KeyFilter;
use super::paged_blocks::{BLOCKS_AHEAD, LOOKS_AHEAD, PagedBlock};
use super::{Attention, Entry, EntryState, Queue, Spot, Visitor};
use crate::page_key::PageRequest;
use crate::request::FilterKey;

/// Blocks that a search passes, in the time of one look, because they are indexed or a filter
/// excludes its key.
const BLOCKS_PER_LOOK: usize = 16;
/// Messages that are indexed in the time of one look.
const KEYS_PER_LOOK: usize = 4;

/// How far a consumer with a key has looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCursor {
    /// What is before this position it does not look at, whatever becomes available there: it is a
    /// browser, and sees each message once. For others the same as `searched`.
    seen: Rank,
    /// Before this position, nothing is available that it has not looked at.
    searched: Rank,
}

/// Where a search for a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySearch {
    Found(Spot),
    /// The page of this block must be read to go on.
    OnPage(PagedBlock),
    /// This block, which is here, must be indexed to go on.
    ToIndex(PagedBlock),
    /// Nothing before this position; a longer search is for the next look.
    Further(Rank),
    Nothing,
}

impl KeyCursor {
    /// Before everything.
    pub(crate) fn new() -> KeyCursor {
        KeyCursor { seen: Rank::FIRST, searched: Rank::FIRST }
    }

    pub(crate) fn searched(&self) -> Rank {
        self.searched
    }

    /// Nothing is to be found before this position.
    pub(crate) fn search_on(&mut self, rank: Rank) {
        self.searched = rank.max(self.searched);
    }

    /// This message was looked at.
    pub(crate) fn pass(&mut self, spot: Spot) {
        self.searched = Rank::new(spot.lane, spot.sequence).after();
        self.seen = self.searched;
    }

    /// A message of its key became available at this position.
    pub(crate) fn available(&mut self, rank: Rank, browses: bool) {
        if !browses {
            self.seen = rank.min(self.seen);
        }
        self.searched = rank.min(self.searched).max(self.seen);
    }
}

/// Whether this key may be in a block that the index does not know.
fn may_hold(block: &Block, key: FilterKey) -> bool {
    match block.is_here() {
        true => !block.indexed.contains(key),
        false => block.filter.as_ref().is_none_or(|filter| !filter.excludes(key)),
    }
}

impl Queue {
    /// Indexes keys of this kind from now on, as far as searches come.
    pub(crate) fn index_key(&mut self, key: FilterKey) {
        if self.indexed.contains(key) {
            return;
        }
        self.indexed = self.indexed.with(KeyKinds::of(key));
        let kinds = self.indexed;
        self.lanes.iter_mut().for_each(|lane| lane.index_also(kinds));
    }

    /// The kinds of keys for which the block of this message is in the index.
    pub(super) fn indexed_with(&self, spot: Spot) -> KeyKinds {
        if self.indexed.is_empty() {
            return self.indexed;
        }
        self.lanes[usize::from(spot.lane)].indexed_with(spot.sequence)
    }

    /// The first available message of this key that is not before `from`.
    pub(crate) fn next_of_key(&self, key: FilterKey, from: Rank) -> KeySearch {
        let found = self.index.next(key, from);
        let mut left = BLOCKS_PER_LOOK;
        for lane in (0..=from.lane()).rev() {
            let entries = &self.lanes[usize::from(lane)];
            if entries.away() == 0 && entries.unindexed() == 0 {
                continue;
            }
            // What is before the position was searched.
            let searched = if lane == from.lane() { from.sequence() } else { 0 };
            let first = entries.block_for(searched).unwrap_or(0);
            for (number, block) in entries.blocks().iter().enumerate().skip(first) {
                let begins = Rank::new(lane, block.first);
                if found.is_some_and(|found| begins > found) {
                    return KeySearch::of(found);
                }
                if left == 0 {
                    return KeySearch::Further(begins);
                }
                left -= 1;
                let before = block.last().is_none_or(|last| Rank::new(lane, last) < from);
                if !before && may_hold(block, key) {
                    let at = PagedBlock { lane, block: number };
                    return match block.is_here() {
                        true => KeySearch::ToIndex(at),
                        false => KeySearch::OnPage(at),
                    };
                }
            }
        }
        KeySearch::of(found)
    }

    /// Adds what is available of a block to the index. Yields how many looks that cost.
    ///
    /// # Panics
    /// When the block is away.
    pub(crate) fn index_block(&mut self, at: PagedBlock) -> i64 {
        let lane = &mut self.lanes[usize::from(at.lane)];
        let Some(block) = lane.blocks().get(at.block) else { return 1 };
        let lacking = self.indexed.without(block.indexed);
        let entries = block.entries().len();
        assert!(entries <= BLOCK_ENTRIES, "no step takes more than a block");
        for entry in block.entries() {
            if entry.state == EntryState::Available {
                self.index.add(Rank::new(at.lane, entry.sequence), entry.hashes(), lacking);
            }
        }
        lane.note_indexed(at.block);
        i64::try_from(1 + entries / KEYS_PER_LOOK).unwrap_or(i64::MAX)
    }

    /// A block that is here leaves: what is in the index of it goes.
    pub(super) fn take_out_of_index(&mut self, at: PagedBlock) {
        let lane = &self.lanes[usize::from(at.lane)];
        let Some(block) = lane.blocks().get(at.block) else { return };
        if block.indexed.is_empty() {
            return;
        }
        for entry in block.entries() {
            if entry.state == EntryState::Available {
                self.index.remove(
                    Rank::new(at.lane, entry.sequence),
                    entry.hashes(),
                    block.indexed,
                );
            }
        }
    }

    /// A search that ended at this block need not look again before this position.
    pub(crate) fn rank_of(&self, at: PagedBlock) -> Option<Rank> {
        let block = self.lanes[usize::from(at.lane)].blocks().get(at.block)?;
        Some(Rank::new(at.lane, block.first))
    }

    /// This block and the next ones behind it that are away and may hold this key.
    pub(crate) fn ask_for_key(
        &mut self,
        away: PagedBlock,
        key: FilterKey,
        asked: &mut Vec<PageRequest>,
    ) {
        let blocks = self.lanes[usize::from(away.lane)].blocks();
        let worth = |block: &Block| !block.is_here() && may_hold(block, key);
        let ahead: Vec<usize> = (away.block..blocks.len().min(away.block + LOOKS_AHEAD))
            .filter(|block| blocks.get(*block).is_some_and(worth))
            .take(1 + BLOCKS_AHEAD)
            .collect();
        for block in ahead {
            asked.extend(self.ask_for(PagedBlock { block, ..away }, PageNeed::OfKey(key)));
        }
    }

    /// The page of a block that is away was read, for the sake of keys only, and has none of them:
    /// it stays away, with a filter that says so to the next search. A search through a deep queue
    /// takes the memory of its filters, and not that of its messages.
    pub(crate) fn passes_over(
        &mut self,
        away: PagedBlock,
        sheet: &Sheet,
        waiters: &[Visitor],
    ) -> bool {
        let kinds = self.indexed;
        let Some(block) = self.block_mut(away) else { return false };
        let PageNeed::OfKey(asked) = block.asked else { return false };
        let Some(filter) = KeyFilter::of(&sheet.entries, kinds) else { return false };
        let has_none = |visitor: &Visitor| match visitor.attention {
            Attention::Keyed(key) => filter.excludes(key),
            Attention::Plain | Attention::Scanner => false,
        };
        if !filter.excludes(asked) || !waiters.iter().all(has_none) {
            return false;
        }
        block.filter = Some(filter);
        block.asked = PageNeed::None;
        true
    }

    /// Messages in the index, for either kind of key.
    #[cfg(test)]
    pub(crate) fn indexed_keys(&self) -> usize {
        self.index.len()
    }

    /// Blocks here that are not in it.
    #[cfg(test)]
    pub(crate) fn unindexed_blocks(&self) -> usize {
        self.lanes.iter().map(super::Lane::unindexed).sum()
    }

    pub(super) fn audit_index(&self) {
        let blocks = self.all_blocks().flat_map(|(lane, block)| {
            block.entries().iter().map(move |entry| (lane, entry, block.indexed))
        });
        let available = blocks.filter(|(_, entry, _)| entry.state == EntryState::Available);
        let ranked = |(lane, entry, kinds): (u8, &'_ Entry, KeyKinds)| {
            (Rank::new(lane, entry.sequence), entry.hashes(), kinds)
        };
        self.index.audit(available.map(ranked));
    }
}

impl KeySearch {
    fn of(found: Option<Rank>) -> KeySearch {
        found.map_or(KeySearch::Nothing, |rank| {
            KeySearch::Found(Spot { lane: rank.lane(), sequence: rank.sequence() })
        })
    }
}
