//! The queues of the threads that work for the instance: it never waits for a disk, and hands to
//! them what needs one.
//!
//! Not here: the threads ([`fetcher`](crate::fetcher), [`pager`](crate::pager),
//! [`admin_jobs`](crate::admin_jobs), [`slices`](crate::slices)).

use std::path::{Path, PathBuf};
use towline_os::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use towline_core::PageRequest;
use towline_node::{Chore, Fetch};

/// Administration requests that may wait; each connection waits for the answer to its own.
const ADMIN_JOBS_MAX: usize = 1_024;

/// What the pager has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageWork {
    Read(PageRequest),
    /// Blocks may leave memory, until no more of the queues is there than should be.
    Evict,
}

impl PageWork {
    pub(crate) fn request(self) -> Option<PageRequest> {
        match self {
            PageWork::Read(request) => Some(request),
            PageWork::Evict => None,
        }
    }
}

/// The senders of all queues. When a thread has ended, so has the process.
pub(crate) struct Workers {
    fetches: Sender<Fetch>,
    /// Unbounded: the rules request a block that is not in memory once, and again only when it was
    /// read and evicted.
    page_work: Sender<PageWork>,
    admin_jobs: SyncSender<Chore>,
    /// A step left work. One is enough: the thread goes on until nothing is left.
    slices: SyncSender<()>,
    scripts: SyncSender<Chore>,
    statuses: SyncSender<Chore>,
    /// The file that makes the next start rebuild the queues.
    rebuild_marker: PathBuf,
}

/// The receivers, each for one thread.
pub(crate) struct WorkQueues {
    pub(crate) fetches: Receiver<Fetch>,
    pub(crate) page_work: Receiver<PageWork>,
    pub(crate) admin_jobs: Receiver<Chore>,
    pub(crate) slices: Receiver<()>,
    pub(crate) scripts: Receiver<Chore>,
    pub(crate) statuses: Receiver<Chore>,
}

impl Workers {
    pub(crate) fn new(rebuild_marker: &Path) -> (Workers, WorkQueues) {
        let (fetches, fetch_queue) = channel();
        let (page_work, page_queue) = channel();
        let (admin_jobs, admin_queue) = sync_channel(ADMIN_JOBS_MAX);
        let (slices, slice_queue) = sync_channel(1);
        let (scripts, script_queue) = sync_channel(ADMIN_JOBS_MAX);
        let (statuses, status_queue) = sync_channel(ADMIN_JOBS_MAX);
        let rebuild_marker = rebuild_marker.to_owned();
        let queues = WorkQueues {
            fetches: fetch_queue,
            page_work: page_queue,
            admin_jobs: admin_queue,
            slices: slice_queue,
            scripts: script_queue,
            statuses: status_queue,
        };
        (
            Workers { fetches, page_work, admin_jobs, slices, scripts, statuses, rebuild_marker },
            queues,
        )
    }

    /// Requests a body; [`Input::Content`](towline_node::Input) answers it later.
    pub(crate) fn fetch(&self, fetch: Fetch) {
        if self.fetches.send(fetch).is_err() {
            tracing::debug!("a body was requested while the process ends");
        }
    }

    /// Requests a page; [`Input::Page`](towline_node::Input) answers it later.
    pub(crate) fn request_page(&self, request: PageRequest) {
        if self.page_work.send(PageWork::Read(request)).is_err() {
            tracing::debug!("a page was requested while the process ends");
        }
    }

    /// More of the queues is in memory than should be.
    pub(crate) fn evict(&self) {
        if self.page_work.send(PageWork::Evict).is_err() {
            tracing::debug!("memory was short while the process ends");
        }
    }

    /// Requests an administration job. If the queue is full the request gets no answer, and the
    /// client times out.
    pub(crate) fn administer(&self, chore: Chore) {
        let queue = match chore.kind.as_str() {
            "mqsc" => &self.scripts,
            "status" => &self.statuses,
            _ => &self.admin_jobs,
        };
        if let Err(error) = queue.try_send(chore) {
            tracing::warn!(%error, "an administration request is not carried out");
        }
    }

    /// A step left work: [`Input::Work`](towline_node::Input) should follow.
    pub(crate) fn work_is_left(&self) {
        // When it is full, the thread has not looked since the last one.
        self.slices.try_send(()).ok();
    }

    /// See [`towline_log::mark_rebuild`].
    pub(crate) fn rebuild_marker(&self) -> &Path {
        &self.rebuild_marker
    }
}

#[cfg(test)]
mod tests {
    use towline_core::{Body, MessageSequence, QueueId};
    use towline_node::FetchTicket;

    use super::*;

    #[test]
    fn a_fetch_waits_however_many_wait_before_it() {
        const FETCHES: u64 = 70_000;
        let (workers, queues) = Workers::new(Path::new("marker"));
        let ticket =
            |sequence| FetchTicket { queue: QueueId(1), sequence: MessageSequence(sequence) };
        for sequence in 0..FETCHES {
            let body = Body::Memory(bytes::Bytes::new());
            workers.fetch(Fetch { ticket: ticket(sequence), body });
        }
        drop(workers);
        let waited: Vec<FetchTicket> =
            queues.fetches.into_iter().map(|fetch| fetch.ticket).collect();
        assert!(waited.into_iter().eq((0..FETCHES).map(ticket)), "none is lost, in order");
    }
}
