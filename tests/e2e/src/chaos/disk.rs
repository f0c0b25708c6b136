//! A small disk of an instance's own, in memory, that can be filled to the last byte.
//!
//! Needs root, because it is mounted; where that is not allowed there is none. Not here: what a full
//! disk does to an instance.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::daemon::said;
use crate::{Try, require};

/// Size: far more than a round's messages, images and a copy need.
const SIZE: &str = "768m";
/// What fills it.
const FILLER: &str = "filler";

/// See the module. Taken away when it is dropped.
pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Mounts one at a folder, which is made.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(super) fn mount(folder: &Path) -> Try<Disk> {
        fs::create_dir_all(folder)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"]).arg(folder);
        let output = command.output()?;
        require!(output.status.success(), "mount: {}", said(&output));
        Ok(Disk { folder: folder.to_path_buf() })
    }

    /// Nothing fits any more.
    ///
    /// # Errors
    /// When it cannot be written at all.
    pub(super) fn fill(&self) -> Try {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.folder.join(FILLER))?;
        let mut piece = vec![0; 1 << 20];
        while !piece.is_empty() {
            // The last write that fits is smaller and smaller.
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        Ok(())
    }

    /// There is room again.
    ///
    /// # Errors
    /// When what filled it cannot be removed.
    pub(super) fn free(&self) -> Try {
        match fs::remove_file(self.folder.join(FILLER)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still have it open.
        drop(Command::new("umount").arg("--lazy").arg(&self.folder).output());
    }
}
