//! Images and pages: what is to be written so that a restart need not read the whole log.
//!
//! Not here: what an image says (the rules know); where it is written. Nothing here waits: plans
//! are taken in a moment and carried out by others.

use towline_core::{
    Body, EvictionPlan, MessageSequence, PageJob, PageRequest, PagingStatus, QueueId,
    RelocationCursor, RelocationSearch, StoredPage,
};
use towline_types::{Lsn, PageRef};

use super::{Instance, Outbound};
use crate::journal::Journal;
use crate::live::SparseExtents;

/// A live body in an old extent: read it, then step the instance with [`super::Input::Relocate`].
#[derive(Debug)]
pub struct OldBody {
    /// The queue of the message.
    pub queue: QueueId,
    /// Which.
    pub sequence: MessageSequence,
    /// Where it is.
    pub body: Body,
}

/// What to write, and what can go once it is written.
#[derive(Debug)]
pub struct ImagePlan {
    /// The position up to which the image speaks: the end of the last run applied.
    pub applied: Lsn,
    /// Start of the oldest extent that holds a live body: the extents before it can go.
    pub keep_from: Lsn,
    rules: towline_core::ImagePlan,
}

impl ImagePlan {
    /// Pages to be written, and durable, before the image.
    #[must_use]
    pub fn jobs(&self) -> &[PageJob] {
        self.rules.jobs()
    }

    /// See [`towline_core::ImagePlan::take_obsolete`].
    #[must_use]
    pub fn take_obsolete(&mut self) -> Vec<PageRef> {
        self.rules.take_obsolete()
    }

    /// The image, for [`crate::Restart::begin`]: the position up to which it speaks (8 bytes,
    /// little endian), then what the rules say. `stored`: what came of the jobs, in their order.
    #[must_use]
    pub fn encode(&self, stored: &[Option<StoredPage>]) -> Vec<u8> {
        let mut bytes = self.applied.0.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.rules.encode(stored));
        bytes
    }
}

impl Instance {
    /// Start of the oldest extent that must stay, as things are now.
    #[must_use]
    pub fn keep_from(&self) -> Lsn {
        // The extent that holds the last applied byte stays in any case.
        let applied = self.live.extent_start(Lsn(self.applied.0.saturating_sub(1)));
        self.live.oldest().map_or(applied, |oldest| oldest.min(applied))
    }

    /// End of the last run that is applied.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// An image of what is applied now. `None` within a commit in parts: try again a little later;
    /// until one is taken, or two seconds have passed, no other such commit begins. Then they begin
    /// for as long, and if it is still tried it has a longer turn.
    #[must_use]
    pub fn plan_image(&mut self) -> Option<ImagePlan> {
        if self.rules.has_parts() {
            self.waiting_image.refused();
            return None;
        }
        // What waits for it has its turn at the next tick.
        self.waiting_image.taken();
        let keep_from = self.keep_from();
        Some(ImagePlan { applied: self.applied, keep_from, rules: self.rules.plan_image() })
    }

    /// Lets some blocks leave memory, and says which pages to write so that more can; see
    /// [`towline_core::QueueManager::plan_eviction`].
    #[must_use]
    pub fn plan_eviction(&mut self, jobs_max: usize) -> EvictionPlan {
        self.rules.plan_eviction(jobs_max)
    }

    /// Whether more of the queues is in memory than should be.
    #[must_use]
    pub fn wants_eviction(&self) -> bool {
        self.rules.wants_eviction()
    }

    /// How the memory for queue indexes stands.
    #[must_use]
    pub fn paging_status(&self) -> PagingStatus {
        self.rules.paging_status()
    }

    /// Pages were written; see [`towline_core::QueueManager::pages_stored`].
    pub fn pages_stored(&mut self, stored: Vec<StoredPage>, evict: bool) {
        self.rules.pages_stored(stored, evict);
    }

    /// Pages of an image that did not become durable; see
    /// [`towline_core::QueueManager::keep_obsolete_pages`].
    pub fn keep_obsolete_pages(&mut self, pages: Vec<PageRef>) {
        self.rules.keep_obsolete_pages(pages);
    }

    /// Asks for the first page of each queue: in the background, after a start.
    pub fn load_first_pages(&mut self, journal: &dyn Journal, out: &mut Outbound) {
        self.rules.first_pages(&mut self.outputs);
        self.take_outputs(journal, out);
    }

    /// The same for one queue.
    pub(crate) fn load_first_page(
        &mut self,
        queue: &str,
        journal: &dyn Journal,
        out: &mut Outbound,
    ) {
        self.rules.first_page(queue, &mut self.outputs);
        self.take_outputs(journal, out);
    }

    /// Bytes of one extent of the log.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.live.extent_bytes()
    }

    /// Bytes of live bodies in the log.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live.bytes()
    }

    /// As many of the oldest extents as can be freed by logging at most `cost_max` bytes again, if
    /// they free `gain` times as much. What an open unit of work has in the log cannot be logged
    /// again.
    #[must_use]
    pub fn sparse_extents(&self, gain: u64, cost_max: u64) -> Option<SparseExtents> {
        let applied = self.live.extent_start(Lsn(self.applied.0.saturating_sub(1)));
        let units = self.oldest_of_units().unwrap_or(applied);
        self.live.sparse(applied.min(units), gain, cost_max)
    }

    /// Looks for live bodies before `before`, a bounded number of messages at a time.
    pub fn find_old(
        &mut self,
        before: Lsn,
        cursor: &mut RelocationCursor,
        found: &mut Vec<OldBody>,
    ) -> RelocationSearch {
        const LOOKS_MAX: usize = 1_000;
        let mut messages = Vec::new();
        let done = self.rules.find_old(before, cursor, LOOKS_MAX, &mut messages);
        let old = messages.into_iter();
        found.extend(old.map(|(queue, sequence, body)| OldBody { queue, sequence, body }));
        done
    }

    /// The pages that the rules refer to; for the page file, at start.
    pub(crate) fn pages(&self) -> impl Iterator<Item = PageRef> {
        self.rules.pages()
    }

    /// Whether anything depends on this page; see [`towline_core::QueueManager::needs_page`].
    #[must_use]
    pub fn needs_page(&self, request: PageRequest) -> bool {
        self.rules.needs_page(request)
    }

    /// A page was read for [`RelocationSearch::Needs`] or in replay.
    ///
    /// # Errors
    /// It is not what it should be.
    pub fn page_arrived(
        &mut self,
        request: PageRequest,
        content: &[u8],
    ) -> Result<(), towline_core::RecordError> {
        self.rules.page_arrived(request, content)
    }
}
