//! Pages in a backup: copied into packs, found again through the page table of an image.
//!
//! ```text
//! pages-...      pages side by side, each padded with zeros to 4 KiB
//! places-...     a row of 32 bytes for each page that the image at that position refers to, in the
//!                order of units, padded with zeros to 4 KiB; numbers are little-endian:
//!   0   4  unit in the page file
//!   4   4  length of the page; 0: no row
//!   8   4  its crc32c
//!   12  4  unit in the pack
//!   16  8  number of the backup that wrote the pack
//!   24  8  zero
//! ```
//! A page that an earlier pack has is not copied again. Not here: which pages an image refers to.
//!
//! Invariants: rows ascend by unit and do not overlap; a page is taken from an earlier pack only
//! when all of its bytes are the same.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use towline_log::LogError;
use towline_log::Pages;
use towline_log::block::Aligned;
use towline_log::disk::DiskFile;
use towline_log::format::{BLOCK_BYTES, padded, size};
use towline_types::{Lsn, PageRef};

use crate::account::CopyAccount;
use crate::error::BackupError;
use crate::folder::{Backup, file_name, serial_in_name};
use crate::manifest::{FileSum, Manifest, Point};

const ROW_BYTES: usize = 32;
/// Pages read at a time: a page takes about 16 KiB.
const PAGES_AT_ONCE: usize = 64;

/// Where the copy of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) page: PageRef,
    /// The number of the backup that wrote the pack.
    pub(super) pack: u64,
    pub(super) unit: u32,
}

/// The table of an image's pages; without one, it refers to none.
pub(super) fn places(backup: &Backup, point: &Point) -> Result<Vec<PageCopy>, BackupError> {
    let Some(sum) = &point.places else { return Ok(Vec::new()) };
    let bytes = backup.load(sum)?;
    let damaged = |what: &str| BackupError::Damaged { file: sum.file.clone(), what: what.into() };
    let mut places: Vec<PageCopy> = Vec::new();
    for row in bytes.chunks_exact(ROW_BYTES) {
        let place = decode(row).ok_or_else(|| damaged("a row is too short"))?;
        if place.page.bytes == 0 {
            break;
        }
        let end = |place: &PageCopy| u64::from(place.page.unit) + u64::from(place.page.units());
        if places.last().is_some_and(|last| end(last) > u64::from(place.page.unit)) {
            return Err(damaged("its pages overlap"));
        }
        places.push(place);
    }
    Ok(places)
}

/// The pages of a log: its page file, and the pages that the image of the source refers to.
#[derive(Clone, Copy)]
pub struct SourcePages<'a> {
    /// The page file; `None` when the image refers to no page, or there is no image.
    pub file: Option<&'a Pages>,
    /// The pages, in any order.
    pub used: &'a [PageRef],
}

/// What the new files of pages are named after.
#[derive(Clone, Copy)]
pub(super) struct PackName {
    /// Position of the image that refers to the pages.
    pub(super) at: Lsn,
    /// Number of the backup.
    pub(super) serial: u64,
}

/// The files of the pages of an image.
#[derive(Default)]
pub(super) struct CopiedPages {
    /// The page table; `None` when the image refers to no page.
    pub(super) table: Option<FileSum>,
    /// The new pack; `None` when earlier packs have all pages.
    pub(super) pack: Option<FileSum>,
}

/// Copies the pages of an image that no pack of the backup `before` has.
pub(super) fn copy(
    backup: &Backup,
    source: SourcePages<'_>,
    before: Option<&Manifest>,
    name: PackName,
    written: &mut CopyAccount<'_>,
) -> Result<CopiedPages, BackupError> {
    if source.used.is_empty() {
        return Ok(CopiedPages::default());
    }
    assert!(source.file.is_some(), "an image that refers to pages has a page file");
    let Some(pages) = source.file else { return Ok(CopiedPages::default()) };
    let PackName { at, serial } = name;
    let mut used = source.used.to_vec();
    used.sort_unstable();
    let earlier = Earlier::of(backup, before, &used)?;
    let mut pack =
        Pack { name: file_name("pages", at, serial), serial, file: None, unit: 0, sum: 0 };
    let mut table = Vec::with_capacity(used.len() * ROW_BYTES);
    for some in used.chunks(PAGES_AT_ONCE) {
        for (page, content) in some.iter().zip(pages.read_all(some)) {
            let content = content?;
            let place = match earlier.same(*page, &content)? {
                Some(place) => place,
                None => pack.add(backup, *page, &content)?,
            };
            written.add(u64::from(page.units()) * BLOCK_BYTES as u64);
            encode(place, &mut table);
        }
    }
    let pack = pack.end()?;
    let table = written.file(&file_name("places", at, serial), &table)?;
    Ok(CopiedPages { table: Some(table), pack })
}

/// The pack that is being written.
struct Pack {
    name: String,
    serial: u64,
    file: Option<std::sync::Arc<dyn DiskFile>>,
    unit: u32,
    sum: u32,
}

impl Pack {
    fn add(
        &mut self,
        backup: &Backup,
        page: PageRef,
        content: &Bytes,
    ) -> Result<PageCopy, BackupError> {
        let failed = |e| LogError::io("write pages", &self.name, e);
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = backup.disk.create(&self.name).map_err(failed)?;
                self.file.insert(file)
            }
        };
        let mut buffer = Aligned::with_capacity(content.len());
        buffer.append_to().extend_from_slice(content);
        buffer.pad();
        file.write_at(buffer.bytes(), u64::from(self.unit) * BLOCK_BYTES as u64).map_err(failed)?;
        self.sum = crc32c::crc32c_append(self.sum, buffer.bytes());
        let place = PageCopy { page, pack: self.serial, unit: self.unit };
        self.unit = self.unit.checked_add(page.units()).ok_or(LogError::Full)?;
        Ok(place)
    }

    fn end(self) -> Result<Option<FileSum>, BackupError> {
        let Some(file) = &self.file else { return Ok(None) };
        file.sync_data().map_err(|e| LogError::io("sync pages", &self.name, e))?;
        let bytes = u64::from(self.unit) * BLOCK_BYTES as u64;
        Ok(Some(FileSum { file: self.name, bytes, crc32c: self.sum }))
    }
}

/// Pages that the newest point of the backup has.
struct Earlier {
    places: BTreeMap<PageRef, PageCopy>,
    files: BTreeMap<u64, (String, std::sync::Arc<dyn DiskFile>)>,
}

impl Earlier {
    fn of(
        backup: &Backup,
        before: Option<&Manifest>,
        used: &[PageRef],
    ) -> Result<Earlier, BackupError> {
        let mut earlier = Earlier { places: BTreeMap::new(), files: BTreeMap::new() };
        let Some(manifest) = before else { return Ok(earlier) };
        let Some(point) = manifest.newest() else { return Ok(earlier) };
        let used: BTreeSet<PageRef> = used.iter().copied().collect();
        let mut units: BTreeMap<u64, u64> = BTreeMap::new();
        let all = places(backup, point)?;
        for place in all.into_iter().filter(|place| used.contains(&place.page)) {
            *units.entry(place.pack).or_default() += u64::from(place.page.units());
            earlier.places.insert(place.page, place);
        }
        for pack in &manifest.packs {
            let Some(serial) = serial_in_name(&pack.file) else { continue };
            // A pack without a page of the image is left behind, as is one of which little is left.
            let Some(wanted) = units.get(&serial).map(|units| units * BLOCK_BYTES as u64) else {
                continue;
            };
            if wanted * 2 >= pack.bytes {
                earlier.files.insert(serial, (pack.file.clone(), backup.file(pack)?));
            }
        }
        earlier.places.retain(|_, place| earlier.files.contains_key(&place.pack));
        Ok(earlier)
    }

    fn same(&self, page: PageRef, content: &Bytes) -> Result<Option<PageCopy>, BackupError> {
        let Some(place) = self.places.get(&page) else { return Ok(None) };
        let Some((name, file)) = self.files.get(&place.pack) else { return Ok(None) };
        let failed = |e| LogError::io("read pages", name, e);
        let mut buffer = Aligned::zeroed(size(padded(content.len() as u64)));
        let from = u64::from(place.unit) * BLOCK_BYTES as u64;
        let count = file.read_at(buffer.bytes_mut(), from).map_err(failed)?;
        let there = buffer.first(count.min(content.len()));
        Ok((there == content.as_ref()).then_some(*place))
    }
}

/// The packs that points need, by their numbers.
pub(super) fn packs_of(backup: &Backup, manifest: &Manifest) -> Result<BTreeSet<u64>, BackupError> {
    let mut serials = BTreeSet::new();
    for point in &manifest.points {
        let places = places(backup, point)?;
        serials.extend(places.iter().map(|place| place.pack));
    }
    Ok(serials)
}

fn encode(place: PageCopy, table: &mut Vec<u8>) {
    table.extend_from_slice(&place.page.unit.to_le_bytes());
    table.extend_from_slice(&place.page.bytes.to_le_bytes());
    table.extend_from_slice(&place.page.checksum.to_le_bytes());
    table.extend_from_slice(&place.unit.to_le_bytes());
    table.extend_from_slice(&place.pack.to_le_bytes());
    table.extend_from_slice(&[0; 8]);
}

fn decode(row: &[u8]) -> Option<PageCopy> {
    let number = |at: usize| {
        let bytes = row.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let pack = row.get(16..24)?.try_into().ok().map(u64::from_le_bytes)?;
    let page = PageRef { unit: number(0)?, bytes: number(4)?, checksum: number(8)? };
    Some(PageCopy { page, pack, unit: number(12)? })
}
