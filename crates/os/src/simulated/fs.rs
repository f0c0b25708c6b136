//! Files: those of the operating system, and in a world those of a simulated machine.
//!
//! Reading order: [`FileSystem`] (what a test holds: faults, power cuts, a trace), `operation`
//! (what a fault sees, and may do), `volume` (names and files, and what of them is durable),
//! `content` (the bytes of a file), `handle`, `locks`; `file`, `entry` and the functions below are
//! the names of the standard library.
//!
//! A process sees the file system that the test mounted for it; paths begin in its root, relative
//! ones too. What the test itself does, outside of coroutines, reaches the files of the operating
//! system by these names, and the simulated ones by the methods of [`FileSystem`].
//!
//! Not here: owners and rights (a refusal is a fault that the test makes), symbolic links, times.

mod content;
mod entry;
mod file;
mod handle;
mod locks;
mod operation;
mod system;
mod volume;

#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub use entry::{DirEntry, FileType, Metadata, ReadDir};
pub use file::{File, OpenOptions, is_description_locked, lock_description, reserve, space};
pub use operation::{DiskTiming, Operation, OperationKind, TracedOperation, Verdict};
pub use system::FileSystem;
pub(crate) use system::{mount, unmount_all};

use system::{Request, mounted};

/// Read and written at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// As [`std::fs::metadata`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    let Some(system) = mounted()? else { return std::fs::metadata(path).map(Metadata::real) };
    let found = system.operate(Request::new(OperationKind::Look, path), |state, _| {
        state.volume.look(state.volume.resolve(path)?)
    });
    found.map(Metadata::simulated)
}

/// As [`std::fs::symlink_metadata`].
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    match mounted()? {
        Some(_) => metadata(path),
        None => std::fs::symlink_metadata(path).map(Metadata::real),
    }
}

/// As [`std::fs::canonicalize`].
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    if mounted()?.is_none() {
        return std::fs::canonicalize(path);
    }
    metadata(path)?;
    let mut whole = PathBuf::from("/");
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => whole.push(name),
            std::path::Component::ParentDir => drop(whole.pop()),
            _ => {}
        }
    }
    Ok(whole)
}

/// As [`std::fs::read_dir`]; in no order.
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let Some(system) = mounted()? else { return std::fs::read_dir(path).map(ReadDir::real) };
    let mut names = system.operate(Request::new(OperationKind::List, path), |state, _| {
        state.volume.list(state.volume.resolve(path)?)
    })?;
    super::schedule::with(|schedule| {
        for at in 1..names.len() {
            names.swap(at, schedule.dice.index(at + 1));
        }
    });
    Ok(ReadDir::simulated(path.to_owned(), names))
}

/// As [`std::fs::rename`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let Some(system) = mounted()? else { return std::fs::rename(from, to) };
    let request = Request { to: Some(to), ..Request::new(OperationKind::Rename, from) };
    system.operate(request, |state, _| state.volume.rename(from, to))
}

/// As [`std::fs::hard_link`].
pub fn hard_link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let Some(system) = mounted()? else { return std::fs::hard_link(from, to) };
    let request = Request { to: Some(to), ..Request::new(OperationKind::Link, from) };
    system.operate(request, |state, _| state.volume.link(from, to))
}

/// As [`std::fs::remove_file`].
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let Some(system) = mounted()? else { return std::fs::remove_file(path) };
    let request = Request::new(OperationKind::Remove, path);
    system.operate(request, |state, _| state.volume.remove_file(path))
}

/// As [`std::fs::remove_dir`].
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let Some(system) = mounted()? else { return std::fs::remove_dir(path) };
    let request = Request::new(OperationKind::RemoveFolder, path);
    system.operate(request, |state, _| state.volume.remove_folder(path))
}

/// As [`std::fs::remove_dir_all`]: many operations.
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    if mounted()?.is_none() {
        return std::fs::remove_dir_all(path);
    }
    for entry in read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_dir_all(entry.path())?;
        } else {
            remove_file(entry.path())?;
        }
    }
    remove_dir(path)
}

/// As [`std::fs::create_dir`].
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// As [`std::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// As [`std::fs::read`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if mounted()?.is_none() {
        return std::fs::read(path);
    }
    read_all(&File::open(path)?)
}

/// As [`std::fs::read_to_string`].
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    if mounted()?.is_none() {
        return std::fs::read_to_string(path);
    }
    let text = String::from_utf8(read_all(&File::open(path)?)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// As [`std::fs::write`]: it makes or empties the file, and then writes it.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let path = path.as_ref();
    if mounted()?.is_none() {
        return std::fs::write(path, bytes);
    }
    io::Write::write_all(&mut File::create(path)?, bytes.as_ref())
}

/// As [`std::fs::copy`].
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    if mounted()?.is_none() {
        return std::fs::copy(from, to);
    }
    let from = File::open(from)?;
    if !from.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    let mut to = File::create(to)?;
    let bytes = read_all(&from)?;
    io::Write::write_all(&mut to, &bytes)?;
    Ok(bytes.len() as u64)
}

/// In as few reads as can be.
fn read_all(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let (filled, length) = (bytes.len(), file.metadata()?.len());
        let left = length.saturating_sub(filled as u64).min(PIECE_BYTES as u64);
        bytes.resize(filled + usize::try_from(left).unwrap_or(0) + 1, 0);
        let count = io::Read::read(&mut &*file, &mut bytes[filled..])?;
        let is_whole = count < bytes.len() - filled;
        bytes.truncate(filled + count);
        if is_whole {
            return Ok(bytes);
        }
    }
}

/// As [`std::fs::DirBuilder`].
#[derive(Debug)]
pub struct DirBuilder {
    real: std::fs::DirBuilder,
    mode: u32,
    is_recursive: bool,
}

impl DirBuilder {
    /// One folder at a time.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as in the standard library")]
    pub fn new() -> DirBuilder {
        DirBuilder { real: std::fs::DirBuilder::new(), mode: 0o755, is_recursive: false }
    }

    /// Also those above it that are missing; the folder may be there.
    pub fn recursive(&mut self, is_recursive: bool) -> &mut DirBuilder {
        self.real.recursive(is_recursive);
        self.is_recursive = is_recursive;
        self
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let Some(system) = mounted()? else { return self.real.create(path) };
        let make = |path: &Path| {
            let request = Request::new(OperationKind::MakeFolder, path);
            system.operate(request, |state, _| state.volume.make_folder(path, self.mode))
        };
        if !self.is_recursive {
            return make(path);
        }
        let is_there = |made: io::Result<()>| if is_dir(path) { Ok(()) } else { made };
        match make(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.create(path.parent().unwrap_or(Path::new("/")))?;
                make(path).or_else(|error| is_there(Err(error)))
            }
            made => made.or_else(|error| is_there(Err(error))),
        }
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.real.mode(mode);
        self.mode = mode;
        self
    }
}

fn is_dir(path: &Path) -> bool {
    metadata(path).is_ok_and(|found| found.is_dir())
}
