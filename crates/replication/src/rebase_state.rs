//! What an instance remembers of copies that came from the other region, in a file beside its log:
//! how many began, and, after one replaced its log, what its group could be promoted with before.
//!
//! In a group of three the instance that got the copy has it alone at first: the others get it from
//! that one. Until a majority has it, the recovery point of the group is the old one.
//!
//! ```text
//! rebase-state, replaced as a whole
//!   0   8  magic "TWLREBAS"
//!   8   4  CRC-32C of what follows
//!  12   8  copies that began
//!  20   8  index of the last batch of the copy that a majority does not have yet; 0: none
//!  28   -  the recovery point before it (`towline_region::RecoveryPoint`)
//! ```
//!
//! Not here: the copy (`rebase_folder`). Invariant: the file says what was promotable before
//! the log is replaced; a file that cannot be read is an error, never a guess.

use std::io;
use std::path::{Path, PathBuf};

use towline_os::fs::{self, File, FileExt};
use towline_os::sync::Mutex;
use towline_region::RecoveryPoint;

const NAME: &str = "rebase-state";
const NEW: &str = "rebase-state.new";
const MAGIC: &[u8; 8] = b"TWLREBAS";
const HEAD_BYTES: usize = 28;

/// What was promotable before a copy that a majority does not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PointBefore {
    /// Index of the last batch of the copy.
    pub(crate) until: u64,
    /// The recovery point before it.
    pub(crate) point: RecoveryPoint,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Remembered {
    begun: u64,
    before: Option<PointBefore>,
}

/// See the module.
pub(crate) struct RebaseState {
    folder: PathBuf,
    kept: Mutex<Remembered>,
}

impl RebaseState {
    /// What is kept in this data folder. `last`: index of the last batch of its log. One that ends
    /// before the copy did was not replaced.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn read(folder: &Path, last: u64) -> io::Result<RebaseState> {
        let mut kept = match fs::read(folder.join(NAME)) {
            Ok(bytes) => decode(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Remembered::default(),
            Err(error) => return Err(error),
        };
        kept.before = kept.before.filter(|before| before.until <= last);
        Ok(RebaseState { folder: folder.to_owned(), kept: Mutex::new(kept) })
    }

    /// How many copies began.
    pub(crate) fn begun(&self) -> u64 {
        self.kept.lock().begun
    }

    /// What was promotable before a copy that a majority does not have yet.
    pub(crate) fn before(&self) -> Option<PointBefore> {
        self.kept.lock().before
    }

    /// Another copy begins.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn begins(&self) -> io::Result<()> {
        self.change(|kept| kept.begun = kept.begun.saturating_add(1))
    }

    /// A copy is about to replace the log: this is what is promotable before.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn replaces(&self, before: PointBefore) -> io::Result<()> {
        self.change(|kept| kept.before = Some(before))
    }

    /// A majority has the copy.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn is_shared(&self) -> io::Result<()> {
        self.change(|kept| kept.before = None)
    }

    fn change(&self, change: impl FnOnce(&mut Remembered)) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let mut next = *kept;
        change(&mut next);
        let file =
            File::options().create(true).truncate(true).write(true).open(self.folder.join(NEW))?;
        file.write_all_at(&encode(&next), 0)?;
        file.sync_all()?;
        fs::rename(self.folder.join(NEW), self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()?;
        *kept = next;
        Ok(())
    }
}

fn encode(kept: &Remembered) -> Vec<u8> {
    let before = kept.before.unwrap_or_default();
    let mut rest = kept.begun.to_le_bytes().to_vec();
    rest.extend_from_slice(&before.until.to_le_bytes());
    rest.extend_from_slice(&before.point.encode());
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    bytes.extend_from_slice(&rest);
    bytes
}

fn decode(bytes: &[u8]) -> io::Result<Remembered> {
    let wrong = |why: &str| {
        let why = format!("{NAME} {why}: remove it, and the recovery point is that of this log");
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let (head, point) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(|| wrong("is too short"))?;
    let (magic, rest) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(wrong("is not a file of Towline"));
    }
    let (sum, _) = rest.split_at(4);
    if sum != crc32c::crc32c(bytes.get(12..).unwrap_or_default()).to_le_bytes() {
        return Err(wrong("is damaged"));
    }
    let number = |at: usize| {
        let bytes = head.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| wrong("is too short"))
    };
    let (begun, until) = (number(12)?, number(20)?);
    let point = RecoveryPoint::decode(point).map_err(|error| wrong(&error.to_string()))?;
    let before = (until > 0).then_some(PointBefore { until, point });
    Ok(Remembered { begun, before })
}

#[cfg(test)]
mod tests {
    use towline_types::{BatchPlace, Lsn};

    use super::*;

    fn before() -> PointBefore {
        let place = BatchPlace { index: 5, term: 2, lsn: Lsn(4_096), end: Lsn(5_000) };
        let point = RecoveryPoint { place, received: Lsn(5_000), ..RecoveryPoint::default() };
        PointBefore { until: 90, point }
    }

    #[test]
    fn what_is_remembered_outlives_the_process_and_any_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let state = RebaseState::read(folder.path(), 5).unwrap();
        assert_eq!((state.begun(), state.before()), (0, None));
        state.begins().unwrap();
        state.begins().unwrap();
        state.replaces(before()).unwrap();
        let again = RebaseState::read(folder.path(), 90).unwrap();
        assert_eq!((again.begun(), again.before()), (2, Some(before())));
        let not_replaced = RebaseState::read(folder.path(), 89).unwrap();
        assert_eq!((not_replaced.begun(), not_replaced.before()), (2, None));
        let bytes = std::fs::read(folder.path().join(NAME)).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&other).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
        again.is_shared().unwrap();
        assert_eq!(RebaseState::read(folder.path(), 90).unwrap().before(), None);
    }
}
