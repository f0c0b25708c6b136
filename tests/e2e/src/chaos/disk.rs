//! A small disk of an instance's own, in memory: one that can be filled to the last byte, or one
//! that forgets as well what was not synced when its power goes.
//!
//! The first kind is mounted, which needs root; the second is a file system of this process (FUSE),
//! and slower. Where they are not allowed there are none. Not here: what a full disk, or a power
//! cut, does to an instance.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::chance::Chance;
use crate::daemon::{Site, said};
use crate::lossy::mount::{Lossy, folder_on};
use crate::{Try, fail, require};

/// Size: far more than a round's messages, images and a copy need.
const SIZE: &str = "512m";
/// The same in bytes.
const BYTES: u64 = 512 << 20;
/// What fills the first kind.
const FILLER: &str = "filler";

/// See the module. Taken away when it is dropped.
#[must_use]
pub enum ChaosDisk {
    /// Where it is mounted.
    Plain(PathBuf),
    /// It loses what was not synced.
    Forgetful(Lossy),
}

impl ChaosDisk {
    /// One that keeps everything, mounted at the data folder of a site, which is made.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn plain(site: &Site) -> Try<ChaosDisk> {
        let folder = &site.data;
        fs::create_dir_all(folder)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"]).arg(folder);
        let output = command.output()?;
        require!(output.status.success(), "mount: {}", said(&output));
        Ok(ChaosDisk::Plain(folder.clone()))
    }

    /// One that forgets; the site's data folder is on it from now on.
    ///
    /// # Errors
    /// When FUSE is not there.
    pub fn forgetful(site: &mut Site) -> Try<ChaosDisk> {
        let lossy = Lossy::mount(BYTES)?;
        site.data = folder_on(&lossy, "data")?;
        Ok(ChaosDisk::Forgetful(lossy))
    }

    /// Nothing fits any more.
    ///
    /// # Errors
    /// When it cannot be written at all.
    pub fn fill(&self) -> Try {
        match self {
            ChaosDisk::Plain(folder) => fill(folder),
            ChaosDisk::Forgetful(lossy) => {
                lossy.with_disk(|disk| disk.set_bytes_max(disk.room().1));
                Ok(())
            }
        }
    }

    /// Nor can a file be made, as on a file system that has no node left for one.
    ///
    /// # Errors
    /// When its size cannot be changed, or it is one that forgets.
    pub fn take_names(&self) -> Try {
        let ChaosDisk::Plain(folder) = self else { fail!("its names cannot be counted") };
        let found = rustix::fs::statvfs(folder)?;
        let used = found.f_files - found.f_ffree;
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,nr_inodes={used}")]).arg(folder);
        let output = command.output()?;
        require!(output.status.success(), "mount: {}", said(&output));
        Ok(())
    }

    /// There is free space again.
    ///
    /// # Errors
    /// When what filled it cannot be removed.
    pub fn free(&self) -> Try {
        match self {
            ChaosDisk::Plain(folder) => match fs::remove_file(folder.join(FILLER)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            },
            ChaosDisk::Forgetful(lossy) => {
                lossy.with_disk(|disk| disk.set_bytes_max(BYTES));
                Ok(())
            }
        }
    }

    /// Leaves what is on it in a folder of its own below `folder`, because it goes with this
    /// process; for one that forgets, also what is durable of it.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn keep_in(&self, folder: &Path) -> Try<PathBuf> {
        let kept = folder.join("disk");
        match self {
            ChaosDisk::Plain(data) => {
                let output = Command::new("cp").arg("-a").arg(data).arg(&kept).output()?;
                require!(output.status.success(), "cp: {}", said(&output));
            }
            ChaosDisk::Forgetful(lossy) => lossy.with_disk(|disk| disk.keep_in(&kept))?,
        }
        Ok(kept)
    }

    /// The power goes: about `keep_percent` of what was not synced stays, where the disk forgets at
    /// all. Nothing on it may be open.
    pub fn cut_power(&self, keep_percent: u64, chance: &mut Chance) {
        if let ChaosDisk::Forgetful(lossy) = self {
            lossy.cut_power(keep_percent, chance);
        }
    }
}

fn fill(folder: &Path) -> Try {
    let mut options = OpenOptions::new();
    let mut file = options.create(true).append(true).open(folder.join(FILLER))?;
    let mut piece = vec![0; 1 << 20];
    while !piece.is_empty() {
        // The last write that fits is smaller and smaller.
        if file.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
    Ok(())
}

impl Drop for ChaosDisk {
    fn drop(&mut self) {
        if let ChaosDisk::Plain(folder) = self {
            // Lazily: a process that is about to end may still have it open.
            drop(Command::new("umount").arg("--lazy").arg(folder).output());
        }
    }
}
