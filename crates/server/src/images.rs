//! Takes images: everything that a restart would otherwise have to find in the log.
//!
//! An image is planned in a moment, inside the door, and written without it: puts and gets go on.
//! Order: pages, their sync, the image (which the log makes durable), and only then are places and
//! extents used again that the image does not need. Not here: when an image is due
//! (`housekeeping`).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use towline_log::{Log, LogError, Mark, Pages};
use towline_node::ImagePlan;
use towline_types::Lsn;

use crate::door::Door;
use crate::pager;

/// What came of taking an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The position up to which it speaks.
    pub(crate) at: Lsn,
    /// Its length.
    pub(crate) bytes: u64,
    /// Pages that were written for it.
    pub(crate) pages: u64,
    /// How long it took.
    pub(crate) took: Duration,
}

/// One image at a time.
pub(crate) struct Images {
    pages: Pages,
    turn: Mutex<()>,
    /// The file that says that older images refer to pages that are not there, if there is one.
    marker: Mutex<Option<PathBuf>>,
}

impl Images {
    pub(crate) fn new(pages: Pages) -> Images {
        Images { pages, turn: Mutex::new(()), marker: Mutex::new(None) }
    }

    /// This file goes when an image is durable.
    pub(crate) fn remove_with_next(&self, marker: PathBuf) {
        *self.marker.lock().unwrap_or_else(PoisonError::into_inner) = Some(marker);
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes an image and lets go of what it makes needless. `None`: what is applied does not end
    /// with a batch of the log at this moment; try again a little later. Waits for the disk.
    ///
    /// # Errors
    /// The older image is still there and the queue manager goes on. A failed sync of the page file
    /// ends the process: it is not known what is on the disk.
    pub(crate) fn take(&self, door: &Door) -> Result<Option<Taken>, LogError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let began = door.clock().now();
        let log = door.log();
        let planned = door.look(|instance| {
            let mark = log.mark_at(instance.applied())?;
            Some((mark, instance.plan_image()))
        });
        let Some((mark, mut plan)) = planned else { return Ok(None) };
        let obsolete = plan.take_obsolete();
        let (pages, bytes) = match self.write(door, &log, mark, &plan) {
            Ok(written) => written,
            Err(error) => {
                // Whether or not the image is in place: they are kept for the next one.
                door.look(|instance| instance.keep_obsolete_pages(obsolete));
                return Err(error);
            }
        };
        let marker = self.marker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = marker.as_deref().map(std::fs::remove_file) {
            // The next start takes longer than it need.
            tracing::warn!(%error, "the file that asks for a rebuild cannot be removed");
        }
        self.pages.reuse(&obsolete);
        log.reclaim(plan.keep_from)?;
        let took = door.clock().now().since(began);
        Ok(Some(Taken { at: plan.applied, bytes, pages, took }))
    }

    /// Yields how many pages it took, and the length of the image.
    fn write(
        &self,
        door: &Door,
        log: &Log,
        mark: Mark,
        plan: &ImagePlan,
    ) -> Result<(u64, u64), LogError> {
        let stored = pager::write(&self.pages, plan.jobs())?;
        if let Err(error) = self.pages.sync() {
            door.log_failed(&error);
            return Err(error);
        }
        let bytes = plan.encode(&stored);
        if let Err(error) = log.write_image(mark, &bytes) {
            if log.image_at() == Some(mark.at()) {
                // It has its name, and only an older one could not be removed: what it refers to
                // must stay.
                let written = stored.into_iter().flatten().collect();
                door.look(|instance| instance.pages_stored(written, false));
            } else {
                pager::give_back(&self.pages, &stored);
            }
            return Err(error);
        }
        let count = stored.iter().flatten().count() as u64;
        door.look(|instance| instance.pages_stored(stored.into_iter().flatten().collect(), false));
        Ok((count, bytes.len() as u64))
    }
}
