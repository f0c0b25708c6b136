//! The folder of a backup: its names, its manifest, what was left by an interrupted one.
//!
//! Not here: what is copied into it.
//!
//! Invariants: the manifest is replaced in one step; a file that it names is never written to; only
//! files of our names are removed, and none that a manifest names which a power cut could bring
//! back.

use std::path::Path;
use std::sync::Arc;

use towline_log::LogError;
use towline_log::block::Aligned;
use towline_log::disk::{Disk, DiskFile, LinuxDisk};
use towline_log::folder::names::number_in_name;
use towline_log::format::{BLOCK_BYTES, padded, size};
use towline_os::fs;
use towline_types::Lsn;

use crate::error::BackupError;
use crate::manifest::{FileSum, MANIFEST_NAME, Manifest};
use crate::progress::Progress;

const NEW_MANIFEST_NAME: &str = "manifest.new";
const PROGRESS_NAME: &str = "progress";
/// Names that a disk makes for itself.
const OF_THE_DISK: [&str; 2] = ["lock", "probe"];
const PREFIXES: [&str; 5] = ["log-", "image-", "pages-", "places-", "times-"];
/// More than any manifest of ours: that of a log of 1 PiB.
const MANIFEST_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Bytes copied at a time.
pub(super) const PIECE_BYTES: usize = 1024 * 1024;

/// The folder of a backup, opened.
pub struct Backup {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) manifest: Option<Manifest>,
    /// Whether a newer manifest may count instead: it was renamed, and whether that is so, or
    /// durable, is not known.
    is_in_doubt: bool,
}

impl Backup {
    /// Takes a folder for making a backup: an empty or missing one, or one that has a backup.
    /// Removes what an interrupted backup left.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`] before anything is changed; [`BackupError::Busy`] when a backup
    /// is being made there.
    pub fn open(folder: &Path) -> Result<Backup, BackupError> {
        if fs::is_dir(folder) {
            refuse_strangers(folder)?;
        }
        let disk = LinuxDisk::open(folder).map_err(|error| match error {
            LogError::Locked { folder, pid } => BackupError::Busy { folder, pid },
            other => BackupError::Log(other),
        })?;
        Backup::open_disk(Arc::new(disk))
    }

    /// [`Backup::open`] of any disk.
    ///
    /// # Errors
    /// As there.
    pub fn open_disk(disk: Arc<dyn Disk>) -> Result<Backup, BackupError> {
        let manifest = check_names(disk.as_ref())?;
        let backup = Backup { disk, manifest, is_in_doubt: false };
        backup.remove_leftovers()?;
        Ok(backup)
    }

    /// Looks at a backup without changing it.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`] when there is none; what is wrong with its manifest.
    pub fn look(folder: &Path) -> Result<Backup, BackupError> {
        Backup::look_disk(Arc::new(LinuxDisk::read_only(folder)?))
    }

    /// [`Backup::look`] at any disk.
    ///
    /// # Errors
    /// As there.
    pub fn look_disk(disk: Arc<dyn Disk>) -> Result<Backup, BackupError> {
        let Some(manifest) = read_manifest(disk.as_ref())? else {
            let (folder, file) = (disk.name(), String::new());
            return Err(BackupError::NotABackup { folder, file });
        };
        Ok(Backup { disk, manifest: Some(manifest), is_in_doubt: false })
    }

    /// The list of what it holds; `None` when it is new.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The manifest of a backup that has one.
    pub(super) fn listed(&self) -> Result<&Manifest, BackupError> {
        self.manifest.as_ref().ok_or_else(|| BackupError::NotABackup {
            folder: self.disk.name(),
            file: String::new(),
        })
    }

    /// A file that the manifest names.
    pub(super) fn file(&self, sum: &FileSum) -> Result<Arc<dyn DiskFile>, BackupError> {
        let failed = |e| LogError::io("open a file of the backup", &sum.file, e);
        let file = self.disk.open(&sum.file).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        if length < sum.bytes {
            let what = format!("it has {length} bytes, {} were written", sum.bytes);
            return Err(BackupError::Damaged { file: sum.file.clone(), what });
        }
        Ok(file)
    }

    /// All bytes of a small file that the manifest names, checked.
    pub(super) fn load(&self, sum: &FileSum) -> Result<Vec<u8>, BackupError> {
        let file = self.file(sum)?;
        let bytes = read_all(file.as_ref(), sum.bytes)
            .map_err(|e| LogError::io("read a file of the backup", &sum.file, e))?;
        if crc32c::crc32c(&bytes) == sum.crc32c && bytes.len() as u64 == sum.bytes {
            Ok(bytes)
        } else {
            let what = "its checksum is wrong".to_owned();
            Err(BackupError::Damaged { file: sum.file.clone(), what })
        }
    }

    /// Makes a list the one that counts. After an error it may count or not.
    pub(super) fn publish(&mut self, manifest: Manifest) -> Result<(), BackupError> {
        let failed = |e| LogError::io("write the manifest", MANIFEST_NAME, e);
        let mut text = manifest.encode();
        text.resize(text.len().next_multiple_of(BLOCK_BYTES), b' ');
        let disk = self.disk.as_ref();
        let file = disk.create(NEW_MANIFEST_NAME).map_err(failed)?;
        write_all(file.as_ref(), &text).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        // The files that it names must have their names before it has its own.
        disk.sync_names().map_err(failed)?;
        self.is_in_doubt = true;
        disk.rename(NEW_MANIFEST_NAME, MANIFEST_NAME).map_err(failed)?;
        disk.sync_names().map_err(failed)?;
        self.is_in_doubt = false;
        self.manifest = Some(manifest);
        Ok(())
    }

    /// Removes files of our names that the manifest does not name; none while another manifest may
    /// count, which names others.
    pub(super) fn remove_leftovers(&self) -> Result<(), BackupError> {
        if self.is_in_doubt {
            return Ok(());
        }
        let failed = |e| LogError::io("tidy the backup", &self.disk.name(), e);
        let named: std::collections::BTreeSet<&str> =
            self.manifest.iter().flat_map(Manifest::files).map(|sum| sum.file.as_str()).collect();
        let mut names = self.disk.names().map_err(failed)?;
        names.retain(|name| {
            let ours = name == NEW_MANIFEST_NAME || name == PROGRESS_NAME || is_content(name);
            ours && !named.contains(name.as_str())
        });
        if names.iter().any(|name| is_content(name)) {
            // The manifest that was read may be one whose name a power cut takes back: the one
            // before it would count again, with the files that it names.
            self.disk.sync_names().map_err(failed)?;
        }
        names.iter().try_for_each(|name| self.disk.remove(name)).map_err(|e| failed(e).into())
    }

    /// Writes how far a backup is, for programs that wait for it.
    pub(super) fn tell_progress(&self, done: u64, all: u64) {
        let mut block = Aligned::zeroed(BLOCK_BYTES);
        block.bytes_mut().fill(b' ');
        let text = format!("{done} {all} ");
        if let Some(place) = block.bytes_mut().get_mut(..text.len()) {
            place.copy_from_slice(text.as_bytes());
        }
        // Progress is a convenience: its failure does not fail the backup.
        drop(self.disk.create(PROGRESS_NAME).and_then(|file| file.write_at(block.bytes(), 0)));
    }
}

/// How far the backup is that is being made in `folder`, if it said so (without the extent).
#[must_use]
pub fn read_progress(folder: &Path) -> Option<Progress> {
    let text = fs::read_to_string(folder.join(PROGRESS_NAME)).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let done = numbers.next()?.ok()?;
    let all = numbers.next()?.ok()?;
    Some(Progress { done, all, extent: 0 })
}

/// Name of the file of a kind at a position, written by the backup of a number.
pub(super) fn file_name(kind: &str, at: Lsn, serial: u64) -> String {
    format!("{kind}-{:016x}.{serial}", at.0)
}

/// Number of the backup that wrote a file; `None` when the name is not one of ours.
pub(super) fn serial_in_name(name: &str) -> Option<u64> {
    let (name, serial) = name.split_once('.')?;
    let ours = PREFIXES.iter().any(|prefix| number_in_name(prefix, name).is_some());
    serial.parse().ok().filter(|_| ours)
}

fn is_content(name: &str) -> bool {
    serial_in_name(name).is_some()
}

/// What is in the folder besides files, too, must be ours.
fn refuse_strangers(folder: &Path) -> Result<(), BackupError> {
    let failed = |e| LogError::io("look into", &folder.display().to_string(), e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_type().map_err(failed)?.is_file() {
            let file = entry.file_name().to_string_lossy().into_owned();
            return Err(BackupError::NotABackup { folder: folder.display().to_string(), file });
        }
    }
    check_names(&LinuxDisk::read_only(folder)?).map(|_| ())
}

fn check_names(disk: &dyn Disk) -> Result<Option<Manifest>, BackupError> {
    let files = disk.list().map_err(|e| LogError::io("look into", &disk.name(), e))?;
    let ours = |name: &str| {
        [MANIFEST_NAME, NEW_MANIFEST_NAME, PROGRESS_NAME].contains(&name)
            || OF_THE_DISK.contains(&name)
            || is_content(name)
    };
    if let Some((file, _)) = files.iter().find(|(name, _)| !ours(name)) {
        return Err(BackupError::NotABackup { folder: disk.name(), file: file.clone() });
    }
    read_manifest(disk)
}

fn read_manifest(disk: &dyn Disk) -> Result<Option<Manifest>, BackupError> {
    let failed = |e| LogError::io("read the manifest", MANIFEST_NAME, e);
    let file = match disk.open(MANIFEST_NAME) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e).into()),
    };
    let length = file.len().map_err(failed)?.min(MANIFEST_BYTES_MAX);
    let bytes = read_all(file.as_ref(), length).map_err(failed)?;
    Manifest::decode(&bytes).map(Some)
}

/// Reads the first `bytes` bytes of a file, fewer where it ends.
pub(super) fn read_all(file: &dyn DiskFile, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut buffer = Aligned::zeroed(size(padded(bytes)));
    let count = file.read_at(buffer.bytes_mut(), 0)?;
    Ok(buffer.first(count.min(size(bytes))).to_vec())
}

/// Writes whole blocks from the beginning of a file on.
pub(super) fn write_all(file: &dyn DiskFile, bytes: &[u8]) -> std::io::Result<()> {
    let mut at = 0;
    for piece in bytes.chunks(PIECE_BYTES) {
        let mut buffer = Aligned::with_capacity(PIECE_BYTES);
        buffer.append_to().extend_from_slice(piece);
        buffer.pad();
        file.write_at(buffer.bytes(), at)?;
        at += piece.len() as u64;
    }
    Ok(())
}
