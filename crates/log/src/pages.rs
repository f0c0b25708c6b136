//! The page file: content that outlives the log, rewritten beside it. The writer of a page keeps
//! its location, length and checksum ([`PageRef`]); the file itself has no header and no list.
//!
//! Not here: what is in a page; which pages are referred to (an image says so). A page is never
//! written over: new content goes to free units, and units of an old page are allocated again only
//! after [`Pages::reuse`].
//!
//! Invariants: no unit belongs to two pages; no content with a wrong length or checksum is
//! returned; a failed sync is final; the file is never cut where a page lies.

mod free_units;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use towline_os::sync::Mutex;

use bytes::Bytes;
use towline_types::{Lsn, PAGE_UNIT_BYTES, PageRef};

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, Finding, LogError, is_full};
use crate::folder::names::PAGES_NAME;
use crate::format::{BLOCK_BYTES, size};
use free_units::FreeUnits;

/// The file grows in steps of this size, and is cut to a multiple of it.
const STEP_BYTES: u64 = 8 * 1024 * 1024;
/// Neighbours are written and read together up to this size.
const TOGETHER_BYTES: u64 = 1024 * 1024;

const _: () = assert!(PAGE_UNIT_BYTES == BLOCK_BYTES as u64);
const _: () = assert!(STEP_BYTES.is_multiple_of(PAGE_UNIT_BYTES));

/// The page file. A cheap handle: clones are the same file.
#[derive(Clone)]
pub struct Pages {
    shared: Arc<SharedPages>,
}

struct SharedPages {
    file: Arc<dyn DiskFile>,
    /// Held for a moment, never during I/O.
    runs: Mutex<FreeUnits>,
    /// Bytes set aside for the file. Held while that changes; taken before `runs`.
    room: Mutex<u64>,
    /// A sync failed.
    failed: AtomicBool,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    writes: AtomicU64,
    reads: AtomicU64,
    bytes_written: AtomicU64,
    bytes_read: AtomicU64,
}

/// Figures of the page file; counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// Bytes set aside for the file.
    pub file_bytes: u64,
    /// Bytes of units that pages lie in.
    pub used_bytes: u64,
    /// `file_bytes` that no page lies in.
    pub free_bytes: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Calls that read.
    pub reads: u64,
    /// Bytes written, whole units.
    pub bytes_written: u64,
    /// Bytes read, whole units.
    pub bytes_read: u64,
}

/// Pages that lie side by side, from `unit` on.
struct Group {
    unit: u32,
    units: u32,
    /// Indexes in the list that the caller passed.
    members: Vec<usize>,
}

impl Pages {
    /// Opens the page file, or makes it. `used`: all pages that any image still refers to; all
    /// other units are free. With no page in `used` the file is emptied.
    ///
    /// # Errors
    /// [`LogError::Damaged`] when pages in `used` overlap or lie beyond the end of the file: then
    /// start over with none, and make the content again. [`LogError::Io`].
    pub fn open(
        disk: Arc<dyn Disk>,
        used: impl IntoIterator<Item = PageRef>,
    ) -> Result<Pages, LogError> {
        let used: Vec<PageRef> = used.into_iter().collect();
        let failed = |e| LogError::io("open the page file", PAGES_NAME, e);
        let file = if used.is_empty() {
            let file = disk.create(PAGES_NAME).map_err(failed)?;
            disk.sync_names().map_err(failed)?;
            file
        } else {
            match disk.open(PAGES_NAME) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(damaged(0, Damage::Page));
                }
                Err(e) => return Err(failed(e)),
            }
        };
        Pages::of_file(file, &used)
    }

    /// A page file that is open.
    pub fn of_file(file: Arc<dyn DiskFile>, used: &[PageRef]) -> Result<Pages, LogError> {
        let failed = |e| LogError::io("open the page file", PAGES_NAME, e);
        let length = file.len().map_err(failed)?;
        let beyond = used.iter().find(|page| end_of(**page) > length);
        if let Some(page) = beyond {
            return Err(damaged(page.unit, Damage::Page));
        }
        let runs = FreeUnits::new(used.to_vec())
            .map_err(|overlap| damaged(overlap.0.unit, Damage::PagesOverlap))?;
        let shared = SharedPages {
            file,
            runs: Mutex::new(runs),
            room: Mutex::new(length / PAGE_UNIT_BYTES * PAGE_UNIT_BYTES),
            failed: AtomicBool::new(false),
            figures: Figures::default(),
        };
        Ok(Pages { shared: Arc::new(shared) })
    }

    /// Writes a page at the lowest free units that fit it. Durable after [`Pages::sync`]. Blocks.
    ///
    /// # Errors
    /// As [`Pages::write_all`].
    ///
    /// # Panics
    /// When `content` is empty or 4 GiB and more.
    pub fn write(&self, content: &[u8]) -> Result<PageRef, LogError> {
        let page = self.shared.place(&[content])?;
        let written = page.first().copied().ok_or(LogError::Failed);
        self.shared.write(&page, &[content])?;
        written
    }

    /// Writes pages, each at the lowest free units that fit it; those that are adjacent are written
    /// together, in pieces of up to 1 MiB. Returns where they are, in the order given. Durable
    /// after [`Pages::sync`]. Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`], with [`LogError::is_full`] when the disk is full: none of the pages is
    /// there, their units are free again, and other pages are untouched. [`LogError::Full`] when
    /// the file would pass 16 TiB. [`LogError::Failed`] after a failed sync.
    ///
    /// # Panics
    /// When one of them is empty or 4 GiB and more.
    pub fn write_all(&self, contents: &[Bytes]) -> Result<Vec<PageRef>, LogError> {
        let contents: Vec<&[u8]> = contents.iter().map(AsRef::as_ref).collect();
        let pages = self.shared.place(&contents)?;
        self.shared.write(&pages, &contents)?;
        Ok(pages)
    }

    /// Reads a page and checks it. Blocks.
    ///
    /// # Errors
    /// [`LogError::Damaged`] when what is there is not what was written; [`LogError::Io`].
    pub fn read(&self, page: PageRef) -> Result<Bytes, LogError> {
        self.shared.check_inside(page)?;
        let bytes = self.shared.load(page.unit, page.units())?;
        checked(page, bytes.slice(..bytes.len().min(page.bytes as usize)))
    }

    /// Reads pages and checks each; those that lie side by side are read together in pieces of up
    /// to 1 MiB (and share that memory). Results in the order given. Blocks.
    #[must_use]
    pub fn read_all(&self, pages: &[PageRef]) -> Vec<Result<Bytes, LogError>> {
        let mut order: Vec<usize> = (0..pages.len()).collect();
        order.sort_by_key(|&number| pages.get(number).map(|page| page.unit));
        let mut found: Vec<(usize, Result<Bytes, LogError>)> = Vec::with_capacity(pages.len());
        for group in groups(pages, &order) {
            let together = if group.members.len() > 1 {
                self.shared.load(group.unit, group.units).ok()
            } else {
                None
            };
            for number in group.members {
                let Some(&page) = pages.get(number) else { continue };
                let start = (page.unit - group.unit) as usize * BLOCK_BYTES;
                let part = together.as_ref().and_then(|bytes| {
                    let end = start.checked_add(page.bytes as usize)?;
                    (end <= bytes.len()).then(|| bytes.slice(start..end))
                });
                // One bad sector, or a group that goes beyond the file, must not make the others
                // unreadable: then each is read by itself.
                let result = part.map_or_else(|| self.read(page), |bytes| checked(page, bytes));
                found.push((number, result));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, result)| result).collect()
    }

    /// Returns when all pages written so far will survive a power cut. Blocks.
    ///
    /// # Errors
    /// [`LogError::Io`]: what is on the disk is not known, and never will be by trying again. The
    /// caller ends as for the log itself. Every later call fails with [`LogError::Failed`].
    pub fn sync(&self) -> Result<(), LogError> {
        let shared = &self.shared;
        shared.check_sound()?;
        shared.file.sync_data().map_err(|e| {
            shared.failed.store(true, Ordering::SeqCst);
            LogError::io("sync the page file", PAGES_NAME, e)
        })
    }

    /// Frees the units of these pages, and cuts the end of the file off when more than half of the
    /// file is free. The caller promises that no image on disk refers to them, no image that may
    /// still be needed, and that no thread reads them any more.
    ///
    /// # Panics
    /// When one of them is free already.
    pub fn reuse(&self, pages: &[PageRef]) {
        let shared = &self.shared;
        {
            let mut runs = shared.runs.lock();
            for page in pages {
                runs.give(page.unit, page.units());
            }
        }
        shared.cut_if_due();
    }

    /// The figures.
    #[must_use]
    pub fn stats(&self) -> PageStats {
        let file_bytes = *self.shared.room.lock();
        let used_bytes = self.shared.runs.lock().used() * PAGE_UNIT_BYTES;
        let figures = &self.shared.figures;
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        PageStats {
            file_bytes,
            used_bytes,
            free_bytes: file_bytes.saturating_sub(used_bytes),
            writes: of(&figures.writes),
            reads: of(&figures.reads),
            bytes_written: of(&figures.bytes_written),
            bytes_read: of(&figures.bytes_read),
        }
    }
}

impl SharedPages {
    fn check_sound(&self) -> Result<(), LogError> {
        if self.failed.load(Ordering::SeqCst) { Err(LogError::Failed) } else { Ok(()) }
    }

    /// A page that lies beyond the file was never written: no memory is taken for it.
    fn check_inside(&self, page: PageRef) -> Result<(), LogError> {
        let end = u64::from(self.runs.lock().end()) * PAGE_UNIT_BYTES;
        if page.bytes > 0 && end_of(page) <= end {
            Ok(())
        } else {
            Err(damaged(page.unit, Damage::Page))
        }
    }

    /// Allocates units for each content and makes sure that the file reaches up to there.
    fn place(&self, contents: &[&[u8]]) -> Result<Vec<PageRef>, LogError> {
        self.check_sound()?;
        let mut pages = Vec::with_capacity(contents.len());
        // Summing takes long: it comes before the lock.
        for content in contents {
            let Ok(bytes @ 1..) = u32::try_from(content.len()) else {
                unreachable!("a page has 1 to 2^32 - 1 bytes")
            };
            pages.push(PageRef { unit: 0, bytes, checksum: crc32c::crc32c(content) });
        }
        let end = {
            let mut runs = self.runs.lock();
            let mut placed = 0;
            for page in &mut pages {
                let Some(unit) = runs.take(page.units()) else { break };
                page.unit = unit;
                placed += 1;
            }
            if placed < pages.len() {
                pages.iter().take(placed).for_each(|page| runs.give(page.unit, page.units()));
                return Err(LogError::Full);
            }
            pages.iter().map(|page| end_of(*page)).max().unwrap_or(0)
        };
        match self.grow(end) {
            Ok(()) => Ok(pages),
            Err(error) => {
                self.give_back(&pages);
                Err(LogError::io("make the page file longer", PAGES_NAME, error))
            }
        }
    }

    fn give_back(&self, pages: &[PageRef]) {
        let mut runs = self.runs.lock();
        pages.iter().for_each(|page| runs.give(page.unit, page.units()));
    }

    /// Preallocates the file up to `end`.
    fn grow(&self, end: u64) -> io::Result<()> {
        let mut room = self.room.lock();
        if end <= *room {
            return Ok(());
        }
        let ample = end.next_multiple_of(STEP_BYTES);
        let taken = match self.file.reserve(ample) {
            Ok(()) => ample,
            // What is left may be enough for this page.
            Err(e) if is_full(&e) => self.file.reserve(end).map(|()| end)?,
            Err(e) => return Err(e),
        };
        *room = taken;
        Ok(())
    }

    /// Returns the space behind the last page to the disk when more than half of the file is free.
    /// A page that is allocated behind the cut meanwhile waits in [`SharedPages::grow`] for the
    /// lock held here; one that was allocated before lies before the cut.
    fn cut_if_due(&self) {
        let mut room = self.room.lock();
        let (end, used) = {
            let runs = self.runs.lock();
            (u64::from(runs.end()) * PAGE_UNIT_BYTES, runs.used() * PAGE_UNIT_BYTES)
        };
        let kept = end.next_multiple_of(STEP_BYTES);
        // A file that could not be cut is only longer than it need be.
        if used < *room / 2 && kept < *room && self.file.cut(kept).is_ok() {
            *room = kept;
        }
    }

    fn write(&self, pages: &[PageRef], contents: &[&[u8]]) -> Result<(), LogError> {
        let order: Vec<usize> = (0..pages.len()).collect();
        for group in groups(pages, &order) {
            let mut buffer = Aligned::with_capacity(group.units as usize * BLOCK_BYTES);
            for number in group.members {
                buffer.append_to().extend_from_slice(contents[number]);
                buffer.pad();
            }
            assert_eq!(buffer.len(), group.units as usize * BLOCK_BYTES, "pages fill their units");
            let at = u64::from(group.unit) * PAGE_UNIT_BYTES;
            if let Err(error) = self.file.write_at(buffer.bytes(), at) {
                self.give_back(pages);
                return Err(LogError::io("write a page", PAGES_NAME, error));
            }
            self.figures.writes.fetch_add(1, Ordering::Relaxed);
            self.figures.bytes_written.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Bytes of units, fewer where the file ends.
    fn load(&self, unit: u32, units: u32) -> Result<Bytes, LogError> {
        let mut buffer = Aligned::zeroed(units as usize * BLOCK_BYTES);
        let at = u64::from(unit) * PAGE_UNIT_BYTES;
        let count = self.file.read_at(buffer.bytes_mut(), at);
        let count = count.map_err(|e| LogError::io("read a page", PAGES_NAME, e))?;
        self.figures.reads.fetch_add(1, Ordering::Relaxed);
        self.figures.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(buffer.into_bytes(count))
    }
}

/// Puts pages together that follow each other in `order` and in the file, up to 1 MiB.
fn groups(pages: &[PageRef], order: &[usize]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for &number in order {
        let page = pages[number];
        let units = page.units();
        let last = groups.last_mut().filter(|group| {
            let together = u64::from(group.units) + u64::from(units);
            group.unit.checked_add(group.units) == Some(page.unit)
                && together * PAGE_UNIT_BYTES <= TOGETHER_BYTES
        });
        match last {
            Some(group) => {
                group.units += units;
                group.members.push(number);
            }
            None => groups.push(Group { unit: page.unit, units, members: vec![number] }),
        }
    }
    groups
}

fn checked(page: PageRef, bytes: Bytes) -> Result<Bytes, LogError> {
    let whole = bytes.len() == size(u64::from(page.bytes));
    if whole && crc32c::crc32c(&bytes) == page.checksum {
        Ok(bytes)
    } else {
        Err(damaged(page.unit, Damage::Page))
    }
}

fn end_of(page: PageRef) -> u64 {
    (u64::from(page.unit) + u64::from(page.units())) * PAGE_UNIT_BYTES
}

fn damaged(unit: u32, what: Damage) -> LogError {
    let (file, offset) = (PAGES_NAME.to_owned(), u64::from(unit) * PAGE_UNIT_BYTES);
    LogError::Damaged(Finding { file, extent: 0, offset, lsn: Lsn::ZERO, what })
}

#[cfg(test)]
mod tests;
