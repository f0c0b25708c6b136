//! The file in which a member keeps what must outlive its process beside the log: see
//! `towline_group::Kept` for the bytes.
//!
//! How far the log is known to be committed is noted in a second file, now and then and without a sync.
//!
//! Invariant: what `write` was given is what the next start reads, or what was there before; never a
//! mixture.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use towline_group::Kept;

const NAME: &str = "group-state";
const NEW_NAME: &str = "group-state.new";
const NOTE: &str = "group-committed";

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct KeptFile {
    folder: PathBuf,
}

impl KeptFile {
    pub(crate) fn of(data: &Path) -> KeptFile {
        KeptFile { folder: data.to_owned() }
    }

    /// What is kept; `None` when there is nothing, or nothing that can be read: then it is not known
    /// what this member promised, and it must not promise anything before it has caught up.
    pub(crate) fn read(&self) -> Option<Kept> {
        let read = |name| Kept::decode(&std::fs::read(self.folder.join(name)).ok()?);
        let kept = read(NAME)?;
        // Whatever was once known to be committed is so.
        let note = read(NOTE).filter(|note| note.committed > kept.committed);
        let Some(note) = note else { return Some(kept) };
        Some(Kept { committed: note.committed, committed_end: note.committed_end, ..kept })
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// What the disk said: it is not known what the next start reads.
    pub(crate) fn write(&self, kept: &Kept) -> std::io::Result<()> {
        let new = self.folder.join(NEW_NAME);
        let mut file = File::create(&new)?;
        file.write_all(&kept.encode())?;
        file.sync_data()?;
        std::fs::rename(&new, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Writes down how far the log is known to be committed, in a file of its own and without waiting
    /// for the disk: this may as well be forgotten, and a file that is half written is known by its
    /// checksum.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn note(&self, kept: &Kept) -> std::io::Result<()> {
        let mut options = File::options();
        options.create(true).truncate(false).write(true);
        options.open(self.folder.join(NOTE))?.write_all(&kept.encode())
    }

    /// Forgets what was written down: the log is another one now.
    ///
    /// # Errors
    /// What the system said.
    pub(crate) fn forget_note(&self) -> std::io::Result<()> {
        match std::fs::remove_file(self.folder.join(NOTE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_types::Lsn;

    use super::*;

    #[test]
    fn what_was_written_last_is_read_and_damage_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = KeptFile::of(folder.path());
        assert_eq!(file.read(), None);
        for term in 1..4 {
            let kept = Kept { term, may_vote: true, ..Kept::default() };
            file.write(&kept).unwrap();
            assert_eq!(file.read(), Some(kept));
        }
        // A note says how far, and nothing of votes.
        let noted = Kept { term: 9, committed: 7, committed_end: Lsn(70), ..Kept::default() };
        file.note(&noted).unwrap();
        file.note(&noted).unwrap();
        let both = Kept { term: 3, may_vote: true, ..noted };
        assert_eq!(file.read(), Some(both));
        std::fs::write(folder.path().join(NOTE), [7; 60]).unwrap();
        assert_eq!(file.read(), Some(Kept { term: 3, may_vote: true, ..Kept::default() }));
        file.forget_note().unwrap();
        file.forget_note().unwrap();
        std::fs::write(folder.path().join(NAME), [0; 64]).unwrap();
        assert_eq!(file.read(), None);
    }
}
