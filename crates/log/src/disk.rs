//! The one seam to the disk. What the log needs from a folder of files, and no more.
//!
//! Everything behind it may fail or be slow; [`LinuxDisk`] is the real one, [`MemoryDisk`] loses
//! unsynced bytes on request, [`DelayDisk`] makes another one slow, [`ScratchDisk`] writes beside
//! the files of another one.
//!
//! Invariants of callers: buffers, offsets and lengths are multiples of 4 KiB and buffers are
//! aligned to 4 KiB (so that direct I/O works); each byte range has one writer at a time.

mod crash;
mod delay;
mod journal;
mod linux;
mod memory;
mod scratch;

use std::io;
use std::sync::Arc;

pub use crash::{CrashPoint, CrashRule};
pub use delay::DelayDisk;
pub use journal::Journal;
pub use linux::LinuxDisk;
pub use memory::{Fault, FaultOn, MemoryDisk};
pub use scratch::{ScratchDisk, SharedFile};

/// Free and total space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// All that it can hold.
    pub bytes_max: u64,
    /// What this process can still write.
    pub bytes_free: u64,
}

/// A folder that holds one log.
pub trait Disk: Send + Sync {
    /// Makes an empty file, or empties the one that is there.
    ///
    /// # Errors
    /// What the operating system says.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// What the operating system says; `NotFound` when it is not there.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Renames a file, over `to` if that is there. Open handles stay valid.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles stay valid.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Names and lengths of all files, in no order.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let names = self.names()?.into_iter();
        names.map(|name| self.length(&name).map(|length| (name, length))).collect()
    }

    /// Names of all files, in no order; at the cost of one look into the folder, however many files
    /// there are.
    ///
    /// # Errors
    /// What the operating system says.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Length of a file.
    ///
    /// # Errors
    /// What the operating system says; `NotFound` when it is not there.
    fn length(&self, name: &str) -> io::Result<u64>;

    /// Returns when all creations, renames and removals so far will survive a power cut.
    ///
    /// # Errors
    /// What the operating system says. Fatal to the log.
    fn sync_names(&self) -> io::Result<()>;

    /// How much the file system of the folder can hold; `None` when that is not known.
    fn file_system(&self) -> Option<FileSystem>;

    /// Bytes that new files can still take; `u64::MAX` when that is not known.
    fn free_bytes(&self) -> u64 {
        self.file_system().map_or(u64::MAX, |found| found.bytes_free)
    }

    /// What to call the folder in messages.
    fn name(&self) -> String;

    /// Whether files are read and written through the page cache, without direct I/O: then a read
    /// may find there what a failed sync left out, and no later sync would write.
    fn is_buffered(&self) -> bool;
}

/// One file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes` at `offset`, growing the file when needed.
    ///
    /// # Errors
    /// What the operating system says; what is then in the range is not known.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Fills `bytes` from `offset` on; returns how many there were before the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns when all writes that ended before this call will survive a power cut.
    ///
    /// # Errors
    /// What the operating system says. Fatal to the log, never retried: the kernel may have marked
    /// the lost pages clean.
    fn sync_data(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no byte.
    ///
    /// # Errors
    /// What the operating system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets space aside for the first `bytes` bytes without making the file longer, so that filling
    /// them cannot run out of disk. Does nothing where the file system cannot.
    ///
    /// # Errors
    /// `StorageFull` when there is no free space.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file `bytes` bytes long, which is not longer than it was, and gives what was set
    /// aside behind that back to the file system. Survives a power cut after the next sync.
    ///
    /// # Errors
    /// What the operating system says; the length is then the old or the new one.
    fn cut(&self, bytes: u64) -> io::Result<()>;
}
