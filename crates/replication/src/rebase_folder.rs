//! A copy of the live group's log that comes over the link between regions, beside the log that it
//! is to replace: it may take hours, and goes on where it was after any end of the link or the
//! process.
//!
//! ```text
//! <data>/rebase/log/    the copy, with which no start is possible before it is whole
//! <data>/rebase/head    its head, 112 bytes: which copy it is
//! <data>/rebase/came    how far it is: two rows of 16 bytes, written in turns; the further one counts
//!   0   8  bytes behind the head    8   4  CRC-32C of them    12  4  CRC-32C of this row's 12 bytes
//! ```
//!
//! Not here: how it travels (`region_giving`, `region_taking`); how it becomes the log
//! (`log_swap`). Invariants: a row is written after what it counts is durable; the row that counts
//! is not the one that is written; the folder of another copy is removed before a new one begins.

use std::io;
use std::path::{Path, PathBuf};

use towline_backup::{CopyHead, CopyPoint};
use towline_os::fs::{self, File, FileExt};

const FOLDER: &str = "rebase";
const LOG: &str = "log";
const HEAD: &str = "head";
const CAME: &str = "came";
const ROW_BYTES: usize = 16;
const ROWS: usize = 2;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RebaseFolder(PathBuf);

/// The rows of a copy that comes.
pub(crate) struct RebaseRows {
    file: File,
    /// The row that is written next.
    next: usize,
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
        let newest = newest_row(&rows).map(|(_, point)| point).unwrap_or_default();
        Ok(head.can_go_on_at(newest.done).then_some((head, newest)))
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
        let next = newest_row(&bytes).map_or(0, |(at, _)| (at + 1) % ROWS);
        let path = self.0.join(CAME);
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        Ok(RebaseRows { file, next })
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
    /// What the disk said.
    pub(crate) fn note(&mut self, point: CopyPoint) -> io::Result<()> {
        self.file.write_all_at(&row(point), (self.next * ROW_BYTES) as u64)?;
        self.file.sync_data()?;
        self.next = (self.next + 1) % ROWS;
        Ok(())
    }
}

fn row(point: CopyPoint) -> Vec<u8> {
    let mut bytes = point.done.to_le_bytes().to_vec();
    bytes.extend_from_slice(&point.sum.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The row that counts, and which it is: of those that are whole the one with most.
fn newest_row(bytes: &[u8]) -> Option<(usize, CopyPoint)> {
    let rows = bytes.chunks_exact(ROW_BYTES).take(ROWS).enumerate();
    let whole = rows.filter_map(|(at, bytes)| {
        let done = bytes.first_chunk().copied().map(u64::from_le_bytes)?;
        let sum = bytes.get(8..12)?.try_into().ok().map(u32::from_le_bytes)?;
        let point = CopyPoint { done, sum };
        (row(point) == bytes).then_some((at, point))
    });
    whole.max_by_key(|(_, point)| point.done)
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

    fn point(done: u64) -> CopyPoint {
        CopyPoint { done, sum: 7 }
    }

    /// There were as many rows as files once, and those behind a damaged one counted for nothing;
    /// since a copy is noted also inside of its files, two are written in turns.
    #[test]
    fn the_row_with_most_counts_and_a_damaged_or_torn_one_leaves_the_other() {
        for done in [[5, 6], [6, 5]] {
            let bytes: Vec<u8> = done.into_iter().flat_map(|done| row(point(done))).collect();
            let newest = usize::from(done[0] < done[1]);
            assert_eq!(newest_row(&bytes), Some((newest, point(6))));
            for bit in 0..bytes.len() * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let damaged = bit / 8 / ROW_BYTES;
                let left = 1 - damaged;
                let counts = if damaged == newest { (left, point(5)) } else { (newest, point(6)) };
                assert_eq!(newest_row(&other), Some(counts), "bit {bit}");
            }
        }
        let first = row(point(5));
        assert_eq!(newest_row(&[&first[..], &row(point(6))[..15]].concat()), Some((0, point(5))));
        assert_eq!(newest_row(&first[..15]), None);
    }

    #[test]
    fn a_row_is_written_over_the_one_that_does_not_count_and_a_folder_without_a_head_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let rebase = RebaseFolder::of(folder.path());
        assert_eq!(rebase.begun().unwrap(), None);
        std::fs::create_dir_all(rebase.log()).unwrap();
        let came = rebase.path().join(CAME);
        std::fs::write(&came, [&row(point(3))[..], &row(point(4))[..9]].concat()).unwrap();
        assert_eq!(rebase.begun().unwrap(), None, "which copy it is lacks");
        for done in [5, 6, 7] {
            // Each by a process of its own.
            rebase.rows().unwrap().note(point(done)).unwrap();
            let bytes = std::fs::read(&came).unwrap();
            assert_eq!(newest_row(&bytes).map(|(_, point)| point), Some(point(done)));
        }
        let mut rows = rebase.rows().unwrap();
        for done in 8..20 {
            rows.note(point(done)).unwrap();
            let bytes = std::fs::read(&came).unwrap();
            assert_eq!(bytes.len(), ROWS * ROW_BYTES);
            let (at, _) = newest_row(&bytes).unwrap();
            let mut torn = bytes;
            torn[at * ROW_BYTES] ^= 1;
            assert_eq!(newest_row(&torn).map(|(_, point)| point), Some(point(done - 1)));
        }
        rebase.remove().unwrap();
        rebase.remove().unwrap();
        assert!(!rebase.path().exists());
    }
}
