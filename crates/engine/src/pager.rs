//! Reads and writes pages of deep queues, on a thread of its own: the node never waits for a disk.
//!
//! Reads come first, as many at once as were requested; between them, while more of the queues is
//! in memory than the limit allows, a batch of blocks that have not been used is written and
//! evicted. The thread sleeps while there is neither. Not here: which pages (the rules decide);
//! pages of an image (`images`).

use std::sync::Arc;
use std::time::Duration;
use towline_os::sync::mpsc::{Receiver, RecvTimeoutError};
use towline_os::thread::JoinHandle;

use towline_admin::catalogue::PAGE_WRITE_FAILED;
use towline_core::PageRequest;
use towline_log::{LogError, Pages};
use towline_types::PageRef;
use towline_types::limits::BLOCKS_LEAVING_MAX;

use crate::door::Door;
use crate::page_writer::{PAGES_AT_ONCE, write};
use crate::workers::PageWork;
use towline_logging::log;

/// How often blocks are evicted while there are too many, and few of them may leave.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// So many rounds in a row in which no block could leave are a reason to wait for the next step of
/// the instance: a round examines 256 blocks, and a block stays for two rounds after it was read.
/// A thousand queues with two blocks each may be more than there should be, for days.
const FRUITLESS_ROUNDS_MAX: u32 = 64;

/// Starts the thread; it ends with the process.
pub(crate) fn start(
    receiver: Receiver<PageWork>,
    door: Arc<Door>,
    pages: Pages,
) -> std::io::Result<JoinHandle<()>> {
    towline_os::thread::Builder::new().name("pages".into()).spawn(move || {
        let mut eviction = Eviction::default();
        loop {
            let first = match eviction.pause {
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(pause) => receiver.recv_timeout(pause),
            };
            match first {
                Ok(first) => {
                    let more = receiver.try_iter().take(PAGES_AT_ONCE - 1);
                    let requests: Vec<PageRequest> =
                        std::iter::once(first).chain(more).filter_map(PageWork::request).collect();
                    read(&door, &pages, &requests);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            eviction.round(&door, &pages);
        }
    })
}

/// Blocks that leave memory.
#[derive(Debug, Default)]
struct Eviction {
    /// How long the thread waits for requests before the next round; `None`: there is none until
    /// the instance asks for it.
    pause: Option<Duration>,
    fruitless_rounds: u32,
    /// A failure that lasts was logged.
    complained: bool,
}

impl Eviction {
    fn round(&mut self, door: &Door, pages: &Pages) {
        let (some_left, written) = evict_some(door, pages);
        match written {
            Ok(()) => self.complained = false,
            Err(error) if !self.complained => {
                // Blocks that cannot be written stay in memory; it is tried again.
                self.complained = true;
                log(&PAGE_WRITE_FAILED, &[&error.to_string()]);
            }
            Err(_) => {}
        }
        self.fruitless_rounds = if some_left { 0 } else { self.fruitless_rounds + 1 };
        let goes_on = self.complained || self.fruitless_rounds < FRUITLESS_ROUNDS_MAX;
        if !door.evicts_on(goes_on) {
            (self.pause, self.fruitless_rounds) = (None, 0);
            return;
        }
        // A request for a page does not wait until all is written.
        self.pause = Some(if some_left { Duration::ZERO } else { LOOK_INTERVAL });
    }
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

/// Evicts some of what is too much in memory; yields whether there may be more, and why pages could
/// not be written. What has its page already leaves all the same.
fn evict_some(door: &Door, pages: &Pages) -> (bool, Result<(), LogError>) {
    if !door.look(|instance| instance.wants_eviction()) {
        return (false, Ok(()));
    }
    let mut gone = 0;
    loop {
        let plan = door.look_in_turn(|instance| instance.plan_eviction(PAGES_AT_ONCE));
        gone += plan.left + plan.jobs.len();
        let written = write(pages, &plan.jobs);
        let some_left = plan.more || (written.is_ok() && !plan.jobs.is_empty());
        let written = written.map(|stored| {
            let stored: Vec<_> = stored.into_iter().flatten().collect();
            for some in stored.chunks(BLOCKS_LEAVING_MAX) {
                door.look_in_turn(|instance| instance.pages_stored(some.to_vec(), true));
            }
        });
        // Requests do not wait until all is gone, but as many blocks go as one batch of them brings.
        if !plan.more || gone >= PAGES_AT_ONCE {
            return (some_left, written);
        }
    }
}
