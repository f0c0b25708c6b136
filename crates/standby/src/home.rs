//! The log folder of an instance, and the right to write it: a lease on a shared data folder, the
//! lock of the log folder otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use towline_log::{Disk, Options, REBUILD_MARKER};

use crate::epochs::{self, is_shared};
use crate::error::FolderError;
use crate::guard;
use crate::lease::Lease;
use crate::takeover;

/// The folders of an instance, and the lease by which it may write them.
pub struct Home {
    data: PathBuf,
    log_folder: PathBuf,
    lease: Option<Arc<Lease>>,
}

impl Home {
    /// A data folder that is not shared.
    #[must_use]
    pub fn single(data: &Path) -> Home {
        Home { data: data.to_owned(), log_folder: data.join(epochs::SINGLE_LOG), lease: None }
    }

    /// A shared data folder: the log folder that belongs to the epoch of `lease`.
    #[must_use]
    pub fn leased(data: PathBuf, log_folder: PathBuf, lease: Arc<Lease>) -> Home {
        Home { data, log_folder, lease: Some(lease) }
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The log folder.
    #[must_use]
    pub fn log_folder(&self) -> &Path {
        &self.log_folder
    }

    /// The file that says that the page file must not be used.
    #[must_use]
    pub fn rebuild_marker(&self) -> PathBuf {
        // It lies with the log that it describes: an instance whose lease expired must not write
        // into the folder of its successor.
        let folder = if self.lease.is_some() { &self.log_folder } else { &self.data };
        folder.join(REBUILD_MARKER)
    }

    /// The lease of a shared data folder.
    #[must_use]
    pub fn lease(&self) -> Option<&Arc<Lease>> {
        self.lease.as_ref()
    }

    /// The disk on which nothing becomes durable without a valid lease.
    #[must_use]
    pub fn guard(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        match &self.lease {
            Some(lease) => Arc::new(guard::LeasedDisk::new(disk, Arc::clone(lease))),
            None => disk,
        }
    }

    /// The options of a log in this folder.
    #[must_use]
    pub fn options(&self, options: Options) -> Options {
        Options { recycle_extents: self.lease.is_none(), ..options }
    }

    /// Checks again, with the lock of the log folder held, that a folder that is to be used without
    /// a lease is not shared.
    ///
    /// # Errors
    /// It was shared once, or another process began to share it a moment ago.
    pub fn check(&self) -> Result<(), FolderError> {
        if self.lease.is_none() && is_shared(&self.data)? {
            return Err(FolderError::Shared);
        }
        Ok(())
    }

    /// The log is open: removes what earlier instances left, and keeps free space for a later
    /// takeover, on a thread of its own.
    pub fn settle(&self) {
        let Some(lease) = &self.lease else { return };
        let data = self.data.clone();
        let epoch = lease.epoch();
        let tidying = towline_os::thread::Builder::new().name("folders".into());
        let spawned = tidying.spawn(move || {
            takeover::tidy(&data, epoch);
            if let Err(error) = takeover::keep_free_space(&data) {
                tracing::warn!(%error, "no free space is kept for a takeover on a full disk");
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "what earlier instances left stays");
        }
    }

    /// The log is closed and no client gets an answer any more: a standby may take over at once.
    pub fn leave(&self) {
        if let Some(lease) = &self.lease {
            lease.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not in use by any process: it stays shared when all of them have ended.
    #[test]
    fn a_shared_folder_is_refused_without_a_lease_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::single(folder.path());
        assert!(home.check().is_ok());
        std::fs::write(folder.path().join(epochs::epoch_name(1)), b"").unwrap();
        let why = home.check().unwrap_err();
        assert!(matches!(why, FolderError::Shared), "{why}");
        let words = why.to_string();
        assert!(words.contains("shared data folder") && !words.contains("in use"), "{words}");
    }
}
