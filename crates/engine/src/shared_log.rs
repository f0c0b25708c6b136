//! The log of a running instance as another process reads it, file by file, without a copy: for a
//! rehearsal, a queue manager that can be written to.
//!
//! ```text
//! <data>/shared-log.json    which log, and how far: the start that finds it renames it
//! <data>/shared-log.begun   a start has used it: there is no second one
//! ```
//!
//! Not here: that the files stay as they are meanwhile (the instance holds log and pages as long as
//! the other process is connected); making the folder. Invariants: nothing behind the recovery
//! point is seen; the log of the instance is opened for reading only; what was written is gone with
//! the process, so no start goes on with it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use towline_log::folder::files::Folder;
use towline_log::folder::names::{PAGES_NAME, extent_name, image_name};
use towline_log::format::BLOCK_BYTES;
use towline_log::{Disk, LinuxDisk, Log, LogError, ScratchDisk, SharedFile};
use towline_os::fs;
use towline_types::Lsn;

/// In the data folder of the one that begins.
pub const SHARED_LOG_NAME: &str = "shared-log.json";
const BEGUN_NAME: &str = "shared-log.begun";
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A log up to a recovery point.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SharedLog {
    /// The log folder of the instance, an absolute path.
    pub folder: PathBuf,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Number of the oldest extent.
    pub first_extent: u64,
    /// The recovery point: where the last whole run before it ends.
    pub end: u64,
    /// Position of the image with which a start begins.
    pub image: u64,
    /// Bytes that may be written beside it.
    pub room_bytes: u64,
}

impl SharedLog {
    /// The log up to the last whole run at or before `upto`, with its newest image. The caller
    /// holds log and pages. `None`: the log moves so fast that its end is not known; ask again.
    ///
    /// # Errors
    /// [`LogError`], when the folder cannot be listed.
    pub fn of(log: &Log, upto: Lsn, room_bytes: u64) -> Result<Option<SharedLog>, LogError> {
        let Some(mark) = log.mark_at(upto.min(log.durable())) else { return Ok(None) };
        let end = mark.seam().end;
        let Some(image) = log.image_at().filter(|at| *at <= end) else { return Ok(None) };
        let disk = log.disk();
        let listed = Folder::list(disk.as_ref())?;
        let Some(&first_extent) = listed.extents.first() else { return Ok(None) };
        let shown = log.folder();
        // The other process may be in another working folder.
        let folder = fs::canonicalize(&shown);
        let failed = |e| LogError::io("find the log folder", &shown.display().to_string(), e);
        let folder = folder.map_err(failed)?;
        let (extent_bytes, end, image) = (log.extent_bytes(), end.0, image.0);
        Ok(Some(SharedLog { folder, extent_bytes, first_extent, end, image, room_bytes }))
    }

    /// What is shared with the queue manager in `data`, if that is one that has no log of its own.
    ///
    /// # Errors
    /// It cannot be read; or a start has used it: what that one did is gone.
    pub(crate) fn begin(data: &Path) -> io::Result<Option<SharedLog>> {
        if fs::try_exists(data.join(BEGUN_NAME))? {
            let why = "the folder is that of a rehearsal, which is over: begin another one";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let file = data.join(SHARED_LOG_NAME);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let shared = serde_json::from_slice(&text).map_err(io::Error::other)?;
        fs::rename(&file, data.join(BEGUN_NAME))?;
        Ok(Some(shared))
    }

    /// The disk of a start with this log; `own` is its own log folder, which is empty.
    ///
    /// # Errors
    /// [`LogError::Io`]: a file is not there any more, or cannot be read.
    pub(crate) fn disk(&self, own: LinuxDisk) -> Result<ScratchDisk, LogError> {
        let base: Arc<dyn Disk> = Arc::new(LinuxDisk::read_only(&self.folder)?);
        let shown = self.folder.display().to_string();
        let failed = |e| LogError::io("share the log folder", &shown, e);
        let files = self.files(base.as_ref())?;
        let own: Arc<dyn Disk> = Arc::new(own.through_cache());
        ScratchDisk::over(base, own, &files, self.room_bytes).map_err(failed)
    }

    fn files(&self, base: &dyn Disk) -> Result<Vec<SharedFile>, LogError> {
        let listed = Folder::list(base)?;
        let last = self.end.saturating_sub(1) / self.extent_bytes.max(1);
        let extents = listed.extents.range(self.first_extent..=last);
        let mut files: Vec<SharedFile> = extents
            .map(|&sequence| {
                let rest = self.end - sequence * self.extent_bytes;
                let bytes = rest.next_multiple_of(BLOCK).min(self.extent_bytes);
                let (name, length) = (extent_name(sequence), self.extent_bytes);
                SharedFile { name, bytes, length, is_kept_open: false }
            })
            .collect();
        for name in [image_name(Lsn(self.image)), PAGES_NAME.to_owned()] {
            let length = match base.length(&name) {
                Ok(length) => length,
                // A log of queues that were never deep has none.
                Err(error) if error.kind() == io::ErrorKind::NotFound && name == PAGES_NAME => {
                    continue;
                }
                Err(error) => return Err(LogError::io("share a file", &name, error)),
            };
            let bytes = length / BLOCK * BLOCK;
            files.push(SharedFile { name, bytes, length: bytes, is_kept_open: true });
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use towline_log::testing::{Watch, append, body, image, start};
    use towline_log::{Options, Recovery};
    use towline_types::SeededRandom;

    use super::*;

    /// The same bytes up to the end, and nothing of what the log got behind it.
    #[test]
    fn a_start_sees_the_log_up_to_the_recovery_point_and_never_changes_it() {
        let folder = tempfile::tempdir().unwrap();
        let log_folder = folder.path().join("log");
        let disk: Arc<dyn Disk> = Arc::new(LinuxDisk::open(&log_folder).unwrap());
        let watch = Watch::new();
        let log = start(&disk, Options::small(), &watch);
        let mut random = SeededRandom::new(7);
        let mut put = |count: usize| {
            let mut end = Lsn::ZERO;
            for _ in 0..count {
                end = append(&log, &[body(&mut random, 9_000)], towline_log::Urgency::Forced).1;
            }
            watch.wait_durable(end);
            end
        };
        let at = put(40);
        image(&log, at, b"all");
        let end = put(20);
        let shared = SharedLog::of(&log, end, 1 << 20).unwrap().unwrap();
        assert_eq!((shared.end, shared.image), (end.0, at.0));
        put(50);
        let before = contents(&shared);
        let own = LinuxDisk::open(&folder.path().join("own")).unwrap();
        let scratch: Arc<dyn Disk> = Arc::new(shared.disk(own).unwrap());
        let mut recovery = Recovery::open(scratch, Options::small(), log.id()).unwrap();
        let mut runs = 0;
        recovery
            .replay(|_, _| {
                runs += 1;
                Ok::<(), std::convert::Infallible>(())
            })
            .unwrap();
        assert_eq!(runs, 20);
        drop(recovery);
        assert!(contents(&shared) == before, "the log was written to");
    }

    /// What is shared. The log prepares extents that come later meanwhile.
    fn contents(shared: &SharedLog) -> Vec<(String, Vec<u8>)> {
        let base = LinuxDisk::read_only(&shared.folder).unwrap();
        let files = shared.files(&base).unwrap();
        assert!(files.len() > 2);
        let read = |file: SharedFile| {
            let mut bytes = std::fs::read(shared.folder.join(&file.name)).unwrap();
            bytes.truncate(usize::try_from(file.bytes).unwrap());
            (file.name, bytes)
        };
        files.into_iter().map(read).collect()
    }

    #[test]
    fn a_folder_begins_once() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        assert_eq!(SharedLog::begin(data).unwrap(), None);
        let shared = SharedLog {
            folder: data.to_owned(),
            extent_bytes: 1 << 20,
            first_extent: 0,
            end: 100,
            image: 50,
            room_bytes: 1,
        };
        let text = serde_json::to_vec(&shared).unwrap();
        std::fs::write(data.join(SHARED_LOG_NAME), &text).unwrap();
        assert_eq!(SharedLog::begin(data).unwrap(), Some(shared));
        std::fs::write(data.join(SHARED_LOG_NAME), &text).unwrap();
        assert!(SharedLog::begin(data).unwrap_err().to_string().contains("is over"));
    }
}
