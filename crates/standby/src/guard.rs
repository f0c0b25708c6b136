//! A disk on which nothing becomes durable without a lease: after each sync the lease is proved,
//! before the sync is reported.
//!
//! Not here: what a lost lease means (`lease`: the process ends).

use std::io;
use std::sync::Arc;

use towline_log::{Disk, DiskFile, FileSystem};

use crate::lease::Lease;

pub(crate) struct LeasedDisk {
    inner: Arc<dyn Disk>,
    lease: Arc<Lease>,
}

impl LeasedDisk {
    pub(crate) fn new(inner: Arc<dyn Disk>, lease: Arc<Lease>) -> LeasedDisk {
        LeasedDisk { inner, lease }
    }

    fn wrap(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(LeasedFile { inner, lease: Arc::clone(&self.lease) })
    }
}

impl Disk for LeasedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.inner.names()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.inner.length(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()?;
        self.lease.prove()
    }

    fn file_system(&self) -> Option<FileSystem> {
        self.inner.file_system()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn is_buffered(&self) -> bool {
        self.inner.is_buffered()
    }
}

struct LeasedFile {
    inner: Arc<dyn DiskFile>,
    lease: Arc<Lease>,
}

impl DiskFile for LeasedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()?;
        self.lease.prove()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.inner.cut(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towline_log::MemoryDisk;

    use super::*;
    use crate::testing::{Hands, claim};

    #[test]
    fn a_sync_that_ends_after_the_lease_is_no_sync() {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::at(Duration::from_secs(5));
        let length = Duration::from_secs(1);
        let lease = claim(folder.path(), 1, length, &hands).unwrap();
        let disk = LeasedDisk::new(Arc::new(MemoryDisk::new()), lease);
        let file = disk.create("a").unwrap();
        file.sync_data().unwrap();
        disk.sync_names().unwrap();
        hands.go(length);
        assert!(file.sync_data().is_err() && disk.sync_names().is_err());
        assert!(disk.open("a").unwrap().sync_data().is_err());
        assert!(!hands.losses().is_empty());
    }
}
