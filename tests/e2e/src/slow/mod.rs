//! A file system that shows another folder, each operation a set time later.
//!
//! It stands for a disk behind a network: what costs there is the number of operations, one after
//! the other, and not the bytes. [`numbers`] knows which node is which path, [`count`] the
//! operations by process, [`shown`] answers the kernel ([`aligned`] has its buffers); [`gate`] lets
//! it hang, as a disk with a lost connection does. Not here: forgetting (see `lossy`), faults,
//! permissions, and delay of operations without a waiting caller (a release, a forget).

mod aligned;
pub mod count;
mod gate;
mod numbers;
mod shown;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption};

use crate::Try;
use crate::slow::count::Counts;
use crate::slow::gate::Gate;
use crate::slow::shown::SlowFolder;

/// Operations that may wait at once. A restart reads with a thread or two for each processor;
/// a disk behind a network takes as many requests at once.
const OPERATIONS_AT_ONCE: usize = 64;

/// A mounted folder of another folder's files.
pub struct Slow {
    session: Option<BackgroundSession>,
    counts: Arc<Counts>,
    gate: Arc<Gate>,
}

impl Slow {
    /// Shows `folder` at `mount`, both of which exist; each operation takes `delay` longer.
    ///
    /// # Errors
    /// When FUSE is not there (`/dev/fuse` must be usable), or a path is not a folder.
    pub fn mount(folder: &Path, mount: &Path, delay: Duration) -> Try<Self> {
        let folder = folder.canonicalize().map_err(|error| format!("{folder:?}: {error}"))?;
        let counts = Arc::new(Counts::default());
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("towline-slow".into())];
        config.n_threads = Some(OPERATIONS_AT_ONCE);
        config.clone_fd = true;
        let gate = Arc::new(Gate::default());
        let shown = SlowFolder::new(folder, delay, (Arc::clone(&counts), Arc::clone(&gate)));
        let session = fuser::spawn_mount(shown, mount, &config)
            .map_err(|error| format!("cannot mount with FUSE at {mount:?}: {error}"))?;
        Ok(Self { session: Some(session), counts, gate })
    }

    /// What was asked for since the mount.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// From now on nothing that changes the folder comes back, until [`Slow::go_on`].
    pub fn hang(&self) {
        self.gate.set(true);
    }

    /// Lets everything go on that hangs.
    pub fn go_on(&self) {
        self.gate.set(false);
    }

    /// Takes the mount away.
    ///
    /// # Errors
    /// When a program still has a file open there.
    pub fn unmount(mut self) -> Try {
        self.session.take().map_or(Ok(()), BackgroundSession::umount_and_join)?;
        Ok(())
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.go_on();
        if let Some(Err(error)) = self.session.take().map(BackgroundSession::umount_and_join) {
            eprintln!("cannot unmount: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
