//! The manifest: the list of a backup's files, in JSON, with a checksum over itself.
//!
//! ```text
//! { "checksum": <crc32c of the value of "backup", as compact JSON in the order of these fields>,
//!   "backup": { "version": 2, ... } }
//! ```
//! padded with blanks to 4 KiB. Positions, lengths and checksums are numbers, times are
//! microseconds since the Unix epoch.
//!
//! Not here: reading or writing it (`folder`).
//!
//! Invariants of a manifest that was read: parts of one extent follow each other without a gap;
//! points ascend; each point is covered from its first extent to its end.

use serde::{Deserialize, Serialize};
use towline_log::folder::chain::ExtentOffset;
use towline_log::format::{LogId, padded};
use towline_log::mark::Seam;
use towline_types::Lsn;

use crate::error::BackupError;

/// Newest version of the manifest and of the files that it names: one with a list of damaged
/// batches, which a program that knows nothing of them must not restore as if it were whole.
pub const MANIFEST_VERSION: u32 = 2;
/// Version of a manifest without such a list.
pub(super) const VERSION_WITHOUT_DAMAGE: u32 = 1;

/// Name of the file.
pub(super) const MANIFEST_NAME: &str = "manifest.json";

/// What a backup consists of.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] when a batch is damaged, or the one before it.
    pub version: u32,
    /// The log's id, 32 hexadecimal digits.
    pub log_id: String,
    /// Bytes of one extent of the log.
    pub extent_bytes: u64,
    /// Format version of the log's extents, batches and records.
    pub extent_version: u16,
    /// Newest format version of images.
    pub image_version: u16,
    /// Number of the backup that wrote this, 1 for the first.
    pub serial: u64,
    /// Name of the queue manager, when a running one was copied.
    pub queue_manager: Option<String>,
    /// Version of towline that wrote this.
    pub towline: String,
    /// Bytes of extents, by extent and offset.
    pub parts: Vec<Part>,
    /// Files of pages.
    pub packs: Vec<FileSum>,
    /// States from which the log can be replayed, oldest first; one at least.
    pub points: Vec<Point>,
    /// When the log was how long.
    pub times: Option<FileSum>,
    /// Batches that were damaged in the log when it was copied. Not in version 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamageNote>,
}

/// A file of the backup.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileSum {
    /// Its name.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}

/// A piece of an extent.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Sequence of the extent.
    pub extent: u64,
    /// Offset in the extent.
    pub from: u64,
    /// The file.
    pub sum: FileSum,
}

/// An image and what goes with it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Runs that end at or before it are in the image; 0 without one.
    pub at: u64,
    /// The earliest position that can be restored from it.
    pub earliest: u64,
    /// The image; `None` when there was none, and the log is there from its beginning.
    pub image: Option<FileSum>,
    /// Where the image's pages are.
    pub places: Option<FileSum>,
    /// The oldest extent that holds what the image refers to, or what comes after it.
    pub first_extent: u64,
    /// Where the log ended when this backup was made.
    pub end: End,
    /// When that was.
    pub made_at: u64,
}

/// The end of a backup: no run is unfinished there.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// End of the last batch, without padding.
    pub lsn: u64,
    /// Index of that batch; 0: there is none.
    pub index: u64,
    /// Its checksum.
    pub checksum: u32,
    /// Its term.
    pub term: u32,
    /// Its length, header included.
    pub bytes: u32,
}

/// A damaged batch, as the manifest notes it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DamageNote {
    /// Its position.
    pub lsn: u64,
    /// Messages in it that cannot be read, if that is known.
    pub messages: Option<u64>,
}

/// Why a manifest is always written and summed.
const NOT_JSON: &str = "a manifest has numbers and strings alone, which JSON can express";
/// Why a manifest always has a point: reading one without is refused, and writing one adds it.
const NO_POINT: &str = "a manifest has a point";

impl End {
    pub(super) fn of(seam: Seam) -> End {
        let Seam { end, index, checksum, term, bytes } = seam;
        End { lsn: end.0, index, checksum, term, bytes }
    }

    pub(super) fn seam(self) -> Seam {
        let End { lsn, index, checksum, term, bytes } = self;
        Seam { end: Lsn(lsn), index, checksum, term, bytes }
    }

    /// Where it lies: extent, and offset in it rounded up to whole blocks.
    pub(super) fn place(self, extent_bytes: u64) -> ExtentOffset {
        let sequence = self.lsn.saturating_sub(1) / extent_bytes;
        ExtentOffset { sequence, offset: padded(self.lsn - sequence * extent_bytes) }
    }
}

#[derive(Deserialize, Serialize)]
struct Sealed {
    checksum: u32,
    backup: Manifest,
}

impl Manifest {
    pub(super) fn log_id(&self) -> Option<LogId> {
        u128::from_str_radix(&self.log_id, 16).ok().map(LogId)
    }

    pub(super) fn id_text(log_id: LogId) -> String {
        format!("{:032x}", log_id.0)
    }

    /// The newest point.
    #[must_use]
    pub fn newest(&self) -> Option<&Point> {
        self.points.last()
    }

    /// The earliest position that can be restored.
    pub(super) fn earliest(&self) -> Lsn {
        let Some(oldest) = self.points.first() else { unreachable!("{NO_POINT}") };
        oldest.earliest()
    }

    /// Where the newest backup ends.
    pub(super) fn end(&self) -> Lsn {
        let Some(newest) = self.points.last() else { unreachable!("{NO_POINT}") };
        Lsn(newest.end.lsn)
    }

    /// All files but the manifest itself.
    pub fn files(&self) -> impl Iterator<Item = &FileSum> {
        let points = self.points.iter().flat_map(|point| [&point.image, &point.places]);
        let parts = self.parts.iter().map(|part| &part.sum);
        parts.chain(&self.packs).chain(points.flatten()).chain(&self.times)
    }

    /// Bytes of all files but the manifest itself.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    /// How far an extent is held: bytes from its beginning on.
    #[must_use]
    pub fn held(&self, extent: u64) -> u64 {
        let behind = self.parts.partition_point(|part| part.extent <= extent);
        let last = behind.checked_sub(1).and_then(|last| self.parts.get(last));
        let last = last.filter(|part| part.extent == extent);
        last.map_or(0, |part| part.from.saturating_add(part.sum.bytes))
    }

    /// The position up to which the log is held without a gap from a point on: that of its own
    /// backup, or of a later one.
    #[must_use]
    pub fn reach(&self, point: &Point) -> End {
        let mut reach = point.end;
        let later = self.points.iter().filter(|later| later.end.lsn > point.end.lsn);
        for later in later {
            let from = reach.place(self.extent_bytes).sequence;
            let to = later.end.place(self.extent_bytes).sequence;
            let whole = (from..=to).all(|extent| self.held(extent) > 0);
            if !whole {
                break;
            }
            reach = later.end;
        }
        reach
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let checksum = crc32c::crc32c(&self.summed());
        let sealed = Sealed { checksum, backup: self.clone() };
        match serde_json::to_vec_pretty(&sealed) {
            Ok(text) => text,
            Err(error) => unreachable!("{NOT_JSON}: {error}"),
        }
    }

    /// The bytes that the checksum is of.
    fn summed(&self) -> Vec<u8> {
        match serde_json::to_vec(self) {
            Ok(text) => text,
            Err(error) => unreachable!("{NOT_JSON}: {error}"),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, BackupError> {
        let damaged = |what: &str| BackupError::Damaged {
            file: MANIFEST_NAME.to_owned(),
            what: what.to_owned(),
        };
        let value: serde_json::Value = serde_json::from_slice(bytes)
            .map_err(|error| damaged(&format!("it is not JSON: {error}")))?;
        let version = value.pointer("/backup/version").and_then(serde_json::Value::as_u64);
        let found = version.and_then(|version| u32::try_from(version).ok());
        let found = found.ok_or_else(|| damaged("it has no version"))?;
        if !(VERSION_WITHOUT_DAMAGE..=MANIFEST_VERSION).contains(&found) {
            return Err(BackupError::Version { found, supported: MANIFEST_VERSION });
        }
        let sealed: Sealed =
            serde_json::from_value(value).map_err(|error| damaged(&error.to_string()))?;
        if crc32c::crc32c(&sealed.backup.summed()) != sealed.checksum {
            return Err(damaged("its checksum is wrong"));
        }
        sealed.backup.check().map_err(damaged)?;
        Ok(sealed.backup)
    }

    /// A checksum keeps accidents out; what is computed from a manifest must not overflow either.
    fn check(&self) -> Result<(), &'static str> {
        let extent_bytes = self.extent_bytes;
        let possible = (towline_log::EXTENT_BYTES_MIN..=towline_log::EXTENT_BYTES_MAX)
            .contains(&extent_bytes)
            && extent_bytes.is_multiple_of(towline_log::format::BLOCK_BYTES as u64);
        if !possible || self.log_id().is_none() {
            return Err("the log that it names is impossible");
        }
        let mut before: Option<&Part> = None;
        for part in &self.parts {
            let (from, bytes) = (part.from, part.sum.bytes);
            let follows = match before {
                Some(before) if before.extent == part.extent => {
                    from == before.from + before.sum.bytes
                }
                Some(before) => part.extent > before.extent && from == 0,
                None => from == 0,
            };
            let inside = from.checked_add(bytes).is_some_and(|end| end <= extent_bytes);
            if !follows || !inside || bytes == 0 || part.extent > u64::MAX / extent_bytes / 2 {
                return Err("its parts of extents do not follow each other");
            }
            before = Some(part);
        }
        if self.points.is_empty() {
            return Err("it has no image");
        }
        let ascend = self.points.windows(2).all(|pair| match pair {
            [one, two] => one.at <= two.at && one.end.lsn <= two.end.lsn,
            _ => true,
        });
        if !ascend {
            return Err("its images are not in order");
        }
        let held = |noted: &DamageNote| {
            let (extent, offset) = (noted.lsn / extent_bytes, noted.lsn % extent_bytes);
            offset < self.held(extent)
        };
        if !self.damaged.iter().all(held) {
            return Err("damage is noted where it holds nothing");
        }
        for point in &self.points {
            let ExtentOffset { sequence: last, offset } = point.end.place(extent_bytes);
            let covered = point.first_extent <= last
                && (point.first_extent..=last).all(|extent| self.held(extent) > 0)
                && self.held(last) >= offset
                && point.at <= point.earliest
                && point.earliest <= point.end.lsn;
            if !covered {
                return Err("it lacks a part of the log");
            }
        }
        Ok(())
    }
}
