//! The file in which a member keeps what must outlive its process beside the log: see
//! `towline_group::Kept` for the bytes.
//!
//! Invariant: what `write` was given is what the next start reads, or what was there before; never a
//! mixture.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use towline_group::Kept;

const NAME: &str = "group-state";
const NEW_NAME: &str = "group-state.new";

/// See the module.
#[derive(Debug)]
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
        Kept::decode(&std::fs::read(self.folder.join(NAME)).ok()?)
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

    /// The same, without waiting for the disk: for what may as well be forgotten.
    ///
    /// # Errors
    /// What the disk said.
    pub(crate) fn note(&self, kept: &Kept) -> std::io::Result<()> {
        let new = self.folder.join(NEW_NAME);
        std::fs::write(&new, kept.encode())?;
        // A name that points to bytes which are not there yet would be taken for damage: the bytes first.
        File::open(&new)?.sync_data()?;
        std::fs::rename(&new, self.folder.join(NAME))
    }
}

#[cfg(test)]
mod tests {
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
        let noted = Kept { term: 9, ..Kept::default() };
        file.note(&noted).unwrap();
        assert_eq!(file.read(), Some(noted));
        std::fs::write(folder.path().join(NAME), [0; 64]).unwrap();
        assert_eq!(file.read(), None);
    }
}
