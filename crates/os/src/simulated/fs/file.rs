//! Files under the names of the standard library: those of the operating system, and in a world
//! those of a simulated file system.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::io::Errno;

use super::entry::Metadata;
use super::handle::{Access, FileHandle};
use super::locks::LockKind;
use super::system::mounted;
use super::volume::Opening;
use crate::fs::{Space, TryLockError, real};

/// As [`std::fs::File`].
#[derive(Debug)]
pub struct File(OpenFile);

#[derive(Debug)]
enum OpenFile {
    Real(std::fs::File),
    Simulated(FileHandle),
}

impl File {
    /// Opens a file or a folder to read it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Makes a file, or empties the one that is there, to write it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file that is not there, to read and write it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Ways to open one.
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// What was written is on the medium when this returns; of a folder, the names in it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync_all(&self) -> io::Result<()> {
        match &self.0 {
            OpenFile::Real(file) => file.sync_all(),
            OpenFile::Simulated(handle) => handle.sync(),
        }
    }

    /// The same, without times.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync_data(&self) -> io::Result<()> {
        match &self.0 {
            OpenFile::Real(file) => file.sync_data(),
            OpenFile::Simulated(handle) => handle.sync(),
        }
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.0 {
            OpenFile::Real(file) => file.metadata().map(Metadata::real),
            OpenFile::Simulated(handle) => handle.found().map(Metadata::simulated),
        }
    }

    /// Cuts the file, or adds zeros.
    ///
    /// # Errors
    /// What the file system says.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        match &self.0 {
            OpenFile::Real(file) => file.set_len(length),
            OpenFile::Simulated(handle) => handle.set_length(length),
        }
    }

    /// Waits until no other handle has a lock, and takes it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn lock(&self) -> io::Result<()> {
        match &self.0 {
            OpenFile::Real(file) => file.lock(),
            OpenFile::Simulated(handle) => handle.lock(true),
        }
    }

    /// Takes the lock if no other handle has one.
    ///
    /// # Errors
    /// Another one has; what the file system says.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        match &self.0 {
            OpenFile::Real(file) => file.try_lock(),
            OpenFile::Simulated(handle) => taken(handle.try_lock(LockKind::Flock, true)),
        }
    }

    /// Takes a lock together with others that share it, if none has it for itself.
    ///
    /// # Errors
    /// Another one has; what the file system says.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        match &self.0 {
            OpenFile::Real(file) => file.try_lock_shared(),
            OpenFile::Simulated(handle) => taken(handle.try_lock(LockKind::Flock, false)),
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// What the file system says.
    pub fn unlock(&self) -> io::Result<()> {
        match &self.0 {
            OpenFile::Real(file) => file.unlock(),
            OpenFile::Simulated(handle) => handle.unlock(),
        }
    }
}

fn taken(taken: io::Result<bool>) -> Result<(), TryLockError> {
    if taken.map_err(TryLockError::Error)? { Ok(()) } else { Err(TryLockError::WouldBlock) }
}

/// As `crate::fs::reserve`.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match &file.0 {
        OpenFile::Real(file) => real::reserve(file, bytes),
        OpenFile::Simulated(handle) => handle.reserve(bytes),
    }
}

/// As `crate::fs::space`.
pub fn space(file: &File) -> io::Result<Space> {
    match &file.0 {
        OpenFile::Real(file) => real::space(file),
        OpenFile::Simulated(handle) => {
            handle.space().map(|(bytes_max, bytes_free)| Space { bytes_max, bytes_free })
        }
    }
}

/// As `crate::fs::lock_description`.
pub fn lock_description(file: &File) -> io::Result<()> {
    match &file.0 {
        OpenFile::Real(file) => real::lock_description(file),
        OpenFile::Simulated(handle) => {
            let is_ours = handle.try_lock(LockKind::OpenFileDescription, true)?;
            if is_ours { Ok(()) } else { Err(Errno::AGAIN.into()) }
        }
    }
}

/// As `crate::fs::is_description_locked`.
pub fn is_description_locked(file: &File) -> io::Result<bool> {
    match &file.0 {
        OpenFile::Real(file) => real::is_description_locked(file),
        OpenFile::Simulated(handle) => handle.is_locked(LockKind::OpenFileDescription),
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            OpenFile::Real(file) => file.read_at(buffer, offset),
            OpenFile::Simulated(handle) => handle.read_at(buffer, offset),
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match &self.0 {
            OpenFile::Real(file) => file.write_at(bytes, offset),
            OpenFile::Simulated(handle) => handle.write_at(bytes, offset),
        }
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            OpenFile::Real(file) => Read::read(&mut &*file, buffer),
            OpenFile::Simulated(handle) => handle.read(buffer),
        }
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            OpenFile::Real(file) => Write::write(&mut &*file, bytes),
            OpenFile::Simulated(handle) => handle.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match &self.0 {
            OpenFile::Real(file) => Seek::seek(&mut &*file, to),
            OpenFile::Simulated(handle) => handle.seek(to),
        }
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Read::read(&mut &*self, buffer)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Seek::seek(&mut &*self, to)
    }
}

/// As [`std::fs::OpenOptions`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    real: std::fs::OpenOptions,
    access: Access,
    how: Opening,
}

impl OpenOptions {
    /// Nothing is asked for yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as in the standard library")]
    pub fn new() -> OpenOptions {
        let how = Opening { mode: 0o644, ..Opening::default() };
        OpenOptions { real: std::fs::OpenOptions::new(), access: Access::default(), how }
    }

    /// To read.
    pub fn read(&mut self, reads: bool) -> &mut OpenOptions {
        self.real.read(reads);
        self.access.reads = reads;
        self
    }

    /// To write.
    pub fn write(&mut self, writes: bool) -> &mut OpenOptions {
        self.real.write(writes);
        self.access.writes = writes;
        self
    }

    /// To write at the end.
    pub fn append(&mut self, appends: bool) -> &mut OpenOptions {
        self.real.append(appends);
        self.access.appends = appends;
        self
    }

    /// And empties it.
    pub fn truncate(&mut self, truncates: bool) -> &mut OpenOptions {
        self.real.truncate(truncates);
        self.how.truncates = truncates;
        self
    }

    /// And makes it, if it is not there.
    pub fn create(&mut self, creates: bool) -> &mut OpenOptions {
        self.real.create(creates);
        self.how.creates = creates;
        self
    }

    /// And makes it; it must not be there.
    pub fn create_new(&mut self, creates: bool) -> &mut OpenOptions {
        self.real.create_new(creates);
        self.how.creates_new = creates;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let Some(system) = mounted()? else {
            return Ok(File(OpenFile::Real(self.real.open(path)?)));
        };
        let mut access = self.access;
        access.writes |= access.appends;
        let makes = self.how.creates || self.how.creates_new || self.how.truncates;
        let is_asked = if makes { access.writes } else { access.reads || access.writes };
        if !is_asked {
            return Err(Errno::INVAL.into());
        }
        let how = Opening { writes: access.writes, ..self.how };
        Ok(File(OpenFile::Simulated(FileHandle::open(system, path, access, how)?)))
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.real.mode(mode);
        self.how.mode = mode;
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.real.custom_flags(flags);
        let flags = rustix::fs::OFlags::from_bits_retain(flags.cast_unsigned());
        self.access.is_direct = flags.contains(rustix::fs::OFlags::DIRECT);
        self
    }
}
