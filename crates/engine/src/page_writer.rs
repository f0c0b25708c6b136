//! Writes blocks of deep queues to the page file.
//!
//! Not here: which blocks (the rules decide), when (`pager`, `images`), and the page file itself
//! (`towline_log::Pages`).

use bytes::Bytes;
use towline_admin::catalogue::PAGE_WRITE_FAILED;
use towline_core::{PageJob, StoredPage};
use towline_log::{LogError, Pages};
use towline_logging::log;
use towline_node::{Instance, Restart};
use towline_types::PageRef;
use towline_types::limits::BLOCKS_LEAVING_MAX;

/// Pages written, or read, at once.
pub(crate) const PAGES_AT_ONCE: usize = 64;

/// Encodes blocks and writes them to pages, not yet durable. Yields the page of each one.
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
        let written = match pages.write_all(&contents) {
            Ok(written) => written,
            Err(error) => {
                give_back(pages, &all);
                return Err(error);
            }
        };
        let mut written = written.into_iter();
        for page in encoded {
            let stored = page.and_then(|(draft, _)| Some(draft.stored_at(written.next()?)));
            all.push(stored);
        }
    }
    Ok(all)
}

/// Nothing refers to these pages: they can be reused at once.
pub(crate) fn give_back(pages: &Pages, stored: &[Option<StoredPage>]) {
    let freed: Vec<PageRef> = stored.iter().flatten().map(StoredPage::page).collect();
    pages.reuse(&freed);
}

/// Moves out of memory what replay does not need there. False: pages cannot be written (the disk
/// may be full), which must not keep a queue manager from starting, because gets free space.
pub fn evict(restart: &mut Restart, pages: &Pages) -> bool {
    evict_from(restart.instance(), pages)
}

/// The same for the instance itself.
pub(crate) fn evict_from(instance: &mut Instance, pages: &Pages) -> bool {
    let mut could_write = true;
    while instance.wants_eviction() {
        let plan = instance.plan_eviction(PAGES_AT_ONCE);
        if plan.jobs.is_empty() && !plan.more {
            break;
        }
        match write(pages, &plan.jobs) {
            Ok(stored) => {
                let stored: Vec<_> = stored.into_iter().flatten().collect();
                for some in stored.chunks(BLOCKS_LEAVING_MAX) {
                    instance.pages_stored(some.to_vec(), true);
                }
            }
            Err(error) => {
                // What has its page already leaves all the same.
                if could_write {
                    log(&PAGE_WRITE_FAILED, &[&error.to_string()]);
                }
                could_write = false;
                if !plan.more {
                    break;
                }
            }
        }
    }
    could_write
}
