//! What slots are written to: the file, and in tests one of which each moment is looked at.
//!
//! Not here: what is written, and in which order. Invariant: what `sync` returned for is on the
//! disk.

use std::io;

use towline_os::fs::{File, FileExt};

/// See the module. All of it is blocking.
pub(super) trait Medium {
    /// Waits until no other handle of the file, of this process or of another one, has it.
    fn lock(&self) -> io::Result<()>;
    fn unlock(&self) -> io::Result<()>;
    /// All bytes.
    fn content(&self) -> io::Result<Vec<u8>>;
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// What was written is on the disk when this returns.
    fn sync(&self) -> io::Result<()>;
}

impl Medium for File {
    fn lock(&self) -> io::Result<()> {
        File::lock(self)
    }

    fn unlock(&self) -> io::Result<()> {
        File::unlock(self)
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; super::FILE_BYTES];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
