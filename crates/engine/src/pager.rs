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

/// Blocks that leave between two batches of reads, about: twice what one of them reads.
const LEAVING_BETWEEN_READS: usize = 2 * PAGES_AT_ONCE;
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
            Ok(wrote) => self.complained &= !wrote,
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
fn evict_some(door: &Door, pages: &Pages) -> (bool, Result<bool, LogError>) {
    if !door.look(|instance| instance.wants_eviction()) {
        return (false, Ok(false));
    }
    let mut gone = 0;
    let mut written_all = Ok(false);
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
            !plan.jobs.is_empty()
        });
        // The first error is the one that is reported: what follows may need no write.
        written_all = match (written_all, written) {
            (Ok(some), Ok(more)) => Ok(some || more),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        };
        // Requests do not wait for all of it, but more blocks leave than one batch of them reads:
        // puts fill others meanwhile.
        if !plan.more || gone >= LEAVING_BETWEEN_READS {
            return (some_left, written_all);
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_config::Config;
    use towline_core::NewMessage;
    use towline_node::{PutTo, Request};
    use towline_process::Clock;
    use towline_standby::Home;
    use towline_types::{Payload, limits};

    use super::*;
    use crate::page_writer::evict_from;
    use crate::replay::StartOptions;
    use crate::running::OpenInstance;

    /// Messages of a block.
    const BLOCK: usize = 256;
    /// Blocks that stay in memory, with the least limit.
    const BLOCKS_MIN: usize = 64;
    const BLOCKS: usize = BLOCKS_MIN + 3 * PAGES_AT_ONCE;

    /// An instance with the least memory and many blocks in it, whose pages an image has written;
    /// nothing evicts them.
    fn full(folder: &std::path::Path) -> OpenInstance {
        let mut config = Config::default();
        config.queue_manager.index_bytes_max = 0;
        config.log.extent_bytes = 4 << 20;
        let (home, options) = (Home::single(folder), StartOptions::default());
        let open = OpenInstance::open("QM1", &home, &config, options, Clock::start()).unwrap();
        let door = Arc::clone(open.door());
        door.define_defaults();
        let (connection, _) = door.connect();
        for _ in 0..BLOCKS * BLOCK / limits::STEP_REQUESTS_MAX {
            let put = |token| Request::Put {
                token: token as u64,
                target: PutTo::Name("DEV.QUEUE.1".into()),
                message: NewMessage {
                    persistent: Some(true),
                    content: Payload::from(bytes::Bytes::from_static(b"content")),
                    ..NewMessage::default()
                },
                unit: None,
                reply_wanted: false,
            };
            let mut requests: Vec<Request> = (0..limits::STEP_REQUESTS_MAX).map(put).collect();
            door.step(door.clock().now(), connection, &mut requests);
            while door.look(|instance| instance.runs_pending()) > 0 {
                std::thread::yield_now();
            }
        }
        while open.images().take(door.as_ref()).unwrap().is_none() {}
        open
    }

    /// What is in memory, in blocks about.
    fn blocks_over(door: &Door) -> u64 {
        let status = door.look(|instance| instance.paging_status());
        status.index_bytes.saturating_sub(status.index_bytes_max) / (19 * 1024)
    }

    #[test]
    fn between_two_batches_of_reads_more_blocks_leave_than_one_of_them_reads() {
        let folder = tempfile::tempdir().unwrap();
        let open = full(folder.path());
        let (door, pages) = (open.door(), open.images().pages());
        let mut over = blocks_over(door);
        assert!(over >= PAGES_AT_ONCE as u64, "{over}");
        while over > 0 {
            let (some_left, written) = evict_some(door, pages);
            written.unwrap();
            let now = blocks_over(door);
            assert_eq!(now, over.saturating_sub(LEAVING_BETWEEN_READS as u64), "of {over}");
            assert_eq!(some_left, now > 0, "the thread goes on at once while there is more");
            over = now;
        }
        assert!(!door.look(|instance| instance.wants_eviction()));
        door.log().shutdown();
    }

    #[test]
    fn a_start_goes_on_while_blocks_leave_that_need_no_write() {
        let folder = tempfile::tempdir().unwrap();
        let open = full(folder.path());
        let (door, pages) = (open.door(), open.images().pages());
        assert!(blocks_over(door) > 0);
        assert!(door.look(|instance| evict_from(instance, pages)));
        assert_eq!(blocks_over(door), 0);
        door.log().shutdown();
    }
}
