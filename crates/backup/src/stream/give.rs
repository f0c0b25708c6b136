//! Writes a copy of a running log into a stream, from the log's own files.
//!
//! Not here: the hold (the caller takes it, before the source is chosen).
//!
//! Invariants: no byte leaves that was read after the hold had been let go; the pieces of a copy
//! that is given in several are of one source.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;

use towline_log::Hold;
use towline_log::LogError;
use towline_log::Pages;
use towline_log::block::Aligned;
use towline_log::folder::names::extent_name;
use towline_log::format::{BLOCK_BYTES, size};
use towline_log::time_index::{self, Row};
use towline_types::{Lsn, PageRef};

use super::{COPY_STEP_BYTES, CopiedFile, CopyHead, CopyPoint, Head, PAGE_HEAD_BYTES};
use crate::error::BackupError;
use crate::folder::PIECE_BYTES;
use crate::progress::Progress;
use crate::source::Source;

/// Pages read at a time: a page takes about 16 KiB.
const PAGES_AT_ONCE: usize = 64;

/// A copy as it is given: a source, and what belongs to it. It can be given in several pieces, as
/// long as its hold holds.
pub struct Gift {
    source: Source,
    /// In order.
    used: Vec<PageRef>,
    times: Vec<u8>,
    head: Head,
    given: GivenPoints,
}

/// Points of a copy that were given: a taker can go on behind any of them.
#[derive(Default)]
struct GivenPoints {
    /// All ends of files.
    ends: Vec<CopyPoint>,
    /// Of those inside of files the newest, in order.
    inside: VecDeque<CopyPoint>,
}

/// Points inside of files that are remembered: much more than is on its way to a taker, or is there
/// and not noted yet. 2 GiB of extents.
const INSIDE_MAX: usize = 131_072;

impl GivenPoints {
    fn knows(&self, point: CopyPoint) -> bool {
        let at = self.inside.binary_search_by_key(&point.done, |known| known.done);
        let inside = at.ok().and_then(|at| self.inside.get(at));
        inside == Some(&point) || self.ends.contains(&point)
    }

    /// It is given once more from there on.
    fn goes_on_behind(&mut self, from: CopyPoint) {
        while self.inside.pop_back_if(|known| known.done > from.done).is_some() {}
    }

    fn add(&mut self, point: CopyPoint) {
        self.inside.push_back(point);
        if self.inside.len() > INSIDE_MAX {
            self.inside.pop_front();
        }
    }

    fn add_end(&mut self, point: CopyPoint) {
        if !self.ends.contains(&point) {
            self.ends.push(point);
        }
    }
}

impl Gift {
    /// A copy of `source`. `used`: the pages that its image refers to; `rows`: when the log was how
    /// long.
    ///
    /// # Errors
    /// There are more pages than a copy can have.
    pub fn new(source: Source, mut used: Vec<PageRef>, rows: &[Row]) -> Result<Gift, BackupError> {
        used.sort_unstable();
        let times = time_index::encode(rows);
        let head = head_of(&source, &used, source.image_file().len(), times.len())?;
        Ok(Gift { source, used, times, head, given: GivenPoints::default() })
    }

    /// Its head, which comes first.
    #[must_use]
    pub fn head(&self) -> CopyHead {
        CopyHead(self.head)
    }

    /// Whether a taker that has so much has what this copy begins with.
    #[must_use]
    pub fn knows(&self, point: CopyPoint) -> bool {
        point == CopyPoint::default() || self.given.knows(point)
    }

    /// Writes what comes behind `from`, and the checksum of all. `pages`: the page file. The pages
    /// must stay until [`CopyHead::pages_end`] has come. Blocks.
    ///
    /// # Errors
    /// As of [`give`].
    ///
    /// # Panics
    /// The copy does not know `from`.
    pub fn give_behind(
        &mut self,
        from: CopyPoint,
        pages: &Pages,
        hold: &Hold,
        to: &mut dyn Write,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), BackupError> {
        assert!(self.knows(from), "a copy goes on behind what was given");
        let now = Progress { done: from.done, all: self.head.bytes, extent: self.head.first };
        let Gift { source, used, times, head, given } = self;
        given.goes_on_behind(from);
        let mut out = Out { to, hold, sum: from.sum, tell: progress, now, given };
        let mut end = 0;
        for (file, bytes) in head.files() {
            // Of this file so much was given before.
            let behind = from.done.saturating_sub(end);
            end += bytes;
            if end <= from.done {
                continue;
            }
            match file {
                CopiedFile::Image => out.rest(&source.image_file(), behind)?,
                CopiedFile::Times => out.rest(times, behind)?,
                CopiedFile::Pages => out.pages(pages, used, behind)?,
                CopiedFile::Extent(sequence) => out.extent(source, sequence, behind..bytes)?,
            }
            assert_eq!(out.now.done, end, "what was announced is what was sent");
            out.given.add_end(CopyPoint { done: end, sum: out.sum });
        }
        assert_eq!(end, head.bytes, "what was announced is what was sent");
        let sum = out.sum.to_le_bytes();
        out.to.write_all(&sum).and_then(|()| out.to.flush()).map_err(BackupError::Stream)
    }
}

/// Writes a copy of `source`, and lets go under `hold` of what was written. `pages`: the page file;
/// `used`: the pages that the image of the source refers to. They must stay until all pages are
/// written, which `progress` says when its extent is above the first one. Yields the bytes written.
/// Blocks.
///
/// # Errors
/// [`BackupError::LetGo`] when the hold was let go meanwhile; [`BackupError::Stream`] what the
/// stream said; [`BackupError::Page`] when a page cannot be read; [`BackupError::Log`] when
/// something else cannot.
pub fn give(
    source: Source,
    (pages, used): (&Pages, Vec<PageRef>),
    rows: &[Row],
    hold: &Hold,
    to: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, BackupError> {
    let (extent_bytes, end) = (source.extent_bytes, source.end());
    let mut gift = Gift::new(source, used, rows)?;
    to.write_all(&gift.head.encode()).map_err(BackupError::Stream)?;
    let mut tell = |now: Progress| {
        hold.only_from(Lsn(now.extent * extent_bytes));
        progress(now);
    };
    gift.give_behind(CopyPoint::default(), pages, hold, to, &mut tell)?;
    hold.only_from(end);
    Ok(gift.head.bytes)
}

fn head_of(
    source: &Source,
    used: &[PageRef],
    image_bytes: usize,
    times_bytes: usize,
) -> Result<Head, BackupError> {
    let pages = u32::try_from(used.len()).map_err(|_| LogError::Full)?;
    let of_pages: u64 = used.iter().map(row_bytes).sum();
    let mut head = Head {
        log_id: source.log_id,
        extent_bytes: source.extent_bytes,
        first: source.first,
        end: source.end,
        pages,
        image_at: source.image_at(),
        image_bytes: image_bytes as u64,
        times_bytes: times_bytes as u64,
        bytes: image_bytes as u64 + times_bytes as u64 + of_pages,
    };
    head.bytes += head.extents().map(|extent| extent.bytes).sum::<u64>();
    Ok(head)
}

/// What a page takes in the stream.
fn row_bytes(page: &PageRef) -> u64 {
    PAGE_HEAD_BYTES as u64 + u64::from(page.bytes)
}

struct Out<'a> {
    to: &'a mut dyn Write,
    hold: &'a Hold,
    sum: u32,
    tell: &'a mut dyn FnMut(Progress),
    now: Progress,
    given: &'a mut GivenPoints,
}

impl Out<'_> {
    /// Writes what was read just before.
    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        if self.hold.from().is_none() {
            return Err(BackupError::LetGo);
        }
        let mut done = self.now.done;
        for step in bytes.chunks(COPY_STEP_BYTES) {
            self.sum = crc32c::crc32c_append(self.sum, step);
            done += step.len() as u64;
            self.given.add(CopyPoint { done, sum: self.sum });
        }
        self.to.write_all(bytes).map_err(BackupError::Stream)?;
        self.now.done += bytes.len() as u64;
        (self.tell)(self.now);
        Ok(())
    }

    fn rest(&mut self, file: &[u8], behind: u64) -> Result<(), BackupError> {
        self.put(file.get(size(behind)..).unwrap_or_default())
    }

    fn pages(&mut self, pages: &Pages, used: &[PageRef], behind: u64) -> Result<(), BackupError> {
        let mut end = 0;
        let has = used.iter().take_while(|page| {
            end += row_bytes(page);
            end <= behind
        });
        let used = used.get(has.count()..).unwrap_or_default();
        for some in used.chunks(PAGES_AT_ONCE) {
            for (page, content) in some.iter().zip(pages.read_all(some)) {
                let content = content.map_err(BackupError::Page)?;
                let mut row = Vec::with_capacity(PAGE_HEAD_BYTES + content.len());
                for number in [page.unit, page.bytes, page.checksum] {
                    row.extend_from_slice(&number.to_le_bytes());
                }
                row.extend_from_slice(&content);
                self.put(&row)?;
            }
        }
        Ok(())
    }

    fn extent(
        &mut self,
        source: &Source,
        extent: u64,
        part: Range<u64>,
    ) -> Result<(), BackupError> {
        self.now.extent = extent;
        let name = extent_name(extent);
        let failed = |e| LogError::io("read an extent", &name, e);
        let opened = source.disk.open(&name);
        let Ok(file) = opened else {
            // It is deleted when its last user drops it.
            let gone = self.hold.from().is_none();
            let failed = opened.map_err(failed).err().map_or(BackupError::LetGo, Into::into);
            return Err(if gone { BackupError::LetGo } else { failed });
        };
        let mut buffer = Aligned::zeroed(PIECE_BYTES);
        let mut done = part.start;
        while done < part.end {
            let wanted = size((part.end - done).min(PIECE_BYTES as u64));
            let count = file.read_at(buffer.first_mut(wanted), done).map_err(failed)?;
            if count < wanted {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()).into());
            }
            self.put(buffer.first(wanted))?;
            done += wanted as u64;
        }
        Ok(())
    }
}

const _: () = assert!(PIECE_BYTES.is_multiple_of(COPY_STEP_BYTES));
const _: () = assert!(COPY_STEP_BYTES.is_multiple_of(BLOCK_BYTES));
