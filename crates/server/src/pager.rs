//! Reads and writes pages of deep queues, on a thread of its own: the node never waits for a disk.
//!
//! Reads come first, as many at once as were asked for; between them, while more of the queues is
//! in memory than should be, a batch of what has not been used is written and let go of. Not here:
//! which pages (the rules say so); pages of an image (`images`).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use towline_admin::catalogue::PAGE_WRITE_FAILED;
use towline_core::{PageJob, PageRequest, StoredPage};
use towline_log::{LogError, Pages};
use towline_types::PageRef;

use crate::door::Door;
use towline_logging::log;

/// How often it is looked whether too much is in memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Pages read, or written, at once.
const PAGES_AT_ONCE: usize = 64;

/// The node's end of the thread.
pub(crate) struct Pager {
    /// Unbounded, because the rules ask once for each block that is away and ask again only when
    /// it came and went.
    sender: Sender<PageRequest>,
}

impl Pager {
    pub(crate) fn new() -> (Pager, Receiver<PageRequest>) {
        let (sender, receiver) = channel();
        (Pager { sender }, receiver)
    }

    /// Hands one over. When the thread has ended, so has the process.
    pub(crate) fn send(&self, request: PageRequest) {
        let sent = self.sender.send(request);
        if sent.is_err() {
            tracing::debug!("a page was asked for while the process ends");
        }
    }
}

/// Starts the thread; it ends with the process.
pub(crate) fn start(
    receiver: Receiver<PageRequest>,
    door: Arc<Door>,
    pages: Pages,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("pages".into()).spawn(move || {
        let mut complained = false;
        let mut pause = LOOK_INTERVAL;
        loop {
            match receiver.recv_timeout(pause) {
                Ok(first) => {
                    let more = receiver.try_iter().take(PAGES_AT_ONCE - 1);
                    let requests: Vec<PageRequest> = std::iter::once(first).chain(more).collect();
                    read(&door, &pages, &requests);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            pause = LOOK_INTERVAL;
            match evict_some(&door, &pages) {
                Ok(more) => {
                    complained = false;
                    // Who waits for a page does not wait until all is written.
                    pause = if more { Duration::ZERO } else { LOOK_INTERVAL };
                }
                Err(error) if !complained => {
                    // Blocks that cannot be written stay in memory; it is tried again.
                    complained = true;
                    log(&PAGE_WRITE_FAILED, &[&error.to_string()]);
                }
                Err(_) => {}
            }
        }
    })
}

fn read(door: &Door, pages: &Pages, requests: &[PageRequest]) {
    let places: Vec<PageRef> = requests.iter().map(|request| request.page).collect();
    for (request, content) in requests.iter().zip(pages.read_all(&places)) {
        match content {
            Ok(content) => door.page(*request, &content),
            Err(error) => door.page_unreadable(*request, &error.to_string()),
        }
    }
}

/// Lets go of some of what is too much in memory; yields whether there may be more.
fn evict_some(door: &Door, pages: &Pages) -> Result<bool, LogError> {
    if !door.look(|instance| instance.wants_eviction()) {
        return Ok(false);
    }
    let jobs = door.look(|instance| instance.plan_eviction(PAGES_AT_ONCE));
    if jobs.is_empty() {
        return Ok(false);
    }
    let stored = write(pages, &jobs)?;
    door.look(|instance| instance.pages_stored(stored.into_iter().flatten().collect(), true));
    Ok(true)
}

/// Encodes blocks and writes them to pages, not yet durable. Yields what came of each.
pub(crate) fn write(pages: &Pages, jobs: &[PageJob]) -> Result<Vec<Option<StoredPage>>, LogError> {
    let mut all = Vec::with_capacity(jobs.len());
    for some in jobs.chunks(PAGES_AT_ONCE) {
        let encoded: Vec<_> = some
            .iter()
            .map(|job| {
                let mut bytes = Vec::new();
                job.encode(&mut bytes).map(|draft| (draft, Bytes::from(bytes)))
            })
            .collect();
        let contents: Vec<Bytes> =
            encoded.iter().flatten().map(|(_, bytes)| bytes.clone()).collect();
        let places = match pages.write_all(&contents) {
            Ok(places) => places,
            Err(error) => {
                give_back(pages, &all);
                return Err(error);
            }
        };
        let mut places = places.into_iter();
        for page in encoded {
            let stored = page.and_then(|(draft, _)| Some(draft.stored_at(places.next()?)));
            all.push(stored);
        }
    }
    Ok(all)
}

/// Nothing refers to these pages: their places can be used again at once.
pub(crate) fn give_back(pages: &Pages, stored: &[Option<StoredPage>]) {
    let places: Vec<PageRef> = stored.iter().flatten().map(StoredPage::page).collect();
    pages.reuse(&places);
}
