//! Takes images: all that a restart would otherwise have to read from the log.
//!
//! An image is planned in a moment, under the lock of the door, and written without it: puts and
//! gets go on. Order: pages, their sync, the image (which the log makes durable), and only then are
//! pages and extents reused that the image does not need. While a backup copies them they are kept.
//! Not here: when an image is due (`housekeeping`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use towline_os::fs;
use towline_os::sync::{Mutex, MutexGuard};

use towline_admin::catalogue::HOUSEKEEPING_FAILED;
use towline_log::time_index::TimeIndex;
use towline_log::{Disk, Log, LogError, Mark, Pages};
use towline_logging::log as say;
use towline_node::{ImagePlan, Instance};
use towline_process::Clock;
use towline_types::{Lsn, PageRef, Time};

use crate::page_writer;

/// The owner of the instance of which images are taken: the door of an active instance, or a
/// replica.
pub trait ImageSource {
    /// Runs `look` on the instance.
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R;
    /// The same, if what is applied ends with a whole run now.
    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R>;
    /// The log.
    fn log(&self) -> Log;
    /// The clock.
    fn clock(&self) -> Clock;
    /// A sync failed: the content of the disk is unknown.
    fn log_failed(&self, error: &LogError);
    /// An image was taken.
    fn image_taken(&self, image: &ImageReport, now: Time);
}

/// An image that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageReport {
    /// Its position: it holds what was applied up to there.
    pub at: Lsn,
    /// The log from here on holds what it refers to.
    pub keep_from: Lsn,
    /// Its length.
    pub bytes: u64,
    /// Pages that were written for it.
    pub pages: u64,
    /// How long it took.
    pub took: Duration,
}

/// Takes images, one at a time.
pub struct Images {
    pages: Pages,
    turn: Mutex<Turn>,
    /// Locked while a backup is made.
    pub(crate) backup_turn: Mutex<()>,
    /// The pages that are being copied. Locked for a moment.
    retained: Mutex<RetainedPages>,
    /// The time index; `None` when it cannot be written.
    time_index: Option<TimeIndex>,
    /// The rebuild marker, if there is one: older images refer to pages that are not there.
    marker: Mutex<Option<PathBuf>>,
}

/// Held by what changes the pages or frees log.
#[derive(Debug, Default)]
struct Turn {
    /// The process ends: its log is shut down, and others may have its folder.
    is_over: bool,
}

/// Pages that are not reused while a backup copies them.
#[derive(Debug, Default)]
struct RetainedPages {
    holders: usize,
    /// Pages that can be reused afterwards.
    obsolete: Vec<PageRef>,
}

/// While it lives, no page that an image refers to is reused.
pub struct PagesHold<'a> {
    images: &'a Images,
}

impl Drop for PagesHold<'_> {
    fn drop(&mut self) {
        self.images.let_pages_go();
    }
}

/// The same for a holder that stays longer than its caller.
pub struct SharedPagesHold {
    images: Arc<Images>,
}

impl Drop for SharedPagesHold {
    fn drop(&mut self) {
        self.images.let_pages_go();
    }
}

impl Images {
    /// Images of a log that is durable up to `durable`, with the time index beside it.
    #[must_use]
    pub fn open(disk: Arc<dyn Disk>, durable: Lsn, pages: Pages) -> Arc<Images> {
        let time_index = match TimeIndex::open(disk, durable) {
            Ok(index) => Some(index),
            Err(error) => {
                // A restore to a time of day will be less exact; nothing else needs it.
                tracing::warn!(%error, "the time index cannot be read");
                None
            }
        };
        Arc::new(Images {
            pages,
            turn: Mutex::default(),
            backup_turn: Mutex::new(()),
            retained: Mutex::default(),
            time_index,
            marker: Mutex::new(None),
        })
    }

    /// After a rebuild: takes an image, with which the rebuild marker is removed, because later
    /// images describe the pages of this page file. When none can be taken now, one is due until it
    /// is taken.
    pub fn end_rebuild(&self, marker: PathBuf, source: &impl ImageSource) {
        // One that cannot be looked at may be there.
        if fs::try_exists(&marker).is_ok_and(|is_there| !is_there) {
            return;
        }
        *self.marker.lock() = Some(marker);
        // When none can be taken now (the disk may be full), gets must be served all the same.
        if let Err(error) = self.take(source) {
            say(&HOUSEKEEPING_FAILED, &[&error.to_string()]);
        }
    }

    /// Whether an image is due because there is a rebuild marker: until then, each start rebuilds.
    pub fn owes_rebuilt(&self) -> bool {
        self.marker.lock().is_some()
    }

    fn retained(&self) -> MutexGuard<'_, RetainedPages> {
        self.retained.lock()
    }

    /// Retains all pages that there are now. [`Log::hold`] does the same for the log.
    pub fn hold_pages(&self) -> PagesHold<'_> {
        self.keep_pages();
        PagesHold { images: self }
    }

    /// The same, for a holder of its own.
    pub fn share_pages(self: &Arc<Images>) -> SharedPagesHold {
        self.keep_pages();
        SharedPagesHold { images: Arc::clone(self) }
    }

    fn keep_pages(&self) {
        // An image that is being taken may be about to free pages.
        let _turn = self.turn.lock();
        self.retained().holders += 1;
    }

    fn let_pages_go(&self) {
        let mut retained = self.retained();
        retained.holders -= 1;
        if retained.holders == 0 {
            let obsolete = std::mem::take(&mut retained.obsolete);
            drop(retained);
            self.pages.reuse(&obsolete);
        }
    }

    /// The time index.
    #[must_use]
    pub fn time_index(&self) -> Option<&TimeIndex> {
        self.time_index.as_ref()
    }

    /// The page file.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes an image and frees what it makes needless. `None`: what is applied does not end with a
    /// batch of the log at this moment, or lies within a commit in parts; try again a little later.
    /// Waits for the disk.
    ///
    /// # Errors
    /// The older image is still there and the queue manager goes on. A failed sync of the page file
    /// ends the process: the content of the disk is unknown. [`LogError::Stopped`] behind the last
    /// image.
    pub fn take(&self, door: &impl ImageSource) -> Result<Option<ImageReport>, LogError> {
        let _turn = self.turn()?;
        self.take_now(door)
    }

    /// The same, before the process ends in order: afterwards no image is taken and nothing is
    /// freed, also by a thread that waits for its turn at this moment.
    ///
    /// # Errors
    /// As [`Images::take`].
    pub fn take_last(&self, door: &impl ImageSource) -> Result<Option<ImageReport>, LogError> {
        let mut turn = self.turn()?;
        turn.is_over = true;
        self.take_now(door)
    }

    fn turn(&self) -> Result<MutexGuard<'_, Turn>, LogError> {
        let turn = self.turn.lock();
        if turn.is_over { Err(LogError::Stopped) } else { Ok(turn) }
    }

    fn take_now(&self, door: &impl ImageSource) -> Result<Option<ImageReport>, LogError> {
        let began = door.clock().now();
        let log = door.log();
        let planned = door.look_between_runs(|instance| {
            let mark = log.mark_at(instance.applied())?;
            Some((mark, instance.plan_image()?))
        });
        let Some(Some((mark, mut plan))) = planned else { return Ok(None) };
        let obsolete = plan.take_obsolete();
        let (pages, bytes) = match self.write(door, &log, mark, &plan) {
            Ok(written) => written,
            Err(error) => {
                // Whether or not the image was written: they are kept for the next one.
                door.look(|instance| instance.keep_obsolete_pages(obsolete));
                return Err(error);
            }
        };
        let marker = self.marker.lock().take();
        if let Some(Err(error)) = marker.as_deref().map(fs::remove_file) {
            // The next start takes longer than necessary.
            tracing::warn!(%error, "the rebuild marker cannot be removed");
        }
        let mut retained = self.retained();
        if retained.holders > 0 {
            retained.obsolete.extend(obsolete);
            drop(retained);
        } else {
            drop(retained);
            self.pages.reuse(&obsolete);
        }
        log.reclaim(plan.keep_from)?;
        let now = door.clock().now();
        let took = now.since(began);
        let taken = ImageReport { at: plan.applied, keep_from: plan.keep_from, bytes, pages, took };
        door.image_taken(&taken, now);
        Ok(Some(taken))
    }

    /// Removes the older image, and reclaims the log that only it needs, when free space is short.
    /// Waits for the disk.
    ///
    /// # Errors
    /// Some of the space may have been freed. [`LogError::Stopped`] behind the last image.
    pub(crate) fn keep_only_the_newest(&self, door: &impl ImageSource) -> Result<(), LogError> {
        let _turn = self.turn()?;
        let log = door.log();
        let keep_from = door.look(|instance| instance.keep_from());
        log.drop_older_images()?;
        log.reclaim(keep_from)
    }

    /// Reclaims the log that is not needed any more. Waits for the disk.
    ///
    /// # Errors
    /// Some of it may have been reclaimed. [`LogError::Stopped`] behind the last image.
    pub fn reclaim(&self, door: &impl ImageSource) -> Result<(), LogError> {
        let _turn = self.turn()?;
        let keep_from = door.look(|instance| instance.keep_from());
        // A replica may have applied what is not durable here yet.
        let log = door.log();
        log.reclaim(keep_from.min(log.durable()))
    }

    /// Yields how many pages it took, and the length of the image.
    fn write(
        &self,
        door: &impl ImageSource,
        log: &Log,
        mark: Mark,
        plan: &ImagePlan,
    ) -> Result<(u64, u64), LogError> {
        let stored = page_writer::write(&self.pages, plan.jobs())?;
        if let Err(error) = self.pages.sync() {
            door.log_failed(&error);
            return Err(error);
        }
        let bytes = plan.encode(&stored);
        if let Err(error) = log.write_image(mark, &bytes) {
            if log.image_at() == Some(mark.at()) {
                // It has its name, and only an older one could not be removed: the pages that it
                // refers to must stay.
                let written = stored.into_iter().flatten().collect();
                door.look(|instance| instance.pages_stored(written, false));
            } else {
                page_writer::give_back(&self.pages, &stored);
            }
            return Err(error);
        }
        let count = stored.iter().flatten().count() as u64;
        door.look(|instance| instance.pages_stored(stored.into_iter().flatten().collect(), false));
        Ok((count, bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests;
