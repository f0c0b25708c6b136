//! Takes images: everything that a restart would otherwise have to find in the log.
//!
//! An image is planned in a moment, inside the door, and written without it: puts and gets go on.
//! Order: pages, their sync, the image (which the log makes durable), and only then are places and
//! extents used again that the image does not need. While somebody copies them they wait. Not here:
//! when an image is due (`housekeeping`).

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_log::time_index::Times;
use towline_log::{Log, LogError, Mark, Pages};
use towline_node::{ImagePlan, Instance};
use towline_types::{Lsn, PageRef, Time};

use crate::clock::Clock;
use crate::door::Door;
use crate::pager;

/// Who holds the instance of which images are taken: the door of an active one, or a replica.
pub(crate) trait Stand {
    /// Runs `look` on the instance.
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R;
    /// The same, if all that is applied ends with a whole run now.
    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R>;
    /// The log.
    fn log(&self) -> Log;
    /// The clock.
    fn clock(&self) -> Clock;
    /// What is on the disk is not known any more.
    fn log_failed(&self, error: &LogError);
    /// An image was taken.
    fn image_taken(&self, taken: &Taken, now: Time);
}

impl Stand for Door {
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        Door::look(self, look)
    }

    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        Some(Door::look(self, look))
    }

    fn log(&self) -> Log {
        Door::log(self)
    }

    fn clock(&self) -> Clock {
        Door::clock(self)
    }

    fn log_failed(&self, error: &LogError) {
        Door::log_failed(self, error);
    }

    fn image_taken(&self, taken: &Taken, now: Time) {
        Door::image_taken(self, taken, now);
    }
}

/// What came of taking an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The position up to which it speaks.
    pub(crate) at: Lsn,
    /// The log from here on holds what it refers to.
    pub(crate) keep_from: Lsn,
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
    /// Who makes a backup has it.
    pub(crate) backup_turn: Mutex<()>,
    /// What somebody copies. Held for a moment.
    held: Mutex<Held>,
    /// When the log was how long; `None` when it cannot be written down.
    times: Option<Times>,
    /// The file that says that older images refer to pages that are not there, if there is one.
    marker: Mutex<Option<PathBuf>>,
}

/// Pages that stay as they are while anybody copies them.
#[derive(Debug, Default)]
struct Held {
    holders: usize,
    /// Pages that can be used again afterwards.
    obsolete: Vec<PageRef>,
}

/// While it lives, no page that an image refers to is used again.
pub(crate) struct PagesHold<'a> {
    images: &'a Images,
}

impl Drop for PagesHold<'_> {
    fn drop(&mut self) {
        let mut held = self.images.held();
        held.holders -= 1;
        if held.holders == 0 {
            let obsolete = std::mem::take(&mut held.obsolete);
            drop(held);
            self.images.pages.reuse(&obsolete);
        }
    }
}

impl Images {
    pub(crate) fn new(pages: Pages, times: Option<Times>) -> Images {
        Images {
            pages,
            turn: Mutex::new(()),
            backup_turn: Mutex::new(()),
            held: Mutex::default(),
            times,
            marker: Mutex::new(None),
        }
    }

    /// This file goes when an image is durable.
    pub(crate) fn remove_with_next(&self, marker: PathBuf) {
        *self.marker.lock().unwrap_or_else(PoisonError::into_inner) = Some(marker);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds all pages that there are now. The log is held by [`Log::hold`].
    pub(crate) fn hold_pages(&self) -> PagesHold<'_> {
        // An image that is being taken may be about to let go.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.held().holders += 1;
        PagesHold { images: self }
    }

    /// When the log was how long.
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.as_ref()
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
    pub(crate) fn take(&self, door: &impl Stand) -> Result<Option<Taken>, LogError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let began = door.clock().now();
        let log = door.log();
        let planned = door.look_between_runs(|instance| {
            let mark = log.mark_at(instance.applied())?;
            Some((mark, instance.plan_image()))
        });
        let Some(Some((mark, mut plan))) = planned else { return Ok(None) };
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
        let mut held = self.held();
        if held.holders > 0 {
            held.obsolete.extend(obsolete);
            drop(held);
        } else {
            drop(held);
            self.pages.reuse(&obsolete);
        }
        log.reclaim(plan.keep_from)?;
        let now = door.clock().now();
        let (at, keep_from) = (plan.applied, plan.keep_from);
        let taken = Taken { at, keep_from, bytes, pages, took: now.since(began) };
        door.image_taken(&taken, now);
        Ok(Some(taken))
    }

    /// Gives up the older image, and the log that only it needs: where room is wanting, the newest
    /// must do. Waits for the disk.
    ///
    /// # Errors
    /// Some of the room may have been made.
    pub(crate) fn keep_only_the_newest(&self, door: &impl Stand) -> Result<(), LogError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let log = door.log();
        let keep_from = door.look(|instance| instance.keep_from());
        log.drop_older_images()?;
        log.reclaim(keep_from)
    }

    /// Lets go of log that nobody needs any more. Waits for the disk.
    ///
    /// # Errors
    /// Some of it may have been let go.
    pub(crate) fn reclaim(&self, door: &impl Stand) -> Result<(), LogError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let keep_from = door.look(|instance| instance.keep_from());
        // A replica may have applied what is not durable here yet.
        let log = door.log();
        log.reclaim(keep_from.min(log.durable()))
    }

    /// Yields how many pages it took, and the length of the image.
    fn write(
        &self,
        door: &impl Stand,
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
