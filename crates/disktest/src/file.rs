//! The file that the disk tester writes: made, filled with zeros, written in several ways, and gone
//! afterwards.
//!
//! It keeps its name while it is used, because some file systems treat a file without a name
//! differently in a sync. Not here: what is measured; how it goes in the end (`guard`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::guard::{GuardedName, Itself};

/// What direct I/O is aligned to on every disk of today, and the unit of the recovery log.
pub(crate) const BLOCK_BYTES_UNIT: u64 = 4096;
/// Bytes of one write while the file is made.
const ZEROS_BYTES: usize = 1 << 20;

/// A way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// O_DIRECT and O_DSYNC.
    DirectDsync,
    /// Page cache and fdatasync.
    BufferedSync,
    /// O_DIRECT and fdatasync: how the recovery log writes.
    DirectSync,
    /// O_DIRECT alone: as far as the disk's own cache.
    Direct,
    /// Page cache alone: as far as memory.
    Buffered,
}

impl Way {
    /// Word in tables and JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::DirectDsync => "direct-dsync",
            Way::BufferedSync => "buffered-sync",
            Way::DirectSync => "direct-sync",
            Way::Direct => "direct",
            Way::Buffered => "buffered",
        }
    }

    fn flags(self) -> OFlags {
        match self {
            Way::DirectDsync => OFlags::DIRECT | OFlags::DSYNC,
            Way::DirectSync | Way::Direct => OFlags::DIRECT,
            Way::BufferedSync | Way::Buffered => OFlags::empty(),
        }
    }

    const fn syncs_after_each_write(self) -> bool {
        match self {
            Way::BufferedSync | Way::DirectSync => true,
            Way::DirectDsync | Way::Direct | Way::Buffered => false,
        }
    }
}

/// The file. It is removed when this is dropped, and when the process ends.
#[derive(Debug)]
pub(crate) struct TestFile {
    place: GuardedName,
    bytes: u64,
}

impl TestFile {
    /// Makes it in `folder`, filled with zeros and synced. `progress` gets the bytes so far.
    ///
    /// # Errors
    /// No free space, no permission, no such folder.
    pub(crate) fn make(
        folder: &Path,
        bytes: u64,
        itself: Itself<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<TestFile> {
        let free_bytes = free_bytes(folder)?;
        if free_bytes < bytes {
            let what = format!("no room: {bytes} bytes are needed, {free_bytes} are free");
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        let place = GuardedName::new(folder, "log", itself)?;
        let made = TestFile { place, bytes };
        made.fill(progress)?;
        Ok(made)
    }

    fn fill(&self, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(self.place.path())?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut at = 0;
        while at < self.bytes {
            let count = (self.bytes - at).min(ZEROS_BYTES as u64);
            let count = usize::try_from(count).unwrap_or(ZEROS_BYTES);
            file.write_all_at(zeros.get(..count).unwrap_or(&zeros), at)?;
            at += count as u64;
            progress(at);
        }
        file.sync_all()?;
        self.place.sync_folder()
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Opens it for one way of writing.
    ///
    /// # Errors
    /// Direct I/O that the file system does not take, among others.
    pub(crate) fn open(&self, way: Way) -> io::Result<Writer> {
        Writer::open(self.place.path(), way)
    }
}

/// The file, open for one way of writing.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    way: Way,
}

impl Writer {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// Direct I/O that the file system does not take, among others.
    pub(crate) fn open(path: &Path, way: Way) -> io::Result<Writer> {
        let flags = (way.flags() | OFlags::NOFOLLOW).bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        Ok(Writer { file, way })
    }

    /// One write, and its sync when the way has one.
    ///
    /// # Errors
    /// Of the write or the sync.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)?;
        if self.way.syncs_after_each_write() { self.file.sync_data() } else { Ok(()) }
    }

    /// Syncs what was written.
    ///
    /// # Errors
    /// Of the sync.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Whether an error says that direct I/O is not possible, and not that the disk failed.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Bytes that may still be written in a folder. A file system that does not count any has free
/// space until it says otherwise.
fn free_bytes(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    if found.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// A buffer that begins where direct I/O wants it.
#[derive(Debug)]
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    /// `bytes` of noise: nothing between us and the disk can make it smaller.
    pub(crate) fn noise(bytes: u64, seed: u64) -> Aligned {
        let unit = usize::try_from(BLOCK_BYTES_UNIT).unwrap_or(1);
        let bytes = usize::try_from(bytes).unwrap_or(unit);
        let mut memory = vec![0; bytes + unit];
        let start = memory.as_ptr().align_offset(unit);
        assert!(start < unit, "a byte pointer can always be aligned");
        let mut state = seed | 1;
        for place in memory.chunks_exact_mut(8) {
            // Marsaglia's xorshift64: only has to look random.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            place.copy_from_slice(&state.to_le_bytes());
        }
        Aligned { memory, start, bytes }
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.start + self.bytes).unwrap_or(&[])
    }

    /// The bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.bytes).unwrap_or(&mut [])
    }

    /// Makes each 4 KiB of it different from all before: nothing is written that is there already.
    pub(crate) fn stamp(&mut self, number: u64) {
        let unit = usize::try_from(BLOCK_BYTES_UNIT).unwrap_or(1);
        for block in self.bytes_mut().chunks_mut(unit) {
            if let Some(place) = block.first_chunk_mut() {
                *place = number.to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_aligned_and_changes_with_each_stamp() {
        let mut buffer = Aligned::noise(3 * BLOCK_BYTES_UNIT, 5);
        assert_eq!(buffer.bytes().len(), 3 * 4096);
        assert_eq!(buffer.bytes().as_ptr().align_offset(4096), 0);
        let before = buffer.bytes().to_vec();
        buffer.stamp(7);
        for (new, old) in buffer.bytes().chunks(4096).zip(before.chunks(4096)) {
            assert_eq!(new[..8], 7_u64.to_le_bytes());
            assert_eq!(new[8..], old[8..]);
        }
    }

    #[test]
    fn a_refusal_of_direct_io_is_no_failure_of_the_disk() {
        let refused = |errno: rustix::io::Errno| is_refusal(&errno.into());
        assert!(refused(rustix::io::Errno::INVAL) && refused(rustix::io::Errno::OPNOTSUPP));
        assert!(!refused(rustix::io::Errno::IO) && !refused(rustix::io::Errno::NOSPC));
    }

    #[test]
    fn a_file_larger_than_the_disk_is_refused_before_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let itself = Itself { program: Path::new("/nowhere"), part: "" };
        let error = TestFile::make(folder.path(), u64::MAX / 2, itself, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
