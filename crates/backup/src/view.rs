//! A backup seen as a log folder at one of its points: what recovery, verification and restore
//! read.
//!
//! Extents are put together from their parts, pages from their packs. Not here: checking anything.
//!
//! Invariant: nothing can be changed through it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use towline_log::disk::{Disk, DiskFile, FileSystem};
use towline_log::folder::chain::ExtentOffset;
use towline_log::folder::names::{PAGES_NAME, extent_name, image_name, number_in_name};
use towline_log::format::BLOCK_BYTES;
use towline_types::Lsn;

use crate::error::BackupError;
use crate::extent_length::ExtentLength;
use crate::folder::{Backup, serial_in_name};
use crate::manifest::{End, Manifest, Point};
use crate::packs::{self, PageCopy};

/// The log folder of a point.
pub(super) struct View {
    disk: Arc<dyn Disk>,
    extents: BTreeMap<u64, Extent>,
    /// Its name in the log folder and in the backup.
    image: Option<(String, String)>,
    pages: Arc<PagesFile>,
}

#[derive(Clone, Default)]
struct Extent {
    /// Offset in the extent, length, name of the file.
    parts: Vec<(u64, u64, String)>,
    length: u64,
}

impl View {
    /// A point, with the log from extent `first` up to `end`.
    pub(super) fn of(
        backup: &Backup,
        manifest: &Manifest,
        point: &Point,
        end: End,
    ) -> Result<View, BackupError> {
        let ExtentOffset { sequence: last, offset } = end.place(manifest.extent_bytes);
        let mut extents: BTreeMap<u64, Extent> = BTreeMap::new();
        let wanted = |extent: u64| (point.first_extent..=last).contains(&extent);
        for part in manifest.parts.iter().filter(|part| wanted(part.extent)) {
            let extent = extents.entry(part.extent).or_default();
            extent.length = if part.extent == last { offset } else { manifest.extent_bytes };
            if part.from < extent.length {
                let bytes = part.sum.bytes.min(extent.length - part.from);
                extent.parts.push((part.from, bytes, part.sum.file.clone()));
            }
        }
        let image = point.image.as_ref();
        let image = image.map(|sum| (image_name(Lsn(point.at)), sum.file.clone()));
        let places = packs::places(backup, point)?;
        let packs = manifest.packs.iter();
        let packs = packs.filter_map(|pack| Some((serial_in_name(&pack.file)?, pack.file.clone())));
        let packs = packs.collect();
        let pages = Arc::new(PagesFile { disk: Arc::clone(&backup.disk), packs, places });
        Ok(View { disk: Arc::clone(&backup.disk), extents, image, pages })
    }

    /// Extents in it, with their lengths.
    pub(super) fn extents(&self) -> impl Iterator<Item = ExtentLength> {
        let extents = self.extents.iter();
        extents.map(|(&sequence, extent)| ExtentLength { sequence, bytes: extent.length })
    }

    /// Pages in it, and where they are.
    pub(super) fn places(&self) -> &[PageCopy] {
        &self.pages.places
    }
}

impl Backup {
    /// Its newest point, seen as a log folder.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`] when it has none; what is wrong with its files.
    pub(crate) fn newest_log(&self) -> Result<Arc<dyn Disk>, BackupError> {
        let manifest = self.listed()?;
        let point = manifest.newest().ok_or_else(|| BackupError::NotABackup {
            folder: self.disk.name(),
            file: String::new(),
        })?;
        Ok(Arc::new(View::of(self, manifest, point, point.end)?))
    }
}

impl Disk for View {
    fn create(&self, _name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if name == PAGES_NAME && !self.pages.places.is_empty() {
            return Ok(Arc::clone(&self.pages) as Arc<dyn DiskFile>);
        }
        if let Some((_, file)) = self.image.as_ref().filter(|image| image.0 == name) {
            return self.disk.open(file);
        }
        let sequence = number_in_name("extent-", name);
        let extent = sequence.and_then(|sequence| self.extents.get(&sequence));
        let extent = extent.ok_or(io::ErrorKind::NotFound)?;
        let mut parts = Vec::new();
        for (from, bytes, name) in &extent.parts {
            parts.push((*from, *bytes, self.disk.open(name)?));
        }
        Ok(Arc::new(ExtentFile { parts, length: extent.length }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<_> = self.extents().map(|extent| extent_name(extent.sequence)).collect();
        names.extend(self.image.iter().map(|(name, _)| name.clone()));
        if !self.pages.places.is_empty() {
            names.push(PAGES_NAME.to_owned());
        }
        Ok(names)
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.open(name)?.len()
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn file_system(&self) -> Option<FileSystem> {
        None
    }

    fn name(&self) -> String {
        self.disk.name()
    }

    fn is_buffered(&self) -> bool {
        self.disk.is_buffered()
    }
}

/// An extent in parts; what no part has is zeros.
struct ExtentFile {
    parts: Vec<(u64, u64, Arc<dyn DiskFile>)>,
    length: u64,
}

impl DiskFile for ExtentFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let wanted = within(bytes.len(), self.length.saturating_sub(offset));
        let Some(bytes) = bytes.get_mut(..wanted) else { return Ok(0) };
        bytes.fill(0);
        let end = offset + wanted as u64;
        for (from, length, file) in &self.parts {
            let (begin, stop) = (offset.max(*from), end.min(from + length));
            if begin >= stop {
                continue;
            }
            let place = within(wanted, begin - offset)..within(wanted, stop - offset);
            let Some(piece) = bytes.get_mut(place) else { continue };
            if file.read_at(piece, begin - from)? < piece.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(wanted)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.length)
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn cut(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// The page file, of which only the pages of an image are there.
struct PagesFile {
    disk: Arc<dyn Disk>,
    /// Names by number.
    packs: BTreeMap<u64, String>,
    places: Vec<PageCopy>,
}

impl DiskFile for PagesFile {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let block = BLOCK_BYTES as u64;
        let wanted = within(bytes.len(), self.len()?.saturating_sub(offset));
        let Some(bytes) = bytes.get_mut(..wanted) else { return Ok(0) };
        bytes.fill(0);
        let end = offset + wanted as u64;
        let end_of =
            |place: &PageCopy| (u64::from(place.page.unit) + u64::from(place.page.units())) * block;
        let first = self.places.partition_point(|place| end_of(place) <= offset);
        let mut open: Option<(u64, Arc<dyn DiskFile>)> = None;
        for place in self.places.iter().skip(first) {
            let from = u64::from(place.page.unit) * block;
            let (begin, stop) = (offset.max(from), end.min(end_of(place)));
            if begin >= stop {
                break;
            }
            let file = match &open {
                Some((pack, file)) if *pack == place.pack => file,
                _ => {
                    let name = self.packs.get(&place.pack).ok_or(io::ErrorKind::NotFound)?;
                    let file = self.disk.open(name)?;
                    &open.insert((place.pack, file)).1
                }
            };
            let slot = within(wanted, begin - offset)..within(wanted, stop - offset);
            let Some(piece) = bytes.get_mut(slot) else { continue };
            if file.read_at(piece, u64::from(place.unit) * block + (begin - from))? < piece.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(wanted)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let end = self
            .places
            .last()
            .map_or(0, |place| u64::from(place.page.unit) + u64::from(place.page.units()));
        Ok(end * BLOCK_BYTES as u64)
    }

    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn cut(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// `bytes`, or fewer.
fn within(bytes: usize, most: u64) -> usize {
    usize::try_from(most).map_or(bytes, |most| bytes.min(most))
}
