//! The histories of the log that a recovery instance follows, in a file beside its log.
//!
//! A log can have bytes of a history of which the record has not come yet. So the chain is kept
//! before the first batch is taken, and said to the live group as far as the log goes:
//!
//! ```text
//!   0   8  magic "TOWLINEH"
//!   8   4  CRC-32C of what follows    12   -  the chain (`towline_types::Histories::to_bytes`)
//! ```
//!
//! A group that becomes live takes nothing more of that log: what its own one does not have is cut
//! off the chain then. It would be taken for a part of what this group decides behind it.
//!
//! Not here: what two chains say of two logs (`towline_types::Standing`). Invariants: the file is
//! replaced as a whole, and is on the disk before the caller goes on; a chain is never replaced by
//! one that is only its beginning, unless its group became live.

use std::io;
use std::path::{Path, PathBuf};

use towline_os::fs::{self, File};
use towline_os::sync::Mutex;
use towline_types::{Histories, History, HistoryId};

const NAME: &str = "followed-histories";
const NEW: &str = "followed-histories.new";
const MAGIC: &[u8; 8] = b"TOWLINEH";
const HEAD_BYTES: usize = 12;

/// See the module.
pub(crate) struct FollowedHistories {
    folder: PathBuf,
    kept: Mutex<Histories>,
}

impl FollowedHistories {
    /// What is kept in this folder; nothing is: the empty chain.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub(crate) fn read(folder: &Path) -> io::Result<FollowedHistories> {
        let kept = match fs::read(folder.join(NAME)) {
            Ok(bytes) => decode(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Histories::default(),
            Err(error) => return Err(error),
        };
        Ok(FollowedHistories { folder: folder.to_owned(), kept: Mutex::new(kept) })
    }

    /// The chain.
    pub(crate) fn chain(&self) -> Histories {
        self.kept.lock().clone()
    }

    /// Keeps this one; it is on the disk when this returns. One that is the beginning of what is
    /// kept changes nothing. Yields whether it is news.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn keep(&self, chain: &Histories) -> io::Result<bool> {
        let mut kept = self.kept.lock();
        if is_beginning(chain, &kept) {
            return Ok(false);
        }
        self.write(chain)?;
        *kept = chain.clone();
        Ok(true)
    }

    /// This group became live: what is behind the newest history that has begun in its own log is
    /// not in that.
    ///
    /// # Errors
    /// What the disk said. In this process it is cut all the same.
    pub(crate) fn cut(&self, has_begun: impl Fn(HistoryId) -> bool) -> io::Result<()> {
        let mut kept = self.kept.lock();
        let stays = kept.iter().rposition(|history| has_begun(history.id)).map_or(0, |at| at + 1);
        if stays == kept.iter().len() {
            return Ok(());
        }
        let chain: Vec<History> = kept.iter().take(stays).cloned().collect();
        let folded = if chain.is_empty() { 0 } else { kept.folded() };
        // It goes on from history to history as before.
        *kept = Histories::of(folded, chain).unwrap_or_default();
        self.write(&kept)
    }

    /// Whether another history has gone on from this one in the log that is followed.
    pub(crate) fn goes_on_from(&self, history: HistoryId) -> bool {
        let kept = self.kept.lock();
        kept.get(history).is_some() && kept.newest().is_some_and(|newest| newest.id != history)
    }

    fn write(&self, chain: &Histories) -> io::Result<()> {
        let bytes = encode(chain);
        let file =
            File::options().create(true).truncate(true).write(true).open(self.folder.join(NEW))?;
        fs::FileExt::write_all_at(&file, &bytes, 0)?;
        file.sync_all()?;
        fs::rename(self.folder.join(NEW), self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Whether all of `one` is in `other`, from the first history on.
fn is_beginning(one: &Histories, other: &Histories) -> bool {
    match one.newest() {
        None => true,
        Some(newest) => other.at(one.count() - 1).is_some_and(|same| same.id == newest.id),
    }
}

/// What a recovery instance says of its histories that has applied `applied`, follows a log with
/// `followed` and has bytes up to `end`.
pub(crate) fn said(applied: Histories, followed: &Histories, end: towline_types::Lsn) -> Histories {
    let followed = followed.up_to(end);
    if followed.count() > applied.count() && is_beginning(&applied, &followed) {
        followed
    } else {
        applied
    }
}

fn encode(chain: &Histories) -> Vec<u8> {
    let chain = chain.to_bytes();
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&chain).to_le_bytes());
    bytes.extend_from_slice(&chain);
    bytes
}

fn decode(bytes: &[u8]) -> io::Result<Histories> {
    let wrong = |why: &str| {
        let why = format!("{NAME} {why}: restore it from a backup, or replace this instance");
        io::Error::new(io::ErrorKind::InvalidData, why)
    };
    let (head, chain) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(|| wrong("is too short"))?;
    let sum = head.strip_prefix(MAGIC).ok_or_else(|| wrong("is not a file of Towline"))?;
    if sum != crc32c::crc32c(chain).to_le_bytes() {
        return Err(wrong("is damaged"));
    }
    Histories::from_bytes(chain).map_err(|error| wrong(&format!("cannot be read: {error}")))
}

#[cfg(test)]
pub(crate) mod tests {
    use towline_types::{History, HistoryId, Lsn, Time};

    use super::*;

    fn chain(forks: &[u64]) -> Histories {
        chain_of(forks.iter().copied().map(Lsn))
    }

    /// Histories that begin at these positions.
    pub(crate) fn chain_of(forks: impl IntoIterator<Item = Lsn>) -> Histories {
        let mut chain = Histories::default();
        for (number, fork) in (1..).zip(forks) {
            let parent = chain.newest().map(|newest| newest.id);
            let history = History {
                id: HistoryId([number; 16]),
                parent,
                fork,
                live: "WEST".into(),
                began: Time(7),
                cause: String::new(),
            };
            chain.push(history).unwrap();
        }
        chain
    }

    #[test]
    fn what_was_kept_is_there_after_a_start_and_never_gets_shorter() {
        let folder = tempfile::tempdir().unwrap();
        let followed = FollowedHistories::read(folder.path()).unwrap();
        assert!(followed.chain().is_empty());
        assert!(!followed.keep(&Histories::default()).unwrap());
        assert!(followed.keep(&chain(&[0, 500])).unwrap());
        assert!(!followed.keep(&chain(&[0])).unwrap(), "it is the beginning of what is kept");
        let again = FollowedHistories::read(folder.path()).unwrap();
        assert_eq!(again.chain(), chain(&[0, 500]));
    }

    #[test]
    fn a_group_that_becomes_live_keeps_what_its_own_log_has() {
        let folder = tempfile::tempdir().unwrap();
        let followed = FollowedHistories::read(folder.path()).unwrap();
        assert!(followed.keep(&chain(&[0, 500, 900])).unwrap());
        let id = |number| HistoryId([number; 16]);
        assert!(followed.goes_on_from(id(2)) && !followed.goes_on_from(id(3)));
        assert!(!followed.goes_on_from(id(9)), "it is not known");
        followed.cut(|history| history != id(3)).unwrap();
        assert_eq!(followed.chain(), chain(&[0, 500]));
        let again = FollowedHistories::read(folder.path()).unwrap();
        assert_eq!(again.chain(), chain(&[0, 500]), "also after a start");
        again.cut(|_| true).unwrap();
        assert_eq!(again.chain(), chain(&[0, 500]));
        again.cut(|_| false).unwrap();
        assert!(FollowedHistories::read(folder.path()).unwrap().chain().is_empty());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let bytes = encode(&chain(&[0]));
        assert_eq!(decode(&bytes).unwrap(), chain(&[0]));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(decode(&flipped).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_log_says_the_histories_of_the_bytes_that_it_has() {
        let followed = chain(&[0, 500]);
        let of = |applied, end| said(applied, &followed, Lsn(end)).count();
        assert_eq!(of(Histories::default(), 0), 0, "an empty log has none");
        assert_eq!(of(Histories::default(), 400), 1);
        assert_eq!(of(chain(&[0]), 600), 2, "the record of the second has not come");
        assert_eq!(of(chain(&[0, 500]), 400), 2, "what is applied counts");
        let mut other = Histories::default();
        let first = History { id: HistoryId([9; 16]), ..chain(&[0]).newest().unwrap().clone() };
        other.push(first).unwrap();
        assert_eq!(said(other.clone(), &followed, Lsn(600)), other, "another chain counts alone");
    }
}
