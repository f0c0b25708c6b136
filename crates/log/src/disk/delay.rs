//! A disk made slow: for measuring what group commit does about slow syncs.
//!
//! Not for correctness tests (they hold syncs with [`super::MemoryDisk`] instead of sleeping).

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Disk, DiskFile};

/// Another disk whose every sync of a file takes `sync_delay` longer.
pub struct DelayDisk {
    inner: Arc<dyn Disk>,
    sync_delay: Duration,
}

impl DelayDisk {
    /// Makes `inner` slower.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, sync_delay: Duration) -> DelayDisk {
        DelayDisk { inner, sync_delay }
    }

    fn wrap(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(DelayFile { inner, sync_delay: self.sync_delay })
    }
}

impl Disk for DelayDisk {
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

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }

    fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}

struct DelayFile {
    inner: Arc<dyn DiskFile>,
    sync_delay: Duration,
}

impl DiskFile for DelayFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        thread::sleep(self.sync_delay);
        self.inner.sync_data()
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
