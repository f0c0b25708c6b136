//! What is known of a file, and the entries of a folder, under the names of the standard library.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::content::BLOCK_BYTES;
use super::volume::Attributes;

/// As [`std::fs::Metadata`].
#[derive(Clone, Debug)]
pub struct Metadata(Knowledge);

#[derive(Clone, Debug)]
enum Knowledge {
    Real(std::fs::Metadata),
    Simulated(Attributes),
}

impl Metadata {
    pub(super) fn real(metadata: std::fs::Metadata) -> Metadata {
        Metadata(Knowledge::Real(metadata))
    }

    pub(super) fn simulated(found: Attributes) -> Metadata {
        Metadata(Knowledge::Simulated(found))
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "as in the standard library")]
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Knowledge::Real(metadata) => metadata.len(),
            Knowledge::Simulated(found) => found.length,
        }
    }

    /// File or folder.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        match &self.0 {
            Knowledge::Real(metadata) => FileType::real(metadata.file_type()),
            Knowledge::Simulated(found) => FileType::simulated(found.is_folder),
        }
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    fn get(
        &self,
        real: impl FnOnce(&std::fs::Metadata) -> u64,
        simulated: impl FnOnce(&Attributes) -> u64,
    ) -> u64 {
        match &self.0 {
            Knowledge::Real(metadata) => real(metadata),
            Knowledge::Simulated(found) => simulated(found),
        }
    }
}

/// Simulated files belong to the user of the test, and have no times.
impl MetadataExt for Metadata {
    fn dev(&self) -> u64 {
        self.get(MetadataExt::dev, |_| 1)
    }

    fn ino(&self) -> u64 {
        self.get(MetadataExt::ino, |found| found.inode.number())
    }

    fn mode(&self) -> u32 {
        match &self.0 {
            Knowledge::Real(metadata) => metadata.mode(),
            Knowledge::Simulated(found) => {
                found.mode | if found.is_folder { 0o040_000 } else { 0o100_000 }
            }
        }
    }

    fn nlink(&self) -> u64 {
        self.get(MetadataExt::nlink, |found| found.links)
    }

    fn uid(&self) -> u32 {
        match &self.0 {
            Knowledge::Real(metadata) => metadata.uid(),
            Knowledge::Simulated(_) => rustix::process::geteuid().as_raw(),
        }
    }

    fn gid(&self) -> u32 {
        match &self.0 {
            Knowledge::Real(metadata) => metadata.gid(),
            Knowledge::Simulated(_) => rustix::process::getegid().as_raw(),
        }
    }

    fn rdev(&self) -> u64 {
        self.get(MetadataExt::rdev, |_| 0)
    }

    fn size(&self) -> u64 {
        self.len()
    }

    fn atime(&self) -> i64 {
        self.time(MetadataExt::atime)
    }

    fn atime_nsec(&self) -> i64 {
        self.time(MetadataExt::atime_nsec)
    }

    fn mtime(&self) -> i64 {
        self.time(MetadataExt::mtime)
    }

    fn mtime_nsec(&self) -> i64 {
        self.time(MetadataExt::mtime_nsec)
    }

    fn ctime(&self) -> i64 {
        self.time(MetadataExt::ctime)
    }

    fn ctime_nsec(&self) -> i64 {
        self.time(MetadataExt::ctime_nsec)
    }

    fn blksize(&self) -> u64 {
        self.get(MetadataExt::blksize, |_| BLOCK_BYTES as u64)
    }

    fn blocks(&self) -> u64 {
        self.get(MetadataExt::blocks, |found| found.blocks * (BLOCK_BYTES as u64 / 512))
    }
}

impl Metadata {
    fn time(&self, real: impl FnOnce(&std::fs::Metadata) -> i64) -> i64 {
        match &self.0 {
            Knowledge::Real(metadata) => real(metadata),
            Knowledge::Simulated(_) => 0,
        }
    }
}

/// As [`std::fs::FileType`]; a simulated file system has no links that are symbolic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    is_folder: bool,
    is_file: bool,
    is_link: bool,
}

impl FileType {
    pub(super) fn real(found: std::fs::FileType) -> FileType {
        let (is_folder, is_file, is_link) = (found.is_dir(), found.is_file(), found.is_symlink());
        FileType { is_folder, is_file, is_link }
    }

    pub(super) fn simulated(is_folder: bool) -> FileType {
        FileType { is_folder, is_file: !is_folder, is_link: false }
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.is_folder
    }

    /// Whether it is a file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.is_link
    }
}

/// As [`std::fs::DirEntry`].
#[derive(Debug)]
pub struct DirEntry(Entry);

#[derive(Debug)]
enum Entry {
    Real(std::fs::DirEntry),
    Simulated { folder: PathBuf, name: OsString, found: Attributes },
}

impl DirEntry {
    /// Its name in the folder.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        match &self.0 {
            Entry::Real(entry) => entry.file_name(),
            Entry::Simulated { name, .. } => name.clone(),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match &self.0 {
            Entry::Real(entry) => entry.path(),
            Entry::Simulated { folder, name, .. } => folder.join(name),
        }
    }

    /// File or folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn file_type(&self) -> io::Result<FileType> {
        match &self.0 {
            Entry::Real(entry) => entry.file_type().map(FileType::real),
            Entry::Simulated { found, .. } => Ok(FileType::simulated(found.is_folder)),
        }
    }

    /// What was known of it when the folder was listed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match &self.0 {
            Entry::Real(entry) => entry.metadata().map(Metadata::real),
            Entry::Simulated { found, .. } => Ok(Metadata::simulated(*found)),
        }
    }
}

/// As [`std::fs::ReadDir`].
#[derive(Debug)]
pub struct ReadDir(Entries);

#[derive(Debug)]
enum Entries {
    Real(std::fs::ReadDir),
    Simulated { folder: PathBuf, left: std::vec::IntoIter<(OsString, Attributes)> },
}

impl ReadDir {
    pub(super) fn real(entries: std::fs::ReadDir) -> ReadDir {
        ReadDir(Entries::Real(entries))
    }

    pub(super) fn simulated(folder: PathBuf, entries: Vec<(OsString, Attributes)>) -> ReadDir {
        ReadDir(Entries::Simulated { folder, left: entries.into_iter() })
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        match &mut self.0 {
            Entries::Real(entries) => {
                Some(entries.next()?.map(|entry| DirEntry(Entry::Real(entry))))
            }
            Entries::Simulated { folder, left } => {
                let (name, found) = left.next()?;
                Some(Ok(DirEntry(Entry::Simulated { folder: folder.clone(), name, found })))
            }
        }
    }
}
