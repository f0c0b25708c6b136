//! The handle of a running log.
//!
//! Not here: what each call does in detail; this is the table of contents of a running log. A run
//! goes in through `append`, out to the disk through `writer`; bodies come back through `read`;
//! images and reclaim are in `image` and `reclaim`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use towline_os::time::Instant;

use bytes::Bytes;
use towline_types::{Batch, BatchPlace, BodyLocation, Lsn};

use crate::append::Appender;
use crate::disk::Disk;
use crate::error::LogError;
use crate::extents::Space;
use crate::format::{BATCH_HEADER_BYTES, LogId};
use crate::hold::{self, Hold};
use crate::mark::Mark;
use crate::mend::{self, MendedBatch, NotMended};
use crate::overdue::Overdue;
use crate::shared::{OpenOutcome, Phase, Shared};
use crate::stats::Stats;
use crate::threads::LogThreads;
use crate::{image, member, overdue, preallocation, read, reclaim, space_notifier, stats, writer};

/// How long the last handle waits for a disk that does not answer: longer than a slow one takes for
/// a write that was begun, and no longer than a start may take to say why it is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running log. A cheap handle: clones share one log; the last one dropped stops its threads
/// without writing what is open (as a crash would). It waits for what they have begun, but for ten
/// seconds at most, and on one of these threads (the listener may hold the last handle) not at all:
/// until they have ended, they have the lock of the folder.
#[derive(Clone)]
pub struct Log {
    running: Arc<Running>,
}

struct Running {
    shared: Arc<Shared>,
    threads: LogThreads,
}

impl Log {
    /// Starts the threads over a state made by recovery.
    pub(crate) fn run(shared: Arc<Shared>) -> Result<Log, LogError> {
        let running = Running { shared: Arc::clone(&shared), threads: LogThreads::default() };
        let spawn = |name: &str, body: fn(&Arc<Shared>)| {
            let shared = Arc::clone(&shared);
            let started = running.threads.spawn(name, move || body(&shared));
            started.map_err(|e| LogError::io("start a thread", name, e))
        };
        spawn("log-preallocate", preallocation::run)?;
        spawn("log-space", space_notifier::run)?;
        for _ in 0..shared.options.writes_in_flight_max {
            spawn("log-writer", writer::run)?;
        }
        Ok(Log { running: Arc::new(running) })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.running.shared
    }

    /// Begins a run: waits until no other run is being appended.
    #[must_use]
    pub fn appender(&self) -> Appender<'_> {
        Appender::new(self.shared())
    }

    /// Begins a run of about `bytes` bytes. `None` when it would have to wait: for another run, for
    /// writers that are more than 16 MiB behind, or for an extent that is being made ready;
    /// [`crate::Listener::caught_up`] is called when that is over. The run itself does not wait for
    /// the writers either, so it may pass that bound; for extents only when it is longer than all
    /// that is ever ready: the reserve and one extent.
    #[must_use]
    pub fn try_appender(&self, bytes: usize) -> Option<Appender<'_>> {
        Appender::at_once(self.shared(), bytes)
    }

    /// Longest record in bytes; 1 MiB + 64 KiB unless extents are smaller than that.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.shared().options.record_bytes_max()
    }

    /// A durable body, if it is in memory: a slice of a recent batch or of a read-ahead block, no
    /// copy. Holding it keeps up to about 2 MiB alive around it.
    #[must_use]
    pub fn resident(&self, body: BodyLocation) -> Option<Bytes> {
        self.shared().cache.lock().get(body)
    }

    /// A durable body, from memory or else from disk with what follows it (1 MiB), checksum
    /// checked. Blocks: not for the node's thread.
    ///
    /// # Errors
    /// [`LogError::Gone`] when its extent was reclaimed or never was, [`LogError::Damaged`],
    /// [`LogError::Io`].
    pub fn read(&self, body: BodyLocation) -> Result<Bytes, LogError> {
        read::read(self.shared(), body)
    }

    /// Takes batches of a leader as they are: index, term, position and payload. They follow each
    /// other and the log's last one, or begin earlier: those that the log has already (same index
    /// and term) are skipped; from the first that it has otherwise on, its own are cut off,
    /// durably, before the others are taken. Blocks while more than 16 MiB wait for the disk, while
    /// an extent is preallocated, and (when something is cut off) until all is written and the
    /// listener is notified. [`crate::Listener::durable`] reports that they are durable. One call
    /// at a time; not from the listener.
    ///
    /// # Errors
    /// [`LogError::OutOfPlace`]: one of them does not fit (index, term, position, length, records;
    /// or what conflicts is in an image, or longer ago than 65,000 batches); nothing was changed.
    /// [`LogError::Full`]: some may have been taken; the same can be passed again when there is
    /// space. [`LogError::Leading`], [`LogError::Stopped`], [`LogError::Failed`], [`LogError::Io`].
    pub fn receive(&self, batches: &[Batch]) -> Result<(), LogError> {
        member::receive(self.shared(), batches)
    }

    /// Checks what a peer says of batches that are to follow the batch `behind` of this log: before
    /// it is believed, so that what does not fit ends the link and not this instance. Reads only
    /// the options.
    ///
    /// # Errors
    /// [`LogError::OutOfPlace`]: one of them does not fit (index, term, position, length, records).
    pub fn check_batches(&self, behind: BatchPlace, batches: &[Batch]) -> Result<(), LogError> {
        member::check(&self.shared().options, behind, batches)
    }

    /// Whether a log that follows has space for batches up to this end, all of its reserve counted,
    /// as far as is known: another program may take what is free on the disk.
    #[must_use]
    pub fn reaches(&self, end: Lsn) -> bool {
        self.shared().state().extents.reaches(end)
    }

    /// From now on this instance appends, under `term`. Waits until all that was received is
    /// durable. Begins with a batch without records, which is returned: it is written to the disk,
    /// and not passed to the [`Replicator`]. A run that was unfinished is given up. This is final.
    ///
    /// # Errors
    /// [`LogError::OutOfPlace`] when `term` is not higher than that of the last batch, or not below
    /// 2^32; [`LogError::Full`]; the log follows still. [`LogError::Leading`] when it leads
    /// already; [`LogError::Stopped`], [`LogError::Failed`].
    pub fn lead(&self, term: u64) -> Result<Batch, LogError> {
        member::lead(self.shared(), term)
    }

    /// The group committed all up to `upto`, a durable position. From the first call on, batches of
    /// this leader that are durable and not committed count as being written: what comes meanwhile
    /// gathers in the next batch, so a slow network makes batches larger and not more.
    pub fn committed(&self, upto: Lsn) {
        let mut state = self.shared().state();
        if state.committed(upto) {
            // Also for a lazy run, which no caller would watch from now on.
            self.shared().call_writer(&mut state);
        }
    }

    /// The first of these batches, up to `bytes_max` bytes, one at least: from memory when they are
    /// not durable yet, else read from disk, up to 4 MiB at a time, and checked. A returned batch
    /// may keep that much in memory. Blocks.
    ///
    /// # Errors
    /// [`LogError::Gone`] when a batch lies in an extent that was reclaimed, behind the end, or
    /// some was cut off meanwhile; [`LogError::OutOfPlace`] when another batch is there;
    /// [`LogError::Damaged`]; [`LogError::Io`].
    pub fn read_batches(
        &self,
        places: &[BatchPlace],
        bytes_max: usize,
    ) -> Result<Vec<Batch>, LogError> {
        member::read_batches(self.shared(), places, bytes_max)
    }

    /// The batch that covers `part` of the log, for another instance of the group that has it
    /// damaged: header and payload as they are on the disk, checked. The part may be any: it is a
    /// peer's. Blocks.
    ///
    /// # Errors
    /// [`LogError::Gone`] when it is not there, not durable, or no batch has such a part;
    /// [`LogError::Damaged`] when it is damaged here too; [`LogError::Io`].
    pub fn batch_over(&self, part: BodyLocation) -> Result<Bytes, LogError> {
        mend::batch_over(self.shared(), part)
    }

    /// Replaces a damaged batch where it lies, durably: `came` is what another instance answered to
    /// [`Log::batch_over`] for the same part. It is trusted only when it is proven to be the
    /// original: by the header that is left, or by the batches around it. `None`: the batch here is
    /// whole. Blocks, also while extents are released or an image is written.
    ///
    /// # Errors
    /// [`NotMended`]: nothing was written; but a write or a sync that failed ends the log.
    pub fn mend_batch(
        &self,
        part: BodyLocation,
        came: &[u8],
    ) -> Result<Option<MendedBatch>, NotMended> {
        mend::mend_batch(self.shared(), part, came)
    }

    /// Parts of the log that are damaged, for [`Log::batch_over`] and [`Log::mend_batch`]: of each
    /// stretch of damage the first batch, a thousand of them at most; some that are not damaged may
    /// be among them. Reads all of the log that is durable now. Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`]: the folder cannot be read.
    pub fn damaged_parts(&self) -> Result<Vec<BodyLocation>, LogError> {
        mend::damaged_parts(self.shared())
    }

    /// Bytes appended and not yet durable: the signal for back-pressure. Reads one atomic.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.shared().unsynced.load(Ordering::Relaxed)
    }

    /// The mark of a durable position, for [`Log::write_image`]. `None` when `at` is not durable,
    /// or so old that the log no longer knows where to begin there: about a thousand batches.
    #[must_use]
    pub fn mark_at(&self, at: Lsn) -> Option<Mark> {
        let state = self.shared().state();
        if at <= state.durable { state.seams.mark_at(at) } else { None }
    }

    /// Writes an image of what all runs did that end at or before the mark, and of nothing else, so
    /// that recovery begins with it and with the first run behind it; atomic, and durable when this
    /// returns. The newest two are kept ([`Log::images`]); one at the position of another replaces
    /// it. Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`]: the older images are still there, the log goes on (unless the names of the
    /// folder cannot be synced: that ends the log as a failed sync of a batch does).
    pub fn write_image(&self, mark: Mark, bytes: &[u8]) -> Result<(), LogError> {
        image::write(self.shared(), mark, bytes)
    }

    /// Lets extents go that lie wholly before `keep_from`: a few become spares, the others are
    /// removed. The caller promises that it needs no body before `keep_from`; what the images on
    /// disk need is kept in any case, so without an image nothing is let go. Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`]: some extents may have been let go.
    ///
    /// # Panics
    /// When `keep_from` is not durable.
    pub fn reclaim(&self, keep_from: Lsn) -> Result<(), LogError> {
        reclaim::reclaim(self.shared(), keep_from)
    }

    /// Keeps all log from the extent of `from` on that is there, whatever else is said to be
    /// needed, until the hold is dropped. Blocks while extents are let go or an image is written.
    #[must_use]
    pub fn hold(&self, from: Lsn) -> Hold {
        let shared = self.shared();
        let _housekeeping = shared.housekeeping.lock();
        hold::enter(&shared.holds, from)
    }

    /// The same, without waiting: `None` when extents are being let go, or an image written, just
    /// now.
    #[must_use]
    pub fn try_hold(&self, from: Lsn) -> Option<Hold> {
        let shared = self.shared();
        let _housekeeping = shared.housekeeping.try_lock()?;
        Some(hold::enter(&shared.holds, from))
    }

    /// The earliest position that a holder keeps.
    #[must_use]
    pub fn held_from(&self) -> Option<Lsn> {
        self.shared().holds.from()
    }

    /// Bytes of log that are kept only for a retention hold, from `held` on.
    #[must_use]
    pub fn bytes_held_back(&self, held: Lsn) -> u64 {
        let needed = self.shared().needs.lock().from();
        needed.0.saturating_sub(held.max(self.shared().first_held()).0)
    }

    /// Which log this is.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.shared().log_id
    }

    /// End of the last run committed; of a log that follows, of the last batch received.
    #[must_use]
    pub fn tail(&self) -> Lsn {
        Lsn(self.shared().tail.load(Ordering::Acquire))
    }

    /// All before it is durable.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.shared().durable()
    }

    /// How much free space there is now.
    #[must_use]
    pub fn space(&self) -> Space {
        self.shared().state().space_now()
    }

    /// Bytes that a run which adds to what the log must keep may take now: what is free beside the
    /// reserve, and at most a quarter of the reserve on top, once. 0: nothing that adds. Known as
    /// soon as a run is committed, before the listener hears of it. Reads one atomic.
    #[must_use]
    pub fn room_for_puts(&self) -> u64 {
        self.shared().room_for_puts.load(Ordering::Acquire)
    }

    /// Bytes that may be logged now to free the extents that they were in before: the last eighth
    /// of the reserve is not for it.
    #[must_use]
    pub fn room_for_relocation(&self) -> u64 {
        let state = self.shared().state();
        state.extents.room_for_relocation(state.open_bytes())
    }

    /// Removes all images but the newest: for when the log that only the older one needs is wanted.
    /// Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`]: an older image is still there, and all that it needs.
    pub fn drop_older_images(&self) -> Result<(), LogError> {
        image::drop_older(self.shared())
    }

    /// Positions of the images on disk that a start could use, oldest first: what they refer to
    /// must stay.
    #[must_use]
    pub fn images(&self) -> Vec<Lsn> {
        self.shared().needs.lock().images.clone()
    }

    /// Position of the newest image, if there is one.
    #[must_use]
    pub fn image_at(&self) -> Option<Lsn> {
        self.shared().needs.lock().images.last().copied()
    }

    /// A picture of the figures.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats::collect(self.shared())
    }

    /// Where the log that is there begins.
    #[must_use]
    pub fn first_held(&self) -> Lsn {
        self.shared().first_held()
    }

    /// The log folder.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.shared().disk
    }

    /// The folder that it is in.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(self.shared().disk.name())
    }

    /// Bytes of one of its extents.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        self.shared().options.extent_bytes
    }

    /// The oldest thing that the log waits for its disk for, if there is any.
    #[must_use]
    pub fn overdue(&self) -> Option<Overdue> {
        overdue::look(self.shared(), Instant::now())
    }

    /// Ends the log as if a write had failed, but the listener is not notified: nothing becomes
    /// durable any more, whatever the disk still answers, and waiting callers get
    /// [`LogError::Failed`]. For a process that re-executes itself, and must not wait for a disk
    /// that hangs.
    pub fn give_up(&self) {
        let shared = self.shared();
        shared.state().phase = Phase::Failed;
        shared.writers.notify_all();
        shared.appenders.notify_all();
        shared.preallocation.notify_all();
        shared.space_notifier.notify_all();
    }

    /// Refuses new runs, writes what is open, waits for the disk, marks the log as orderly ended
    /// (so that damage to its last batch is distinguished from a torn tail), and ends the threads.
    /// A second call does nothing.
    pub fn shutdown(&self) {
        let shared = self.shared();
        let mut state = shared.state();
        if state.phase == Phase::Running {
            state.phase = Phase::Closing;
            shared.writers.notify_all();
            shared.appenders.notify_all();
            while (state.appending || !state.is_quiet()) && state.phase == Phase::Closing {
                state = shared.wait_as_appender(state);
            }
            // A replica has no batches of its own.
            if !state.role.is_following() {
                state.drop_empty();
                let (opened, result) = shared.open_batch(state, BATCH_HEADER_BYTES);
                state = opened;
                if result == OpenOutcome::Yes {
                    state.seal();
                    shared.call_writer(&mut state);
                }
            }
            while !state.is_quiet() && state.phase == Phase::Closing {
                state = shared.wait_as_appender(state);
            }
            if state.phase == Phase::Closing {
                state.phase = Phase::Stopped;
            }
        }
        drop(state);
        self.running.stop();
        self.running.threads.join();
    }
}

impl Running {
    /// Tells the threads to end.
    fn stop(&self) {
        {
            let mut state = self.shared.state();
            match state.phase {
                Phase::Running | Phase::Closing => state.phase = Phase::Stopped,
                Phase::Stopped | Phase::Failed => {}
            }
        }
        self.shared.writers.notify_all();
        self.shared.appenders.notify_all();
        self.shared.preallocation.notify_all();
        self.shared.space_notifier.notify_all();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if !self.threads.join_within(PATIENCE) {
            tracing::warn!(
                folder = self.shared.disk.name(),
                "the disk does not answer: threads of the recovery log are left behind"
            );
        }
    }
}

#[cfg(test)]
mod tests;
