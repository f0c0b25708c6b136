//! (first interface commit)
use super::{Disk, DiskFile};
use crate::error::LogError;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A folder on a Linux file system: direct I/O where the file system takes it, else buffered.
#[derive(Debug)]
pub struct LinuxDisk {}

impl LinuxDisk {
    /// Takes the folder for this process: makes it when it is not there, and locks it.
    ///
    /// # Errors
    /// [`LogError::Locked`] when another process holds it; [`LogError::Io`].
    pub fn open(folder: &Path) -> Result<LinuxDisk, LogError> {
        todo!("{folder:?}")
    }

    /// Looks into a folder without taking it and without changing it.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn read_only(folder: &Path) -> Result<LinuxDisk, LogError> {
        todo!("{folder:?}")
    }
}
impl Disk for LinuxDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        todo!("{name}")
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        todo!("{name}")
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        todo!("{from}{to}")
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        todo!("{name}")
    }
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        todo!()
    }
    fn sync_names(&self) -> io::Result<()> {
        todo!()
    }
    fn free_bytes(&self) -> u64 {
        todo!()
    }
    fn name(&self) -> String {
        todo!()
    }
}
