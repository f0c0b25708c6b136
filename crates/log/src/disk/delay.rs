//! A disk made slow: for measuring what slow syncs, or slow everything, cost.
//!
//! Not for correctness tests (they hold syncs with [`super::MemoryDisk`] instead of sleeping).

use std::io;
use std::sync::Arc;
use std::time::Duration;
use towline_os::thread;

use super::{Disk, DiskFile, FileSystem};

/// Another disk that takes longer.
pub struct DelayDisk {
    inner: Arc<dyn Disk>,
    delays: Delays,
}

#[derive(Clone, Copy)]
struct Delays {
    /// Each sync of a file.
    sync: Duration,
    /// Every call on a file or the folder, syncs included.
    call: Duration,
}

impl DelayDisk {
    /// Every sync of a file takes `sync_delay` longer.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, sync_delay: Duration) -> DelayDisk {
        DelayDisk { inner, delays: Delays { sync: sync_delay, call: Duration::ZERO } }
    }

    /// Every call takes `delay` longer: a file system behind a network.
    #[must_use]
    pub fn every_call(inner: Arc<dyn Disk>, delay: Duration) -> DelayDisk {
        DelayDisk { inner, delays: Delays { sync: Duration::ZERO, call: delay } }
    }

    fn wrap(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(DelayFile { inner, delays: self.delays })
    }
}

impl Delays {
    fn call(self) {
        if !self.call.is_zero() {
            thread::sleep(self.call);
        }
    }
}

impl Disk for DelayDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.delays.call();
        Ok(self.wrap(self.inner.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.delays.call();
        Ok(self.wrap(self.inner.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.delays.call();
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.delays.call();
        self.inner.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.delays.call();
        self.inner.names()
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.delays.call();
        self.inner.length(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.delays.call();
        self.inner.sync_names()
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

struct DelayFile {
    inner: Arc<dyn DiskFile>,
    delays: Delays,
}

impl DiskFile for DelayFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.delays.call();
        self.inner.write_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.delays.call();
        self.inner.read_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        thread::sleep(self.delays.sync.max(self.delays.call));
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.delays.call();
        self.inner.len()
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.delays.call();
        self.inner.reserve(bytes)
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.delays.call();
        self.inner.cut(bytes)
    }
}
