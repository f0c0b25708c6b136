//! Pages: parts of deep queues that are not in memory.
//!
//! The rules open no file. They request a page ([`Effect::LoadPage`]), say which pages should be
//! written ([`QueueManager::plan_eviction`], [`crate::ImagePlan`]), and are notified when a page
//! was read or written. The writer encodes a [`PageJob`] without the rules: what it shares with
//! them is never changed meanwhile.
//!
//! Not here: the bytes of a page (`queue/page.rs`); where pages are kept.
//!
//! Invariants: blocks leave only when they, with their extras, take more than `index_bytes_max`,
//! never the first two or the newest of a lane; a page is given up (`take_obsolete`) when nothing
//! here refers to it, which may be before the next image is written: it may be overwritten only
//! after that.

use std::collections::VecDeque;
use std::sync::Arc;

use towline_types::PageRef;
use towline_types::limits::BLOCKS_LEAVING_MAX;

use crate::QueueManager;
use crate::effect::{Effect, Outputs};
use crate::fact::Fact;
use crate::page_key::{PageKey, PageRequest};
use crate::queue::{Census, Outline, Queue, Sheet, page};
use crate::record::RecordError;

/// What a block costs in memory: 256 entries of 72 bytes, and what is around them. Its extras come
/// to that.
const BLOCK_BYTES: u64 = 19 * 1024;
/// Blocks at the front of a lane that stay here.
const FRONT_BLOCKS: usize = 2;
/// Rounds of eviction that a block stays after it was read: the consumer that needed it may need it
/// once more.
const ROUNDS_STAYING: u64 = 2;
/// Blocks kept here in any case: below this, paging would cost more than it saves.
const BLOCKS_MIN: usize = 64;
/// Candidates that one call finds to be gone; each costs a search for its block.
const STALE_MAX: usize = 1_024;

/// What one call of [`QueueManager::plan_eviction`] came to.
#[derive(Debug, Default)]
pub struct EvictionPlan {
    /// Pages to write, so that their blocks can leave.
    pub jobs: Vec<PageJob>,
    /// Blocks that left: at most [`BLOCKS_LEAVING_MAX`].
    pub left: usize,
    /// It ended at a bound, and too much is still here: the next call goes on in the same round.
    pub more: bool,
}

/// A block to be written to a page.
#[derive(Clone, Debug)]
pub struct PageJob {
    key: PageKey,
    version: u32,
    sheet: Arc<Sheet>,
    extent_bytes: u64,
}

/// A page that was encoded and has no position in the file yet.
#[derive(Clone, Debug)]
pub struct PageDraft {
    key: PageKey,
    version: u32,
    outline: Outline,
}

/// A page that was written.
#[derive(Clone, Debug)]
pub struct StoredPage {
    key: PageKey,
    version: u32,
    pub(crate) outline: Arc<Outline>,
}

impl StoredPage {
    /// Where it is.
    #[must_use]
    pub fn page(&self) -> PageRef {
        self.outline.page
    }
}

impl PageJob {
    pub(crate) fn of(key: PageKey, version: u32, sheet: &Arc<Sheet>, extent_bytes: u64) -> PageJob {
        PageJob { key, version, sheet: Arc::clone(sheet), extent_bytes }
    }

    /// Appends the page's bytes. `None`: nothing of it need be kept.
    #[must_use]
    pub fn encode(&self, out: &mut Vec<u8>) -> Option<PageDraft> {
        let outline = page::encode(&self.sheet, self.extent_bytes, out)?;
        Some(PageDraft { key: self.key, version: self.version, outline })
    }
}

impl PageDraft {
    /// It was written there.
    #[must_use]
    pub fn stored_at(mut self, page: PageRef) -> StoredPage {
        self.outline.page = page;
        let PageDraft { key, version, outline } = self;
        StoredPage { key, version, outline: Arc::new(outline) }
    }
}

/// What the queue manager knows of its pages.
#[derive(Debug)]
pub(crate) struct PageCache {
    pub(crate) census: Arc<Census>,
    /// Blocks at the front of a lane that stay here.
    front_blocks: usize,
    /// Blocks that may leave, those that should leave first at the end. Some are gone already.
    candidates: VecDeque<PageKey>,
    /// Rounds of eviction so far.
    round: u64,
    /// The last call ended at a bound, and the next one goes on in its round.
    round_goes_on: bool,
    /// Pages of queues that are gone.
    obsolete: Vec<PageRef>,
}

impl Default for PageCache {
    fn default() -> PageCache {
        PageCache {
            census: Arc::default(),
            front_blocks: FRONT_BLOCKS,
            candidates: VecDeque::new(),
            round: ROUNDS_STAYING,
            round_goes_on: false,
            obsolete: Vec::new(),
        }
    }
}

impl PageCache {
    /// Blocks that may leave, and some that are gone.
    #[cfg(test)]
    pub(crate) fn candidates(&self) -> usize {
        self.candidates.len()
    }

    /// A block is full, or was read from its page.
    pub(crate) fn may_leave(&mut self, key: PageKey) {
        self.candidates.push_back(key);
    }
}

/// How the memory for queue indexes stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagingStatus {
    /// Bytes of blocks in memory, and of their extras, about.
    pub index_bytes: u64,
    /// Bytes that they should not pass.
    pub index_bytes_max: u64,
}

impl QueueManager {
    fn index_bytes(&self) -> u64 {
        let census = &self.page_cache.census;
        census.here() as u64 * BLOCK_BYTES + census.extra_bytes()
    }

    /// In whole blocks, and no fewer than are kept in any case.
    fn index_bytes_max(&self) -> u64 {
        let blocks = self.limits.index_bytes_max / BLOCK_BYTES;
        blocks.max(BLOCKS_MIN as u64).saturating_mul(BLOCK_BYTES)
    }

    /// Whether blocks should leave when so many, of so many bytes, are leaving already.
    fn is_too_large_without(&self, leaving: usize, bytes: u64) -> bool {
        let here = self.page_cache.census.here();
        here > BLOCKS_MIN + leaving && self.index_bytes() > self.index_bytes_max() + bytes
    }

    /// How the memory for queue indexes stands.
    #[must_use]
    pub fn paging_status(&self) -> PagingStatus {
        PagingStatus { index_bytes: self.index_bytes(), index_bytes_max: self.index_bytes_max() }
    }

    /// Whether more of the queues is in memory than should be.
    #[must_use]
    pub fn wants_eviction(&self) -> bool {
        self.is_too_large_without(0, 0)
    }

    /// Evicts blocks with written pages, at most [`BLOCKS_LEAVING_MAX`], and says which pages to
    /// write so that more blocks can go: at most `jobs_max`. Call [`QueueManager::pages_stored`]
    /// with what came of them.
    ///
    /// Calls that end at a bound are one round: however small the bound is, a page just read is
    /// not asked to leave any sooner.
    pub fn plan_eviction(&mut self, jobs_max: usize) -> EvictionPlan {
        let mut plan = EvictionPlan::default();
        self.page_cache.round += u64::from(!self.page_cache.round_goes_on);
        self.tidy_candidates();
        let looks = self.page_cache.candidates.len().min(jobs_max * 4);
        let mut kept = Vec::new();
        let mut stale = 0;
        // What is planned counts as gone: it goes when it is written.
        let mut leaving_bytes = 0;
        while self.is_too_large_without(plan.jobs.len(), leaving_bytes)
            && plan.jobs.len() < jobs_max
            && kept.len() <= looks
        {
            plan.more = plan.left == BLOCKS_LEAVING_MAX || stale == STALE_MAX;
            if plan.more {
                break;
            }
            let Some(key) = self.page_cache.candidates.pop_back() else { break };
            match self.try_evict(key) {
                Eviction::Stale => stale += 1,
                Eviction::Left => plan.left += 1,
                Eviction::Stays => kept.push(key),
                Eviction::Write(job) => {
                    leaving_bytes += BLOCK_BYTES + job.sheet.extras.bytes();
                    plan.jobs.push(job);
                    kept.push(key);
                }
            }
        }
        // Those that had to stay are asked last the next time.
        for key in kept {
            self.page_cache.candidates.push_front(key);
        }
        self.page_cache.round_goes_on = plan.more;
        plan
    }

    fn try_evict(&mut self, key: PageKey) -> Eviction {
        let extent_bytes = self.limits.extent_bytes;
        let Some(queue) = self.queues.get_mut(&key.queue) else { return Eviction::Stale };
        let is_completing = queue.completing > 0;
        let Some((away, block, from_end)) = queue.block_here(key) else { return Eviction::Stale };
        if from_end == 0 || away.block < self.page_cache.front_blocks {
            return Eviction::Stays;
        }
        if is_completing {
            return Eviction::Stays; // Something may be inserted into it.
        }
        if self.page_cache.round < block.came_in + ROUNDS_STAYING {
            return Eviction::Stays; // It was wanted a moment ago.
        }
        // Last, because it looks at all messages.
        if !block.can_leave() {
            return Eviction::Stays;
        }
        if block.current {
            queue.send_away(away);
            return Eviction::Left;
        }
        let Some(sheet) = block.sheet() else { return Eviction::Stale };
        Eviction::Write(PageJob::of(key, block.version, sheet, extent_bytes))
    }

    /// Lets everything go that may, and yields what must be written so that it may.
    #[cfg(test)]
    pub(crate) fn plan_eviction_of_all(&mut self) -> Vec<PageJob> {
        let keys: Vec<PageKey> = self
            .queues
            .values()
            .flat_map(|queue| queue.all_blocks().map(|(lane, block)| (queue.id(), lane, block)))
            .map(|(queue, lane, block)| PageKey { queue, lane, first: block.first })
            .collect();
        let mut jobs = Vec::new();
        self.page_cache.front_blocks = 0;
        self.page_cache.round += ROUNDS_STAYING;
        for key in keys {
            if let Eviction::Write(job) = self.try_evict(key) {
                jobs.push(job);
            }
        }
        jobs
    }

    /// Forgets candidates that are gone, when they are many: as many are added between two calls
    /// that do something as one of them looks at, about.
    pub(crate) fn tidy_candidates(&mut self) {
        if self.page_cache.candidates.len() <= 2 * self.page_cache.census.here() + 1024 {
            return;
        }
        let mut candidates = std::mem::take(&mut self.page_cache.candidates);
        candidates.retain(|key| {
            let queue = self.queues.get(&key.queue);
            queue.is_some_and(|queue| queue.block_here(*key).is_some())
        });
        let mut seen = std::collections::BTreeSet::new();
        candidates.retain(|key| seen.insert(*key));
        self.page_cache.candidates = candidates;
    }

    /// These pages were written. With `evict`, blocks that did not change meanwhile leave if they
    /// still should.
    ///
    /// # Panics
    /// With `evict`, when these are more than [`BLOCKS_LEAVING_MAX`].
    pub fn pages_stored(&mut self, stored: Vec<StoredPage>, evict: bool) {
        assert!(!evict || stored.len() <= BLOCKS_LEAVING_MAX, "all clients wait for what leaves");
        for StoredPage { key, version, outline } in stored {
            let page = outline.page;
            let Some(queue) = self.queues.get_mut(&key.queue) else {
                self.page_cache.obsolete.push(page);
                continue;
            };
            if queue.page_stored(key, version, outline) && evict {
                match self.try_evict(key) {
                    Eviction::Left | Eviction::Stale | Eviction::Stays | Eviction::Write(_) => {}
                }
            }
        }
    }

    /// Pages that nothing here refers to. The newest image may: they may be overwritten when the
    /// next image, planned after this call, is durable.
    pub fn take_obsolete_pages(&mut self) -> Vec<PageRef> {
        let mut pages = std::mem::take(&mut self.page_cache.obsolete);
        for queue in self.queues.values_mut() {
            queue.take_obsolete(&mut pages);
        }
        pages
    }

    /// They could not be overwritten yet: keep them for the next call.
    pub fn keep_obsolete_pages(&mut self, mut pages: Vec<PageRef>) {
        self.page_cache.obsolete.append(&mut pages);
    }

    /// Whether this is the page of a block that is away. A page that is no longer needed may hold
    /// anything by now, so a failure to read it means nothing.
    #[must_use]
    pub fn needs_page(&self, request: PageRequest) -> bool {
        let queue = self.queues.get(&request.key.queue);
        queue.is_some_and(|queue| queue.block_of_page(request.key, request.page).is_some())
    }

    /// A page was read. One that is no longer needed is ignored, whatever it says; the consumers
    /// that waited for it look again. One that was read for keys only, and has none of them, stays
    /// away. A request must be answered once.
    ///
    /// # Errors
    /// It is not what it should be: the page file is damaged.
    pub fn page_arrived(&mut self, request: PageRequest, bytes: &[u8]) -> Result<(), RecordError> {
        let PageRequest { key, page } = request;
        self.scan.page_came(key);
        let Some(queue) = self.queues.get_mut(&key.queue) else { return Ok(()) };
        let found = queue.block_of_page(key, page);
        let sheet = found.map(|_| page::decode(bytes)).transpose()?;
        let mut waiters = Vec::new();
        for waiter in queue.page_waiters(key) {
            if let Some(consumer) = self.consumers.get_mut(&waiter) {
                consumer.fetching = None;
                waiters.push(consumer.visitor());
                queue.waiting.wake_first(consumer.visitor());
            }
        }
        if let (Some(away), Some(sheet)) = (found, sheet) {
            if !queue.is_page_of(away, &sheet, self.limits.extent_bytes) {
                let what = "a page says something else than its outline";
                return Err(RecordError::malformed(0, what));
            }
            if !queue.passes_over(away, &sheet, &waiters) {
                queue.bring_in(away, sheet);
                if let Some(block) = queue.block_mut(away) {
                    block.came_in = self.page_cache.round;
                }
                self.page_cache.may_leave(key);
            }
        }
        self.mark_changed(key.queue);
        Ok(())
    }

    /// In replay: a page that must be read before this fact can be applied, if there is one. Ask
    /// again after it arrived.
    #[must_use]
    pub fn page_before(&self, fact: &Fact) -> Option<PageRequest> {
        // What is only kept aside needs none.
        if self.parts.is_open() { None } else { self.page_for(fact, 0) }
    }

    /// The same for the fact that [`QueueManager::replay_completed`] carries out next.
    #[must_use]
    pub fn page_before_completed(&self) -> Option<PageRequest> {
        let (fact, first) = self.parts.peek_completed()?;
        self.page_for(fact, first)
    }

    /// The sequence of a put counts from `first`.
    fn page_for(&self, fact: &Fact, first: u64) -> Option<PageRequest> {
        let (id, needed) = match fact {
            Fact::Put { queue, sequence, message, .. } => {
                let found = self.queues.get(queue)?;
                let order = message.header.order.min(9);
                let sequence = sequence.0.saturating_add(first);
                let at = found.away_for(sequence).or_else(|| found.away_at(order, sequence));
                (queue, at)
            }
            Fact::Got { queue, sequence }
            | Fact::Expired { queue, sequence }
            | Fact::BackedOut { queue, sequence, count: _ } => {
                (queue, self.queues.get(queue)?.away_for(sequence.0))
            }
            Fact::Moved { from, sequence, .. } => {
                (from, self.queues.get(from)?.away_for(sequence.0))
            }
            Fact::Cleared { queue, upto } => (queue, self.queues.get(queue)?.away_across(upto.0)),
            Fact::BodyChunk { .. }
            | Fact::Abandoned { .. }
            | Fact::Defined { .. }
            | Fact::Deleted { .. }
            | Fact::Undefined { .. }
            | Fact::Level { .. }
            | Fact::Committed { .. }
            | Fact::Part { .. }
            | Fact::Completed { .. }
            | Fact::HistoryBegun { .. } => return None,
        };
        let id = *id;
        let away = needed?;
        Some(self.queues.get(&id)?.page_of(away))
    }

    /// The first page of each queue that is away: to be read in the background after a start.
    pub fn first_pages(&mut self, outputs: &mut Outputs) {
        for queue in self.queues.values_mut() {
            if let crate::queue::Search::OnPage(away) = queue.first_available() {
                let asked = queue.ask(away);
                outputs.effects.extend(asked.map(|request| Effect::LoadPage { request }));
            }
        }
    }

    /// That of one queue.
    pub fn first_page(&mut self, name: &str, outputs: &mut Outputs) {
        let Ok(id) = self.catalogue.local(name).map(|local| local.id) else { return };
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if let crate::queue::Search::OnPage(away) = queue.first_available() {
            let asked = queue.ask(away);
            outputs.effects.extend(asked.map(|request| Effect::LoadPage { request }));
        }
    }

    /// A queue ends: nothing refers to its pages any more.
    pub(crate) fn give_up_pages(&mut self, queue: &mut Queue) {
        queue.all_pages(&mut self.page_cache.obsolete);
    }
}

enum Eviction {
    /// It left.
    Left,
    /// It is away already, or no more.
    Stale,
    /// It cannot leave now.
    Stays,
    /// It can leave when this is written.
    Write(PageJob),
}
