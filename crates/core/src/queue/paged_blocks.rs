//! Walks over a queue of which part is away, and what comes and goes.
//!
//! A walk never passes over a block that is away and may matter: it says which page is needed.
//! Not here: requests to read pages (`crate::page_cache`); searches for a key (`keyed_walk`).

use std::sync::Arc;

use towline_types::{PageRef, Time, fitting};

use super::block::PageNeed;
use super::keys::KeyFilter;
use super::page;
use super::{Block, EntryState, LANES, Outline, Queue, ScanCursor, Sheet, Spot, Walk};
use crate::ConsumerId;
use crate::page_key::{PageKey, PageRequest};

/// Blocks read ahead of a walk: 1,024 messages.
pub(crate) const BLOCKS_AHEAD: usize = 4;

/// Blocks examined for those that are worth reading ahead.
pub(super) const LOOKS_AHEAD: usize = 64;

/// A block that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagedBlock {
    pub(crate) lane: u8,
    pub(crate) block: usize,
}

/// Where a search in a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    Found(Spot),
    /// The page of this block must be read to go on.
    OnPage(PagedBlock),
    Nothing,
}

impl Queue {
    /// The first available message in order of delivery.
    pub(crate) fn first_available(&mut self) -> Search {
        let mut rest = self.occupied;
        while self.available > 0 && rest != 0 {
            let lane: u8 = fitting(rest.ilog2());
            rest &= !(1 << lane);
            let walk = self.lanes[usize::from(lane)].first_available();
            if let Some(search) = self.searched(lane, walk) {
                return search;
            }
        }
        Search::Nothing
    }

    /// The first available message in order of delivery that a scanner has not looked at. Places
    /// that it was to look at, and where nothing is available by now, are forgotten.
    pub(crate) fn next_for(&self, cursor: &mut ScanCursor) -> Search {
        while let Some(rank) = cursor.returned.first().copied() {
            let (lane, sequence) = (rank.lane(), rank.sequence());
            let entries = &self.lanes[usize::from(lane)];
            let back = match entries.find(sequence) {
                Walk::At(at) if entries.entry(at).state == EntryState::Available => {
                    Search::Found(Spot { lane, sequence })
                }
                Walk::OnPage(block) => Search::OnPage(PagedBlock { lane, block }),
                Walk::At(_) | Walk::End => {
                    cursor.returned.pop_first();
                    continue;
                }
            };
            // It is before all that was not looked at in its lane, and in the lanes below.
            return match self.next_available(&cursor.lanes, u16::MAX << lane << 1) {
                Search::Nothing => back,
                above @ (Search::Found(_) | Search::OnPage(_)) => above,
            };
        }
        self.next_available(&cursor.lanes, u16::MAX)
    }

    /// The first available message in order of delivery, in these lanes, of which none is before
    /// its lane's cursor.
    fn next_available(&self, cursor: &[u64; LANES], lanes: u16) -> Search {
        let mut rest = self.occupied & lanes;
        while self.available > 0 && rest != 0 {
            let lane: u8 = fitting(rest.ilog2());
            rest &= !(1 << lane);
            let walk = self.lanes[usize::from(lane)].next_available(cursor[usize::from(lane)]);
            if let Some(search) = self.searched(lane, walk) {
                return search;
            }
        }
        Search::Nothing
    }

    fn searched(&self, lane: u8, walk: Walk) -> Option<Search> {
        match walk {
            Walk::At(at) => {
                let sequence = self.lanes[usize::from(lane)].entry(at).sequence;
                Some(Search::Found(Spot { lane, sequence }))
            }
            Walk::OnPage(block) => Some(Search::OnPage(PagedBlock { lane, block })),
            Walk::End => None,
        }
    }

    /// The first message of a lane from here on that the scan for expired ones must look at.
    pub(crate) fn next_to_expire(&self, lane: u8, from: u64, now: Time) -> Search {
        let Some(entries) = self.lanes.get(usize::from(lane)) else { return Search::Nothing };
        self.searched(lane, entries.next_to_expire(from, now)).unwrap_or(Search::Nothing)
    }

    /// The first message of a lane from here on that may have its body in an extent before this
    /// one.
    pub(crate) fn next_in_old_extent(&self, lane: u8, from: u64, before: u64) -> Search {
        let Some(entries) = self.lanes.get(usize::from(lane)) else { return Search::Nothing };
        self.searched(lane, entries.next_in_old_extent(from, before)).unwrap_or(Search::Nothing)
    }

    /// What to read for a block that is away; `None` when it was asked for already.
    pub(crate) fn ask(&mut self, away: PagedBlock) -> Option<PageRequest> {
        self.ask_for(away, PageNeed::OfAll)
    }

    pub(super) fn ask_for(&mut self, away: PagedBlock, reason: PageNeed) -> Option<PageRequest> {
        let queue = self.id();
        let block = self.lanes[usize::from(away.lane)].block_mut(away.block)?;
        let page = block.stored.as_ref()?.page;
        if block.is_here() {
            return None;
        }
        let before = block.asked;
        if before == PageNeed::None || reason == PageNeed::OfAll {
            block.asked = reason;
        }
        if before != PageNeed::None {
            return None;
        }
        Some(PageRequest { key: PageKey { queue, lane: away.lane, first: block.first }, page })
    }

    /// What to read for a block that is away, for a caller that reads it itself: the request is not
    /// recorded, so no consumer waits in vain for a caller that changes its mind.
    ///
    /// # Panics
    /// When the block is not away.
    pub(crate) fn page_of(&self, away: PagedBlock) -> PageRequest {
        let queue = self.id();
        let block = self.lanes[usize::from(away.lane)].blocks().get(away.block);
        let stored = block.filter(|block| !block.is_here()).and_then(|block| block.stored.as_ref());
        let Some(outline) = stored else { unreachable!("a block that is away has a page") };
        let key = PageKey { queue, lane: away.lane, first: outline.first };
        PageRequest { key, page: outline.page }
    }

    /// The blocks behind this message that are away and will be wanted next.
    pub(crate) fn ask_ahead(&mut self, spot: Spot, asked: &mut Vec<PageRequest>) {
        let lane = &self.lanes[usize::from(spot.lane)];
        if lane.away() == 0 {
            return;
        }
        let Some(at) = lane.block_for(spot.sequence) else { return };
        for block in at + 1..=at + BLOCKS_AHEAD {
            asked.extend(self.ask(PagedBlock { lane: spot.lane, block }));
        }
    }

    /// This block and the next ones behind it that are away and hold something that expired.
    pub(crate) fn ask_to_expire(
        &mut self,
        away: PagedBlock,
        now: Time,
        asked: &mut Vec<PageRequest>,
    ) {
        let blocks = self.lanes[usize::from(away.lane)].blocks();
        let expired = |block: &Block| {
            let stored = block.stored.as_ref().filter(|_| !block.is_here());
            stored.is_some_and(|outline| outline.expires_first <= now)
        };
        let ahead: Vec<usize> = (away.block..blocks.len().min(away.block + LOOKS_AHEAD))
            .filter(|block| blocks.get(*block).is_some_and(expired))
            .take(1 + BLOCKS_AHEAD)
            .collect();
        asked.extend(ahead.into_iter().filter_map(|block| self.ask(PagedBlock { block, ..away })));
    }

    /// This consumer goes on when the page of a block is there.
    pub(crate) fn wait_for_page(&mut self, away: PagedBlock, consumer: ConsumerId) {
        let block = self.lanes[usize::from(away.lane)].blocks().get(away.block);
        if let Some(block) = block {
            self.loading.entry((away.lane, block.first)).or_default().push(consumer);
        }
    }

    /// The consumers that waited for this page.
    pub(crate) fn page_waiters(&mut self, key: PageKey) -> Vec<ConsumerId> {
        self.loading.remove(&(key.lane, key.first)).unwrap_or_default()
    }

    /// The block of this key and page, if it is away and that is still its page.
    pub(crate) fn block_of_page(&self, key: PageKey, page: PageRef) -> Option<PagedBlock> {
        let lane = self.lanes.get(usize::from(key.lane))?;
        let at = lane.block_for(key.first)?;
        let block = lane.blocks().get(at)?;
        let same = block.stored.as_ref().is_some_and(|outline| outline.page == page);
        (same && !block.is_here()).then_some(PagedBlock { lane: key.lane, block: at })
    }

    /// Whether this, read from the page of a block that is away, is what it should be.
    pub(crate) fn is_page_of(&self, away: PagedBlock, sheet: &Sheet, extent_bytes: u64) -> bool {
        let block = self.lanes[usize::from(away.lane)].blocks().get(away.block);
        let Some(outline) = block.and_then(|block| block.stored.as_ref()) else { return false };
        // All that was counted by the outline will be counted by the messages.
        let Some(mut says) = page::outline(sheet, extent_bytes) else { return false };
        says.page = outline.page;
        says == **outline
    }

    /// The page of a block was read. A search for a key indexes it when it comes there.
    pub(crate) fn bring_in(&mut self, away: PagedBlock, sheet: Sheet) {
        self.lanes[usize::from(away.lane)].bring_in(away.block, sheet);
    }

    /// Evicts a block after its page was written.
    pub(crate) fn send_away(&mut self, away: PagedBlock) {
        self.take_out_of_index(away);
        let lane = &mut self.lanes[usize::from(away.lane)];
        let Some(sheet) = lane.send_away(away.block) else { return };
        let kinds = self.indexed;
        if let Some(block) = lane.block_mut(away.block) {
            block.filter = KeyFilter::of(&sheet.entries, kinds);
        }
    }

    /// The block here that begins with this sequence, and how far it is from the front and the end
    /// of its lane.
    pub(crate) fn block_here(&self, key: PageKey) -> Option<(PagedBlock, &Block, usize)> {
        let lane = self.lanes.get(usize::from(key.lane))?;
        let at = lane.block_for(key.first)?;
        let block = lane.blocks().get(at)?;
        if block.first != key.first || !block.is_here() {
            return None;
        }
        let from_end = lane.blocks().len() - 1 - at;
        Some((PagedBlock { lane: key.lane, block: at }, block, from_end))
    }

    pub(crate) fn block_mut(&mut self, away: PagedBlock) -> Option<&mut Block> {
        self.lanes.get_mut(usize::from(away.lane))?.block_mut(away.block)
    }

    /// The page of a block was written. True: it says what the block holds now.
    pub(crate) fn page_stored(&mut self, key: PageKey, version: u32, page: Arc<Outline>) -> bool {
        let lane = &mut self.lanes[usize::from(key.lane.min(9))];
        lane.page_stored(key.first, version, page)
    }

    /// A block that is away, of an image.
    pub(crate) fn push_away(&mut self, lane: u8, outline: Arc<Outline>) {
        self.live += u64::from(outline.live);
        self.available += u64::from(outline.live);
        self.expiring += u64::from(outline.expiring);
        self.bytes += outline.bytes;
        self.highest = self.highest.max(outline.last);
        self.occupied |= 1 << lane;
        self.lanes[usize::from(lane)].push_away(outline);
    }

    /// Takes out what is away and lies before this sequence.
    pub(crate) fn drop_away(&mut self, upto: u64) -> Vec<Arc<Outline>> {
        let mut dropped = Vec::new();
        for number in 0..LANES {
            let lane = &mut self.lanes[number];
            dropped.extend(lane.drop_away(upto));
            if lane.live() == 0 {
                self.occupied &= !(1 << number);
            }
        }
        for outline in &dropped {
            self.live -= u64::from(outline.live);
            self.available -= u64::from(outline.live);
            self.expiring -= u64::from(outline.expiring);
            self.bytes -= outline.bytes;
        }
        dropped
    }

    /// A block that is away and that a fact about this message would need; for replay.
    pub(crate) fn away_for(&self, sequence: u64) -> Option<PagedBlock> {
        if sequence > self.highest {
            return None;
        }
        (0..10_u8).find_map(|lane| match self.lanes[usize::from(lane)].find(sequence) {
            Walk::OnPage(block) => Some(PagedBlock { lane, block }),
            Walk::At(_) | Walk::End => None,
        })
    }

    /// A block that is away and would get a message inserted within it or right behind it; for
    /// replay.
    pub(crate) fn away_at(&self, lane: u8, sequence: u64) -> Option<PagedBlock> {
        let entries = self.lanes.get(usize::from(lane))?;
        let newest = entries.blocks().back()?.last()?;
        let at = entries.block_for(sequence)?;
        let away = entries.blocks().get(at).is_some_and(|block| !block.is_here());
        (away && sequence <= newest).then_some(PagedBlock { lane, block: at })
    }

    /// A block that is away and partly before this sequence; for replay.
    pub(crate) fn away_across(&self, upto: u64) -> Option<PagedBlock> {
        (0..10_u8).find_map(|lane| {
            let entries = &self.lanes[usize::from(lane)];
            let block = entries.block_for(upto)?;
            let found = entries.blocks().get(block)?;
            let across = !found.is_here()
                && found.first < upto
                && found.last().is_some_and(|last| last >= upto);
            across.then_some(PagedBlock { lane, block })
        })
    }

    /// Keeps a message here while a fact about it is on its way.
    pub(crate) fn pin(&mut self, spot: Spot) {
        if let Some(block) = self.block_with(spot) {
            block.pin(spot.sequence);
        }
    }

    /// The fact is applied. Replay pins nothing: its pages come before the facts that need them.
    pub(crate) fn unpin(&mut self, spot: Spot) {
        if let Some(block) = self.block_with(spot) {
            block.unpin(spot.sequence);
        }
    }

    fn block_with(&mut self, spot: Spot) -> Option<&mut Block> {
        let lane = &mut self.lanes[usize::from(spot.lane)];
        let at = lane.block_for(spot.sequence)?;
        lane.block_mut(at)
    }

    /// All blocks, lane by lane.
    pub(crate) fn all_blocks(&self) -> impl Iterator<Item = (u8, &Block)> {
        (0..10_u8).flat_map(|lane| {
            self.lanes[usize::from(lane)].blocks().iter().map(move |block| (lane, block))
        })
    }

    /// Pages that nothing refers to any more.
    pub(crate) fn take_obsolete(&mut self, pages: &mut Vec<PageRef>) {
        for lane in &mut self.lanes {
            lane.take_obsolete(pages);
        }
    }

    /// All pages of a queue that ends.
    pub(crate) fn all_pages(&mut self, pages: &mut Vec<PageRef>) {
        for lane in &mut self.lanes {
            lane.all_pages(pages);
        }
    }
}
