//! An open file of a simulated file system.
//!
//! Not here: files of the operating system, and what readers and writers of the standard library
//! need (`file`).
//!
//! Invariant: a handle is closed once, also when its process was killed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::locks::{Holder, LockKind};
use super::operation::OperationKind;
use super::system::{FileSystem, FileSystemState, Mishap, MountedFileSystem, Request};
use super::volume::{Attributes, InodeId, Opening};
use crate::simulated::schedule::{self, Process, TaskId, with};

/// What a direct transfer must be a multiple of.
const DIRECT_BYTES: usize = 512;
/// A lock of a process that was killed is noticed so late at most.
const LOCK_PATIENCE: Duration = Duration::from_millis(10);

/// Which transfers a handle takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) appends: bool,
    pub(super) is_direct: bool,
}

#[derive(Debug)]
pub(super) struct FileHandle {
    system: MountedFileSystem,
    path: PathBuf,
    inode: InodeId,
    number: u64,
    generation: u64,
    process: Process,
    access: Access,
    position: AtomicU64,
    /// Failed syncs of the file that this handle was told of, or that were before it was opened.
    failed_syncs_reported: AtomicU64,
    /// How many syncs had failed when a task wrote directly last, of those that have not synced it.
    wrote: Mutex<BTreeMap<TaskId, u64>>,
}

impl FileHandle {
    pub(super) fn open(
        system: FileSystem,
        path: &Path,
        access: Access,
        how: Opening,
    ) -> io::Result<FileHandle> {
        let makes = how.creates || how.creates_new || how.truncates;
        let kind = if makes { OperationKind::Create } else { OperationKind::Open };
        let opened = system.operate(Request::new(kind, path), |state, _| {
            if access.is_direct && !state.takes_direct {
                return Err(Errno::INVAL);
            }
            let inode = state.volume.open(path, how)?;
            state.handles_made += 1;
            // Whoever asked may be gone when this returns: then the handle is closed.
            Ok(Opened {
                system: system.clone(),
                inode,
                failed_syncs: state.volume.failed_syncs(inode),
                number: state.handles_made,
                generation: state.generation,
                is_open: true,
            })
        })?;
        let process = schedule::in_world().then(schedule::running_process).flatten();
        Ok(opened.handle(path, access, process.unwrap_or(Process(0))))
    }

    fn request(&self, kind: OperationKind, offset: u64, length: u64) -> Request<'_> {
        Request { kind, path: &self.path, to: None, offset, length }
    }

    fn operate<T>(
        &self,
        request: Request<'_>,
        act: impl FnOnce(&mut FileSystemState, Mishap) -> Result<T, Errno>,
    ) -> io::Result<T> {
        self.system.get()?.operate(request, |state, mishap| {
            if state.generation != self.generation {
                // The power of the machine went meanwhile.
                return Err(Errno::IO);
            }
            act(state, mishap)
        })
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if !self.access.reads {
            return Err(Errno::BADF.into());
        }
        self.check_direct(buffer, offset)?;
        let request = self.request(OperationKind::Read, offset, buffer.len() as u64);
        self.operate(request, |state, mishap| {
            let count = state.volume.read(self.inode, buffer, offset)?;
            if let Some(bit) = mishap.flips.filter(|_| count > 0) {
                let bit = bit % (count as u64 * 8);
                let byte = usize::try_from(bit / 8).unwrap_or(0);
                buffer[byte] ^= 1 << (bit % 8);
            }
            Ok(count)
        })
    }

    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if !self.access.writes {
            return Err(Errno::BADF.into());
        }
        self.check_direct(bytes, offset)?;
        let request = self.request(OperationKind::Write, offset, bytes.len() as u64);
        self.operate(request, |state, _| {
            // As Linux has it: at the end, whatever the offset.
            let appends = self.access.appends;
            if self.access.is_direct
                && let Some(task) = schedule::running()
            {
                self.wrote.lock().insert(task, state.volume.failed_syncs(self.inode));
            }
            let at = if appends { state.volume.look(self.inode)?.length } else { offset };
            state.volume.write(self.inode, bytes, at)
        })
    }

    fn check_direct(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let is_aligned = buffer.as_ptr().addr().is_multiple_of(DIRECT_BYTES)
            && buffer.len().is_multiple_of(DIRECT_BYTES)
            && offset.is_multiple_of(DIRECT_BYTES as u64);
        if self.access.is_direct && !is_aligned { Err(Errno::INVAL.into()) } else { Ok(()) }
    }

    /// Reads where the handle stands, and moves it on.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(buffer, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    /// Writes where the handle stands, or at the end, and moves it on.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.access.appends {
            self.position.store(self.found()?.length, Ordering::Relaxed);
        }
        let count = self.write_at(bytes, self.position.load(Ordering::Relaxed))?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    pub(super) fn seek(&self, to: io::SeekFrom) -> io::Result<u64> {
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::End(by) => self.found()?.length.checked_add_signed(by),
            io::SeekFrom::Current(by) => {
                self.position.load(Ordering::Relaxed).checked_add_signed(by)
            }
        };
        let at = at.ok_or(Errno::INVAL)?;
        self.position.store(at, Ordering::Relaxed);
        Ok(at)
    }

    /// Fails with another one that failed, in the way of Linux. What a flush of the medium loses
    /// each thread hears of that wrote directly before it and syncs after it. What the system fails
    /// to write from its memory it reports once to each open file (errseq), so to one of two
    /// threads that share one.
    pub(super) fn sync(&self) -> io::Result<()> {
        let since_write = schedule::running().and_then(|task| self.wrote.lock().remove(&task));
        let failed_now = self.system.get()?.with(|state| state.volume.failed_syncs(self.inode));
        let is_direct = self.access.is_direct;
        self.operate(self.request(OperationKind::Sync, 0, 0), |state, mut mishap| {
            let failed = state.volume.failed_syncs(self.inode);
            let reported = self.failed_syncs_reported.swap(failed, Ordering::Relaxed);
            let known = if is_direct { since_write.unwrap_or(failed_now) } else { reported };
            if known != failed {
                return Err(Errno::IO);
            }
            let synced = state.volume.sync(self.inode, is_direct, mishap.partly.as_mut());
            let failed = state.volume.failed_syncs(self.inode);
            self.failed_syncs_reported.store(failed, Ordering::Relaxed);
            synced
        })
    }

    pub(super) fn found(&self) -> io::Result<Attributes> {
        self.operate(self.request(OperationKind::Look, 0, 0), |state, _| {
            state.volume.look(self.inode)
        })
    }

    pub(super) fn set_length(&self, length: u64) -> io::Result<()> {
        if !self.access.writes {
            return Err(Errno::INVAL.into());
        }
        self.operate(self.request(OperationKind::SetLength, 0, length), |state, _| {
            state.volume.set_length(self.inode, length)
        })
    }

    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        if !self.access.writes {
            return Err(Errno::BADF.into());
        }
        self.operate(self.request(OperationKind::Reserve, 0, bytes), |state, _| {
            state.volume.reserve(self.inode, bytes)
        })
    }

    /// All that the file system can hold, and what is free, in bytes.
    pub(super) fn space(&self) -> io::Result<(u64, u64)> {
        let request = self.request(OperationKind::Look, 0, 0);
        self.operate(request, |state, _| Ok(state.volume.space()))
    }

    fn holder(&self) -> Holder {
        Holder { inode: self.inode, handle: self.number, process: self.process }
    }

    /// Takes a lock; false when another handle has it.
    pub(super) fn try_lock(&self, kind: LockKind, is_exclusive: bool) -> io::Result<bool> {
        let request = self.request(OperationKind::Lock, 0, 0);
        self.operate(request, |state, _| Ok(state.locks.take(kind, self.holder(), is_exclusive)))
    }

    /// Whether another handle has a lock that excludes an exclusive one.
    pub(super) fn is_locked(&self, kind: LockKind) -> io::Result<bool> {
        let request = self.request(OperationKind::Lock, 0, 0);
        self.operate(request, |state, _| Ok(state.locks.is_held(kind, self.holder(), true)))
    }

    /// Waits for the lock of flock(2).
    pub(super) fn lock(&self, is_exclusive: bool) -> io::Result<()> {
        while !self.try_lock(LockKind::Flock, is_exclusive)? {
            let Some(id) = schedule::in_world().then(schedule::running).flatten() else {
                return Err(Errno::WOULDBLOCK.into());
            };
            let system = self.system.get()?;
            system.with(|state| state.locks.waiting.push(id));
            // Also when the wait unwinds.
            let waits = Waits { system: &system, id };
            let until = with(|schedule| schedule.now_us).saturating_add(patience_us());
            schedule::wait(Some(until));
            drop(waits);
        }
        Ok(())
    }

    pub(super) fn unlock(&self) -> io::Result<()> {
        self.operate(self.request(OperationKind::Lock, 0, 0), |state, _| {
            state.locks.give(LockKind::Flock, self.number);
            Ok(())
        })
    }
}

fn patience_us() -> u64 {
    u64::try_from(LOCK_PATIENCE.as_micros()).unwrap_or(u64::MAX)
}

struct Waits<'a> {
    system: &'a FileSystem,
    id: TaskId,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.system.with(|state| state.locks.waiting.retain(|id| *id != self.id));
    }
}

/// A file that is open, before it is a handle.
struct Opened {
    system: FileSystem,
    inode: InodeId,
    number: u64,
    failed_syncs: u64,
    generation: u64,
    is_open: bool,
}

impl Opened {
    fn handle(mut self, path: &Path, access: Access, process: Process) -> FileHandle {
        self.is_open = false;
        FileHandle {
            system: self.system.mounted(),
            path: path.to_owned(),
            inode: self.inode,
            number: self.number,
            generation: self.generation,
            process,
            access,
            position: AtomicU64::new(0),
            failed_syncs_reported: AtomicU64::new(self.failed_syncs),
            wrote: Mutex::default(),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_open {
            close(&self.system, self.inode, self.number, self.generation);
        }
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if let Ok(system) = self.system.get() {
            close(&system, self.inode, self.number, self.generation);
        }
    }
}

/// Takes no time: also a coroutine that unwinds closes its files.
fn close(system: &FileSystem, inode: InodeId, number: u64, generation: u64) {
    system.with(|state| {
        if state.generation == generation {
            state.volume.close(inode);
            state.locks.give(LockKind::Flock, number);
            state.locks.give(LockKind::OpenFileDescription, number);
        }
    });
}
