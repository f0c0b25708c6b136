//! Writes a copy of a running log into a stream, from the log's own files.
//!
//! Not here: the hold (the caller takes it, before the source is chosen).
//!
//! Invariant: no byte leaves that was read after the hold had been let go.

use std::io::Write;

use towline_log::Hold;
use towline_log::LogError;
use towline_log::Pages;
use towline_log::block::Aligned;
use towline_log::folder::names::extent_name;
use towline_log::format::{BLOCK_BYTES, size};
use towline_log::time_index::{self, Row};
use towline_types::{Lsn, PageRef};

use super::{Head, PAGE_HEAD_BYTES};
use crate::error::BackupError;
use crate::extent_length::ExtentLength;
use crate::folder::PIECE_BYTES;
use crate::progress::Progress;
use crate::source::Source;

/// Pages read at a time: a page takes about 16 KiB.
const PAGES_AT_ONCE: usize = 64;

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
    source: &Source,
    pages: &Pages,
    used: &[PageRef],
    rows: &[Row],
    hold: &Hold,
    to: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, BackupError> {
    let mut used = used.to_vec();
    used.sort_unstable();
    let (image, table) = (source.image_file(), time_index::encode(rows));
    let head = head_of(source, &used, image.len(), table.len())?;
    to.write_all(&head.encode()).map_err(BackupError::Stream)?;
    let now = Progress { done: 0, all: head.bytes, extent: head.first };
    let mut out = Out { to, hold, sum: 0, tell: progress, now };
    out.put(&image)?;
    out.put(&table)?;
    for some in used.chunks(PAGES_AT_ONCE) {
        for (page, content) in some.iter().zip(pages.read_all(some)) {
            let content = content.map_err(BackupError::Page)?;
            let mut row = Vec::with_capacity(PAGE_HEAD_BYTES + content.len());
            for number in [page.unit, page.bytes, page.checksum] {
                row.extend_from_slice(&number.to_le_bytes());
            }
            row.extend_from_slice(&content);
            out.put(&row)?;
        }
    }
    for ExtentLength { sequence, bytes } in head.extents() {
        out.extent(source, sequence, bytes)?;
    }
    hold.only_from(source.end());
    assert_eq!(out.now.done, head.bytes, "what was announced is what was sent");
    let sum = out.sum.to_le_bytes();
    out.to.write_all(&sum).and_then(|()| out.to.flush()).map_err(BackupError::Stream)?;
    Ok(head.bytes)
}

fn head_of(
    source: &Source,
    used: &[PageRef],
    image_bytes: usize,
    times_bytes: usize,
) -> Result<Head, BackupError> {
    let pages = u32::try_from(used.len()).map_err(|_| LogError::Full)?;
    let of_pages: u64 =
        used.iter().map(|page| PAGE_HEAD_BYTES as u64 + u64::from(page.bytes)).sum();
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

struct Out<'a> {
    to: &'a mut dyn Write,
    hold: &'a Hold,
    sum: u32,
    tell: &'a mut dyn FnMut(Progress),
    now: Progress,
}

impl Out<'_> {
    /// Writes what was read just before.
    fn put(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        if self.hold.from().is_none() {
            return Err(BackupError::LetGo);
        }
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.to.write_all(bytes).map_err(BackupError::Stream)?;
        self.now.done += bytes.len() as u64;
        (self.tell)(self.now);
        Ok(())
    }

    fn extent(&mut self, source: &Source, extent: u64, bytes: u64) -> Result<(), BackupError> {
        self.now.extent = extent;
        self.hold.only_from(Lsn(extent * source.extent_bytes));
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
        let mut done = 0;
        while done < bytes {
            let wanted = size((bytes - done).min(PIECE_BYTES as u64));
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

const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));
