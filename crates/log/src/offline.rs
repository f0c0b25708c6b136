//! Looking at a log at rest: showing it and checking it, without changing a byte.
//!
//! Both go over damage: what is wrong is said, and reading goes on at the next whole batch. Not
//! here: what records mean (the caller prints them), and repair.

use std::path::Path;
use std::sync::Arc;

use towline_types::{BodyLocation, Lsn};

use crate::block::Aligned;
use crate::disk::{Disk, LinuxDisk};
use crate::error::{Damage, Finding, LogError};
use crate::folder::chain::{ExtentOffset, finding};
use crate::folder::files::{Files, Folder, no_extents};
use crate::folder::images::{Images, LoadedImage, load};
use crate::folder::names::{extent_name, image_name};
use crate::folder::scan::{Casualties, Scan};
use crate::folder::table::{self, TailVerdict};
use crate::format::{BATCH_HEADER_BYTES, BLOCK_BYTES, LogId, padded, size};
use crate::record::{Kind, Records};

/// Which part of the log to show.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Batches that end behind this position.
    pub from: Lsn,
    /// Batches that begin before this position.
    pub to: Lsn,
}

impl Default for Filter {
    /// All of it.
    fn default() -> Filter {
        Filter { from: Lsn::ZERO, to: Lsn(u64::MAX) }
    }
}

/// One thing shown by [`dump`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An image.
    Image {
        /// What lies before it is in the image.
        at: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A batch's header; its records follow.
    Batch {
        /// Its position.
        lsn: Lsn,
        /// Its index.
        index: u64,
        /// Its term.
        term: u32,
        /// Batches before it that were in flight with it.
        unsynced: u32,
        /// Bytes of header and payload.
        bytes: u64,
    },
    /// A record, whether its run was ended or not.
    Record {
        /// Position of its first byte.
        lsn: Lsn,
        /// Whether it is the last of its run.
        last: bool,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The run so far was given up by its writer.
    GivenUp {
        /// Where that is said.
        lsn: Lsn,
    },
    /// Something wrong.
    Finding(&'a Finding),
    /// The batch of the finding before: what is damaged in it.
    Damaged(Casualties),
}

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Whole batches.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Images that are whole.
    pub images: u64,
    /// Position of the first batch.
    pub first: Option<Lsn>,
    /// End of the last batch.
    pub last: Option<Lsn>,
    /// What is wrong, in log order; a torn tail is listed too.
    pub findings: Vec<Finding>,
    /// Batches before the tail with a wrong checksum.
    pub batches_damaged: u64,
    /// Bodies in them that are damaged; the others of them can be read.
    pub bodies_damaged: u64,
    /// Whether that is all: not when a header is damaged, or a record's length, or the batch has no
    /// checks (version 1).
    pub bodies_unknown: bool,
}

impl VerifyReport {
    /// Whether nothing but a torn tail was found, or extents that no image needs: the log can be
    /// started, nothing durable is lost.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.what.is_harmless())
    }
}

/// Prints the log of a folder, oldest first; changes nothing. Safe beside a running process; its
/// newest batch may then look torn.
///
/// # Errors
/// What keeps the log from being read at all: [`LogError`].
pub fn dump(folder: &Path, filter: Filter, show: &mut dyn FnMut(Item<'_>)) -> Result<(), LogError> {
    let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(folder)?);
    dump_disk(&disk, filter, show)
}

/// [`dump`] of any disk.
///
/// # Errors
/// As [`dump`].
pub fn dump_disk(
    disk: &Arc<dyn Disk>,
    filter: Filter,
    show: &mut dyn FnMut(Item<'_>),
) -> Result<(), LogError> {
    let folder = Folder::list(disk.as_ref())?;
    let Some(mut files) = Files::of(disk, &folder)? else {
        show_images(disk.as_ref(), &folder, None, show)?;
        return if folder.held_log() { Err(no_extents(&folder)) } else { Ok(()) };
    };
    let log_id = files.identity().log_id;
    // Whatever is wrong with the extents, the images are there.
    let last_image = show_images(disk.as_ref(), &folder, Some(log_id), show)?;
    let newest = Images::load(disk.as_ref(), &folder, log_id, Lsn(u64::MAX))?.newest;
    let lacking = files.cover(newest.map(|(header, _)| header)).err();
    if let Some(LogError::Damaged(finding)) = &lacking {
        show(Item::Finding(finding));
    }
    if let Some(finding) = files.left_over() {
        show(Item::Finding(&finding));
    }
    match (files.check(disk.as_ref(), ..), &lacking) {
        // It is the one that was shown.
        (Err(LogError::Damaged(found)), Some(LogError::Damaged(lacking))) if found == *lacking => {
            return Ok(());
        }
        (checked, _) => checked?,
    }
    Walk { files: &files, filter, show }.run(last_image);
    Ok(())
}

/// Shows the images, those of another log excepted, and yields the position of the newest whole
/// one.
fn show_images(
    disk: &dyn Disk,
    folder: &Folder,
    log_id: Option<LogId>,
    show: &mut dyn FnMut(Item<'_>),
) -> Result<Option<Lsn>, LogError> {
    let mut last_image = None;
    for &at in &folder.images {
        match load(disk, at)? {
            LoadedImage::Whole(header, bytes) if log_id.is_none_or(|id| header.log_id == id) => {
                last_image = Some(at);
                show(Item::Image { at, bytes: bytes.len() as u64 });
            }
            LoadedImage::Whole(..) => return Err(LogError::OtherLog { file: image_name(at) }),
            LoadedImage::Damaged => {
                let (file, what) = (image_name(at), Damage::Image);
                show(Item::Finding(&Finding { file, extent: 0, offset: 0, lsn: at, what }));
            }
        }
    }
    Ok(last_image)
}

/// Checks every extent, batch, record and image of a folder; changes nothing.
///
/// # Errors
/// [`LogError::Io`] when the folder cannot be read at all. A file that cannot be used is a finding.
pub fn verify(folder: &Path) -> Result<VerifyReport, LogError> {
    verify_disk(&(Arc::new(LinuxDisk::read_only(folder)?) as Arc<dyn Disk>))
}

/// [`verify`] of any disk.
///
/// # Errors
/// As [`verify`].
pub fn verify_disk(disk: &Arc<dyn Disk>) -> Result<VerifyReport, LogError> {
    let mut report = VerifyReport::default();
    let mut show = |item: Item<'_>| report.enter(&item);
    match dump_disk(disk, Filter::default(), &mut show) {
        Ok(()) => Ok(report),
        Err(LogError::Damaged(finding)) => {
            report.findings.push(finding);
            Ok(report)
        }
        Err(error) => Err(error),
    }
}

impl VerifyReport {
    fn enter(&mut self, item: &Item<'_>) {
        match item {
            Item::Image { .. } => self.images += 1,
            Item::Batch { lsn, bytes, .. } => {
                self.batches += 1;
                self.first.get_or_insert(*lsn);
                self.last = Some(lsn.after(*bytes));
            }
            Item::Record { .. } => self.records += 1,
            Item::GivenUp { .. } => {}
            Item::Finding(finding) => self.findings.push((*finding).clone()),
            Item::Damaged(found) => {
                self.batches_damaged += 1;
                self.bodies_damaged += found.bodies;
                self.bodies_unknown |= found.incomplete;
            }
        }
    }
}

/// Reads bodies of a log at rest, or beside a running process.
pub struct BodiesAtRest {
    disk: Arc<dyn Disk>,
    extent_bytes: u64,
}

impl BodiesAtRest {
    /// Of the log in `folder`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(folder: &Path) -> Result<BodiesAtRest, LogError> {
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(folder)?);
        let folder = Folder::list(disk.as_ref())?;
        let files = Files::of(&disk, &folder)?.ok_or_else(|| no_extents(&folder))?;
        let extent_bytes = files.identity().extent_bytes;
        Ok(BodiesAtRest { disk, extent_bytes })
    }

    /// The bytes of one piece of a body, appended to `to`. They are not checked: that is done when
    /// the batch is read.
    ///
    /// # Errors
    /// [`LogError::Io`]: its extent was released, or cannot be read.
    pub fn read(&self, piece: BodyLocation, to: &mut Vec<u8>) -> Result<(), LogError> {
        let name = extent_name(piece.lsn.0 / self.extent_bytes);
        let failed = |e| LogError::io("read a body", &name, e);
        let at = piece.lsn.0 % self.extent_bytes;
        let within = size(at % BLOCK_BYTES as u64);
        let bytes = within + piece.bytes as usize;
        let mut memory = Aligned::zeroed(size(padded(bytes as u64)));
        let file = self.disk.open(&name).map_err(failed)?;
        let count = file.read_at(memory.bytes_mut(), at - within as u64).map_err(failed)?;
        let found = memory.first(count).get(within..bytes);
        let cut = || failed(std::io::ErrorKind::UnexpectedEof.into());
        to.extend_from_slice(found.ok_or_else(cut)?);
        Ok(())
    }
}

/// Goes over all batches, and over damage.
struct Walk<'a> {
    files: &'a Files,
    filter: Filter,
    show: &'a mut dyn FnMut(Item<'_>),
}

impl Walk<'_> {
    fn run(&mut self, image: Option<Lsn>) {
        let mut scan = Scan::new(self.files, self.files.first());
        loop {
            while let Ok(Some(header)) = scan.next_batch() {
                let (lsn, bytes) = (header.lsn, header.batch_bytes());
                if lsn.after(bytes) <= self.filter.from || lsn >= self.filter.to {
                    continue;
                }
                let (index, term, unsynced) = (header.index, header.term, header.unsynced);
                (self.show)(Item::Batch { lsn, index, term, unsynced, bytes });
                self.records(&mut scan, lsn);
            }
            let facts = scan.facts(image, u64::MAX).facts;
            let what = match table::judge_tail(facts) {
                TailVerdict::End => return,
                TailVerdict::Cut => Damage::TornTail,
                TailVerdict::Refuse(what) => what,
            };
            let place = match what {
                Damage::Batch => scan.broken_at().place,
                _ => scan.place,
            };
            (self.show)(Item::Finding(&finding(place, scan.lsn(place), what)));
            if what == Damage::TornTail {
                return;
            }
            if what == Damage::Batch {
                (self.show)(Item::Damaged(scan.casualties(place)));
            }
            // A whole batch may lie exactly there, if it does not belong there.
            let behind = ExtentOffset { offset: place.offset + BLOCK_BYTES as u64, ..place };
            match scan.next_whole(behind) {
                Some(found) => scan.go_on_at(found.place),
                None => return,
            }
        }
    }

    fn records(&mut self, scan: &mut Scan<'_>, lsn: Lsn) {
        let payload_lsn = lsn.after(BATCH_HEADER_BYTES as u64);
        let place = scan.place_of(lsn);
        let Ok(payload) = scan.payload() else {
            (self.show)(Item::Finding(&finding(place, lsn, Damage::Unreadable)));
            return;
        };
        for found in Records::new(payload) {
            let Ok(found) = found else {
                (self.show)(Item::Finding(&finding(place, lsn, Damage::Records)));
                return;
            };
            let lsn = payload_lsn.after(found.start as u64);
            match found.kind {
                Kind::GivenUp => (self.show)(Item::GivenUp { lsn }),
                Kind::More | Kind::Last => {
                    let last = found.kind == Kind::Last;
                    (self.show)(Item::Record { lsn, last, bytes: found.bytes });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Urgency;
    use crate::options::Options;
    use crate::testing::{Watch, append, image, start};

    #[test]
    fn a_dump_shows_what_the_filter_lets_through_beside_a_running_log() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(folder.path()).unwrap());
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let mut ends = Vec::new();
        for byte in 0..4 {
            let (_, end) = append(&log, &[vec![byte; 10], vec![byte; 20]], Urgency::Forced);
            watch.wait_durable(end);
            ends.push(end);
        }
        image(&log, ends[0], b"image");
        let shown = |filter| {
            let mut shown = Vec::new();
            let mut show = |item: Item<'_>| match item {
                Item::Image { at, bytes } => shown.push(format!("image {at} {bytes}")),
                Item::Batch { index, term, .. } => shown.push(format!("batch {index} {term}")),
                Item::Record { last, bytes, .. } => {
                    shown.push(format!("record {} {last}", bytes.len()));
                }
                Item::GivenUp { .. } => shown.push("given up".into()),
                Item::Damaged(found) => shown.push(format!("{found:?}")),
                Item::Finding(finding) => shown.push(finding.to_string()),
            };
            dump(folder.path(), filter, &mut show).unwrap();
            shown
        };
        assert_eq!(shown(Filter::default()).len(), 1 + 4 * 3);
        let image = format!("image {} 5", ends[0]);
        let some = shown(Filter { from: ends[1], to: ends[2] });
        assert_eq!(some, [image.as_str(), "batch 3 1", "record 10 false", "record 20 true"]);
        let report = verify(folder.path()).unwrap();
        assert_eq!((report.batches, report.records, report.images), (4, 8, 1));
        assert_eq!(report.last, Some(ends[3]));
        assert!(report.is_sound() && report.findings.is_empty());
    }
}
