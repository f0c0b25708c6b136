//! Makes a log folder from a stream: straight into its files.
//!
//! Order: a file that says *unfinished*; image, times, pages and extents, each synced; then all of
//! it is checked (checksums of pages, image and stream, the chain of the log); that file goes.
//!
//! Not here: where the folder is, and what it replaces.
//!
//! Invariant: nothing is written before the disk is known to have space for all of it.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towline_log::LogError;
use towline_log::block::Aligned;
use towline_log::disk::{Disk, DiskFile};
use towline_log::folder::chain::Link;
use towline_log::folder::files::{Files, Folder};
use towline_log::folder::images::{self, LoadedImage};
use towline_log::folder::names::{
    PAGES_NAME, RESTORING_NAME, TIME_INDEX_NAME, extent_name, image_name,
};
use towline_log::folder::scan::Scan;
use towline_log::format::{padded, size};
use towline_os::time::Instant;
use towline_types::{Lsn, PAGE_UNIT_BYTES, PageRef};

use super::{COPY_STEP_BYTES, CopiedFile, CopyHead, CopyPoint, HEAD_BYTES, Head, PAGE_HEAD_BYTES};
use crate::error::BackupError;
use crate::folder::PIECE_BYTES;
use crate::progress::Progress;
use crate::restore;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedCopy {
    /// Where the log ends.
    pub end: Lsn,
    /// Index of its last batch.
    pub index: u64,
    /// Term of that batch.
    pub term: u64,
    /// Position of its image.
    pub image: Lsn,
    /// Bytes taken.
    pub bytes: u64,
}

/// Space that must stay free for the log beside the copy: the instance that owns the log goes on
/// writing.
const ROOM_BESIDE_EXTENTS: u64 = 2;
/// What came of a file is synced and noted after this, so that it counts also when the process
/// ends, and so that the giver knows how fast it goes.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The same, on a fast line.
const KEEP_BYTES: u64 = 64 << 20;

impl CopyHead {
    /// Reads one from a stream.
    ///
    /// # Errors
    /// [`BackupError::Stream`].
    pub fn read(from: &mut dyn Read) -> Result<CopyHead, BackupError> {
        let mut bytes = [0; HEAD_BYTES];
        from.read_exact(&mut bytes).map_err(BackupError::Stream)?;
        CopyHead::decode(&bytes).ok_or_else(|| refused("it does not begin as a copy does"))
    }

    /// What comes of it when all of it has come.
    #[must_use]
    pub fn promises(&self) -> ReceivedCopy {
        let head = &self.0;
        ReceivedCopy {
            end: Lsn(head.end.lsn),
            index: head.end.index,
            term: u64::from(head.end.term),
            image: head.image_at,
            bytes: head.bytes,
        }
    }
}

/// Takes a copy of a log into a folder, which must be empty or left by an interrupted one. The log
/// that is made there has the id of that one. Blocks.
///
/// # Errors
/// [`BackupError::NoRoom`] before anything is written; [`BackupError::Stream`] what the stream
/// said, or that what came is none; [`BackupError::Log`]. The folder is then one that no queue
/// manager starts with.
pub fn take(
    disk: &Arc<dyn Disk>,
    from: &mut dyn Read,
    progress: &mut dyn FnMut(Progress),
) -> Result<ReceivedCopy, BackupError> {
    let head = CopyHead::read(from)?;
    prepare(disk.as_ref(), &head)?;
    take_behind(disk, &head, CopyPoint::default(), from, &mut |_| Ok(()), progress)
}

/// Makes a folder ready for this copy, which must be empty or left by an interrupted one.
///
/// # Errors
/// [`BackupError::NoRoom`] before anything is written; [`BackupError::Log`].
pub fn prepare(disk: &dyn Disk, head: &CopyHead) -> Result<(), BackupError> {
    check_room(disk, head, 0)?;
    let failed = |e| LogError::io("make the log folder", &disk.name(), e);
    restore::check_empty(disk)?;
    Ok(restore::make_empty(disk).map_err(failed)?)
}

/// Takes what comes behind `point` of the copy with this head into its folder, which has all before
/// it. `kept` is called after each file, now and then inside of pages and extents, and when the
/// stream breaks, with how far it is: so much is on the disk then. Blocks.
///
/// # Errors
/// As of [`take`]; what `kept` says is a [`BackupError::Log`]. What was kept before stays.
pub fn take_behind(
    disk: &Arc<dyn Disk>,
    head: &CopyHead,
    point: CopyPoint,
    from: &mut dyn Read,
    kept: &mut PointKeeper<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ReceivedCopy, BackupError> {
    let failed = |e| LogError::io("make the log folder", &disk.name(), e);
    if !head.can_go_on_at(point.done) {
        return Err(refused("nothing of it ends where it is to go on"));
    }
    check_room(disk.as_ref(), head, point.done)?;
    // All of it may have come before, and been checked.
    let marked = disk.create(RESTORING_NAME).and_then(|file| file.sync_data());
    marked.and_then(|()| disk.sync_names()).map_err(failed)?;
    let CopyHead(of) = head;
    let now = Progress { done: point.done, all: of.bytes, extent: of.first };
    let mut coming = Coming { from, sum: point.sum, tell: progress, now };
    write(disk.as_ref(), of, &mut coming, kept)?;
    check(disk, of)?;
    let done = disk.sync_names().and_then(|()| disk.remove(RESTORING_NAME));
    done.and_then(|()| disk.sync_names()).map_err(failed)?;
    Ok(head.promises())
}

fn check_room(disk: &dyn Disk, CopyHead(head): &CopyHead, done: u64) -> Result<(), BackupError> {
    let beside = head.extent_bytes.saturating_mul(ROOM_BESIDE_EXTENTS);
    let needed = head.bytes.saturating_sub(done).saturating_add(beside);
    let free = disk.free_bytes();
    if free < needed { Err(BackupError::NoRoom { needed, free }) } else { Ok(()) }
}

fn refused(why: &'static str) -> BackupError {
    BackupError::Stream(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Notes how far a copy is.
pub type PointKeeper<'a> = dyn FnMut(CopyPoint) -> io::Result<()> + 'a;

/// What went wrong between the stream and a file.
enum Failed {
    Came(BackupError),
    Written(io::Error),
}

impl Failed {
    fn in_file(self, name: &str) -> BackupError {
        match self {
            Failed::Came(error) => error,
            Failed::Written(e) => LogError::io("write a file of the copy", name, e).into(),
        }
    }
}

struct Coming<'a> {
    from: &'a mut dyn Read,
    sum: u32,
    tell: &'a mut dyn FnMut(Progress),
    now: Progress,
}

impl Coming<'_> {
    fn fill(&mut self, place: &mut [u8]) -> Result<(), BackupError> {
        if self.now.done + place.len() as u64 > self.now.all {
            return Err(refused("it is longer than it said"));
        }
        self.from.read_exact(place).map_err(BackupError::Stream)?;
        self.sum = crc32c::crc32c_append(self.sum, place);
        self.now.done += place.len() as u64;
        (self.tell)(self.now);
        Ok(())
    }

    /// Writes the next `bytes` bytes to the beginning of a new file, and syncs it.
    fn file(&mut self, disk: &dyn Disk, name: &str, bytes: u64) -> Result<(), BackupError> {
        let failed = |e| LogError::io("write a file of the copy", name, e);
        let file = disk.create(name).map_err(failed)?;
        file.reserve(bytes).map_err(failed)?;
        self.write(file.as_ref(), 0, bytes).map_err(|error| error.in_file(name))?;
        Ok(file.sync_data().map_err(failed)?)
    }

    /// Writes the part of an extent that is to come, which is of whole blocks.
    fn extent(
        &mut self,
        disk: &dyn Disk,
        name: &str,
        part: Range<u64>,
        kept: &mut PointKeeper<'_>,
    ) -> Result<(), BackupError> {
        let failed = |e| LogError::io("write a file of the copy", name, e);
        let file = opened(disk, name, part.start > 0)?;
        if part.start == 0 {
            file.reserve(part.end).map_err(failed)?;
        }
        let mut buffer = Aligned::zeroed(PIECE_BYTES);
        let (mut done, mut keeping) = (part.start, Keeping::begin(part.start));
        while done < part.end {
            let wanted = (part.end - done).min(PIECE_BYTES as u64);
            let (came, broken) = self.fill_steps(buffer.first_mut(size(wanted)));
            if came > 0 {
                file.write_at(buffer.first(came), done).map_err(failed)?;
            }
            done += came as u64;
            let point = CopyPoint { done: self.now.done, sum: self.sum };
            let all_came = done == part.end;
            if let Some(error) = broken {
                // What came counts, if it can be noted; why it broke is what is said.
                drop(keeping.keep(disk, file.as_ref(), (done, point), kept));
                return Err(error);
            }
            if !all_came && keeping.is_due(done) {
                keeping.keep(disk, file.as_ref(), (done, point), kept).map_err(failed)?;
            }
        }
        Ok(file.sync_data().map_err(failed)?)
    }

    /// Fills a buffer step by step: so many bytes of it came before the stream broke.
    fn fill_steps(&mut self, place: &mut [u8]) -> (usize, Option<BackupError>) {
        let mut came = 0;
        for step in place.chunks_mut(COPY_STEP_BYTES) {
            if let Err(error) = self.fill(step) {
                return (came, Some(error));
            }
            came += step.len();
        }
        (came, None)
    }

    /// Writes the next bytes at an offset of a file, padded to whole blocks; yields their checksum.
    fn write(&mut self, file: &dyn DiskFile, at: u64, bytes: u64) -> Result<u32, Failed> {
        let (mut done, mut sum) = (0, 0);
        while done < bytes {
            let wanted = (bytes - done).min(PIECE_BYTES as u64);
            let mut buffer = Aligned::zeroed(size(padded(wanted)));
            let place = buffer.first_mut(size(wanted));
            self.fill(place).map_err(Failed::Came)?;
            sum = crc32c::crc32c_append(sum, place);
            file.write_at(buffer.bytes(), at + done).map_err(Failed::Written)?;
            done += wanted;
        }
        Ok(sum)
    }

    /// Writes the pages that are to come, up to where they end in the copy. `behind`: the bytes of
    /// them that came before.
    fn pages(
        &mut self,
        disk: &dyn Disk,
        (behind, end): (u64, u64),
        kept: &mut PointKeeper<'_>,
    ) -> Result<(), BackupError> {
        let failed = |e| LogError::io("write pages", PAGES_NAME, e);
        let file = opened(disk, PAGES_NAME, behind > 0)?;
        let mut keeping = Keeping::begin(self.now.done);
        let mut place = 0;
        while self.now.done < end {
            let point = CopyPoint { done: self.now.done, sum: self.sum };
            if keeping.is_due(point.done) {
                let now = (point.done, point);
                keeping.keep(disk, file.as_ref(), now, kept).map_err(failed)?;
            }
            if let Err(error) = self.page(file.as_ref(), &mut place) {
                drop(keeping.keep(disk, file.as_ref(), (point.done, point), kept));
                return Err(error);
            }
        }
        Ok(file.sync_data().map_err(failed)?)
    }

    /// Writes the next page, which does not overlap the one before.
    fn page(&mut self, file: &dyn DiskFile, place: &mut u64) -> Result<(), BackupError> {
        let mut row = [0; PAGE_HEAD_BYTES];
        self.fill(&mut row)?;
        let page = page_of(&row).ok_or_else(|| refused("a page without a place"))?;
        if u64::from(page.unit) < *place {
            return Err(refused("its pages overlap"));
        }
        *place = u64::from(page.unit) + u64::from(page.units());
        let at = u64::from(page.unit) * PAGE_UNIT_BYTES;
        let sum = self.write(file, at, u64::from(page.bytes));
        let sum = sum.map_err(|error| error.in_file(PAGES_NAME))?;
        if sum != page.checksum {
            return Err(refused("a page has another checksum"));
        }
        Ok(())
    }
}

/// A file of the copy: a new one, or the one of which a part came before.
fn opened(disk: &dyn Disk, name: &str, goes_on: bool) -> Result<Arc<dyn DiskFile>, BackupError> {
    let failed = |e| BackupError::from(LogError::io("write a file of the copy", name, e));
    match goes_on {
        false => disk.create(name).map_err(failed),
        true => disk.open(name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refused("a file is gone of which a part came before"),
            _ => failed(error),
        }),
    }
}

/// When what came of a file is synced and noted.
struct Keeping {
    /// Up to here it is.
    upto: u64,
    since: Instant,
    has_name: bool,
}

impl Keeping {
    fn begin(upto: u64) -> Keeping {
        Keeping { upto, since: Instant::now(), has_name: false }
    }

    fn is_due(&self, done: u64) -> bool {
        let more = done - self.upto;
        more >= KEEP_BYTES || (more > 0 && self.since.elapsed() >= KEEP_INTERVAL)
    }

    /// `done` counts as `begin` does.
    fn keep(
        &mut self,
        disk: &dyn Disk,
        file: &dyn DiskFile,
        (done, point): (u64, CopyPoint),
        kept: &mut PointKeeper<'_>,
    ) -> io::Result<()> {
        if done == self.upto {
            return Ok(());
        }
        file.sync_data()?;
        // What is noted must have a name after a power cut.
        if !std::mem::replace(&mut self.has_name, true) {
            disk.sync_names()?;
        }
        (self.upto, self.since) = (done, Instant::now());
        kept(point)
    }
}

fn page_of(row: &[u8; PAGE_HEAD_BYTES]) -> Option<PageRef> {
    let number = |at: usize| {
        let bytes = row.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let page = PageRef { unit: number(0)?, bytes: number(4)?, checksum: number(8)? };
    (page.bytes > 0).then_some(page)
}

fn write(
    disk: &dyn Disk,
    head: &Head,
    coming: &mut Coming<'_>,
    kept: &mut PointKeeper<'_>,
) -> Result<(), BackupError> {
    let (from, mut end) = (coming.now.done, 0);
    for (file, bytes) in head.files() {
        // Of this file so much came before.
        let behind = from.saturating_sub(end);
        end += bytes;
        if end <= from {
            continue;
        }
        match file {
            CopiedFile::Image => coming.file(disk, &image_name(head.image_at), bytes)?,
            CopiedFile::Times => coming.file(disk, TIME_INDEX_NAME, bytes)?,
            CopiedFile::Pages => coming.pages(disk, (behind, end), kept)?,
            CopiedFile::Extent(sequence) => {
                coming.now.extent = sequence;
                coming.extent(disk, &extent_name(sequence), behind..bytes, kept)?;
            }
        }
        if coming.now.done != end {
            return Err(refused("its pages are not as long as it said"));
        }
        let point = CopyPoint { done: end, sum: coming.sum };
        let failed = |e| LogError::io("note how far a copy is", &disk.name(), e);
        // What is noted must have a name after a power cut.
        disk.sync_names().and_then(|()| kept(point)).map_err(failed)?;
    }
    let mut sum = [0; 4];
    coming.from.read_exact(&mut sum).map_err(BackupError::Stream)?;
    if coming.now.done != head.bytes || u32::from_le_bytes(sum) != coming.sum {
        return Err(refused("its checksum is wrong"));
    }
    Ok(())
}

/// Reads what was written: the image, and the chain of the log from its beginning to the end that
/// was announced.
fn check(disk: &Arc<dyn Disk>, head: &Head) -> Result<(), BackupError> {
    match images::load(disk.as_ref(), head.image_at)? {
        LoadedImage::Whole(header, _) if header.log_id == head.log_id => {}
        LoadedImage::Whole(..) | LoadedImage::Damaged => {
            return Err(refused("its image is damaged"));
        }
    }
    let extents = head.extents().map(|extent| extent.sequence).collect();
    let folder = Folder { extents, images: vec![head.image_at], ..Folder::default() };
    let none = || BackupError::NoLog { folder: disk.name() };
    let mut files = Files::of(disk, &folder)?.ok_or_else(none)?;
    files.check(disk.as_ref(), ..)?;
    let mut scan = Scan::new(&files, head.first);
    let read = |e| LogError::io("read the copy", &disk.name(), e);
    while scan.next_batch().map_err(read)?.is_some() {}
    let whole = scan.end == Lsn(head.end.lsn)
        && (head.end.index == 0 || scan.link == Some(Link::of_seam(head.end.seam())));
    if whole { Ok(()) } else { Err(refused("its log is damaged")) }
}
