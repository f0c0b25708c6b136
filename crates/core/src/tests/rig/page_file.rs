//! The page file of a rig: images and evictions write to it.

use towline_types::PageRef;
use towline_types::limits::BLOCKS_LEAVING_MAX;

use super::Rig;
use crate::{PageJob, StoredPage};

impl Rig {
    /// Writes pages as the owner of the page file would.
    pub(crate) fn store(&mut self, jobs: &[PageJob]) -> Vec<Option<StoredPage>> {
        let mut stored = Vec::new();
        for job in jobs {
            let mut bytes = Vec::new();
            stored.push(job.encode(&mut bytes).map(|draft| {
                let unit = u32::try_from(self.pages.len()).unwrap();
                let length = u32::try_from(bytes.len()).unwrap();
                self.pages.insert(unit, bytes);
                draft.stored_at(PageRef { unit, bytes: length, checksum: 0 })
            }));
        }
        stored
    }

    /// An image as of now, its pages written.
    pub(crate) fn image(&mut self) -> Vec<u8> {
        let plan = self.core.plan_image();
        let stored = self.store(plan.jobs());
        let image = plan.encode(&stored);
        self.core.pages_stored(stored.into_iter().flatten().collect(), false);
        image
    }

    /// Sends away all that may leave.
    pub(crate) fn evict(&mut self) {
        let jobs = self.core.plan_eviction_of_all();
        self.written(&jobs);
        self.core.plan_eviction_of_all();
    }

    /// Writes these pages; their blocks leave.
    pub(crate) fn written(&mut self, jobs: &[PageJob]) {
        let stored: Vec<_> = self.store(jobs).into_iter().flatten().collect();
        for some in stored.chunks(BLOCKS_LEAVING_MAX) {
            self.core.pages_stored(some.to_vec(), true);
        }
    }
}
