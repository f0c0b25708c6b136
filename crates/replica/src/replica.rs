//! An instance that does not lead. It applies committed batches as they arrive, with the code of
//! recovery, so that it can lead at any moment; when it does, it completes the recovery.
//!
//! Not here: what is committed (`driver`); what comes after the recovery (`active`).
//!
//! Invariants: only what is committed is applied; images are taken between runs, and after a
//! rebuild only when no message can be missing in them; the restart is moved out of here once, when
//! all is applied that this instance leads from, and no extent is missing in which a message lives.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use towline_admin::catalogue::{GROUP_CANNOT_APPLY, MESSAGES_MISSING, PAGE_DAMAGED};
use towline_log::{FeedError, Log, LogError, Pages, RunStream, mark_rebuild};
use towline_node::{Instance, Restart, RestartError};
use towline_os::sync::{Mutex, OnceLock};
use towline_os::time::Instant;
use towline_types::{Batch, BatchPlace, Lsn, Time};

use crate::role_at_start::begun_at;
use towline_engine::housekeeping::{self, Complaint, ImagePolicy};
use towline_engine::{Door, Doubt, ImageReport, ImageSource, Images, evict};
use towline_logging::log as say;
use towline_process::Clock;
use towline_replication::applicable::CommittedBatches;
use towline_replication::driver::{ApplyProgress, Driver};
use towline_replication::region_part::{CountedLog, Counts};
use towline_replication::repair;

/// Bytes of log applied at once, between looks at what else there is to do.
const APPLIED_AT_ONCE_BYTES: usize = 4 * 1024 * 1024;
/// What follows is applied together, after so long: to be woken for each batch is dearer than to
/// apply it. An instance that is elected meanwhile has no more than that to apply.
const REST: Duration = Duration::from_millis(20);
/// How often a replica looks whether an image is due, and writes down how far it is.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(200);
/// How often it writes down how far the log is known to be committed.
const NOTE_EVERY: u32 = 5;

/// See the module.
pub struct Replica {
    state: Mutex<ApplyState>,
    driver: Arc<Driver>,
    pages: Pages,
    /// The rebuild marker, whether or not it is there.
    marker: PathBuf,
    clock: Clock,
    /// Set when this instance becomes active.
    door: Arc<OnceLock<Arc<Door>>>,
    /// As applied here before it became active.
    counted: Mutex<CountedLog>,
}

struct ApplyState {
    /// `None` when this instance leads.
    restart: Option<Restart>,
    stream: RunStream,
    /// The newest batch that was applied.
    applied: BatchPlace,
    /// Whether messages live in extents that are not there, until that is known.
    doubt: Option<Doubt>,
    /// See [`towline_engine::ReplayedLog`].
    images_from: u64,
    /// This process has no part in its group any more: nothing further is applied.
    is_over: bool,
}

impl Replica {
    /// `applied` is the last batch that was fed into `stream`, and what it yielded is in `restart`.
    pub fn new(
        (mut restart, stream, applied): (Restart, RunStream, BatchPlace),
        (doubt, images_from): (Option<Doubt>, u64),
        (driver, door): (Arc<Driver>, Arc<OnceLock<Arc<Door>>>),
        (pages, marker, clock): (Pages, PathBuf, Clock),
    ) -> Replica {
        if stream.at_seam() {
            restart.reached(applied.end.max(restart.image_at()));
        }
        driver.note_level(restart.instance().format_level());
        let restart = Some(restart);
        let is_over = false;
        let state = ApplyState { restart, stream, applied, doubt, images_from, is_over };
        let counted = Mutex::default();
        let replica =
            Replica { state: Mutex::new(state), driver, pages, marker, clock, door, counted };
        if let Some(restart) = &mut replica.state.lock().restart {
            replica.note_counts(restart, applied.end);
        }
        replica
    }

    /// Persistent messages ever put and removed, as applied here, and up to where. Never waits for
    /// what applies while it is no active instance.
    pub(crate) fn counted(&self) -> CountedLog {
        let Some(door) = self.door.get() else { return *self.counted.lock() };
        let counts = door.look(counts_of);
        // All that is applied is committed: it is no further than that.
        CountedLog { counts, end: self.driver.committed_end() }
    }

    fn note_counts(&self, restart: &mut Restart, end: Lsn) {
        let counts = counts_of(restart.instance());
        *self.counted.lock() = CountedLog { counts, end };
    }

    /// Applies what is committed until this instance has applied all that it leads from; yields the
    /// restart to be ended. `None` when the process ends.
    pub fn apply(&self) -> Option<(Restart, BatchPlace)> {
        loop {
            let state = self.state.lock();
            let (applied, is_over) = (state.applied, state.is_over);
            drop(state);
            if is_over {
                if self.driver.is_ending() {
                    return None;
                }
                self.driver.pause(HOUSEKEEPING_INTERVAL);
                continue;
            }
            self.judge_doubt(false);
            let seen = self.driver.wait(applied.index, HOUSEKEEPING_INTERVAL);
            match seen {
                ApplyProgress { ending: true, .. } => return None,
                ApplyProgress { leads_from: Some(from), .. } if applied.index >= from => {
                    self.judge_doubt(true);
                    if self.look(|instance| instance.is_closed())
                        && !self.driver.leads_behind_other()
                    {
                        continue;
                    }
                    let restart = self.state.lock().restart.take()?;
                    return Some((restart, applied));
                }
                ApplyProgress { committed, .. } if committed > applied.index => {
                    self.apply_some(applied);
                    if self.state.lock().applied.index >= committed {
                        self.driver.rest(REST);
                    }
                }
                ApplyProgress { .. } => {}
            }
        }
    }

    fn apply_some(&self, applied: BatchPlace) {
        let batches = match self.driver.committed_behind(applied.index, APPLIED_AT_ONCE_BYTES) {
            CommittedBatches::Batches(batches) => batches,
            CommittedBatches::Places(places) if places.is_empty() => return,
            CommittedBatches::Places(places) => {
                match repair::read_batches(&self.driver, &places, APPLIED_AT_ONCE_BYTES) {
                    Ok(batches) => batches,
                    Err(error) => cannot_apply(&error.to_string()),
                }
            }
        };
        let mut state = self.state.lock();
        let ApplyState { restart: Some(restart), stream, applied, is_over, .. } = &mut *state
        else {
            return;
        };
        for batch in &batches {
            assert_eq!(batch.index, applied.index + 1, "what is applied follows what was applied");
            let known = restart.instance().histories().count();
            self.apply_batch(restart, stream, batch);
            *applied = batch.place();
            // Under the lock: no image has the history before its part is marked.
            if restart.instance().histories().count() > known && !self.has_part(restart, *applied) {
                *is_over = true;
                break;
            }
        }
        self.driver.note_level(restart.instance().format_level());
        self.note_counts(restart, applied.end);
        if stream.at_seam() {
            restart.reached(applied.end);
            let seam = *applied;
            drop(state);
            self.driver.seam(seam);
        }
    }

    /// A history has begun with the batch at `at`. Whether this process goes on in the part that it
    /// has from there on.
    fn has_part(&self, restart: &mut Restart, at: BatchPlace) -> bool {
        let instance = restart.instance();
        let lives = !instance.is_closed();
        let newest = instance.histories().newest().map(|newest| newest.id);
        newest.is_none_or(|newest| self.driver.becomes(lives, newest, at))
    }

    /// Says to the member with which batch, of those that a start has applied, the newest history
    /// began, and in which part it has this instance: the process before may have ended between
    /// both.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn begin_in_part(&self, places: &[BatchPlace]) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let ApplyState { restart: Some(restart), is_over, .. } = &mut *state else { return Ok(()) };
        let histories = restart.instance().histories();
        self.driver.histories_begun(histories.iter().map(|history| history.id));
        let Some(newest) = histories.newest().filter(|newest| newest.parent.is_some()).cloned()
        else {
            return Ok(());
        };
        if let Some(at) = begun_at(self.driver.log(), &newest, places)? {
            *is_over = !self.has_part(restart, at);
        }
        Ok(())
    }

    /// Ends the process, as a start is refused, when messages live in extents that are not there:
    /// as the leader it would give them up for all instances.
    fn judge_doubt(&self, leads: bool) {
        let mut state = self.state.lock();
        let ApplyState { restart: Some(restart), applied, doubt, .. } = &mut *state else { return };
        let Some(due) = doubt.take_if(|doubt| doubt.is_due(applied.index, leads)) else { return };
        let lacking = due.judge(restart, &|page| self.pages.read(page).ok());
        if !lacking.is_empty() {
            say(&MESSAGES_MISSING, &[&lacking.messages().to_string(), &lacking.to_string()]);
            towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
        }
    }

    fn apply_batch(&self, restart: &mut Restart, stream: &mut RunStream, batch: &Batch) {
        let read = |page| self.pages.read(page).ok();
        let fed = stream
            .feed(batch.lsn, &batch.payload, &mut |lsn, record| restart.record(lsn, record, &read));
        match fed {
            Ok(()) => {}
            Err(FeedError::Record { error: error @ RestartError::Page { .. }, .. }) => {
                self.page_damaged(&error.to_string())
            }
            Err(error) => cannot_apply(&error.to_string()),
        }
        if batch.payload.is_empty() {
            restart.new_term(batch.lsn);
        }
        evict(restart, &self.pages);
    }

    /// The log has all that is on pages: the next start rebuilds the queues from there. Without the
    /// marker it would come to the same page again, if what needs it is not known to be committed
    /// when the log is read back.
    pub(crate) fn page_damaged(&self, why: &str) -> ! {
        say(&PAGE_DAMAGED, &[why]);
        if let Err(error) = mark_rebuild(&self.marker) {
            tracing::error!(%error, "the rebuild marker cannot be written");
        }
        towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
    }

    /// Images when they are due, until this instance leads or the process ends.
    pub fn keep_house(&self, images: &Images, policy: ImagePolicy) {
        let mut last = housekeeping::LastImage::at_start(self.driver.log());
        let (mut turns, mut complaint) = (0_u32, Complaint::default());
        while self.is_replica() {
            self.driver.pause(HOUSEKEEPING_INTERVAL);
            turns = turns.wrapping_add(1);
            if !self.is_replica() {
                return;
            }
            if turns.is_multiple_of(NOTE_EVERY)
                && let Err(error) = self.driver.note_committed()
            {
                tracing::warn!(%error, "how far the log is committed cannot be written down");
            }
            if last.may_be_followed(Instant::now()) {
                let taken = housekeeping::image_if_due(self, images, policy, last);
                last.update(taken, &mut complaint);
            }
            forget_old_places(&self.driver);
        }
    }

    /// Looks at the instance; `None`: it is just becoming active.
    pub fn look_if_there<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        let mut state = self.state.lock();
        if let Some(restart) = state.restart.as_mut() {
            return Some(look(restart.instance()));
        }
        drop(state);
        self.door.get().map(|door| door.look(look))
    }

    fn is_replica(&self) -> bool {
        self.state.lock().restart.is_some() && !self.driver.is_ending()
    }
}

fn counts_of(instance: &mut Instance) -> Counts {
    let counts = instance.log_counts();
    Counts { put: counts.put, removed: counts.removed }
}

/// Batches more than an extent before the oldest image on disk are not sent to other instances any
/// more. Later ones are, if they are there: an image that is taken when a group is stopped must not
/// leave the instance that ended first in need of a copy.
pub fn forget_old_places(driver: &Driver) {
    if let Some(oldest) = driver.log().images().first() {
        let log = driver.log();
        let before = Lsn(oldest.0.saturating_sub(log.extent_bytes()));
        driver.forget(before);
    }
}

impl ImageSource for Replica {
    fn look<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> R {
        let mut state = self.state.lock();
        if let Some(restart) = state.restart.as_mut() {
            return look(restart.instance());
        }
        drop(state);
        // It became active meanwhile, or is just becoming so.
        self.door.wait().look(look)
    }

    fn look_between_runs<R>(&self, look: impl FnOnce(&mut Instance) -> R) -> Option<R> {
        let mut state = self.state.lock();
        let may = state.stream.at_seam() && state.applied.index >= state.images_from;
        let restart = state.restart.as_mut().filter(|_| may)?;
        Some(look(restart.instance()))
    }

    fn log(&self) -> Log {
        self.driver.log().clone()
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn log_failed(&self, error: &LogError) {
        towline_log::Listener::failed(self.driver.as_ref(), error);
    }

    fn image_taken(&self, _image: &ImageReport, _now: Time) {}
}

/// The log has what no instance of this version wrote, or what does not fit: it cannot be gone on
/// with.
fn cannot_apply(why: &str) -> ! {
    say(&GROUP_CANNOT_APPLY, &[why]);
    towline_os::process::exit(towline_process::EXIT_LOG_FAILED);
}

#[cfg(test)]
mod tests;
