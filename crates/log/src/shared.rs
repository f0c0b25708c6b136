//! The state that the log's threads and handles share, behind one lock.
//!
//! Not here: the threads (`writer`, `preallocation`, `space_notifier`), the handle (`log`), the
//! decision when to write (`rule`).
//!
//! Invariants: batches get their index and position when they are opened, one at a time; `sealed`
//! and `flights` are in index order and every index in `flights` is below every one in `sealed`,
//! which are below `open`; `durable` only grows, and not after a failure.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use towline_os::sync::{Condvar, Mutex, MutexGuard};
use towline_os::time::Instant;

use towline_delegation::DelegationLock;
use towline_types::{Lsn, fitting};

use crate::batch::Batch;
use crate::block::Aligned;
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::LogError;
use crate::extents::{Extents, Room, Space};
use crate::folder::handles::Handles;
use crate::format::{BATCH_HEADER_BYTES, EXTENT_HEADER_BYTES, LogId, padded, size};
use crate::histogram::WriteFigures;
use crate::hold::Holds;
use crate::listener::Listener;
use crate::mark::{Seam, Seams};
use crate::member::{Member, ReceivedBatches, Role};
use crate::needs::{ImagePlace, Needs};
use crate::options::Options;
use crate::rule::{self, Decision, Facts, TypicalCompany, TypicalWrite};

/// Most bytes in batches that wait for a writer; appenders wait beyond it, see
/// [`Shared::wait_for_writers`].
pub(crate) const SEALED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// When no more than this waits for a writer, a log that did not take a run says that it would now.
const SEALED_BYTES_LOW: usize = SEALED_BYTES_MAX / 2;

/// Bytes of a leader's open batch from which on it does not wait for the group's answer to others.
const BESIDE_FROM_BYTES: usize = 64 * 1024;

/// What all threads and handles of one log share.
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) log_id: LogId,
    /// Weak, because it has the log.
    pub(crate) listener: Weak<dyn Listener>,
    /// What the log of an instance of a group has besides.
    pub(crate) member: Option<Member>,
    pub(crate) state: Mutex<LogState>,
    /// Idle writers wait here.
    pub(crate) writers: Condvar,
    /// Appenders wait here for their turn, for free space, and for writers.
    pub(crate) appenders: Condvar,
    /// The preallocation thread waits here.
    pub(crate) preallocation: Condvar,
    /// The space notifier waits here.
    pub(crate) space_notifier: Condvar,
    pub(crate) chain: Chain,
    /// Files that bodies are read from.
    pub(crate) handles: Handles,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) written: Mutex<WriteFigures>,
    /// Held while the listener is called about durability: calls are in order, none after failure.
    /// The listener may append, and so wait: a writer never waits for this lock while others work.
    /// News that is posted: the log is durable further than `upto`.
    pub(crate) reported: DelegationLock<ReportPosition>,
    /// Held while images are written and extents reclaimed: one at a time.
    pub(crate) housekeeping: Mutex<Housekeeping>,
    /// What the figures say about images and free space; locked for a moment.
    pub(crate) needs: Mutex<Needs>,
    /// What is not released although this instance does not need it.
    pub(crate) holds: Arc<Holds>,
    pub(crate) durable: AtomicU64,
    pub(crate) tail: AtomicU64,
    pub(crate) unsynced: AtomicU64,
    /// Bytes that puts may still log: see [`Shared::note_room`].
    pub(crate) room_for_puts: AtomicU64,
}

/// What the listener was notified of.
#[derive(Debug, Default)]
pub(crate) struct ReportPosition {
    pub(crate) upto: Lsn,
    pub(crate) failed: bool,
}

/// What images there are.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    /// The images on disk, oldest first.
    pub(crate) images: Vec<ImagePlace>,
}

/// A log's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Shutdown was asked for: what is open is written, nothing new is taken.
    Closing,
    /// Threads end.
    Stopped,
    /// A write or sync failed.
    Failed,
}

/// A batch that a writer took.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) index: u64,
    pub(crate) term: u32,
    pub(crate) end: Lsn,
    pub(crate) bytes: u64,
    pub(crate) forced: u64,
    /// Whether no run is unfinished at its end.
    pub(crate) is_seam: bool,
    /// When the writer took it.
    pub(crate) since: Instant,
    /// Its checksum, when it is on disk.
    pub(crate) done: Option<u32>,
}

/// A batch that is on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenBatch {
    pub(crate) index: u64,
    pub(crate) checksum: u32,
}

/// Everything behind the lock.
#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) phase: Phase,
    pub(crate) role: Role,
    /// Term of the batches that are opened here.
    pub(crate) term: u32,
    /// A run is being appended, or what came from a leader entered: one at a time.
    pub(crate) appending: bool,
    /// A run was given up after its beginning had left the open batch: write that before the next
    /// record.
    pub(crate) given_up: bool,
    pub(crate) open: Option<Batch>,
    pub(crate) sealed: VecDeque<Batch>,
    pub(crate) sealed_bytes: usize,
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) next_index: u64,
    pub(crate) typical_write: TypicalWrite,
    pub(crate) typical_company: TypicalCompany,
    /// Writers that are reporting to the listener what became durable, and look for work next.
    pub(crate) reporting: usize,
    /// Batches of a leader that are durable here and not known to be committed: their ends, and how
    /// many forced runs they hold. `None` while the commit position is not reported.
    pub(crate) uncommitted: Option<VecDeque<(Lsn, u64)>>,
    pub(crate) durable: Lsn,
    /// Where images may begin.
    pub(crate) seams: Seams,
    /// End of the newest batch that left `open`.
    pub(crate) sealed_end: Lsn,
    /// End of the newest record.
    pub(crate) tail: Lsn,
    pub(crate) commits: u64,
    pub(crate) writers_idle: usize,
    /// One of them was woken, or lets others go first: it looks at what there is next, and wakes
    /// another if there is more. Waking one for each run that comes until then would cost a system
    /// call each.
    pub(crate) writer_looks: bool,
    /// Since when a batch waits for its extent to be preallocated.
    pub(crate) waits_for_extent: Option<Instant>,
    /// Appenders (and a shutdown) that wait for something.
    pub(crate) appenders_waiting: usize,
    /// A run was not taken because it would have had to wait.
    pub(crate) behind: bool,
    /// What it would have waited for came: the listener is to hear of it.
    pub(crate) caught_up: bool,
    pub(crate) extents: Extents,
    /// How much free space the preallocation thread last saw; the listener is notified.
    pub(crate) space: Space,
    /// Why no further extent can be made, until the listener was notified.
    pub(crate) hindrance: Option<LogError>,
    /// Buffers to be used again.
    pub(crate) pool: Vec<Vec<u8>>,
}

/// What a writer does next.
#[derive(Debug)]
pub(crate) enum Job {
    Write { batch: Batch, unsynced: u32, term: u32 },
    Copy(ReceivedBatches),
    Wait(Option<Instant>),
    Stop,
}

impl Shared {
    /// Calls the listener, if its owner has not dropped it.
    pub(crate) fn report(&self, call: impl FnOnce(&dyn Listener)) {
        if let Some(listener) = self.listener.upgrade() {
            call(listener.as_ref());
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    /// Position up to which the listener may be notified.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Enters how many bytes puts may still log. Called before the lock is released by each caller
    /// that appends, frees space or finds that there is less: so the next decision knows it.
    pub(crate) fn note_room(&self, state: &LogState) {
        let bytes = state.extents.room_for_puts(state.open_bytes());
        self.room_for_puts.store(bytes, Ordering::Release);
        if bytes == 0 && state.space != Space::Full {
            // No put opens a batch any more, which would have the preallocation thread look.
            self.preallocation.notify_one();
        }
    }

    /// Where the log that is there begins.
    pub(crate) fn first_held(&self) -> Lsn {
        Lsn(self.state().extents.first * self.options.extent_bytes)
    }

    /// What an idle writer does now.
    pub(crate) fn next_job(&self, state: &mut LogState, now: Instant) -> Job {
        match state.phase {
            Phase::Stopped | Phase::Failed => return Job::Stop,
            Phase::Running | Phase::Closing => {}
        }
        if state.sealed.is_empty() {
            match self.decide(&state.facts(self.options.slow_write), now) {
                Decision::Take if state.role.is_following() => {
                    let copied = state.take_received(self.options.batch_bytes_hard_max(), now);
                    self.wake_appenders(state);
                    return Job::Copy(copied);
                }
                Decision::Take => state.seal(),
                Decision::Wait => return Job::Wait(None),
                Decision::WaitUntil(due) => return Job::Wait(Some(due)),
            }
        }
        let Some(batch) = state.sealed.pop_front() else { return Job::Wait(None) };
        let (bytes, term) = (batch.bytes(), state.term);
        state.sealed_bytes -= bytes;
        let unsynced = state.take_off(Flight {
            index: batch.index,
            term,
            end: batch.end(),
            bytes: bytes as u64,
            forced: batch.forced,
            is_seam: !batch.inside_run,
            since: now,
            done: None,
        });
        self.wake_appenders(state);
        Job::Write { batch, unsynced, term }
    }

    fn decide(&self, facts: &Facts, now: Instant) -> Decision {
        rule::decide(facts, self.options.batch_bytes_target, self.options.lazy_delay, now)
    }

    /// Whether there is a batch to take that may soon be larger.
    pub(crate) fn expects_company(&self, state: &LogState, now: Instant) -> bool {
        if !state.sealed.is_empty() || state.role.is_following() {
            return false;
        }
        let facts = state.facts(self.options.slow_write);
        rule::expects_company(&facts, state.typical_company)
            && self.decide(&facts, now) == Decision::Take
    }

    /// Wakes a writer when the rule would let it take something.
    pub(crate) fn wake_writer(&self, state: &mut LogState) {
        if state.writers_idle == 0 || state.writer_looks {
            return;
        }
        let facts = state.facts(self.options.slow_write);
        if !state.sealed.is_empty() || self.decide(&facts, Instant::now()) == Decision::Take {
            self.call_writer(state);
        }
    }

    /// Wakes a writer, if one is idle and none is about to look anyway.
    pub(crate) fn call_writer(&self, state: &mut LogState) {
        if state.writers_idle > 0 && !state.writer_looks {
            state.writer_looks = true;
            self.writers.notify_one();
        }
    }

    /// Wakes the threads that wait for a turn, for free space, or for writers; and has the listener
    /// notified, when a run was not taken that would have had to wait for any of these.
    pub(crate) fn wake_appenders(&self, state: &mut LogState) {
        if state.appenders_waiting > 0 {
            self.appenders.notify_all();
        }
        if state.behind && state.sealed_bytes <= SEALED_BYTES_LOW {
            (state.behind, state.caught_up) = (false, true);
            self.space_notifier.notify_one();
        }
    }

    /// Waits until something changed for appenders.
    pub(crate) fn wait_as_appender<'a>(
        &self,
        mut state: MutexGuard<'a, LogState>,
    ) -> MutexGuard<'a, LogState> {
        state.appenders_waiting += 1;
        self.appenders.wait(&mut state);
        state.appenders_waiting -= 1;
        state
    }

    /// Opens a batch with space for `need` bytes, header included; waits for preallocation if
    /// needed. Returns whether there is one now: not when there is no space or the log ended.
    pub(crate) fn open_batch<'a>(
        &'a self,
        mut state: MutexGuard<'a, LogState>,
        need: usize,
    ) -> (MutexGuard<'a, LogState>, OpenOutcome) {
        assert!(state.open.is_none(), "one batch is open at a time");
        let found = loop {
            match state.phase {
                Phase::Running | Phase::Closing => {}
                Phase::Stopped => break OpenOutcome::Stopped,
                Phase::Failed => break OpenOutcome::Failed,
            }
            match state.extents.room(need as u64) {
                Room::Here { limit } => {
                    state.open_here(limit, self.options.batch_bytes_hard_max());
                    if state.space_now() != state.space {
                        self.preallocation.notify_one();
                    }
                    break OpenOutcome::Yes;
                }
                Room::Next => {
                    state.extents.advance();
                    self.preallocation.notify_one();
                }
                Room::Wait => {
                    self.preallocation.notify_one();
                    state.waits_for_extent.get_or_insert_with(Instant::now);
                    state = self.wait_as_appender(state);
                }
                Room::Nowhere => {
                    self.preallocation.notify_one();
                    break OpenOutcome::Full;
                }
            }
        };
        state.waits_for_extent = None;
        (state, found)
    }

    /// Whether no writer is left to take a batch: all are notifying the listener, or wait inside
    /// it.
    pub(crate) fn all_report(&self, state: &LogState) -> bool {
        state.reporting >= self.options.writes_in_flight_max
    }

    /// Waits until writers are not too far behind, but not while all of them report: the appending
    /// thread may be a writer inside the listener, or hold what the listener waits for. So the
    /// bound may be passed by what is appended during one report.
    pub(crate) fn wait_for_writers<'a>(
        &'a self,
        mut state: MutexGuard<'a, LogState>,
    ) -> MutexGuard<'a, LogState> {
        while state.sealed_bytes > SEALED_BYTES_MAX
            && state.phase == Phase::Running
            && !self.all_report(&state)
        {
            state = self.wait_as_appender(state);
        }
        state
    }
}

/// What came of [`Shared::open_batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenOutcome {
    Yes,
    Full,
    Stopped,
    Failed,
    /// Only what comes from a leader is taken.
    Following,
}

impl LogState {
    /// How much free space there is, the open batch being written.
    pub(crate) fn space_now(&self) -> Space {
        self.extents.space(self.open_bytes())
    }

    /// Bytes that the open batch will take.
    pub(crate) fn open_bytes(&self) -> u64 {
        let open = self.open.as_ref().filter(|batch| !batch.is_empty());
        open.map_or(0, |batch| padded(batch.bytes() as u64))
    }

    /// What the rule looks at.
    fn facts(&self, slow_write: Duration) -> Facts {
        let out = self.flights.iter().filter(|flight| flight.done.is_none());
        let open = self.open.as_ref().filter(|batch| !batch.is_empty());
        let waiting = self.role.waiting();
        // A group's answer is slower than a disk: what it has not answered is on its way too.
        let unanswered = self.uncommitted.iter().flatten();
        let disk_is_slow = self.uncommitted.is_some() || self.typical_write.is_slow(slow_write);
        // On a fast disk the writer that reports is back before another would be awake, and the
        // runs that its report causes travel in one batch.
        let coming_back = if disk_is_slow { 0 } else { self.reporting };
        Facts {
            open_bytes: open.map_or(waiting.bytes, Batch::bytes),
            open_forced: open.map_or(waiting.count, |batch| batch.forced),
            lazy_since: open.and_then(|batch| batch.lazy_since),
            in_flight: out.clone().count() + coming_back + unanswered.clone().count(),
            in_flight_forced: out.map(|flight| flight.forced).sum::<u64>()
                + unanswered.map(|(_, forced)| forced).sum::<u64>(),
            disk_is_slow,
            beside_from_bytes: match self.uncommitted {
                Some(_) => BESIDE_FROM_BYTES,
                None => usize::MAX,
            },
            closing: self.phase == Phase::Closing,
            log_is_full: self.space == Space::Full,
        }
    }

    fn open_here(&mut self, limit: u64, hard_max: usize) {
        let extents = &self.extents;
        let limit = size(limit).min(hard_max);
        let lsn = Lsn(extents.current.sequence * extents.extent_bytes).after(extents.position);
        assert!(extents.position >= EXTENT_HEADER_BYTES as u64, "batches lie behind the header");
        assert!(lsn >= self.tail, "a batch lies behind the one before it");
        let memory = match self.pool.pop() {
            Some(memory) => Aligned::reuse(memory),
            None => Aligned::with_capacity(hard_max),
        };
        let extent = Arc::clone(&extents.current);
        let index = self.next_index;
        self.next_index += 1;
        self.open = Some(Batch::new(extent, extents.position, lsn, index, memory, limit));
    }

    /// Closes the open batch: it waits for a writer, the next opens behind it.
    pub(crate) fn seal(&mut self) {
        let Some(batch) = self.open.take() else { return };
        assert!(batch.bytes() >= BATCH_HEADER_BYTES, "a batch has its header");
        self.extents.position = batch.offset + padded(batch.bytes() as u64);
        self.sealed_bytes += batch.bytes();
        self.sealed_end = batch.end();
        self.sealed.push_back(batch);
    }

    /// Takes back an open batch in which nothing is: the next one is opened elsewhere.
    pub(crate) fn drop_empty(&mut self) {
        if let Some(batch) = self.open.take_if(|batch| batch.is_empty()) {
            assert_eq!(self.next_index, batch.index + 1, "the open batch is the newest");
            self.next_index = batch.index;
            self.pool.push(batch.buffer.into_memory());
        }
    }

    /// Takes back what is in memory of a run that began in batch `index` at `bytes` of its content.
    /// Returns how many bytes that were.
    pub(crate) fn give_up(&mut self, index: u64, bytes: usize) -> usize {
        let mut dropped = 0;
        match &mut self.open {
            Some(batch) => {
                let before = batch.bytes();
                // A batch that the run opened itself holds nothing else.
                let kept = if batch.index == index { bytes } else { BATCH_HEADER_BYTES };
                self.given_up |= batch.index != index;
                batch.truncate(kept);
                batch.inside_run = false;
                dropped = before - kept;
                if batch.is_empty() && dropped > 0 {
                    dropped += BATCH_HEADER_BYTES;
                }
            }
            None => self.given_up = true,
        }
        let open = self.open.as_ref().filter(|batch| !batch.is_empty());
        self.tail = open.map_or(self.sealed_end, Batch::end);
        dropped
    }

    /// Enters a batch that is handed to the disk; returns how many before it are there and not
    /// back.
    pub(crate) fn take_off(&mut self, flight: Flight) -> u32 {
        let unsynced = fitting(self.flights.len() as u64);
        let first = self.flights.front().map_or(flight.index, |flight| flight.index);
        assert_eq!(first + u64::from(unsynced), flight.index, "flights follow each other");
        self.typical_company.enter(flight.forced);
        self.flights.push_back(flight);
        unsynced
    }

    /// Enters that a batch is on disk; returns how many bytes became durable.
    pub(crate) fn written(&mut self, batch: WrittenBatch) -> u64 {
        let WrittenBatch { index, checksum } = batch;
        assert!(self.phase != Phase::Failed, "nothing becomes durable after a failure");
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.index == index) else {
            unreachable!("a batch comes back that was in flight")
        };
        flight.done = Some(checksum);
        self.role.written(index, checksum);
        let mut bytes = 0;
        while let Some(first) = self.flights.pop_front_if(|flight| flight.done.is_some()) {
            assert!(first.end > self.durable, "durability only grows");
            self.durable = first.end;
            bytes += first.bytes;
            if let Some(uncommitted) = &mut self.uncommitted {
                uncommitted.push_back((first.end, first.forced));
            }
            if let (true, Some(checksum)) = (first.is_seam, first.done) {
                let (end, index, term) = (first.end, first.index, first.term);
                let bytes = fitting(first.bytes);
                self.seams.push(Seam { end, index, checksum, term, bytes });
            }
        }
        bytes
    }

    /// The group committed all up to `upto`; true when that lets something go on.
    pub(crate) fn committed(&mut self, upto: Lsn) -> bool {
        let uncommitted = self.uncommitted.get_or_insert_default();
        let before = uncommitted.len();
        while uncommitted.pop_front_if(|(end, _)| *end <= upto).is_some() {}
        uncommitted.len() < before
    }

    /// Whether the threads are to end.
    pub(crate) fn is_ending(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Closing => false,
            Phase::Stopped | Phase::Failed => true,
        }
    }

    /// Whether everything appended is durable.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flights.is_empty()
            && self.sealed.is_empty()
            && self.role.waiting().count == 0
            && self.open.as_ref().is_none_or(Batch::is_empty)
    }
}

/// Links headers in index order: each batch carries the checksum of the one before it.
#[derive(Debug)]
pub(crate) struct Chain {
    link: Mutex<(u64, u32)>,
    linked: Condvar,
}

impl Chain {
    /// `next_index` is the first batch to come, `checksum` that of the batch before it.
    pub(crate) fn new(next_index: u64, checksum: u32) -> Chain {
        Chain { link: Mutex::new((next_index, checksum)), linked: Condvar::new() }
    }

    /// Goes back: `next_index` is the next batch to come, behind one with this checksum.
    pub(crate) fn reset(&self, next_index: u64, checksum: u32) {
        let mut link = self.link.lock();
        assert!(next_index <= link.0, "a chain is not skipped forward");
        *link = (next_index, checksum);
    }

    /// Waits for the turn of `index`; `finish` makes its checksum from that of the one before it.
    pub(crate) fn link(&self, index: u64, finish: impl FnOnce(u32) -> u32) {
        let mut link = self.link.lock();
        while link.0 != index {
            assert!(link.0 < index, "each batch is linked once");
            self.linked.wait(&mut link);
        }
        *link = (index + 1, finish(link.1));
        self.linked.notify_all();
    }
}
