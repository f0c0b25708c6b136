//! A disk over the files of another one, which it never writes to: what is written goes to files of
//! its own, and nothing of that survives the process. For a rehearsal beside a running log.
//!
//! Each shared file is read up to a number of bytes that is given; behind it there are zeros, as in
//! an extent that was made ready. A block of 4 KiB that is written is from then on read from a file
//! of the own disk, and its name is removed at once: when the process ends, however it does, the
//! file system has the space back.
//!
//! Not here: which files are shared, and that they stay as they are meanwhile (the caller sees to
//! both). Invariants: the other disk is only opened and read; zeros that are written where nothing
//! else can be read take no space; what is written takes no more than was allowed; a sync does
//! nothing, because nothing here is to survive.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towline_os::sync::Mutex;

use super::{Disk, DiskFile, FileSystem};
use crate::format::BLOCK_BYTES;

/// A file of the other disk that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// Its name, there and here.
    pub name: String,
    /// So many of its bytes are read, a multiple of 4 KiB.
    pub bytes: u64,
    /// How long it seems to be, `bytes` or more.
    pub length: u64,
    /// Opened now and held open: the other process may remove it.
    pub is_kept_open: bool,
}

/// See the module.
pub struct ScratchDisk {
    base: Arc<dyn Disk>,
    own: Arc<dyn Disk>,
    /// By name: those of the other disk that were not removed here, and those that were made.
    files: Mutex<BTreeMap<String, Arc<ScratchFile>>>,
    room: Arc<ScratchRoom>,
    /// How many files of the own disk were made: their names.
    made: Arc<AtomicU64>,
}

/// What may be written.
struct ScratchRoom {
    bytes_max: u64,
    bytes: AtomicU64,
}

struct ScratchFile {
    own_disk: Arc<dyn Disk>,
    room: Arc<ScratchRoom>,
    made: Arc<AtomicU64>,
    /// Name on the other disk.
    shared: Option<String>,
    /// Opened for good.
    kept: Option<Arc<dyn DiskFile>>,
    blocks: Mutex<ScratchBlocks>,
}

/// Which blocks are where.
#[derive(Default)]
struct ScratchBlocks {
    /// Bytes that are read from the other disk, unless they were written here.
    shared_bytes: u64,
    /// How long the file seems to be.
    length: u64,
    own: Option<Arc<dyn DiskFile>>,
    /// One bit for each block that was written.
    written: Vec<u64>,
}

/// Where bytes are read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockSource {
    Own,
    Shared,
    Zeros,
}

/// One opened file.
struct ScratchHandle {
    file: Arc<ScratchFile>,
    base: Option<Arc<dyn DiskFile>>,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl ScratchDisk {
    /// A disk with these files of `base`. `own`: an empty folder; at most `bytes_max` bytes are
    /// written to it.
    ///
    /// # Errors
    /// A file that is to be held open cannot be opened; `NotFound` when it is gone.
    pub fn over(
        base: Arc<dyn Disk>,
        own: Arc<dyn Disk>,
        shared: &[SharedFile],
        bytes_max: u64,
    ) -> io::Result<ScratchDisk> {
        let room = Arc::new(ScratchRoom { bytes_max, bytes: AtomicU64::new(0) });
        let made = Arc::new(AtomicU64::new(0));
        let mut files = BTreeMap::new();
        for SharedFile { name, bytes, length, is_kept_open } in shared {
            assert!(bytes.is_multiple_of(BLOCK) && bytes <= length, "whole blocks are shared");
            let kept = if *is_kept_open { Some(base.open(name)?) } else { None };
            let blocks =
                ScratchBlocks { shared_bytes: *bytes, length: *length, ..ScratchBlocks::default() };
            let file = ScratchFile {
                own_disk: Arc::clone(&own),
                room: Arc::clone(&room),
                made: Arc::clone(&made),
                shared: Some(name.clone()),
                kept,
                blocks: Mutex::new(blocks),
            };
            files.insert(name.clone(), Arc::new(file));
        }
        Ok(ScratchDisk { base, own, files: Mutex::new(files), room, made })
    }

    fn file(&self, name: &str) -> io::Result<Arc<ScratchFile>> {
        let files = self.files.lock();
        files.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for ScratchDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Arc::new(ScratchFile {
            own_disk: Arc::clone(&self.own),
            room: Arc::clone(&self.room),
            made: Arc::clone(&self.made),
            shared: None,
            kept: None,
            blocks: Mutex::default(),
        });
        self.files.lock().insert(name.to_owned(), Arc::clone(&file));
        Ok(Arc::new(ScratchHandle { file, base: None }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.file(name)?;
        let base = match (&file.kept, &file.shared) {
            (Some(kept), _) => Some(Arc::clone(kept)),
            (None, Some(shared)) => Some(self.base.open(shared)?),
            (None, None) => None,
        };
        Ok(Arc::new(ScratchHandle { file, base }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.files.lock().remove(name) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        Ok(self.file(name)?.blocks.lock().length)
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn file_system(&self) -> Option<FileSystem> {
        let left = self.room.bytes_max.saturating_sub(self.room.bytes.load(Ordering::Relaxed));
        let found = self.own.file_system();
        let FileSystem { bytes_max, bytes_free } =
            found.unwrap_or(FileSystem { bytes_max: u64::MAX, bytes_free: u64::MAX });
        Some(FileSystem { bytes_max, bytes_free: bytes_free.min(left) })
    }

    fn name(&self) -> String {
        self.own.name()
    }

    // There is no sync that could leave something out.
    fn is_buffered(&self) -> bool {
        false
    }
}

impl ScratchRoom {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let took = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|taken| *taken <= self.bytes_max)
        });
        took.map(drop).map_err(|_| io::ErrorKind::StorageFull.into())
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let blocks = self.blocks.lock();
        let written: u64 = blocks.written.iter().map(|word| u64::from(word.count_ones())).sum();
        self.room.give_back(written * BLOCK);
    }
}

impl ScratchFile {
    /// The file that its own blocks are in; its name is gone at once.
    fn own(&self) -> io::Result<Arc<dyn DiskFile>> {
        let mut blocks = self.blocks.lock();
        if let Some(own) = &blocks.own {
            return Ok(Arc::clone(own));
        }
        let name = format!("scratch-{}", self.made.fetch_add(1, Ordering::Relaxed));
        let own = self.own_disk.create(&name)?;
        self.own_disk.remove(&name)?;
        blocks.own = Some(Arc::clone(&own));
        Ok(own)
    }
}

impl ScratchBlocks {
    fn is_written(&self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|at| self.written.get(at));
        word.is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Enters that the blocks from `first` up to `end` were written.
    fn note(&mut self, first: u64, end: u64) {
        for block in first..end {
            let Ok(at) = usize::try_from(block / 64) else { continue };
            if at >= self.written.len() {
                self.written.resize(at + 1, 0);
            }
            if let Some(word) = self.written.get_mut(at) {
                *word |= 1 << (block % 64);
            }
        }
    }

    fn source(&self, block: u64) -> BlockSource {
        if self.is_written(block) {
            BlockSource::Own
        } else if block * BLOCK < self.shared_bytes {
            BlockSource::Shared
        } else {
            BlockSource::Zeros
        }
    }

    /// Parts of `from..to`, each from one file.
    fn parts(&self, from: u64, to: u64) -> Vec<(BlockSource, u64, u64)> {
        let mut parts: Vec<(BlockSource, u64, u64)> = Vec::new();
        let mut at = from;
        while at < to {
            let block = at / BLOCK;
            let end = to.min((block + 1) * BLOCK);
            let source = self.source(block);
            match parts.last_mut() {
                Some(last) if last.0 == source => last.2 = end,
                _ => parts.push((source, at, end)),
            }
            at = end;
        }
        parts
    }
}

impl DiskFile for ScratchHandle {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(offset.is_multiple_of(BLOCK), "whole blocks are written");
        let end = offset.saturating_add(bytes.len() as u64);
        let (first, behind) = (offset / BLOCK, end.div_ceil(BLOCK));
        let new = {
            let mut blocks = self.file.blocks.lock();
            let is_void = (first..behind).all(|block| blocks.source(block) == BlockSource::Zeros);
            if is_void && bytes.iter().all(|byte| *byte == 0) {
                blocks.length = blocks.length.max(end);
                return Ok(());
            }
            (first..behind).filter(|block| !blocks.is_written(*block)).count() as u64
        };
        self.file.room.take(new * BLOCK)?;
        let own = self.file.own();
        // In this order: a read meanwhile finds the old bytes or the new ones.
        if let Err(error) = own.and_then(|own| own.write_at(bytes, offset)) {
            self.file.room.give_back(new * BLOCK);
            return Err(error);
        }
        let mut blocks = self.file.blocks.lock();
        blocks.note(first, behind);
        blocks.length = blocks.length.max(end);
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (parts, own) = {
            let blocks = self.file.blocks.lock();
            let end = offset.saturating_add(bytes.len() as u64).min(blocks.length);
            (blocks.parts(offset, end), blocks.own.clone())
        };
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut filled = 0;
        for (source, from, to) in parts {
            let length = usize::try_from(to - from).map_err(io::Error::other)?;
            let part = bytes.get_mut(filled..filled + length).ok_or_else(gone)?;
            let count = match (source, &own, &self.base) {
                (BlockSource::Own, Some(own), _) => own.read_at(part, from)?,
                (BlockSource::Shared, _, Some(base)) => base.read_at(part, from)?,
                (BlockSource::Own | BlockSource::Shared, _, _) => return Err(gone()),
                (BlockSource::Zeros, _, _) => {
                    part.fill(0);
                    length
                }
            };
            if count < length {
                return Err(gone());
            }
            filled += length;
        }
        Ok(filled)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.blocks.lock().length)
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        let mut blocks = self.file.blocks.lock();
        if bytes >= blocks.length {
            return Ok(());
        }
        assert!(bytes.is_multiple_of(BLOCK), "whole blocks are kept");
        blocks.length = bytes;
        blocks.shared_bytes = blocks.shared_bytes.min(bytes);
        let first = bytes / BLOCK;
        let all = blocks.written.len() as u64 * 64;
        let mut freed = 0;
        for block in first..all {
            if blocks.is_written(block)
                && let Some(word) = blocks.written.get_mut((block / 64) as usize)
            {
                *word &= !(1 << (block % 64));
                freed += 1;
            }
        }
        self.file.room.give_back(freed * BLOCK);
        match &blocks.own {
            Some(own) => own.cut(bytes),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
