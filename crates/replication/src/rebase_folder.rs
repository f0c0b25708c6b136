//! A copy of the live group's log that comes over the link between regions, beside the log that it
//! is to replace: it may take hours, and goes on where it was after any end of the link or the
//! process.
//!
//! ```text
//! <data>/rebase/log/    the copy, with which no start is possible before it is whole
//! <data>/rebase/head    its head, 112 bytes: which copy it is
//! <data>/rebase/came    how far it is: rows of 16 bytes, one for each file that is on the disk
//!   0   8  bytes behind the head    8   4  CRC-32C of them    12  4  CRC-32C of this row's 12 bytes
//! ```
//!
//! Not here: how it travels (`region_giving`, `region_taking`); how it becomes the log
//! (`log_swap`). Invariants: a row is written after its file is durable; rows count up to the first
//! one that is damaged; the folder of another copy is removed before a new one begins.

use std::io;
use std::path::{Path, PathBuf};

use towline_backup::{CopyHead, CopyPoint};
use towline_os::fs::{self, File, FileExt};

const FOLDER: &str = "rebase";
const LOG: &str = "log";
const HEAD: &str = "head";
const CAME: &str = "came";
const ROW_BYTES: usize = 16;
/// Files of one copy that are noted at most: with extents of 64 MiB, 4 TiB of log.
const ROWS_MAX: usize = 65_536;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RebaseFolder(PathBuf);

/// The rows of a copy that comes.
pub(crate) struct RebaseRows {
    file: File,
    count: u64,
}

impl RebaseFolder {
    pub(crate) fn of(data: &Path) -> RebaseFolder {
        RebaseFolder(data.join(FOLDER))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether there is one. What cannot be looked at is there.
    pub(crate) fn is_there(&self) -> bool {
        fs::try_exists(&self.0).unwrap_or(true)
    }

    /// Where the copy is made.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join(LOG)
    }

    /// The copy that began to come, and how much of it is here; `None`: there is none that can go
    /// on.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn begun(&self) -> io::Result<Option<(CopyHead, CopyPoint)>> {
        let Some(head) = read(&self.0.join(HEAD))? else { return Ok(None) };
        let head = <&[u8; CopyHead::BYTES]>::try_from(&head[..]).ok().and_then(CopyHead::decode);
        let Some(head) = head else { return Ok(None) };
        if !fs::try_exists(self.log())? {
            return Ok(None);
        }
        let rows = read(&self.0.join(CAME))?.unwrap_or_default();
        let newest = whole_rows(&rows).last().unwrap_or_default();
        Ok(head.has_end(newest.done).then_some((head, newest)))
    }

    /// An empty folder for this copy: what is left of another one is removed.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn begin(&self, head: &CopyHead) -> io::Result<()> {
        self.remove()?;
        fs::create_dir_all(self.log())?;
        let file = File::create(self.0.join(HEAD))?;
        file.write_all_at(&head.encode(), 0)?;
        file.sync_all()?;
        File::create(self.0.join(CAME))?.sync_all()?;
        self.sync()
    }

    /// Makes the names in the folder, and its own, durable.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        match self.0.parent() {
            Some(data) => File::open(data)?.sync_all(),
            None => Ok(()),
        }
    }

    /// The rows of the copy that began.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn rows(&self) -> io::Result<RebaseRows> {
        let bytes = read(&self.0.join(CAME))?.unwrap_or_default();
        let count = whole_rows(&bytes).count() as u64;
        let path = self.0.join(CAME);
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        Ok(RebaseRows { file, count })
    }

    /// Removes what is there.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl RebaseRows {
    /// So much is on the disk.
    ///
    /// # Errors
    /// What the disk said; or there are too many.
    pub(crate) fn note(&mut self, point: CopyPoint) -> io::Result<()> {
        if self.count >= ROWS_MAX as u64 {
            return Err(io::Error::other(format!("a copy of more than {ROWS_MAX} files")));
        }
        self.file.write_all_at(&row(point), self.count * ROW_BYTES as u64)?;
        self.file.sync_data()?;
        self.count += 1;
        Ok(())
    }
}

fn row(point: CopyPoint) -> Vec<u8> {
    let mut bytes = point.done.to_le_bytes().to_vec();
    bytes.extend_from_slice(&point.sum.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The rows in `bytes`, up to the first that is none.
fn whole_rows(bytes: &[u8]) -> impl Iterator<Item = CopyPoint> + '_ {
    let rows = bytes.chunks_exact(ROW_BYTES).take(ROWS_MAX);
    rows.map_while(|bytes| {
        let done = bytes.first_chunk().copied().map(u64::from_le_bytes)?;
        let sum = bytes.get(8..12)?.try_into().ok().map(u32::from_le_bytes)?;
        let point = CopyPoint { done, sum };
        (row(point) == bytes).then_some(point)
    })
}

/// The bytes of a file; `None`: it is not there.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: u64) -> Vec<CopyPoint> {
        (1..=count).map(|done| CopyPoint { done, sum: 7 }).collect()
    }

    #[test]
    fn rows_count_up_to_the_first_that_is_damaged_or_torn() {
        let bytes: Vec<u8> = points(5).into_iter().flat_map(row).collect();
        assert_eq!(whole_rows(&bytes).collect::<Vec<_>>(), points(5));
        for end in 0..bytes.len() {
            let whole = whole_rows(&bytes[..end]).count();
            assert_eq!(whole, end / ROW_BYTES);
        }
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(whole_rows(&other).count(), bit / 8 / ROW_BYTES, "bit {bit}");
        }
    }

    #[test]
    fn a_torn_row_is_written_over_and_a_folder_without_a_head_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let rebase = RebaseFolder::of(folder.path());
        assert_eq!(rebase.begun().unwrap(), None);
        std::fs::create_dir_all(rebase.log()).unwrap();
        let torn: Vec<u8> = points(3).into_iter().flat_map(row).take(40).collect();
        std::fs::write(rebase.path().join(CAME), torn).unwrap();
        assert_eq!(rebase.begun().unwrap(), None, "which copy it is lacks");
        let mut rows = rebase.rows().unwrap();
        rows.note(CopyPoint { done: 3, sum: 7 }).unwrap();
        let bytes = std::fs::read(rebase.path().join(CAME)).unwrap();
        assert_eq!(whole_rows(&bytes).collect::<Vec<_>>(), points(3));
        rebase.remove().unwrap();
        rebase.remove().unwrap();
        assert!(!rebase.path().exists());
    }
}
