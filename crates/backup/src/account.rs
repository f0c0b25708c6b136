//! The account of a running copy: what was written, and how far it is.
//!
//! Not here: what is copied (`copy`, `packs`).

use std::sync::Arc;

use towline_log::LogError;
use towline_log::disk::Disk;
use towline_log::format::BLOCK_BYTES;

use crate::error::BackupError;
use crate::folder::write_all;
use crate::manifest::FileSum;
use crate::progress::Progress;

/// Files that were written, and the account of it.
pub(super) struct CopyAccount<'a> {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) tell: &'a mut dyn FnMut(Progress),
    pub(super) progress: Progress,
    /// Bytes at the last progress report.
    pub(super) told: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// How often progress is reported, in bytes.
const TELL_BYTES: u64 = 16 * 1024 * 1024;

impl CopyAccount<'_> {
    /// So many bytes more were read or written.
    pub(super) fn add(&mut self, bytes: u64) {
        self.progress.done += bytes;
        if self.progress.done >= self.told + TELL_BYTES {
            self.tell();
        }
    }

    pub(super) fn tell(&mut self) {
        self.told = self.progress.done;
        self.progress.all = self.progress.all.max(self.progress.done);
        (self.tell)(self.progress);
    }

    /// A whole small file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> Result<FileSum, BackupError> {
        let failed = |e| LogError::io("write a file of the backup", name, e);
        let mut bytes = content.to_vec();
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let file = self.disk.create(name).map_err(failed)?;
        write_all(file.as_ref(), &bytes).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        self.files += 1;
        self.bytes += bytes.len() as u64;
        let crc32c = crc32c::crc32c(&bytes);
        Ok(FileSum { file: name.to_owned(), bytes: bytes.len() as u64, crc32c })
    }
}
