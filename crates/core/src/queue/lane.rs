//! The messages of one queue that have one priority, in order of their sequences.
//!
//! Blocks of entries: appending never moves old entries, a removed message leaves a tombstone, a
//! block of tombstones is dropped. So cost does not depend on depth and a returned message is at
//! its old position at no cost. Blocks far from the front may be away on pages: a walk that comes
//! to one says so. Knows nothing of consumers.
//!
//! Invariants (`audit`): sequences ascend over all blocks; only a sole block may be without live
//! entries; no available entry is before `hint`; the newest block is here unless it has just come
//! from an image; `unindexed` counts the blocks here that the key index lacks.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_types::{PageRef, Time};

use super::block::{BLOCK_ENTRIES, Block, Outline, Sheet};
use super::census::Census;
use super::entry::{Entry, EntryBody, EntryState, Extra};
use super::index::KeyKinds;

/// Where an entry is until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanePosition {
    pub(crate) block: usize,
    pub(crate) index: usize,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// At this entry.
    At(LanePosition),
    /// Before a block that is away: its page must be read to go on.
    OnPage(usize),
    /// There is nothing more.
    End,
}

impl Walk {
    /// The entry, if it ended at one.
    pub(crate) fn found(self) -> Option<LanePosition> {
        match self {
            Walk::At(position) => Some(position),
            Walk::OnPage(_) | Walk::End => None,
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Lane {
    blocks: VecDeque<Block>,
    live: usize,
    hint: u64,
    /// Blocks that are away.
    away: usize,
    /// The kinds of keys that the queue indexes: a block that begins empty has them all.
    kinds: KeyKinds,
    /// Blocks here that are not indexed for all of them.
    unindexed: usize,
    /// Pages that say nothing that is true any more.
    obsolete: Vec<PageRef>,
    census: Arc<Census>,
}

impl Lane {
    pub(crate) fn new(census: Arc<Census>) -> Lane {
        Lane {
            blocks: VecDeque::new(),
            live: 0,
            hint: 0,
            away: 0,
            kinds: KeyKinds::default(),
            unindexed: 0,
            obsolete: Vec::new(),
            census,
        }
    }

    /// Messages in it, whatever their state.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Blocks that are away.
    pub(crate) fn away(&self) -> usize {
        self.away
    }

    pub(crate) fn blocks(&self) -> &VecDeque<Block> {
        &self.blocks
    }

    pub(crate) fn block_mut(&mut self, at: usize) -> Option<&mut Block> {
        self.blocks.get_mut(at)
    }

    /// Adds an entry at the position that its sequence gives it: nearly always the end. Yields the
    /// first sequences of blocks that begin there from now on, or have a successor now: they may
    /// leave.
    ///
    /// # Panics
    /// When a live entry has this sequence, or the position is in a block that is away.
    pub(crate) fn insert(&mut self, entry: Entry, extra: Option<Extra>) -> [Option<u64>; 2] {
        assert_ne!(entry.state, EntryState::Gone, "a tombstone is not inserted");
        assert_eq!(entry.marks.has_extra(), extra.is_some(), "an entry knows of its extra");
        if entry.state == EntryState::Available {
            self.hint = self.hint.min(entry.sequence);
        }
        self.live += 1;
        match self.blocks.back().and_then(Block::last) {
            Some(last) if last >= entry.sequence => self.insert_between(entry, extra),
            Some(_) | None => [self.append(entry, extra), None],
        }
    }

    fn append(&mut self, entry: Entry, extra: Option<Extra>) -> Option<u64> {
        let full = match self.blocks.back_mut() {
            None => Some(None),
            Some(block) if !block.is_here() => Some(None),
            Some(block) if block.entries().len() < BLOCK_ENTRIES => None,
            Some(block) if block.live as usize * 2 <= BLOCK_ENTRIES => {
                // Mostly tombstones: a shallow queue stays in this one block for ever.
                let sheet = block.hidden_mut();
                sheet.entries.retain(|entry| entry.state != EntryState::Gone);
                block.first = sheet.entries.first().map_or(0, |entry| entry.sequence);
                None
            }
            Some(block) => Some(Some(block.first)),
        };
        if full.is_some() {
            self.blocks.push_back(Block::new(self.kinds));
            self.census.came(0);
        }
        if let Some(block) = self.blocks.back_mut() {
            if block.entries().is_empty() {
                block.first = entry.sequence;
            }
            block.live += 1;
            block.available += u32::from(entry.state == EntryState::Available);
            let sheet = block.sheet_mut();
            if let Some(extra) = extra {
                add_extra(sheet, entry.sequence, extra, &self.census);
            }
            sheet.entries.push(entry);
        }
        full.flatten()
    }

    /// Out of order: a message carried forward, seen in a replay of the whole log; or one of a
    /// unit, in which persistent messages come first because they are logged.
    fn insert_between(&mut self, entry: Entry, extra: Option<Extra>) -> [Option<u64>; 2] {
        let mut at = self.block_of(entry.sequence);
        let block = &self.blocks[at];
        if !block.is_here() && block.last().is_some_and(|last| last < entry.sequence) {
            // Behind all that is away there, and before the next one: it begins that one.
            at += 1;
            if !self.blocks.get(at).is_some_and(Block::is_here) {
                self.blocks.insert(at, Block::new(self.kinds));
                self.census.came(0);
            }
        }
        let block = &mut self.blocks[at];
        let first = block.first;
        let index = block.lower_bound(entry.sequence);
        let sheet = block.sheet_mut();
        if let Some(extra) = extra {
            add_extra(sheet, entry.sequence, extra, &self.census);
        }
        match sheet.entries.get_mut(index) {
            Some(old) if old.sequence == entry.sequence => {
                assert_eq!(old.state, EntryState::Gone, "two messages have one sequence");
                *old = entry;
            }
            Some(_) | None => sheet.entries.insert(index, entry),
        }
        let sheet = std::mem::take(sheet);
        let stored = block.stored.take();
        self.obsolete.extend(stored.map(|outline| outline.page));
        let rest = block.refill(sheet);
        let here = Some(block.first);
        let Some(rest) = rest else {
            return [here.filter(|here| *here != first), None];
        };
        let behind = Some(rest.first);
        self.unindexed += usize::from(rest.indexed != self.kinds);
        self.blocks.insert(at + 1, rest);
        // Its extras were counted with those of the block that was cut.
        self.census.came(0);
        self.drop_if_dead(at + 1);
        self.drop_if_dead(at);
        [here, behind]
    }

    /// Index of the block in which this sequence is or would be. There must be a block.
    fn block_of(&self, sequence: u64) -> usize {
        // Most questions are about the front.
        let mut step = 1;
        while step < self.blocks.len() && self.blocks[step].first <= sequence {
            step *= 2;
        }
        let mut low = step / 2;
        let mut high = step.min(self.blocks.len());
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.blocks[middle].first <= sequence { low = middle } else { high = middle }
        }
        low
    }

    /// The block in which this sequence is or would be.
    pub(crate) fn block_for(&self, sequence: u64) -> Option<usize> {
        if self.blocks.is_empty() { None } else { Some(self.block_of(sequence)) }
    }

    /// Where the live entry of this sequence is: `Away` when only its page has the answer.
    pub(crate) fn find(&self, sequence: u64) -> Walk {
        if self.live == 0 {
            return Walk::End;
        }
        let at = self.block_of(sequence);
        let block = &self.blocks[at];
        if !block.is_here() {
            let spans = block.stored.as_ref().is_some_and(|outline| outline.spans(sequence));
            return if spans { Walk::OnPage(at) } else { Walk::End };
        }
        let index = block.lower_bound(sequence);
        match block.entries().get(index) {
            Some(entry) if entry.sequence == sequence && entry.state != EntryState::Gone => {
                Walk::At(LanePosition { block: at, index })
            }
            Some(_) | None => Walk::End,
        }
    }

    /// The entry there.
    pub(crate) fn entry(&self, at: LanePosition) -> &Entry {
        &self.blocks[at.block].entries()[at.index]
    }

    /// What it has that few entries have.
    pub(crate) fn extra(&self, at: LanePosition) -> Option<&Extra> {
        let sheet = self.blocks[at.block].sheet()?;
        let entry = sheet.entries.get(at.index)?;
        if entry.marks.has_extra() { sheet.extras.get(entry.sequence) } else { None }
    }

    /// Changes an entry in a way that its page must show. Its state is changed by
    /// [`Lane::set_state`] only.
    pub(crate) fn change(&mut self, at: LanePosition, change: impl FnOnce(&mut Entry)) {
        change(&mut self.blocks[at.block].sheet_mut().entries[at.index]);
    }

    /// Gives an entry another extra, or none.
    pub(crate) fn set_extra(&mut self, at: LanePosition, extra: Option<Extra>) {
        let sheet = self.blocks[at.block].sheet_mut();
        let entry = &mut sheet.entries[at.index];
        entry.marks.set_extra(extra.is_some());
        let sequence = entry.sequence;
        drop_extra(sheet, sequence, &self.census);
        if let Some(extra) = extra {
            add_extra(sheet, sequence, extra, &self.census);
        }
    }

    /// Moves an entry between its live states.
    pub(crate) fn set_state(&mut self, at: LanePosition, state: EntryState) {
        assert_ne!(state, EntryState::Gone, "entries go by `remove`");
        let block = &mut self.blocks[at.block];
        let entry = &mut block.hidden_mut().entries[at.index];
        let old = std::mem::replace(&mut entry.state, state);
        if state == EntryState::Held {
            entry.marks.set_acquired();
        }
        let sequence = entry.sequence;
        assert_ne!(old, EntryState::Gone, "a tombstone has no state to change");
        block.available -= u32::from(old == EntryState::Available);
        block.available += u32::from(state == EntryState::Available);
        if state == EntryState::Available {
            self.hint = self.hint.min(sequence);
        }
    }

    /// A consumer had this message.
    pub(crate) fn note_acquired(&mut self, at: LanePosition) {
        self.blocks[at.block].hidden_mut().entries[at.index].marks.set_acquired();
    }

    /// Takes an entry out. All positions become stale.
    pub(crate) fn remove(&mut self, at: LanePosition) -> (Entry, Extra) {
        let block = &mut self.blocks[at.block];
        let sheet = block.sheet_mut();
        let entry = &mut sheet.entries[at.index];
        assert_ne!(entry.state, EntryState::Gone, "a message leaves once");
        let tombstone = Entry { place: EntryBody::NOWHERE, state: EntryState::Gone, ..*entry };
        let taken = std::mem::replace(entry, tombstone);
        let has_extra = taken.marks.has_extra();
        let sequence = taken.sequence;
        let extra = if has_extra { drop_extra(sheet, sequence, &self.census) } else { None };
        // It may have the positions of the body.
        assert_eq!(extra.is_some(), has_extra, "what a message has besides its entry is lost");
        block.available -= u32::from(taken.state == EntryState::Available);
        block.live -= 1;
        self.live -= 1;
        self.drop_if_dead(at.block);
        (taken, extra.unwrap_or_default())
    }

    fn drop_if_dead(&mut self, at: usize) {
        if self.blocks[at].live > 0 {
            return;
        }
        if self.blocks.len() > 1 {
            let gone = self.blocks.remove(at);
            self.forget(gone);
        } else {
            // The sole block keeps its memory: the next message comes soon.
            let block = &mut self.blocks[at];
            block.hidden_mut().entries.clear();
            block.first = 0;
            let stored = block.stored.take();
            block.current = false;
            self.obsolete.extend(stored.map(|outline| outline.page));
            self.note_indexed(at);
        }
    }

    fn forget(&mut self, gone: Option<Block>) {
        let Some(gone) = gone else { return };
        assert!(!gone.is_pinned(), "a fact on its way needs this block");
        self.obsolete.extend(gone.stored.as_ref().map(|outline| outline.page));
        if gone.is_here() {
            self.unindexed -= usize::from(gone.indexed != self.kinds);
            self.census.went(gone.extra_bytes());
        } else {
            self.away -= 1;
        }
    }

    /// Takes out all blocks that are away and lie wholly before this sequence; yields their
    /// outlines.
    pub(crate) fn drop_away(&mut self, upto: u64) -> Vec<Arc<Outline>> {
        let mut dropped = Vec::new();
        if self.away == 0 {
            return dropped;
        }
        let goes = |block: &Block| !block.is_here() && block.last().is_some_and(|last| last < upto);
        let blocks = std::mem::take(&mut self.blocks);
        for block in blocks {
            if goes(&block) {
                self.live -= block.live as usize;
                dropped.extend(block.stored.clone());
                self.forget(Some(block));
            } else {
                self.blocks.push_back(block);
            }
        }
        dropped
    }

    /// Takes all entries out, which are here, at a cost that does not depend on how many there are
    /// in a block.
    ///
    /// # Panics
    /// When a block is away.
    pub(crate) fn take_all(&mut self) -> VecDeque<Block> {
        assert_eq!(self.away, 0, "what is away is not taken out of its page");
        let blocks = std::mem::take(&mut self.blocks);
        for block in &blocks {
            assert!(!block.is_pinned(), "a fact on its way needs this block");
            self.obsolete.extend(block.stored.as_ref().map(|outline| outline.page));
            self.census.went(block.extra_bytes());
        }
        (self.live, self.hint, self.unindexed) = (0, 0, 0);
        blocks
    }

    /// The first available entry, at a cost that does not depend on how many are held before it.
    pub(crate) fn first_available(&mut self) -> Walk {
        let found = self.next_available(self.hint);
        self.hint = match found {
            Walk::At(at) => self.entry(at).sequence,
            Walk::OnPage(block) => self.blocks[block].first,
            Walk::End => u64::MAX,
        };
        found
    }

    /// The first available entry with this sequence or a higher one.
    pub(crate) fn next_available(&self, from: u64) -> Walk {
        let worth = |block: &Block| block.available > 0;
        self.next(from, worth, |entry| entry.state == EntryState::Available)
    }

    /// The first live entry with this sequence or a higher one.
    pub(crate) fn next_live(&self, from: u64) -> Walk {
        self.next(from, |block| block.live > 0, |entry| entry.state != EntryState::Gone)
    }

    /// The first live entry from here on, blocks that are away passed over unless something on
    /// their page expired.
    pub(crate) fn next_to_expire(&self, from: u64, now: Time) -> Walk {
        let worth = |block: &Block| match (block.is_here(), &block.stored) {
            (false, Some(outline)) => outline.expires_first <= now,
            (_, _) => block.live > 0,
        };
        self.next(from, worth, |entry| entry.state != EntryState::Gone)
    }

    /// The first live entry from here on, blocks that are away passed over unless a body on their
    /// page is in an extent before this one.
    pub(crate) fn next_in_old_extent(&self, from: u64, before_extent: u64) -> Walk {
        let worth = |block: &Block| match (block.is_here(), &block.stored) {
            (false, Some(outline)) => {
                outline.extents.iter().any(|share| share.extent < before_extent)
            }
            (_, _) => block.live > 0,
        };
        self.next(from, worth, |entry| entry.state != EntryState::Gone)
    }

    fn next(
        &self,
        from: u64,
        worth: impl Fn(&Block) -> bool,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Walk {
        if self.live == 0 {
            return Walk::End;
        }
        let mut at = self.block_of(from);
        let mut index = self.blocks[at].lower_bound(from);
        while let Some(block) = self.blocks.get(at) {
            if worth(block) {
                if !block.is_here() && block.last().is_some_and(|last| last >= from) {
                    return Walk::OnPage(at);
                }
                let rest = block.entries().get(index..).unwrap_or_default();
                if let Some(offset) = rest.iter().position(&wanted) {
                    return Walk::At(LanePosition { block: at, index: index + offset });
                }
            }
            at += 1;
            index = 0;
        }
        Walk::End
    }

    /// All live entries that are here, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.blocks
            .iter()
            .flat_map(|block| block.entries().iter())
            .filter(|entry| entry.state != EntryState::Gone)
    }

    /// Puts a block that an image names behind all others.
    pub(crate) fn push_away(&mut self, outline: Arc<Outline>) {
        let last = self.blocks.back().and_then(Block::last);
        assert!(last < Some(outline.first) && outline.live > 0, "an image is in order");
        self.live += outline.live as usize;
        self.hint = self.hint.min(outline.first);
        self.away += 1;
        self.blocks.push_back(Block::away(outline));
    }

    /// The page of this block was written and says what it held at `version`. Yields whether it
    /// still does; when not, the page is obsolete.
    pub(crate) fn page_stored(&mut self, first: u64, version: u32, outline: Arc<Outline>) -> bool {
        let at = self.block_for(first);
        let block = at.and_then(|at| self.blocks.get_mut(at));
        let holds = block.filter(|block| {
            block.is_here() && block.first == first && block.version == version && !block.current
        });
        let Some(block) = holds else {
            self.obsolete.push(outline.page);
            return false;
        };
        let old = block.stored.replace(outline);
        block.current = true;
        self.obsolete.extend(old.map(|outline| outline.page));
        true
    }

    /// Lets go of a block's memory; yields what was in it. The caller has taken it out of the index
    /// ([`Block::indexed`]).
    pub(crate) fn send_away(&mut self, at: usize) -> Option<Arc<Sheet>> {
        let block = self.blocks.get_mut(at)?;
        let extra_bytes = block.extra_bytes();
        self.unindexed -= usize::from(block.indexed != self.kinds);
        let sheet = block.leave();
        self.away += 1;
        self.census.went(extra_bytes);
        sheet
    }

    /// The page of this block was read.
    pub(crate) fn bring_in(&mut self, at: usize, sheet: Sheet) {
        if let Some(block) = self.blocks.get_mut(at) {
            block.come(sheet);
            self.away -= 1;
            self.unindexed += usize::from(block.indexed != self.kinds);
            self.census.came(block.extra_bytes());
        }
    }

    /// The queue indexes these kinds of keys as well from now on, and what is here already is not.
    pub(crate) fn index_also(&mut self, kinds: KeyKinds) {
        if !kinds.without(self.kinds).is_empty() {
            self.kinds = self.kinds.with(kinds);
            self.unindexed = self.blocks.len() - self.away;
        }
    }

    /// Blocks here that the index lacks.
    pub(crate) fn unindexed(&self) -> usize {
        self.unindexed
    }

    /// The kinds of keys for which the block is indexed that holds this sequence.
    pub(crate) fn indexed_with(&self, sequence: u64) -> KeyKinds {
        let newest = self.blocks.back().filter(|block| block.first <= sequence);
        let block = newest.or_else(|| self.blocks.get(self.block_for(sequence)?));
        block.map_or(KeyKinds::default(), |block| block.indexed)
    }

    /// Every available message of this block, which is here, is in the index from now on, for all
    /// kinds of keys.
    pub(crate) fn note_indexed(&mut self, at: usize) {
        let Some(block) = self.blocks.get_mut(at) else { return };
        assert!(block.is_here(), "what is away is not indexed");
        self.unindexed -= usize::from(block.indexed != self.kinds);
        block.indexed = self.kinds;
    }

    /// Pages that nothing here refers to any more.
    pub(crate) fn take_obsolete(&mut self, pages: &mut Vec<PageRef>) {
        pages.append(&mut self.obsolete);
    }

    /// All pages of a lane that ends.
    pub(crate) fn all_pages(&mut self, pages: &mut Vec<PageRef>) {
        self.take_obsolete(pages);
        pages.extend(self.blocks.iter().filter_map(|block| block.stored.as_ref()).map(|o| o.page));
    }

    /// Panics when an invariant of the module's description is broken.
    pub(crate) fn audit(&self) {
        let mut before = None;
        let mut live = 0;
        let mut away = 0;
        let mut unindexed = 0;
        for block in &self.blocks {
            block.audit();
            for entry in block.entries() {
                assert!(before < Some(entry.sequence), "sequences ascend");
                before = Some(entry.sequence);
                assert!(
                    entry.state != EntryState::Available || entry.sequence >= self.hint,
                    "no available entry is before the hint"
                );
            }
            if !block.is_here() {
                assert!(before < Some(block.first) && block.first >= self.hint, "order of blocks");
                before = block.last();
                away += 1;
            }
            assert!(block.is_here() || block.indexed.is_empty(), "what is away is not indexed");
            unindexed += usize::from(block.is_here() && block.indexed != self.kinds);
            assert!(block.live > 0 || self.blocks.len() == 1, "dead blocks are dropped");
            live += block.live as usize;
        }
        assert_eq!((live, away), (self.live, self.away), "live entries and blocks away of a lane");
        assert_eq!(unindexed, self.unindexed, "blocks that the index lacks");
    }
}

fn add_extra(sheet: &mut Sheet, sequence: u64, extra: Extra, census: &Census) {
    let before = sheet.extras.bytes();
    sheet.extras.insert(sequence, extra);
    census.extras_changed(before, sheet.extras.bytes());
}

fn drop_extra(sheet: &mut Sheet, sequence: u64, census: &Census) -> Option<Extra> {
    let before = sheet.extras.bytes();
    let extra = sheet.extras.remove(sequence);
    census.extras_changed(before, sheet.extras.bytes());
    extra
}

impl Drop for Lane {
    fn drop(&mut self) {
        for block in &self.blocks {
            if block.is_here() {
                self.census.went(block.extra_bytes());
            }
        }
    }
}
