//! The time index: when the log was how long, a small table beside the log, for a restore to a time
//! of day. The
//! log's own bytes have no clock (docs/adr, times beside the log).
//!
//! ```text
//! times: rows of 24 bytes, oldest first, padded with zeros to 4 KiB; numbers are little-endian
//!   0   8  microseconds since the Unix epoch
//!   8   8  position: all runs that end at or before it were durable then
//!   16  4  crc32c of bytes 0..16
//!   20  4  zero
//! ```
//! Not here: when a row is due. The table is not synced: after a power cut the newest rows may be
//! missing, and a restore to a time goes to the row before.
//!
//! Invariants: times and positions of rows that are read ascend (a clock that was set back is taken
//! to stand still); the table has at most [`ROWS_MAX`] rows.

use std::sync::Arc;
use towline_os::sync::Mutex;

use towline_types::{Lsn, Time};

use crate::block::Aligned;
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::folder::names::{NEW_TIME_INDEX_NAME, TIME_INDEX_NAME};
use crate::format::{BLOCK_BYTES, size};

const ROW_BYTES: usize = 24;
/// Rows in a block: none crosses one, so that a torn block costs no other.
const ROWS_IN_BLOCK: usize = BLOCK_BYTES / ROW_BYTES;
/// A row each second for a day; then every second row of the older half goes.
pub const ROWS_MAX: usize = 86_400;

/// All runs that end at or before `upto` were durable at `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// When.
    pub at: Time,
    /// How far the log was.
    pub upto: Lsn,
}

/// The time index of a log folder, open for writing.
pub struct TimeIndex {
    disk: Arc<dyn Disk>,
    table: Mutex<Table>,
}

struct Table {
    rows: Vec<Row>,
    file: Option<Arc<dyn DiskFile>>,
}

impl TimeIndex {
    /// Opens the table; what cannot be read of it is left out. Rows behind `end`, the end of the
    /// log, are of a log that was cut off.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn open(disk: Arc<dyn Disk>, end: Lsn) -> Result<TimeIndex, LogError> {
        let mut rows = read(disk.as_ref())?;
        rows.retain(|row| row.upto <= end);
        Ok(TimeIndex { disk, table: Mutex::new(Table { rows, file: None }) })
    }

    /// Adds a row, unless the log is as it was.
    ///
    /// # Errors
    /// [`LogError::Io`]: the row is not on disk, and the table goes on with the next.
    pub fn note(&self, at: Time, upto: Lsn) -> Result<(), LogError> {
        let table = &mut *self.table.lock();
        let last = table.rows.last().copied();
        if last.is_some_and(|last| upto <= last.upto) {
            return Ok(());
        }
        let at = last.map_or(at, |last| at.max(last.at));
        table.rows.push(Row { at, upto });
        if table.rows.len() > ROWS_MAX {
            thin(&mut table.rows);
            table.file = None;
        }
        let failed = |e| LogError::io("write the time index", TIME_INDEX_NAME, e);
        let Some(file) = &table.file else {
            let made = write(self.disk.as_ref(), &table.rows).map_err(failed)?;
            table.file = Some(made);
            return Ok(());
        };
        let number = (table.rows.len() - 1) / ROWS_IN_BLOCK;
        let rows = &table.rows[number * ROWS_IN_BLOCK..];
        let block = block(rows);
        file.write_at(block.bytes(), (number * BLOCK_BYTES) as u64).map_err(failed)
    }

    /// All rows, oldest first.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.table.lock().rows.clone()
    }
}

/// At most [`ROWS_MAX`] rows.
pub fn bounded(mut rows: Vec<Row>) -> Vec<Row> {
    while rows.len() > ROWS_MAX {
        thin(&mut rows);
    }
    rows
}

/// Every second row of the older half goes.
fn thin(rows: &mut Vec<Row>) {
    let half = rows.len() / 2;
    let mut number = 0;
    rows.retain(|_| {
        number += 1;
        number > half || number % 2 == 0
    });
}

/// The rows in the folder of a log; none when there is no table.
///
/// # Errors
/// [`LogError::Io`].
pub fn read(disk: &dyn Disk) -> Result<Vec<Row>, LogError> {
    let failed = |e| LogError::io("read the time index", TIME_INDEX_NAME, e);
    let file = match disk.open(TIME_INDEX_NAME) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let most = (ROWS_MAX.div_ceil(ROWS_IN_BLOCK) + 1) * BLOCK_BYTES;
    let length = size(file.len().map_err(failed)?).min(most);
    let mut buffer = Aligned::zeroed(length.next_multiple_of(BLOCK_BYTES));
    let count = file.read_at(buffer.bytes_mut(), 0).map_err(failed)?;
    Ok(decode(buffer.first(count)))
}

/// Replaces the table file.
pub fn write(disk: &dyn Disk, rows: &[Row]) -> std::io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(NEW_TIME_INDEX_NAME)?;
    for (number, rows) in rows.chunks(ROWS_IN_BLOCK).enumerate() {
        file.write_at(block(rows).bytes(), (number * BLOCK_BYTES) as u64)?;
    }
    disk.rename(NEW_TIME_INDEX_NAME, TIME_INDEX_NAME)?;
    Ok(file)
}

/// A table as bytes.
#[must_use]
pub fn encode(rows: &[Row]) -> Vec<u8> {
    rows.chunks(ROWS_IN_BLOCK).flat_map(|rows| block(rows).bytes().to_vec()).collect()
}

/// The rows of a table, without those that are damaged or out of order.
#[must_use]
pub fn decode(bytes: &[u8]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let blocks = bytes.chunks(BLOCK_BYTES);
    for bytes in blocks.flat_map(|block| block.chunks_exact(ROW_BYTES)) {
        let Some(row) = decode_row(bytes) else { continue };
        if rows.last().is_none_or(|last| last.at <= row.at && last.upto < row.upto) {
            rows.push(row);
        }
    }
    rows
}

fn block(rows: &[Row]) -> Aligned {
    let mut block = Aligned::with_capacity(BLOCK_BYTES);
    for row in rows.iter().take(ROWS_IN_BLOCK) {
        let mut bytes = [0; ROW_BYTES];
        bytes[..8].copy_from_slice(&row.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&row.upto.0.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..16]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        block.append_to().extend_from_slice(&bytes);
    }
    block.pad();
    block
}

fn decode_row(bytes: &[u8]) -> Option<Row> {
    let (summed, rest) = bytes.split_first_chunk::<16>()?;
    let (at, upto) = summed.split_first_chunk::<8>()?;
    let sum = u32::from_le_bytes(*rest.first_chunk()?);
    let row = Row {
        at: Time(u64::from_le_bytes(*at)),
        upto: Lsn(u64::from_le_bytes(*upto.first_chunk()?)),
    };
    (crc32c::crc32c(summed) == sum && row.upto > Lsn::ZERO).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    fn row(at: u64, upto: u64) -> Row {
        Row { at: Time(at), upto: Lsn(upto) }
    }

    #[test]
    fn what_was_noted_is_read_back_and_a_clock_set_back_stands_still() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let index = TimeIndex::open(Arc::clone(&disk), Lsn(u64::MAX)).unwrap();
        for (at, upto) in [(10, 100), (20, 100), (30, 300), (25, 400)] {
            index.note(Time(at), Lsn(upto)).unwrap();
        }
        let expected = vec![row(10, 100), row(30, 300), row(30, 400)];
        assert_eq!(index.rows(), expected);
        assert_eq!(read(disk.as_ref()).unwrap(), expected);
        let cut = TimeIndex::open(Arc::clone(&disk), Lsn(350)).unwrap();
        assert_eq!(cut.rows(), expected[..2]);
        cut.note(Time(50), Lsn(360)).unwrap();
        assert_eq!(read(disk.as_ref()).unwrap(), [row(10, 100), row(30, 300), row(50, 360)]);
    }

    #[test]
    fn a_damaged_row_costs_no_other() {
        let rows: Vec<Row> = (1..=400).map(|number| row(number, number)).collect();
        let mut bytes = encode(&rows);
        bytes[BLOCK_BYTES + 3 * ROW_BYTES] ^= 1;
        let found = decode(&bytes);
        assert_eq!(found.len(), 399);
        assert!(!found.contains(&row(ROWS_IN_BLOCK as u64 + 4, ROWS_IN_BLOCK as u64 + 4)));
        assert_eq!(decode(&[0; 2 * BLOCK_BYTES]), []);
        assert_eq!(decode(&[7; 50]), []);
    }

    #[test]
    fn the_table_is_bounded_and_its_older_half_gets_coarser() {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let index = TimeIndex::open(Arc::clone(&disk), Lsn(u64::MAX)).unwrap();
        index.table.lock().rows = (1..=ROWS_MAX as u64).map(|number| row(number, number)).collect();
        index.note(Time(100_000), Lsn(100_000)).unwrap();
        index.note(Time(100_001), Lsn(100_001)).unwrap();
        let rows = read(disk.as_ref()).unwrap();
        assert_eq!(rows, index.rows());
        assert!(rows.len() < ROWS_MAX && rows.len() > ROWS_MAX / 2, "{}", rows.len());
        assert_eq!(rows.first(), Some(&row(2, 2)));
        assert_eq!(rows.last(), Some(&row(100_001, 100_001)));
    }
}
