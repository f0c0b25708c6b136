//! A simulated file system as a test holds it, and the one way by which operations reach it.
//!
//! Not here: what an operation does to the state (`volume`), and the names of the product.
//!
//! Invariants: an operation has its effect at one moment between its beginning and its end; the
//! state is not locked while time passes; an operation of a process that has ended has no effect.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use towline_types::SeededRandom;

use super::locks::Locks;
use super::operation::{DiskTiming, Operation, OperationKind, TracedOperation, Verdict};
use super::volume::Volume;
use crate::simulated::schedule::{self, Process, ProcessEnd, with};

/// How often an operation that hangs looks whether it still does.
const HANG: Duration = Duration::from_millis(50);

type FaultHook = Box<dyn FnMut(&Operation<'_>) -> Verdict + Send>;

thread_local! {
    /// Which file system the processes of this thread's world see.
    static MOUNTS: RefCell<BTreeMap<Process, FileSystem>> = const { RefCell::new(BTreeMap::new()) };
}

/// The files of a machine, or of a server that several processes use. It outlives its processes,
/// and lasts as long as the test holds it. A clone is the same file system.
#[derive(Clone)]
pub struct FileSystem(Arc<Mutex<FileSystemState>>);

/// A file system as an open file has it, which does not keep it: what a process leaves behind in
/// memory when it ends would keep all its files, too.
#[derive(Clone, Debug)]
pub(super) struct MountedFileSystem(Weak<Mutex<FileSystemState>>);

impl MountedFileSystem {
    /// # Errors
    /// It is not mounted any more, and nothing else has it.
    pub(super) fn get(&self) -> Result<FileSystem, Errno> {
        self.0.upgrade().map(FileSystem).ok_or(Errno::IO)
    }
}

/// What is behind a [`FileSystem`].
pub(super) struct FileSystemState {
    pub(super) volume: Volume,
    pub(super) locks: Locks,
    pub(super) takes_direct: bool,
    /// Handles of an earlier one are not valid any more.
    pub(super) generation: u64,
    pub(super) handles_made: u64,
    faults: Option<FaultHook>,
    trace: Option<Vec<TracedOperation>>,
    timing: DiskTiming,
    operations: u64,
}

/// An operation without what the file system adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) kind: OperationKind,
    pub(super) path: &'a Path,
    pub(super) to: Option<&'a Path>,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl<'a> Request<'a> {
    pub(super) fn new(kind: OperationKind, path: &'a Path) -> Request<'a> {
        Request { kind, path, to: None, offset: 0, length: 0 }
    }
}

/// What else an effect is to do.
#[derive(Debug, Default)]
pub(super) struct Mishap {
    /// A sync fails, with these draws.
    pub(super) partly: Option<SeededRandom>,
    /// A read flips this bit.
    pub(super) flips: Option<u64>,
}

impl FileSystem {
    /// An empty one, of 1 TiB.
    #[must_use]
    pub fn new() -> FileSystem {
        FileSystem::of(Volume::new())
    }

    pub(super) fn mounted(&self) -> MountedFileSystem {
        MountedFileSystem(Arc::downgrade(&self.0))
    }

    fn of(volume: Volume) -> FileSystem {
        FileSystem(Arc::new(Mutex::new(FileSystemState {
            volume,
            locks: Locks::default(),
            takes_direct: true,
            generation: 0,
            handles_made: 0,
            faults: None,
            trace: None,
            timing: DiskTiming::default(),
            operations: 0,
        })))
    }

    /// How much it can hold, in bytes.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.0.lock().volume.set_bytes_max(bytes);
    }

    /// Bytes that can still be written.
    #[must_use]
    pub fn bytes_free(&self) -> u64 {
        self.0.lock().volume.space().1
    }

    /// Bytes of what is on it, in whole blocks.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.0.lock().volume.bytes_used()
    }

    /// How long operations take from now on.
    pub fn set_timing(&self, timing: DiskTiming) {
        self.0.lock().timing = timing;
    }

    /// Whether files can be opened for direct I/O.
    pub fn set_takes_direct(&self, takes_direct: bool) {
        self.0.lock().takes_direct = takes_direct;
    }

    /// What decides about each operation from now on. It may use the file system.
    pub fn set_faults(&self, faults: impl FnMut(&Operation<'_>) -> Verdict + Send + 'static) {
        self.0.lock().faults = Some(Box::new(faults));
    }

    /// No operation has a fault from now on; one that hangs goes on.
    pub fn clear_faults(&self) {
        self.0.lock().faults = None;
    }

    /// Records operations from now on, from an empty trace.
    pub fn start_trace(&self) {
        self.0.lock().trace = Some(Vec::new());
    }

    /// What was recorded since the last call.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TracedOperation> {
        self.0.lock().trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How many operations there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// The power of the machine goes. Of what was not synced some is there, by draw. No handle is
    /// valid any more; the test kills the processes.
    pub fn power_cut(&self, dice: &mut SeededRandom) {
        let mut state = self.0.lock();
        state.volume.power_cut(dice);
        state.end_handles();
    }

    /// All locks are forgotten, as a server does that starts anew.
    pub fn forget_locks(&self) {
        self.0.lock().locks.forget();
    }

    /// A copy of all of it, with what is not synced; without handles, faults and trace.
    #[must_use]
    pub fn copy(&self) -> FileSystem {
        let state = self.0.lock();
        let copy = FileSystem::of(state.volume.clone());
        let mut other = copy.0.lock();
        (other.timing, other.takes_direct) = (state.timing, state.takes_direct);
        drop(other);
        copy
    }

    /// A copy of what is synced: what is there in any case after a power cut.
    #[must_use]
    pub fn synced(&self) -> FileSystem {
        let copy = self.copy();
        copy.0.lock().volume.lose_unsynced();
        copy
    }

    /// Puts the content of another one back. No handle is valid any more. How much it can hold
    /// stays as it is: a copy of a full disk fills no other one.
    pub fn put_back(&self, older: &FileSystem) {
        let volume = older.0.lock().volume.clone();
        let mut state = self.0.lock();
        let (bytes_max, _) = state.volume.space();
        state.volume = volume;
        state.volume.set_bytes_max(bytes_max);
        state.end_handles();
    }

    /// All of a file, as a process would read it now.
    #[must_use]
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let id = state.volume.resolve(path.as_ref()).ok()?;
        state.volume.bytes(id).ok()
    }

    /// Whether these bytes of a file would be there after a power cut, in any case.
    #[must_use]
    pub fn is_synced(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> bool {
        self.0.lock().volume.has_synced(path.as_ref(), bytes, offset)
    }

    /// How many names were added, removed or renamed and not synced.
    #[must_use]
    pub fn unsynced_names(&self) -> usize {
        self.0.lock().volume.unsynced_names()
    }

    /// Whether there is such a path.
    #[must_use]
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.0.lock().volume.resolve(path.as_ref()).is_ok()
    }

    /// The names in a folder, sorted.
    #[must_use]
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let state = self.0.lock();
        let listed = state.volume.resolve(folder.as_ref()).and_then(|id| state.volume.list(id));
        let names = listed.into_iter().flatten();
        names.map(|(name, _)| name.to_string_lossy().into_owned()).collect()
    }

    /// The first name in a folder, in their order, that begins so.
    #[must_use]
    pub fn first_name(&self, folder: impl AsRef<Path>, prefix: &str) -> Option<String> {
        self.0.lock().volume.first_name(folder.as_ref(), prefix)
    }

    /// All paths; files with their bytes, folders without.
    #[must_use]
    pub fn tree(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        self.0.lock().volume.tree()
    }

    /// Flips one bit of a file, on the medium. False when the file does not have it.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) -> bool {
        let mut state = self.0.lock();
        let id = state.volume.resolve(path.as_ref());
        id.and_then(|id| state.volume.flip_bit(id, bit)).unwrap_or(false)
    }

    /// Removes a file, durably, with the handles of it still usable.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        self.at_rest(|volume| volume.remove_file(path.as_ref()).is_ok())
    }

    /// Writes a file, durably, and makes the folders above it. False when a folder has its path.
    pub fn put(&self, path: impl AsRef<Path>, bytes: &[u8]) -> bool {
        let path = path.as_ref();
        self.at_rest(|volume| volume.put(path, bytes).is_ok())
    }

    /// Makes a folder, and those above it, durably. False when a file is in its way.
    pub fn make_folder(&self, path: impl AsRef<Path>) -> bool {
        self.at_rest(|volume| volume.make_folders(path.as_ref()).is_ok())
    }

    /// All that was written is durable from now on, as after sync(2).
    pub fn sync(&self) {
        self.at_rest(|_| ());
    }

    /// Acts on the state outside of time and of faults, as a test may. What it changes is durable,
    /// with all that was not.
    pub(super) fn at_rest<T>(&self, act: impl FnOnce(&mut Volume) -> T) -> T {
        let mut state = self.0.lock();
        let acted = act(&mut state.volume);
        state.volume.sync_all();
        acted
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut FileSystemState) -> T) -> T {
        act(&mut self.0.lock())
    }

    /// An operation: see the module. Outside of coroutines it happens at once.
    pub(super) fn operate<T>(
        &self,
        request: Request<'_>,
        act: impl FnOnce(&mut FileSystemState, Mishap) -> Result<T, Errno>,
    ) -> io::Result<T> {
        let process = if schedule::in_world() { schedule::running_process() } else { None };
        let Some(process) = process else {
            return Ok(act(&mut self.0.lock(), Mishap::default())?);
        };
        if schedule::has_ended(process) {
            return Err(Errno::IO.into());
        }
        let Request { kind, path, to, offset, length } = request;
        let (number, timing) = self.with(|state| {
            state.operations += 1;
            (state.operations, state.timing)
        });
        let operation = Operation { number, kind, process, path, to, offset, length };
        let verdict = self.verdict(&operation);
        let done = self.judged(kind, &timing, verdict, process, act);
        self.with(|state| {
            if let Some(trace) = &mut state.trace {
                let error = done.as_ref().err().map(|error| error.raw_os_error());
                trace.push(TracedOperation {
                    number,
                    at_us: with(|schedule| schedule.now_us),
                    kind,
                    process,
                    path: path.to_owned(),
                    to: to.map(Path::to_owned),
                    offset,
                    length,
                    error,
                });
            }
        });
        if verdict == Verdict::KillsAfter {
            end(process);
        }
        Ok(done?)
    }

    fn verdict(&self, operation: &Operation<'_>) -> Verdict {
        // Taken out while it decides: it may use the file system.
        let Some(mut hook) = self.with(|state| state.faults.take()) else { return Verdict::Goes };
        let verdict = hook(operation);
        self.with(|state| state.faults = state.faults.take().or(Some(hook)));
        verdict
    }

    fn judged<T>(
        &self,
        kind: OperationKind,
        timing: &DiskTiming,
        verdict: Verdict,
        process: Process,
        act: impl FnOnce(&mut FileSystemState, Mishap) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (mut time, is_first) = with(|schedule| {
            let (low, high) = timing.of(kind);
            let mut us = schedule.dice.between(low, high);
            if timing.stalls_per_mille > 0 && schedule.dice.chance(timing.stalls_per_mille) {
                us += schedule.dice.between(timing.stall_us.0, timing.stall_us.1);
            }
            // The effect comes first, and then the time; or the other way round.
            (Duration::from_micros(us), schedule.dice.chance(500))
        });
        let mut mishap = Mishap::default();
        let mut error = None;
        match verdict {
            Verdict::Goes | Verdict::KillsAfter => {}
            Verdict::Takes(longer) => time = longer,
            Verdict::Hangs => {
                while self.0.lock().faults.is_some() {
                    pass(HANG);
                }
            }
            Verdict::Fails(number) => {
                pass(time);
                return Err(Errno::from_raw_os_error(number));
            }
            Verdict::FailsAfter(number) => {
                let seed = with(|schedule| schedule.dice.next_u64());
                mishap.partly = Some(SeededRandom::mixed(seed));
                error = Some(Errno::from_raw_os_error(number));
            }
            Verdict::KillsBefore => end(process),
            Verdict::FlipsBit(bit) => mishap.flips = Some(bit),
        }
        if !is_first {
            pass(time);
        }
        let done = act(&mut self.0.lock(), mishap);
        if is_first {
            pass(time);
        }
        error.map_or(done, Err)
    }
}

impl FileSystemState {
    fn end_handles(&mut self) {
        self.generation += 1;
        self.locks.forget();
    }
}

impl Default for FileSystem {
    fn default() -> FileSystem {
        FileSystem::new()
    }
}

impl fmt::Debug for FileSystem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("FileSystem")
    }
}

/// No time: no switch to another coroutine either.
fn pass(time: Duration) {
    if !time.is_zero() {
        schedule::sleep(time);
    }
}

/// Ends the process of the coroutine that runs, which unwinds.
fn end(process: Process) {
    with(|schedule| schedule.kill(process, ProcessEnd::Killed));
    schedule::unwind_if_killed();
}

/// From now on a process sees this file system.
pub(crate) fn mount(process: Process, file_system: &FileSystem) {
    MOUNTS.with_borrow_mut(|mounts| drop(mounts.insert(process, file_system.clone())));
}

/// The world of this thread has ended.
pub(crate) fn unmount_all() {
    for system in MOUNTS.take().into_values() {
        // Also those of coroutines that are not unwound.
        system.forget_locks();
    }
}

/// The file system of the coroutine that runs; `None`: that of the operating system.
///
/// # Errors
/// Its process has none.
pub(super) fn mounted() -> io::Result<Option<FileSystem>> {
    if !schedule::in_world() {
        return Ok(None);
    }
    let Some(process) = schedule::running_process() else { return Ok(None) };
    let found = MOUNTS.with_borrow(|mounts| mounts.get(&process).cloned());
    match found {
        Some(found) => Ok(Some(found)),
        None => Err(io::Error::other(format!("{process:?} has no file system"))),
    }
}
