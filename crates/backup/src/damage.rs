//! Damaged batches in the log that a backup copies: where they lie, and whether a restart of the
//! copy comes past them.
//!
//! Not here: copying; asking other instances for what is damaged.
//!
//! Invariant: damage is let through only where a restart does not read: what the image needs behind
//! it is whole.

use towline_log::folder::chain::{ExtentOffset, Link, finding};
use towline_log::folder::files::{Files, Folder};
use towline_log::folder::names::extent_name;
use towline_log::folder::scan::{ChainBreak, Scan};
use towline_log::format::{BLOCK_BYTES, ImageHeader};
use towline_log::{Damage, LogError};
use towline_types::Lsn;

use crate::damaged_batch::DamagedBatch;
use crate::manifest::{DamageNote, End, Manifest, Point};
use crate::source::Source;

impl Manifest {
    /// Damaged batches between two positions, the first one included.
    pub(super) fn damaged_within(&self, from: Lsn, to: Lsn) -> Vec<DamagedBatch> {
        let inside = self.damaged.iter().filter(|noted| (from.0..to.0).contains(&noted.lsn));
        inside.map(|noted| self.damaged_batch(*noted)).collect()
    }

    /// All that are noted.
    pub(super) fn damaged_batches(&self) -> Vec<DamagedBatch> {
        self.damaged_within(Lsn::ZERO, Lsn(u64::MAX))
    }

    fn damaged_batch(&self, DamageNote { lsn, messages }: DamageNote) -> DamagedBatch {
        let (extent, offset) = (lsn / self.extent_bytes, lsn % self.extent_bytes);
        DamagedBatch { file: extent_name(extent), offset, lsn: Lsn(lsn), messages }
    }

    /// The damage through which an earlier point cannot be replayed to a later position.
    pub(super) fn damage_between(&self, point: &Point, upto: Lsn) -> Option<DamagedBatch> {
        self.damaged_within(Lsn(point.at), upto).into_iter().next()
    }

    /// Lets go of parts that have damage where `source` is whole by now: they are copied again.
    pub(super) fn drop_what_was_repaired(&mut self, source: &Source) -> Result<(), LogError> {
        let extent_of = |lsn: u64| lsn / source.extent_bytes;
        if !self.damaged.iter().any(|noted| extent_of(noted.lsn) >= source.first) {
            return Ok(());
        }
        let folder = Folder::list(source.disk.as_ref())?;
        let Some(files) = Files::of(&source.disk, &folder)? else { return Ok(()) };
        let mut whole = Vec::new();
        for DamageNote { lsn, .. } in &self.damaged {
            let place =
                ExtentOffset { sequence: extent_of(*lsn), offset: lsn % source.extent_bytes };
            if place.sequence >= source.first
                && files.length(place.sequence).is_some()
                && matches!(Scan::again(&files, place, None).next_batch(), Ok(Some(_)))
            {
                whole.push(place.sequence);
            }
        }
        self.damaged.retain(|noted| !whole.contains(&extent_of(noted.lsn)));
        self.parts.retain(|part| !whole.contains(&part.extent));
        Ok(())
    }
}

/// Reads the copy of a log from extent `from` on to its end. Yields the damaged batches, where the
/// image makes up for them.
///
/// # Errors
/// [`LogError::Damaged`]: a restart of the copy would be refused, or it is not what the end says.
pub(super) fn look(
    files: &Files,
    from: u64,
    end: End,
    image: Option<&ImageHeader>,
) -> Result<Vec<DamageNote>, LogError> {
    let mut scan = Scan::new(files, from);
    let mut damaged = Vec::new();
    while !to_the_end(&mut scan, end)? {
        let ChainBreak { place, what } = scan.broken_at();
        if what != Damage::Batch {
            return Err(LogError::Damaged(finding(place, scan.lsn(place), what)));
        }
        let lost = scan.casualties(place);
        let messages = (!lost.incomplete).then_some(lost.bodies);
        damaged.push(DamageNote { lsn: scan.lsn(place).0, messages });
        let behind = ExtentOffset { offset: place.offset + BLOCK_BYTES as u64, ..place };
        match scan.next_whole(behind) {
            Some(next) if next.header.lsn.0 < end.lsn => scan.go_on_at(next.place),
            Some(_) | None => break,
        }
    }
    if !damaged.is_empty() {
        replays(files, end, image)?;
    }
    Ok(damaged)
}

/// Reads on. Whether it came to the end.
fn to_the_end(scan: &mut Scan<'_>, end: End) -> Result<bool, LogError> {
    let failed = |e| LogError::io("read the copy of the log", "extent", e);
    while scan.end.0 < end.lsn && scan.next_batch().map_err(failed)?.is_some() {}
    let here = scan.end.0 == end.lsn;
    Ok(here && (end.index == 0 || scan.link == Some(Link::of_seam(end.seam()))))
}

/// Whether a restart over the image comes to the end.
fn replays(files: &Files, end: End, image: Option<&ImageHeader>) -> Result<(), LogError> {
    let extent_bytes = files.identity().extent_bytes;
    let failed = |e| LogError::io("read the copy of the log", "extent", e);
    let mut scan = match image {
        Some(ImageHeader { seam: Some(seam), .. }) => {
            let mut scan = Scan::behind(files, *seam);
            if !scan.follows(*seam).map_err(failed)? {
                // A restart looks at the header of the batch before the image.
                let begin = Lsn(seam.end.0.saturating_sub(u64::from(seam.bytes)));
                let found = finding(scan.place_of(begin), begin, Damage::Batch);
                return Err(LogError::Damaged(found));
            }
            scan
        }
        Some(header) => Scan::new(files, header.needs().0 / extent_bytes),
        None => Scan::new(files, files.first()),
    };
    if to_the_end(&mut scan, end)? {
        return Ok(());
    }
    let ChainBreak { place, what } = scan.broken_at();
    Err(LogError::Damaged(finding(place, scan.lsn(place), what)))
}
