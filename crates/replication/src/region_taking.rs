//! Recovery: a copy of the live group's log comes over a stream of the link between regions,
//! beside the log that is there, on a thread of its own.
//!
//! Meanwhile this instance is what it was: it can be promoted with what it has. When the copy is
//! whole and checked, its log is replaced in the way in which one within a group is (`log_swap`),
//! and the process re-executes itself; the other instances of its group get theirs from it.
//!
//! Not here: the giver (`region_giving`), the folder in which it is made (`rebase_folder`).
//! Invariants: nothing is written before there is space for all of it; the old log is untouched
//! until the copy is whole, and what was promotable with it is on the disk before it goes; an
//! instance that is promoted meanwhile takes no more.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use towline_admin::catalogue::{REBASE_COMES, REBASE_INTERRUPTED, REBASE_NO_ROOM, REBASE_TAKEN};
use towline_backup::{BackupError, CopyHead, CopyPoint, Progress, prepare, take_behind};
use towline_group::Mode;
use towline_log::{Disk, LinuxDisk};
use towline_logging::log as say;
use towline_os::sync::Mutex;
use towline_os::thread::Builder;
use towline_region::{RecoveryPoint, Refusal};
use towline_types::{BatchPlace, Histories};

use crate::copy::READ_BYTES;
use crate::driver::Driver;
use crate::log_swap;
use crate::rebase_folder::RebaseFolder;
use crate::rebase_progress::{RebaseProgress, RebaseView};
use crate::rebase_state::{PointBefore, RebaseState};
use crate::rebase_wire::{RebaseAnswer, read_from};
use crate::region_giving::tell;

/// See the module.
pub(crate) struct Taking {
    driver: Arc<Driver>,
    /// Name of the live group.
    group: String,
    state: RebaseState,
    is_taking: AtomicBool,
    progress: Mutex<Option<RebaseProgress>>,
    trouble: Mutex<Option<String>>,
    /// What is promotable now.
    point: Box<dyn Fn() -> RecoveryPoint + Send + Sync>,
}

impl Taking {
    /// Of an instance that gets copies of `group`; `point`: what is promotable at the moment.
    ///
    /// # Errors
    /// What is remembered cannot be read.
    pub(crate) fn new(
        driver: Arc<Driver>,
        group: String,
        point: Box<dyn Fn() -> RecoveryPoint + Send + Sync>,
    ) -> io::Result<Taking> {
        let last = driver.standing().last_index;
        let state = RebaseState::read(driver.folder(), last)?;
        let folder = RebaseFolder::of(driver.folder());
        // Also when it got its log from another instance meanwhile.
        if folder.begun()?.is_none_or(|(head, _)| head.promises().index <= last) {
            folder.remove()?;
        }
        let (progress, trouble) = (Mutex::default(), Mutex::default());
        let is_taking = AtomicBool::new(false);
        Ok(Taking { driver, group, state, is_taking, progress, trouble, point })
    }

    /// Copies that this instance has begun to take.
    pub(crate) fn begun(&self) -> u64 {
        self.state.begun()
    }

    /// What was promotable before a copy that a majority does not have yet; `majority`: index of
    /// the newest batch that a majority is known to have.
    pub(crate) fn before(&self, majority: u64) -> Option<RecoveryPoint> {
        let before = self.state.before()?;
        if majority < before.until {
            return Some(before.point);
        }
        if let Err(error) = self.state.is_shared() {
            tracing::warn!(%error, "that a majority has a copy cannot be noted");
        }
        None
    }

    /// The same, without a look at the others.
    pub(crate) fn before_now(&self) -> Option<RecoveryPoint> {
        self.state.before().map(|before| before.point)
    }

    /// How far a copy is, while one comes.
    pub(crate) fn view(&self) -> Option<RebaseView> {
        let now = self.driver.now();
        self.progress.lock().map(|progress| progress.view(now))
    }

    /// Why the last one did not come to its end.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// The log goes on as it is: what is left of a copy is removed, on a thread of its own.
    pub(crate) fn is_not_needed(self: &Arc<Self>) {
        *self.trouble.lock() = None;
        let folder = RebaseFolder::of(self.driver.folder());
        if !folder.is_there() || self.is_taking.swap(true, Ordering::SeqCst) {
            return;
        }
        let taking = Arc::clone(self);
        let removing = Builder::new().name("region-rebase".into()).spawn(move || {
            if let Err(error) = folder.remove() {
                // Only its free space is missed.
                tracing::warn!(%error, "what is left of a copy cannot be removed");
            }
            taking.is_taking.store(false, Ordering::SeqCst);
        });
        if removing.is_err() {
            self.is_taking.store(false, Ordering::SeqCst);
        }
    }

    /// Whether this instance takes a copy now.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn admits(&self) -> Result<(), String> {
        if self.is_taking.load(Ordering::SeqCst) {
            return Err("a copy comes already".into());
        }
        let refuses = || Err("this instance takes no part in its group at present".to_owned());
        match self.driver.mode() {
            Mode::Recovery if self.driver.standing().blank || self.driver.is_copying() => refuses(),
            Mode::Recovery => Ok(()),
            Mode::Voting | Mode::Promoting => Err("this instance is not in recovery".into()),
        }
    }

    /// Takes a copy, or what lacks of it. Blocks. `histories`: those of the live group's log.
    /// `drawn`: a random number.
    pub(crate) fn take(&self, stream: impl Read + Write, histories: &Histories, drawn: u64) {
        if self.is_taking.swap(true, Ordering::SeqCst) {
            return;
        }
        let taken = self.take_all(stream, histories, drawn);
        *self.progress.lock() = None;
        if let Err(why) = taken {
            say(&REBASE_INTERRUPTED, &[&self.group, &why]);
            *self.trouble.lock() = Some(why);
            self.is_taking.store(false, Ordering::SeqCst);
        }
        // Otherwise the process is about to re-execute itself.
    }

    fn take_all(
        &self,
        mut stream: impl Read + Write,
        histories: &Histories,
        drawn: u64,
    ) -> Result<(), String> {
        let words = |error: io::Error| error.to_string();
        let driver = &self.driver;
        let head = CopyHead::read(&mut stream).map_err(|error| error.to_string())?;
        if head.log_id() != driver.log().id() {
            return Err("it is a copy of another log".into());
        }
        let promised = head.promises();
        if promised.index <= driver.standing().last_index {
            RebaseAnswer::HasMore.say(&mut stream).map_err(words)?;
            return Err("it has less than this log".into());
        }
        let folder = RebaseFolder::of(driver.folder());
        let point = match self.goes_on(&folder, &head) {
            Ok(point) => point,
            Err(BackupError::NoRoom { needed, free }) => {
                let told = [needed, free].map(|bytes| bytes.to_string());
                say(&REBASE_NO_ROOM, &[&self.group, &told[0], &told[1]]);
                RebaseAnswer::NoRoom { needed, free }.say(&mut stream).map_err(words)?;
                return Err(BackupError::NoRoom { needed, free }.to_string());
            }
            Err(error) => return Err(error.to_string()),
        };
        RebaseAnswer::HasBegun(point).say(&mut stream).map_err(words)?;
        let point = match read_from(&mut stream).map_err(words)? {
            from if from == point.done => point,
            0 => {
                self.begins(&folder, &head).map_err(|error| error.to_string())?;
                CopyPoint::default()
            }
            _ => return Err("it goes on where it was not asked to".into()),
        };
        let told = [head.bytes(), point.done].map(|bytes| bytes.to_string());
        say(&REBASE_COMES, &[&self.group, &told[0], &told[1]]);
        // Before anything of the log can be believed.
        if !driver.follow(histories).map_err(words)? {
            return Err(Refusal::Promoted.to_string());
        }
        self.comes(&folder, (&head, point), &mut stream)?;
        let acknowledged = RebaseAnswer::Whole.say(&mut stream);
        if let Err(error) = acknowledged {
            // The copy is good; the giver finds out by the next connection.
            tracing::warn!(%error, "the end of a copy could not be acknowledged");
        }
        self.hand_in(&folder, &head, drawn).map_err(words)
    }

    /// From where a copy goes on: the folder is ready for it.
    fn goes_on(&self, folder: &RebaseFolder, head: &CopyHead) -> Result<CopyPoint, BackupError> {
        let failed = |error| towline_log::LogError::io("look into a folder", "rebase", error);
        let begun = folder.begun().map_err(failed)?;
        if let Some((_, point)) = begun.filter(|(begun, _)| begun == head) {
            return Ok(point);
        }
        self.begins(folder, head)?;
        Ok(CopyPoint::default())
    }

    fn begins(&self, folder: &RebaseFolder, head: &CopyHead) -> Result<(), BackupError> {
        let failed = |error| towline_log::LogError::io("make a folder for a copy", "rebase", error);
        folder.begin(head).map_err(failed)?;
        let prepared = LinuxDisk::open(&folder.log()).map_err(BackupError::Log);
        let prepared = prepared.and_then(|disk| prepare(&disk, head));
        if prepared.is_err() {
            folder.remove().ok();
        }
        prepared?;
        Ok(self.state.begins().map_err(failed)?)
    }

    fn comes(
        &self,
        folder: &RebaseFolder,
        (head, point): (&CopyHead, CopyPoint),
        stream: &mut (impl Read + Write),
    ) -> Result<(), String> {
        let driver = &self.driver;
        let words = |error: io::Error| error.to_string();
        let begun = RebaseProgress::begin(point.done, head.bytes(), driver.now());
        *self.progress.lock() = Some(begun);
        let disk: Arc<dyn Disk> =
            Arc::new(LinuxDisk::open(&folder.log()).map_err(|error| error.to_string())?);
        let mut rows = folder.rows().map_err(words)?;
        // The stream is read and written in turns, by one thread.
        let shared = Mutex::new(stream);
        let refuses = || (driver.mode() != Mode::Recovery).then_some(PROMOTED);
        let from = TakenStream { stream: &shared, refuses };
        let mut from = BufReader::with_capacity(READ_BYTES, from);
        let mut keep = |point: CopyPoint| {
            rows.note(point)?;
            RebaseAnswer::Keeps(point.done).say(&mut *shared.lock())?;
            if let Some(view) = self.has(point.done) {
                tell(&self.group, &view);
            }
            Ok(())
        };
        let taken = take_behind(&disk, head, point, &mut from, &mut keep, &mut |_: Progress| {});
        match taken {
            Ok(_) => folder.sync().map_err(words),
            Err(error) => {
                // What came as it was sent and is no log will be none the next time.
                let is_damaged = matches!(&error, BackupError::Stream(error)
                    if error.kind() == io::ErrorKind::InvalidData);
                if is_damaged {
                    folder.remove().ok();
                }
                Err(error.to_string())
            }
        }
    }

    /// So much is on the disk; what to say about it, if it is time.
    fn has(&self, done: u64) -> Option<RebaseView> {
        let now = self.driver.now();
        let mut progress = self.progress.lock();
        let progress = progress.as_mut()?;
        progress.has(done);
        progress.is_to_tell(now).then(|| progress.view(now))
    }

    /// The copy becomes the log of the next start.
    fn hand_in(&self, folder: &RebaseFolder, head: &CopyHead, drawn: u64) -> io::Result<()> {
        let driver = &self.driver;
        let promised = head.promises();
        let (index, term) = (promised.index, promised.term);
        if !driver.is_alone() {
            let point = self.before_now().unwrap_or_else(|| (self.point)());
            self.state.replaces(PointBefore { until: index, point })?;
        }
        let last = BatchPlace { index, term, ..BatchPlace::default() };
        let handed_in = driver.rebased_by(last, |hard_state| {
            log_swap::hand_in(driver.folder(), folder.path(), hard_state, drawn)?;
            // Behind this the process may be another one at any moment.
            let [end, index] = [promised.end.to_string(), index.to_string()];
            say(&REBASE_TAKEN, &[&self.group, &end, &index]);
            Ok(())
        });
        if handed_in.is_err() && !log_swap::has_copy(driver.folder()) {
            // The log stays, and what is promotable is what it says.
            self.state.is_shared()?;
        }
        handed_in
    }
}

const PROMOTED: &str = "this instance is in recovery no more";

/// What is read of a stream, as long as this instance takes it.
struct TakenStream<'a, S, F> {
    stream: &'a Mutex<S>,
    /// Why it takes no more.
    refuses: F,
}

impl<S: Read, F: Fn() -> Option<&'static str>> Read for TakenStream<'_, S, F> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match (self.refuses)() {
            Some(why) => Err(io::Error::other(why)),
            None => self.stream.lock().read(place),
        }
    }
}

#[cfg(test)]
mod tests;
