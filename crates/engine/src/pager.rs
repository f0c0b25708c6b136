//! Reads and writes pages of deep queues, on a thread of its own: the node never waits for a disk.
//!
//! Reads come first, as many at once as were requested; between them, while more of the queues is
//! in memory than the limit allows, a batch of blocks that have not been used is written and
//! evicted. Not here: which pages (the rules decide); pages of an image (`images`).

use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::{Receiver, RecvTimeoutError};
use towline_os::thread::JoinHandle;

use towline_admin::catalogue::PAGE_WRITE_FAILED;
use towline_core::PageRequest;
use towline_log::{LogError, Pages};
use towline_types::PageRef;

use crate::door::Door;
use crate::page_writer::{PAGES_AT_ONCE, write};
use towline_logging::log;

/// How often the thread checks whether too much is in memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Starts the thread; it ends with the process.
pub(crate) fn start(
    receiver: Receiver<PageRequest>,
    door: Arc<Door>,
    pages: Pages,
) -> std::io::Result<JoinHandle<()>> {
    towline_os::thread::Builder::new().name("pages".into()).spawn(move || {
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
                    // A request for a page does not wait until all is written.
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
    let wanted: Vec<PageRef> = requests.iter().map(|request| request.page).collect();
    for (request, content) in requests.iter().zip(pages.read_all(&wanted)) {
        match content {
            Ok(content) => door.page(*request, &content),
            Err(error) => door.page_unreadable(*request, &error.to_string()),
        }
    }
}

/// Evicts some of what is too much in memory; yields whether there may be more.
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
